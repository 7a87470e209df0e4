//! Golden datagrams between a primary and its mirror, before they are sealed.

use pelago_wire::datagram::{
    DataPacket, Datagram, DatagramBody, LayerPacket, LinkReport, LostRun, RepairPacket,
};

use crate::check_vectors;

fn bodies() -> [(&'static str, DatagramBody); 5] {
    let report = LinkReport {
        highest: 0x3132_3334,
        arrived: 0x4142_4344_4546,
        held: 0x5152,
        bytes: 0x6162_6364_6566,
        settled: 0x3132_3314,
        lost: 0x7172,
        complete: 0x2122_2324,
        runs: Vec::new(),
    };
    let runs =
        vec![LostRun { first: 0x3132_3301, length: 1 }, LostRun { first: 0x3132_3305, length: 9 }];
    let symbol = |byte: u8| (byte..).take(14).collect::<Vec<u8>>();
    [
        (
            "Data",
            DatagramBody::Data(DataPacket {
                sequence: 0x2122_2324,
                offset: 0x1112_1314_1516,
                bytes: b"bytes".to_vec(),
            }),
        ),
        (
            "Repair",
            DatagramBody::Repair(RepairPacket {
                first: 0x2122_2324,
                packets: 64,
                index: 15,
                symbol: symbol(0xa0),
            }),
        ),
        (
            "Layer",
            DatagramBody::Layer(LayerPacket {
                first: 0x2122_2324,
                step: 8,
                packets: 64,
                symbol: symbol(0xb0),
            }),
        ),
        ("Report", DatagramBody::Report(report.clone())),
        ("Report.runs", DatagramBody::Report(LinkReport { runs, ..report })),
    ]
}

#[test]
fn every_datagram_is_the_bytes_it_always_was() {
    let vectors = bodies().map(|(name, body)| {
        let datagram = Datagram { number: 0x0102_0304_0506_0708, body };
        let bytes = datagram.encode().unwrap();
        assert_eq!(Datagram::decode(&bytes), Ok(datagram));
        (name.to_owned(), bytes)
    });
    check_vectors("datagrams.txt", &vectors);
}
