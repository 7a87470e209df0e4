//! The end of a forced promotion: the old primary stops, becomes a mirror of the new one without a
//! copy, and keeps what only it had.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pelago_check as check;
use pelago_server::{
    KeptChange, MirrorError, MirrorPhase, MirrorStore, Options, Server, StartError, WhenCut,
    kept_changes,
};
use pelago_store::folder::Folder;
use pelago_store::volume::{Volume, VolumeError, set_not_primary};
use pelago_wire::mirror::{GroupKind, GroupPart, MirrorSays, Mirrors as _, OfferRefused, Via};
use pelago_wire::{
    Code, Context, Handle, InodeId, NewMode, OpenFlags, RenameFlags, Reply, Request, SetAttr,
    XattrFlags, xattr,
};

use super::RUN;
use super::pair::{
    Decide, Fate, Keeper, MIB, Pair, Traffic, connect_to, cut, expect_equal, fill, keeper,
    killed_once_safe, noise, put_at, start,
};
use super::primary::{CUT, group, put, read};
use super::resync::name;
use crate::harness::requests::{
    self, call, call_as, close, create, lookup, next_open, unlink, write,
};
use crate::harness::rig::DEADLINE;
use crate::harness::until;

const ROOT: Handle = Handle::ROOT;

fn make_dir(server: &Server, dir: Handle, text: &str) -> Handle {
    let mode = NewMode::exactly(0o755);
    match call(server, Request::MakeDir { dir, name: name(text), mode }, &[]).unwrap() {
        Reply::Entry(entry) => entry.handle,
        other => panic!("{other:?}"),
    }
}

fn rename(server: &Server, from: &str, to: &str) {
    let request = Request::Rename {
        from_dir: ROOT,
        from: name(from),
        to_dir: ROOT,
        to: name(to),
        flags: RenameFlags::default(),
    };
    call(server, request, &[]).unwrap();
}

fn set_xattr(server: &Server, who: &Context, node: Handle, key: &[u8], value: &[u8]) {
    let request = Request::SetXattr {
        node,
        name: key.to_vec(),
        value: value.to_vec(),
        flags: XattrFlags::Any,
        kill_setgid: false,
    };
    call_as(server, who, request, &[]).unwrap();
}

fn chmod(server: &Server, text: &str, mode: u16) {
    let node = lookup(server, ROOT, text).unwrap().handle;
    let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
    call(server, Request::SetAttr { node, open: None, set }, &[]).unwrap();
}

/// The site of the first primary, of which each thing is a folder, and that of its mirror.
struct Circle {
    pair: Pair,
}

impl Circle {
    /// Returns both sites. The mirror has what `fill` makes, and the primary more.
    fn new(fill: impl FnOnce(&Server), own: impl FnOnce(&Server)) -> Self {
        let pair = Pair::new();
        pair.mirrored(fill);
        pair.alone(own);
        fs::create_dir(pair.temp.path().join("back")).unwrap();
        Self { pair }
    }

    /// Returns the folder of the mirrors at the first site.
    fn back(&self) -> PathBuf {
        self.pair.temp.path().join("back")
    }

    /// Returns the folder of the old primary as a mirror.
    fn returned(&self) -> PathBuf {
        self.back().join("mirrors").join(self.pair.id_there().to_string())
    }

    fn store(&self, of: &Path) -> MirrorStore {
        MirrorStore::open(&Folder::open(of).unwrap()).unwrap()
    }

    /// Promotes the mirror, and lets programs work there.
    fn promote(&self, work: impl FnOnce(&Server)) {
        let store = self.store(&self.pair.mirrors());
        assert_eq!(store.promote(self.pair.id_there()).unwrap().reign, 2);
        drop(store);
        let server = start(&self.pair.there());
        work(&server);
        server.stop().unwrap();
    }

    fn adopt(&self) {
        let adopted = self.store(&self.back()).adopt(&self.pair.volume()).unwrap();
        assert_eq!((adopted.reign, adopted.path), (1, self.returned()));
    }

    /// Serves the new primary until the old one has all. Returns what was sent.
    fn bring_back(&self, decide: Decide) -> Traffic {
        mirror(&self.pair.there(), &keeper(&self.back(), decide))
    }

