//! Files that are handed out, through the router. A program that was given a descriptor opens the
//! content file again through it, as the kernel does.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pelago_store::os::MappedPage;
use pelago_wire::{
    AllocateMode, Attr, Code, Cookie, DataPath, Entry, Handle, OpenFlags, OpenId, Reply, Request,
    SetAttr, SetTime, Time,
};

use crate::recovery;
use crate::testing::{BOTH, Options, READ, ROOT, Rig, at, name, reopened};
use pelago_data::{self as data, Counts, Passthrough};

/// As a mount asks that can use descriptors.
const PASS: OpenFlags = OpenFlags { passthrough: true, ..BOTH };
const PASS_READ: OpenFlags = OpenFlags { passthrough: true, ..READ };
const LARGE: usize = 100_000;

fn served(passthrough: Passthrough) -> Options {
    let open = data::Options { passthrough, ..Default::default() };
    Options { open, ..Options::default() }
}

/// A rig where the medium tells who writes a file; `None` where it does not.
fn rig_that_tells() -> Option<Rig> {
    pelago_store::os::handle_lease_signals().unwrap();
    let rig = Rig::new();
    let tells = rig.content.can_detect_writers().unwrap_or(false);
    if !tells {
        println!("skipped: not here: the temporary folder's file system has no leases");
    }
    tells.then_some(rig)
}

impl Rig {
    /// OpenFiles a file by a descriptor.
    fn pass(&self, node: Handle, flags: OpenFlags) -> (OpenId, File) {
        match self.find_way(node, flags) {
            (open, _, DataPath::Passthrough(backing)) => (open, reopened(&backing, flags)),
            other => panic!("{other:?}"),
        }
    }

    fn make(&self, text: &str, flags: OpenFlags) -> (Entry, OpenId, DataPath) {
        let request = Request::Create { dir: ROOT, name: name(text), mode: MODE, flags };
        match self.call(request).unwrap() {
            Reply::Created { entry, open, path } => (entry, open, path),
            other => panic!("{other:?}"),
        }
    }

    /// A large file with all attributes as its row has them, and nothing unsafe.
    fn large(&self, text: &str) -> Entry {
        self.file(text, &[1; LARGE]);
        self.opens.write_back().unwrap();
        self.look(text).unwrap()
    }
}

const MODE: pelago_wire::NewMode = pelago_wire::NewMode::exactly(0o644);

fn truncated(size: u64) -> SetAttr {
    SetAttr { size: Some(size), ..SetAttr::default() }
}

#[test]
fn large_files_go_by_descriptor_and_small_ones_by_requests() {
    let rig = Rig::new();
    let (small, large) = (rig.file("small", b"few"), rig.large("large"));
    assert_eq!(rig.find_way(small.handle, PASS).2, DataPath::Cached);
    let (first, attr, path) = rig.find_way(large.handle, PASS_READ);
    assert!(!attr.volatile && attr == large.attr);
    let DataPath::Passthrough(backing) = path else { panic!("{path:?}") };
    assert!(
        (&File::from(backing.as_fd().try_clone_to_owned().unwrap())).write(b"x").is_err(),
        "the descriptor itself is open to read only"
    );
    assert!(!rig.is_marked(large.handle), "a reader changes nothing");
    let (_, _, again) = rig.find_way(large.handle, PASS_READ);
    assert_eq!(again, DataPath::Passthrough(backing.clone()), "while one is open: the same");
    assert_eq!(rig.find_way(large.handle, READ).2, DataPath::Cached, "the library");
    rig.close(first);
    let (_, _, again) = rig.find_way(large.handle, PASS);
    assert_eq!(again, DataPath::Passthrough(backing));
    assert_eq!(rig.find_way(large.handle, READ).2, DataPath::Direct, "somebody writes it");
    let never = rig.served(served(Passthrough::Never));
    assert_eq!(never.find_way(large.handle, PASS).2, DataPath::Cached);
}

