//! Open files, through the service: the place of the bytes, what other opens see, and what a crash
//! or a failed write leaves.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use pelago_data::{Counts, Passthrough};
use pelago_store::table;
use pelago_wire::{
    Bulk, Code, DataPath, Done, NewMode, OpenFlags, Reply, Request, Service, SetAttr, SetTime,
    WriteFlags, limits,
};

use crate::testing::{
    BOTH, CALLER, Options, READ, ROOT, Rig, answer, at, name, next_open, reopened,
};

const LIMIT: usize = limits::INLINE_DEFAULT_BYTES;
const WRITE: OpenFlags = OpenFlags { read: false, ..BOTH };

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|number| (number % 251) as u8).collect()
}

#[test]
fn an_empty_file_writes_one_batch() {
    let rig = Rig::new();
    rig.file("warm", b"");
    let before = rig.durability.done();
    let (entry, open) = rig.create("f", BOTH);
    rig.close(open);
    assert_eq!(rig.durability.done(), before + 1);
    assert_eq!((rig.opens.count(), rig.shard.is_open(entry.handle.ino)), (0, false));
    assert_eq!(rig.bytes("f"), b"");
    assert_eq!(rig.attr(entry.handle).unwrap().blocks, 0);
}

#[test]
fn a_small_file_is_in_memory_until_it_is_flushed() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    assert_eq!(rig.write(open, 0, b"hello").unwrap(), (5, 5));
    let seen = rig.lookup("f").unwrap().attr;
    assert_eq!((seen.size, seen.blocks), (5, 8));
    assert!(seen.mtime > entry.attr.mtime && seen.ctime == seen.mtime);
    assert_eq!(rig.inline_row(entry.handle), None);
    assert_eq!(rig.bytes("f"), b"hello", "another open reads what is not committed");
    rig.call(Request::Flush { open, owner: None }).unwrap();
    assert_eq!(rig.inline_row(entry.handle).unwrap(), b"hello");
    assert_eq!(rig.attr(entry.handle).unwrap(), seen, "a commit changes nothing that is seen");
    let batches = rig.durability.done();
    rig.close(open);
    assert_eq!(rig.durability.done(), batches, "there was nothing to commit any more");
    assert_eq!(rig.opens.memory(), 0);
    let again = rig.after_kill();
    assert_eq!(again.bytes("f"), b"hello");
    assert_eq!(again.attr(entry.handle).unwrap(), seen);
}

#[test]
fn the_group_commit_takes_what_is_in_memory() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    rig.write(open, 0, b"never flushed").unwrap();
    rig.commit.run().unwrap();
    assert_eq!(rig.table.unsafe_batches(), 0);
    assert_eq!(rig.after_crash(0).bytes("f"), b"never flushed");
    let done = rig.durability.done();
    rig.commit.run().unwrap();
    assert_eq!(rig.durability.done(), done, "what did not change is not written again");
    assert_eq!(rig.durability.safe(), done);
    assert!(rig.inline_row(entry.handle).is_some());
}

#[test]
fn a_write_beyond_the_limit_spills_and_the_file_stays_there() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    let bytes = pattern(LIMIT);
    rig.write(open, 0, &bytes).unwrap();
    rig.call(Request::Flush { open, owner: None }).unwrap();
    assert!(rig.inline_row(entry.handle).is_some() && !rig.has_writing_row(entry.handle));
    assert_eq!(rig.write(open, LIMIT as u64, b"x").unwrap(), (1, LIMIT as u64 + 1));
    assert_eq!(rig.inline_row(entry.handle), None);
    assert!(rig.has_writing_row(entry.handle));
    assert_eq!(rig.opens.memory(), 0);
    assert_eq!(rig.lookup("f").unwrap().attr.size, LIMIT as u64 + 1);
    let all = [&bytes[..], b"x"].concat();
    assert_eq!(rig.read(open, 0, 1 << 20).unwrap(), all);
    rig.set(entry.handle, Some(open), SetAttr { size: Some(2), ..SetAttr::default() }).unwrap();
    rig.close(open);
    assert_eq!(rig.inline_row(entry.handle), None, "it never comes back into the table");
    let again = rig.after_kill();
    assert_eq!(again.recovered.files, 1);
    assert_eq!(again.bytes("f"), &all[..2]);
    assert_eq!(again.attr(entry.handle).unwrap().size, 2);
}