    fn kept(&self) -> Vec<KeptChange> {
        let mut kept = kept_changes(&self.back()).unwrap();
        assert_eq!(kept.len(), 1, "{kept:?}");
        kept.pop().unwrap().changes
    }

    fn kept_file(&self, path: &str) -> PathBuf {
        let kept = kept_changes(&self.back()).unwrap();
        kept[0].files.join(path)
    }
}

impl Pair {
    /// Returns the id, though the folder of the volume may be away.
    fn id_there(&self) -> pelago_store::volume::VolumeId {
        let entry = fs::read_dir(self.temp.path().join("mirrors/mirrors")).unwrap().next();
        let name = entry.unwrap().unwrap().file_name();
        pelago_store::volume::VolumeId::parse(name.to_str().unwrap()).unwrap()
    }

    /// Returns the folder of the promoted mirror.
    fn there(&self) -> PathBuf {
        self.temp.path().join("mirrors/mirrors").join(self.id_there().to_string())
    }
}

/// Lets all arrive.
fn calm() -> Decide {
    Box::new(|_| Fate::Arrives)
}

/// Serves a primary until its mirror has all. Returns what was sent.
fn mirror(primary: &Path, keeper: &Arc<Keeper>) -> Traffic {
    let server = start(primary);
    let traffic = connect_to(&server, keeper, |_| {});
    let commit = server.next_commit().unwrap();
    assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true), "{:?}", server.mirror());
    server.stop().unwrap();
    drop(server);
    std::mem::take(&mut traffic.lock())
}

/// Returns the changes as short lines.
fn lines(changes: &[KeptChange]) -> BTreeSet<String> {
    let line = |change: &KeptChange| {
        let there = change.there.as_ref().map(|there| format!(" ({there})")).unwrap_or_default();
        let both = if change.is_of_both { " both" } else { "" };
        let kept = if change.bytes.is_some() { " kept" } else { "" };
        format!("{} {}{there}{both}{kept}", change.what.word(), change.path)
    };
    changes.iter().map(line).collect()
}

fn fill_more(server: &Server) {
    fill(server);
    let folder = make_dir(server, ROOT, "folder");
    requests::put(server, folder, "inner", b"of both").unwrap();
    let deep = make_dir(server, folder, "deep");
    requests::put(server, deep, "deepest", &noise(50_000)).unwrap();
    put(server, "both", &noise(100_000));
}

/// What only the old primary does.
fn own_work(server: &Server) {
    put_at(server, "large", 3 * MIB as u64 + 5, &[1; 1000]);
    put_at(server, "small 7", 3, b"changed");
    unlink(server, ROOT, "small 8").unwrap();
    chmod(server, "small 9", 0o600);
    rename(server, "renamed", "other name");
    rename(server, "both", "both here");
    put_at(server, "both here", 10, b"here");
    put(server, "new here", &noise(70_000));
    chmod(server, "new here", 0o640);
    set_xattr(
        server,
        &Context::direct(0, 0),
        lookup(server, ROOT, "new here").unwrap().handle,
        b"user.color",
        b"red",
    );
    let folder = lookup(server, ROOT, "folder").unwrap().handle;
    let deep = lookup(server, folder, "deep").unwrap().handle;
    requests::put(server, deep, "filled", b"here").unwrap();
    let made = make_dir(server, folder, "made");
    requests::put(server, made, "too", b"made").unwrap();
    // As an editor saves.
    put(server, "new", b"saved");
    rename(server, "new", "small 13");
    read(server, "small 14").unwrap();
}

/// What the new primary does.
fn work_there(server: &Server) {
    rename(server, "both", "both there");
    put_at(server, "both there", 60_000, b"there");
    put_at(server, "small 12", 0, b"there");
    unlink(server, ROOT, "small 11").unwrap();
    put(server, "new there", &noise(90_000));
    let folder = lookup(server, ROOT, "folder").unwrap().handle;
    let deep = lookup(server, folder, "deep").unwrap().handle;
    unlink(server, deep, "deepest").unwrap();
    call(server, Request::RemoveDir { dir: folder, name: name("deep") }, &[]).unwrap();
    unlink(server, folder, "inner").unwrap();
    call(server, Request::RemoveDir { dir: ROOT, name: name("folder") }, &[]).unwrap();
}

