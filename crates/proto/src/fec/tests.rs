use std::collections::BTreeMap;
use std::time::Duration;

use pelago_wire::datagram::{DataPacket, DatagramBody, LayerPacket, RepairPacket, SYMBOL_BYTES};
use pelago_wire::limits;
use proptest::prelude::*;

use super::*;
use crate::link::LinkQuality;
use crate::link::tests::path::Random;

mod hostile;
mod sent;
mod window;
mod world;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn quality(loss: f64) -> LinkQuality {
    LinkQuality { rate: 12_500_000, loss, burst: 4 }
}

/// Returns an encoder of a link of 100 Mbit/s with this loss.
fn encoder(loss: f64) -> Encoder {
    let mut encoder = Encoder::new(RepairMode::Auto);
    encoder.handle_quality(ms(0), quality(loss));
    encoder
}

fn random_bytes(random: &mut Random, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.next() as u8).collect()
}

/// Pushes packets of random bytes, at most `most` each.
fn push(
    encoder: &mut Encoder,
    random: &mut Random,
    packets: usize,
    most: usize,
) -> Vec<DataPacket> {
    let one = |_| {
        let length = 1 + random.next() as usize % most;
        encoder.push(ms(0), &random_bytes(random, length), true).unwrap()
    };
    (0..packets).map(one).collect()
}

/// Takes all repair packets that may be sent.
fn repair(encoder: &mut Encoder, now: Duration) -> (Vec<RepairPacket>, Vec<LayerPacket>) {
    let mut blocks = Vec::new();
    let mut layers = Vec::new();
    while let Some(body) = encoder.poll_repair(now) {
        match body {
            DatagramBody::Repair(packet) => blocks.push(packet),
            DatagramBody::Layer(packet) => layers.push(packet),
            DatagramBody::Data(_) | DatagramBody::Report(_) => panic!("{body:?}"),
        }
    }
    (blocks, layers)
}

/// Rebuilds what can be rebuilt.
fn rebuild(decoder: &mut Decoder) {
    while let Some(damaged) = decoder.take() {
        decoder.handle_rebuilt(damaged.rebuild());
    }
}

fn packets_of(decoder: &mut Decoder) -> BTreeMap<u64, DataPacket> {
    let mut found = BTreeMap::new();
    while let Some(packet) = decoder.poll_packet() {
        let before = found.insert(packet.sequence, packet);
        assert_eq!(before, None, "each comes once");
    }
    found
}

/// Returns the sequence numbers below one that are not there.
fn absent(found: &BTreeMap<u64, DataPacket>, below: u64) -> Vec<u64> {
    (0..below).filter(|sequence| !found.contains_key(sequence)).collect()
}

fn by_sequence(packets: &[DataPacket]) -> BTreeMap<u64, DataPacket> {
    packets.iter().map(|packet| (packet.sequence, packet.clone())).collect()
}

/// Chooses `count` of `of` numbers.
fn some_of(random: &mut Random, of: usize, count: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..of).collect();
    for at in 0..count {
        let other = at + random.next() as usize % (of - at);
        all.swap(at, other);
    }
    all.truncate(count);
    all
}

#[test]
fn the_least_repair_is_that_of_the_table() {
    let losses = [0.001, 0.005, 0.01, 0.02];
    let table = [
        (4, [3, 4, 5, 6]),
        (8, [3, 5, 6, 7]),
        (16, [4, 5, 7, 8]),
        (32, [4, 6, 8, 10]),
        (64, [5, 8, 10, 13]),
    ];
    for (packets, expected) in table {
        assert_eq!(losses.map(|loss| least_repair(packets, loss)), expected, "{packets}");
    }
    assert_eq!(least_repair(64, 0.2), limits::BLOCK_REPAIR_PACKETS, "no number is enough");
    assert_eq!((residual(4, 1, 0.0), residual(4, 1, 1.0)), (0.0, 1.0));
    // Two of two, both lost.
    assert!((residual(1, 1, 0.1) - 0.01).abs() < 1e-12);
}

