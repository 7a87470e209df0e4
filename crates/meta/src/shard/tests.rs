//! The shard over the fake table: what operations answer, and what stays after a crash or a failed
//! write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use pelago_store::hash::NameHasher;
use pelago_store::key;
use pelago_store::rows::{Inline as InlineRow, Orphan as OrphanRow, Rnode, RnodeFlags, Row, Stamp};
use pelago_store::table::fake::FakeTable;
use pelago_store::table::{self, Batch, Table, TableRead};
use pelago_wire::{
    Code, Context, Cookie, Entry, FileKind, Generation, Handle, InodeId, Name, NameHash, NewMode,
    RenameFlags, SetAttr, SetTime, Time, XattrFlags,
};

use super::{BytesChange, Inline, Live, Move, NewNode, Page, Parts, Scanned, SetXattr, Shard};
use crate::directory::{CHANGES, Known};
use crate::durability::Durability;
use crate::name_filter::Filter;

mod acl;
mod climb;
mod equal;
mod outside;
mod work;

const CALLER: Context = Context::direct(10, 20);

struct Rig {
    table: FakeTable,
    shard: Shard,
}

impl Rig {
    fn new() -> Self {
        let table = FakeTable::new();
        let mut batch = Batch::new();
        let stamp = Stamp { epoch: 1, sequence: 0 };
        batch.put(key::inode(InodeId::ROOT), root().encode(stamp));
        table.write(&batch).unwrap();
        table.persist().unwrap();
        Self::over(table, 1, at(100))
    }

    /// A life of the shard over what is there.
    fn over(table: FakeTable, epoch: u32, started: Time) -> Self {
        let shard = Shard::new(Parts {
            table: Arc::new(table.clone()),
            hasher: NameHasher::new(7),
            durability: Arc::new(Durability::default()),
            epoch,
            next_id: 1000 * u64::from(epoch),
            cache_bytes: 1 << 20,
            started,
        });
        Self { table, shard }
    }

    /// What is there after a crash of the machine that kept the first `keep` unsafe batches.
    fn crashed(&self, keep: usize) -> Self {
        Self::over(self.table.fork_crashed(keep), 2, at(500))
    }

    fn unnamed(&self, seconds: i64) -> Entry {
        let new = NewNode::file(NewMode::exactly(0o644));
        self.shard.create_unnamed(&CALLER, ROOT, new, at(seconds)).unwrap()
    }

    fn file(&self, dir: Handle, text: &str, seconds: i64) -> Entry {
        self.make(dir, text, NewNode::file(NewMode::exactly(0o644)), seconds)
    }

    fn dir(&self, dir: Handle, text: &str, seconds: i64) -> Entry {
        self.make(dir, text, NewNode::directory(NewMode::exactly(0o755)), seconds)
    }

    fn make(&self, dir: Handle, text: &str, new: NewNode, seconds: i64) -> Entry {
        self.shard.create(&CALLER, dir, &name(text), new, false, at(seconds)).unwrap()
    }

    fn look(&self, dir: Handle, text: &str) -> Result<Entry, Code> {
        self.shard.lookup(dir, &name(text)).map_err(|error| error.code)
    }

    fn rename(
        &self,
        (from_dir, from): (Handle, &str),
        (to_dir, to): (Handle, &str),
        flags: RenameFlags,
    ) -> Result<super::rename::Renamed, Code> {
        let (from, to) = (name(from), name(to));
        let wanted = Move { from_dir, from: &from, to_dir, to: &to };
        self.shard.rename(&CALLER, wanted, flags, at(300)).map_err(|error| error.code)
    }

    fn names(&self, dir: Handle) -> Vec<String> {
        let page =
            Page { dir, after: Cookie::START, behind: None, entries: 1000, attributes: true };
        let (entries, end) = self.shard.list(page).unwrap();
        assert!(end);
        let mut names: Vec<_> = entries.iter().map(|entry| entry.name.to_string()).collect();
        names.sort();
        names
    }
}

