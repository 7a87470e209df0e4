//! A volume and its mirror, each in a folder, and a line between them that fails on demand.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_server::{MirrorStore, Offer, Options, Passthrough, Server};
use pelago_store::folder::Folder;
use pelago_store::key;
use pelago_store::volume::{Volume, VolumeId};
use pelago_wire::mirror::{
    CloseLink, GroupKind, GroupPart, GroupState, Groups, LinkError, MirrorLink, MirrorSays,
    Mirrors as _, OfferRefused, Via,
};
use pelago_wire::{Handle, InodeId, OpenFlags, Request, SetAttr};

use super::primary::{State, put, state_of};
use crate::harness::requests::{self, call, close, next_open, write};
use crate::harness::rig::DEADLINE;

pub(super) const PEER: &str = "key@mirror:7440";
/// The key of each run.
pub(super) const RELAY_KEY: [u8; 32] = [3; 32];
pub(super) const MIB: usize = 1 << 20;

/// An event on the line between a primary and its mirror.
pub(super) enum Event<'a> {
    /// The primary connects.
    Connects,
    /// It sends a part.
    Sends(&'a GroupPart),
}

/// The consequence of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Arrives,
    /// The connection is lost before the mirror has it.
    IsLost,
    /// The connection is lost before the primary has the answer, and before the mirror has carried
    /// out a group.
    AnswerIsLost,
    /// The mirror is killed and started before the primary is connected.
    KillsMirror,
}

