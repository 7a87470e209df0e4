//! Files that are open by passthrough, through the service. The tests open the content file again
//! through the descriptor, as the kernel does for a program.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pelago_data::{self as data, Counts, Passthrough};
use pelago_store::os::MappedPage;
use pelago_wire::{
    AllocateMode, Attr, Code, Cookie, DataPath, Entry, Handle, OpenFlags, OpenId, Reply, Request,
    SetAttr, SetTime, Time,
};

use crate::recovery;
use crate::testing::{BOTH, Options, READ, ROOT, Rig, at, name, next_open, reopened};

/// To read and write, for a mount that can use descriptors.
const PASS: OpenFlags = OpenFlags { passthrough: true, ..BOTH };
const PASS_READ: OpenFlags = OpenFlags { passthrough: true, ..READ };
const LARGE: usize = 100_000;

fn served(passthrough: Passthrough) -> Options {
    let open = data::Options { passthrough, ..Default::default() };
    Options { open, ..Options::default() }
}

/// Returns a rig, or `None` if the disk cannot tell whether a process writes a file.
fn rig_with_leases() -> Option<Rig> {
    pelago_store::os::handle_lease_signals().unwrap();
    let rig = Rig::new();
    let can_detect = rig.content.can_detect_writers().unwrap_or(false);
    if !can_detect {
        println!("skipped: not here: the temporary folder's file system has no leases");
    }
    can_detect.then_some(rig)
}

impl Rig {
    /// Opens a file by passthrough; returns the content file too.
    fn pass(&self, node: Handle, flags: OpenFlags) -> (OpenId, File) {
        match self.open_path(node, flags) {
            (open, _, DataPath::Passthrough(backing)) => (open, reopened(&backing, flags)),
            other => panic!("{other:?}"),
        }
    }

    fn make(&self, text: &str, flags: OpenFlags) -> (Entry, OpenId, DataPath) {
        let open = next_open();
        let request = Request::Create { dir: ROOT, name: name(text), mode: MODE, flags, open };
        match self.call(request).unwrap() {
            Reply::Created { entry, path } => (entry, open, path),
            other => panic!("{other:?}"),
        }
    }

    /// A large file that was closed while a program has it mapped.
    fn mapped(&self, text: &str) -> (Entry, MappedPage) {
        let file = self.large(text);
        let (open, program) = self.pass(file.handle, PASS);
        let mapped = MappedPage::new(&program).unwrap();
        drop(program);
        self.close(open);
        (file, mapped)
    }

    /// Five files as [`Rig::mapped`] makes them.
    fn all_mapped(&self) -> Vec<(Entry, MappedPage)> {
        (0..5).map(|number| self.mapped(&format!("f{number}"))).collect()
    }

    /// A large file with all attributes as its row has them, and nothing unsafe.
    fn large(&self, text: &str) -> Entry {
        let (_, open) = self.create(text, BOTH);
        self.write(open, 0, &[1; LARGE]).unwrap();
        // A disk that is just allocating them counts other blocks for a moment, and the commit of
        // the close would keep that number.
        self.opens.sync_writing().unwrap();
        self.close(open);
        self.opens.write_back().unwrap();
        self.lookup(text).unwrap()
    }
}

fn few_descriptors() -> Options {
    Options { descriptors: 2, ..Options::default() }
}

const MODE: pelago_wire::NewMode = pelago_wire::NewMode::exactly(0o644);

fn truncated(size: u64) -> SetAttr {
    SetAttr { size: Some(size), ..SetAttr::default() }
}

#[test]
fn large_files_are_opened_by_passthrough_and_small_ones_by_requests() {
    let rig = Rig::new();
    let small = rig.file("small", b"few");
    let large = rig.large("large");
    assert_eq!(rig.open_path(small.handle, PASS).2, DataPath::Cached);
    let (first, attr, path) = rig.open_path(large.handle, PASS_READ);
    assert!(!attr.volatile && attr == large.attr);
    let DataPath::Passthrough(backing) = path else { panic!("{path:?}") };
    assert!(
        (&File::from(backing.as_fd().try_clone_to_owned().unwrap())).write(b"x").is_err(),
        "the descriptor itself is open to read only"
    );
    assert!(!rig.has_writing_row(large.handle), "a reader changes nothing");
    let (_, _, again) = rig.open_path(large.handle, PASS_READ);
    assert_eq!(again, DataPath::Passthrough(backing.clone()), "while one is open: the same");
    assert_eq!(rig.open_path(large.handle, READ).2, DataPath::Cached, "the library");
    rig.close(first);
    let (_, _, again) = rig.open_path(large.handle, PASS);
    assert_eq!(again, DataPath::Passthrough(backing));
    assert_eq!(rig.open_path(large.handle, READ).2, DataPath::Direct, "a program may write it");
    let never = rig.restarted(served(Passthrough::Never));
    assert_eq!(never.open_path(large.handle, PASS).2, DataPath::Cached);
}

