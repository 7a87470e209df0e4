//! The repair that is sent: how much, when, and for which blocks.

use super::*;

#[test]
fn a_block_closes_when_it_is_full_or_late_or_awaited() {
    let mut random = Random(1);
    let mut encoder = encoder(0.01);
    push(&mut encoder, &mut random, limits::BLOCK_PACKETS, 10);
    let (blocks, _) = repair(&mut encoder, ms(0));
    assert_eq!((blocks.len(), blocks[0].packets), (1, 64), "it is full");

    push(&mut encoder, &mut random, 3, 10);
    assert_eq!(encoder.poll_timeout(ms(0)), None, "more follows");
    encoder.handle_timeout(ms(100));
    assert_eq!(repair(&mut encoder, ms(100)).0, []);
    encoder.push(ms(100), &[1], false);
    assert_eq!(encoder.poll_timeout(ms(100)), Some(ms(101)));
    encoder.push(ms(100), &[1], false);
    encoder.handle_timeout(ms(100));
    assert_eq!(repair(&mut encoder, ms(100)).0, []);
    encoder.handle_timeout(ms(101));
    let (blocks, _) = repair(&mut encoder, ms(101));
    assert_eq!((blocks.len(), blocks[0].first, blocks[0].packets), (1, 64, 5), "it is late");

    encoder.push(ms(102), &[1], true);
    encoder.wait(ms(102));
    let (blocks, _) = repair(&mut encoder, ms(102));
    let own = blocks.iter().filter(|packet| packet.first == 69).count();
    assert_eq!(own, least_repair(1, 0.01), "somebody waits");
}

/// A waiter is promised everything before its bytes, so all earlier blocks are topped up (hole 1).
#[test]
fn a_waiter_tops_up_all_earlier_blocks() {
    let mut random = Random(2);
    let mut encoder = encoder(0.01);
    push(&mut encoder, &mut random, 3 * limits::BLOCK_PACKETS, 10);
    let (before, _) = repair(&mut encoder, ms(0));
    let firsts: Vec<u64> = before.iter().map(|packet| packet.first).collect();
    assert_eq!(firsts, [0, 64, 128], "one each, for nobody waits");
    assert_eq!(encoder.covered(), 0);
    encoder.handle_complete(64);
    let arrived = encoder.covered();
    push(&mut encoder, &mut random, 4, 10);
    encoder.wait(ms(1));
    assert_eq!(encoder.covered(), arrived, "nothing was sent yet");
    let (mut after, _) = repair(&mut encoder, ms(1));
    assert_eq!(encoder.covered(), encoder.offset());
    after.extend(before);
    let mut sent: Vec<_> = after.iter().map(|packet| (packet.first, packet.index)).collect();
    sent.sort_unstable();
    let mut expected = vec![(0, 0)];
    for first in [64, 128] {
        expected.extend((0..least_repair(64, 0.01)).map(|index| (first, index as u8)));
    }
    expected.extend((0..least_repair(4, 0.01)).map(|index| (192, index as u8)));
    assert_eq!(sent, expected);
    assert!(encoder.residual() <= 3.0 * RESIDUAL, "{}", encoder.residual());
    encoder.handle_complete(u64::MAX);
    assert!(encoder.kept_bytes() > 0, "a number that was not sent says nothing");
    encoder.handle_complete(196);
    assert_eq!((encoder.kept_bytes(), encoder.covered()), (0, encoder.offset()));
}

#[test]
fn the_modes_send_all_or_nothing() {
    let mut random = Random(3);
    for (mode, expected) in [(RepairMode::Full, 16), (RepairMode::Off, 0)] {
        let mut encoder = Encoder::new(mode);
        push(&mut encoder, &mut random, limits::BLOCK_PACKETS, 10);
        encoder.wait(ms(0));
        let (blocks, layers) = repair(&mut encoder, ms(0));
        assert_eq!((blocks.len(), layers.is_empty()), (expected, true));
        assert_eq!(encoder.covered(), encoder.offset(), "{mode:?} promises no more");
        let more = push(&mut encoder, &mut random, 20 * limits::BLOCK_PACKETS, 10).len();
        let (blocks, layers) = repair(&mut encoder, ms(0));
        assert_eq!(blocks.len(), expected * more / limits::BLOCK_PACKETS);
        assert_eq!(layers.is_empty(), mode == RepairMode::Off);
    }
}