/// Bytes in a content file survive the process, committed or not.
#[test]
fn a_killed_process_loses_nothing_of_a_content_file() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    let bytes = pattern(100_000);
    rig.write(open, 0, &bytes).unwrap();
    let again = rig.after_kill();
    assert_eq!((again.recovered.files, again.recovered.damaged), (1, 0));
    assert_eq!(again.bytes("f"), bytes);
    assert_eq!(again.attr(entry.handle).unwrap().size, 100_000);
}

#[test]
fn a_sparse_file_takes_little_and_reads_zeros() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    let far = 1 << 40;
    rig.write(open, 100, b"near").unwrap();
    assert_eq!(rig.read(open, 98, 10).unwrap(), b"\0\0near");
    rig.write(open, far, b"far").unwrap();
    let attr = rig.attr(entry.handle).unwrap();
    assert_eq!(attr.size, far + 3);
    assert!(attr.blocks < 1000, "{}", attr.blocks);
    assert_eq!(rig.read(open, far - 2, 10).unwrap(), b"\0\0far");
    assert_eq!(rig.read(open, far + 3, 10).unwrap(), b"");
    let truncate = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    let (other, _) = rig.create("g", BOTH);
    let extended = rig.set(other.handle, None, truncate(1 << 30)).unwrap();
    assert!(extended.size == 1 << 30 && extended.blocks < 1000);
    rig.close(open);
}

#[test]
fn a_file_has_a_largest_size() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    let last = limits::FILE_BYTES;
    assert_eq!(rig.write(open, last, b"x"), Err(Code::FileTooLarge));
    assert_eq!(rig.write(open, u64::MAX, b"x"), Err(Code::FileTooLarge));
    let set = SetAttr { size: Some(last + 1), ..SetAttr::default() };
    assert_eq!(rig.set(entry.handle, None, set), Err(Code::FileTooLarge));
    assert_eq!(rig.attr(entry.handle).unwrap().size, 0);
    rig.close(open);
}

#[test]
fn every_write_that_appends_goes_to_the_end() {
    let rig = Rig::new();
    let (entry, one) = rig.create("f", OpenFlags { append: true, ..BOTH });
    let other = rig.open(entry.handle, WRITE).unwrap();
    let mut expected = Vec::new();
    for (number, open) in [one, other, other, one].into_iter().cycle().take(40).enumerate() {
        let bytes = pattern(17 + number * 17);
        expected.extend_from_slice(&bytes);
        assert_eq!(rig.append(open, &bytes).unwrap().1, expected.len() as u64);
        // The next one says that it does not append, through an open to append or not.
        assert_eq!(rig.write(open, number as u64, b"-").unwrap().1, expected.len() as u64);
        expected[number] = b'-';
    }
    assert_eq!(rig.read(one, 0, 1 << 20).unwrap(), expected);
    assert_eq!(rig.read(other, 0, 1), Err(Code::BadOpen));
    rig.close(one);
    rig.close(other);
    assert_eq!(rig.bytes("f"), expected);
}

#[test]
fn an_open_that_truncates_finds_the_file_empty() {
    let rig = Rig::new();
    for length in [10, 10_000] {
        let text = format!("f{length}");
        let before = rig.file(&text, &pattern(length));
        let open = rig.open(before.handle, OpenFlags { truncate: true, ..BOTH }).unwrap();
        let attr = rig.attr(before.handle).unwrap();
        assert_eq!((attr.size, attr.blocks), (0, 0));
        assert!(attr.mtime > before.attr.mtime);
        rig.write(open, 0, b"new").unwrap();
        rig.close(open);
        assert_eq!(rig.after_kill().bytes(&text), b"new");
    }
}

#[test]
fn a_truncate_by_name_is_done_when_it_is_answered() {
    let rig = Rig::new();
    for length in [100, 10_000] {
        let text = format!("f{length}");
        let file = rig.file(&text, &pattern(length));
        for size in [50_u64, 70, 0, 5] {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            assert_eq!(rig.set(file.handle, None, set).unwrap().size, size);
            let mut expected = pattern(50.min(size as usize));
            if size == 5 {
                expected.fill(0);
            }
            expected.resize(size as usize, 0);
            let again = rig.after_kill();
            assert_eq!(again.bytes(&text), expected, "{length} {size}");
            assert_eq!(again.attr(file.handle).unwrap().size, size);
        }
    }
    assert_eq!(rig.opens.count(), 0);
    let set = SetAttr { size: Some(1), ..SetAttr::default() };
    assert_eq!(rig.set(ROOT, None, set), Err(Code::IsDirectory));
}

