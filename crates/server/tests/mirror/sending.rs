//! The state of a mirror while programs change the volume and connections fail.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pelago_server::{MirrorPhase, Options, Passthrough, Server, SetMirrorError};
use pelago_store::key;
use pelago_store::table::TableRead;
use pelago_store::table::fjall::FjallTable;
use pelago_wire::mirror::{GroupKind, VolumeFile};
use pelago_wire::{Code, Name, OpenFlags, Reply, Request, SetAttr};

use super::image::{Image, Line, Place, ROOT};
use crate::harness::requests::{call, close, create, lookup, next_open, put, unlink, write};
use crate::harness::rig::DEADLINE;

const PEER: &str = "key@mirror:7440";
/// More than is kept in the table.
const LARGE: usize = 200_000;
/// A little more.
const FEW: usize = 20_000;

/// A server with a mirror in memory.
pub(super) struct World {
    pub(super) server: Server,
    pub(super) place: Arc<Mutex<Place>>,
    /// The reign of the primary that has replaced it.
    replaced: Arc<AtomicU64>,
    folder: tempfile::TempDir,
}

pub(super) fn options() -> Options {
    Options {
        grace: Duration::ZERO,
        passthrough: Passthrough::Never,
        sync_interval: Duration::from_millis(5),
        ..Options::default()
    }
}

impl World {
    fn new() -> Self {
        Self::with(options())
    }

    /// Returns a server with these options, and its mirror.
    pub(super) fn with(options: Options) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let world = Self::start_with(folder, Arc::default(), options);
        world.server.set_mirror(PEER).unwrap();
        world
    }

    fn start(folder: tempfile::TempDir, place: Arc<Mutex<Place>>) -> Self {
        Self::start_with(folder, place, options())
    }

    fn start_with(folder: tempfile::TempDir, place: Arc<Mutex<Place>>, options: Options) -> Self {
        let server = Server::start(&folder.path().join("v"), options).unwrap();
        let replaced = Arc::new(AtomicU64::new(0));
        let to = Arc::clone(&place);
        let told = Arc::clone(&replaced);
        let connect = Arc::new(move |peer: &str, _, offer: pelago_server::Offer| {
            assert_eq!(peer, PEER);
            let (line, mut ready) = Line::connect(&to, offer.reign)?;
            if to.lock().number == 0 {
                ready.run = [0; 16];
                to.lock().run = offer.run;
            }
            to.lock().offered = offer.run;
            Ok((line, ready))
        });
        let on_replaced = Arc::new(move |reign| told.store(reign, Ordering::Release));
        server.set_connect_mirror(connect, on_replaced).unwrap();
        Self { server, place, replaced, folder }
    }

    /// Waits until the mirror has all that is done, and returns what it has.
    pub(super) fn mirrored(&self) -> Image {
        let commit = self.server.next_commit().unwrap();
        assert_eq!(self.server.wait_for_mirror(commit, DEADLINE), Ok(true));
        self.place.lock().image.clone()
    }

    fn put(&self, text: &str, bytes: &[u8]) {
        put(&self.server, ROOT, text, bytes).unwrap();
    }

    fn kinds(&self) -> Vec<GroupKind> {
        self.place.lock().kinds.clone()
    }
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn until(what: &str, condition: impl Fn() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "{what}");
        // Another thread makes it true.
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_mirror_has_what_was_there_and_what_changes() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::start(folder, Arc::default());
    world.put("small", b"before");
    world.put("large", &[1; LARGE]);
    assert_eq!(world.server.mirror(), None);
    world.server.set_mirror(PEER).unwrap();
    let names = world.mirrored().names();
    assert_eq!(names["small"], b"before");
    assert!(names["large"] == [1; LARGE]);
    assert_eq!(world.kinds()[..2], [GroupKind::Copy, GroupKind::Completion]);
    world.put("new", b"after");
    unlink(&world.server, ROOT, "small").unwrap();
    let (_, open) = create(&world.server, ROOT, "more").unwrap();
    write(&world.server, open, 0, &[2; LARGE]).unwrap();
    let image = world.mirrored();
    let names = image.names();
    assert_eq!(names.keys().collect::<Vec<_>>(), ["large", "more", "new"]);
    assert!(names["more"] == [2; LARGE], "of a file that is open too");
    assert!(world.kinds()[2..].iter().all(|kind| *kind == GroupKind::Change));
    let keys = b"# names\n".to_vec();
    std::fs::write(world.folder.path().join("v/keys"), &keys).unwrap();
    world.put("last", b"");
    until("the file has come", || {
        world.mirrored().files.get(&VolumeFile::Keys) == Some(&Some(keys.clone()))
    });
    assert!(image.files[&VolumeFile::Format].is_some() && image.files[&VolumeFile::Seed].is_some());
    let status = world.server.mirror().unwrap();
    assert_eq!(status.phase, MirrorPhase::Follows);
    assert!(status.as_of.is_some());
    close(&world.server, open).unwrap();
}