/// Like any file of its directory.
#[test]
fn a_file_without_a_name_follows_the_sizes_of_its_directory() {
    let Some(rig) = rig_with_leases() else { return };
    let make = || {
        let open = next_open();
        match rig.call(Request::CreateUnnamed { dir: ROOT, mode: MODE, flags: PASS, open }) {
            Ok(Reply::Created { entry, path }) => (entry, open, path),
            other => panic!("{other:?}"),
        }
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
        (rig.lookup("named").unwrap().attr.links, rig.bytes("named")),
        (1, b"bytesBYTES".to_vec())
    );
}

/// The kernel accepts one path for a file at a time.
#[test]
fn a_file_that_grows_large_while_it_is_open_keeps_its_path() {
    let rig = Rig::new();
    let (entry, open, path) = rig.make("f", PASS);
    assert_eq!(path, DataPath::Cached);
    rig.write(open, 0, &[1; LARGE]).unwrap();
    let (other, attr, path) = rig.open_path(entry.handle, PASS);
    assert!(path == DataPath::Cached && !attr.volatile);
    rig.close(open);
    let (reader, _, path) = rig.open_path(entry.handle, PASS_READ);
    assert_eq!(path, DataPath::Cached);
    rig.close(other);
    rig.call(Request::Release { open: reader }).unwrap();
    assert!(matches!(rig.open_path(entry.handle, PASS).2, DataPath::Passthrough(_)));
}

#[test]
fn the_writing_row_exists_before_an_open_to_write_returns() {
    let rig = Rig::new();
    let file = rig.large("f");
    assert!(!rig.has_writing_row(file.handle));
    let (open, attr, _) = rig.open_path(file.handle, PASS);
    assert!(rig.has_writing_row(file.handle) && attr.volatile);
    assert_eq!(Attr { volatile: false, ..attr }, file.attr, "an open changes nothing");
    rig.close(open);
    rig.opens.release_closed().unwrap();
    assert_eq!(rig.attr(file.handle).unwrap(), file.attr);
}

/// Each reply has the size and times of the content file, and reading them changes nothing.
#[test]
fn every_attribute_shows_what_is_written_without_a_request() {
    let Some(rig) = rig_with_leases() else { return };
    let file = rig.large("f");
    let (_, program) = rig.pass(file.handle, PASS);
    program.write_all_at(&[2; 50], LARGE as u64).unwrap();
    let seen = rig.lookup("f").unwrap().attr;
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
    assert_eq!(rig.open_path(file.handle, READ).1, changed);
    program.set_len(10).unwrap();
    assert_eq!(rig.attr(file.handle).unwrap().size, 10);
}

#[test]
fn the_attributes_that_were_shown_last_outlive_the_close() {
    let Some(rig) = rig_with_leases() else { return };
    let file = rig.large("f");
    let (open, program) = rig.pass(file.handle, PASS);
    program.write_all_at(&[2; 50], LARGE as u64).unwrap();
    drop(program);
    let shown = rig.attr(file.handle).unwrap();
    rig.close(open);
    rig.opens.release_closed().unwrap();
    let closed = rig.attr(file.handle).unwrap();
    assert_eq!(closed, Attr { volatile: false, ..shown }, "closing changes nothing");
    assert!(rig.has_writing_row(file.handle), "its bytes are not safe");
    assert_eq!(rig.after_kill().attr(file.handle).unwrap(), closed, "its row knows");
    rig.opens.write_back().unwrap();
    assert!(!rig.has_writing_row(file.handle));
}