#[test]
fn an_unlinked_file_lives_until_it_is_closed() {
    let rig = Rig::new();
    for (length, grown) in [(10, 20), (10, 50_000), (50_000, 60_000)] {
        let (entry, open) = rig.create("f", BOTH);
        rig.write(open, 0, &pattern(length)).unwrap();
        rig.unlink("f");
        assert_eq!(rig.lookup("f"), Err(Code::NotFound));
        rig.write(open, 0, &pattern(grown)).unwrap();
        rig.call(Request::Flush { open, owner: None }).unwrap();
        assert_eq!(rig.read(open, 0, 1 << 20).unwrap(), pattern(grown));
        let attr = rig.attr(entry.handle).unwrap();
        assert_eq!((attr.links, attr.size), (0, grown as u64));
        let before = rig.reaped.load(Ordering::Relaxed);
        rig.close(open);
        assert_eq!(rig.reaped.load(Ordering::Relaxed), before + 1);
        assert!(rig.shard.remove_unnamed(entry.handle.ino).is_ok());
        assert_eq!(rig.attr(entry.handle), Err(Code::Stale));
    }
}

#[test]
fn memory_is_bounded_by_spilling_and_by_forgetting_what_is_committed() {
    let open = pelago_data::Options { open_bytes: 10_000, ..Default::default() };
    let rig = Rig::with(Options { open, ..Options::default() });
    let mut opens = VecDeque::new();
    for number in 0..5 {
        let (entry, open) = rig.create(&format!("f{number}"), BOTH);
        rig.write(open, 0, &pattern(3000)).unwrap();
        assert!(rig.opens.memory() <= 10_000);
        opens.push_back((entry, open));
    }
    let spilled = opens.iter().filter(|(entry, _)| rig.has_writing_row(entry.handle)).count();
    assert_eq!(spilled, 2);
    for (entry, open) in &opens {
        rig.call(Request::Flush { open: *open, owner: None }).unwrap();
        assert_eq!(rig.read(*open, 0, 4000).unwrap(), pattern(3000), "{entry:?}");
        assert!(rig.opens.memory() <= 10_000);
    }
    for (_, open) in opens {
        rig.close(open);
    }
    assert_eq!(rig.opens.memory(), 0);
    assert_eq!(rig.after_kill().bytes("f4"), pattern(3000));
}

#[test]
fn opens_are_bounded() {
    let open = pelago_data::Options { open_files: 2, ..Default::default() };
    let rig = Rig::with(Options { open, ..Options::default() });
    let (a, one) = rig.create("a", BOTH);
    let (_, other) = rig.create("b", BOTH);
    assert_eq!(rig.open(a.handle, READ), Err(Code::TooManyOpen));
    rig.write(one, 0, &pattern(5000)).unwrap();
    rig.close(one);
    rig.close(other);
    assert_eq!(rig.bytes("a"), pattern(5000));
}

#[test]
fn fsync_is_answered_when_the_group_commit_has_run() {
    let rig = Rig::new();
    for length in [0, 10, 10_000] {
        let text = format!("f{length}");
        let (_, open) = rig.create(&text, BOTH);
        rig.write(open, 0, &pattern(length)).unwrap();
        let reply = rig.begin(Request::Fsync { open, data_only: length == 10 }, &[]);
        assert!(reply.try_recv().is_err());
        let mut answered = None;
        while answered.is_none() {
            // A content file is synced on another thread first.
            rig.commit.run().unwrap();
            answered = reply.try_recv().ok();
        }
        assert!(matches!(answered, Some(Ok(Reply::Done))));
        assert_eq!(rig.after_crash(0).bytes(&text), pattern(length));
        let reply = rig.begin(Request::FsyncDir { dir: ROOT, since: None }, &[]);
        assert!(matches!(answer(&reply), Ok(Reply::Done)), "everything is safe");
        rig.close(open);
    }
}