const ROOT: Handle = Handle::ROOT;

fn root() -> Rnode {
    Rnode {
        ino: InodeId::ROOT,
        kind: FileKind::Directory,
        mode: 0o755,
        flags: RnodeFlags::default(),
        links: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        generation: None,
        size: 0,
        blocks: 0,
        version: 1,
        quota_root: InodeId::ROOT,
        atime: at(1),
        mtime: at(1),
        ctime: at(1),
        btime: at(1),
        deleted_at: Time::default(),
        target: Vec::new(),
    }
}

fn xattr<'a>(name: &'a [u8], value: &'a [u8], flags: XattrFlags) -> SetXattr<'a> {
    SetXattr { name, value, flags, kill_setgid: false }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn at(seconds: i64) -> Time {
    Time { seconds, nanos: 0 }
}

#[test]
fn what_is_made_is_found_and_counted() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110);
    let file = rig.file(dir.handle, "f", 120);
    assert_eq!(rig.look(dir.handle, "f"), Ok(file));
    assert_eq!(rig.look(dir.handle, "g"), Err(Code::NotFound));
    assert_eq!(rig.look(file.handle, "x"), Err(Code::NotDirectory));
    assert_eq!((file.attr.uid, file.attr.gid, file.attr.links), (10, 20, 1));
    let shown = rig.shard.attr(dir.handle).unwrap();
    assert_eq!((shown.size, shown.links, shown.mtime), (1, 2, at(120)));
    assert_eq!(rig.shard.attr(ROOT).unwrap().links, 3);
    let again = rig.shard.create(
        &CALLER,
        ROOT,
        &name("d"),
        NewNode::file(NewMode::exactly(0)),
        false,
        at(130),
    );
    assert_eq!(again.unwrap_err().code, Code::Exists);
    assert_eq!(rig.shard.parent(dir.handle).unwrap().handle, ROOT);
}

#[test]
fn a_setgid_directory_gives_its_group_away() {
    let rig = Rig::new();
    let dir = rig.make(ROOT, "d", NewNode::directory(NewMode::exactly(0o2775)), 110);
    let set = SetAttr { gid: Some(77), ..SetAttr::default() };
    rig.shard.set_attr(dir.handle, &set, at(111)).unwrap();
    let file = rig.file(dir.handle, "f", 112);
    let below = rig.dir(dir.handle, "s", 113);
    assert_eq!((file.attr.gid, file.attr.mode), (77, 0o644));
    assert_eq!((below.attr.gid, below.attr.mode), (77, 0o2755));
}

/// A handle from before a rename, from before a second name, and from before all but one went again
/// leads to the file, with warm caches and without any.
#[test]
fn old_handles_find_their_file() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110);
    let old = rig.file(ROOT, "f", 120).handle;
    let moved = rig.rename((ROOT, "f"), (dir.handle, "g"), RenameFlags::Replace).unwrap();
    assert_ne!(moved.moved, old);
    let check = |rig: &Rig, links| {
        let cold = Rig::over(rig.table.clone(), 9, at(900));
        for (rig, handle) in [(rig, old), (&cold, old), (&cold, moved.moved)] {
            let attr = rig.shard.attr(handle).unwrap();
            assert_eq!((attr.ino, attr.links), (old.ino, links));
        }
    };
    check(&rig, 1);
    rig.shard.link(moved.moved, ROOT, &name("h"), at(400)).unwrap();
    check(&rig, 2);
    rig.shard.unlink(dir.handle, &name("g"), at(410)).unwrap();
    check(&rig, 1);
    rig.shard.unlink(ROOT, &name("h"), at(420)).unwrap();
    assert_eq!(rig.shard.attr(old).unwrap_err().code, Code::Stale);
}

