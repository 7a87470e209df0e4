//! A mirror in memory, at the other end of a connection that fails on demand.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use pelago_store::key::{self, Key};
use pelago_store::rows::{Inline, NameRow, Row};
use pelago_store::spool::GroupSum;
use pelago_wire::mirror::{
    CloseLink, ComparedBlocks, ComparedRange, GroupKind, GroupPart, GroupState, LinkError,
    MirrorLink, MirrorSays, PrimaryRun, RowChange, TakenCount, VolumeFile,
};
use pelago_wire::{Generation, Handle, InodeId};

/// A state of a volume.
#[derive(Debug, Clone, Default)]
pub(super) struct Image {
    pub(super) rows: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) contents: BTreeMap<(InodeId, Generation), Vec<u8>>,
    pub(super) files: BTreeMap<VolumeFile, Option<Vec<u8>>>,
}

impl Image {
    /// Returns the names in the root directory, each with the bytes of its file.
    pub(super) fn names(&self) -> BTreeMap<String, Vec<u8>> {
        let mut names = BTreeMap::new();
        for (row_key, value) in &self.rows {
            let Some(Key::Name { dir, name, .. }) = Key::parse(row_key) else { continue };
            if dir != InodeId::ROOT {
                continue;
            }
            let bytes = match NameRow::decode(value).unwrap().1 {
                NameRow::Rnode(rnode) => match rnode.generation.filter(|_| rnode.flags.has_content)
                {
                    Some(generation) => {
                        let content = self.contents.get(&(rnode.ino, generation));
                        content.unwrap_or_else(|| panic!("{rnode:?}, {row_key:?}")).clone()
                    }
                    None => self.inline(rnode.ino),
                },
                NameRow::Link { .. } => Vec::new(),
            };
            names.insert(String::from_utf8(name.to_vec()).unwrap(), bytes);
        }
        names
    }

    fn inline(&self, ino: InodeId) -> Vec<u8> {
        let row = self.rows.get(&key::inline(ino));
        row.map(|value| Inline::decode(value).unwrap().1.bytes.to_vec()).unwrap_or_default()
    }

    fn carry_out(&mut self, parts: &[GroupPart]) {
        let mut content = None;
        for part in parts {
            match part {
                GroupPart::Rows(rows) => rows.iter().for_each(|row| self.row(row)),
                GroupPart::Range { from, until, rows } => {
                    self.rows.retain(|key, _| !is_within(key, from, until));
                    rows.iter().for_each(|row| self.row(row));
                }
                GroupPart::Content { ino, generation, size, .. } => {
                    content = Some((*ino, *generation));
                    self.contents.entry((*ino, *generation)).or_default().resize(*size as usize, 0);
                }
                GroupPart::Bytes { offset, bytes } => {
                    let into = self.contents.get_mut(&content.unwrap()).unwrap();
                    let at = *offset as usize;
                    into[at..at + bytes.len()].copy_from_slice(bytes);
                }
                GroupPart::Hole { offset, length } => {
                    let into = self.contents.get_mut(&content.unwrap()).unwrap();
                    into[*offset as usize..(offset + length) as usize].fill(0);
                }
                GroupPart::File { file, bytes } => {
                    self.files.insert(*file, bytes.clone());
                }
                other => panic!("{other:?} within a group"),
            }
        }
    }

    /// Answers a question, as docs/protocol.md has it.
    fn differ(&self, question: &GroupPart) -> Vec<bool> {
        match question {
            GroupPart::Compare(ranges) => {
                let differs = |range: &ComparedRange| {
                    let mut hash = blake3::Hasher::new();
                    let rows = self.rows.iter();
                    for (key, value) in
                        rows.filter(|(key, _)| is_within(key, &range.from, &range.until))
                    {
                        for bytes in [key, value] {
                            hash.update(&(bytes.len() as u32).to_le_bytes());
                            hash.update(bytes);
                        }
                    }
                    *hash.finalize().as_bytes() != range.hash
                };
                ranges.iter().map(differs).collect()
            }
            GroupPart::Contents(contents) => {
                contents.iter().map(|key| !self.contents.contains_key(key)).collect()
            }
            GroupPart::Blocks(ComparedBlocks { ino, generation, first, hashes }) => {
                let bytes = &self.contents[&(*ino, *generation)];
                let mut blocks = bytes.chunks(1 << 20).skip(*first as usize);
                let differs = |hash: &[u8; 32]| {
                    // Beyond the end there is nothing.
                    blake3::hash(blocks.next().unwrap_or_default()).as_bytes() != hash
                };
                hashes.iter().map(differs).collect()
            }
            other => panic!("{other:?} is no question"),
        }
    }

    fn row(&mut self, row: &RowChange) {
        match &row.value {
            Some(value) => drop(self.rows.insert(row.key.clone(), value.clone())),
            None => {
                self.rows.remove(&row.key);
                // The last row of a file that has ended: its content goes too.
                if let Some(Key::Orphan { ino }) = Key::parse(&row.key) {
                    self.contents.retain(|(of, _), _| *of != ino);
                }
            }
        }
    }
}

fn is_within(key: &[u8], from: &[u8], until: &[u8]) -> bool {
    key >= from && (until.is_empty() || key < until)
}

/// Called with each state of a mirror.
pub(super) type CheckImage = Box<dyn Fn(&Image) + Send>;