fn expected() -> BTreeSet<String> {
    [
        "changed large kept",
        "changed small 7 kept",
        "removed small 8",
        "attributes small 9",
        "named other name (renamed)",
        "changed both here (both there) both kept",
        "named both here (both there)",
        "missing new here kept",
        "missing folder/deep/filled kept",
        "missing folder/made kept",
        "missing folder/made/too kept",
        "changed small 13 kept",
    ]
    .map(str::to_owned)
    .into()
}

/// The whole circle: fire, work at both, the way back with few bytes, and the planned handover.
#[test]
fn an_old_primary_becomes_a_mirror_and_keeps_what_only_it_had() {
    let circle = Circle::new(fill_more, own_work);
    circle.promote(work_there);
    circle.adopt();
    assert!(!circle.pair.volume().exists());
    let refused = Volume::open(&circle.returned());
    assert!(matches!(refused, Err(VolumeError::NotPrimary { .. })));
    let traffic = circle.bring_back(calm());
    assert_eq!(traffic.kinds[0], GroupKind::Resync);
    assert!(!traffic.kinds.contains(&GroupKind::Copy));
    // A block of "large", and what differs besides.
    assert!(traffic.sent < 2 * MIB as u64, "{} bytes", traffic.sent);
    expect_equal(&circle.pair.there(), &circle.returned());
    assert_eq!(lines(&circle.kept()), expected());
    let mut large = noise(5 * MIB);
    large[3 * MIB + 5..][..1000].fill(1);
    assert!(fs::read(circle.kept_file("large")).unwrap() == large);
    assert_eq!(fs::read(circle.kept_file("small 13")).unwrap(), b"saved");
    assert_eq!(fs::read(circle.kept_file("folder/deep/filled")).unwrap(), b"here");
    let new = circle.kept_file("new here");
    assert!(fs::read(&new).unwrap() == noise(70_000));
    assert_eq!(fs::metadata(&new).unwrap().permissions().mode() & 0o7777, 0o640);
    let mode = |path: &str| fs::metadata(circle.kept_file(path)).unwrap().permissions().mode();
    assert_eq!((mode("folder") & 0o7777, mode("folder/made") & 0o7777), (0o755, 0o755));
    let both = fs::read(circle.kept_file("both here")).unwrap();
    assert!(both[10..14] == *b"here" && both[60_000..60_005] == noise(100_000)[60_000..60_005]);

    // The planned handover back.
    let server = start(&circle.pair.there());
    connect_to(&server, &keeper(&circle.back(), calm()), |_| {});
    put(&server, "last", b"change");
    assert_eq!(server.hand_over(DEADLINE), Ok(3));
    drop(server);
    for path in [circle.pair.there(), circle.returned()] {
        let plan = check::plan(&path).unwrap();
        assert!(plan.findings.is_empty(), "{path:?}: {:?}", plan.findings);
    }
    let server = start(&circle.returned());
    assert_eq!((server.reign(), read(&server, "last").unwrap()), (3, b"change".to_vec()));
    assert_eq!(read(&server, "small 8").unwrap(), [8; 100], "what was removed is back");
    put(&server, "again", b"here");
    server.stop().unwrap();
    drop(server);

    // The other one becomes its mirror where it is, and has nothing of its own.
    let store = circle.store(&circle.pair.mirrors());
    let adopted = store.adopt(&circle.pair.there()).unwrap();
    assert_eq!((adopted.reign, adopted.path), (2, circle.pair.there()));
    drop(store);
    let there = keeper(&circle.pair.mirrors(), calm());
    let traffic = mirror(&circle.returned(), &there);
    assert_eq!(traffic.kinds[0], GroupKind::Resync);
    assert!(traffic.sent < 100_000, "{} bytes", traffic.sent);
    drop(there);
    expect_equal(&circle.returned(), &circle.pair.there());
    let kept = kept_changes(&circle.pair.mirrors()).unwrap();
    assert_eq!((kept[0].reign, kept[0].changes.len()), (2, 0), "{kept:?}");
}

