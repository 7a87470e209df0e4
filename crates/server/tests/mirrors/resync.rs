//! A mirror that has an older state, of another run of its primary: it is compared, and gets what
//! differs.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_server::{MirrorStore, Offer, Options, Passthrough, Server};
use pelago_store::content::{ContentEntry, ContentStore, FileAccess};
use pelago_store::folder::Folder;
use pelago_store::volume::{Volume, VolumeId};
use pelago_wire::mirror::{
    CloseLink, ComparedBlocks, ComparedRange, GroupKind, GroupPart, GroupState, Groups, LinkError,
    MirrorLink, MirrorSays, Mirrors as _, OfferRefused, Via,
};
use pelago_wire::{Generation, Handle, InodeId, Name, OpenFlags, RenameFlags, Request, SetAttr};

use super::primary::{CUT, State, group, put, state_of};
use super::{RUN, World};
use crate::harness::requests::{self, call, close, create, next_open, unlink, write};
use crate::harness::rig::DEADLINE;

const PEER: &str = "key@mirror:7440";
const MIB: usize = 1 << 20;

/// The messages between a primary and its mirror.
#[derive(Default)]
struct Traffic {
    /// Bytes that were sent to the mirror.
    sent: u64,
    /// Number of questions.
    questions: usize,
    kinds: Vec<GroupKind>,
    /// The mirror is killed once the next group is safe.
    kill: bool,
}

/// A connection to a mirror in this process.
struct Line {
    groups: Box<dyn Groups>,
    answers: VecDeque<GroupState>,
    traffic: Arc<Mutex<Traffic>>,
}

impl MirrorLink for Line {
    fn send(&mut self, body: &[u8]) -> Result<(), LinkError> {
        let mut traffic = self.traffic.lock();
        traffic.sent += body.len() as u64;
        match GroupPart::decode(body).unwrap() {
            GroupPart::Begin { kind, .. } => traffic.kinds.push(kind),
            GroupPart::Compare(_) | GroupPart::Contents(_) | GroupPart::Blocks(_) => {
                traffic.questions += 1;
            }
            _ => {}
        }
        self.answers.extend(self.groups.take(body).map_err(LinkError::Lost)?);
        Ok(())
    }

    fn receive(&mut self) -> Result<GroupState, LinkError> {
        let answer = self.answers.pop_front().expect("an answer to wait for");
        if answer.says == MirrorSays::Safe && self.traffic.lock().kill {
            return Err(LinkError::Lost("the mirror is killed".to_owned()));
        }
        self.groups.carry_out().map_err(LinkError::Lost)?;
        Ok(answer)
    }

    fn closer(&self) -> CloseLink {
        Box::new(|| {})
    }
}

/// A volume and its mirror, of which neither is open.
pub(super) struct Pair {
    temp: tempfile::TempDir,
}

