//! Mirrors: their states after groups, kills and promotions.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelago_check as check;
use pelago_net::clients::KeyName;
use pelago_net::clients::date::Date;
use pelago_net::clients::file::edit;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::mirror::{MirrorConnection, MirrorServer};
use pelago_net::own_file::OwnFile;
use pelago_server::{MirrorError, MirrorStore, Options, Server};
use pelago_store::folder::Folder;
use pelago_store::key::{self, Key};
use pelago_store::volume::{Volume, VolumeError, VolumeId};
use pelago_wire::mirror::{
    GroupKind, GroupPart, Groups, LinkError, MirrorLink as _, MirrorSays, Mirrors, OfferRefused,
    RowChange, Via, VolumeFile,
};
use pelago_wire::{Generation, Handle, InodeId, SiteToken};

use crate::harness::requests;

use primary::{CUT, Primary, State, changes, group, put, read, send, send_all, state_of};

mod between;
mod handover;
mod pair;
mod power;
mod primary;
mod program;
mod readers;
mod reading;
mod relayed;
mod resync;
mod returning;
mod seeds;
mod verifying;

const RUN: [u8; 16] = [7; 16];

/// A primary with a mirror that has its first state.
struct World {
    temp: tempfile::TempDir,
    primary: Primary,
    first: State,
    store: Option<MirrorStore>,
}

impl World {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let primary = Primary::new(&temp.path().join("primary"));
        let first = primary.change(|server| {
            put(server, "small", b"bytes");
            put(server, "large", &[1; 300_000]);
            put(server, "sparse", &[vec![0; 200_000], vec![2; 50_000]].concat());
            put(server, "removed", &[3; 100_000]);
        });
        fs::create_dir(temp.path().join("mirrors")).unwrap();
        let mut world = Self { temp, primary, first, store: None };
        world.reopen();
        world
    }

    fn with_mirror() -> Self {
        let world = Self::new();
        send_all(&mut *world.offer(1), 1, &world.first);
        world
    }

    fn dir(&self) -> PathBuf {
        self.temp.path().join("mirrors")
    }

    fn id(&self) -> VolumeId {
        VolumeId(self.primary.id())
    }

    fn path(&self) -> PathBuf {
        self.dir().join("mirrors").join(self.id().to_string())
    }

    fn store(&self) -> &MirrorStore {
        self.store.as_ref().unwrap()
    }

    /// Ends the process that keeps the mirrors, and starts another one.
    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(MirrorStore::open(&Folder::open(&self.dir()).unwrap()).unwrap());
    }

    fn offer(&self, reign: u64) -> Box<dyn Groups> {
        self.store().offer(self.primary.id(), reign, RUN, Via::Primary).unwrap()
    }

    fn refused(&self, reign: u64) -> OfferRefused {
        self.store().offer(self.primary.id(), reign, RUN, Via::Primary).err().unwrap()
    }

    /// Changes the primary. Returns its new state, and the group that brings the mirror there.
    fn change(&self, number: u64) -> (State, Vec<Vec<u8>>) {
        let state = self.primary.change(|server| {
            put(server, "new", &[4; 150_000]);
            requests::unlink(server, Handle::ROOT, "removed").unwrap();
            requests::unlink(server, Handle::ROOT, "large").unwrap();
            put(server, "large", &[5; 10_000]);
        });
        let parts = changes(&self.first, &state);
        (state, group(number, GroupKind::Change, &parts))
    }

    fn promote(&self) -> Result<u64, MirrorError> {
        self.store().promote(self.id()).map(|promoted| promoted.reign)
    }

    /// Compares rows and content of the mirror with a state of the primary. Nothing has it open.
    fn expect_mirror(&mut self, state: &State) {
        self.store = None;
        let found = state_of(&Volume::open_mirror(&self.path()).unwrap());
        assert!(found.rows == state.rows, "the rows differ");
        for (name, content) in &state.content {
            assert_eq!(found.content.get(name), Some(content), "{name:?}");
        }
        self.reopen();
    }
}

/// Serves the promoted mirror, and compares it with the tree of the primary.
fn expect_served(path: &Path, large: &[u8], new: Option<&[u8]>) {
    let plan = check::plan(path).unwrap();
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
    let server = Server::start(path, Options::default()).unwrap();
    assert_eq!(read(&server, "small").unwrap(), b"bytes");
    assert_eq!(read(&server, "large").unwrap(), large);
    assert_eq!(read(&server, "sparse").unwrap()[199_999..][..2], [0, 2]);
    assert_eq!(read(&server, "new").ok().as_deref(), new);
    put(&server, "after", b"promoted");
    server.stop().unwrap();
    drop(server);
    let plan = check::plan(path).unwrap();
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
}