#[test]
fn a_synchronous_write_is_answered_when_it_is_safe() {
    let rig = Rig::new();
    let (_, open) = rig.create("f", OpenFlags { sync: true, ..BOTH });
    for (offset, length) in [(0, 10), (10, 10_000)] {
        let request = Request::Write { open, offset, flags: WriteFlags::NONE };
        let reply = rig.begin(request, &pattern(length));
        let mut answered = None;
        while answered.is_none() {
            rig.commit.run().unwrap();
            answered = reply.try_recv().ok();
        }
        assert!(matches!(answered, Some(Ok(Reply::Written { .. }))));
    }
    assert_eq!(rig.after_crash(0).bytes("f").len(), 10_010);
    rig.close(open);
}

#[test]
fn a_failed_persist_fails_the_fsync_and_the_open_file_is_committed_again() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    rig.commit.run().unwrap();
    rig.write(open, 0, b"kept").unwrap();
    let reply = rig.begin(Request::Fsync { open, data_only: false }, &[]);
    let broken = table::Error::from_io("testing", std::io::Error::other("broken"));
    rig.table.fail_at(0, broken);
    assert!(rig.commit.run().is_err());
    assert_eq!(rig.write(open, 4, b"!").unwrap(), (1, 5), "memory needs no table");
    assert_eq!(rig.call(Request::Flush { open, owner: None }).err(), Some(Code::Io));
    assert!(rig.commit.reopen_table());
    assert_eq!(answer(&reply).err(), Some(Code::Io));
    assert_eq!(rig.inline_row(entry.handle), None, "the fake dropped what was not safe");
    rig.commit.run().unwrap();
    assert_eq!(rig.after_crash(0).bytes("f"), b"kept!");
    rig.close(open);
    assert_eq!(rig.bytes("f"), b"kept!");
}

#[test]
fn a_file_that_cannot_be_committed_when_it_is_closed_is_committed_later() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    rig.write(open, 0, b"late").unwrap();
    rig.table.fail_at(0, table::Error::NoSpace);
    assert_eq!(rig.call(Request::Release { open }).err(), Some(Code::NoSpace));
    assert_eq!(rig.call(Request::Release { open }).err(), Some(Code::BadOpen));
    assert_eq!(rig.bytes("f"), b"late");
    assert!(rig.space.is_short());
    rig.commit.run().unwrap();
    assert!(!rig.shard.is_open(entry.handle.ino));
    assert_eq!(rig.after_crash(0).bytes("f"), b"late");
}

#[test]
fn the_background_sync_of_a_closed_file_deletes_its_writing_row() {
    let rig = Rig::new();
    let file = rig.file("f", &pattern(10_000));
    assert!(rig.has_writing_row(file.handle) && rig.opens.is_unsafe(file.handle.ino));
    assert_eq!(rig.opens.write_back(), Ok(1));
    assert!(!rig.has_writing_row(file.handle) && !rig.opens.is_unsafe(file.handle.ino));
}

#[test]
fn a_writing_row_exists_from_the_first_write_to_the_close_of_a_synced_file() {
    let rig = Rig::new();
    let file = rig.file("f", &pattern(10_000));
    rig.opens.write_back().unwrap();
    let open = rig.open(file.handle, BOTH).unwrap();
    assert!(!rig.has_writing_row(file.handle), "nothing changed yet");
    rig.write(open, 0, b"x").unwrap();
    assert!(rig.has_writing_row(file.handle));
    assert_eq!(rig.opens.write_back(), Ok(0), "an open may write");
    let reply = rig.begin(Request::Fsync { open, data_only: false }, &[]);
    while reply.try_recv().is_err() {
        rig.commit.run().unwrap();
    }
    assert!(rig.has_writing_row(file.handle), "it may be written again");
    rig.close(open);
    assert!(!rig.has_writing_row(file.handle) && !rig.opens.is_unsafe(file.handle.ino));
}

#[test]
fn a_writing_row_outlives_a_kill_until_the_next_background_sync() {
    let rig = Rig::new();
    let file = rig.file("f", &pattern(10_000));
    let again = rig.after_kill();
    assert!(again.has_writing_row(file.handle) && again.opens.is_unsafe(file.handle.ino));
    assert_eq!(again.opens.write_back(), Ok(1));
    assert!(!again.has_writing_row(file.handle));
}

