//! Risks for bytes of the first site's files that stay at berlin: programs that do two things at
//! once, refusals, and changes that neither site has heard of.

use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::thread;

use pelago_server::{LeaveError, Server, StayStatus};
use pelago_wire::{
    Code, Handle, InodeId, OpenFlags, OpenId, PlaceFlags, Request, SetAttr, SetTime, Time,
    WriteFlags,
};

use super::line::Losing;
use super::stays::{
    DIRECT, SIZE, WRITE, attr, close, content, create, flush, open, read, read_open, release,
    write, write_new,
};
use super::world::{Offices, ask, ask_with, options, rename, wait_for};

fn set(server: &Server, node: Handle, open: Option<OpenId>, set: SetAttr) -> Result<(), Code> {
    ask(server, DIRECT, Request::SetAttr { node, open, set }).map(drop)
}

fn cut_to(size: u64) -> SetAttr {
    SetAttr { size: Some(size), ..SetAttr::default() }
}

fn fsync(server: &Server, open: OpenId) -> Result<(), Code> {
    ask(server, DIRECT, Request::Fsync { open, data_only: false }).map(drop)
}

/// The kernel sends the parts of one large write at once.
#[test]
fn the_first_writes_of_a_file_come_at_once() {
    let offices = Offices::new();
    for round in 0..20 {
        let text = format!("file {round}");
        let writing = OpenId(1);
        create(&offices.berlin, DIRECT, &text, writing);
        let bytes = content(round, 4 * WRITE);
        let ready = Barrier::new(4);
        thread::scope(|scope| {
            for (part, of_part) in bytes.chunks(WRITE).enumerate() {
                let ready = &ready;
                let berlin = &offices.berlin;
                scope.spawn(move || {
                    ready.wait();
                    write(berlin, writing, part * WRITE, of_part).unwrap();
                });
            }
        });
        close(&offices.berlin, writing);
        assert!(read(&offices.first, &text).unwrap() == bytes, "{round}");
        assert_eq!(offices.berlin.stays().files, usize::from(round) + 1);
    }
}

/// So a kernel empties a file that a program opens with O_TRUNC.
#[test]
fn a_file_that_is_emptied_after_its_open_stays() {
    let offices = Offices::new();
    let writing = OpenId(3);
    let file = create(&offices.first, DIRECT, "file", writing);
    write(&offices.first, writing, 0, &content(8, SIZE)).unwrap();
    close(&offices.first, writing);
    for seed in 9..12 {
        let bytes = content(seed, SIZE);
        open(&offices.berlin, file, OpenFlags::WRITE, OpenId(1)).unwrap();
        set(&offices.berlin, file, None, cut_to(0)).unwrap();
        write(&offices.berlin, OpenId(1), 0, &bytes).unwrap();
        close(&offices.berlin, OpenId(1));
        wait_for("only the last bytes", || offices.berlin.stays().files == 1);
        for server in [&offices.first, &offices.berlin] {
            assert!(read(server, "file").unwrap() == bytes, "{seed}");
        }
    }
}

/// The home has not heard of the bytes when a program there empties the file.
#[test]
fn the_home_empties_what_it_has_not_heard_of() {
    let offices = Offices::new();
    for by_open in [false, true] {
        let text = format!("file {by_open}");
        let writing = OpenId(1);
        let file = create(&offices.berlin, DIRECT, &text, writing);
        write(&offices.berlin, writing, 0, &content(1, SIZE)).unwrap();
        match by_open {
            true => {
                let truncating = OpenFlags { truncate: true, ..OpenFlags::WRITE };
                open(&offices.first, file, truncating, OpenId(2)).unwrap();
                close(&offices.first, OpenId(2));
            }
            false => set(&offices.first, file, None, cut_to(0)).unwrap(),
        }
        assert_eq!(attr(&offices.berlin, file).size, 0);
        // Its writer goes on.
        write(&offices.berlin, writing, 0, b"after that").unwrap();
        close(&offices.berlin, writing);
        for server in [&offices.first, &offices.berlin] {
            assert_eq!(read(server, &text).unwrap(), b"after that");
        }
    }
    wait_for("nothing stays", || offices.berlin.stays() == StayStatus::default());
}

/// It is cut to a size that is not zero.
#[test]
fn the_home_cuts_what_it_has_not_heard_of() {
    let offices = Offices::new();
    let writing = OpenId(1);
    let file = create(&offices.berlin, DIRECT, "file", writing);
    let bytes = content(1, SIZE);
    write(&offices.berlin, writing, 0, &bytes).unwrap();
    set(&offices.first, file, None, cut_to(1000)).unwrap();
    for server in [&offices.first, &offices.berlin] {
        assert!(read(server, "file").unwrap() == bytes[..1000]);
    }
    close(&offices.berlin, writing);
}