/// Each number of data packets, with as many losses as repair packets, in sampled places.
#[test]
fn as_many_losses_as_repair_packets_are_rebuilt() {
    let mut random = Random(1);
    for packets in 1..=limits::BLOCK_PACKETS {
        let wanted = 1 + random.next() as usize % limits::BLOCK_REPAIR_PACKETS;
        let mut encoder = Encoder::new(RepairMode::Full);
        let most = if packets % 2 == 0 { limits::DATAGRAM_STREAM_BYTES } else { 5 };
        let sent = push(&mut encoder, &mut random, packets, most);
        encoder.wait(ms(0));
        let (mut all, _) = repair(&mut encoder, ms(0));
        assert_eq!(all.len(), limits::BLOCK_REPAIR_PACKETS, "full repair is all of it");
        all.truncate(wanted);
        let lost = some_of(&mut random, packets + wanted, wanted);
        let mut decoder = Decoder::new();
        // The repair packets come first: order means nothing.
        for (at, packet) in all.into_iter().enumerate() {
            if !lost.contains(&(packets + at)) {
                decoder.handle_repair(packet);
            }
        }
        for (at, packet) in sent.iter().enumerate() {
            if !lost.contains(&at) {
                decoder.handle_data(packet.clone());
            }
        }
        rebuild(&mut decoder);
        assert!(packets_of(&mut decoder) == by_sequence(&sent), "{packets} + {wanted}: {lost:?}");
        assert_eq!(decoder.complete(), packets as u64);
        let lost_data = lost.iter().filter(|at| **at < packets).count() as u64;
        assert!(decoder.counts().by_block >= lost_data, "{:?}", decoder.counts());
    }
}

/// One loss more than repair packets is not rebuilt, and the decoder names what is missing.
#[test]
fn what_cannot_be_rebuilt_is_named() {
    let mut random = Random(2);
    let mut encoder = Encoder::new(RepairMode::Full);
    let sent = push(&mut encoder, &mut random, 10, 100);
    encoder.wait(ms(0));
    let (all, _) = repair(&mut encoder, ms(0));
    let mut decoder = Decoder::new();
    let mut stream = StreamBuffer::new();
    for packet in sent.iter().filter(|packet| ![3, 4, 7].contains(&packet.sequence)) {
        decoder.handle_data(packet.clone());
    }
    all.into_iter().take(2).for_each(|packet| decoder.handle_repair(packet));
    rebuild(&mut decoder);
    let found = packets_of(&mut decoder);
    assert_eq!(absent(&found, 10), [3, 4, 7]);
    found.values().for_each(|packet| stream.insert(packet.offset, &packet.bytes));
    assert_eq!((stream.next(), decoder.complete()), (sent[3].offset, 3));
    // The connection brings it.
    for packet in [&sent[3], &sent[4]] {
        stream.insert(packet.offset, &packet.bytes);
    }
    decoder.handle_filled(stream.next());
    assert_eq!((stream.next(), decoder.complete()), (sent[7].offset, 7));
    stream.insert(sent[7].offset, &sent[7].bytes);
    decoder.handle_filled(stream.next());
    assert_eq!((stream.next(), decoder.complete()), (encoder.offset(), 10));
    let whole: Vec<u8> = std::iter::from_fn(|| stream.poll_bytes()).flatten().collect();
    assert_eq!(whole, sent.iter().flat_map(|packet| packet.bytes.clone()).collect::<Vec<_>>());
}

/// Bursts as long as the step, anywhere, are rebuilt from the second layer alone.
#[test]
fn the_second_layer_rebuilds_bursts() {
    let mut random = Random(3);
    for burst in [1, 2, 4, 16, 32] {
        let mut encoder = Encoder::new(RepairMode::Auto);
        encoder.handle_quality(ms(0), LinkQuality { burst, ..quality(0.01) });
        let step = 2 * burst as usize;
        // What is on the link, in order: data packets, and sums after them.
        let mut link = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..(3 * step + 2) * limits::LAYER_PACKETS {
            let now = ms(sent.len() as u64);
            let packet = encoder.push(now, &random_bytes(&mut random, 9), true).unwrap();
            sent.push(packet.clone());
            link.push(DatagramBody::Data(packet));
            let (_, layers) = repair(&mut encoder, now);
            link.extend(layers.into_iter().map(DatagramBody::Layer));
        }
        let safe = step * limits::LAYER_PACKETS;
        for at in (0..safe).step_by(1 + safe / 20).chain([safe - 1, safe - step]) {
            let mut decoder = Decoder::new();
            for (index, body) in link.iter().enumerate() {
                match body {
                    _ if (at..at + step).contains(&index) => {}
                    DatagramBody::Data(packet) => decoder.handle_data(packet.clone()),
                    DatagramBody::Layer(packet) => decoder.handle_layer(packet.clone()),
                    DatagramBody::Repair(_) | DatagramBody::Report(_) => {}
                }
            }
            assert!(packets_of(&mut decoder) == by_sequence(&sent), "{step} lost at {at}");
            let counts = decoder.counts();
            assert!(counts.by_layer > 0 && counts.by_block == 0, "{counts:?}");
        }
    }
}

