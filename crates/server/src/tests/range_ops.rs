//! Ranges of open files, through the service: `fallocate`, `lseek` and `copy_file_range`.

use pelago_data as data;
use pelago_lossfs::Operation;
use pelago_wire::{
    AllocateMode, Code, OpenFlags, OpenId, Reply, Request, SeekFrom, SetAttr, Whence, limits,
};
use rustix::io::Errno;

use crate::testing::{BOTH, Failing, Options, READ, Rig};

const LIMIT: u64 = limits::INLINE_DEFAULT_BYTES as u64;
const GROW: AllocateMode = AllocateMode::Reserve { keep_size: false };
const KEEP: AllocateMode = AllocateMode::Reserve { keep_size: true };
const ZERO: AllocateMode = AllocateMode::Zero { keep_size: false };
const ZERO_KEEP: AllocateMode = AllocateMode::Zero { keep_size: true };

fn allocate(
    rig: &Rig,
    open: OpenId,
    offset: u64,
    length: u64,
    mode: AllocateMode,
) -> Result<(), Code> {
    match rig.call(Request::Allocate { open, offset, length, mode })? {
        Reply::Done => Ok(()),
        other => panic!("{other:?}"),
    }
}

fn seek(rig: &Rig, open: OpenId, offset: u64, whence: Whence) -> Result<u64, Code> {
    match rig.call(Request::Seek { open, from: SeekFrom { offset, whence } })? {
        Reply::Offset(offset) => Ok(offset),
        other => panic!("{other:?}"),
    }
}

fn copy(
    rig: &Rig,
    from: OpenId,
    from_offset: u64,
    to: OpenId,
    to_offset: u64,
    length: u64,
) -> Result<(u64, u64), Code> {
    match rig.call(Request::CopyRange { from, from_offset, to, to_offset, length })? {
        Reply::Written { bytes, size } => Ok((bytes, size)),
        other => panic!("{other:?}"),
    }
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|number| (number % 251) as u8 + 1).collect()
}

#[test]
fn a_small_file_is_reserved_and_zeroed_in_memory() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    rig.write(open, 0, b"0123456789").unwrap();
    let before = rig.attr(entry.handle).unwrap();
    allocate(&rig, open, 4, 2, GROW).unwrap();
    assert_eq!(rig.read(open, 0, 100).unwrap(), b"0123456789", "what is there stays");
    let after = rig.attr(entry.handle).unwrap();
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    allocate(&rig, open, 8, 1000, KEEP).unwrap();
    assert_eq!(rig.attr(entry.handle).unwrap().size, 10);
    allocate(&rig, open, 2, 3, AllocateMode::PunchHole).unwrap();
    allocate(&rig, open, 8, 50, ZERO_KEEP).unwrap();
    allocate(&rig, open, 100, 50, AllocateMode::PunchHole).unwrap();
    assert_eq!(rig.read(open, 0, 100).unwrap(), b"01\0\0\x00567\0\0");
    allocate(&rig, open, 7, 5, ZERO).unwrap();
    assert_eq!(rig.read(open, 0, 100).unwrap(), b"01\0\0\x0056\0\0\0\0\0");
    allocate(&rig, open, 10, 10, GROW).unwrap();
    assert_eq!(rig.attr(entry.handle).unwrap().size, 20);
    assert!(!rig.has_writing_row(entry.handle), "everything happened in memory");
    rig.close(open);
    assert_eq!(rig.after_kill().bytes("f"), b"01\0\0\x0056\0\0\0\0\0\0\0\0\0\0\0\0\0");
}