#[test]
fn a_rename_over_a_file_makes_the_new_bytes_safe_first() {
    let rig = Rig::new();
    let new = rig.file("new", &pattern(10_000));
    rig.file("old", b"old");
    rig.rename("new", "old").unwrap();
    assert_eq!(rig.bytes("old"), pattern(10_000));
    assert_eq!(rig.lookup("new"), Err(Code::NotFound));
    assert!(rig.has_writing_row(new.handle), "no harm");
    assert_eq!(rig.opens.count(), 0);
}

#[test]
fn times_that_are_set_stay_and_the_next_write_shows_now() {
    let rig = Rig::new();
    for length in [10, 10_000] {
        let text = format!("f{length}");
        let (entry, open) = rig.create(&text, BOTH);
        rig.write(open, 0, &pattern(length)).unwrap();
        let set = SetAttr { mtime: Some(SetTime::To(at(77))), ..SetAttr::default() };
        assert_eq!(rig.set(entry.handle, Some(open), set).unwrap().mtime, at(77));
        assert_eq!(rig.after_kill().attr(entry.handle).unwrap().mtime, at(77));
        rig.close(open);
        let seen = rig.attr(entry.handle).unwrap();
        assert_eq!((seen.mtime, seen.size), (at(77), length as u64));
        let set = SetAttr { mtime: Some(SetTime::To(at(88))), ..SetAttr::default() };
        rig.set(entry.handle, None, set).unwrap();
        assert_eq!(rig.after_kill().attr(entry.handle).unwrap().mtime, at(88));
        rig.opens.write_back().unwrap();
        let set = SetAttr { mtime: Some(SetTime::To(at(99))), ..SetAttr::default() };
        let seen = rig.set(entry.handle, None, set).unwrap();
        let open = rig.open(entry.handle, BOTH).unwrap();
        rig.write(open, 0, b"x").unwrap();
        let now = rig.attr(entry.handle).unwrap();
        assert!(now.mtime > seen.ctime && now.mtime == now.ctime);
        rig.close(open);
    }
}

#[test]
fn a_write_by_an_unprivileged_caller_clears_setuid() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    let set = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
    rig.set(entry.handle, None, set).unwrap();
    rig.write(open, 0, b"x").unwrap();
    assert_eq!(rig.attr(entry.handle).unwrap().mode, 0o4755);
    let request = Request::Write {
        open,
        offset: 0,
        flags: WriteFlags { kill_privileges: true, ..WriteFlags::NONE },
    };
    answer(&rig.begin(request, b"y")).unwrap();
    assert_eq!(rig.attr(entry.handle).unwrap().mode, 0o755);
    rig.close(open);
}

#[test]
fn bytes_in_the_page_cache_are_read_into_the_memory_of_the_caller() {
    let rig = Rig::new();
    let read_into = |open, offset, room: &mut [u8]| {
        let request = Request::Read { open, offset, size: room.len() as u32 };
        let mut never = || -> Done { unreachable!("the bytes are in memory") };
        match rig.router.ask(&CALLER, request, Bulk::Room(room), &mut never) {
            Some(Ok(Reply::Data(buffer))) => buffer,
            other => panic!("{other:?}"),
        }
    };
    let (_, small) = rig.create("small", BOTH);
    rig.write(small, 0, b"inline").unwrap();
    assert_eq!(read_into(small, 0, &mut [0; 6]).as_bytes(), b"inline");
    let (_, large) = rig.create("large", BOTH);
    let bytes = pattern(100_000);
    rig.write(large, 0, &bytes).unwrap();
    let mut room = vec![0; 64 << 10];
    let read = read_into(large, 7, &mut room);
    assert_eq!((read.room_bytes(), read.as_bytes()), (Some(room.len()), &[][..]));
    assert_eq!(room, bytes[7..][..room.len()]);
    let read = read_into(large, 99_000, &mut room);
    assert_eq!(read.room_bytes(), Some(1000));
    assert_eq!(room[..1000], bytes[99_000..]);
    rig.close(small);
    rig.close(large);
}

#[test]
fn requests_with_an_id_that_is_not_open_are_refused() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", READ);
    assert_eq!(rig.write(open, 0, b"x"), Err(Code::BadOpen));
    let set = SetAttr { size: Some(1), ..SetAttr::default() };
    assert_eq!(rig.set(entry.handle, Some(open), set), Err(Code::BadOpen));
    rig.close(open);
    for request in [
        Request::Read { open, offset: 0, size: 1 },
        Request::Write { open, offset: 0, flags: WriteFlags::NONE },
        Request::Flush { open, owner: None },
        Request::Release { open },
        Request::Fsync { open, data_only: false },
    ] {
        assert_eq!(rig.call(request).err(), Some(Code::BadOpen));
    }
    assert_eq!(rig.open(ROOT, READ), Err(Code::IsDirectory));
}