#[test]
fn requests_and_external_writers_share_the_content_file() {
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

    program.set_len(end).unwrap();
    assert_eq!(rig.append(other, b"end").unwrap(), (3, end + 3));
    assert_eq!(rig.set(file.handle, None, truncated(5)).unwrap().size, 5);
    assert_eq!(program.metadata().unwrap().len(), 5);
    program.set_len(3 * end).unwrap();
    let from = open;
    let mode = AllocateMode::Reserve { keep_size: false };
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
fn times_that_are_set_win_while_a_program_writes_externally() {
    let Some(rig) = rig_with_leases() else { return };
    let file = rig.large("f");
    let (open, program) = rig.pass(file.handle, PASS);
    program.write_all_at(b"x", 0).unwrap();
    let set = SetAttr { mtime: Some(SetTime::To(at(77))), ..SetAttr::default() };
    let shown = rig.set(file.handle, Some(open), set).unwrap();
    assert_eq!((shown.mtime, shown.volatile), (at(77), true));
    assert_eq!(rig.after_kill().attr(file.handle).unwrap().mtime, at(77));
    assert_eq!(rig.attr(file.handle).unwrap().mtime, at(77));
    rig.call(Request::Flush { open, owner: None }).unwrap();
    assert_eq!(rig.attr(file.handle).unwrap().mtime, at(77), "a commit sets no time");
    program.write_all_at(b"y", 0).unwrap();
    let now = rig.attr(file.handle).unwrap();
    assert!(now.mtime > at(77) && now.ctime > shown.ctime);
    rig.set(file.handle, None, set).unwrap();
    drop(program);
    rig.close(open);
    rig.opens.release_closed().unwrap();
    assert_eq!(rig.attr(file.handle).unwrap().mtime, at(77));
    assert_eq!(rig.after_kill().attr(file.handle).unwrap().mtime, at(77));
}

#[test]
fn flush_commits_what_the_content_file_says() {
    let rig = Rig::new();
    let file = rig.large("f");
    let (open, program) = rig.pass(file.handle, PASS);
    let batches = rig.durability.done();
    rig.call(Request::Flush { open, owner: None }).unwrap();
    assert_eq!(rig.durability.done(), batches, "nothing was written");
    program.write_all_at(&[3; 10], LARGE as u64).unwrap();
    rig.call(Request::Flush { open, owner: None }).unwrap();
    assert_eq!(rig.durability.done(), batches + 1);
    let row = rig.shard.stored_node(file.handle).unwrap().rnode;
    assert_eq!(row.size, LARGE as u64 + 10);
    assert_eq!(row.mtime, rig.attr(file.handle).unwrap().mtime);
}

/// Its `writing` row stays: it may be written again without a request before it is closed.
#[test]
fn an_fsync_promises_nothing_about_later_external_writes() {
    let Some(rig) = rig_with_leases() else { return };
    let file = rig.large("f");
    let (open, program) = rig.pass(file.handle, PASS);
    program.write_all_at(b"first", 0).unwrap();
    let reply = rig.begin(Request::Fsync { open, data_only: false }, &[]);
    while reply.try_recv().is_err() {
        rig.commit.run().unwrap();
    }
    assert_eq!(
        rig.after_crash(0).attr(file.handle).unwrap().mtime,
        rig.attr(file.handle).unwrap().mtime
    );
    program.write_all_at(b"again", 0).unwrap();
    drop(program);
    rig.close(open);
    rig.opens.release_closed().unwrap();
    assert_eq!(rig.opens.pending_closes(), 0);
    assert!(rig.has_writing_row(file.handle));
    assert_eq!(rig.opens.write_back().unwrap(), 1);
}

/// A mapping outlives every open.
#[test]
fn the_close_of_a_mapped_file_is_pending_until_it_is_unmapped() {
    let Some(rig) = rig_with_leases() else { return };
    let (file, mapped) = rig.mapped("f");
    assert_eq!((rig.opens.count(), rig.opens.pending_closes()), (0, 1));
    assert_eq!(rig.opens.release_closed(), Ok(0));
    assert!(rig.shard.is_open(file.handle.ino) && rig.has_writing_row(file.handle));
    assert_eq!(rig.opens.write_back(), Ok(0));
    // It may be opened and closed meanwhile.
    let (open, program) = rig.pass(file.handle, PASS);
    drop(program);
    rig.close(open);
    assert_eq!((rig.opens.pending_closes(), rig.opens.release_closed()), (1, Ok(0)));
    drop(mapped);
    assert_eq!((rig.opens.release_closed(), rig.opens.pending_closes()), (Ok(1), 0));
}

#[test]
fn bytes_that_are_written_through_a_mapping_are_seen_at_once() {
    let Some(rig) = rig_with_leases() else { return };
    let (file, mut mapped) = rig.mapped("f");
    let before = rig.attr(file.handle).unwrap();
    assert!(before.volatile);
    mapped.write(9);
    assert!(rig.attr(file.handle).unwrap().mtime > before.mtime);
    assert_eq!(rig.open_path(file.handle, READ).2, DataPath::Direct);
    assert_eq!(rig.bytes("f")[0], 9);
}

#[test]
fn a_mapped_file_without_a_name_is_an_orphan_only_after_it_is_unmapped() {
    let Some(rig) = rig_with_leases() else { return };
    let (_, mapped) = rig.mapped("f");
    rig.unlink("f");
    assert_eq!((rig.opens.release_closed(), rig.reaped.load(Ordering::Relaxed)), (Ok(0), 0));
    drop(mapped);
    assert_eq!((rig.opens.release_closed(), rig.reaped.load(Ordering::Relaxed)), (Ok(1), 1));
}

/// `pelago down` waits until a volume is unused: a file that a program may still write must be
/// counted at each moment.
#[test]
fn a_file_whose_close_is_pending_is_counted_at_every_moment() {
    let Some(rig) = rig_with_leases() else { return };
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
        let closed = [Request::Flush { open, owner: None }, Request::Release { open }]
            .map(|end| rig.call(end));
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

/// A program that maps and closes many files must not use up the descriptors.
#[test]
fn pending_closes_need_no_descriptor() {
    let Some(rig) = rig_with_leases() else { return };
    let rig = rig.restarted(few_descriptors());
    let files = rig.all_mapped();
    assert_eq!((rig.opens.pending_closes(), rig.descriptors.taken()), (5, 0));
    assert_eq!(rig.opens.release_closed(), Ok(0));
    let (open, program) = rig.pass(files[1].0.handle, PASS);
    program.write_all_at(&[9; 10], LARGE as u64).unwrap();
    assert_eq!(rig.attr(files[1].0.handle).unwrap().size, LARGE as u64 + 10);
    drop(program);
    rig.close(open);
    assert_eq!(rig.opens.release_closed(), Ok(0));
    assert_eq!((rig.opens.pending_closes(), rig.descriptors.taken()), (5, 0));
}

#[test]
fn files_whose_close_is_pending_are_read_and_measured_with_few_descriptors() {
    let Some(rig) = rig_with_leases() else { return };
    let rig = rig.restarted(few_descriptors());
    let mut files = rig.all_mapped();
    for (number, (file, mapped)) in (1_u8..).zip(&mut files) {
        let before = rig.attr(file.handle).unwrap();
        assert!(before.volatile);
        mapped.write(number);
        let after = rig.attr(file.handle).unwrap();
        assert!(after.mtime > before.mtime && after.ctime > before.ctime);
        let set = SetAttr { mtime: Some(SetTime::To(at(77))), ..SetAttr::default() };
        assert_eq!(rig.set(file.handle, None, set).unwrap().mtime, at(77));
        assert_eq!(rig.attr(file.handle).unwrap().mtime, at(77));
        assert_eq!(rig.opens.release_closed(), Ok(0));
    }
    assert_eq!(rig.bytes("f3")[0], 4, "by a request");
}

#[test]
fn the_next_run_resumes_pending_closes_with_few_descriptors() {
    let Some(rig) = rig_with_leases() else { return };
    let files = rig.all_mapped();
    let again = rig.restarted(few_descriptors());
    assert_eq!((again.opens.pending_closes(), again.descriptors.taken()), (5, 0));
    let handles: Vec<_> = files.iter().map(|(file, _)| file.handle).collect();
    let shown: Vec<_> = handles.iter().map(|handle| again.attr(*handle).unwrap()).collect();
    drop(files);
    assert_eq!((again.opens.release_closed(), again.opens.pending_closes()), (Ok(5), 0));
    for (handle, attr) in handles.into_iter().zip(shown) {
        assert_eq!(again.attr(handle).unwrap(), Attr { volatile: false, ..attr });
    }
    assert_eq!(again.opens.write_back(), Ok(5));
}

/// More files of an earlier run are still written than this run has descriptors. It starts, and its
/// clean end keeps their `writing` rows.
#[test]
fn files_that_are_still_written_are_resumed_without_a_descriptor() {
    let Some(rig) = rig_with_leases() else { return };
    let files = ["one", "two"].map(|text| rig.large(text));
    let programs = files.map(|file| rig.pass(file.handle, PASS).1);
    let again = rig.restarted(Options { descriptors: 1, ..Options::default() });
    assert_eq!((again.opens.pending_closes(), again.descriptors.taken()), (2, 0));
    let written = again.opens.externally_written();
    again.opens.commit_all().unwrap();
    again.opens.sync_writing().unwrap();
    recovery::forget_writing_rows(&again.shard, &again.table, &written).unwrap();
    assert!(files.iter().all(|file| again.has_writing_row(file.handle)));
    drop(programs);
    assert_eq!(again.opens.release_closed().unwrap(), 2);
}

/// After a kill, programs of the mount still have descriptors and mappings.
#[test]
fn a_descriptor_outlives_the_server_and_what_it_writes_is_found() {
    let Some(rig) = rig_with_leases() else { return };
    let file = rig.large("f");
    let mapped = rig.large("m");
    let (_, program) = rig.pass(file.handle, PASS);
    let mut mapping = MappedPage::new(&rig.pass(mapped.handle, PASS).1).unwrap();
    program.write_all_at(&[2; 10], LARGE as u64).unwrap();
    let again = rig.after_kill();
    assert_eq!((again.recovered.files, again.opens.pending_closes()), (2, 2));
    let seen = again.attr(file.handle).unwrap();
    assert_eq!((seen.size, seen.volatile), (LARGE as u64 + 10, true));
    program.write_all_at(&[2; 10], LARGE as u64 + 10).unwrap();
    assert_eq!(again.attr(file.handle).unwrap().size, LARGE as u64 + 20);
    mapping.write(8);
    assert_eq!(again.bytes("m")[0], 8);
    assert_eq!(again.opens.release_closed().unwrap(), 0);
    assert_eq!(again.opens.write_back().unwrap(), 0, "the `writing` rows stay");
    drop(program);
    drop(mapping);
    assert_eq!(again.opens.release_closed().unwrap(), 2);
    let closed = again.attr(file.handle).unwrap();
    assert_eq!((closed.size, closed.volatile), (LARGE as u64 + 20, false));
    assert_eq!(again.opens.write_back().unwrap(), 2);
    assert_eq!(again.after_kill().attr(file.handle).unwrap(), closed);
}

/// A file system cannot tell it of a path where something else is.
#[test]
fn a_file_counts_as_written_if_its_writers_cannot_be_found_out() {
    let Some(rig) = rig_with_leases() else { return };
    let file = rig.large("f");
    let (open, program) = rig.pass(file.handle, PASS);
    let path = std::fs::read_link(format!("/proc/self/fd/{}", program.as_raw_fd())).unwrap();
    rig.close(open);
    assert_eq!(rig.opens.pending_closes(), 1);
    drop(program);
    std::fs::remove_file(&path).unwrap();
    assert_eq!((rig.opens.release_closed().unwrap(), rig.opens.pending_closes()), (0, 1));
    std::fs::create_dir(&path).unwrap();
    let again = rig.after_kill();
    assert_eq!((again.opens.release_closed().unwrap(), again.opens.pending_closes()), (0, 1));
    assert!(again.opens.write_back().unwrap() == 0 && again.has_writing_row(file.handle));
}

#[test]
fn a_new_file_in_a_directory_of_large_files_is_opened_by_passthrough() {
    let rig = Rig::new();
    assert_eq!(rig.make("small", PASS).2, DataPath::Cached);
    let (entry, open, _) = rig.make("large", PASS);
    rig.set(entry.handle, Some(open), truncated(1 << 30)).unwrap();
    rig.close(open);
    let (entry, open, path) = rig.make("next", PASS);
    let DataPath::Passthrough(backing) = path else { panic!("{path:?}") };
    assert!(rig.has_writing_row(entry.handle) && entry.attr.volatile);
    assert_eq!(rig.lookup("next").unwrap(), entry);
    reopened(&backing, PASS).write_all_at(b"bytes", 0).unwrap();
    assert_eq!(rig.after_kill().bytes("next"), b"bytes");
    rig.close(open);
    assert_eq!(rig.make("library", BOTH).2, DataPath::Cached);
    assert!(!rig.has_writing_row(rig.lookup("library").unwrap().handle));
}

#[test]
fn with_passthrough_always_each_new_file_has_a_content_file() {
    let rig = Rig::with(served(Passthrough::Always));
    for (text, flags) in [("mount", PASS), ("library", BOTH)] {
        let (entry, open, path) = rig.make(text, flags);
        assert_eq!(matches!(path, DataPath::Passthrough(_)), flags.passthrough);
        assert!(rig.has_writing_row(entry.handle));
        rig.write(open, 0, b"few").unwrap();
        rig.close(open);
        assert_eq!(rig.inline_row(entry.handle), None);
        assert_eq!(rig.after_kill().bytes(text), b"few");
    }
}

/// The kernel syncs only the bytes: the `writing` row must be safe before.
#[test]
fn a_synchronous_open_returns_when_the_writing_row_is_safe() {
    let rig = Rig::new();
    let file = rig.large("f");
    rig.commit.run().unwrap();
    let flags = OpenFlags { sync: true, ..PASS };
    let reply = rig.begin(Request::Open { node: file.handle, flags, open: next_open() }, &[]);
    let mut answered = None;
    while answered.is_none() {
        rig.commit.run().unwrap();
        answered = reply.try_recv().ok();
    }
    assert!(matches!(answered, Some(Ok(Reply::Opened { path: DataPath::Passthrough(_), .. }))));
    assert!(rig.after_crash(0).has_writing_row(file.handle));
}

#[test]
fn a_passthrough_open_to_write_by_an_unprivileged_caller_clears_setuid() {
    let rig = Rig::new();
    let file = rig.large("f");
    let mode = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    rig.set(file.handle, None, mode(0o6755)).unwrap();
    let (open, attr, _) = rig.open_path(file.handle, PASS_READ);
    assert_eq!(attr.mode, 0o6755);
    rig.close(open);
    assert_eq!(rig.open_path(file.handle, PASS).1.mode, 0o755);
}

#[test]
fn reads_by_descriptor_change_the_access_time_like_others() {
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
        rig.shard.commit_read_times().unwrap();
        assert_eq!(rig.after_kill().attr(entry.handle).unwrap().atime, shown.atime);
        shown.atime
    };
    let counted = OpenFlags { no_atime: false, ..PASS_READ };
    assert_eq!(shows(PASS_READ), past, "this reader leaves no trace");
    let read = shows(counted);
    if read == past {
        return println!("skipped: not here: the disk keeps no access times");
    }
    assert_eq!(shows(counted), read, "nothing has changed since");
    rig.set(entry.handle, None, SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    let again = shows(counted);
    assert!(again > read, "the disk does not know of a change of mode");

    let (open, mut program) = rig.pass(entry.handle, counted);
    rig.set(entry.handle, None, set(at(2000))).unwrap();
    assert_eq!(rig.attr(entry.handle).unwrap().atime, at(2000), "a time that is set wins");
    assert_eq!(program.read(&mut [0; 10]).unwrap(), 10);
    assert!(rig.attr(entry.handle).unwrap().atime > again);
    rig.close(open);
}

#[test]
fn without_descriptors_a_new_file_begins_in_memory_and_an_open_fails() {
    let rig = Rig::with(Options { descriptors: 0, ..served(Passthrough::Always) });
    let (entry, open, path) = rig.make("f", PASS);
    assert_eq!(path, DataPath::Cached, "it begins in memory");
    rig.write(open, 0, b"few").unwrap();
    rig.close(open);
    assert_eq!(rig.bytes("f"), b"few");
    assert!(!rig.has_writing_row(entry.handle));
    let rig = Rig::new();
    let file = rig.large("f");
    let few = rig.restarted(Options { descriptors: 0, ..Options::default() });
    assert_eq!(
        few.call(Request::Open { node: file.handle, flags: PASS, open: next_open() }).err(),
        Some(Code::TooManyOpen)
    );
    assert_eq!((few.opens.count(), few.shard.is_open(file.handle.ino)), (0, false));
}

/// The file, its content file with the `writing` row, and its size and times when it is closed.
#[test]
fn a_new_file_by_passthrough_writes_three_batches() {
    let Some(rig) = rig_with_leases() else { return };
    let rig = rig.restarted(served(Passthrough::Always));
    rig.file("warm", b"");
    let before = rig.durability.done();
    let (_, open, path) = rig.make("f", PASS);
    let DataPath::Passthrough(backing) = path else { panic!("{path:?}") };
    assert_eq!(rig.durability.done(), before + 2);
    reopened(&backing, PASS).write_all_at(&[1; 4096], 0).unwrap();
    rig.call(Request::Flush { open, owner: None }).unwrap();
    assert_eq!(rig.durability.done(), before + 3);
    rig.call(Request::Release { open }).unwrap();
    assert_eq!((rig.opens.pending_closes(), rig.durability.done()), (0, before + 3));
}

/// The row of a file that a program still writes is right as of now, and its `writing` row stays
/// for the next start.
#[test]
fn a_clean_end_keeps_the_writing_rows_of_files_that_are_still_written() {
    let Some(rig) = rig_with_leases() else { return };
    let held = rig.large("held");
    let left = rig.large("left");
    let mut mapped = MappedPage::new(&rig.pass(held.handle, PASS).1).unwrap();
    let (_, program) = rig.pass(left.handle, PASS);
    program.write_all_at(b"never closed by a request", 0).unwrap();
    drop(program);
    mapped.write(5);
    let end = || {
        let written = rig.opens.externally_written();
        rig.opens.commit_all().unwrap();
        rig.opens.sync_writing().unwrap();
        recovery::forget_writing_rows(&rig.shard, &rig.table, &written).unwrap();
        (rig.has_writing_row(held.handle), rig.has_writing_row(left.handle))
    };
    assert_eq!(end(), (true, false));
    let row = rig.shard.stored_node(held.handle).unwrap().rnode;
    assert_eq!(row.mtime, rig.attr(held.handle).unwrap().mtime);
    assert!(rig.shard.stored_node(left.handle).unwrap().rnode.mtime > left.attr.mtime);
    drop(mapped);
    assert_eq!(end(), (false, false));
}

/// The disk's clock is coarse, and may be behind a time that was given to the file already; and the
/// disk may not be able to keep times far away.
#[test]
fn times_of_a_file_with_external_writers_go_back_only_if_they_are_set() {
    let Some(rig) = rig_with_leases() else { return };
    let large = rig.large("f");
    let (open, file) = rig.pass(large.handle, PASS);
    let set = |time| SetAttr { mtime: Some(SetTime::To(time)), ..SetAttr::default() };
    let change = |set| match rig.call(Request::SetAttr { node: large.handle, open: None, set }) {
        Ok(Reply::Attr(attr)) => attr,
        other => panic!("{other:?}"),
    };
    let far = Time { seconds: 1 << 40, nanos: 5 };
    assert_eq!(change(set(far)).mtime, far, "as given, whatever the disk can keep");
    assert_eq!(rig.lookup("f").unwrap().attr.mtime, far);
    file.write_all_at(b"x", 0).unwrap();
    assert!(rig.lookup("f").unwrap().attr.mtime < far, "written now");
    for by_request in [true, false] {
        // Ahead of the disk's clock by less than a tick.
        let ahead = change(set(pelago_store::clock::now().next())).mtime;
        match by_request {
            true => drop(rig.write(open, 0, b"y").unwrap()),
            false => file.write_all_at(b"z", 0).unwrap(),
        }
        assert!(rig.lookup("f").unwrap().attr.mtime > ahead);
    }
    rig.close(open);
}

/// A program closes a file that it has not written, and sets its time while the kernel still
/// releases the open. Found by a crash round: the next start showed the earlier time.
#[test]
fn a_time_that_is_set_while_an_unwritten_file_is_closed_stays() {
    let Some(rig) = rig_with_leases() else { return };
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
    assert_eq!(rig.after_kill().attr(file.handle).unwrap().mtime, at(77));
}