#[test]
fn a_reservation_beyond_the_inline_limit_reserves_blocks_of_the_disk() {
    let rig = Rig::new();
    for (name, mode, size) in [("f", KEEP, 3), ("g", GROW, 1 << 20)] {
        let (entry, open) = rig.create(name, BOTH);
        rig.write(open, 0, b"abc").unwrap();
        allocate(&rig, open, 0, 1 << 20, mode).unwrap();
        let attr = rig.attr(entry.handle).unwrap();
        assert_eq!(attr.size, size);
        assert!(attr.blocks >= (1 << 20) / 512, "{attr:?}");
        assert!(rig.has_writing_row(entry.handle));
        rig.close(open);
        let again = rig.after_kill();
        assert_eq!(again.attr(entry.handle).unwrap().size, size);
        assert_eq!(&again.bytes(name)[..3], b"abc");
        assert!(again.bytes(name)[3..].iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_punched_hole_frees_blocks_and_reads_as_zeros() {
    let rig = Rig::new();
    let (entry, open) = rig.create("f", BOTH);
    let mut bytes = pattern(300_000);
    rig.write(open, 0, &bytes).unwrap();
    allocate(&rig, open, 0, 300_000, GROW).unwrap();
    let before = rig.attr(entry.handle).unwrap();
    allocate(&rig, open, 65_536, 131_072, AllocateMode::PunchHole).unwrap();
    bytes[65_536..65_536 + 131_072].fill(0);
    let after = rig.attr(entry.handle).unwrap();
    assert!(after.blocks < before.blocks, "{before:?} {after:?}");
    assert!(after.mtime > before.mtime && after.ctime > before.ctime);
    allocate(&rig, open, 10, 100, ZERO_KEEP).unwrap();
    bytes[10..110].fill(0);
    allocate(&rig, open, 299_990, 1000, ZERO).unwrap();
    bytes[299_990..].fill(0);
    bytes.resize(300_990, 0);
    assert_eq!(rig.read(open, 0, 1 << 20).unwrap(), bytes);
    rig.close(open);
    let again = rig.after_kill();
    assert_eq!(again.bytes("f"), bytes);
    assert_eq!(again.attr(entry.handle).unwrap().size, 300_990);
}

#[test]
fn a_reservation_that_fails_changes_nothing() {
    let rig = Rig::new();
    let entry = rig.file("f", b"abc");
    let reader = rig.open(entry.handle, READ).unwrap();
    assert_eq!(allocate(&rig, reader, 0, 1, GROW), Err(Code::BadOpen));
    rig.close(reader);
    let open = rig.open(entry.handle, BOTH).unwrap();
    let before = rig.attr(entry.handle).unwrap();
    assert_eq!(allocate(&rig, open, 0, 0, GROW), Err(Code::Invalid));
    assert_eq!(allocate(&rig, open, u64::MAX, 2, GROW), Err(Code::FileTooLarge));
    assert_eq!(allocate(&rig, open, limits::FILE_BYTES, 1, KEEP), Err(Code::FileTooLarge));
    assert_eq!(allocate(&rig, OpenId(u64::MAX), 0, 1, GROW), Err(Code::BadOpen));
    assert_eq!(rig.attr(entry.handle).unwrap(), before);
    assert_eq!(allocate(&rig, open, 0, 1 << 60, GROW), Err(Code::NoSpace));
    assert!(
        rig.space.admit().is_ok(),
        "a request for too much does not mean that the disk is full"
    );
    assert_eq!(rig.attr(entry.handle).unwrap().size, 3);
    assert_eq!(rig.read(open, 0, 100).unwrap(), b"abc");
    rig.close(open);
    assert_eq!(rig.attr(entry.handle).unwrap().size, 3);
}

/// The rig's caller is not root.
#[test]
fn reserving_and_copying_clear_setuid() {
    let rig = Rig::new();
    let set = SetAttr { mode: Some(0o4755), ..SetAttr::default() };
    let (source, from) = rig.create("source", BOTH);
    rig.write(from, 0, &pattern(100_000)).unwrap();
    for length in [10, 100_000] {
        let (entry, open) = rig.create(&format!("reserved {length}"), BOTH);
        rig.set(entry.handle, None, set).unwrap();
        allocate(&rig, open, 0, length, GROW).unwrap();
        assert_eq!(rig.attr(entry.handle).unwrap().mode, 0o755);
        rig.set(entry.handle, None, set).unwrap();
        assert_eq!(copy(&rig, from, 0, open, 0, length).unwrap().0, length);
        assert_eq!(rig.attr(entry.handle).unwrap().mode, 0o755);
        rig.close(open);
    }
    assert_eq!(rig.attr(source.handle).unwrap().size, 100_000);
}

#[test]
fn data_and_holes_are_found() {
    let rig = Rig::new();
    let (_, small) = rig.create("small", BOTH);
    assert_eq!(seek(&rig, small, 0, Whence::Data), Err(Code::NoData));
    assert_eq!(seek(&rig, small, 0, Whence::Hole), Err(Code::NoData));
    rig.write(small, 0, b"0123456789").unwrap();
    assert_eq!(seek(&rig, small, 4, Whence::Data), Ok(4));
    assert_eq!(seek(&rig, small, 4, Whence::Hole), Ok(10));
    assert_eq!(seek(&rig, small, 10, Whence::Hole), Err(Code::NoData));
    assert_eq!(seek(&rig, small, u64::MAX, Whence::Data), Err(Code::NoData));
    let (_, large) = rig.create("large", BOTH);
    rig.write(large, 1 << 20, b"far").unwrap();
    let end = (1 << 20) + 3;
    assert_eq!(seek(&rig, large, end - 1, Whence::Data), Ok(end - 1));
    assert_eq!(seek(&rig, large, end - 1, Whence::Hole), Ok(end));
    assert_eq!(seek(&rig, large, end, Whence::Data), Err(Code::NoData));
    // A file system without holes reports everything as data.
    let data = seek(&rig, large, 0, Whence::Data).unwrap();
    let hole = seek(&rig, large, 0, Whence::Hole).unwrap();
    assert!((data, hole) == (1 << 20, 0) || (data, hole) == (0, end), "{data} {hole}");
    rig.set(
        rig.lookup("large").unwrap().handle,
        None,
        SetAttr { size: Some(end + 4096), ..SetAttr::default() },
    )
    .unwrap();
    assert!(seek(&rig, large, end, Whence::Hole).is_ok());
    rig.close(small);
    rig.close(large);
}

/// Each of the two may be in memory or in a content file.
#[test]
fn bytes_are_copied_between_files_of_all_sizes() {
    let rig = Rig::new();
    for from_size in [10, LIMIT, 100_000, 300_000] {
        for to_size in [0, 20, 200_000] {
            let (_, from) = rig.create("from", BOTH);
            let (entry, to) = rig.create("to", BOTH);
            let bytes = pattern(from_size as usize);
            rig.write(from, 0, &bytes).unwrap();
            let mut expected = vec![7; to_size];
            rig.write(to, 0, &expected).unwrap();
            let before = rig.attr(entry.handle).unwrap();
            let (copied, size) = copy(&rig, from, 3, to, 5, u64::MAX).unwrap();
            let wanted = &bytes[3..];
            assert_eq!(copied, wanted.len() as u64, "{from_size} to {to_size}");
            let end = 5 + wanted.len();
            expected.resize(to_size.max(end), 0);
            expected[5..end].copy_from_slice(wanted);
            assert_eq!(size, expected.len() as u64);
            assert_eq!(rig.read(to, 0, 1 << 20).unwrap(), expected);
            assert!(rig.attr(entry.handle).unwrap().mtime > before.mtime);
            rig.close(from);
            rig.close(to);
            assert_eq!(rig.after_kill().bytes("to"), expected);
            rig.unlink("from");
            rig.unlink("to");
        }
    }
}

#[test]
fn within_one_file_ranges_must_not_overlap() {
    let rig = Rig::new();
    for size in [1000, 400_000] {
        let (_, open) = rig.create("f", BOTH);
        let mut bytes = pattern(size);
        rig.write(open, 0, &bytes).unwrap();
        let half = size as u64 / 2;
        assert_eq!(copy(&rig, open, 0, open, 1, half), Err(Code::Invalid));
        assert_eq!(copy(&rig, open, 1, open, 0, half), Err(Code::Invalid));
        assert_eq!(copy(&rig, open, 0, open, half, half), Ok((half, size as u64)));
        bytes.copy_within(..size / 2, size / 2);
        assert_eq!(rig.read(open, 0, 1 << 20).unwrap(), bytes);
        // Behind the end there is nothing to copy, and so nothing that overlaps.
        assert_eq!(copy(&rig, open, size as u64, open, size as u64 + 1, 9).unwrap().0, 0);
        rig.close(open);
        rig.unlink("f");
    }
}

#[test]
fn a_copy_is_refused_as_a_read_and_a_write_are() {
    let rig = Rig::new();
    let (entry, both) = rig.create("f", BOTH);
    rig.write(both, 0, &pattern(100_000)).unwrap();
    let reader = rig.open(entry.handle, READ).unwrap();
    let writer = rig.open(entry.handle, OpenFlags { read: false, ..BOTH }).unwrap();
    let append = rig.open(entry.handle, OpenFlags { append: true, ..BOTH }).unwrap();
    for (from, to) in [(both, reader), (writer, both), (both, append), (both, OpenId(u64::MAX))] {
        assert_eq!(copy(&rig, from, 0, to, 200_000, 10), Err(Code::BadOpen));
    }
    let far = limits::FILE_BYTES - 5;
    assert_eq!(copy(&rig, both, 0, both, far, 10), Err(Code::FileTooLarge));
    assert_eq!(copy(&rig, both, 0, both, far, 80_000), Err(Code::FileTooLarge));
    for open in [both, reader, writer, append] {
        rig.close(open);
    }
    assert_eq!(rig.attr(entry.handle).unwrap().size, 100_000);
}

#[test]
fn a_long_copy_takes_several_requests() {
    let rig = Rig::new();
    let (_, from) = rig.create("from", BOTH);
    let (_, to) = rig.create("to", BOTH);
    let size = 40 << 20;
    rig.set(
        rig.lookup("from").unwrap().handle,
        None,
        SetAttr { size: Some(size), ..SetAttr::default() },
    )
    .unwrap();
    let mut at = 0;
    while at < size {
        let (copied, end) = copy(&rig, from, at, to, at, size - at).unwrap();
        assert!(copied > 0 && copied <= 16 << 20 && end == at + copied, "{at} {copied} {end}");
        at += copied;
    }
    assert_eq!(copy(&rig, from, at, to, at, 10), Ok((0, size)));
    rig.close(from);
    rig.close(to);
}

/// `O_SYNC` counts for reservations as for writes.
#[test]
fn a_reservation_by_a_synchronous_open_waits_for_the_group_commit() {
    let rig = Rig::new();
    let (_, open) = rig.create("f", OpenFlags { sync: true, ..BOTH });
    for length in [10, 10_000] {
        let request = Request::Allocate { open, offset: 0, length, mode: GROW };
        let reply = rig.begin(request, &[]);
        let mut answered = None;
        while answered.is_none() {
            rig.commit.run().unwrap();
            answered = reply.try_recv().ok();
        }
        assert!(matches!(answered, Some(Ok(Reply::Done))));
    }
    assert_eq!(rig.after_crash(0).bytes("f").len(), 10_000);
    rig.close(open);
}

#[test]
fn a_read_only_server_reserves_and_copies_nothing() {
    let rig = Rig::new();
    let entry = rig.file("f", b"abc");
    let served = rig.restarted(Options { read_only: true, ..Options::default() });
    let open = served.open(entry.handle, READ).unwrap();
    assert_eq!(allocate(&served, open, 0, 1, GROW), Err(Code::ReadOnly));
    assert_eq!(copy(&served, open, 0, open, 1, 1), Err(Code::ReadOnly));
    assert_eq!(seek(&served, open, 1, Whence::Hole), Ok(3));
    served.close(open);
}

/// A file that does not fit into the memory of all open files is reserved on the disk.
#[test]
fn without_memory_a_small_file_is_reserved_too() {
    let open = data::Options { open_bytes: 2, ..data::Options::default() };
    let rig = Rig::with(Options { open, ..Options::default() });
    let (entry, open) = rig.create("f", BOTH);
    allocate(&rig, open, 0, 100, GROW).unwrap();
    rig.write(open, 0, b"abc").unwrap();
    allocate(&rig, open, 1, 1, AllocateMode::PunchHole).unwrap();
    rig.close(open);
    assert_eq!(rig.attr(entry.handle).unwrap().size, 100);
    assert_eq!(&rig.bytes("f")[..4], b"a\0c\0");
}

/// Then it is freed, and reserved again.
#[test]
fn a_range_is_zeroed_even_if_the_disk_cannot_zero() {
    let Some(failing) = Failing::with(Options::default()) else { return };
    let rig = &failing.rig;
    for (mode, size) in [(ZERO, 60_000), (ZERO_KEEP, 50_000)] {
        let (entry, open) = rig.create(&format!("{mode:?}"), BOTH);
        rig.write(open, 0, &pattern(50_000)).unwrap();
        failing.refuse(Operation::Reserve, 0, 1, Errno::OPNOTSUPP);
        allocate(rig, open, 40_000, 20_000, mode).unwrap();
        let mut bytes = pattern(50_000);
        bytes[40_000..].fill(0);
        bytes.resize(size, 0);
        assert_eq!(rig.read(open, 0, 1 << 20).unwrap(), bytes);
        let attr = rig.attr(entry.handle).unwrap();
        assert_eq!((attr.size, attr.volatile), (size as u64, false));
        assert!(attr.blocks * 512 >= size as u64, "it is reserved");
        rig.close(open);
        assert_eq!(rig.bytes(&format!("{mode:?}")), bytes);
    }
}

/// Whichever step fails: no byte is lost, and the file does not grow.
#[test]
fn a_range_that_cannot_be_zeroed_is_unchanged() {
    let Some(failing) = Failing::with(Options::default()) else { return };
    let rig = &failing.rig;
    let (entry, open) = rig.create("f", BOTH);
    rig.write(open, 0, &pattern(50_000)).unwrap();
    let steps = [(Errno::NOSPC, Code::NoSpace), (Errno::OPNOTSUPP, Code::NotSupported)];
    for (step, (error, code)) in (1..).zip(steps) {
        failing.refuse(Operation::Reserve, 0, 1, Errno::OPNOTSUPP);
        failing.refuse(Operation::Reserve, step - 1, 1, error);
        assert_eq!(allocate(rig, open, 40_000, 20_000, ZERO), Err(code), "step {step}");
        assert_eq!(rig.read(open, 0, 1 << 20).unwrap(), pattern(50_000), "step {step}");
        assert_eq!(rig.attr(entry.handle).unwrap().size, 50_000, "step {step}");
    }
    failing.refuse(Operation::Reserve, 0, 1, Errno::OPNOTSUPP);
    failing.refuse(Operation::Reserve, 2, 1, Errno::NOSPC);
    assert_eq!(allocate(rig, open, 40_000, 20_000, ZERO), Ok(()), "a hole does as well");
    assert_eq!(rig.read(open, 0, 1 << 20).unwrap()[40_000..], [0; 20_000]);
}