#[test]
fn many_writers_of_one_file_lose_nothing() {
    let rig = Rig::new();
    let (entry, first) = rig.create("f", OpenFlags { append: true, ..BOTH });
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let rig = &rig;
            scope.spawn(move || {
                for round in 0..50_usize {
                    let flags = OpenFlags { append: true, ..BOTH };
                    let open = rig.open(entry.handle, flags).unwrap();
                    rig.append(open, &vec![writer + 1; 10 + round]).unwrap();
                    rig.close(open);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..20 {
                rig.commit.run().unwrap();
                rig.opens.write_back().unwrap();
            }
        });
    });
    rig.close(first);
    let bytes = rig.bytes("f");
    let expected = (0..50).map(|round| 10 + round).sum::<usize>();
    for writer in 1..=4 {
        assert_eq!(bytes.iter().filter(|byte| **byte == writer).count(), expected);
    }
    assert!(!bytes.contains(&0));
    assert_eq!((rig.opens.count(), rig.opens.memory()), (0, 0));
    assert_eq!(rig.after_kill().bytes("f"), bytes);
}

#[test]
fn a_read_only_server_reads_and_changes_nothing() {
    let rig = Rig::new();
    let file = rig.file("f", &pattern(10_000));
    let rig = rig.restarted(Options { read_only: true, ..Options::default() });
    assert_eq!(rig.bytes("f"), pattern(10_000));
    assert_eq!(rig.open(file.handle, BOTH), Err(Code::ReadOnly));
    let set = SetAttr { mode: Some(0), ..SetAttr::default() };
    assert_eq!(rig.set(file.handle, None, set), Err(Code::ReadOnly));
    let unlink = Request::Unlink { dir: ROOT, name: name("f") };
    assert_eq!(rig.call(unlink).err(), Some(Code::ReadOnly));
    rig.router.stop();
    assert_eq!(rig.attr(file.handle), Err(Code::Unavailable));
}

#[test]
fn a_spill_that_the_table_refuses_changes_nothing() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    rig.write(open, 0, &pattern(LIMIT)).unwrap();
    rig.table.fail_at(0, table::Error::NoSpace);
    assert_eq!(rig.write(open, LIMIT as u64, b"spills"), Err(Code::NoSpace));
    assert_eq!(rig.read(open, 0, 1 << 20).unwrap(), pattern(LIMIT));
    assert_eq!(rig.attr(entry.handle).unwrap().size, LIMIT as u64);
    rig.close(open);
    assert_eq!(rig.after_kill().bytes("f"), pattern(LIMIT));
}

/// An event loop hands over what would wait for the disk, and the caller gets the right answer.
#[test]
fn requests_that_would_block_are_carried_out_by_the_pool() {
    let open = pelago_data::Options { io_permits: 0, ..Default::default() };
    let rig = Rig::with(Options { open, ..Options::default() });
    let (_, open) = rig.create("f", BOTH);
    assert_eq!(rig.write(open, 0, b"abc"), Ok((3, 3)));
    assert_eq!(rig.write(open, 0, &pattern(50_000)), Ok((50_000, 50_000)));
    assert_eq!(rig.read(open, 49_990, 100).unwrap(), &pattern(50_000)[49_990..]);
    rig.close(open);
}

#[test]
fn mutations_go_to_the_pool_while_the_table_is_under_pressure() {
    let rig = Rig::new();
    rig.table.set_pressure(true);
    let file = rig.file("f", b"pressed");
    assert_eq!(rig.bytes("f"), b"pressed");
    let rig = Rig::with(Options { threads: 0, ..Options::default() });
    rig.table.set_pressure(true);
    let dir = Request::MakeDir { dir: ROOT, name: name("d"), mode: NewMode::exactly(0o755) };
    let reply = rig.begin(dir, &[]);
    assert!(reply.try_recv().is_err(), "the pool has no thread");
    assert_eq!(rig.lookup("d"), Err(Code::NotFound));
    rig.router.stop();
    assert_eq!(answer(&reply).err(), Some(Code::Unavailable));
    assert!(file.attr.size == 7);
}

