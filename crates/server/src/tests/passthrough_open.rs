//! Opens by passthrough while the disk or the table fails: the open fails or falls back to
//! requests, and leaves no descriptor open.

use pelago_data::{self as data, Counts, Passthrough};
use pelago_lossfs::Operation;
use pelago_store::table;
use pelago_wire::{Code, DataPath, Entry, NewMode, OpenFlags, OpenId, Reply, Request, SetAttr};
use rustix::io::Errno;

use crate::testing::{BOTH, Failing, Options, ROOT, Rig, name, next_open};

const PASS: OpenFlags = OpenFlags { passthrough: true, ..BOTH };
const SYNC: OpenFlags = OpenFlags { sync: true, ..PASS };
const NONE: Counts = Counts { opens: 0, closed: 0 };
const LARGE: usize = 100_000;

fn always() -> Options {
    let open = data::Options { passthrough: Passthrough::Always, ..Default::default() };
    Options { open, ..Options::default() }
}

/// Creates a file with or without a name.
fn make(rig: &Rig, named: bool, flags: OpenFlags) -> Result<(Entry, OpenId, DataPath), Code> {
    let dir = ROOT;
    let mode = NewMode::exactly(0o644);
    let open = next_open();
    let request = match named {
        true => Request::Create { dir, name: name("f"), mode, flags, open },
        false => Request::CreateUnnamed { dir, mode, flags, open },
    };
    match rig.call(request)? {
        Reply::Created { entry, path } => Ok((entry, open, path)),
        other => panic!("{other:?}"),
    }
}

/// It is read and written by requests, and gets its content file when it needs one.
#[test]
fn a_file_that_gets_no_content_file_begins_in_memory() {
    for (named, table) in [(true, true), (true, false), (false, true), (false, false)] {
        let Some(failing) = Failing::with(always()) else { return };
        let rig = &failing.rig;
        // The first one reserves numbers.
        rig.file("first", b"");
        match table {
            // Behind the batch that makes the file.
            true => rig.table.fail_at(1, table::Error::NoSpace),
            false => failing.refuse(Operation::Create, 0, 1, Errno::IO),
        }
        let (entry, open, path) = make(rig, named, PASS).unwrap();
        assert_eq!(path, DataPath::Cached, "named: {named}, table: {table}");
        assert!(!rig.has_writing_row(entry.handle));
        // After a full table new data is refused.
        let bytes = if table { Vec::new() } else { vec![7; LARGE] };
        if !table {
            rig.write(open, 0, &bytes).unwrap();
        }
        assert_eq!(rig.read(open, 0, 1 << 20).unwrap(), bytes);
        assert_eq!(rig.opens.counts(), Counts { opens: 1, closed: 0 });
        rig.close(open);
        if named {
            assert_eq!(rig.bytes("f"), bytes);
        }
        assert_eq!((rig.opens.counts(), rig.shard.is_open(entry.handle.ino)), (NONE, false));
    }
}

/// A program that writes synchronously by a descriptor relies on the name of the content file.
#[test]
fn an_open_for_synchronous_writes_fails_if_the_folder_cannot_be_synced() {
    let Some(failing) = Failing::with(Options::default()) else { return };
    let rig = &failing.rig;
    if !rig.content.can_detect_writers().unwrap_or(false) {
        return println!("skipped: not here: the disk cannot tell whether a process writes a file");
    }
    let file = rig.file("f", &[1; LARGE]);
    let open = || rig.call(Request::Open { node: file.handle, flags: SYNC, open: next_open() });
    failing.refuse(Operation::SyncNames, 0, u64::MAX, Errno::IO);
    assert_eq!(open().err(), Some(Code::Io));
    assert_eq!(rig.opens.counts().opens, 0);
    rig.opens.release_closed().unwrap();
    assert_eq!((rig.opens.counts(), rig.shard.is_open(file.handle.ino)), (NONE, false));
    assert_eq!(rig.attr(file.handle).unwrap().size, LARGE as u64);
    failing.heal();
    // Its name may be lost: only another content file has a safe one.
    let (cached, _, path) = rig.open_path(file.handle, PASS);
    assert!(matches!(path, DataPath::Cached));
    assert_eq!(rig.call(Request::Fsync { open: cached, data_only: false }).err(), Some(Code::Io));
    let empty = SetAttr { size: Some(0), ..SetAttr::default() };
    rig.set(file.handle, Some(cached), empty).unwrap();
    rig.write(cached, 0, &[2; LARGE]).unwrap();
    rig.close(cached);
    let reply = rig.begin(Request::Open { node: file.handle, flags: SYNC, open: next_open() }, &[]);
    let reply = loop {
        rig.commit.run().unwrap();
        if let Ok(reply) = reply.try_recv() {
            break reply;
        }
    };
    let Ok(Reply::Opened { path: DataPath::Passthrough(_), .. }) = reply else {
        panic!("{reply:?}");
    };
}

#[test]
fn an_open_to_write_fails_if_the_writing_row_cannot_be_written() {
    let rig = Rig::new();
    let file = rig.file("f", &[1; LARGE]);
    rig.opens.write_back().unwrap();
    rig.table.fail_at(0, table::Error::NoSpace);
    let refused = rig.call(Request::Open { node: file.handle, flags: PASS, open: next_open() });
    assert_eq!(refused.err(), Some(Code::NoSpace));
    assert_eq!((rig.opens.counts(), rig.shard.is_open(file.handle.ino)), (NONE, false));
    assert!(!rig.has_writing_row(file.handle) && !rig.attr(file.handle).unwrap().volatile);
    // While new data is refused no open to write is by passthrough.
    rig.space.refresh().unwrap();
    let (open, _, path) = rig.open_path(file.handle, PASS);
    assert!(matches!(path, DataPath::Passthrough(_)) && rig.has_writing_row(file.handle));
    rig.call(Request::Release { open }).unwrap();
}

#[test]
fn an_open_of_a_file_whose_content_is_missing_fails() {
    let rig = Rig::new();
    let file = rig.file("f", &[1; LARGE]);
    let row = rig.shard.stored_node(file.handle).unwrap().rnode;
    rig.content.remove(file.handle.ino, row.generation.unwrap()).unwrap();
    let refused = rig.call(Request::Open { node: file.handle, flags: PASS, open: next_open() });
    assert_eq!(refused.err(), Some(Code::Corrupt));
    assert_eq!((rig.opens.counts(), rig.shard.is_open(file.handle.ino)), (NONE, false));
}