/// A second time has the same result, although the rows have changed by then.
#[test]
fn what_is_kept_survives_kills() {
    let circle = Circle::new(fill_more, own_work);
    circle.promote(work_there);
    circle.adopt();
    // One that was killed while it kept them.
    let left = circle
        .back()
        .join(format!("kept/{}.1.new/files/a/b/c/d/e/f/g/h/i/j/k", circle.pair.id_there()));
    fs::create_dir_all(left).unwrap();
    fs::set_permissions(circle.back().join("kept"), fs::Permissions::from_mode(0o700)).unwrap();
    // And killed once the group is safe.
    let traffic = circle.bring_back(killed_once_safe());
    let resyncs = traffic.kinds.iter().filter(|kind| **kind == GroupKind::Resync);
    assert_eq!((resyncs.count(), traffic.kinds[0]), (1, GroupKind::Resync), "the group was safe");
    expect_equal(&circle.pair.there(), &circle.returned());
    assert_eq!(lines(&circle.kept()), expected());
}

/// A kill before the last row is written: the rows are those of the new primary, and what was kept
/// stays as it is.
#[test]
fn a_group_that_is_carried_out_again_keeps_what_was_kept() {
    let circle = Circle::new(fill_more, own_work);
    circle.promote(work_there);
    circle.adopt();
    circle.bring_back(killed_once_safe());
    let before = lines(&circle.kept());
    make_adopted(&circle.returned());
    let traffic = circle.bring_back(calm());
    assert_eq!(traffic.kinds[0], GroupKind::Resync);
    expect_equal(&circle.pair.there(), &circle.returned());
    assert_eq!(lines(&circle.kept()), before);
    assert_eq!(before, expected());
}

/// Writes the row of a folder that was adopted.
fn make_adopted(path: &Path) {
    use pelago_store::key::{VolumeRow, volume_row};
    use pelago_store::rows::{MirrorRole, MirrorRow, Row as _, Stamp};
    use pelago_store::table::fjall::{self, FjallTable};
    use pelago_store::table::{Batch, Table as _};
    let volume = Volume::open_mirror(path).unwrap();
    let table = FjallTable::open_in(volume.table(), fjall::Options::default()).unwrap();
    let row = MirrorRow { role: MirrorRole::Adopted, number: 1, ..MirrorRow::first() };
    let mut batch = Batch::new();
    batch.put(volume_row(VolumeRow::Mirror), row.encode(Stamp::default()));
    table.write(&batch).unwrap();
    table.close().unwrap();
}

/// No sync of level *remote* is acknowledged by the old one after the promotion.
#[test]
fn an_old_primary_hears_of_the_promotion_and_stops() {
    for when_cut in [WhenCut::GoOn, WhenCut::Wait] {
        let pair = Pair::new();
        pair.mirrored(|server| put(server, "file", b"bytes"));
        let options = Options { when_cut, ..options() };
        let server = Server::start(&pair.volume(), options).unwrap();
        let there = keeper(&pair.mirrors(), calm());
        let replaced = Arc::new(AtomicU64::new(0));
        let heard = Arc::clone(&replaced);
        let on_replaced = move |reign| heard.store(reign, Ordering::SeqCst);
        connect_to(&server, &there, on_replaced);
        set_xattr(&server, &Context::direct(0, 0), ROOT, xattr::LEVEL, b"remote");
        let (_, open) = create(&server, ROOT, "synced").unwrap();
        let sync = || call(&server, Request::Fsync { open, data_only: false }, &[]);
        write(&server, open, 0, b"before").unwrap();
        sync().unwrap();
        there.store.lock().as_ref().unwrap().promote(pair.id_there()).unwrap();
        write(&server, open, 0, b"after!").unwrap();
        assert_eq!(sync().err(), Some(Code::Unavailable), "{when_cut:?}");
        until("it has heard", || replaced.load(Ordering::SeqCst) == 2);
        assert_eq!(sync().err(), Some(Code::Unavailable), "{when_cut:?}: nor later");
        let phase = server.mirror().map(|mirror| mirror.phase);
        assert!(matches!(phase, None | Some(MirrorPhase::Replaced { reign: 2 })), "{phase:?}");
        server.stop().unwrap();
        drop(server);
        drop(there);
        let refused = Server::start(&pair.volume(), Options::default()).err().unwrap();
        let is_replaced = matches!(refused, StartError::Volume(VolumeError::NotPrimary { .. }));
        assert!(is_replaced && refused.to_string().contains("--adopt"), "{refused}");
        // Two primaries with the same file: the new one has what was acknowledged.
        let server = start(&pair.there());
        assert_eq!(read(&server, "synced").unwrap(), b"before");
    }
}