/// All rows but those that stay, and all content, are equal after a clean stop.
#[test]
fn a_mirror_of_a_server_that_stopped_has_all_its_rows() {
    let world = World::new();
    world.mirrored();
    for number in 0..100 {
        world.put(&format!("f{number}"), &vec![number; 40 * usize::from(number)]);
    }
    for number in (0..100).step_by(3) {
        unlink(&world.server, ROOT, &format!("f{number}")).unwrap();
    }
    world.server.stop().unwrap();
    let image = world.place.lock().image.clone();
    let dir = world.folder.path().join("v");
    let volume = pelago_store::volume::Volume::open(&dir).unwrap();
    let table = FjallTable::open_in(volume.table(), Default::default()).unwrap();
    let mut rows = BTreeMap::new();
    let visit = &mut |row_key: &[u8], value: &[u8]| {
        if key::is_mirrored(row_key) {
            rows.insert(row_key.to_vec(), value.to_vec());
        }
        ControlFlow::Continue(())
    };
    table.scan(&[], &[], visit).unwrap();
    assert_eq!(image.rows.keys().collect::<Vec<_>>(), rows.keys().collect::<Vec<_>>());
    let differ = rows.iter().filter(|(row_key, value)| image.rows.get(*row_key) != Some(value));
    assert_eq!(differ.map(|(row_key, _)| row_key).collect::<Vec<_>>(), [&[0; 0]; 0]);
    table.close().unwrap();
}

/// Execution 2 and others: programs change files one after the other, and at each group the mirror
/// has a prefix of what each has done.
#[test]
fn each_group_is_one_moment_of_the_volume() {
    const PROGRAMS: usize = 3;
    let world = World::new();
    world.mirrored();
    let groups = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&groups);
    world.place.lock().check = Some(Box::new(move |image| {
        seen.fetch_add(1, Ordering::Relaxed);
        let names = image.names();
        for program in 0..PROGRAMS {
            expect_prefix(&names, program);
        }
    }));
    thread::scope(|scope| {
        for program in 0..PROGRAMS {
            let server = &world.server;
            scope.spawn(move || steps(server, program));
        }
    });
    world.mirrored();
    assert!(groups.load(Ordering::Relaxed) > 10, "{groups:?} groups");
}

/// In step `n` the file is written with `n` in each byte, then the name of `n` is made, and that of
/// `n - 2` is taken away.
fn steps(server: &Server, program: usize) {
    let (_, open) = create(server, ROOT, &format!("bytes-{program}")).unwrap();
    for step in 0..250_u8 {
        let length = if program == 0 { 2000 } else { FEW };
        write(server, open, 0, &vec![step; length]).unwrap();
        if program == 2 {
            let handle = lookup(server, ROOT, "bytes-2").unwrap().handle;
            let set = SetAttr { size: Some(FEW as u64 + u64::from(step)), ..SetAttr::default() };
            call(server, Request::SetAttr { node: handle, open: None, set }, &[]).unwrap();
        }
        if program == 0 {
            call(server, Request::Flush { open, owner: None }, &[]).unwrap();
        }
        put(server, ROOT, &format!("step-{program}-{step:03}"), &[]).unwrap();
        // So that a group is cut now and then.
        thread::sleep(Duration::from_millis(2));
        if let Some(old) = step.checked_sub(2) {
            unlink(server, ROOT, &format!("step-{program}-{old:03}")).unwrap();
        }
    }
    close(server, open).unwrap();
}