#[test]
fn a_file_that_goes_leaves_no_row() {
    let rig = Rig::new();
    let rows = |rig: &Rig| {
        let mut keys = Vec::new();
        rig.table
            .scan(&[], &[], &mut |key, _| {
                keys.push(key.to_vec());
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
        keys
    };
    let dir = rig.dir(ROOT, "d", 105);
    rig.file(dir.handle, "before", 106);
    rig.shard.unlink(dir.handle, &name("before"), at(107)).unwrap();
    rig.shard.write_counts().unwrap();
    let before = rows(&rig);
    let file = rig.file(dir.handle, "f", 110);
    let handle = rig.rename((dir.handle, "f"), (dir.handle, "g"), RenameFlags::Replace);
    let handle = handle.unwrap().moved;
    assert_eq!(handle.ino, file.handle.ino);
    rig.shard.set_xattr(handle, &xattr(b"user.a", b"1", XattrFlags::Any), at(111)).unwrap();
    let live = Live { size: 3, blocks: 8, mtime: at(112), ctime: at(112) };
    let change =
        BytesChange { live: Some(live), inline: Inline::Put(b"abc"), ..BytesChange::NOTHING };
    rig.shard.commit_bytes(handle, &change).unwrap();
    let bytes = rig.table.get(&key::inline(handle.ino)).unwrap().unwrap();
    assert_eq!(InlineRow::decode(&bytes).unwrap().1.bytes, b"abc");
    rig.shard.unlink(dir.handle, &name("g"), at(120)).unwrap();
    rig.shard.write_counts().unwrap();
    assert_eq!(rows(&rig), before);
}

#[test]
fn renames_replace_refuse_and_exchange() {
    let rig = Rig::new();
    let (dir, full) = (rig.dir(ROOT, "d", 110).handle, rig.dir(ROOT, "full", 110).handle);
    rig.file(full, "x", 111);
    let (one, other) = (rig.file(ROOT, "a", 112).handle, rig.file(ROOT, "b", 113).handle);
    let replace = RenameFlags::Replace;
    assert_eq!(rig.rename((ROOT, "a"), (ROOT, "d"), replace), Err(Code::IsDirectory));
    assert_eq!(rig.rename((ROOT, "d"), (ROOT, "a"), replace), Err(Code::NotDirectory));
    assert_eq!(rig.rename((ROOT, "d"), (ROOT, "full"), replace), Err(Code::NotEmpty));
    assert_eq!(rig.rename((ROOT, "d"), (dir, "x"), replace), Err(Code::WouldLoop));
    assert_eq!(rig.rename((ROOT, "a"), (ROOT, "b"), RenameFlags::NoReplace), Err(Code::Exists));
    let exchange = RenameFlags::Exchange;
    assert_eq!(rig.rename((ROOT, "a"), (ROOT, "no"), exchange), Err(Code::NotFound));
    rig.rename((ROOT, "a"), (full, "x"), exchange).unwrap();
    assert_eq!(rig.look(full, "x").unwrap().handle.ino, one.ino);
    rig.rename((ROOT, "b"), (full, "x"), replace).unwrap();
    assert_eq!(rig.look(full, "x").unwrap().handle.ino, other.ino);
    assert_eq!(rig.shard.attr(one).unwrap_err().code, Code::Stale);
    rig.rename((ROOT, "d"), (full, "d"), replace).unwrap();
    assert_eq!(rig.shard.parent(dir).unwrap().handle.ino, full.ino);
    assert_eq!((rig.names(ROOT), rig.names(full)), (s(&["a", "full"]), s(&["d", "x"])));
    assert_eq!(rig.shard.attr(ROOT).unwrap().links, 3);
}

/// The whiteout comes with the rename: whatever prefix of the batches stays, the old name is there
/// as the file or as the whiteout.
#[test]
fn a_rename_leaves_a_whiteout_in_one_batch() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110).handle;
    let (file, other) = (rig.file(dir, "a", 111).handle, rig.file(dir, "b", 112).handle);
    let leave = |replace| RenameFlags::Whiteout { replace };
    assert_eq!(rig.rename((dir, "a"), (dir, "b"), leave(false)), Err(Code::Exists));
    // The first inode of a life reserves numbers in a batch of its own; `a` and `b` have done it.
    let before = rig.table.unsafe_batches();
    rig.rename((dir, "a"), (dir, "b"), leave(true)).unwrap();
    assert_eq!(rig.table.unsafe_batches(), before + 1);
    let crashed = rig.crashed(before);
    assert_eq!(crashed.look(dir, "a").unwrap().handle.ino, file.ino);
    assert_eq!(crashed.look(dir, "b").unwrap().handle.ino, other.ino);
    for rig in [&rig, &rig.crashed(before + 1)] {
        assert_eq!(rig.look(dir, "b").unwrap().handle.ino, file.ino);
        assert_eq!(rig.shard.attr(other).unwrap_err().code, Code::Stale);
        let whiteout = rig.look(dir, "a").unwrap().attr;
        assert_eq!((whiteout.kind, whiteout.rdev), (FileKind::CharDevice, 0));
        assert_eq!((whiteout.mode, whiteout.uid, whiteout.links), (0, CALLER.uid, 1));
        assert_eq!(rig.names(dir), s(&["a", "b"]));
    }
    rig.dir(dir, "sub", 120);
    let links = |rig: &Rig| rig.shard.attr(dir).unwrap().links;
    assert_eq!((links(&rig), rig.shard.attr(dir).unwrap().size), (3, 3));
    rig.rename((dir, "sub"), (ROOT, "sub"), leave(true)).unwrap();
    assert_eq!((links(&rig), rig.shard.attr(dir).unwrap().size), (2, 3));
}

