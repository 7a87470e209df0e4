//! A cut: its content files that are not read yet, and the saved old bytes of these.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use pelago_store::content::{self, ContentFile, ContentStore};
use pelago_wire::limits;

use super::ranges::Ranges;
use super::{ContentKey, FileChanges};

/// The content of a group that is not read yet.
#[derive(Debug, Default)]
pub(super) struct Cut {
    files: BTreeMap<ContentKey, CutFile>,
    /// Old bytes in memory.
    kept_bytes: usize,
    /// Old bytes beyond the limit of memory.
    spill: Option<Spill>,
    /// The number of files that were handed over with a descriptor.
    handed: usize,
    /// True if there was no room for old bytes, so that the group cannot be sent.
    is_given_up: bool,
}

/// A content file of a cut.
#[derive(Debug)]
struct CutFile {
    changes: FileChanges,
    /// The ranges that must still be read from the file.
    unread: Ranges,
    /// Saved old bytes of ranges that changed since, by their offsets.
    kept: BTreeMap<u64, Kept>,
    /// The file, if it was handed over because it lost its name.
    handed: Option<Arc<ContentFile>>,
    /// True if all of it was read.
    is_read: bool,
}

/// Old bytes.
#[derive(Debug)]
enum Kept {
    Memory(Vec<u8>),
    /// In the spill file.
    Spilled {
        at: u64,
        length: usize,
    },
}

/// A file without a name for old bytes.
#[derive(Debug)]
struct Spill {
    file: ContentFile,
    end: u64,
}

/// Old bytes of a file: at most [`limits::GROUP_BYTES`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KeptPiece {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
}

impl Cut {
    /// Returns the cut with these changes.
    pub(super) fn of(files: BTreeMap<ContentKey, FileChanges>) -> Self {
        let with_unread = |(key, changes): (ContentKey, FileChanges)| {
            let mut unread = changes.ranges.clone();
            unread.remove(&(changes.size..u64::MAX));
            let kept = BTreeMap::new();
            (key, CutFile { changes, unread, kept, handed: None, is_read: false })
        };
        Self { files: files.into_iter().map(with_unread).collect(), ..Self::default() }
    }

    /// Returns the changes of which the cut was made.
    pub(super) fn into_changes(self) -> impl Iterator<Item = (ContentKey, FileChanges)> {
        self.files.into_iter().map(|(key, file)| (key, file.changes))
    }

    /// Returns whether the group cannot be sent.
    pub(super) const fn is_given_up(&self) -> bool {
        self.is_given_up
    }

    /// Returns the files.
    pub(super) fn files(&self) -> Vec<ContentKey> {
        self.files.keys().copied().collect()
    }

    /// Returns the size of a file at the cut.
    pub(super) fn size(&self, key: ContentKey) -> Option<u64> {
        self.files.get(&key).map(|file| file.changes.size)
    }

    /// Counts the bytes that are not read yet.
    pub(super) fn unread_bytes(&self) -> u64 {
        self.files.values().map(|file| file.unread.bytes_below(u64::MAX)).sum()
    }

    /// Returns the parts of a range that must be read from the file before they change.
    pub(super) fn unread(&self, key: ContentKey, range: &Range<u64>) -> Vec<Range<u64>> {
        match self.files.get(&key) {
            Some(file) if !self.is_given_up && file.handed.is_none() => file.unread.overlap(range),
            _ => Vec::new(),
        }
    }

    /// Returns whether bytes must still be read from a file.
    pub(super) fn has_unread(&self, key: ContentKey) -> bool {
        let unread = |file: &CutFile| file.handed.is_none() && file.unread.count() > 0;
        !self.is_given_up && self.files.get(&key).is_some_and(unread)
    }

    /// Saves old bytes of a file that is about to change, except those that were read meanwhile.
    pub(super) fn keep(
        &mut self,
        key: ContentKey,
        offset: u64,
        bytes: Vec<u8>,
        store: &ContentStore,
    ) {
        let Some(file) = self.files.get_mut(&key) else { return };
        let all = offset..offset + bytes.len() as u64;
        let pieces = file.unread.remove(&all).into_iter().flat_map(|part| {
            let starts = part.clone().step_by(limits::GROUP_BYTES);
            starts.map(move |start| start..part.end.min(start + limits::GROUP_BYTES as u64))
        });
        for piece in pieces.collect::<Vec<_>>() {
            let from = (piece.start - offset) as usize;
            let old = &bytes[from..from + (piece.end - piece.start) as usize];
            let Some(kept) = self.put_aside(key, old, store) else { return self.give_up() };
            if let Some(file) = self.files.get_mut(&key) {
                file.kept.insert(piece.start, kept);
            }
        }
    }