#[test]
fn a_spilled_file_is_committed_again_after_the_table_lost_its_row() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    rig.write(open, 0, &pattern(100)).unwrap();
    rig.commit.run().unwrap();
    rig.write(open, 100, &pattern(10_000)).unwrap();
    rig.call(Request::Flush { open, owner: None }).unwrap();
    let broken = table::Error::from_io("testing", std::io::Error::other("broken"));
    rig.table.fail_at(0, broken);
    assert!(rig.commit.run().is_err());
    assert!(rig.commit.reopen_table());
    assert_eq!(rig.inline_row(entry.handle).unwrap(), pattern(100));
    rig.commit.run().unwrap();
    assert!(rig.inline_row(entry.handle).is_none() && rig.has_writing_row(entry.handle));
    let again = rig.after_crash(0);
    assert_eq!(again.bytes("f"), [pattern(100), pattern(10_000)].concat());
    assert_eq!(
        rig.call(Request::Flush { open, owner: None }).err(),
        Some(Code::Io),
        "the sync that failed before"
    );
    rig.close(open);
    assert_eq!(rig.opens.write_back().unwrap(), 1);
    assert!(!rig.has_writing_row(entry.handle));
}

/// Its `writing` row is safe, the commit of its last write is not.
#[test]
fn a_closed_file_whose_last_commit_was_lost_is_measured() {
    let rig = Rig::new();
    let file = rig.file("f", &pattern(10_000));
    let open = rig.open(file.handle, BOTH).unwrap();
    rig.write(open, 10_000, b"safe").unwrap();
    rig.commit.run().unwrap();
    rig.write(open, 10_004, b"lost").unwrap();
    rig.close(open);
    let broken = table::Error::from_io("testing", std::io::Error::other("broken"));
    rig.table.fail_at(0, broken);
    assert!(rig.commit.run().is_err());
    assert!(rig.commit.reopen_table());
    assert_eq!(rig.attr(file.handle).unwrap().size, 10_008);
    let bytes = [&pattern(10_000)[..], b"safelost"].concat();
    assert_eq!((rig.bytes("f"), rig.after_crash(0).bytes("f")), (bytes.clone(), bytes));
}

/// Random changes through several opens, small and large, by requests and by descriptors, against a
/// vector; what was flushed survives the process.
#[test]
fn a_file_behaves_like_a_vector() {
    for seed in 1..=20 {
        let mut random = Random(seed);
        let mut rig = Rig::with(Options { open: options(seed % 3 == 0), ..Options::default() });
        let entry = rig.file("f", b"");
        let mut opens = Vec::new();
        let mut model: Vec<u8> = Vec::new();
        for step in 0..150 {
            let place = if seed % 2 == 0 { 3 * LIMIT } else { LIMIT } as u64;
            let offset = random.below(place);
            let bytes = vec![step as u8 | 1; random.below(1500) as usize];
            let flags = OpenFlags { append: random.below(4) == 0, ..BOTH };
            let flags = OpenFlags { truncate: random.below(20) == 0, ..flags };
            let flags = OpenFlags { passthrough: random.below(2) == 0, ..flags };
            match random.below(12) {
                0 | 1 if opens.len() < 4 => {
                    let (open, _, path) = rig.open_path(entry.handle, flags);
                    opens.push((open, flags.append, program(&path, flags)));
                    if flags.truncate {
                        model.clear();
                    }
                }
                2 if !opens.is_empty() => {
                    let (open, ..) = opens.swap_remove(random.below(opens.len() as u64) as usize);
                    rig.close(open);
                }
                3 => {
                    let set = SetAttr { size: Some(offset), ..SetAttr::default() };
                    let through = opens.first().map(|(open, ..)| *open);
                    rig.set(entry.handle, through, set).unwrap();
                    model.resize(offset as usize, 0);
                }
                4 => rig.commit.run().unwrap(),
                5 => {
                    rig.opens.release_closed().unwrap();
                    rig.opens.write_back().unwrap();
                }
                6 => {
                    opens.iter().for_each(|(open, ..)| {
                        rig.call(Request::Flush { open: *open, owner: None }).unwrap();
                    });
                    opens.clear();
                    rig = rig.after_kill();
                    assert_eq!(rig.recovered.damaged, 0);
                }
                _ => {
                    let Some((open, append, program)) = opens.last_mut() else { continue };
                    let from = if *append { model.len() } else { offset as usize };
                    let to = from + bytes.len();
                    if !bytes.is_empty() {
                        model.resize(model.len().max(to), 0);
                        model[from..to].copy_from_slice(&bytes);
                    }
                    match program {
                        Some(program) if *append => program.write_all(&bytes).unwrap(),
                        Some(program) => program.write_all_at(&bytes, offset).unwrap(),
                        None if *append => drop(rig.append(*open, &bytes).unwrap()),
                        None => drop(rig.write(*open, offset, &bytes).unwrap()),
                    }
                }
            }
            let attr = rig.attr(entry.handle).unwrap();
            assert_eq!(attr.size, model.len() as u64, "seed {seed} step {step}");
            assert!(rig.bytes("f") == model, "seed {seed} step {step}");
        }
    }
}