#[test]
fn two_names_of_one_file_are_left_alone_by_a_rename() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "a", 110).handle;
    rig.shard.link(file, ROOT, &name("b"), at(120)).unwrap();
    rig.rename((ROOT, "a"), (ROOT, "b"), RenameFlags::Replace).unwrap();
    assert_eq!(rig.names(ROOT), s(&["a", "b"]));
    assert_eq!(rig.shard.attr(file).unwrap().links, 2);
}

#[test]
fn a_held_file_outlives_its_name() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    rig.shard.hold(file).unwrap();
    rig.shard.unlink(ROOT, &name("f"), at(120)).unwrap();
    assert_eq!(rig.shard.attr(file).unwrap().links, 0);
    assert!(rig.table.get(&key::orphan(file.ino)).unwrap().is_some());
    let relinked = rig.shard.link(file, ROOT, &name("g"), at(130)).unwrap_err();
    assert_eq!(relinked.code, Code::NotFound);
    assert!(rig.shard.let_go(file.ino));
}

/// Counted: what a new file costs its directory's other callers. Only making it takes the shard's
/// lock and writes a batch; writing into it and letting go of it do neither.
#[test]
fn a_new_file_takes_the_lock_once_and_writes_one_batch() {
    let rig = Rig::new();
    let live = Live { size: 42, blocks: 8, mtime: at(120), ctime: at(120) };
    let costs = |number: u32| {
        let before = (rig.shard.state.lock().turns, rig.table.unsafe_batches());
        let (new, text) = (NewNode::file(NewMode::exactly(0o644)), format!("f{number}"));
        let made = rig.shard.create(&CALLER, ROOT, &name(&text), new, true, at(110)).unwrap();
        rig.shard.set_live(made.handle.ino, Some(live));
        assert!(!rig.shard.let_go(made.handle.ino));
        let after = (rig.shard.state.lock().turns, rig.table.unsafe_batches());
        (after.0 - before.0, after.1 - before.1)
    };
    // The first one reserves numbers.
    costs(0);
    assert!((1..100).all(|number| costs(number) == (1, 1)));
}