/// If the home cannot be told, a change of the size by a path fails, and takes nothing away.
#[test]
fn a_truncation_that_fails_takes_nothing_away() {
    let offices = Offices::with(pelago_server::Options {
        remote_timeout: std::time::Duration::from_secs(1),
        ..options()
    });
    let writing = OpenId(1);
    let file = create(&offices.berlin, DIRECT, "file", writing);
    let bytes = content(1, SIZE);
    write(&offices.berlin, writing, 0, &bytes).unwrap();
    offices.cut(true);
    for size in [0, 5000] {
        set(&offices.berlin, file, None, cut_to(size)).unwrap_err();
    }
    offices.cut(false);
    wait_for("the home is told", || offices.berlin.stays().untold == 0);
    for server in [&offices.first, &offices.berlin] {
        assert!(read(server, "file").unwrap() == bytes);
    }
    close(&offices.berlin, writing);
}

/// Each program that has written what others have passed over hears of it once.
#[test]
fn each_writer_hears_that_its_bytes_are_passed_over() {
    let offices = Offices::new();
    let [one, other] = [OpenId(1), OpenId(2)];
    let file = create(&offices.berlin, DIRECT, "file", one);
    open(&offices.berlin, file, OpenFlags::READ_WRITE, other).unwrap();
    write(&offices.berlin, one, 0, &content(1, SIZE)).unwrap();
    write(&offices.berlin, other, WRITE, &content(2, WRITE)).unwrap();
    offices.cut(true);
    offices.end_session_of_berlin_leases();
    let theirs = content(3, 5000);
    open(&offices.first, file, OpenFlags::WRITE, OpenId(1)).unwrap();
    write(&offices.first, OpenId(1), 0, &theirs).unwrap();
    close(&offices.first, OpenId(1));
    offices.cut(false);
    assert_eq!(fsync(&offices.berlin, one), Err(Code::Io));
    assert_eq!(write(&offices.berlin, other, 0, b"more"), Err(Code::Io));
    assert_eq!((fsync(&offices.berlin, one), fsync(&offices.berlin, other)), (Ok(()), Ok(())));
    for open in [one, other] {
        assert_eq!(flush(&offices.berlin, open), Ok(()));
        release(&offices.berlin, open);
    }
    assert!(read(&offices.first, "file").unwrap() == theirs);
    assert_eq!(offices.berlin.stays(), StayStatus { files: 0, untold: 0, kept: 1 });
}

/// A range is copied from one file that stays to another: the home of the target is told.
#[test]
fn a_copied_range_is_told() {
    let offices = Offices::new();
    let [from, to] = [OpenId(1), OpenId(2)];
    let bytes = content(1, SIZE);
    create(&offices.berlin, DIRECT, "from", from);
    write(&offices.berlin, from, 0, &bytes).unwrap();
    create(&offices.berlin, DIRECT, "to", to);
    write(&offices.berlin, to, 0, b"first").unwrap();
    fsync(&offices.berlin, to).unwrap();
    let copy = Request::CopyRange { from, from_offset: 0, to, to_offset: 0, length: SIZE as u64 };
    ask(&offices.berlin, DIRECT, copy).unwrap();
    for open in [from, to] {
        close(&offices.berlin, open);
    }
    for text in ["from", "to"] {
        for server in [&offices.first, &offices.berlin] {
            assert!(read(server, text).unwrap() == bytes, "{text}");
        }
    }
}

/// A user without privilege writes into a file that runs as another one.
#[test]
fn a_write_here_clears_the_set_id_bits_there() {
    let offices = Offices::new();
    let writing = OpenId(1);
    let file = create(&offices.berlin, DIRECT, "file", writing);
    let mode = SetAttr { mode: Some(0o6755), ..SetAttr::default() };
    set(&offices.berlin, file, None, mode).unwrap();
    let by_root = content(1, SIZE);
    write(&offices.berlin, writing, 0, &by_root).unwrap();
    fsync(&offices.berlin, writing).unwrap();
    assert_eq!(attr(&offices.first, file).mode, 0o6755, "root keeps them");
    open(&offices.berlin, file, OpenFlags::WRITE, OpenId(2)).unwrap();
    let flags = WriteFlags { kill_privileges: true, ..WriteFlags::NONE };
    let request = Request::Write { open: OpenId(2), offset: 0, flags };
    ask_with(&offices.berlin, DIRECT, request, b"by a user").unwrap();
    assert_eq!(attr(&offices.berlin, file).mode, 0o755, "before the home is told");
    close(&offices.berlin, OpenId(2));
    close(&offices.berlin, writing);
    for server in [&offices.first, &offices.berlin] {
        assert_eq!(attr(server, file).mode, 0o755);
    }
}

