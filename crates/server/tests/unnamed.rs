//! Unnamed files (`O_TMPFILE`): their attributes, their first name, and what a crash leaves of
//! them.

use pelago_server::Options;
use pelago_store::key::{self, RowKind};
use pelago_store::table::TableRead;
use pelago_wire::{
    Attr, Code, Context, Entry, Handle, NewMode, OpenFlags, RenameFlags, Reply, Request, SessionId,
    SetAttr, XattrFlags,
};

use crate::harness::requests::next_open;
use crate::harness::rig::{Rig, by_hand, name};

const ROOT: Handle = Handle::ROOT;
const LARGE: usize = 100_000;
const MODE: NewMode = NewMode { mode: 0o666, umask: 0o022 };
const FLAGS: OpenFlags = OpenFlags::READ_WRITE;

impl Rig {
    fn link(&self, node: Handle, dir: Handle, text: &str) -> Result<Entry, Code> {
        match self.call(Request::Link { node, dir, name: name(text) })? {
            Reply::Entry(entry) => Ok(entry),
            other => panic!("{other:?}"),
        }
    }

    fn attr(&self, node: Handle) -> Result<Attr, Code> {
        match self.call(Request::GetAttr { node })? {
            Reply::Attr(attr) => Ok(attr),
            other => panic!("{other:?}"),
        }
    }

    fn xattr(&self, node: Handle, text: &str) -> Result<Vec<u8>, Code> {
        match self.call(Request::GetXattr { node, name: text.into() })? {
            Reply::Bytes(bytes) => Ok(bytes),
            other => panic!("{other:?}"),
        }
    }

    /// How many rows of this kind there are.
    fn rows(&self, kind: RowKind) -> usize {
        let range = key::all(kind);
        let mut rows = 0;
        let count = &mut |_: &[u8], _: &[u8]| {
            rows += 1;
            std::ops::ControlFlow::Continue(())
        };
        self.table.scan(&range.from, &range.to, count).unwrap();
        rows
    }

    /// Waits until there are so many rows in `inodes`, that of the root among them: files without a
    /// name are buried.
    fn until_inodes(&self, count: usize) {
        crate::harness::until("it is buried", || self.rows(RowKind::Inode) == count);
    }
}

fn created(reply: Reply) -> Entry {
    match reply {
        Reply::Created { entry, .. } => entry,
        other => panic!("{other:?}"),
    }
}

fn with_workers() -> Options {
    Options { workers: true, ..by_hand() }
}

/// Small, and in a content file.
const SIZES: [usize; 3] = [0, 100, LARGE];

#[test]
fn nothing_shows_it_and_it_goes_with_its_last_open() {
    for size in SIZES {
        let rig = Rig::new(Options { workers: true, ..Options::default() });
        let dir = rig.make_dir(ROOT, "dir").unwrap().handle;
        let before = (rig.tree(), rig.attr(dir).unwrap());
        let (entry, open) = rig.create_unnamed(dir).unwrap();
        assert_eq!((entry.attr.links, entry.attr.mode), (0, 0o644));
        rig.write(open, 0, &vec![7; size]).unwrap();
        let again = rig.open(entry.handle).unwrap();
        rig.close(open).unwrap();
        let attr = rig.attr(entry.handle).unwrap();
        assert_eq!((attr.links, attr.size), (0, size as u64));
        assert_eq!(rig.read(entry.handle, size as u64).unwrap(), vec![7; size]);
        assert_eq!((rig.tree(), rig.attr(dir).unwrap()), before);
        rig.close(again).unwrap();
        rig.until_inodes(2);
        assert_eq!(rig.attr(entry.handle).err(), Some(Code::Stale));
        if size == LARGE {
            crate::harness::until("nothing is left of it", || rig.rows(RowKind::Orphan) == 0);
            rig.server.stop().unwrap();
            assert!(rig.check().findings.is_empty());
        }
    }
}