/// Whoever lets go of a file while its last name goes is told when the orphan row is there, and not
/// before.
#[test]
fn the_last_holder_waits_for_who_takes_the_last_name() {
    let rig = Rig::new();
    let ino = rig.file(ROOT, "f", 110).handle.ino;
    rig.shard.hold(Handle::own(ino)).unwrap();
    let written = AtomicBool::new(false);
    thread::scope(|threads| {
        let unlinking = rig.shard.state.lock();
        assert!(rig.shard.holds.loses_its_names(ino));
        let holder = threads.spawn(|| (rig.shard.let_go(ino), written.load(Ordering::Acquire)));
        while rig.shard.holds.has(ino) {
            thread::yield_now();
        }
        written.store(true, Ordering::Release);
        drop(unlinking);
        assert_eq!(holder.join().unwrap(), (true, true));
    });
}

/// A link may come while the last holder goes: whoever removes files finds that it has a name.
#[test]
fn a_file_that_got_a_name_in_the_last_moment_is_not_buried() {
    let rig = Rig::new();
    let named = rig.unnamed(110).handle;
    rig.shard.link(named, ROOT, &name("f"), at(120)).unwrap();
    assert!(!rig.shard.let_go(named.ino));
    assert!(rig.shard.bury(named.ino).unwrap().is_none());
    let left = rig.unnamed(130).handle;
    assert!(rig.shard.let_go(left.ino));
    assert_eq!(rig.shard.link(left, ROOT, &name("g"), at(140)).unwrap_err().code, Code::NotFound);
    assert!(rig.shard.bury(left.ino).unwrap().is_some());
    assert_eq!(rig.shard.attr(left).unwrap_err().code, Code::Stale);
    assert_eq!(rig.names(ROOT), s(&["f"]));
}

/// What an open file knows is shown wherever attributes are shown, until it is committed.
#[test]
fn open_files_show_what_they_have() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    rig.shard.hold(file).unwrap();
    let live = Live { size: 42, blocks: 8, mtime: at(120), ctime: at(120) };
    rig.shard.set_live(file.ino, Some(live));
    let page = Page { dir: ROOT, after: Cookie::START, behind: None, entries: 9, attributes: true };
    let listed = rig.shard.list(page).unwrap().0[0].entry.unwrap().attr;
    for attr in [listed, rig.shard.attr(file).unwrap(), rig.look(ROOT, "f").unwrap().attr] {
        assert_eq!((attr.size, attr.mtime), (42, at(120)));
    }
    let change = BytesChange { live: Some(live), ..BytesChange::NOTHING };
    let (attr, _) = rig.shard.commit_bytes(file, &change).unwrap();
    assert_eq!(attr, rig.shard.attr(file).unwrap());
    let cold = Rig::over(rig.table.clone(), 9, at(900));
    assert_eq!(cold.look(ROOT, "f").unwrap().attr, attr);
}

#[test]
fn a_listing_is_stable_while_names_come_and_go() {
    let rig = Rig::new();
    let all: Vec<_> = (0..200).map(|n| format!("n{n}")).collect();
    for text in &all {
        rig.file(ROOT, text, 110);
    }
    let (mut after, mut seen) = (Cookie::START, Vec::new());
    for round in 0.. {
        let page = Page { dir: ROOT, after, behind: None, entries: 7, attributes: round % 2 == 0 };
        let (entries, end) = rig.shard.list(page).unwrap();
        after = entries.last().map_or(after, |entry| entry.cookie);
        seen.extend(entries.iter().map(|entry| entry.name.to_string()));
        rig.file(ROOT, &format!("new{round}"), 120);
        if let Some(last) = seen.last() {
            let _gone = rig.shard.unlink(ROOT, &name(last), at(130));
        }
        if end {
            break;
        }
    }
    let mut old: Vec<_> = seen.into_iter().filter(|text| !text.starts_with("new")).collect();
    old.sort();
    let mut all = all;
    all.sort();
    assert_eq!(old, all);
}