fn options() -> Options {
    Options {
        grace: std::time::Duration::ZERO,
        passthrough: pelago_server::Passthrough::Never,
        sync_interval: std::time::Duration::from_millis(5),
        ..Options::default()
    }
}

/// After a crash in the middle of a write in place, no row says that the bytes are others.
#[test]
fn bytes_that_were_written_at_the_crash_are_found_and_kept() {
    let pair = Pair::new();
    pair.mirrored(|server| {
        put(server, "large", &noise(5 * MIB));
        put(server, "same", &noise(3 * MIB));
    });
    let server = start(&pair.volume());
    for (text, bytes) in
        [("large", [9; 1000]), ("same", noise(3 * MIB)[..1000].try_into().unwrap())]
    {
        let node = lookup(&server, ROOT, text).unwrap().handle;
        let open = next_open();
        call(&server, Request::Open { node, flags: OpenFlags::READ_WRITE, open }, &[]).unwrap();
        write(&server, open, 0, &bytes).unwrap();
    }
    // A crash of the process.
    drop(server);
    fs::create_dir(pair.temp.path().join("back")).unwrap();
    let circle = Circle { pair };
    circle.promote(|_| {});
    circle.adopt();
    circle.bring_back(calm());
    expect_equal(&circle.pair.there(), &circle.returned());
    let lines = lines(&circle.kept());
    assert!(lines.contains("changed large kept"), "{lines:?}");
    assert!(!lines.contains("changed same kept"), "it has the same bytes: {lines:?}");
    assert!(fs::read(circle.kept_file("large")).unwrap()[..1000] == [9; 1000]);
}

/// Both have given out inode ids meanwhile, and no id twice.
#[test]
fn no_inode_id_is_given_out_by_both() {
    let ids = |server: &Server, text: &str| -> BTreeSet<InodeId> {
        let made = (0..200).map(|number| {
            let (entry, open) = create(server, ROOT, &format!("{text} {number}")).unwrap();
            write(server, open, 0, &noise(20_000 + number)).unwrap();
            close(server, open).unwrap();
            entry.handle.ino
        });
        made.collect()
    };
    let mut here = BTreeSet::new();
    let mut there = BTreeSet::new();
    let circle = Circle::new(fill, |server| here = ids(server, "made"));
    circle.promote(|server| there = ids(server, "made"));
    assert!(here.is_disjoint(&there));
    circle.adopt();
    circle.bring_back(calm());
    expect_equal(&circle.pair.there(), &circle.returned());
    let kept = circle.kept();
    assert_eq!(kept.iter().filter(|change| change.bytes.is_some()).count(), 200);
    assert!(fs::read(circle.kept_file("made 7")).unwrap() == noise(20_007));
}

/// A folder whose adoption was cut short looks like one whose promotion was: it must not become a
/// primary beside the one that has replaced it, and that must not take it for one.
#[test]
fn an_adoption_that_was_cut_short_is_no_promotion() {
    let circle = Circle::new(fill, |server| put(server, "own", b"bytes"));
    circle.promote(|_| {});
    // The old one is at home in its own mirrors' folder, where it was promoted once.
    let id = circle.pair.id_there();
    drop(circle.store(&circle.back()));
    fs::rename(circle.pair.volume(), circle.returned()).unwrap();
    let spool = circle.back().join("spool");
    fs::write(spool.join(format!("{id}.promoted")), "1\n").unwrap();
    fs::write(spool.join(format!("{id}.adopting")), "").unwrap();
    set_not_primary(&Folder::open(&circle.returned()).unwrap()).unwrap();
    let store = circle.store(&circle.back());
    let refused = store.promote(id).unwrap_err();
    assert!(matches!(refused, MirrorError::HalfAdopted { .. }), "{refused:?}");
    let refused = store.offer(id.0, 2, RUN, Via::Primary).err();
    assert!(matches!(refused, Some(OfferRefused::Failed(_))), "it is a primary all the same");
    let opened = Volume::open(&circle.returned()).unwrap_err();
    assert!(matches!(opened, VolumeError::NotPrimary { .. }), "{opened:?}");
    store.adopt(&circle.returned()).unwrap();
    drop(store);
    // Killed in the end, when nothing was left to do but to say so.
    fs::write(spool.join(format!("{id}.promoted")), "1\n").unwrap();
    fs::write(spool.join(format!("{id}.adopting")), "").unwrap();
    circle.bring_back(calm());
    expect_equal(&circle.pair.there(), &circle.returned());
    assert!(fs::read_dir(&spool).unwrap().all(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        !name.ends_with(".adopting") && !name.ends_with(".promoted")
    }));
}

