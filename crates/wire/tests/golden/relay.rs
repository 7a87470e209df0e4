//! Golden messages of a relay.

use pelago_wire::relay::{Record, RelayMessage, RelayOffer, RelayRepair, RelayReport, RelaySays};

use crate::check_vectors;

fn messages() -> Vec<(&'static str, RelayMessage)> {
    let offer = |repair| {
        let mirror = "key@host:7000".to_owned();
        RelayMessage::Offer(RelayOffer { reign: 2, run: [7; 16], mirror, repair })
    };
    let record = |is_last, is_awaited| {
        RelayMessage::Record(Record {
            group: 0x1112_1314,
            number: 0x2122_2324,
            is_last,
            is_awaited,
            sealed: b"sealed".to_vec(),
        })
    };
    let report = |says| RelayMessage::Report(RelayReport { number: 9, says });
    vec![
        ("Offer.off", offer(RelayRepair::Off)),
        ("Offer.auto", offer(RelayRepair::Auto)),
        ("Offer.full", offer(RelayRepair::Full)),
        ("Record", record(false, false)),
        ("Record.last", record(true, false)),
        ("Record.awaited", record(true, true)),
        ("Ping", RelayMessage::Ping),
        ("Report.ready", report(RelaySays::Ready)),
        ("Report.undelivered", report(RelaySays::Undelivered)),
        ("Report.kept", report(RelaySays::Kept)),
        ("Report.sent", report(RelaySays::Sent)),
        ("Report.safe", report(RelaySays::Safe([8; 32]))),
        ("Report.apart", report(RelaySays::Apart("the link is cut".to_owned()))),
        ("Report.joined", report(RelaySays::Joined)),
        ("Report.replaced", report(RelaySays::Replaced)),
    ]
}

#[test]
fn every_message_of_a_relay_is_the_bytes_it_always_was() {
    let mut vectors = Vec::new();
    for (name, message) in messages() {
        let body = message.encode().unwrap();
        assert_eq!(RelayMessage::decode(&body), Ok(message));
        vectors.push((name.to_owned(), body));
    }
    check_vectors("relay.txt", &vectors);
}