/// As any file of its directory: large ones begin with a content file, which goes with them.
#[test]
fn a_file_without_a_name_follows_the_sizes_of_its_directory() {
    let Some(rig) = rig_that_tells() else { return };
    let make = || match rig.call(Request::CreateUnnamed { dir: ROOT, mode: MODE, flags: PASS }) {
        Ok(Reply::Created { entry, open, path }) => (entry, open, path),
        other => panic!("{other:?}"),
    };
    let (entry, open, path) = make();
    assert_eq!(path, DataPath::Cached);
    // Larger than what decides.
    let size = Some(1 << 40);
    rig.set(entry.handle, Some(open), SetAttr { size, ..SetAttr::default() }).unwrap();
    rig.close(open);
    let (entry, open, path) = make();
    let DataPath::Passthrough(backing) = path else { panic!("{path:?}") };
    let file = reopened(&backing, PASS);
    file.write_all_at(b"bytes", 0).unwrap();
    assert_eq!((entry.attr.links, rig.attr(entry.handle).unwrap().size), (0, 5));
    let link = |text| rig.call(Request::Link { node: entry.handle, dir: ROOT, name: name(text) });
    link("named").unwrap();
    file.write_all_at(b"BYTES", 5).unwrap();
    drop(file);
    rig.close(open);
    assert_eq!(
        (rig.look("named").unwrap().attr.links, rig.bytes("named")),
        (1, b"bytesBYTES".to_vec())
    );
}

/// The kernel takes one way for a file at a time.
#[test]
fn a_file_that_grows_large_while_it_is_open_keeps_its_way() {
    let rig = Rig::new();
    let (entry, open, path) = rig.make("f", PASS);
    assert_eq!(path, DataPath::Cached);
    rig.write(open, 0, &[1; LARGE]).unwrap();
    let (other, attr, path) = rig.find_way(entry.handle, PASS);
    assert!(path == DataPath::Cached && !attr.volatile);
    rig.close(open);
    assert_eq!(rig.find_way(entry.handle, PASS_READ).2, DataPath::Cached);
    rig.close(other);
    rig.call(Request::Release { open: OpenId(other.0 + 1) }).unwrap();
    assert!(matches!(rig.find_way(entry.handle, PASS).2, DataPath::Passthrough(_)));
}

#[test]
fn the_mark_stands_before_a_write_open_is_answered() {
    let rig = Rig::new();
    let file = rig.large("f");
    assert!(!rig.is_marked(file.handle));
    let (open, attr, _) = rig.find_way(file.handle, PASS);
    assert!(rig.is_marked(file.handle) && attr.volatile);
    assert_eq!(Attr { volatile: false, ..attr }, file.attr, "an open changes nothing");
    rig.close(open);
    rig.opens.release_closed().unwrap();
    assert_eq!(rig.attr(file.handle).unwrap(), file.attr);
}

/// What the kernel writes without us is in every attribute that leaves the server, and nothing that
/// looks changes it.
#[test]
fn every_attribute_shows_what_is_written_without_a_request() {
    let Some(rig) = rig_that_tells() else { return };
    let file = rig.large("f");
    let (open, program) = rig.pass(file.handle, PASS);
    program.write_all_at(&[2; 50], LARGE as u64).unwrap();
    let seen = rig.look("f").unwrap().attr;
    assert_eq!(seen.size, LARGE as u64 + 50);
    assert!(seen.volatile && seen.mtime > file.attr.mtime && seen.ctime > file.attr.ctime);
    assert_eq!(rig.attr(file.handle).unwrap(), seen);
    let list = Request::List {
        dir: ROOT,
        after: Cookie::START,
        behind: None,
        entries: 9,
        attributes: true,
    };
    let Ok(Reply::Listed { entries, .. }) = rig.call(list) else { panic!("a listing") };
    assert_eq!(entries[0].entry.unwrap().attr, seen);
    let link = Request::Link { node: file.handle, dir: ROOT, name: name("g") };
    let Ok(Reply::Entry(linked)) = rig.call(link) else { panic!("an entry") };
    assert_eq!(
        (linked.attr.size, linked.attr.mtime, linked.attr.volatile),
        (seen.size, seen.mtime, true)
    );
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let changed = rig.set(file.handle, None, mode).unwrap();
    assert!(changed.volatile && changed.size == seen.size && changed.ctime > seen.ctime);
    assert_eq!(rig.find_way(file.handle, READ).1, changed);

    program.set_len(10).unwrap();
    assert_eq!(rig.attr(file.handle).unwrap().size, 10);
    drop(program);
    let shown = rig.attr(file.handle).unwrap();
    rig.close(open);
    rig.opens.release_closed().unwrap();
    let closed = rig.attr(file.handle).unwrap();
    assert_eq!(closed, Attr { volatile: false, ..shown }, "closing changes nothing");
    assert!(rig.is_marked(file.handle), "its bytes are not safe");
    assert_eq!(rig.killed().attr(file.handle).unwrap(), closed, "its row knows");
    rig.opens.write_back().unwrap();
    assert!(!rig.is_marked(file.handle));
}