#[test]
fn extended_attributes_follow_their_flags() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    let set = |name: &[u8], value: &[u8], flags| {
        rig.shard.set_xattr(file, &xattr(name, value, flags), at(120)).map_err(|error| error.code)
    };
    assert_eq!(set(b"user.a", b"1", XattrFlags::Replace), Err(Code::NoXattr));
    assert_eq!(set(b"user.a", b"1", XattrFlags::Create), Ok(()));
    assert_eq!(set(b"user.a", b"2", XattrFlags::Create), Err(Code::Exists));
    assert_eq!(set(b"user.ab", &[0; 65_537], XattrFlags::Any), Err(Code::TooBig));
    assert_eq!(set(b"other.a", b"", XattrFlags::Any), Err(Code::NotSupported));
    assert_eq!(set(b"user.b", b"", XattrFlags::Any), Ok(()));
    set(b"trusted.a", b"", XattrFlags::Any).unwrap();
    let names = |caller: &Context| rig.shard.list_xattr(caller, file).unwrap();
    assert_eq!(names(&CALLER), b"user.a\0user.b\0");
    assert_eq!(names(&Context::direct(0, 20)), b"trusted.a\0user.a\0user.b\0");
    rig.shard.remove_xattr(file, b"trusted.a", at(125)).unwrap();
    assert_eq!(rig.shard.get_xattr(file, b"user.a").unwrap(), b"1");
    for gone in [&b"user.a"[..], b"user.b"] {
        rig.shard.remove_xattr(file, gone, at(130)).unwrap();
        assert_eq!(rig.shard.get_xattr(file, gone).unwrap_err().code, Code::NoXattr);
    }
    assert_eq!(names(&Context::direct(0, 20)), b"");
}

/// A volume that has none is not looked into; the first one changes that, and it is seen at start.
#[test]
fn the_first_extended_attribute_is_found() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    assert!(!super::xattr::are_in(&*rig.shard.table));
    assert_eq!(rig.shard.get_xattr(file, b"user.a").unwrap_err().code, Code::NoXattr);
    rig.shard.set_xattr(file, &xattr(b"user.a", b"1", XattrFlags::Any), at(120)).unwrap();
    let again = Rig::over(rig.table.clone(), 2, at(500));
    for rig in [rig, again] {
        assert_eq!(rig.shard.get_xattr(file, b"user.a").unwrap(), b"1");
    }
}

#[test]
fn times_of_a_directory_can_be_set_back_and_are_stored() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110).handle;
    rig.file(dir, "f", 120);
    let set = SetAttr { mtime: Some(SetTime::To(at(5))), ..SetAttr::default() };
    assert_eq!(rig.shard.set_attr(dir, &set, at(130)).unwrap().mtime, at(5));
    rig.shard.write_counts().unwrap();
    let cold = Rig::over(rig.table.clone(), 9, at(900));
    assert_eq!(cold.shard.attr(dir).unwrap().mtime, at(5));
}

#[test]
fn a_new_owner_loses_the_privileges_of_the_old_one() {
    let rig = Rig::new();
    let file = rig.make(ROOT, "f", NewNode::file(NewMode::exactly(0o6755)), 110).handle;
    let give = SetAttr { uid: Some(11), ..SetAttr::default() };
    assert_eq!(rig.shard.set_attr(file, &give, at(120)).unwrap().mode, 0o755);
    let without_group_x = rig.make(ROOT, "g", NewNode::file(NewMode::exactly(0o2745)), 110).handle;
    assert_eq!(rig.shard.set_attr(without_group_x, &give, at(120)).unwrap().mode, 0o2745);
    let both = SetAttr { uid: Some(12), mode: Some(0o4700), ..SetAttr::default() };
    assert_eq!(rig.shard.set_attr(file, &both, at(130)).unwrap().mode, 0o4700);
}

/// After a crash the count of a directory that had changed is not trusted, and its times are not
/// older than the changes that may have been lost.
#[test]
fn a_count_lost_in_a_crash_is_known_to_be_lost() {
    let rig = Rig::new();
    rig.file(ROOT, "a", 110);
    rig.shard.write_counts().unwrap();
    rig.table.persist().unwrap();
    rig.file(ROOT, "b", 120);
    let all = rig.table.unsafe_batches();
    let crashed = rig.crashed(all);
    assert_eq!(crashed.names(ROOT), s(&["a", "b"]));
    let attr = crashed.shard.attr(ROOT).unwrap();
    assert_eq!((attr.size, attr.mtime), (1, at(500)));
    assert!(crashed.shard.lock().directories.get(InodeId::ROOT).unwrap().uncounted);
    let lost = rig.crashed(0);
    let attr = lost.shard.attr(ROOT).unwrap();
    assert_eq!((lost.names(ROOT), attr.size, attr.mtime), (s(&["a"]), 1, at(110)));
}