    /// Saves old bytes in memory, or beyond its limit in a file. Returns `None` if there is no
    /// room.
    fn put_aside(&mut self, key: ContentKey, old: &[u8], store: &ContentStore) -> Option<Kept> {
        if self.kept_bytes + old.len() <= limits::MIRROR_KEPT_BYTES {
            self.kept_bytes += old.len();
            return Some(Kept::Memory(old.to_vec()));
        }
        if self.spill.is_none() {
            let file = store.create_unnamed(key.0, key.1).ok()?;
            self.spill = Some(Spill { file, end: 0 });
        }
        let spill = self.spill.as_mut()?;
        let at = spill.end;
        if at + old.len() as u64 > limits::MIRROR_SPILLED_BYTES {
            return None;
        }
        spill.file.write_at(old, at).ok()?;
        spill.end += old.len() as u64;
        Some(Kept::Spilled { at, length: old.len() })
    }

    /// Gives the cut up and drops the saved bytes: its group is cut again later.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
        self.kept_bytes = 0;
        self.spill = None;
        for file in self.files.values_mut() {
            file.kept.clear();
            file.handed = None;
        }
    }

    /// Returns whether a file must be kept when it loses its name: also an empty file, which the
    /// reader must still find.
    pub(super) fn wants_file(&self, key: ContentKey) -> bool {
        let wanted = |file: &CutFile| file.handed.is_none() && !file.is_read;
        !self.is_given_up && self.files.get(&key).is_some_and(wanted)
    }

    /// Takes over a file that is about to lose its name.
    pub(super) fn hand_over(&mut self, key: ContentKey, content: ContentFile) {
        if self.handed >= limits::MIRROR_KEPT_FILES {
            self.give_up();
            return;
        }
        if let Some(file) = self.files.get_mut(&key) {
            self.handed += 1;
            file.handed = Some(Arc::new(content));
        }
    }

    /// Returns the file that was handed over.
    pub(super) fn handed(&self, key: ContentKey) -> Option<Arc<ContentFile>> {
        self.files.get(&key)?.handed.clone()
    }

    /// Takes the next saved bytes.
    ///
    /// # Errors
    /// If they cannot be read from the spill file.
    pub(super) fn next_kept(
        &mut self,
        key: ContentKey,
    ) -> Result<Option<KeptPiece>, content::Error> {
        let kept = self.files.get_mut(&key).and_then(|file| file.kept.pop_first());
        let Some((offset, kept)) = kept else { return Ok(None) };
        let bytes = match kept {
            Kept::Memory(bytes) => {
                self.kept_bytes = self.kept_bytes.saturating_sub(bytes.len());
                bytes
            }
            Kept::Spilled { at, length } => {
                let mut bytes = vec![0; length];
                if let Some(spill) = &self.spill {
                    spill.file.read_at(&mut bytes, at)?;
                }
                bytes
            }
        };
        Ok(Some(KeptPiece { offset, bytes }))
    }

    /// Returns the first part of a range that must still be read from the file.
    pub(super) fn unread_range(&self, key: ContentKey, range: &Range<u64>) -> Option<Range<u64>> {
        self.files.get(&key)?.unread.overlap(range).into_iter().next()
    }

    /// Returns the next range that must be read from the file.
    pub(super) fn next_unread(&self, key: ContentKey) -> Option<Range<u64>> {
        self.files.get(&key)?.unread.first()
    }

    /// Records that bytes were read.
    pub(super) fn note_read(&mut self, key: ContentKey, range: &Range<u64>) {
        if let Some(file) = self.files.get_mut(&key) {
            drop(file.unread.remove(range));
        }
    }

    /// Records that all of a file was read, and closes it if it was handed over.
    pub(super) fn finish_file(&mut self, key: ContentKey) {
        let Some(file) = self.files.get_mut(&key) else { return };
        file.is_read = true;
        if file.handed.take().is_some() {
            self.handed -= 1;
        }
    }
}