impl Pair {
    pub(super) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("mirrors")).unwrap();
        Self { temp }
    }

    pub(super) fn volume(&self) -> PathBuf {
        self.temp.path().join("volume")
    }

    fn id(&self) -> VolumeId {
        Volume::open(&self.volume()).unwrap().id()
    }

    pub(super) fn mirror(&self) -> PathBuf {
        self.temp.path().join("mirrors/mirrors").join(self.id().to_string())
    }

    /// Serves the volume without its mirror.
    pub(super) fn alone(&self, change: impl FnOnce(&Server)) {
        let server = start(&self.volume());
        change(&server);
        server.stop().unwrap();
    }

    /// Connects a server of the volume with the mirror.
    pub(super) fn connect(&self, server: &Server) {
        let _traffic = self.connect_with(server, false);
    }

    /// Does the same, and records what is sent. With `kill` the mirror is killed once.
    fn connect_with(&self, server: &Server, kill: bool) -> Arc<Mutex<Traffic>> {
        let dir = Folder::open(&self.temp.path().join("mirrors")).unwrap();
        let store = Mutex::new(Some(MirrorStore::open(&dir).unwrap()));
        let traffic = Arc::new(Mutex::new(Traffic { kill, ..Traffic::default() }));
        let shared = Arc::clone(&traffic);
        let connect = move |_: &str, volume: VolumeId, offer: Offer| {
            let mut store = store.lock();
            let mut traffic = shared.lock();
            if traffic.kill && !traffic.kinds.is_empty() {
                traffic.kill = false;
                *store = None;
                *store = Some(MirrorStore::open(&dir).unwrap());
            }
            drop(traffic);
            let offered =
                store.as_ref().unwrap().offer(volume.0, offer.reign, offer.run, Via::Primary);
            let groups = offered.map_err(|error| match error {
                OfferRefused::Failed(why) => LinkError::Lost(why),
                OfferRefused::NotPrimary(reign) => panic!("it is promoted, with reign {reign}"),
            })?;
            let ready = groups.ready();
            let traffic = Arc::clone(&shared);
            let line = Line { groups, answers: VecDeque::new(), traffic };
            Ok((Box::new(line) as Box<dyn MirrorLink>, ready))
        };
        server.set_connect_mirror(Arc::new(connect), Arc::new(|_| {})).unwrap();
        server.set_mirror(PEER).unwrap();
        traffic
    }

    /// Serves the volume until the mirror has all. Returns what was sent.
    fn mirrored(&self, kill: bool, change: impl FnOnce(&Server)) -> Traffic {
        let server = start(&self.volume());
        let traffic = self.connect_with(&server, kill);
        change(&server);
        let commit = server.next_commit().unwrap();
        assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true));
        server.stop().unwrap();
        drop(server);
        std::mem::take(&mut traffic.lock())
    }

    /// Checks that the mirror has the rows and the content of the volume, and no other.
    pub(super) fn expect_equal(&self) -> State {
        let volume = state_of(&Volume::open(&self.volume()).unwrap());
        let mirror = state_of(&Volume::open_mirror(&self.mirror()).unwrap());
        assert!(volume.rows == mirror.rows, "the rows differ");
        let names = |state: &State| state.content.keys().copied().collect::<Vec<_>>();
        assert_eq!(names(&volume), names(&mirror));
        for (name, content) in &volume.content {
            assert!(mirror.content[name] == *content, "{name:?}");
        }
        volume
    }
}

pub(super) fn start(dir: &Path) -> Server {
    let options = Options {
        grace: Duration::ZERO,
        passthrough: Passthrough::Never,
        sync_interval: Duration::from_millis(5),
        ..Options::default()
    };
    Server::start(dir, options).unwrap()
}

/// Makes files of all kinds.
pub(super) fn fill(server: &Server) {
    for number in 0..300 {
        put(server, &format!("small {number}"), &[number as u8; 100]);
    }
    put(server, "large", &noise(5 * MIB));
    put(server, "sparse", &[vec![0; 2 * MIB], noise(MIB), vec![0; MIB]].concat());
    for text in ["removed", "renamed", "shorter", "longer", "replaced", "emptied", "linked"] {
        put(server, text, &noise(200_000));
    }
}

/// Changes some of them, and each in another way.
fn change(server: &Server) {
    put_at(server, "small 7", 3, b"changed");
    unlink(server, Handle::ROOT, "small 8").unwrap();
    put_at(server, "large", 3 * MIB as u64 + 5, &[1; 1000]);
    put_at(server, "sparse", MIB as u64 / 2, &[2; 1000]);
    unlink(server, Handle::ROOT, "removed").unwrap();
    let rename = |from: &str, to: &str| {
        let request = Request::Rename {
            from_dir: Handle::ROOT,
            from: name(from),
            to_dir: Handle::ROOT,
            to: name(to),
            flags: RenameFlags::default(),
        };
        call(server, request, &[]).unwrap();
    };
    rename("renamed", "other name");
    unlink(server, Handle::ROOT, "replaced").unwrap();
    put(server, "replaced", &noise(300_000));
    put_at(server, "longer", 200_000, &noise(2 * MIB));
    put(server, "new", &noise(150_000));
    cut(server, "emptied", 0);
    cut(server, "shorter", 70_000);
}