#[test]
fn requests_act_on_the_content_file_beside_those_who_need_none() {
    let rig = Rig::new();
    let file = rig.large("f");
    let (open, mut program) = rig.pass(file.handle, PASS);
    let other = rig.open(file.handle, BOTH).unwrap();
    program.write_all_at(b"outside", 0).unwrap();
    assert_eq!(rig.read(other, 0, 7).unwrap(), b"outside");
    let end = LARGE as u64;
    assert_eq!(rig.write(other, end, b"request").unwrap(), (7, end + 7));
    program.seek(SeekFrom::Start(end)).unwrap();
    let mut bytes = Vec::new();
    program.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"request");
    program.write_all_at(b"more", end + 7).unwrap();
    assert_eq!(rig.read(other, end, 100).unwrap(), b"requestmore");

    let appends = rig.open(file.handle, OpenFlags { append: true, ..BOTH }).unwrap();
    program.set_len(end).unwrap();
    assert_eq!(rig.write(appends, 0, b"end").unwrap(), (3, end + 3));
    assert_eq!(rig.set(file.handle, None, truncated(5)).unwrap().size, 5);
    assert_eq!(program.metadata().unwrap().len(), 5);
    program.set_len(3 * end).unwrap();
    let (from, mode) = (open, AllocateMode::Reserve { keep_size: false });
    rig.call(Request::Allocate { open, offset: 0, length: 4 * end, mode }).unwrap();
    assert_eq!(program.metadata().unwrap().len(), 4 * end);
    let to = rig.make("g", BOTH).1;
    program.write_all_at(&[7; 10], 5 * end).unwrap();
    let copy = Request::CopyRange { from, from_offset: 5 * end, to, to_offset: 0, length: 100 };
    let Ok(Reply::Written { bytes, .. }) = rig.call(copy) else { panic!("a copy") };
    assert_eq!(bytes, 10);
    assert_eq!(rig.read(to, 0, 100).unwrap(), [7; 10]);
}

#[test]
fn times_that_are_set_win_while_somebody_writes_without_a_request() {
    let Some(rig) = rig_that_tells() else { return };
    let file = rig.large("f");
    let (open, program) = rig.pass(file.handle, PASS);
    program.write_all_at(b"x", 0).unwrap();
    let set = SetAttr { mtime: Some(SetTime::To(at(77))), ..SetAttr::default() };
    let shown = rig.set(file.handle, Some(open), set).unwrap();
    assert_eq!((shown.mtime, shown.volatile), (at(77), true));
    assert_eq!(rig.killed().attr(file.handle).unwrap().mtime, at(77));
    assert_eq!(rig.attr(file.handle).unwrap().mtime, at(77));
    rig.call(Request::Flush { open }).unwrap();
    assert_eq!(rig.attr(file.handle).unwrap().mtime, at(77), "a commit sets no time");
    program.write_all_at(b"y", 0).unwrap();
    let now = rig.attr(file.handle).unwrap();
    assert!(now.mtime > at(77) && now.ctime > shown.ctime);
    rig.set(file.handle, None, set).unwrap();
    drop(program);
    rig.close(open);
    rig.opens.release_closed().unwrap();
    assert_eq!(rig.attr(file.handle).unwrap().mtime, at(77));
    assert_eq!(rig.killed().attr(file.handle).unwrap().mtime, at(77));
}

