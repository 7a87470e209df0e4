//! Directories that move (I-11): in deep trees, and while others move.

use std::sync::Barrier;

use pelago_store::rows::ParentPointer;
use pelago_wire::limits;

use super::*;
use crate::shard::lock_cost::LockCost;

const NEAR: usize = limits::CLIMB_STEPS;

impl Rig {
    /// Makes directories below each other. Returns all of them, the top included.
    fn chain(&self, top: Handle, levels: usize) -> Vec<Handle> {
        let mut chain = vec![top];
        for _ in 0..levels {
            let dir = self.dir(chain[chain.len() - 1], "d", 1).handle;
            chain.push(dir);
        }
        chain
    }

    fn try_move(&self, from_dir: Handle, from: &str, to_dir: Handle, to: &str) -> Result<(), Code> {
        let from = name(from);
        let to = name(to);
        let names = Move { from_dir, from: &from, to_dir, to: &to };
        let renamed = self.shard.rename(&CALLER, names, RenameFlags::NoReplace, at(9));
        renamed.map(drop).map_err(|error| error.code)
    }
}

/// A rename reads a bounded number of rows under the lock: within a directory, and far away.
#[test]
fn a_rename_holds_the_lock_no_longer_in_a_deep_tree() {
    let rig = Rig::new();
    let chain = rig.chain(ROOT, 20 * NEAR);
    let bottom = chain[chain.len() - 1];
    let moved = rig.dir(bottom, "a", 1).handle;
    rig.dir(moved, "below", 1);
    for forget in [false, true] {
        let begin = || {
            if forget {
                rig.shard.forget_rows();
            }
            LockCost::take_max();
        };
        begin();
        rig.try_move(bottom, "a", bottom, "b").unwrap();
        let within = LockCost::take_max();
        assert!(within.rows_read <= 16, "{within:?}");
        begin();
        rig.try_move(bottom, "b", chain[chain.len() - 2], "b").unwrap();
        rig.try_move(chain[chain.len() - 2], "b", bottom, "a").unwrap();
        let across = LockCost::take_max();
        assert!(across.rows_read <= NEAR + 32, "{across:?}");
        begin();
        assert_eq!(rig.try_move(ROOT, "d", moved, "d"), Err(Code::WouldLoop));
        assert!(LockCost::take_max().rows_read <= NEAR + 32);
    }
    let far = name("d");
    let names = Move { from_dir: bottom, from: &name("a"), to_dir: chain[1], to: &far };
    let swap = RenameFlags::Exchange;
    // A directory that is exchanged with one above itself would be below itself.
    let exchanged = rig.shard.rename(&CALLER, names, swap, at(9));
    assert_eq!(exchanged.unwrap_err().code, Code::WouldLoop);
}

/// A thread that must not wait learns that the rename takes long, and nothing is done.
#[test]
fn a_rename_at_once_climbs_no_long_way() {
    let rig = Rig::new();
    let chain = rig.chain(ROOT, 2 * NEAR);
    let bottom = chain[chain.len() - 1];
    let from = name("a");
    let to = name("b");
    let moved = rig.dir(ROOT, "a", 1).handle;
    rig.dir(moved, "below", 1);
    let at_once = |from_dir, to_dir| {
        let names = Move { from_dir, from: &from, to_dir, to: &to };
        rig.shard.rename_at_once(&CALLER, names, RenameFlags::Replace, at(9))
    };
    assert_eq!(at_once(ROOT, bottom), Ok(None));
    assert!(rig.lookup(ROOT, "a").is_ok() && rig.lookup(bottom, "b").is_err());
    assert!(matches!(at_once(ROOT, chain[3]), Ok(Some(_))));
    rig.try_move(chain[3], "b", bottom, "b").unwrap();
}

/// Two trees that move to the bottom of each other at the same moment: only one of them does.
#[test]
fn crossing_renames_make_no_loop() {
    let rig = Rig::new();
    // One is near enough for the lock, one is not.
    for (round, levels) in [3, 3 * NEAR].into_iter().cycle().take(60).enumerate() {
        let one = format!("one{round}");
        let other = format!("other{round}");
        let first = rig.chain(rig.dir(ROOT, &one, 1).handle, levels);
        let second = rig.chain(rig.dir(ROOT, &other, 1).handle, levels);
        let start = Barrier::new(3);
        let (there, back) = thread::scope(|scope| {
            let cross = |from: &str, to: Handle| {
                let rig = &rig;
                let start = &start;
                let from = from.to_owned();
                scope.spawn(move || {
                    start.wait();
                    rig.try_move(ROOT, &from, to, "crossed")
                })
            };
            let there = cross(&one, second[levels]);
            let back = cross(&other, first[levels]);
            // Others move directories meanwhile.
            start.wait();
            for number in 0..20 {
                rig.dir(ROOT, "moves", 1);
                let to = format!("{round}-{number}");
                rig.try_move(ROOT, "moves", first[0], &to).unwrap();
            }
            (there.join().unwrap(), back.join().unwrap())
        });
        let ok = [&there, &back].into_iter().filter(|moved| moved.is_ok()).count();
        assert_eq!(ok, 1, "{there:?} {back:?}");
        for dir in [first[levels], second[levels]] {
            let mut here = dir;
            let mut steps = 0;
            while here.ino != InodeId::ROOT {
                here = rig.shard.parent(here).unwrap().handle;
                steps += 1;
                assert!(steps < 10 * levels + 10, "a loop");
            }
        }
    }
}

/// The climb ends at the root and nowhere else.
#[test]
fn a_directory_moves_in_a_tree_of_a_million_levels() {
    const LEVELS: u64 = (1 << 20) + 10;
    let rig = Rig::new();
    let moved = rig.dir(ROOT, "moved", 1).handle;
    rig.dir(moved, "below", 1);
    let bottom = rig.dir(ROOT, "bottom", 1).handle;
    let stamp = Stamp { epoch: 1, sequence: 0 };
    let listed = |ino, dir| key::parent_pointer(ino, dir, NameHash(1), b"d");
    let level = |number: u64| InodeId::from_raw((1 << 30) + number);
    let mut batch = Batch::new();
    for number in 0..LEVELS {
        let above = if number == 0 { InodeId::ROOT } else { level(number - 1) };
        batch.put(listed(level(number), above), ParentPointer.encode(stamp));
    }
    rig.table.write(&batch).unwrap();
    let there = key::parent_pointers_of(bottom.ino);
    let mut batch = Batch::new();
    let visit = &mut |key: &[u8], _: &[u8]| {
        batch.delete(key.to_vec());
        std::ops::ControlFlow::Continue(())
    };
    rig.table.scan(&there.from, &there.to, visit).unwrap();
    batch.put(listed(bottom.ino, level(LEVELS - 1)), ParentPointer.encode(stamp));
    rig.table.write(&batch).unwrap();
    rig.shard.forget_rows();
    rig.try_move(ROOT, "moved", bottom, "moved").unwrap();
    // A way that never ends can only be damage.
    let mut batch = Batch::new();
    batch.delete(listed(level(0), InodeId::ROOT));
    batch.put(listed(level(0), level(1000)), ParentPointer.encode(stamp));
    rig.table.write(&batch).unwrap();
    rig.shard.forget_rows();
    let other = rig.dir(ROOT, "other", 1).handle;
    rig.dir(other, "below", 1);
    rig.shard.forget_rows();
    assert_eq!(rig.try_move(ROOT, "other", bottom, "other"), Err(Code::Corrupt));
}
