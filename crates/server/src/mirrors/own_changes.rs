//! The changes that only a primary has which was replaced: what it did after the last group that
//! its mirror had.
//!
//! The first group of the primary that has replaced it names all rows that differ. A row here is
//! one of its own if its stamp is later than the newest that the mirror had when it was promoted.
//! A row that is missing here was removed here if the other one has not written it since. Nothing
//! else tells both apart: each has gone on from the same rows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use pelago_data::{ContentKey, ContentPiece, read_piece};
use pelago_store::content::FileAccess;
use pelago_store::key::{self, Key, VolumeRow};
use pelago_store::rows::{NameRow, Promotion, Promotions, Rnode, Row as _, Stamp, stamp_of};
use pelago_store::spool::Spool;
use pelago_wire::mirror::{GroupPart, RowChange};
use pelago_wire::{FileKind, InodeId};

use super::error::MirrorError;
use super::image::Image;

/// The most files and names of its own that are listed.
const CHANGES: usize = 1 << 18;
/// The most folders above a name; beyond, the path begins with a number.
const DEPTH: usize = 4096;

/// A name in a folder of the volume.
pub(super) type NameAt = (InodeId, Vec<u8>);

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnChange {
    /// The new primary has no such file.
    Missing,
    /// The new primary has other bytes.
    Changed,
    /// The new primary has other attributes: permissions, owner, times or extended attributes.
    Attributes,
    /// The new primary has the file by another name.
    Named,
    /// The file was removed here, and the new primary has it.
    Removed,
}

/// A change that only the replaced primary has.
#[derive(Debug, Clone)]
pub(super) struct Own {
    pub(super) what: OwnChange,
    /// The names from the root to the file, here; of one that was removed, there.
    pub(super) path: Vec<Vec<u8>>,
    /// The folders of this path that are here, from the root on.
    pub(super) above: Vec<InodeId>,
    /// The file here, if it is there.
    pub(super) rnode: Option<Rnode>,
    /// The names from the root to the file at the new primary, if they are others.
    pub(super) there: Option<Vec<Vec<u8>>>,
    /// The new primary has changed the file too.
    pub(super) is_of_both: bool,
}

/// Returns the changes that only the primary of this reign has, whose rows and content are those of
/// the image. The spool has the group that brings it to the state of the new primary.
pub(super) fn find(image: &Image, spool: &mut Spool, reign: u64) -> Result<Vec<Own>, MirrorError> {
    let since = since(image, spool, reign)?;
    let mut found = Found { since, ..Found::default() };
    each_row(image, spool, &mut |change| found.take(image, change))?;
    let mut there = There::default();
    each_their_row(spool, &mut |change| there.take(&found, change))?;
    there.differing = differing_contents(image, spool, &found)?;
    list(image, found, &there)
}

/// The border between what both have in common and what each has alone.
#[derive(Clone, Copy)]
struct Since {
    /// Rows here with a later stamp are of this one alone.
    last: Stamp,
    /// Rows there of this epoch or a later one are of the other one alone.
    epoch: u32,
}

impl Default for Since {
    /// Nothing is known to be in common: all that differs counts as changed here alone.
    fn default() -> Self {
        Self { last: Stamp::default(), epoch: u32::MAX }
    }
}

fn since(image: &Image, spool: &mut Spool, reign: u64) -> Result<Since, MirrorError> {
    let row_key = key::volume_row(VolumeRow::Promotions);
    let mut promotions = image.promotions()?;
    each_their_row(spool, &mut |RowChange { key, value }| {
        let value = value.as_deref().filter(|_| *key == row_key);
        if let Some(Ok((_, sent))) = value.map(Promotions::decode) {
            promotions = sent;
        }
    })?;
    let since = |Promotion { epoch, last, .. }| Since { last, epoch };
    Ok(promotions.replacing(reign).map(since).unwrap_or_default())
}