#[test]
fn flush_commits_what_the_content_file_says() {
    let rig = Rig::new();
    let file = rig.large("f");
    let (open, program) = rig.pass(file.handle, PASS);
    let batches = rig.durability.done();
    rig.call(Request::Flush { open }).unwrap();
    assert_eq!(rig.durability.done(), batches, "nothing was written");
    program.write_all_at(&[3; 10], LARGE as u64).unwrap();
    rig.call(Request::Flush { open }).unwrap();
    assert_eq!(rig.durability.done(), batches + 1);
    let row = rig.shard.stored(file.handle).unwrap().rnode;
    assert_eq!(row.size, LARGE as u64 + 10);
    assert_eq!(row.mtime, rig.attr(file.handle).unwrap().mtime);
}

/// A file that is fsynced keeps its mark: it may be written again without a request before it is
/// closed, and then nobody has synced that.
#[test]
fn an_fsync_is_no_promise_for_what_is_written_behind_it() {
    let Some(rig) = rig_that_tells() else { return };
    let file = rig.large("f");
    let (open, program) = rig.pass(file.handle, PASS);
    program.write_all_at(b"first", 0).unwrap();
    let told = rig.begin(Request::Fsync { open, data_only: false }, &[]);
    while told.try_recv().is_err() {
        rig.commit.run().unwrap();
    }
    assert_eq!(
        rig.crashed(0).attr(file.handle).unwrap().mtime,
        rig.attr(file.handle).unwrap().mtime
    );
    program.write_all_at(b"again", 0).unwrap();
    drop(program);
    rig.close(open);
    rig.opens.release_closed().unwrap();
    assert_eq!(rig.opens.pending_closes(), 0);
    assert!(rig.is_marked(file.handle));
    assert_eq!(rig.opens.write_back().unwrap(), 1);
}

/// A mapping outlives every open: the file stays open here until it ends, and what was written
/// through it is neither lost nor shown late.
#[test]
fn a_file_that_is_mapped_lingers_until_it_is_not() {
    let Some(rig) = rig_that_tells() else { return };
    let file = rig.large("f");
    let (open, program) = rig.pass(file.handle, PASS);
    let mut mapped = MappedPage::new(&program).unwrap();
    drop(program);
    rig.close(open);
    assert_eq!((rig.opens.count(), rig.opens.pending_closes()), (0, 1));
    assert_eq!(rig.opens.release_closed().unwrap(), 0);
    assert!(rig.shard.is_held(file.handle.ino) && rig.is_marked(file.handle));
    assert_eq!(rig.opens.write_back().unwrap(), 0);
    let before = rig.attr(file.handle).unwrap();
    assert!(before.volatile);
    mapped.write(9);
    assert!(rig.attr(file.handle).unwrap().mtime > before.mtime);
    assert_eq!(rig.find_way(file.handle, READ).2, DataPath::Direct);
    assert_eq!(rig.bytes("f")[0], 9);

    // Somebody opens and closes it meanwhile.
    let (open, program) = rig.pass(file.handle, PASS);
    drop(program);
    rig.close(open);
    assert_eq!((rig.opens.pending_closes(), rig.opens.release_closed().unwrap()), (1, 0));
    rig.unlink("f");
    assert_eq!(rig.reaped.load(Ordering::Relaxed), 0);
    drop(mapped);
    assert_eq!(rig.opens.release_closed().unwrap(), 1);
    assert_eq!(rig.opens.pending_closes(), 0);
}

/// Whoever waits until nobody uses a volume looks again and again: at no moment is a file that
/// somebody may still write counted nowhere.
#[test]
fn a_file_that_lingers_is_counted_at_every_moment() {
    let Some(rig) = rig_that_tells() else { return };
    let (open, program) = rig.pass(rig.large("f").handle, PASS);
    let mapped = MappedPage::new(&program).unwrap();
    drop(program);
    let ended = AtomicBool::new(false);
    thread::scope(|threads| {
        let watched = threads.spawn(|| {
            let mut wrong = None;
            while !ended.load(Ordering::Acquire) {
                let counts = rig.opens.counts();
                if counts.opens + counts.closed != 1 {
                    wrong = Some(counts);
                }
            }
            wrong
        });
        let closed = [Request::Flush { open }, Request::Release { open }].map(|end| rig.call(end));
        let gone: Vec<_> = (0..1000).map(|_| rig.opens.release_closed()).collect();
        ended.store(true, Ordering::Release);
        assert_eq!(watched.join().unwrap(), None);
        assert!(closed.iter().all(Result::is_ok) && gone.iter().all(|gone| *gone == Ok(0)));
    });
    assert_eq!(rig.opens.counts(), Counts { opens: 0, closed: 1 });
    drop(mapped);
    assert_eq!(rig.opens.release_closed(), Ok(1));
    assert_eq!(rig.opens.counts(), Counts { opens: 0, closed: 0 });
}