/// What the mirror is, and what its connections do.
#[derive(Default)]
pub(super) struct Place {
    pub(super) image: Image,
    /// The run and the group of the image.
    pub(super) run: PrimaryRun,
    /// The run of the primary that connected last.
    pub(super) offered: PrimaryRun,
    pub(super) number: u64,
    /// The copy that is not complete.
    copy: Option<Image>,
    /// The kinds of the groups that were carried out.
    pub(super) kinds: Vec<GroupKind>,
    /// Called with each state.
    pub(super) check: Option<CheckImage>,
    /// The next connections cannot be made.
    pub(super) is_away: bool,
    /// The connection is lost at the next message.
    pub(super) cut_next: bool,
    /// The connection is lost before the answer to the next group.
    pub(super) lose_answer: bool,
    /// The mirror was promoted.
    pub(super) reign: u64,
    /// The next group cannot be kept.
    pub(super) is_full: bool,
    /// The count of what the mirror takes.
    pub(super) taken: TakenCount,
    /// No answer is given while it is locked.
    pub(super) gate: Arc<Mutex<()>>,
    /// The questions of all connections, with their answers.
    pub(super) questions: Vec<(GroupPart, Vec<bool>)>,
}

/// A connection to a place.
pub(super) struct Line {
    place: Arc<Mutex<Place>>,
    begun: Option<(u64, GroupKind)>,
    parts: Vec<GroupPart>,
    sum: GroupSum,
    answers: VecDeque<MirrorSays>,
}

impl Line {
    pub(super) fn connect(
        place: &Arc<Mutex<Place>>,
        reign: u64,
    ) -> Result<(Box<dyn MirrorLink>, GroupState), LinkError> {
        let mut state = place.lock();
        if state.is_away {
            return Err(LinkError::Lost("the mirror is away".to_owned()));
        }
        if state.reign > reign {
            return Err(LinkError::Replaced { reign: state.reign });
        }
        state.copy = None;
        let line = Self {
            place: Arc::clone(place),
            begun: None,
            parts: Vec::new(),
            sum: GroupSum::default(),
            answers: VecDeque::new(),
        };
        let ready = state.says(MirrorSays::Ready);
        Ok((Box::new(line), ready))
    }

    fn end(&mut self, sum: u64) {
        let mut place = self.place.lock();
        assert_eq!(sum, self.sum.value(), "the sum of the group");
        let (number, kind) = self.begun.take().unwrap();
        let parts = std::mem::take(&mut self.parts);
        if place.is_full {
            place.is_full = false;
            self.answers.push_back(MirrorSays::Failed("the disk is full".to_owned()));
            return;
        }
        match kind {
            GroupKind::Copy => {
                let mut image = Image::default();
                image.carry_out(&parts);
                place.copy = Some(image);
            }
            GroupKind::Completion => {
                place.image = place.copy.take().unwrap();
                place.image.carry_out(&parts);
            }
            GroupKind::Resync => {
                place.image.carry_out(&parts);
                place.run = place.offered;
            }
            GroupKind::Change => {
                assert_eq!(number, place.number + 1, "no group is left out");
                place.image.carry_out(&parts);
            }
        }
        place.number = number;
        place.kinds.push(kind);
        if kind != GroupKind::Copy
            && let Some(check) = &place.check
        {
            check(&place.image);
        }
        self.answers.push_back(MirrorSays::Safe);
    }

    fn lost() -> LinkError {
        LinkError::Lost("the connection is cut".to_owned())
    }
}

impl Place {
    fn says(&self, says: MirrorSays) -> GroupState {
        GroupState { reign: 1, run: self.run, number: self.number, says }
    }
}

impl MirrorLink for Line {
    fn send(&mut self, body: &[u8]) -> Result<(), LinkError> {
        if std::mem::take(&mut self.place.lock().cut_next) {
            return Err(Self::lost());
        }
        let part = GroupPart::decode(body).unwrap();
        match part {
            GroupPart::Begin { number, kind, .. } => {
                assert!(self.begun.is_none(), "one group after the other");
                self.begun = Some((number, kind));
                self.sum = GroupSum::default();
                self.sum.add(body);
            }
            GroupPart::End { sum } => self.end(sum),
            GroupPart::Abort => {
                self.begun = None;
                self.parts.clear();
            }
            GroupPart::Ping => self.answers.push_back(MirrorSays::Pong),
            question @ (GroupPart::Compare(_) | GroupPart::Contents(_) | GroupPart::Blocks(_)) => {
                let mut place = self.place.lock();
                let differ = place.image.differ(&question);
                place.questions.push((question, differ.clone()));
                self.answers.push_back(MirrorSays::Differ(differ));
            }
            part => {
                self.sum.add(body);
                self.parts.push(part);
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<GroupState, LinkError> {
        let says = self.answers.pop_front().expect("an answer to wait for");
        let gate = Arc::clone(&self.place.lock().gate);
        drop(gate.lock());
        let mut place = self.place.lock();
        if says == MirrorSays::Safe && std::mem::take(&mut place.lose_answer) {
            return Err(Self::lost());
        }
        Ok(place.says(says))
    }

    fn closer(&self) -> CloseLink {
        Box::new(|| {})
    }

    fn taken(&self) -> TakenCount {
        Arc::clone(&self.place.lock().taken)
    }
}

/// Returns the handle of the root, for requests.
pub(super) const ROOT: Handle = Handle::ROOT;
