//! A primary, and the groups that bring a mirror from one of its states to another.

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pelago_server::{Options, Server};
use pelago_store::content::{ContentEntry, ContentStore, FileAccess};
use pelago_store::key::{Key, VolumeRow};
use pelago_store::spool::GroupSum;
use pelago_store::table::TableRead as _;
use pelago_store::table::fjall::{self, FjallTable};
use pelago_store::volume::Volume;
use pelago_wire::mirror::{GroupKind, GroupPart, Groups, MirrorSays, RowChange, VolumeFile};
use pelago_wire::{Code, Generation, Handle, InodeId, OpenFlags, Reply, Request, Time};

use crate::harness::requests::{self, call, lookup, next_open};

/// The time of each group.
pub(crate) const CUT: Time = Time { seconds: 77, nanos: 0 };

/// A content file, and its time.
pub(crate) type Content = (Vec<u8>, Time);

/// What a volume has that a mirror gets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) rows: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(crate) content: BTreeMap<(InodeId, Generation), Content>,
    pub(crate) format: Vec<u8>,
    pub(crate) seed: Vec<u8>,
}

pub(crate) struct Primary {
    pub(crate) dir: PathBuf,
}

impl Primary {
    pub(crate) fn new(dir: &Path) -> Self {
        Server::start(dir, Options::default()).unwrap().stop().unwrap();
        Self { dir: dir.to_owned() }
    }

    pub(crate) fn id(&self) -> [u8; 16] {
        Volume::open(&self.dir).unwrap().id().0
    }

    /// Lets a server change the volume. Returns what it has then.
    pub(crate) fn change(&self, change: impl FnOnce(&Server)) -> State {
        let server = Server::start(&self.dir, Options::default()).unwrap();
        change(&server);
        server.stop().unwrap();
        drop(server);
        self.state()
    }

    pub(crate) fn state(&self) -> State {
        state_of(&Volume::open(&self.dir).unwrap())
    }
}

/// Returns what an open volume has; a row of a session or of the volume's role is left out.
pub(crate) fn state_of(volume: &Volume) -> State {
    let mut state = State {
        format: fs::read(volume.dir().join("format")).unwrap(),
        seed: fs::read(volume.table_dir().join("seed")).unwrap(),
        ..State::default()
    };
    let table = FjallTable::open_in(volume.table(), fjall::Options::default()).unwrap();
    let scanned = table.scan(&[], &[], &mut |key, value| {
        let is_own = matches!(
            Key::parse(key),
            Some(
                Key::CachedReply { .. }
                    | Key::Session { .. }
                    | Key::Volume { row: VolumeRow::Mirror }
            )
        );
        if !is_own {
            state.rows.insert(key.to_vec(), value.to_vec());
        }
        ControlFlow::Continue(())
    });
    scanned.unwrap();
    let content = ContentStore::open_in(volume.content()).unwrap();
    let listed = content.list(&mut |entry| {
        let ContentEntry::File { ino, generation } = entry else { panic!("{entry:?}") };
        let file = content.open_file(ino, generation, FileAccess::Read).unwrap().unwrap();
        let stat = file.stat().unwrap();
        let mut bytes = vec![0; stat.size as usize];
        assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
        state.content.insert((ino, generation), (bytes, stat.mtime));
        ControlFlow::Continue(())
    });
    listed.unwrap();
    state
}

/// Returns the parts between `Begin` and `End` that make `to` of `from`.
pub(crate) fn changes(from: &State, to: &State) -> Vec<GroupPart> {
    let mut parts = Vec::new();
    let file = |file, bytes: &Vec<u8>| GroupPart::File { file, bytes: Some(bytes.clone()) };
    if from.format != to.format {
        parts.push(file(VolumeFile::Format, &to.format));
    }
    if from.seed != to.seed {
        parts.push(file(VolumeFile::Seed, &to.seed));
    }
    for ((ino, generation), (bytes, mtime)) in &to.content {
        if from.content.get(&(*ino, *generation)) == Some(&(bytes.clone(), *mtime)) {
            continue;
        }
        let size = bytes.len() as u64;
        let mtime = *mtime;
        parts.push(GroupPart::Content { ino: *ino, generation: *generation, size, mtime });
        for (number, piece) in bytes.chunks(64 << 10).enumerate() {
            let offset = number as u64 * (64 << 10);
            let length = piece.len() as u64;
            parts.push(match piece.iter().all(|byte| *byte == 0) {
                true => GroupPart::Hole { offset, length },
                false => GroupPart::Bytes { offset, bytes: piece.to_vec() },
            });
        }
    }
    let is_new = |row: &(&Vec<u8>, &Vec<u8>)| from.rows.get(row.0) != Some(row.1);
    let put = to.rows.iter().filter(is_new).map(|(key, value)| (key, Some(value.clone())));
    let gone = from.rows.keys().filter(|key| !to.rows.contains_key(*key)).map(|key| (key, None));
    for (key, value) in put.chain(gone) {
        parts.push(GroupPart::Rows(vec![RowChange { key: key.clone(), value }]));
    }
    parts
}

/// Returns the bodies of a group with these parts.
pub(crate) fn group(number: u64, kind: GroupKind, parts: &[GroupPart]) -> Vec<Vec<u8>> {
    let mut bodies = vec![GroupPart::Begin { number, kind, cut: CUT }.encode().unwrap()];
    bodies.extend(parts.iter().map(|part| part.encode().unwrap()));
    let mut sum = GroupSum::default();
    bodies.iter().for_each(|body| sum.add(body));
    bodies.push(GroupPart::End { sum: sum.value() }.encode().unwrap());
    bodies
}

/// Sends a group, which becomes safe. It is not carried out yet.
pub(crate) fn send(groups: &mut dyn Groups, bodies: &[Vec<u8>]) -> u64 {
    let (last, first) = bodies.split_last().unwrap();
    for body in first {
        assert_eq!(groups.take(body).unwrap(), None);
    }
    let answer = groups.take(last).unwrap().unwrap();
    assert_eq!(answer.says, MirrorSays::Safe);
    answer.number
}

/// Sends all of a volume, as a copy and an empty completion.
pub(crate) fn send_all(groups: &mut dyn Groups, number: u64, state: &State) {
    let parts = changes(&State::default(), state);
    assert_eq!(send(groups, &group(number, GroupKind::Copy, &parts)), number);
    groups.carry_out().unwrap();
    let completion = group(number + 1, GroupKind::Completion, &[]);
    assert_eq!(send(groups, &completion), number + 1);
    groups.carry_out().unwrap();
}

pub(crate) fn put(server: &Server, text: &str, bytes: &[u8]) {
    requests::put(server, Handle::ROOT, text, bytes).unwrap();
}

/// Returns the bytes of a file.
pub(crate) fn read(server: &Server, text: &str) -> Result<Vec<u8>, Code> {
    let entry = lookup(server, Handle::ROOT, text)?;
    let open = next_open();
    call(server, Request::Open { node: entry.handle, flags: OpenFlags::READ, open }, &[])?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < entry.attr.size {
        let read = Request::Read { open, offset: bytes.len() as u64, size: 1 << 20 };
        match call(server, read, &[])? {
            Reply::Data(data) => bytes.extend_from_slice(data.as_bytes()),
            other => panic!("{other:?}"),
        }
    }
    call(server, Request::Release { open }, &[])?;
    Ok(bytes)
}