/// Whoever maps many files and closes them takes nobody else's descriptors.
#[test]
fn files_that_linger_need_no_descriptor() {
    let Some(rig) = rig_that_tells() else { return };
    let few = Options { descriptors: 2, ..Options::default() };
    let rig = rig.served(few);
    let linger = |number: u8| {
        let file = rig.large(&format!("f{number}"));
        let (open, program) = rig.pass(file.handle, PASS);
        let mapped = MappedPage::new(&program).unwrap();
        drop(program);
        rig.close(open);
        (file, mapped)
    };
    let mut files: Vec<_> = (0..5).map(linger).collect();
    assert_eq!((rig.opens.pending_closes(), rig.descriptors.taken()), (5, 0));
    for (number, (file, mapped)) in (1_u8..).zip(&mut files) {
        let before = rig.attr(file.handle).unwrap();
        assert!(before.volatile);
        mapped.write(number);
        let after = rig.attr(file.handle).unwrap();
        assert!(after.mtime > before.mtime && after.ctime > before.ctime);
        let set = SetAttr { mtime: Some(SetTime::To(at(77))), ..SetAttr::default() };
        assert_eq!(rig.set(file.handle, None, set).unwrap().mtime, at(77));
        assert_eq!(rig.attr(file.handle).unwrap().mtime, at(77));
        assert_eq!(rig.opens.release_closed().unwrap(), 0);
    }
    assert_eq!(rig.bytes("f3")[0], 4, "by a request");
    let (open, program) = rig.pass(files[1].0.handle, PASS);
    program.write_all_at(&[9; 10], LARGE as u64).unwrap();
    assert_eq!(rig.attr(files[1].0.handle).unwrap().size, LARGE as u64 + 10);
    drop(program);
    rig.close(open);
    assert_eq!(rig.opens.release_closed().unwrap(), 0);
    assert_eq!((rig.opens.pending_closes(), rig.descriptors.taken()), (5, 0));

    // The next life has as few.
    let again = rig.served(few);
    assert_eq!((again.opens.pending_closes(), again.descriptors.taken()), (5, 0));
    let shown: Vec<_> = files.iter().map(|(file, _)| again.attr(file.handle).unwrap()).collect();
    let inos: Vec<_> = files.iter().map(|(file, _)| file.handle).collect();
    drop(files);
    assert_eq!((again.opens.release_closed().unwrap(), again.opens.pending_closes()), (5, 0));
    for (handle, attr) in inos.into_iter().zip(shown) {
        assert_eq!(again.attr(handle).unwrap(), Attr { volatile: false, ..attr });
    }
    assert_eq!(again.opens.write_back().unwrap(), 5);
}

/// Files of an earlier life that are still written are more than this one has descriptors: it comes
/// up, and its clean end leaves their marks.
#[test]
fn files_that_are_still_written_are_taken_over_without_a_descriptor() {
    let Some(rig) = rig_that_tells() else { return };
    let files = ["one", "two"].map(|text| rig.large(text));
    let programs = files.map(|file| rig.pass(file.handle, PASS).1);
    let again = rig.served(Options { descriptors: 1, ..Options::default() });
    assert_eq!((again.opens.pending_closes(), again.descriptors.taken()), (2, 0));
    let written = again.opens.externally_written();
    again.opens.commit_all().unwrap();
    again.opens.sync_writing().unwrap();
    recovery::forget_marks(&again.shard, &again.table, &written).unwrap();
    assert!(files.iter().all(|file| again.is_marked(file.handle)));
    drop(programs);
    assert_eq!(again.opens.release_closed().unwrap(), 2);
}