/// Decides what an event leads to.
pub(super) type Decide = Box<dyn FnMut(Event<'_>) -> Fate + Send>;

/// The messages between a primary and its mirror.
#[derive(Default)]
pub(super) struct Traffic {
    /// Bytes that were sent to the mirror.
    pub(super) sent: u64,
    /// Number of questions.
    pub(super) questions: usize,
    pub(super) kinds: Vec<GroupKind>,
}

/// A connection to a mirror in this process.
struct Line {
    groups: Box<dyn Groups>,
    answers: VecDeque<GroupState>,
    traffic: Arc<Mutex<Traffic>>,
    decide: Arc<Mutex<Decide>>,
}

impl MirrorLink for Line {
    fn send(&mut self, body: &[u8]) -> Result<(), LinkError> {
        let part = GroupPart::decode(body).unwrap();
        let mut traffic = self.traffic.lock();
        traffic.sent += body.len() as u64;
        match part {
            GroupPart::Begin { kind, .. } => traffic.kinds.push(kind),
            GroupPart::Compare(_) | GroupPart::Contents(_) | GroupPart::Blocks(_) => {
                traffic.questions += 1;
            }
            _ => {}
        }
        drop(traffic);
        if part == GroupPart::RelayKey {
            let says = MirrorSays::RelayKey(RELAY_KEY);
            self.answers.push_back(GroupState { says, ..self.groups.ready() });
            return Ok(());
        }
        let fate = (self.decide.lock())(Event::Sends(&part));
        if fate != Fate::IsLost {
            self.answers.extend(self.groups.take(body).map_err(LinkError::Lost)?);
        }
        match fate {
            Fate::Arrives | Fate::KillsMirror => Ok(()),
            Fate::IsLost | Fate::AnswerIsLost => Err(lost()),
        }
    }

    fn receive(&mut self) -> Result<GroupState, LinkError> {
        let answer = self.answers.pop_front().expect("an answer to wait for");
        self.groups.carry_out().map_err(LinkError::Lost)?;
        Ok(answer)
    }

    fn closer(&self) -> CloseLink {
        Box::new(|| {})
    }
}

fn lost() -> LinkError {
    LinkError::Lost("the line is cut".to_owned())
}

/// Kills the mirror once its first group is safe, and before that is carried out.
pub(super) fn killed_once_safe() -> Decide {
    let mut is_safe = false;
    Box::new(move |event| match event {
        Event::Sends(GroupPart::End { .. }) if !is_safe => {
            is_safe = true;
            Fate::AnswerIsLost
        }
        Event::Connects if is_safe => Fate::KillsMirror,
        Event::Connects | Event::Sends(_) => Fate::Arrives,
    })
}

/// The process that keeps the mirrors of a folder.
pub(super) struct Keeper {
    dir: Folder,
    pub(super) store: Mutex<Option<MirrorStore>>,
    decide: Arc<Mutex<Decide>>,
}

/// Starts to keep the mirrors of a folder.
pub(super) fn keeper(dir: &Path, decide: Decide) -> Arc<Keeper> {
    keeper_with(dir, Arc::new(Mutex::new(decide)))
}

fn keeper_with(dir: &Path, decide: Arc<Mutex<Decide>>) -> Arc<Keeper> {
    let dir = Folder::open(dir).unwrap();
    let store = Mutex::new(Some(MirrorStore::open(&dir).unwrap()));
    Arc::new(Keeper { dir, store, decide })
}

/// Connects a server with a mirror, and records what is sent.
pub(super) fn connect_to(
    server: &Server,
    keeper: &Arc<Keeper>,
    on_replaced: impl Fn(u64) + Send + Sync + 'static,
) -> Arc<Mutex<Traffic>> {
    let traffic = set_connect(server, keeper, on_replaced);
    server.set_mirror(PEER).unwrap();
    traffic
}

/// Gives a server the way to a mirror. Returns what is sent.
pub(super) fn set_connect(
    server: &Server,
    keeper: &Arc<Keeper>,
    on_replaced: impl Fn(u64) + Send + Sync + 'static,
) -> Arc<Mutex<Traffic>> {
    let traffic = Arc::new(Mutex::new(Traffic::default()));
    let shared = Arc::clone(&traffic);
    let keeper = Arc::clone(keeper);
    let connect = move |_: &str, volume: VolumeId, offer: Offer| {
        let mut store = keeper.store.lock();
        match (keeper.decide.lock())(Event::Connects) {
            Fate::Arrives => {}
            Fate::IsLost | Fate::AnswerIsLost => return Err(lost()),
            Fate::KillsMirror => {
                *store = None;
                *store = Some(MirrorStore::open(&keeper.dir).unwrap());
            }
        }
        let offered = store.as_ref().unwrap().offer(volume.0, offer.reign, offer.run, Via::Primary);
        let groups = offered.map_err(|error| match error {
            OfferRefused::Failed(why) => LinkError::Lost(why),
            OfferRefused::NotPrimary(reign) => LinkError::Replaced { reign },
        })?;
        let ready = groups.ready();
        let traffic = Arc::clone(&shared);
        let decide = Arc::clone(&keeper.decide);
        let line = Line { groups, answers: VecDeque::new(), traffic, decide };
        Ok((Box::new(line) as Box<dyn MirrorLink>, ready))
    };
    server.set_connect_mirror(Arc::new(connect), Arc::new(on_replaced)).unwrap();
    traffic
}

/// Checks that a mirror has the rows and the content of its volume, and no other.
pub(super) fn expect_equal(volume: &Path, mirror: &Path) -> State {
    let mut volume = state_of(&Volume::open_mirror(volume).unwrap());
    let mirror = state_of(&Volume::open_mirror(mirror).unwrap());
    // The content of a removed file goes sooner at a mirror than at its primary.
    let is_removed = |ino: InodeId| volume.rows.contains_key(key::orphan(ino).as_slice());
    volume.content.retain(|(ino, generation), _| {
        !is_removed(*ino) || mirror.content.contains_key(&(*ino, *generation))
    });
    assert!(volume.rows == mirror.rows, "the rows differ");
    let names = |state: &State| state.content.keys().copied().collect::<Vec<_>>();
    assert_eq!(names(&volume), names(&mirror));
    for (name, content) in &volume.content {
        assert!(mirror.content[name] == *content, "{name:?}");
    }
    volume
}

/// A volume and its mirror, of which neither is open.
pub(super) struct Pair {
    pub(super) temp: tempfile::TempDir,
    decide: Arc<Mutex<Decide>>,
}

impl Pair {
    pub(super) fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("mirrors")).unwrap();
        Self { temp, decide: Arc::new(Mutex::new(Box::new(|_| Fate::Arrives))) }
    }

    /// Has this function decide what happens on the line.
    pub(super) fn decide(&self, decide: impl FnMut(Event<'_>) -> Fate + Send + 'static) {
        *self.decide.lock() = Box::new(decide);
    }

    /// Returns the folder of the server of the mirror.
    pub(super) fn mirrors(&self) -> PathBuf {
        self.temp.path().join("mirrors")
    }

    pub(super) fn volume(&self) -> PathBuf {
        self.temp.path().join("volume")
    }

    pub(super) fn id(&self) -> VolumeId {
        Volume::open(&self.volume()).unwrap().id()
    }

    pub(super) fn mirror(&self) -> PathBuf {
        self.mirrors().join("mirrors").join(self.id().to_string())
    }

    /// Serves the volume without its mirror.
    pub(super) fn alone(&self, change: impl FnOnce(&Server)) {
        let server = start(&self.volume());
        change(&server);
        server.stop().unwrap();
    }

    /// Connects a server of the volume with the mirror.
    pub(super) fn connect(&self, server: &Server) {
        let _traffic = self.record(server);
    }

    /// Does the same, and records what is sent.
    fn record(&self, server: &Server) -> Arc<Mutex<Traffic>> {
        let keeper = self.keep();
        connect_to(server, &keeper, |_| {})
    }

    /// Starts the process that keeps the mirror.
    pub(super) fn keep(&self) -> Arc<Keeper> {
        keeper_with(&self.mirrors(), Arc::clone(&self.decide))
    }

    /// Serves the volume until the mirror has all. Returns what was sent.
    pub(super) fn mirrored(&self, change: impl FnOnce(&Server)) -> Traffic {
        let server = start(&self.volume());
        let traffic = self.record(&server);
        change(&server);
        let commit = server.next_commit().unwrap();
        assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true));
        server.stop().unwrap();
        drop(server);
        std::mem::take(&mut traffic.lock())
    }

    /// Serves the volume with its mirror, and calls `act` when the mirror has all.
    pub(super) fn served<T>(&self, act: impl FnOnce(&Server) -> T) -> T {
        let server = start(&self.volume());
        self.connect(&server);
        let commit = server.next_commit().unwrap();
        assert_eq!(server.wait_for_mirror(commit, DEADLINE), Ok(true));
        let result = act(&server);
        // It may have stopped.
        let _stopped = server.stop();
        result
    }

    /// Checks that the mirror has the rows and the content of the volume, and no other.
    pub(super) fn expect_equal(&self) -> State {
        expect_equal(&self.volume(), &self.mirror())
    }
}

/// Returns the paths of the content files of a volume or mirror, the largest first.
pub(super) fn contents(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut dirs = vec![dir.join("content")];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            match entry.file_type().unwrap().is_dir() {
                true => dirs.push(entry.path()),
                false => files.push(entry.path()),
            }
        }
    }
    files.sort_by_key(|path| std::cmp::Reverse(std::fs::metadata(path).unwrap().len()));
    files
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

/// Returns bytes of which no block is another one.
pub(super) fn noise(bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    blake3::Hasher::new().update(&bytes.to_le_bytes()).finalize_xof().fill(&mut out);
    out
}

pub(super) fn put_at(server: &Server, text: &str, offset: u64, bytes: &[u8]) {
    let node = requests::lookup(server, Handle::ROOT, text).unwrap().handle;
    let open = next_open();
    call(server, Request::Open { node, flags: OpenFlags::READ_WRITE, open }, &[]).unwrap();
    write(server, open, offset, bytes).unwrap();
    close(server, open).unwrap();
}

pub(super) fn cut(server: &Server, text: &str, size: u64) {
    let node = requests::lookup(server, Handle::ROOT, text).unwrap().handle;
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    call(server, Request::SetAttr { node, open: None, set }, &[]).unwrap();
}