fn expect_prefix(names: &BTreeMap<String, Vec<u8>>, program: usize) {
    let prefix = format!("step-{program}-");
    let steps: Vec<u8> = names
        .keys()
        .filter_map(|name| name.strip_prefix(&prefix))
        .map(|number| number.parse().unwrap())
        .collect();
    assert!(steps.len() <= 3, "{steps:?}");
    assert!(steps.windows(2).all(|pair| pair[1] == pair[0] + 1), "{steps:?}");
    let Some(last) = steps.last() else { return };
    let bytes = &names[&format!("bytes-{program}")];
    let least = bytes.iter().filter(|byte| **byte != 0 || *last == 0).min().unwrap();
    let most = bytes.iter().max().unwrap();
    assert!(*least >= *last && *most <= last + 1, "program {program}: {least} to {most}, {last}");
    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
    assert!(*last == 0 || zeros <= usize::from(last + 1), "{zeros} zeros after step {last}");
}

#[test]
fn a_connection_that_is_lost_goes_on_where_it_was() {
    let world = World::new();
    world.put("one", b"1");
    world.mirrored();
    let before = world.kinds().len();
    for round in 0..5 {
        {
            let mut place = world.place.lock();
            match round % 3 {
                0 => place.cut_next = true,
                1 => place.lose_answer = true,
                _ => place.is_full = true,
            }
        }
        world.put(&format!("round-{round}"), &[round; LARGE]);
        let names = world.mirrored().names();
        assert!(names[&format!("round-{round}")] == [round; LARGE]);
    }
    let since = world.kinds().split_off(before);
    assert!(since.iter().all(|kind| *kind == GroupKind::Change), "{since:?}");
}

/// What changes while the mirror is away is sent once it is back.
#[test]
fn a_mirror_that_was_away_gets_what_changed() {
    let world = World::new();
    world.put("one", b"1");
    world.mirrored();
    {
        let mut place = world.place.lock();
        place.is_away = true;
        place.cut_next = true;
    }
    world.put("two", &[2; LARGE]);
    let commit = world.server.next_commit().unwrap();
    assert_eq!(world.server.wait_for_mirror(commit, Duration::from_millis(300)), Ok(false));
    let status = world.server.mirror().unwrap();
    assert!(status.bytes_at_risk >= LARGE as u64, "{status:?}");
    assert!(status.time_at_risk > Duration::from_millis(200), "{status:?}");
    until("the mirror is missed", || {
        matches!(world.server.mirror().unwrap().phase, MirrorPhase::Connecting { problem: Some(_) })
    });
    world.place.lock().is_away = false;
    assert!(world.mirrored().names()["two"] == [2; LARGE]);
    let copies = world.kinds().iter().filter(|kind| **kind == GroupKind::Copy).count();
    assert_eq!(copies, 1, "not all again");
    until("nothing is at risk", || world.server.mirror().unwrap().time_at_risk == Duration::ZERO);
}

/// A restart forgets what has changed, and finds it by comparing.
#[test]
fn a_primary_that_was_started_again_sends_what_differs() {
    let world = World::new();
    world.put("one", &[1; LARGE]);
    world.mirrored();
    let World { server, place, folder, .. } = world;
    drop(server);
    place.lock().kinds.clear();
    let world = World::start(folder, place);
    world.put("two", b"2");
    let names = world.mirrored().names();
    assert_eq!(names.keys().collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(world.kinds()[0], GroupKind::Resync);
    assert!(!world.kinds().contains(&GroupKind::Copy));
}

#[test]
fn a_primary_whose_mirror_was_promoted_is_stopped_for_ever() {
    let world = World::new();
    world.put("one", b"1");
    world.mirrored();
    {
        let mut place = world.place.lock();
        place.reign = 2;
        place.cut_next = true;
    }
    world.put("two", b"2");
    until("the server is told", || world.replaced.load(Ordering::Acquire) == 2);
    world.server.stop().unwrap();
    let again = Server::start(&world.folder.path().join("v"), options()).map(drop).unwrap_err();
    assert!(again.to_string().contains("is not the primary of its volume"), "{again}");
}

#[test]
fn a_volume_that_cannot_have_a_mirror_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let start =
        |text: &str, options: Options| Server::start(&folder.path().join(text), options).unwrap();
    let auto = start("auto", Options { passthrough: Passthrough::Auto, ..options() });
    assert_eq!(auto.set_mirror(PEER), Err(SetMirrorError::Passthrough));
    assert_eq!(auto.next_commit(), Err(Code::NotSupported.into()));
    let world = World::new();
    assert_eq!(world.server.set_mirror("other"), Err(SetMirrorError::Another(PEER.to_owned())));
    assert_eq!(world.server.set_mirror(PEER), Ok(()), "it is that one");
    let plain = start("plain", options());
    assert_eq!(plain.set_mirror(""), Err(SetMirrorError::Address));
    drop(world);
    let read_only = start("auto2", options());
    read_only.stop().unwrap();
    let read_only = start("auto2", Options { read_only: true, ..options() });
    assert_eq!(read_only.set_mirror(PEER), Err(SetMirrorError::ReadOnly));
}