/// A daemon was killed; programs of its mount have descriptors and mappings still.
#[test]
fn a_descriptor_outlives_the_server_and_what_it_writes_is_found() {
    let Some(rig) = rig_that_tells() else { return };
    let (file, mapped) = (rig.large("f"), rig.large("m"));
    let (_, program) = rig.pass(file.handle, PASS);
    let mut mapping = MappedPage::new(&rig.pass(mapped.handle, PASS).1).unwrap();
    program.write_all_at(&[2; 10], LARGE as u64).unwrap();
    let again = rig.killed();
    assert_eq!((again.recovered.files, again.opens.pending_closes()), (2, 2));
    let seen = again.attr(file.handle).unwrap();
    assert_eq!((seen.size, seen.volatile), (LARGE as u64 + 10, true));
    program.write_all_at(&[2; 10], LARGE as u64 + 10).unwrap();
    assert_eq!(again.attr(file.handle).unwrap().size, LARGE as u64 + 20);
    mapping.write(8);
    assert_eq!(again.bytes("m")[0], 8);
    assert_eq!(again.opens.release_closed().unwrap(), 0);
    assert_eq!(again.opens.write_back().unwrap(), 0, "the marks stay");
    drop(program);
    drop(mapping);
    assert_eq!(again.opens.release_closed().unwrap(), 2);
    let closed = again.attr(file.handle).unwrap();
    assert_eq!((closed.size, closed.volatile), (LARGE as u64 + 20, false));
    assert_eq!(again.opens.write_back().unwrap(), 2);
    assert_eq!(again.killed().attr(file.handle).unwrap(), closed);
}

/// Of a file in whose place the medium has something else it tells nothing.
#[test]
fn a_file_of_which_nobody_can_tell_counts_as_written() {
    let Some(rig) = rig_that_tells() else { return };
    let file = rig.large("f");
    let (open, program) = rig.pass(file.handle, PASS);
    let path = std::fs::read_link(format!("/proc/self/fd/{}", program.as_raw_fd())).unwrap();
    rig.close(open);
    assert_eq!(rig.opens.pending_closes(), 1);
    drop(program);
    std::fs::remove_file(&path).unwrap();
    assert_eq!((rig.opens.release_closed().unwrap(), rig.opens.pending_closes()), (0, 1));
    std::fs::create_dir(&path).unwrap();
    let again = rig.killed();
    assert_eq!((again.opens.release_closed().unwrap(), again.opens.pending_closes()), (0, 1));
    assert!(again.opens.write_back().unwrap() == 0 && again.is_marked(file.handle));
}

#[test]
fn a_directory_of_large_files_hands_out_new_ones() {
    let rig = Rig::new();
    assert_eq!(rig.make("small", PASS).2, DataPath::Cached);
    let (entry, open, _) = rig.make("large", PASS);
    rig.set(entry.handle, Some(open), truncated(1 << 30)).unwrap();
    rig.close(open);
    let (entry, open, path) = rig.make("next", PASS);
    let DataPath::Passthrough(backing) = path else { panic!("{path:?}") };
    assert!(rig.is_marked(entry.handle) && entry.attr.volatile);
    assert_eq!(rig.look("next").unwrap(), entry);
    reopened(&backing, PASS).write_all_at(b"bytes", 0).unwrap();
    assert_eq!(rig.killed().bytes("next"), b"bytes");
    rig.close(open);
    assert_eq!(rig.make("library", BOTH).2, DataPath::Cached);
    assert!(!rig.is_marked(rig.look("library").unwrap().handle));
}

#[test]
fn always_makes_a_content_file_for_whoever_makes_a_file() {
    let rig = Rig::with(served(Passthrough::Always));
    for (text, flags) in [("mount", PASS), ("library", BOTH)] {
        let (entry, open, path) = rig.make(text, flags);
        assert_eq!(matches!(path, DataPath::Passthrough(_)), flags.passthrough);
        assert!(rig.is_marked(entry.handle));
        rig.write(open, 0, b"few").unwrap();
        rig.close(open);
        assert_eq!(rig.inline_row(entry.handle), None);
        assert_eq!(rig.killed().bytes(text), b"few");
    }
}