/// A row that differs: the value here, and that of the new primary.
struct Differing<'a> {
    key: &'a [u8],
    ours: Option<&'a [u8]>,
    theirs: Option<&'a [u8]>,
}

/// Calls `visit` with each row that the group in the spool changes.
fn each_row(
    image: &Image,
    spool: &mut Spool,
    visit: &mut dyn FnMut(Differing<'_>) -> Result<(), MirrorError>,
) -> Result<(), MirrorError> {
    for body in spool.bodies()? {
        match GroupPart::decode(&body?)? {
            GroupPart::Range { from, until, rows } => {
                each_of_range(image, (&from, &until), &rows, visit)?;
            }
            GroupPart::Rows(rows) => {
                for RowChange { key, value } in &rows {
                    let ours = image.get(key)?;
                    let theirs = value.as_deref();
                    visit(Differing { key, ours: ours.as_deref(), theirs })?;
                }
            }
            GroupPart::Offer { .. }
            | GroupPart::Begin { .. }
            | GroupPart::End { .. }
            | GroupPart::Content { .. }
            | GroupPart::Bytes { .. }
            | GroupPart::Hole { .. }
            | GroupPart::File { .. }
            | GroupPart::Abort
            | GroupPart::Compare(_)
            | GroupPart::Contents(_)
            | GroupPart::Blocks(_)
            | GroupPart::Ping
            | GroupPart::Datagrams
            | GroupPart::RelayKey
            | GroupPart::HandOver => {}
        }
    }
    Ok(())
}

fn each_of_range(
    image: &Image,
    range: (&[u8], &[u8]),
    rows: &[RowChange],
    visit: &mut dyn FnMut(Differing<'_>) -> Result<(), MirrorError>,
) -> Result<(), MirrorError> {
    let theirs: HashMap<&[u8], Option<&[u8]>> =
        rows.iter().map(|row| (row.key.as_slice(), row.value.as_deref())).collect();
    let mut here = BTreeSet::new();
    let mut result = Ok(());
    image.scan(range.0, range.1, &mut |row_key, value| {
        if !key::is_mirrored(row_key) {
            return ControlFlow::Continue(());
        }
        let their = theirs.get(row_key).copied().flatten();
        if their.is_some() {
            here.insert(row_key.to_vec());
        }
        result = visit(Differing { key: row_key, ours: Some(value), theirs: their });
        if result.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    result?;
    for RowChange { key, value } in rows.iter().filter(|row| !here.contains(&row.key)) {
        visit(Differing { key, ours: None, theirs: value.as_deref() })?;
    }
    Ok(())
}

/// Calls `visit` with each row that the group in the spool brings.
fn each_their_row(spool: &mut Spool, visit: &mut dyn FnMut(&RowChange)) -> Result<(), MirrorError> {
    for body in spool.bodies()? {
        if let GroupPart::Rows(rows) | GroupPart::Range { rows, .. } = GroupPart::decode(&body?)? {
            rows.iter().for_each(&mut *visit);
        }
    }
    Ok(())
}

/// A file whose rnode was written here alone.
struct Touched {
    rnode: Rnode,
    /// The name whose row has the rnode; `None` if it has a row of its own.
    place: Option<NameAt>,
    /// The new primary has another file by this name.
    is_replaced_there: bool,
}

/// The rows of this primary alone.
#[derive(Default)]
struct Found {
    since: Since,
    touched: BTreeMap<InodeId, Touched>,
    /// Names that were made here, with their files.
    made: BTreeMap<NameAt, InodeId>,
    made_of: BTreeSet<InodeId>,
    /// Names that were removed here, with their files.
    gone: BTreeMap<NameAt, InodeId>,
    /// Files whose inline bytes were written here.
    inline: BTreeSet<InodeId>,
    /// Files whose extended attributes were changed here.
    xattrs: BTreeSet<InodeId>,
}

impl Found {
    fn take(&mut self, image: &Image, change: Differing<'_>) -> Result<(), MirrorError> {
        let Differing { key, ours, theirs } = change;
        if ours == theirs {
            return Ok(());
        }
        let is_own = ours.and_then(stamp_of).is_some_and(|stamp| stamp > self.since.last);
        let is_common = theirs.and_then(stamp_of).is_some_and(|stamp| self.is_common(stamp));
        let own = ours.filter(|_| is_own);
        match Key::parse(key) {
            Some(Key::Name { dir, name, .. }) => {
                let place = (dir, name.to_vec());
                self.take_name(place, ours.is_some(), own, theirs, is_common);
            }
            Some(Key::Inode { ino }) => {
                if let Some(Ok((_, rnode))) = own.map(Rnode::decode) {
                    let touched = Touched { rnode, place: None, is_replaced_there: false };
                    self.touched.insert(ino, touched);
                }
            }
            Some(Key::Inline { ino }) if is_own => drop(self.inline.insert(ino)),
            Some(Key::Xattr { ino, .. }) if is_own || ours.is_none() && is_common => {
                self.xattrs.insert(ino);
            }
            _ => {}
        }
        match self.touched.len() + self.made.len() + self.gone.len() > CHANGES {
            true => Err(MirrorError::TooManyChanges { path: image.path() }),
            false => Ok(()),
        }
    }

    /// Returns whether a row of the other primary is one that both had.
    const fn is_common(&self, stamp: Stamp) -> bool {
        stamp.epoch < self.since.epoch
    }

    fn take_name(
        &mut self,
        place: NameAt,
        is_here: bool,
        own: Option<&[u8]>,
        theirs: Option<&[u8]>,
        is_common: bool,
    ) {
        let decoded = |value| NameRow::decode(value).ok().map(|(_, row)| row);
        let their_ino = theirs.and_then(decoded).map(|row| row.ino());
        if let Some(row) = own.and_then(decoded) {
            let ino = row.ino();
            let is_replaced_there = their_ino.is_some_and(|other| other != ino);
            if let NameRow::Rnode(rnode) = row {
                let touched = Touched { rnode, place: Some(place.clone()), is_replaced_there };
                self.touched.insert(ino, touched);
            }
            if their_ino != Some(ino) {
                self.made_of.insert(ino);
                self.made.insert(place, ino);
            }
        } else if let Some(ino) = their_ino.filter(|_| !is_here && is_common) {
            self.gone.insert(place, ino);
        }
    }
}

/// The files of the new primary that were touched here.
#[derive(Default)]
struct There {
    rnodes: BTreeMap<InodeId, (Stamp, Rnode)>,
    /// A name of each.
    names: BTreeMap<InodeId, NameAt>,
    /// A name of each folder whose names differ.
    above: BTreeMap<InodeId, NameAt>,
    /// Content files with other bytes.
    differing: BTreeSet<ContentKey>,
}

impl There {
    fn take(&mut self, found: &Found, change: &RowChange) {
        let Some(value) = change.value.as_deref() else { return };
        match Key::parse(&change.key) {
            Some(Key::Name { dir, name, .. }) => {
                let Ok((stamp, row)) = NameRow::decode(value) else { return };
                let ino = row.ino();
                if found.touched.contains_key(&ino) || found.made_of.contains(&ino) {
                    self.names.insert(ino, (dir, name.to_vec()));
                }
                if let NameRow::Rnode(rnode) = row
                    && found.touched.contains_key(&ino)
                {
                    self.rnodes.insert(ino, (stamp, rnode));
                }
            }
            Some(Key::Inode { ino }) if found.touched.contains_key(&ino) => {
                if let Ok((stamp, rnode)) = Rnode::decode(value) {
                    self.rnodes.insert(ino, (stamp, rnode));
                }
            }
            Some(Key::ParentPointer { ino, dir, name, .. }) => {
                self.above.insert(ino, (dir, name.to_vec()));
            }
            _ => {}
        }
    }
}

/// Returns the content files that the group gives other bytes, of the files that were touched here.
fn differing_contents(
    image: &Image,
    spool: &mut Spool,
    found: &Found,
) -> Result<BTreeSet<ContentKey>, MirrorError> {
    let mut differing = BTreeSet::new();
    let mut open = None;
    for body in spool.bodies()? {
        match GroupPart::decode(&body?)? {
            GroupPart::Content { ino, generation, size, .. } => {
                open = None;
                let is_named = found.touched.get(&ino).is_some_and(|touched| {
                    touched.rnode.flags.has_content && touched.rnode.generation == Some(generation)
                });
                if !is_named {
                    continue;
                }
                let file = image.content.open_file(ino, generation, FileAccess::Read)?;
                match file {
                    Some(file) if file.stat()?.size == size => {
                        open = Some((file, (ino, generation)));
                    }
                    Some(_) | None => drop(differing.insert((ino, generation))),
                }
            }
            GroupPart::Bytes { offset, bytes } => {
                let Some((file, key)) = &open else { continue };
                let mut ours = vec![0; bytes.len()];
                let read = file.read_at(&mut ours, offset)?;
                if ours[..read] != bytes[..read] || bytes[read..].iter().any(|byte| *byte != 0) {
                    differing.insert(*key);
                    open = None;
                }
            }
            GroupPart::Hole { offset, length } => {
                let Some((file, key)) = &open else { continue };
                if !is_empty(file, offset, offset.saturating_add(length))? {
                    differing.insert(*key);
                    open = None;
                }
            }
            GroupPart::Offer { .. }
            | GroupPart::Begin { .. }
            | GroupPart::End { .. }
            | GroupPart::Rows(_)
            | GroupPart::Range { .. }
            | GroupPart::File { .. }
            | GroupPart::Abort
            | GroupPart::Compare(_)
            | GroupPart::Contents(_)
            | GroupPart::Blocks(_)
            | GroupPart::Ping
            | GroupPart::Datagrams
            | GroupPart::RelayKey
            | GroupPart::HandOver => {}
        }
    }
    Ok(differing)
}

/// Returns whether a range of a content file has nothing but zeros.
fn is_empty(
    file: &pelago_store::content::ContentFile,
    from: u64,
    until: u64,
) -> Result<bool, MirrorError> {
    let mut at = from;
    while at < until {
        let piece = read_piece(file, at..until)?;
        at = piece.range().end;
        if let ContentPiece::Bytes { bytes, .. } = piece
            && bytes.iter().any(|byte| *byte != 0)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Lists the changes: files, then names, then what was removed.
fn list(image: &Image, found: Found, there: &There) -> Result<Vec<Own>, MirrorError> {
    let mut changes = Vec::new();
    for (ino, touched) in &found.touched {
        changes.extend(file_change(image, &found, there, *ino, touched)?);
    }
    for (place, ino) in &found.made {
        let is_known = there.names.contains_key(ino) || there.rnodes.contains_key(ino);
        // Others are listed as files.
        if is_known {
            let PathOf { names, above } = path_of(image, None, place)?;
            let named = there.names.get(ino);
            let named = named.map(|place| path_of(image, Some(there), place)).transpose()?;
            changes.push(Own {
                what: OwnChange::Named,
                path: names,
                above,
                rnode: None,
                there: named.map(|path| path.names),
                is_of_both: false,
            });
        }
    }
    for (place, ino) in &found.gone {
        if !found.made_of.contains(ino) {
            let PathOf { names: path, above } = path_of(image, Some(there), place)?;
            let what = OwnChange::Removed;
            changes.push(Own { what, path, above, rnode: None, there: None, is_of_both: false });
        }
    }
    Ok(changes)
}

/// Returns the change of a file that was touched here; `None` if only its time of access, or what
/// follows from others, has changed, or if it has no name.
fn file_change(
    image: &Image,
    found: &Found,
    there: &There,
    ino: InodeId,
    touched: &Touched,
) -> Result<Option<Own>, MirrorError> {
    let Touched { rnode, place, is_replaced_there } = touched;
    let theirs = there.rnodes.get(&ino);
    let what = match theirs {
        None if *is_replaced_there => OwnChange::Changed,
        None => OwnChange::Missing,
        Some((_, other)) if has_other_bytes(found, there, rnode, other) => OwnChange::Changed,
        Some((_, other)) if has_other_attributes(found, rnode, other) => OwnChange::Attributes,
        Some(_) => return Ok(None),
    };
    let place = match place {
        Some(place) => Some(place.clone()),
        None => first_place(image, ino)?,
    };
    let Some(place) = place.filter(|_| ino != InodeId::ROOT) else { return Ok(None) };
    let PathOf { names: path, above } = path_of(image, None, &place)?;
    let named = there.names.get(&ino).filter(|named| **named != place);
    let named = named.map(|place| path_of(image, Some(there), place)).transpose()?;
    let there = named.map(|path| path.names);
    let is_of_both = theirs.is_some_and(|(stamp, _)| !found.is_common(*stamp));
    Ok(Some(Own { what, path, above, rnode: Some(rnode.clone()), there, is_of_both }))
}

fn has_other_bytes(found: &Found, there: &There, ours: &Rnode, theirs: &Rnode) -> bool {
    match ours.kind {
        FileKind::Symlink => ours.target != theirs.target,
        FileKind::Regular => {
            if ours.flags.inline && theirs.flags.inline {
                return found.inline.contains(&ours.ino);
            }
            let is_alike = ours.flags.inline == theirs.flags.inline
                && ours.flags.has_content == theirs.flags.has_content
                && (ours.generation == theirs.generation || !ours.flags.has_content)
                && ours.bytes_at == theirs.bytes_at
                && ours.size == theirs.size;
            let key = ours.generation.map(|generation| (ours.ino, generation));
            !is_alike || key.is_some_and(|key| there.differing.contains(&key))
        }
        FileKind::Directory
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice => false,
    }
}

fn has_other_attributes(found: &Found, ours: &Rnode, theirs: &Rnode) -> bool {
    let facts = |rnode: &Rnode| (rnode.mode, rnode.uid, rnode.gid, rnode.rdev);
    let is_touched = ours.kind != FileKind::Directory && ours.mtime != theirs.mtime;
    facts(ours) != facts(theirs) || is_touched || found.xattrs.contains(&ours.ino)
}

/// Returns a name of a file or folder here.
fn first_place(image: &Image, ino: InodeId) -> Result<Option<NameAt>, MirrorError> {
    let range = key::parent_pointers_of(ino);
    let mut found = None;
    image.scan(&range.from, &range.to, &mut |row_key, _| {
        if let Some(Key::ParentPointer { dir, name, .. }) = Key::parse(row_key) {
            found = Some((dir, name.to_vec()));
        }
        ControlFlow::Break(())
    })?;
    Ok(found)
}

/// A path from the root: its names, and the folders that have them but the root.
struct PathOf {
    names: Vec<Vec<u8>>,
    above: Vec<InodeId>,
}

/// Returns the path of a name, here or at the new primary. If a folder above has no name, the path
/// begins with its number.
fn path_of(image: &Image, there: Option<&There>, place: &NameAt) -> Result<PathOf, MirrorError> {
    let mut names = vec![place.1.clone()];
    let mut above = Vec::new();
    let mut here = place.0;
    while here != InodeId::ROOT {
        above.push(here);
        let theirs = there.and_then(|there| there.above.get(&here)).cloned();
        let next = match theirs {
            Some(next) => Some(next),
            None => first_place(image, here)?,
        };
        match next {
            Some((dir, name)) if names.len() < DEPTH => {
                names.push(name);
                here = dir;
            }
            Some(_) | None => {
                names.push(format!("inode {}", here.raw()).into_bytes());
                break;
            }
        }
    }
    names.reverse();
    above.reverse();
    Ok(PathOf { names, above })
}