/// Returns bytes of which no block is another one.
pub(super) fn noise(bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    blake3::Hasher::new().update(&bytes.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub(super) fn put_at(server: &Server, text: &str, offset: u64, bytes: &[u8]) {
    let node = requests::lookup(server, Handle::ROOT, text).unwrap().handle;
    let open = next_open();
    call(server, Request::Open { node, flags: OpenFlags::READ_WRITE, open }, &[]).unwrap();
    write(server, open, offset, bytes).unwrap();
    close(server, open).unwrap();
}

fn cut(server: &Server, text: &str, size: u64) {
    let node = requests::lookup(server, Handle::ROOT, text).unwrap().handle;
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    call(server, Request::SetAttr { node, open: None, set }, &[]).unwrap();
}

#[test]
fn a_mirror_of_an_older_state_gets_what_differs() {
    let pair = Pair::new();
    let first = pair.mirrored(false, fill);
    assert_eq!(first.kinds[..2], [GroupKind::Copy, GroupKind::Completion]);
    pair.expect_equal();
    pair.alone(change);
    let second = pair.mirrored(false, |_| {});
    assert_eq!(second.kinds[0], GroupKind::Resync);
    assert!(!second.kinds.contains(&GroupKind::Copy));
    // A block of "large" and of "sparse", three files, and what is longer.
    assert!(second.sent < 6 * MIB as u64, "{} bytes", second.sent);
    pair.expect_equal();
}

#[test]
fn an_unchanged_volume_costs_a_few_bytes() {
    let pair = Pair::new();
    pair.mirrored(false, fill);
    let second = pair.mirrored(false, |_| {});
    assert_eq!(second.kinds[0], GroupKind::Resync);
    assert!(second.sent < 20_000, "{} bytes", second.sent);
    pair.expect_equal();
}

/// Changes of programs during the comparison are part of the same group.
#[test]
fn a_mirror_is_compared_while_programs_write() {
    let pair = Pair::new();
    pair.mirrored(false, fill);
    pair.alone(change);
    let second = pair.mirrored(false, |server| {
        for round in 0..50 {
            put_at(server, "large", round * 90_000, &[round as u8; 50_000]);
            put(server, &format!("busy {}", round % 7), &noise(100_000 + round as usize));
            unlink(server, Handle::ROOT, &format!("busy {}", round % 7)).unwrap();
        }
        let (_, open) = create(server, Handle::ROOT, "stays").unwrap();
        write(server, open, 0, &noise(MIB)).unwrap();
        close(server, open).unwrap();
    });
    assert_eq!(second.kinds[0], GroupKind::Resync);
    pair.expect_equal();
}

#[test]
fn a_resync_that_is_safe_is_carried_out_after_a_kill() {
    let pair = Pair::new();
    pair.mirrored(false, fill);
    pair.alone(change);
    let second = pair.mirrored(true, |_| {});
    assert!(second.kinds.iter().filter(|kind| **kind == GroupKind::Resync).count() == 1);
    pair.expect_equal();
}

/// Its holes are neither read nor compared.
#[test]
fn a_huge_file_with_holes_is_compared_where_it_has_data() {
    const AT: u64 = 1 << 39;
    let pair = Pair::new();
    pair.mirrored(false, |server| {
        put(server, "huge", &noise(100_000));
        cut(server, "huge", 2 * AT);
        put_at(server, "huge", AT, &noise(100_000));
    });
    pair.alone(|server| put_at(server, "huge", AT + 50_000, &[7; 1000]));
    let second = pair.mirrored(false, |_| {});
    assert_eq!(second.kinds[0], GroupKind::Resync);
    assert!(second.sent < 2 * MIB as u64, "{} bytes", second.sent);
    let volume = Volume::open_mirror(&pair.mirror()).unwrap();
    let content = ContentStore::open_in(volume.content()).unwrap();
    let mut files = Vec::new();
    let listed = content.list(&mut |entry| {
        let ContentEntry::File { ino, generation } = entry else { panic!("{entry:?}") };
        files.push(content.open_file(ino, generation, FileAccess::Read).unwrap().unwrap());
        ControlFlow::Continue(())
    });
    listed.unwrap();
    assert_eq!((files.len(), files[0].stat().unwrap().size), (1, 2 * AT));
    let mut bytes = vec![0; 100_001];
    files[0].read_at(&mut bytes, AT).unwrap();
    assert!(
        bytes == [&noise(100_000)[..50_000], &[7; 1000], &noise(100_000)[51_000..], &[0]].concat()
    );
}

/// The mirror has many rows where the volume has none any more.
#[test]
fn a_large_directory_that_was_removed_goes_from_the_mirror() {
    let pair = Pair::new();
    let files = 25_000;
    pair.mirrored(false, |server| {
        for number in 0..files {
            let (_, open) = create(server, Handle::ROOT, &format!("file {number}")).unwrap();
            if number % 1000 == 0 {
                write(server, open, 0, &noise(100_000 + number)).unwrap();
            }
            close(server, open).unwrap();
        }
        put(server, "stays", b"bytes");
    });
    pair.alone(|server| {
        for number in 0..files {
            unlink(server, Handle::ROOT, &format!("file {number}")).unwrap();
        }
    });
    let second = pair.mirrored(false, |_| {});
    assert_eq!(second.kinds[0], GroupKind::Resync);
    assert!(pair.expect_equal().content.is_empty());
}

/// More rows than are compared together, in ranges that begin and end anywhere.
#[test]
fn a_volume_of_many_rows_is_compared_in_ranges() {
    let pair = Pair::new();
    let files = 70_000;
    pair.mirrored(false, |server| {
        for number in 0..files {
            let (_, open) = create(server, Handle::ROOT, &format!("file {number}")).unwrap();
            close(server, open).unwrap();
        }
    });
    pair.alone(|server| {
        for number in (0..files).step_by(9001) {
            unlink(server, Handle::ROOT, &format!("file {number}")).unwrap();
        }
        put(server, "one more", b"bytes");
    });
    let second = pair.mirrored(false, |_| {});
    assert_eq!(second.kinds[0], GroupKind::Resync);
    assert!(second.questions < 40, "{} questions", second.questions);
    assert!(second.sent < 300_000, "{} bytes", second.sent);
    pair.expect_equal();
}

#[test]
fn a_question_belongs_to_a_resync() {
    let world = World::with_mirror();
    for question in [
        GroupPart::Compare(vec![ComparedRange { from: vec![], until: vec![], hash: [0; 32] }]),
        GroupPart::Contents(vec![(InodeId::ROOT, Generation::FIRST)]),
        GroupPart::Blocks(ComparedBlocks {
            ino: InodeId::ROOT,
            generation: Generation::FIRST,
            first: u64::from(u32::MAX),
            hashes: vec![[0; 32]],
        }),
    ] {
        let body = question.encode().unwrap();
        let mut groups = world.offer(1);
        assert!(groups.take(&body).unwrap_err().contains("outside of a resync"), "{question:?}");
        let mut groups = world.offer(1);
        let begin = GroupPart::Begin { number: 9, kind: GroupKind::Resync, cut: CUT };
        assert_eq!(groups.take(&begin.encode().unwrap()), Ok(None));
        let says = groups.take(&body).unwrap().unwrap().says;
        assert_eq!(says, MirrorSays::Differ(vec![true]), "{question:?}");
    }
}

#[test]
fn a_mirror_without_a_state_takes_no_resync() {
    let world = World::new();
    let begin = &group(1, GroupKind::Resync, &[])[0];
    let refused = world.offer(1).take(begin).unwrap_err();
    assert!(refused.contains("a mirror that is not here"), "{refused}");
    assert_eq!(world.offer(1).ready().run, [0; 16]);
    assert_ne!(RUN, [0; 16]);
}