/// An adoption that was cut short is repeated, and what cannot be adopted says why.
#[test]
fn an_adoption_is_repeated_or_refused() {
    let circle = Circle::new(fill, |server| put(server, "own", b"bytes"));
    circle.promote(|_| {});
    let store = circle.store(&circle.back());
    let server = start(&circle.pair.volume());
    let refused = store.adopt(&circle.pair.volume()).unwrap_err();
    assert!(matches!(refused, MirrorError::Volume(VolumeError::InUse { .. })), "{refused:?}");
    server.stop().unwrap();
    drop(server);
    // Killed after the mark, and after the rows.
    set_not_primary(&Folder::open(&circle.pair.volume()).unwrap()).unwrap();
    store.adopt(&circle.pair.volume()).unwrap();
    drop(store);
    fs::rename(circle.returned(), circle.pair.volume()).unwrap();
    circle.adopt();
    let store = circle.store(&circle.back());
    let again = store.adopt(&circle.returned()).unwrap_err();
    assert!(matches!(again, MirrorError::IsMirror { .. }), "{again:?}");
    assert!(store.list()[0].is_adopted);
    let id = circle.pair.id_there();
    assert_eq!(
        store
            .offer(id.0, 1, RUN, Via::Primary)
            .err()
            .map(|error| matches!(error, OfferRefused::Failed(_))),
        Some(true)
    );
    // It takes no copy, which would replace what only it has.
    let mut groups = store.offer(id.0, 2, RUN, Via::Primary).unwrap();
    assert_eq!((groups.ready().run, groups.ready().number), ([0; 16], 1));
    let begin = GroupPart::Begin { number: 1, kind: GroupKind::Copy, cut: CUT }.encode().unwrap();
    let says = groups.take(&begin).unwrap().unwrap().says;
    assert!(matches!(says, MirrorSays::Failed(why) if why.contains("are not kept yet")));
    let change = &group(2, GroupKind::Change, &[])[0];
    assert!(store.offer(id.0, 2, RUN, Via::Primary).unwrap().take(change).is_err());
    drop(groups);
    drop(store);
    circle.bring_back(calm());
    assert!(lines(&circle.kept()).contains("missing own kept"));
    // A folder with the same changes would be listed in their place.
    let taken = circle.pair.temp.path().join("copy");
    fs::rename(circle.returned(), &taken).unwrap();
    make_adopted(&taken);
    let refused = circle.store(&circle.back()).adopt(&taken).unwrap_err();
    assert!(matches!(refused, MirrorError::Taken { .. }), "{refused:?}");
}

/// If the new primary is lost as well, the old one goes on, and uses no id or reign of the other.
#[test]
fn an_old_primary_that_was_adopted_is_promoted_if_nothing_else_is_left() {
    let circle = Circle::new(fill, |server| put(server, "own", b"bytes"));
    circle.promote(|_| {});
    circle.adopt();
    let promoted = circle.store(&circle.back()).promote(circle.pair.id_there()).unwrap();
    assert!(promoted.reign > 2, "{promoted:?}");
    let server = start(&circle.returned());
    assert_eq!(read(&server, "own").unwrap(), b"bytes");
    cut(&server, "own", 0);
    server.stop().unwrap();
}