/// A write that fails changes nothing, in memory or in the table: what was asked for can be asked
/// for again, and what is shown is what is stored.
#[test]
fn a_failed_write_changes_nothing() {
    let rig = Rig::new();
    let dir = rig.dir(ROOT, "d", 110).handle;
    let file = rig.file(ROOT, "f", 111).handle;
    let before = (rig.names(ROOT), rig.shard.attr(ROOT).unwrap(), rig.shard.attr(file).unwrap());
    let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let time = SetAttr { mtime: Some(SetTime::To(at(9))), ..SetAttr::default() };
    let unnamed = rig.unnamed(112).handle;
    let failing: [&dyn Fn() -> bool; 10] = [
        &|| {
            let new = NewNode::file(NewMode::exactly(0));
            rig.shard.create(&CALLER, ROOT, &name("x"), new, true, at(200)).is_err()
        },
        &|| rig.shard.unlink(ROOT, &name("f"), at(200)).is_err(),
        &|| rig.shard.remove_dir(ROOT, &name("d"), at(200)).is_err(),
        &|| rig.rename((ROOT, "f"), (dir, "g"), RenameFlags::Replace).is_err(),
        &|| {
            let flags = RenameFlags::Whiteout { replace: true };
            rig.rename((ROOT, "f"), (dir, "g"), flags).is_err()
        },
        &|| rig.shard.link(file, ROOT, &name("l"), at(200)).is_err(),
        &|| rig.shard.link(unnamed, ROOT, &name("l"), at(200)).is_err(),
        &|| {
            let new = NewNode::file(NewMode::exactly(0));
            rig.shard.create_unnamed(&CALLER, ROOT, new, at(200)).is_err()
        },
        &|| rig.shard.set_attr(file, &mode, at(200)).is_err(),
        &|| rig.shard.set_attr(ROOT, &time, at(200)).is_err(),
    ];
    for (number, fails) in failing.iter().enumerate() {
        rig.table.fail_at(0, table::Error::NoSpace);
        assert!(fails(), "operation {number}");
        let now = (rig.names(ROOT), rig.shard.attr(ROOT).unwrap(), rig.shard.attr(file).unwrap());
        assert_eq!(now, before, "operation {number}");
    }
    rig.file(ROOT, "x", 210);
    assert!(rig.table.get(&key::orphan(unnamed.ino)).unwrap().is_some());
    rig.shard.link(unnamed, ROOT, &name("l"), at(220)).unwrap();
    assert!(rig.table.get(&key::orphan(unnamed.ino)).unwrap().is_none());
    assert!(!rig.shard.let_go(unnamed.ino), "it has a name");
}

/// However much happens during a scan, the count is right afterwards, and nothing is said of names
/// that was not seen.
#[test]
fn a_scan_that_much_happens_meanwhile_counts_right() {
    let rig = Rig::new();
    rig.file(ROOT, "before", 110);
    for (many, knows) in [(false, true), (true, false)] {
        rig.shard.lock().directories.get_mut(InodeId::ROOT).unwrap().filter = Known::Nothing;
        rig.shard.lock().directories.get_mut(InodeId::ROOT).unwrap().uncounted = true;
        let scan = rig.shard.begin_scan(InodeId::ROOT).unwrap().unwrap();
        assert!(scan.uncounted);
        let names = rig.names(ROOT).len() as u64;
        let before = Scanned { names, directories: 0, filter: Some(Filter::new()) };
        rig.dir(ROOT, &format!("meanwhile {many}"), 120);
        for _ in 0..if many { CHANGES / 2 } else { 0 } {
            let mut state = rig.shard.lock();
            let root = state.directories.get_mut(InodeId::ROOT).unwrap();
            root.came(NameHash(7), true, at(130));
            root.went(NameHash(7), true, at(130));
        }
        rig.shard.unlink(ROOT, &name("before"), at(140)).unwrap();
        rig.file(ROOT, "before", 150);
        let before = Scanned { directories: u64::from(many), ..before };
        assert_eq!(rig.shard.end_scan(InodeId::ROOT, Some(before)), many);
        let state = rig.shard.lock();
        let root = state.directories.get(InodeId::ROOT).unwrap();
        assert_eq!((root.names, root.directories), (names + 1, 1 + u64::from(many)));
        assert_eq!((root.uncounted, matches!(root.filter, Known::All(_))), (false, knows));
    }
}