#[test]
fn a_mirror_has_each_state_of_its_primary_and_can_be_promoted() {
    let mut world = World::with_mirror();
    world.expect_mirror(&world.first.clone());
    assert!(matches!(Volume::open(&world.path()), Err(VolumeError::NotPrimary { .. })));
    let mut groups = world.offer(1);
    assert_eq!((groups.ready().number, groups.ready().run), (2, RUN));
    let (state, change) = world.change(3);
    assert_eq!(send(&mut *groups, &change), 3);
    groups.carry_out().unwrap();
    let ping = groups.take(&GroupPart::Ping.encode().unwrap()).unwrap().unwrap();
    assert_eq!((ping.says, ping.number), (MirrorSays::Pong, 3));
    let keys = GroupPart::File { file: VolumeFile::Keys, bytes: Some(b"# names\n".to_vec()) };
    send(&mut *groups, &group(4, GroupKind::Change, &[keys]));
    groups.carry_out().unwrap();
    assert_eq!(fs::read(world.path().join("keys")).unwrap(), b"# names\n");
    let none = GroupPart::File { file: VolumeFile::Keys, bytes: None };
    send(&mut *groups, &group(5, GroupKind::Change, &[none]));
    groups.carry_out().unwrap();
    assert!(!world.path().join("keys").exists());
    let listed = world.store().list();
    assert!(listed[0].is_connected && listed[0].number == 5 && listed[0].cut == Some(CUT));
    drop(groups);
    assert!(!world.store().list()[0].is_connected);
    world.expect_mirror(&state);
    let promoted = world.store().promote(world.id()).unwrap();
    assert_eq!((promoted.reign, promoted.number), (2, Some(5)));
    assert_eq!(promoted.path, world.path());
    expect_served(&world.path(), &[5; 10_000], Some(&[4; 150_000]));
    let found = world.primary.change(|server| put(server, "lost", b"x"));
    assert!(!found.rows.is_empty());
    for reign in [1, 2] {
        assert_eq!(world.refused(reign), OfferRefused::NotPrimary(2), "reign {reign}");
    }
    assert!(matches!(world.refused(3), OfferRefused::Failed(_)));
    assert!(matches!(world.promote(), Err(MirrorError::Promoted { reign: 2, .. })));
    world.reopen();
    assert_eq!(world.refused(1), OfferRefused::NotPrimary(2));
}

#[test]
fn a_group_that_is_safe_is_carried_out_after_a_kill() {
    let mut world = World::with_mirror();
    let mut groups = world.offer(1);
    let (state, change) = world.change(3);
    send(&mut *groups, &change);
    drop(groups);
    world.reopen();
    assert_eq!(world.offer(1).ready().number, 3);
    world.expect_mirror(&state);
}

#[test]
fn a_group_that_is_carried_out_twice_gives_the_same() {
    let mut world = World::with_mirror();
    let (state, change) = world.change(3);
    let mut groups = world.offer(1);
    send(&mut *groups, &change);
    drop(groups);
    let spool = world.dir().join("spool").join(world.id().to_string());
    let spooled = fs::read(&spool).unwrap();
    world.reopen();
    world.store = None;
    // A kill before the last batch: all but the row of the mirror is there.
    let path = world.path();
    let opened = Volume::open_mirror(&path).unwrap();
    set_number(&opened, 2);
    drop(opened);
    fs::write(&spool, spooled).unwrap();
    world.reopen();
    assert_eq!(world.store().list()[0].number, 3);
    world.expect_mirror(&state);
}

/// Writes into a mirror which group it has.
fn set_number(volume: &Volume, number: u64) {
    use pelago_store::key::{VolumeRow, volume_row};
    use pelago_store::rows::{MirrorRow, Row as _, Stamp};
    use pelago_store::table::fjall::{self, FjallTable};
    use pelago_store::table::{Batch, Table as _, TableRead as _};
    let table = FjallTable::open_in(volume.table(), fjall::Options::default()).unwrap();
    let key = volume_row(VolumeRow::Mirror);
    let (_, row) = MirrorRow::decode(&table.get(&key).unwrap().unwrap()).unwrap();
    let mut batch = Batch::new();
    batch.put(key, MirrorRow { number, ..row }.encode(Stamp::default()));
    table.write(&batch).unwrap();
    table.close().unwrap();
}