/// Two losses in a block with one repair packet, and two in a sum: neither layer alone rebuilds
/// anything, and a third loss that a sum of its own has brought back sets both going.
#[test]
fn the_decoder_goes_round_both_layers() {
    let mut random = Random(4);
    let mut encoder = Encoder::new(RepairMode::Full);
    let sent = push(&mut encoder, &mut random, 2 * limits::BLOCK_PACKETS, 50);
    let (blocks, _) = repair(&mut encoder, ms(0));
    let sum = |first: usize, step: usize| {
        let mut symbol = Vec::new();
        sent.iter().skip(first).step_by(step).take(3).for_each(|packet| {
            symbol::add(&mut symbol, &symbol::of(packet));
        });
        LayerPacket { first: first as u64, step: step as u8, packets: 3, symbol }
    };
    // Of the first block 1 and 33 are missing, of the second one 65 and 97.
    let lost = [1, 33, 65, 97];
    let mut decoder = Decoder::new();
    for packet in sent.iter().filter(|packet| !lost.contains(&packet.sequence)) {
        decoder.handle_data(packet.clone());
    }
    for packet in blocks.iter().filter(|packet| packet.index == 5) {
        decoder.handle_repair(packet.clone());
    }
    rebuild(&mut decoder);
    decoder.handle_layer(sum(33, 32));
    rebuild(&mut decoder);
    let mut found = packets_of(&mut decoder);
    assert_eq!(absent(&found, 128), lost, "three in a sum");
    decoder.handle_layer(sum(1, 2));
    // 1 came by its sum; with it the first block can be rebuilt.
    assert_eq!(decoder.counts().by_layer, 1);
    decoder.handle_layer(sum(65, 3));
    assert_eq!(decoder.counts().by_layer, 2);
    rebuild(&mut decoder);
    // The first block has 33, with it the first sum 97, and so the second block lacks nothing.
    assert_eq!((decoder.counts().by_block, decoder.counts().by_layer), (1, 3));
    found.extend(packets_of(&mut decoder));
    assert!(found == by_sequence(&sent));
}

/// A rebuilt block lets a sum rebuild a packet of another block, and no block was asked twice.
#[test]
fn a_rebuilt_block_completes_a_sum() {
    let mut random = Random(5);
    let mut encoder = Encoder::new(RepairMode::Full);
    let sent = push(&mut encoder, &mut random, 2 * limits::BLOCK_PACKETS, 50);
    let (blocks, _) = repair(&mut encoder, ms(0));
    let mut symbol = Vec::new();
    for packet in [&sent[10], &sent[74]] {
        symbol::add(&mut symbol, &symbol::of(packet));
    }
    let mut decoder = Decoder::new();
    for packet in sent.iter().filter(|packet| ![10, 74].contains(&packet.sequence)) {
        decoder.handle_data(packet.clone());
    }
    decoder.handle_layer(LayerPacket { first: 10, step: 64, packets: 2, symbol });
    decoder.handle_repair(blocks.iter().find(|packet| packet.first == 0).unwrap().clone());
    let damaged = decoder.take().unwrap();
    assert!(decoder.take().is_none(), "it is under way");
    decoder.handle_rebuilt(damaged.rebuild());
    assert_eq!((decoder.counts().by_block, decoder.counts().by_layer), (1, 1));
    assert!(packets_of(&mut decoder) == by_sequence(&sent));
}

/// The repair symbols of a release never change: both ends may be of different ones.
#[test]
fn repair_symbols_are_the_bytes_they_always_were() {
    let mut found = Vec::new();
    for packets in [1, 5, 64] {
        let mut encoder = Encoder::new(RepairMode::Full);
        for packet in 0..packets {
            encoder.push(ms(0), &[packet; 3], false).unwrap();
        }
        encoder.wait(ms(0));
        let (all, _) = repair(&mut encoder, ms(0));
        let hex: String = all[7].symbol.iter().map(|byte| format!("{byte:02x}")).collect();
        found.push(hex);
    }
    assert_eq!(found, [ONE, FIVE, ALL]);
}

const ONE: &str = "0300000000000000000000000000";
const FIVE: &str = "0400020303030000000007070700";
const ALL: &str = "00007e6767670000000040404000";