/// Who writes synchronously syncs the bytes alone: the mark must be safe before.
#[test]
fn a_synchronous_open_is_answered_when_the_mark_is_safe() {
    let rig = Rig::new();
    let file = rig.large("f");
    rig.commit.run().unwrap();
    let flags = OpenFlags { sync: true, ..PASS };
    let told = rig.begin(Request::Open { node: file.handle, flags }, &[]);
    let mut answered = None;
    while answered.is_none() {
        rig.commit.run().unwrap();
        answered = told.try_recv().ok();
    }
    assert!(matches!(answered, Some(Ok(Reply::Opened { path: DataPath::Passthrough(_), .. }))));
    assert!(rig.crashed(0).is_marked(file.handle));
}

#[test]
fn privileges_end_when_somebody_without_any_is_handed_a_file() {
    let rig = Rig::new();
    let file = rig.large("f");
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    rig.set(file.handle, None, mode(0o6755)).unwrap();
    let (open, attr, _) = rig.find_way(file.handle, PASS_READ);
    assert_eq!(attr.mode, 0o6755);
    rig.close(open);
    assert_eq!(rig.find_way(file.handle, PASS).1.mode, 0o755);
}

#[test]
fn reads_by_descriptor_count_as_others_do() {
    let rig = Rig::new();
    let past = at(1000);
    let entry = rig.large("f");
    let set = |atime: Time| SetAttr { atime: Some(SetTime::To(atime)), ..SetAttr::default() };
    rig.set(entry.handle, None, SetAttr { mtime: Some(SetTime::To(past)), ..set(past) }).unwrap();
    let shows = |flags| {
        let (open, mut program) = rig.pass(entry.handle, flags);
        assert_eq!(program.read(&mut [0; 10]).unwrap(), 10);
        let shown = rig.attr(entry.handle).unwrap();
        rig.close(open);
        assert_eq!(rig.attr(entry.handle).unwrap(), shown);
        rig.shard.commit_reads().unwrap();
        assert_eq!(rig.killed().attr(entry.handle).unwrap().atime, shown.atime);
        shown.atime
    };
    let counted = OpenFlags { no_atime: false, ..PASS_READ };
    assert_eq!(shows(PASS_READ), past, "this reader leaves no trace");
    let read = shows(counted);
    if read == past {
        return println!("skipped: not here: the medium keeps no times of reads");
    }
    assert_eq!(shows(counted), read, "nothing has changed since");
    rig.set(entry.handle, None, SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    let again = shows(counted);
    assert!(again > read, "the medium knows nothing of a change of mode");

    let (open, mut program) = rig.pass(entry.handle, counted);
    rig.set(entry.handle, None, set(at(2000))).unwrap();
    assert_eq!(rig.attr(entry.handle).unwrap().atime, at(2000), "a time that is set wins");
    assert_eq!(program.read(&mut [0; 10]).unwrap(), 10);
    assert!(rig.attr(entry.handle).unwrap().atime > again);
    rig.close(open);
}

#[test]
fn what_cannot_be_handed_out_changes_nothing() {
    let rig = Rig::with(Options { descriptors: 0, ..served(Passthrough::Always) });
    let (entry, open, path) = rig.make("f", PASS);
    assert_eq!(path, DataPath::Cached, "it begins in memory");
    rig.write(open, 0, b"few").unwrap();
    rig.close(open);
    assert_eq!(rig.bytes("f"), b"few");
    assert!(!rig.is_marked(entry.handle));
    let rig = Rig::new();
    let file = rig.large("f");
    let few = rig.served(Options { descriptors: 0, ..Options::default() });
    assert_eq!(
        few.call(Request::Open { node: file.handle, flags: PASS }).err(),
        Some(Code::TooManyOpen)
    );
    assert_eq!((few.opens.count(), few.shard.is_held(file.handle.ino)), (0, false));
}

/// Three batches: the file, its content file with the mark, and its size and times when it is
/// closed.
#[test]
fn a_file_that_is_handed_out_writes_few_batches() {
    let Some(rig) = rig_that_tells() else { return };
    let rig = rig.served(served(Passthrough::Always));
    rig.file("warm", b"");
    let before = rig.durability.done();
    let (_, open, path) = rig.make("f", PASS);
    let DataPath::Passthrough(backing) = path else { panic!("{path:?}") };
    assert_eq!(rig.durability.done(), before + 2);
    reopened(&backing, PASS).write_all_at(&[1; 4096], 0).unwrap();
    rig.call(Request::Flush { open }).unwrap();
    assert_eq!(rig.durability.done(), before + 3);
    rig.call(Request::Release { open }).unwrap();
    assert_eq!((rig.opens.pending_closes(), rig.durability.done()), (0, before + 3));
}

/// What a clean end leaves of a file that somebody still writes: its row is right as of now, and
/// its mark stays for the next start.
#[test]
fn an_end_keeps_the_marks_of_those_that_are_still_written() {
    let Some(rig) = rig_that_tells() else { return };
    let (held, left) = (rig.large("held"), rig.large("left"));
    let mut mapped = MappedPage::new(&rig.pass(held.handle, PASS).1).unwrap();
    let (_, program) = rig.pass(left.handle, PASS);
    program.write_all_at(b"never closed by a request", 0).unwrap();
    drop(program);
    mapped.write(5);
    let end = || {
        let written = rig.opens.externally_written();
        rig.opens.commit_all().unwrap();
        rig.opens.sync_writing().unwrap();
        recovery::forget_marks(&rig.shard, &rig.table, &written).unwrap();
        (rig.is_marked(held.handle), rig.is_marked(left.handle))
    };
    assert_eq!(end(), (true, false));
    let row = rig.shard.stored(held.handle).unwrap().rnode;
    assert_eq!(row.mtime, rig.attr(held.handle).unwrap().mtime);
    assert!(rig.shard.stored(left.handle).unwrap().rnode.mtime > left.attr.mtime);
    drop(mapped);
    assert_eq!(end(), (false, false));
}

/// The medium stamps by a coarse clock, which may show a time before one that was given to the
/// file already; and keeps no times far away.
#[test]
fn times_of_a_changing_file_go_back_only_where_somebody_wants_it() {
    let Some(rig) = rig_that_tells() else { return };
    let large = rig.large("f");
    let (open, file) = rig.pass(large.handle, PASS);
    let set = |time| SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
    let change = |set| match rig.call(Request::SetAttr { node: large.handle, open: None, set }) {
        Ok(Reply::Attr(attr)) => attr,
        other => panic!("{other:?}"),
    };
    let far = Time { seconds: 1 << 40, nanos: 5 };
    assert_eq!(change(set(far)).mtime, far, "as given, whatever the medium can keep");
    assert_eq!(rig.look("f").unwrap().attr.mtime, far);
    file.write_all_at(b"x", 0).unwrap();
    assert!(rig.look("f").unwrap().attr.mtime < far, "written now");
    for by_request in [true, false] {
        // Ahead of the medium's clock by less than a tick.
        let ahead = change(set(pelago_store::clock::now().next())).mtime;
        match by_request {
            true => drop(rig.write(open, 0, b"y").unwrap()),
            false => file.write_all_at(b"z", 0).unwrap(),
        }
        assert!(rig.look("f").unwrap().attr.mtime > ahead);
    }
    rig.close(open);
}

/// A program closes a file that it has not written, and sets its time while the kernel still gives
/// the open back. Found by a crash round: the time of before came back with the next start.
#[test]
fn a_time_that_is_set_while_an_unwritten_file_is_closed_stays() {
    let Some(rig) = rig_that_tells() else { return };
    let file = rig.large("f");
    let reader = rig.open(file.handle, PASS_READ).unwrap();
    let (open, program) = rig.pass(file.handle, PASS);
    drop(program);
    rig.call(Request::Release { open }).unwrap();
    rig.opens.release_closed().unwrap();
    let set = SetAttr { mtime: Some(SetTime::To(at(77))), ..SetAttr::default() };
    assert_eq!(rig.set(file.handle, None, set).unwrap().mtime, at(77));
    assert_eq!(rig.attr(file.handle).unwrap().mtime, at(77));
    rig.call(Request::Release { open: reader }).unwrap();
    assert_eq!(rig.killed().attr(file.handle).unwrap().mtime, at(77));
}