#[test]
fn a_group_that_cannot_be_carried_out_waits_in_the_spool() {
    let mut world = World::with_mirror();
    let (state, change) = world.change(3);
    let mut groups = world.offer(1);
    send(&mut *groups, &change);
    // Something is in the way of a new content file.
    let is_new = |name: &&(InodeId, Generation)| !world.first.content.contains_key(name);
    let (ino, generation) = state.content.keys().find(is_new).unwrap();
    let folder = world.path().join(format!("content/{:02x}", ino.raw() & 0xff));
    let in_the_way = folder.join(format!("{:016x}.{:08x}", ino.raw(), generation.0));
    fs::create_dir_all(&in_the_way).unwrap();
    assert!(groups.carry_out().is_err());
    assert!(groups.take(&GroupPart::Ping.encode().unwrap()).is_err());
    drop(groups);
    assert!(matches!(world.refused(1), OfferRefused::Failed(_)));
    assert!(world.store().list()[0].error.is_some());
    assert!(world.promote().is_err());
    fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(world.offer(1).ready().number, 3);
    assert_eq!(world.store().list()[0].error, None);
    world.expect_mirror(&state);
    assert_eq!(world.promote().unwrap(), 2);
}

/// The two ends over a socket.
#[test]
fn groups_come_from_another_machine() {
    let mut world = World::new();
    let near = PrivateKey::from_seed([1; 32]);
    let far = PrivateKey::from_seed([2; 32]);
    let clients = OwnFile::of(&world.dir().join("clients")).unwrap();
    edit(&clients, |list| list.allow(near.public(), None::<KeyName>, Date::today())).unwrap();
    let store = Arc::new(world.store.take().unwrap());
    let mirrors = Arc::clone(&store) as Arc<dyn Mirrors>;
    let any = "127.0.0.1:0".parse().unwrap();
    let list = Arc::new(ClientList::open(clients).unwrap());
    let server = MirrorServer::start(any, &far, list, mirrors).unwrap();
    let address = ServerAddress::new(far.public(), "127.0.0.1", server.address().port()).unwrap();
    let id = world.id();
    let connect = || MirrorConnection::connect(&near, &address, id.0, 1, RUN);
    let (mut link, ready) = connect().unwrap();
    assert_eq!((ready.number, ready.says), (0, MirrorSays::Ready));
    let mut say = |bodies: &[Vec<u8>]| {
        bodies.iter().for_each(|body| link.send(body).unwrap());
        let said = link.receive().unwrap();
        assert_eq!(said.says, MirrorSays::Safe);
        said.number
    };
    let parts = changes(&State::default(), &world.first);
    assert_eq!(say(&group(1, GroupKind::Copy, &parts)), 1);
    assert_eq!(say(&group(2, GroupKind::Completion, &[])), 2);
    assert_eq!(say(&world.change(3).1), 3);
    let promoted = store.promote(id).unwrap();
    assert_eq!((promoted.number, promoted.cut), (Some(3), Some(CUT)));
    let ping = GroupPart::Ping.encode().unwrap();
    assert!(link.send(&ping).and_then(|()| link.receive()).is_err());
    assert_eq!(connect().unwrap_err(), LinkError::Replaced { reign: 2 });
    expect_served(&promoted.path, &[5; 10_000], Some(&[4; 150_000]));
}

#[test]
fn a_promotion_carries_out_what_is_safe() {
    let world = World::with_mirror();
    let mut groups = world.offer(1);
    send(&mut *groups, &world.change(3).1);
    assert_eq!(world.promote().unwrap(), 2);
    // The connection counts no more.
    assert!(groups.carry_out().is_err());
    assert!(groups.take(&GroupPart::Ping.encode().unwrap()).is_err());
    expect_served(&world.path(), &[5; 10_000], Some(&[4; 150_000]));
}

