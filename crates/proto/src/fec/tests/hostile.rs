//! Packets that lie, come twice, or never end.

use super::*;

/// What a hostile peer sends is not taken for what it is not, and changes nothing that has arrived
/// (execution 20: only the peer itself can seal a repair packet).
#[test]
fn garbled_repair_rebuilds_nothing() {
    let mut random = Random(6);
    for round in 0..60 {
        let mut encoder = Encoder::new(RepairMode::Full);
        let sent = push(&mut encoder, &mut random, 20, 60);
        encoder.wait(ms(0));
        let (mut all, _) = repair(&mut encoder, ms(0));
        let mut decoder = Decoder::new();
        for packet in sent.iter().filter(|packet| ![6, 13].contains(&packet.sequence)) {
            decoder.handle_data(packet.clone());
        }
        // A byte, the block's beginning, or its number of packets.
        let wrong = &mut all[0];
        match round % 3 {
            0 => wrong.symbol[round / 3] ^= 1,
            1 => wrong.first = 1,
            _ => wrong.packets -= 1,
        }
        decoder.handle_repair(all[0].clone());
        decoder.handle_repair(all[1].clone());
        rebuild(&mut decoder);
        let found = packets_of(&mut decoder);
        for (sequence, packet) in &found {
            let is_right = *packet == sent[*sequence as usize];
            // A flipped byte of the contents alone cannot be told from others.
            assert!(is_right || round % 3 == 0, "{round}: {packet:?}");
        }
        // What comes later repairs the block all the same.
        let complete = decoder.complete();
        all.into_iter().skip(2).for_each(|packet| decoder.handle_repair(packet));
        rebuild(&mut decoder);
        assert!(decoder.complete() >= complete);
        if !found.contains_key(&6) {
            assert_eq!(decoder.complete(), 20, "{round}");
            assert!(packets_of(&mut decoder).values().all(|packet| sent.contains(packet)));
        }
    }
}

/// A sum whose bytes do not join their neighbours is refused.
#[test]
fn a_sum_that_does_not_fit_is_refused() {
    let packet = |sequence: u64, offset| DataPacket { sequence, offset, bytes: vec![1; 10] };
    let mut decoder = Decoder::new();
    decoder.handle_data(packet(0, 0));
    decoder.handle_data(packet(2, 20));
    let mut symbol = symbol::of(&packet(0, 0));
    symbol::add(&mut symbol, &symbol::of(&packet(1, 11)));
    let sum = LayerPacket { first: 0, step: 1, packets: 2, symbol };
    decoder.handle_layer(sum.clone());
    assert_eq!((decoder.complete(), decoder.counts().refused), (1, 1));
    let mut symbol = symbol::of(&packet(0, 0));
    symbol::add(&mut symbol, &symbol::of(&packet(1, 10)));
    decoder.handle_layer(LayerPacket { symbol, ..sum });
    assert_eq!(decoder.complete(), 3);
}

/// A packet that arrived stays, whatever is rebuilt of it later or came of it before.
#[test]
fn duplicates_and_late_packets_change_nothing() {
    let mut random = Random(7);
    let mut encoder = Encoder::new(RepairMode::Full);
    let sent = push(&mut encoder, &mut random, 64, 300);
    let (all, _) = repair(&mut encoder, ms(0));
    let mut decoder = Decoder::new();
    for packet in sent.iter().filter(|packet| packet.sequence != 9) {
        decoder.handle_data(packet.clone());
        decoder.handle_data(packet.clone());
    }
    all.iter().for_each(|packet| decoder.handle_repair(packet.clone()));
    let damaged = decoder.take().unwrap();
    decoder.handle_data(sent[9].clone());
    decoder.handle_rebuilt(damaged.rebuild());
    all.iter().for_each(|packet| decoder.handle_repair(packet.clone()));
    assert!(decoder.take().is_none(), "nothing is missing");
    assert_eq!((decoder.counts().arrived, decoder.counts().by_block), (64, 0));
    assert!(packets_of(&mut decoder) == by_sequence(&sent));
    let symbols: usize = sent.iter().map(|packet| symbol::of(packet).len()).sum();
    assert_eq!(decoder.kept_bytes(), symbols, "and no repair symbol is kept");
}

/// A peer that sends what never ends gets no more memory than the limits.
#[test]
fn memory_is_bounded() {
    let mut random = Random(8);
    let mut decoder = Decoder::new();
    let symbol = vec![1; SYMBOL_BYTES];
    for at in 0..20_000_u64 {
        let sequence = at * 3;
        let bytes = vec![2; limits::DATAGRAM_STREAM_BYTES];
        decoder.handle_data(DataPacket { sequence, offset: sequence * 2000, bytes });
        let first = random.next() % (sequence + 100);
        let packets = 64;
        let index = (at % 16) as u8;
        decoder.handle_repair(RepairPacket { first, packets, index, symbol: symbol.clone() });
        let step = 1 + (at % 64) as u8;
        decoder.handle_layer(LayerPacket { first, step, packets, symbol: symbol.clone() });
        drop(packets_of(&mut decoder));
    }
    let most = limits::DECODED_PACKETS * SYMBOL_BYTES + limits::DECODED_REPAIR_BYTES;
    assert!(decoder.kept_bytes() <= most, "{}", decoder.kept_bytes());
    assert!(decoder.counts().dropped > 0);

    let mut stream = StreamBuffer::new();
    (1..40_000_u64).for_each(|at| stream.insert(at * 2000, &[3; 1000]));
    stream.insert(0, &[3; 2000]);
    let mut kept = 0;
    let mut at = stream.next();
    assert_eq!(at, 3000);
    // Each hole is followed by a piece, until one was dropped.
    while at == 3000 + kept * 2000 {
        stream.insert(at, &[3; 1000]);
        at = stream.next();
        kept += 1;
    }
    assert!(kept > 1000 && kept <= limits::STREAM_AHEAD_BYTES as u64 / 1000, "{kept} pieces");
}

proptest! {
    /// Any packets that the wire can carry: no panic, and nothing beyond the limits.
    #[test]
    fn any_packet_is_borne(
        packets in prop::collection::vec(
            (0..3_u8, 0..200_u64, 1..=64_u8, 1..=64_u8, 0..16_u8, 6..40_usize, any::<u8>()),
            1..200,
        ),
        far in any::<bool>(),
    ) {
        let mut decoder = Decoder::new();
        let base = if far { i64::MAX as u64 - 200 } else { 0 };
        for (kind, first, step, packets, index, words, byte) in packets {
            let first = base + first;
            let symbol = vec![byte; 2 * words];
            let bytes = vec![byte; words];
            match kind {
                0 => decoder.handle_data(DataPacket { sequence: first, offset: first, bytes }),
                1 => decoder.handle_repair(RepairPacket { first, packets, index, symbol }),
                _ => {
                    let packets = packets.max(2);
                    decoder.handle_layer(LayerPacket { first, step, packets, symbol });
                }
            }
            if let Some(damaged) = decoder.take() {
                decoder.handle_rebuilt(damaged.rebuild());
            }
            decoder.handle_filled(first);
            drop(packets_of(&mut decoder));
        }
    }
}