/// Owner, group, mode and lists are those of a file that gets its name at once.
#[test]
fn it_follows_the_rules_of_the_directory() {
    let rig = Rig::new(by_hand());
    let dir = rig.make_dir(ROOT, "dir").unwrap().handle;
    let set = SetAttr { mode: Some(0o2775), gid: Some(77), ..SetAttr::default() };
    rig.call(Request::SetAttr { node: dir, open: None, set }).unwrap();
    let entries = [(1_u16, 6_u16, u32::MAX), (2, 7, 30), (4, 5, u32::MAX), (16, 7, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries.into_iter().chain([(32, 0, u32::MAX)]) {
        list.extend([tag.to_le_bytes(), rights.to_le_bytes()].concat());
        list.extend(id.to_le_bytes());
    }
    let default = b"system.posix_acl_default".to_vec();
    for listed in [false, true] {
        if listed {
            let name = default.clone();
            let value = list.clone();
            let flags = XattrFlags::Any;
            let request = Request::SetXattr { node: dir, name, value, flags, kill_setgid: false };
            rig.call(request).unwrap();
        }
        let text = name(&format!("file {listed}"));
        let create =
            Request::Create { dir, name: text, mode: MODE, flags: FLAGS, open: next_open() };
        let named = created(rig.call(create).unwrap());
        let (unnamed, _) = rig.create_unnamed(dir).unwrap();
        let seen = |entry: &Entry| {
            let Attr { mode, uid, gid, kind, size, .. } = rig.attr(entry.handle).unwrap();
            let access = rig.xattr(entry.handle, "system.posix_acl_access");
            (mode, uid, gid, kind, size, access)
        };
        assert_eq!(seen(&unnamed), seen(&named));
        assert_eq!((seen(&unnamed).2, seen(&unnamed).5.is_ok()), (77, listed));
    }
    let file = rig.put(ROOT, "file", b"").unwrap().handle;
    assert_eq!(rig.create_unnamed(file).err(), Some(Code::NotDirectory));
}

#[test]
fn a_link_gives_it_its_first_name_and_it_is_a_file_as_any() {
    for size in SIZES {
        let rig = Rig::new(with_workers());
        let (entry, open) = rig.create_unnamed(ROOT).unwrap();
        rig.write(open, 0, &vec![7; size]).unwrap();
        let before = (rig.attr(ROOT).unwrap(), rig.attr(entry.handle).unwrap());
        rig.put(ROOT, "taken", b"").unwrap();
        assert_eq!(rig.link(entry.handle, ROOT, "taken").err(), Some(Code::Exists));
        assert_eq!(rig.attr(entry.handle).unwrap(), before.1, "a failure changes nothing");
        rig.unlink(ROOT, "taken").unwrap();
        let before = (rig.attr(ROOT).unwrap(), before.1);
        let linked = rig.link(entry.handle, ROOT, "first").unwrap();
        assert_eq!((linked.attr.ino, linked.attr.links), (entry.attr.ino, 1));
        assert!(linked.attr.ctime > before.1.ctime && linked.attr.mtime == before.1.mtime);
        let root = rig.attr(ROOT).unwrap();
        assert!(root.size == before.0.size + 1 && root.mtime > before.0.mtime);
        assert_eq!(rig.rows(RowKind::Orphan), 0, "{size} bytes");
        rig.write(open, size as u64, b"more").unwrap();
        rig.close(open).unwrap();
        let bytes = [vec![7; size], b"more".to_vec()].concat();
        assert_eq!(rig.read(linked.handle, size as u64 + 4).unwrap(), bytes);
        assert_eq!(rig.lookup(ROOT, "first").unwrap().attr.size, size as u64 + 4);
        rig.link(entry.handle, ROOT, "second").unwrap();
        let from = name("first");
        let to = name("moved");
        let flags = RenameFlags::Replace;
        rig.call(Request::Rename { from_dir: ROOT, from, to_dir: ROOT, to, flags }).unwrap();
        rig.unlink(ROOT, "second").unwrap();
        assert!(rig.tree().keys().eq(["/moved"]));
        rig.expect_whole("named");
        let rig = rig.restarted(false, with_workers());
        assert_eq!(rig.tree()["/moved"].bytes.0, bytes);
        rig.unlink(ROOT, "moved").unwrap();
        rig.until_inodes(1);
        rig.server.stop().unwrap();
        rig.expect_whole("unlinked");
    }
}

/// As with `link` on any file system: what was deleted stays so.
#[test]
fn what_has_lost_its_last_name_gets_no_other() {
    let rig = Rig::new(by_hand());
    let (entry, open) = rig.create_unnamed(ROOT).unwrap();
    rig.link(entry.handle, ROOT, "first").unwrap();
    rig.unlink(ROOT, "first").unwrap();
    assert_eq!(rig.link(entry.handle, ROOT, "again").err(), Some(Code::NotFound));
    let (other, held) = rig.create(ROOT, "other").unwrap();
    rig.unlink(ROOT, "other").unwrap();
    assert_eq!(rig.link(other.handle, ROOT, "again").err(), Some(Code::NotFound));
    // One that is not open is gone, even if the worker has not removed its rows yet.
    let (closed, last) = rig.create_unnamed(ROOT).unwrap();
    rig.close(last).unwrap();
    assert_eq!(rig.link(closed.handle, ROOT, "again").err(), Some(Code::NotFound));
    assert!(rig.tree().is_empty());
    rig.close(open).unwrap();
    rig.close(held).unwrap();
}

/// After a crash behind any batch, the file has its name and its bytes, or nothing is left of it.
#[test]
fn a_crash_leaves_it_named_and_whole_or_not_at_all() {
    for size in SIZES {
        let rig = Rig::new(by_hand());
        rig.make_dir(ROOT, "dir").unwrap();
        rig.sync();
        let (entry, open) = rig.create_unnamed(ROOT).unwrap();
        rig.write(open, 0, &vec![7; size]).unwrap();
        rig.link(entry.handle, ROOT, "file").unwrap();
        rig.create_unnamed(ROOT).unwrap();
        for keep in 0..=rig.table.unsafe_batches() {
            let when = format!("{size} bytes, {keep} batches kept");
            rig.crashed(keep, by_hand()).expect_whole(&when);
            let left = rig.crashed(keep, with_workers());
            let found = left.lookup(ROOT, "file").ok();
            assert!(found.is_some() || keep < rig.table.unsafe_batches());
            if let Some(found) = found {
                assert_eq!((found.attr.ino, found.attr.links), (entry.attr.ino, 1));
                assert_eq!(left.tree()["/file"].bytes.0, vec![7; size], "{when}");
            }
            left.until_inodes(2 + usize::from(found.is_some()));
            left.server.stop().unwrap();
            left.expect_whole(&when);
        }
    }
}

/// What was synced before it got its name is there with it, and the name once it was synced too.
#[test]
fn what_was_synced_stays() {
    for size in SIZES {
        let rig = Rig::new(by_hand());
        let (entry, open) = rig.create_unnamed(ROOT).unwrap();
        rig.write(open, 0, &vec![7; size]).unwrap();
        rig.fsync(open).unwrap();
        let left = rig.crashed(0, by_hand());
        left.expect_whole("without a name");
        assert_eq!(left.rows(RowKind::Orphan), 1);
        rig.link(entry.handle, ROOT, "file").unwrap();
        rig.sync();
        rig.write(open, 0, &vec![8; size]).unwrap();
        let left = rig.crashed(0, by_hand());
        left.expect_whole("with a name");
        let seen = &left.tree()["/file"];
        assert_eq!((seen.size, seen.links, left.rows(RowKind::Orphan)), (size as u64, 1, 0));
    }
}

/// A session that repeats the link is answered as before; it makes no files without a name yet.
#[test]
fn a_link_that_is_repeated_is_answered_as_before() {
    let session = |mutation| Context { session: SessionId(7), mutation, ..Context::direct(10, 20) };
    let rig = Rig::new(by_hand());
    let (entry, _open) = rig.create_unnamed(ROOT).unwrap();
    let link = Request::Link { node: entry.handle, dir: ROOT, name: name("file") };
    let first = rig.call_as(&session(1), link.clone(), &[]).unwrap();
    let Reply::Entry(linked) = first else { panic!("{first:?}") };
    assert_eq!(linked.attr.links, 1);
    let batches = rig.table.unsafe_batches();
    let again = rig.call_as(&session(1), link.clone(), &[]).unwrap();
    let Reply::Entry(again) = again else { panic!("{again:?}") };
    assert_eq!((again.handle, again.attr.ctime), (linked.handle, linked.attr.ctime));
    assert_eq!(rig.table.unsafe_batches(), batches, "nothing was written");
    assert_eq!(rig.call_as(&session(2), link, &[]).err(), Some(Code::Exists));
}