#[test]
fn a_promotion_that_was_cut_short_is_completed() {
    let mut world = World::with_mirror();
    world.promote().unwrap();
    let format = world.path().join("format");
    // A kill before the format says so.
    let id = world.id().to_string();
    let as_mirror = |bytes: &[u8]| {
        let mut format = pelago_store::volume::Format::decode(bytes).unwrap();
        format.needed_features |= pelago_store::volume::NOT_PRIMARY;
        format.encode()
    };
    let before = as_mirror(&fs::read(&format).unwrap());
    for file in ["format", "format.copy"] {
        fs::write(world.path().join(file), &before).unwrap();
    }
    world.reopen();
    assert_eq!(world.promote().unwrap(), 2);
    // And one before the file beside the mirror was written.
    for file in ["format", "format.copy"] {
        fs::write(world.path().join(file), &before).unwrap();
    }
    fs::remove_file(world.dir().join(format!("spool/{id}.promoted"))).unwrap();
    world.reopen();
    // Its old primary is refused once nothing is missing.
    assert_eq!(world.refused(1), OfferRefused::NotPrimary(2));
    assert!(matches!(world.promote(), Err(MirrorError::Promoted { reign: 2, .. })));
    expect_served(&world.path(), &[1; 300_000], None);
}

#[test]
fn a_group_that_is_given_up_changes_nothing() {
    let mut world = World::with_mirror();
    let mut groups = world.offer(1);
    let (_, change) = world.change(3);
    for body in &change[..change.len() - 1] {
        groups.take(body).unwrap();
    }
    assert_eq!(groups.take(&GroupPart::Abort.encode().unwrap()), Ok(None));
    // The same number may come again.
    assert_eq!(send(&mut *groups, &group(3, GroupKind::Change, &[])), 3);
    groups.carry_out().unwrap();
    drop(groups);
    world.expect_mirror(&world.first.clone());
}

#[test]
fn a_group_that_does_not_fit_ends_the_connection() {
    let mut world = World::with_mirror();
    let (_, change) = world.change(3);
    let mut wrong_sum = change.clone();
    *wrong_sum.last_mut().unwrap() = GroupPart::End { sum: 1 }.encode().unwrap();
    let mut left_out = change.clone();
    left_out.remove(1);
    let seed = GroupPart::File { file: VolumeFile::Seed, bytes: Some(vec![1; 40]) };
    let own = vec![RowChange { key: vec![19, 0, 0, 0, 0, 0, 0, 0, 1], value: None }];
    let bytes = GroupPart::Bytes { offset: 0, bytes: vec![1] };
    let wrong = [
        wrong_sum,
        left_out,
        group(4, GroupKind::Change, &[]),
        group(3, GroupKind::Completion, &[]),
        group(3, GroupKind::Change, &[seed]),
        group(3, GroupKind::Change, &[GroupPart::Rows(own)]),
        group(3, GroupKind::Change, &[bytes]),
        vec![GroupPart::Offer { reign: 1, run: RUN }.encode().unwrap()],
        vec![GroupPart::End { sum: 0 }.encode().unwrap()],
        vec![vec![99]],
    ];
    for (number, bodies) in wrong.iter().enumerate() {
        let mut groups = world.offer(1);
        let failed = bodies.iter().any(|body| groups.take(body).is_err());
        assert!(failed, "{number}");
        assert!(groups.take(&GroupPart::Ping.encode().unwrap()).is_err());
    }
    let mut other_run = world.store().offer(world.primary.id(), 1, [8; 16], Via::Primary).unwrap();
    assert!(other_run.take(&change[0]).is_err());
    drop(other_run);
    world.expect_mirror(&world.first.clone());
}

#[test]
fn a_copy_that_is_not_completed_leaves_the_mirror_as_it_is() {
    let mut world = World::with_mirror();
    let (state, _) = world.change(3);
    let mut groups = world.store().offer(world.primary.id(), 1, [8; 16], Via::Primary).unwrap();
    let parts = changes(&State::default(), &state);
    send(&mut *groups, &group(1, GroupKind::Copy, &parts));
    drop(groups);
    assert!(!world.path().with_extension("copy").exists());
    world.expect_mirror(&world.first.clone());
    // One that is completed takes its place, with what the completion adds.
    let mut groups = world.store().offer(world.primary.id(), 1, [8; 16], Via::Primary).unwrap();
    let first = changes(&State::default(), &world.first);
    send(&mut *groups, &group(1, GroupKind::Copy, &first));
    groups.carry_out().unwrap();
    let completion = group(2, GroupKind::Completion, &changes(&world.first, &state));
    send(&mut *groups, &completion);
    groups.carry_out().unwrap();
    assert!(!world.path().with_extension("copy").exists());
    drop(groups);
    world.expect_mirror(&state);
    assert_eq!(world.promote().unwrap(), 2);
    expect_served(&world.path(), &[5; 10_000], Some(&[4; 150_000]));
}