/// Four packets on a link of 30 kB/s need five more than their share, and get them if nothing else
/// waits for the link (hole 10). With a backlog they wait for their share.
#[test]
fn a_block_alone_on_the_link_is_exempt() {
    let mut encoder = Encoder::new(RepairMode::Auto);
    let slow = LinkQuality { rate: 30_000, ..quality(0.01) };
    encoder.handle_quality(ms(0), slow);
    let bytes = [7; limits::DATAGRAM_STREAM_BYTES];
    for second in 0..3 {
        for packet in 0..4 {
            encoder.push(ms(second), &bytes, packet < 3);
        }
        encoder.wait(ms(second));
        assert_eq!(repair(&mut encoder, ms(second)).0.len(), 5);
        assert_eq!(encoder.covered(), encoder.offset());
    }
    for _ in 0..4 {
        encoder.push(ms(3), &bytes, true);
    }
    encoder.wait(ms(3));
    assert_eq!(repair(&mut encoder, ms(3)).0, [], "more waits for the link");
    let mut now = ms(3);
    while encoder.covered() < encoder.offset() {
        let next = encoder.poll_timeout(now).unwrap();
        assert!(next > now && next < ms(3000), "{next:?}");
        now = next;
        encoder.handle_timeout(now);
        repair(&mut encoder, now);
    }
    assert!(now > ms(300), "its share is 10 kB/s: {now:?}");
}

/// In any second the bucket gives no more than a third, and all of three quarters of it.
#[test]
fn the_budget_is_a_third_over_any_second() {
    let mut random = Random(4);
    let mut budget = budget::Budget::new();
    let rate = 1_200_000;
    budget.set_rate(ms(0), rate);
    let mut taken = Vec::new();
    for micro in (0..4_000_000).step_by(500) {
        let now = Duration::from_micros(micro);
        // A rest of half a second fills it.
        let is_resting = (1_000_000..1_500_000).contains(&micro);
        if !is_resting && budget.has(now, 1200) {
            budget.take(1200);
            taken.push((micro, 1200));
        }
        assert!(budget.when(now, 1200) >= now);
        let _ = random.next();
    }
    let sum = |from: u64| {
        let within = taken.iter().filter(|(at, _)| (from..from + 1_000_000).contains(at));
        within.map(|(_, bytes)| bytes).sum::<u64>()
    };
    let most = (0..3_000_000).step_by(10_000).map(sum).max().unwrap();
    assert!(most <= rate / 3 + 1200 && most > rate / 3 - 5000, "{most}");
    assert!(sum(2_900_000) >= rate / 4 - 2400, "{}", sum(2_900_000));
}

/// Bulk, a waiter, and the end of the primary. Returns how many of the disasters have lost a block
/// that the waiter was promised, with and without the packets that topped up the earlier ones.
///
/// That no more than as many losses as repair packets can be rebuilt is the law of the code, which
/// other tests show; here they are counted.
fn disasters(loss: f64, count: usize) -> (usize, usize) {
    let mut random = Random((loss * 1e6) as u64);
    let mut lost = 0;
    let mut lost_without = 0;
    for _ in 0..count {
        let mut encoder = encoder(loss);
        let mut sent: BTreeMap<u64, (usize, usize, usize)> = BTreeMap::new();
        // 100 Mbit/s and 100 ms: a thousand packets are under way.
        for at in 0..16 {
            push(&mut encoder, &mut random, limits::BLOCK_PACKETS, 4);
            sent.insert(at * 64, (limits::BLOCK_PACKETS, 0, 0));
        }
        for packet in repair(&mut encoder, ms(0)).0 {
            sent.get_mut(&packet.first).unwrap().1 += 1;
        }
        push(&mut encoder, &mut random, 4, 4);
        sent.insert(16 * 64, (4, 0, 0));
        encoder.wait(ms(0));
        for packet in repair(&mut encoder, ms(0)).0 {
            let block = sent.get_mut(&packet.first).unwrap();
            // The own block of the waiter is no top-up.
            let is_own = packet.first == 16 * 64;
            if is_own {
                block.1 += 1
            } else {
                block.2 += 1
            };
        }
        assert_eq!(encoder.covered(), encoder.offset(), "the waiter is told so");
        let mut losses = |packets: usize| (0..packets).filter(|_| random.happens(loss)).count();
        let mut dies = false;
        let mut dies_without = false;
        for (packets, repair, more) in sent.into_values() {
            let before = losses(packets + repair);
            dies_without |= before > repair;
            dies |= before + losses(more) > repair + more;
        }
        lost += usize::from(dies);
        lost_without += usize::from(dies_without);
    }
    (lost, lost_without)
}

#[test]
fn no_disaster_after_a_top_up_loses_anything() {
    for (loss, least) in [(0.005, 400), (0.01, 800)] {
        let (lost, without) = disasters(loss, 1000);
        assert_eq!(lost, 0, "{loss}");
        assert!(without > least, "{loss}: {without} of 1000 were lost without");
    }
}