/// As `cp -p`: a time that is set stays, also when the bytes come home.
#[test]
fn a_time_that_was_set_stays_when_the_bytes_come_home() {
    let offices = Offices::new();
    let there = Time { seconds: 1_000_000_000, nanos: 7 };
    let here = Time { seconds: 900_000_000, nanos: 8 };
    let to = |time| SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
    for (text, by_berlin, time) in [("berlin's", true, there), ("first's", false, here)] {
        let file = offices.new_file(text, &content(1, SIZE));
        let server = if by_berlin { &offices.berlin } else { &offices.first };
        set(server, file, None, to(time)).unwrap();
        open(&offices.first, file, OpenFlags::READ_WRITE, OpenId(3)).unwrap();
        close(&offices.first, OpenId(3));
        for server in [&offices.first, &offices.berlin] {
            assert_eq!(attr(server, file).mtime, time, "{text}");
            assert!(read(server, text).unwrap() == content(1, SIZE));
        }
    }
    wait_for("they came home", || offices.berlin.stays() == StayStatus::default());
}

/// With `O_SYNC` no other writer passes over what was answered.
#[test]
fn what_is_written_with_sync_is_told_at_once() {
    let offices = Offices::new();
    let file = create(&offices.berlin, DIRECT, "file", OpenId(1));
    write(&offices.berlin, OpenId(1), 0, &content(1, SIZE)).unwrap();
    let syncing = OpenFlags { sync: true, ..OpenFlags::WRITE };
    open(&offices.berlin, file, syncing, OpenId(2)).unwrap();
    write(&offices.berlin, OpenId(2), 0, b"synced").unwrap();
    assert_eq!(offices.berlin.stays().untold, 0);
    for open in [OpenId(1), OpenId(2)] {
        close(&offices.berlin, open);
    }
    assert!(&read(&offices.first, "file").unwrap()[..6] == b"synced");
}

/// A program at home makes safe what others have written: that is on berlin's disk.
#[test]
fn an_fsync_at_home_reaches_the_bytes() {
    let offices = Offices::with(pelago_server::Options {
        remote_timeout: std::time::Duration::from_secs(1),
        ..options()
    });
    let file = offices.new_file("file", &content(1, SIZE));
    open(&offices.first, file, OpenFlags::READ, OpenId(1)).unwrap();
    let before = offices.sent_by_first();
    fsync(&offices.first, OpenId(1)).unwrap();
    assert!(offices.sent_by_first() > before);
    assert!(read_open(&offices.first, OpenId(1)).unwrap() == content(1, SIZE));
    offices.cut(true);
    let away = fsync(&offices.first, OpenId(1)).unwrap_err();
    assert!(matches!(away, Code::HostDown | Code::TimedOut), "{away:?}");
}

/// More files than come home at a time are asked for at once.
#[test]
fn many_files_come_home_at_once() {
    let offices = Offices::new();
    let files: Vec<Handle> = (0..20)
        .map(|number| offices.new_file(&format!("file {number}"), &content(number, SIZE)))
        .collect();
    thread::scope(|scope| {
        for (number, file) in files.iter().enumerate() {
            let offices = &offices;
            scope.spawn(move || {
                let writing = OpenId(100 + number as u64);
                open(&offices.first, *file, OpenFlags::WRITE, writing).unwrap();
                write(&offices.first, writing, 0, b"home").unwrap();
                close(&offices.first, writing);
            });
        }
    });
    for number in 0..20 {
        let seen = read(&offices.berlin, &format!("file {number}")).unwrap();
        assert!(&seen[..4] == b"home" && seen[4..] == content(number, SIZE)[4..]);
    }
    wait_for("all came home", || offices.berlin.stays() == StayStatus::default());
}