#[test]
fn a_newer_connection_takes_the_place_of_an_older_one() {
    let world = World::with_mirror();
    let mut older = world.offer(1);
    let mut newer = world.offer(1);
    let change = group(3, GroupKind::Change, &[]);
    assert!(older.take(&change[0]).is_err());
    drop(older);
    assert!(world.store().list()[0].is_connected);
    assert_eq!(send(&mut *newer, &change), 3);
    // A new primary counts more than an old one that comes back.
    let mut next = world.offer(4);
    send_all(&mut *next, 1, &world.first);
    assert_eq!(world.refused(3), OfferRefused::NotPrimary(4));
    assert_eq!(world.promote().unwrap(), 5);
}

#[test]
fn a_folder_has_one_keeper_and_only_its_mirrors_are_promoted() {
    let world = World::new();
    let second = MirrorStore::open(&Folder::open(&world.dir()).unwrap());
    assert!(matches!(second, Err(MirrorError::InUse { .. })));
    assert!(matches!(world.promote(), Err(MirrorError::Missing { .. })));
    let mut groups = world.offer(1);
    assert_eq!(groups.ready().number, 0);
    let parts = changes(&State::default(), &world.first);
    send(&mut *groups, &group(1, GroupKind::Copy, &parts));
    assert!(matches!(world.promote(), Err(MirrorError::Missing { .. })));
    // The copy of another volume.
    let other = VolumeId([9; 16]);
    let mut groups = world.store().offer(other.0, 1, RUN, Via::Primary).unwrap();
    let bodies = group(1, GroupKind::Copy, &parts);
    assert!(bodies.iter().any(|body| groups.take(body).is_err()));
    drop(groups);
    let left: Vec<_> = fs::read_dir(world.dir().join("mirrors")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_file_that_is_gone_takes_its_content_with_it() {
    let mut world = World::with_mirror();
    let (state, change) = world.change(3);
    let mut groups = world.offer(1);
    send(&mut *groups, &change);
    groups.carry_out().unwrap();
    // What the primary does with its orphans after a while.
    let orphan = |key: &[u8]| match Key::parse(key) {
        Some(Key::Orphan { ino }) => Some(ino),
        _ => None,
    };
    let gone: Vec<_> = state.rows.keys().filter_map(|key| orphan(key)).collect();
    assert!(!gone.is_empty());
    let mut later = state.clone();
    for ino in &gone {
        later.rows.remove(&key::orphan(*ino));
        later.rows.remove(&key::inode(*ino));
        later.content.retain(|(of, _), _| of != ino);
    }
    assert!(later.content.len() < state.content.len());
    send(&mut *groups, &group(4, GroupKind::Change, &changes(&state, &later)));
    groups.carry_out().unwrap();
    drop(groups);
    world.store = None;
    let found = state_of(&Volume::open_mirror(&world.path()).unwrap());
    assert_eq!(found.content, later.content);
}

/// The tokens of the primary would be shown by two folders: the mirror is given new ones.
#[test]
fn a_promoted_mirror_shows_no_token_of_its_primary() {
    use pelago_store::key::{VolumeRow, volume_row};
    use pelago_store::rows::{Row as _, SiteTokensRow, Stamp};
    let mut world = World::with_mirror();
    let random = SiteTokensRow::new_random().unwrap();
    let row = SiteTokensRow { held: SiteToken { number: 5, random }, ..SiteTokensRow::default() };
    let key = volume_row(VolumeRow::SiteTokens(1));
    let change = RowChange { key: key.to_vec(), value: Some(row.encode(Stamp::default())) };
    let mut groups = world.offer(1);
    send(&mut *groups, &group(3, GroupKind::Change, &[GroupPart::Rows(vec![change])]));
    groups.carry_out().unwrap();
    drop(groups);
    world.promote().unwrap();
    world.store = None;
    let rows = state_of(&Volume::open(&world.path()).unwrap()).rows;
    let (_, found) = SiteTokensRow::decode(&rows[&key[..]]).unwrap();
    assert_eq!(found, SiteTokensRow::LOST);
}