/// Old blocks are given up for memory, and are not called safe then.
#[test]
fn an_encoder_forgets_the_oldest_blocks_and_says_so() {
    let mut random = Random(9);
    let mut encoder = encoder(0.001);
    let bytes = random_bytes(&mut random, limits::DATAGRAM_STREAM_BYTES);
    let blocks = limits::ENCODED_BYTES / (limits::BLOCK_REPAIR_PACKETS * SYMBOL_BYTES) + 10;
    for _ in 0..blocks * limits::BLOCK_PACKETS {
        encoder.push(ms(0), &bytes, true);
    }
    assert!(encoder.kept_bytes() <= limits::ENCODED_BYTES);
    encoder.wait(ms(0));
    (0..200).for_each(|second| drop(repair(&mut encoder, ms(second * 1000))));
    assert_eq!(encoder.covered(), 0, "the first blocks are gone");
    encoder.handle_complete(100 * limits::BLOCK_PACKETS as u64);
    assert_eq!(encoder.covered(), encoder.offset(), "now they have arrived");
}

proptest! {
    /// Any bytes in any order: the stream has each byte once, as the model has it.
    #[test]
    fn a_stream_is_put_in_order(
        pieces in prop::collection::vec((0..300_u64, 0..60_usize), 1..60),
    ) {
        let whole: Vec<u8> = (0..400_u64).map(|at| (at * 7 % 251) as u8).collect();
        let mut stream = StreamBuffer::new();
        let mut here = vec![false; whole.len()];
        let mut read = Vec::new();
        for (offset, length) in pieces {
            let range = offset as usize..offset as usize + length;
            stream.insert(offset, &whole[range.clone()]);
            here[range].fill(true);
            while let Some(bytes) = stream.poll_bytes() {
                read.extend(bytes);
            }
            let next = here.iter().position(|is_here| !is_here).unwrap();
            prop_assert_eq!(stream.next(), next as u64);
            prop_assert_eq!(&read[..], &whole[..next]);
        }
    }

    /// Gaps are the numbers that have not arrived.
    #[test]
    fn gaps_are_what_has_not_arrived(numbers in prop::collection::vec(0..120_u64, 1..90)) {
        let mut gaps = gaps::Gaps::default();
        let mut here = [false; 130];
        for number in numbers {
            prop_assert_eq!(gaps.take(number), !here[number as usize]);
            here[number as usize] = true;
            let complete = here.iter().position(|is_here| !is_here).unwrap();
            prop_assert_eq!(gaps.complete(), complete as u64);
            for (number, is_here) in (0..).zip(here) {
                prop_assert_eq!(gaps.is_missing(number), !is_here);
            }
        }
    }

    /// Losses, reorder and duplicates of a whole stream: what comes out is what was sent, and all
    /// before the first that does not is complete.
    #[test]
    fn nothing_comes_out_that_was_not_sent(
        seed in any::<u64>(),
        loss in 0.0..0.2_f64,
        waits in 1..40_usize,
    ) {
        let mut random = Random(seed);
        let mut encoder = encoder(loss);
        let mut decoder = Decoder::new();
        let mut sent = Vec::new();
        let mut link = Vec::new();
        for at in 0..300 {
            let now = ms(at as u64);
            let length = 1 + random.next() as usize % 200;
            let packet = encoder.push(now, &random_bytes(&mut random, length), true).unwrap();
            sent.push(packet.clone());
            link.push(DatagramBody::Data(packet));
            if at % waits == 0 {
                encoder.wait(now);
            }
            while let Some(body) = encoder.poll_repair(now) {
                link.push(body);
            }
        }
        for at in 0..link.len() {
            let other = (at + random.next() as usize % 8).min(link.len() - 1);
            link.swap(at, other);
        }
        for body in link {
            let times = if random.happens(loss) { 0 } else { 1 + random.next() % 2 };
            for _ in 0..times {
                match body.clone() {
                    DatagramBody::Data(packet) => decoder.handle_data(packet),
                    DatagramBody::Repair(packet) => decoder.handle_repair(packet),
                    DatagramBody::Layer(packet) => decoder.handle_layer(packet),
                    DatagramBody::Report(_) => {}
                }
            }
        }
        rebuild(&mut decoder);
        let found = packets_of(&mut decoder);
        for (sequence, packet) in &found {
            prop_assert_eq!(packet, &sent[*sequence as usize]);
        }
        let seen = found.last_key_value().map_or(0, |(last, _)| last + 1);
        let complete = absent(&found, seen).first().copied().unwrap_or(seen);
        prop_assert_eq!(decoder.complete(), complete);
    }
}