/// What a program has written into an open small file is in memory only: a wait that begins after
/// the group commit has written such files, and before it cuts, is not answered by that cut.
#[test]
fn a_wait_has_what_was_written_before() {
    let world = World::new();
    let (_, open) = create(&world.server, ROOT, "counter").unwrap();
    world.mirrored();
    for round in 1..300_u32 {
        write(&world.server, open, 0, &round.to_le_bytes()).unwrap();
        let bytes = world.mirrored().names()["counter"].clone();
        assert_eq!(bytes, round.to_le_bytes());
    }
    close(&world.server, open).unwrap();
}

/// A program that overwrites a large file all the time holds up nothing.
#[test]
fn a_busy_file_does_not_hold_up_the_mirror() {
    let world = World::new();
    let (_, open) = create(&world.server, ROOT, "busy").unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut round = 0_u64;
            while !is_over.load(Ordering::Acquire) {
                let bytes = vec![round as u8; 1 << 20];
                write(&world.server, open, (round % 64) << 20, &bytes).unwrap();
                round += 1;
            }
        });
        for round in 0..10 {
            world.put(&format!("small-{round}"), b"bytes");
            let names = world.mirrored().names();
            assert_eq!(names[&format!("small-{round}")], b"bytes");
        }
        is_over.store(true, Ordering::Release);
    });
    close(&world.server, open).unwrap();
}

/// Files that are removed before a group is read are read all the same, or are in none.
#[test]
fn files_that_come_and_go_are_no_obstacle() {
    let world = World::new();
    world.mirrored();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..300 {
                let text = format!("temporary-{number}");
                put(&world.server, ROOT, &text, &[9; FEW]).unwrap();
                unlink(&world.server, ROOT, &text).unwrap();
                // So that the disk does not fill up with them.
                thread::sleep(Duration::from_millis(1));
            }
            is_over.store(true, Ordering::Release);
        });
        for number in (0..=255).cycle() {
            if is_over.load(Ordering::Acquire) {
                break;
            }
            unlink(&world.server, ROOT, &format!("kept-{number}")).ok();
            world.put(&format!("kept-{number}"), &[number; LARGE]);
            let names = world.mirrored().names();
            assert!(names[&format!("kept-{number}")] == [number; LARGE]);
        }
    });
}

/// A file that is open without a name is no reason for a failure, and its bytes go with it.
#[test]
fn a_file_without_a_name_is_mirrored_until_it_ends() {
    let world = World::new();
    let (entry, open) = create(&world.server, ROOT, "f").unwrap();
    write(&world.server, open, 0, &[4; LARGE]).unwrap();
    unlink(&world.server, ROOT, "f").unwrap();
    let image = world.mirrored();
    assert!(image.contents.keys().any(|(ino, _)| *ino == entry.handle.ino));
    close(&world.server, open).unwrap();
    until("its rows are gone", || {
        let image = world.mirrored();
        image.rows.keys().all(|row_key| *row_key != key::orphan(entry.handle.ino))
    });
    let reopened = Request::Open { node: entry.handle, open: next_open(), flags: OpenFlags::READ };
    let gone: Result<Reply, Code> = call(&world.server, reopened, &[]);
    assert_eq!(gone.unwrap_err(), Code::Stale);
    let renamed = Request::Lookup { dir: ROOT, name: name("f") };
    assert_eq!(call(&world.server, renamed, &[]).unwrap_err(), Code::NotFound);
}