fn options(always: bool) -> pelago_data::Options {
    let passthrough = if always { Passthrough::Always } else { Passthrough::Auto };
    pelago_data::Options { passthrough, ..Default::default() }
}

/// Returns the content file if the open is by passthrough.
fn program(path: &DataPath, flags: OpenFlags) -> Option<File> {
    match path {
        DataPath::Passthrough(backing) => Some(reopened(backing, flags)),
        _ => None,
    }
}

/// A small generator of numbers: the same ones for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Several threads do everything to the same few names: nothing hangs, nothing stays open, and what
/// is left survives a kill.
#[test]
fn threads_that_use_the_same_files_leave_them_whole() {
    let rig = Rig::new();
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let rig = &rig;
            scope.spawn(move || {
                let mut random = Random(seed);
                for _ in 0..400 {
                    do_something(rig, &mut random);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..30 {
                rig.commit.run().unwrap();
                rig.opens.write_back().unwrap();
            }
        });
    });
    assert_eq!((rig.opens.count(), rig.opens.memory()), (0, 0));
    assert_eq!(rig.opens.counts(), Counts { opens: 0, closed: 0 });
    let again = rig.after_kill();
    assert_eq!(again.recovered.damaged, 0);
    for text in ["a", "b", "c"] {
        let Ok(entry) = rig.lookup(text) else {
            assert_eq!(again.lookup(text), Err(Code::NotFound));
            continue;
        };
        assert!(!rig.shard.is_open(entry.handle.ino));
        let bytes = rig.bytes(text);
        assert_eq!(bytes.len() as u64, entry.attr.size);
        assert_eq!(again.lookup(text).unwrap().attr, entry.attr);
        assert!(again.bytes(text) == bytes);
    }
    rig.opens.write_back().unwrap();
    assert!(!rig.opens.any_unsafe());
}

/// Does one random thing to one of three names; that the name is missing or exists is no failure.
fn do_something(rig: &Rig, random: &mut Random) {
    let names = ["a", "b", "c"];
    let text = names[random.below(3) as usize];
    let flags = OpenFlags { append: random.below(3) == 0, truncate: random.below(8) == 0, ..BOTH };
    match random.below(6) {
        0 => {
            let mode = NewMode::exactly(0o644);
            let open = next_open();
            let request = Request::Create { dir: ROOT, name: name(text), mode, flags, open };
            if let Ok(Reply::Created { .. }) = rig.call(request) {
                rig.write(open, 0, &pattern(random.below(9000) as usize)).unwrap();
                rig.close(open);
            }
        }
        1 => drop(rig.call(Request::Unlink { dir: ROOT, name: name(text) })),
        2 => drop(rig.rename(text, names[random.below(3) as usize])),
        3 => {
            let Ok(entry) = rig.lookup(text) else { return };
            let set = SetAttr { size: Some(random.below(9000)), ..SetAttr::default() };
            let _gone_or_not = rig.set(entry.handle, None, set);
        }
        _ => {
            let Ok(entry) = rig.lookup(text) else { return };
            let Ok(open) = rig.open(entry.handle, flags) else { return };
            for _ in 0..random.below(4) {
                let bytes = pattern(random.below(3000) as usize);
                rig.write(open, random.below(9000), &bytes).unwrap();
                rig.read(open, 0, 20_000).unwrap();
            }
            rig.close(open);
        }
    }
}