/// Two programs of berlin: one truncates while the other one writes.
#[test]
fn a_truncation_beside_writes_loses_no_later_one() {
    let offices = Offices::new();
    for round in 0..10 {
        let text = format!("file {round}");
        let file = create(&offices.berlin, DIRECT, &text, OpenId(1));
        open(&offices.berlin, file, OpenFlags::READ_WRITE, OpenId(2)).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                for part in 0..8 {
                    write(&offices.berlin, OpenId(1), part * WRITE, &content(1, WRITE)).unwrap();
                }
            });
            scope.spawn(|| {
                for _ in 0..3 {
                    set(&offices.berlin, file, None, cut_to(0)).unwrap();
                }
            });
        });
        write(&offices.berlin, OpenId(2), 0, b"last").unwrap();
        for open in [OpenId(1), OpenId(2)] {
            close(&offices.berlin, open);
        }
        let here = read(&offices.berlin, &text).unwrap();
        assert!(read(&offices.first, &text).unwrap() == here);
        assert!(&here[..4] == b"last");
    }
}

/// The home has the bytes of a small file, and the answer is lost with the line: nothing is passed
/// over, and no program hears of a conflict.
#[test]
fn a_small_file_that_has_arrived_is_no_conflict_with_itself() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    let bytes = content(7, 20_000);
    *offices.losing.lock() = Losing::AnswersBy(Code::TimedOut);
    let writing = OpenId(1);
    create(berlin, DIRECT, "small", writing);
    write(berlin, writing, 0, &bytes).unwrap();
    assert_eq!(flush(berlin, writing), Err(Code::TimedOut));
    assert_eq!(read(first, "small").unwrap(), bytes, "it has arrived");
    *offices.losing.lock() = Losing::Nothing;
    close(berlin, writing);
    wait_for("it is known that it has arrived", || berlin.stays() == StayStatus::default());
    assert_eq!(read(berlin, "small").unwrap(), bytes);
}

/// As above, but another program at the home has written the file before this site asks.
#[test]
fn a_small_file_that_has_arrived_and_was_changed_there_is_kept() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    *offices.losing.lock() = Losing::AnswersBy(Code::TimedOut);
    let writing = OpenId(1);
    let file = create(berlin, DIRECT, "small", writing);
    write(berlin, writing, 0, &content(7, 20_000)).unwrap();
    assert_eq!(flush(berlin, writing), Err(Code::TimedOut));
    offices.cut(true);
    offices.end_session_of_berlin_leases();
    open(first, file, OpenFlags::WRITE, OpenId(2)).unwrap();
    write(first, OpenId(2), 100, b"there").unwrap();
    close(first, OpenId(2));
    *offices.losing.lock() = Losing::Nothing;
    offices.cut(false);
    wait_for("they are kept", || berlin.stays().kept == 1);
    let mut expected = content(7, 20_000);
    expected[100..105].copy_from_slice(b"there");
    assert_eq!(read(first, "small").unwrap(), expected);
}

/// A close of one descriptor sends a small file home while another one makes it longer.
#[test]
fn a_close_beside_writes_through_another_descriptor_loses_none() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    for round in 0..30_u64 {
        let text = format!("f{round}");
        let [one, two] = [OpenId(1), OpenId(2)];
        let file = create(berlin, DIRECT, &text, one);
        open(berlin, file, OpenFlags::WRITE, two).unwrap();
        let bytes = content(round as u8, SIZE);
        write(berlin, one, 0, &bytes[..10_000]).unwrap();
        let both = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                write(berlin, two, 10_000, &bytes[10_000..]).unwrap();
            });
            both.wait();
            flush(berlin, one).unwrap();
        });
        close(berlin, two);
        close(berlin, one);
        assert!(read(first, &text).unwrap() == bytes, "{text}");
    }
}

/// As for a file of one site: after a loss of power the name leads to the old bytes or to the new.
#[test]
fn a_rename_over_another_file_first_makes_the_bytes_safe() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    offices.written("target", b"old");
    for (at, round) in [(first, 1), (berlin, 2)] {
        write_new(berlin, "new", &content(round, SIZE));
        let before = offices.sent_by_first();
        rename(at, "new", "target").unwrap();
        assert!(offices.sent_by_first() - before >= 2, "an open and a sync");
        assert_eq!(read(first, "target").unwrap(), content(round, SIZE));
    }
    // Without a target nothing is replaced, and nothing waits for the line.
    write_new(berlin, "new", &content(3, SIZE));
    let before = offices.sent_by_first();
    rename(first, "new", "other").unwrap();
    assert_eq!(offices.sent_by_first(), before);
    offices.cut(true);
    assert!(rename(first, "other", "target").is_err());
    offices.cut(false);
    for (text, round) in [("target", 2), ("other", 3)] {
        assert_eq!(read(first, text).unwrap(), content(round, SIZE), "{text}");
    }
}