fn s(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// A file that outgrows the table while it is open without a name: whoever removes it must know of
/// its content file.
#[test]
fn an_orphan_that_gets_a_content_file_is_removed_with_it() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "a", 110).handle;
    rig.shard.hold(file).unwrap();
    rig.shard.unlink(ROOT, &name("a"), at(120)).unwrap();
    let generation = Some(Generation::FIRST);
    let change = BytesChange { generation, ..BytesChange::NOTHING };
    rig.shard.commit_bytes(Handle::own(file.ino), &change).unwrap();
    let stored = rig.table.get(&key::orphan(file.ino)).unwrap().unwrap();
    assert_eq!(OrphanRow::decode(&stored).unwrap().1.generation, generation);
    assert!(rig.shard.let_go(file.ino));
    assert_eq!(rig.shard.bury(file.ino).unwrap().unwrap().1, generation);
}

/// Whoever still refers to something shows these attributes from then on.
#[test]
fn a_removal_answers_the_attributes_of_what_is_gone() {
    let rig = Rig::new();
    rig.dir(ROOT, "d", 110);
    let dir = rig.shard.remove_dir(ROOT, &name("d"), at(120)).unwrap().attr;
    assert_eq!((dir.kind, dir.links, dir.ctime), (FileKind::Directory, 0, at(120)));
    let file = rig.file(ROOT, "f", 130).handle;
    rig.shard.link(file, ROOT, &name("g"), at(140)).unwrap();
    assert_eq!(rig.shard.unlink(ROOT, &name("f"), at(150)).unwrap().attr.links, 1);
    rig.dir(ROOT, "d", 160);
    let other = rig.dir(ROOT, "e", 170).handle;
    let renamed = rig.rename((ROOT, "d"), (ROOT, "e"), RenameFlags::Replace).unwrap();
    let replaced = renamed.replaced.unwrap().attr;
    assert_eq!((replaced.ino, replaced.links, replaced.ctime), (other.ino, 0, at(300)));
}

/// Setuid and setgid of a directory say who owns what is made in it: no privilege that a new owner
/// could misuse.
#[test]
fn a_directory_keeps_its_setgid_bit_when_it_gets_another_owner() {
    let rig = Rig::new();
    let dir = rig.make(ROOT, "d", NewNode::directory(NewMode::exactly(0o2775)), 110).handle;
    let set = SetAttr { gid: Some(7), kill_privileges: true, ..SetAttr::default() };
    assert_eq!(rig.shard.set_attr(dir, &set, at(120)).unwrap().mode, 0o2775);
}

/// `NoSpace` would make the server believe that its medium is full, and refuse everybody's data.
#[test]
fn a_file_with_too_many_extended_attributes_is_no_full_medium() {
    let rig = Rig::new();
    let file = rig.file(ROOT, "f", 110).handle;
    let refused = (0..1000).find_map(|number| {
        let name = format!("user.{number:0>250}");
        let set = rig.shard.set_xattr(file, &xattr(name.as_bytes(), b"", XattrFlags::Any), at(120));
        set.err().map(|error| (number, error.code))
    });
    assert_eq!(refused, Some((256, Code::TooBig)));
}