/// `cp` at the home: the kernel reads the bytes, and they stay where they are.
#[test]
fn a_range_of_bytes_elsewhere_is_copied_by_the_kernel() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    let file = write_new(berlin, "from", &content(1, SIZE));
    let [from, to] = [OpenId(1), OpenId(2)];
    open(first, file, OpenFlags::READ, from).unwrap();
    create(first, DIRECT, "to", to);
    let copy = Request::CopyRange { from, from_offset: 0, to, to_offset: 0, length: 1000 };
    assert_eq!(ask(first, DIRECT, copy).err(), Some(Code::CrossHome));
    assert_eq!(berlin.stays().files, 1);
    close(first, from);
    close(first, to);
}

/// Also bytes that are on their way home.
#[test]
fn an_office_does_not_leave_with_the_only_bytes() {
    let offices = Offices::new();
    let Offices { first, berlin, .. } = &offices;
    let file = write_new(berlin, "large", &content(1, SIZE));
    let node = first.bytes_at(file).unwrap();
    let given = Request::GiveBytes { node: Handle::own(node), file: file.ino };
    ask(berlin, offices.first_at_berlin(), given).unwrap();
    let left = berlin.leave_volume();
    assert!(matches!(left, Err(LeaveError::HasBytes(1))), "{left:?}");
    assert_eq!(read(first, "large").unwrap(), content(1, SIZE));
    // It stays a site as any other.
    write_new(berlin, "next", &content(2, SIZE));
    assert_eq!(read(first, "next").unwrap(), content(2, SIZE));
}

/// The home has given a lock to others: what it guarded here is not read or written any more. A
/// simulation has found two programs that had one lock (seed 320302).
#[test]
fn a_lock_that_is_lost_guards_no_bytes_that_stay() {
    let offices = Offices::new();
    let Offices { berlin, .. } = &offices;
    let file = write_new(berlin, "locked", &content(1, SIZE));
    open(berlin, file, OpenFlags::READ_WRITE, OpenId(5)).unwrap();
    write(berlin, OpenId(5), 0, b"with").unwrap();
    let lost = &offices.line_to_first().loses_locks;
    lost.store(true, Ordering::Release);
    assert_eq!(write(berlin, OpenId(5), 0, b"none"), Err(Code::Io));
    assert_eq!(read_open(berlin, OpenId(5)), Err(Code::Io));
    lost.store(false, Ordering::Release);
    close(berlin, OpenId(5));
    let mut expected = content(1, SIZE);
    expected[..4].copy_from_slice(b"with");
    assert_eq!(read(berlin, "locked").unwrap(), expected);
}

/// The disk there has lost bytes, and says so once.
#[test]
fn bytes_that_are_not_safe_there_do_not_come_home() {
    let offices = Offices::new();
    let Offices { first, .. } = &offices;
    let bytes = content(1, SIZE);
    let file = offices.new_file("file", &bytes);
    *offices.losing.lock() = Losing::SyncsBy(Code::Io);
    assert_eq!(open(first, file, OpenFlags::WRITE, OpenId(1)).unwrap_err(), Code::Io);
    assert_eq!(fsync_through(first, file), Err(Code::Io));
    *offices.losing.lock() = Losing::Nothing;
    assert!(read(first, "file").unwrap() == bytes, "the node stays");
    open(first, file, OpenFlags::WRITE, OpenId(1)).unwrap();
    write(first, OpenId(1), 0, b"home").unwrap();
    close(first, OpenId(1));
    wait_for("it came home", || offices.berlin.stays() == StayStatus::default());
    assert!(read(&offices.berlin, "file").unwrap()[4..] == bytes[4..]);
}

fn fsync_through(server: &Server, file: Handle) -> Result<(), Code> {
    open(server, file, OpenFlags::READ, OpenId(9)).unwrap();
    let synced = fsync(server, OpenId(9));
    close(server, OpenId(9));
    synced
}

/// A site that names a file which the home never had, as after a home that was put back.
#[test]
fn bytes_of_a_file_that_never_was_are_not_taken() {
    let offices = Offices::new();
    let ino = InodeId::new(0, 0, 1 << 30).unwrap();
    let node = Handle::own(InodeId::new(1, 0, 1 << 20).unwrap());
    let told = Request::SetBytes {
        node: Handle::own(ino),
        at: node.ino,
        size: 100_000,
        mtime: Time { seconds: 5, nanos: 0 },
        since: Time::default(),
        flags: PlaceFlags::default(),
    };
    let session = offices.line_to_first().session;
    assert_eq!(ask(&offices.first, session, told).unwrap_err(), Code::Exists);
}
