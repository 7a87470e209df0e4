//! The application of a plan's repairs, and the changes that give a lost file or directory a name:
//! they are empty if the directory that gets it is to be made first.

use pelago_store::content::ContentStat;
use pelago_store::key;
use pelago_store::rows::{Moved, NameRow, ParentPointer, Rnode, RnodeFlags, Row};
use pelago_store::table::{self, Batch, Change};
use pelago_store::volume::Owner;
use pelago_wire::{FileKind, Generation, InodeId, NameHash};

use super::{Check, CheckError, Damage, Finding, Parts, Plan, found};

/// The size in bytes at which a batch of repairs is written.
const BATCH_BYTES: usize = 1 << 20;

/// Applies the repairs of a plan. Returns how many findings were repaired.
///
/// The changes of one repair are in one batch. A content file is removed only once it is safe that
/// no row names it; the search index is removed last. After an error earlier batches stay.
pub(super) fn apply(parts: Parts<'_>, plan: &Plan) -> Result<u64, CheckError> {
    let mut batch = Batch::new();
    if plan.waits_for_found {
        // Nothing else: what is cut short must not have removed a row whose bytes wait for a name.
        add_changes(&mut batch, &plan.makes_found);
        parts.table.write(&batch)?;
        parts.table.persist()?;
        return Ok(0);
    }
    let mut done: u64 = 0;
    // First what gives bytes a name: after the removal of their damaged rows they would be no more
    // than leftovers to the next check, if this one is cut short.
    let names_bytes = |finding: &&Finding| {
        matches!(finding.damage, Damage::ContentStray | Damage::InlineStray)
            && finding.repair.as_ref().is_some_and(|repair| repair.remove.is_none())
    };
    let first = plan.findings.iter().filter(names_bytes);
    let others = plan.findings.iter().filter(|finding| !names_bytes(finding));
    for repair in first.chain(others).filter_map(|finding| finding.repair.as_ref()) {
        add_changes(&mut batch, &repair.changes);
        done += 1;
        if batch.bytes() >= BATCH_BYTES {
            parts.table.write(&std::mem::take(&mut batch))?;
        }
    }
    parts.table.write(&batch)?;
    parts.table.persist()?;
    tracing::info!(done, "repairs were written");
    for (ino, generation) in
        plan.findings.iter().filter_map(|finding| finding.repair.as_ref()?.remove)
    {
        parts.content.remove(ino, generation)?;
    }
    let is_index = |finding: &Finding| finding.damage == Damage::Index;
    if let Some(index) = parts.index.filter(|_| plan.findings.iter().any(is_index))
        && let Err(error) = index.remove_tree(super::index::FOLDER)
    {
        // It stays a finding, and does not count as repaired: otherwise the rounds would not end.
        done -= 1;
        tracing::error!(%error, "cannot remove the search index");
    }
    Ok(done)
}

fn add_changes(batch: &mut Batch, changes: &[Change]) {
    for change in changes {
        match change {
            Change::Put(key, value) => batch.put(key.clone(), value.clone()),
            Change::Delete(key) => batch.delete(key.clone()),
        }
    }
}

/// A name for a file or directory that has lost its own.
struct LostName {
    dir: InodeId,
    name: Vec<u8>,
    hash: NameHash,
}

impl LostName {
    fn key(&self) -> Vec<u8> {
        key::name(self.dir, self.hash, &self.name)
    }
}

impl Check<'_> {
    /// Returns the name that a lost file gets; `None` if its directory is to be made first. Users
    /// can create files with such names, so it is the first one that no other file has.
    fn lost_name(&self, ino: InodeId) -> Result<Option<LostName>, table::Error> {
        let Some(dir) = self.found_dir() else { return Ok(None) };
        let mut name = found::lost_name(ino).into_bytes();
        for number in 1_u64.. {
            let hash = self.hasher.hash(&name);
            let key = key::name(dir, hash, &name);
            match self.table.get(&key)?.as_deref().map(NameRow::decode) {
                Some(Ok((_, row))) if row.ino() != ino => {}
                Some(Err(_)) => {}
                Some(Ok(_)) | None => return Ok(Some(LostName { dir, name, hash })),
            }
            name = format!("{}.{number}", found::lost_name(ino)).into_bytes();
        }
        unreachable!("a directory has fewer names than there are numbers")
    }

    /// Returns the changes that give a name to an inode with a row of its own, but without a name.
    pub(super) fn link_lost(&self, rnode: &Rnode) -> Result<Vec<Change>, table::Error> {
        let Some(lost) = self.lost_name(rnode.ino)? else { return Ok(Vec::new()) };
        let link = NameRow::Link { ino: rnode.ino, kind: rnode.kind };
        let mut rnode = rnode.clone();
        rnode.links = 1;
        Ok(vec![
            put(lost.key(), link.encode(self.stamp)),
            put(
                key::parent_pointer(rnode.ino, lost.dir, lost.hash, &lost.name),
                ParentPointer.encode(self.stamp),
            ),
            put(key::inode(rnode.ino), rnode.encode(self.stamp)),
        ])
    }

    /// Returns the changes that move an rnode from the row of its name to a new name.
    pub(super) fn move_lost(
        &self,
        from: &[u8],
        mut rnode: Rnode,
    ) -> Result<Vec<Change>, table::Error> {
        let Some(lost) = self.lost_name(rnode.ino)? else { return Ok(Vec::new()) };
        let moved = Moved { dir: lost.dir, hash: lost.hash };
        let ino = rnode.ino;
        rnode.flags.moved = true;
        Ok(vec![
            Change::Delete(from.to_vec()),
            put(lost.key(), NameRow::Rnode(rnode).encode(self.stamp)),
            put(key::moved(ino), moved.encode(self.stamp)),
        ])
    }

    /// Returns the changes that give a new name to a directory whose name, and the pointer to that,
    /// have these keys. It may be of another site, which does not notice that a name is lost.
    pub(super) fn move_link(
        &self,
        ino: InodeId,
        name: &[u8],
        pointer: &[u8],
    ) -> Result<Vec<Change>, table::Error> {
        let Some(lost) = self.lost_name(ino)? else { return Ok(Vec::new()) };
        let link = NameRow::Link { ino, kind: FileKind::Directory };
        let listed = key::parent_pointer(ino, lost.dir, lost.hash, &lost.name);
        Ok(vec![
            Change::Delete(name.to_vec()),
            Change::Delete(pointer.to_vec()),
            put(lost.key(), link.encode(self.stamp)),
            put(listed, ParentPointer.encode(self.stamp)),
        ])
    }

    /// Returns the changes that create a file for a content file whose inode is lost.
    pub(super) fn adopt_content(
        &self,
        ino: InodeId,
        generation: Generation,
        measured: &ContentStat,
    ) -> Result<Vec<Change>, table::Error> {
        let flags = RnodeFlags { has_content: true, ..RnodeFlags::default() };
        let rnode = Rnode {
            flags,
            generation: Some(generation),
            size: measured.size,
            blocks: measured.blocks,
            mtime: measured.mtime,
            ..self.found_file(ino)
        };
        self.name_lost(rnode)
    }

    /// As [`Check::adopt_content`], for inline bytes.
    pub(super) fn adopt_inline(
        &self,
        ino: InodeId,
        bytes: usize,
    ) -> Result<Vec<Change>, table::Error> {
        let flags = RnodeFlags { inline: true, ..RnodeFlags::default() };
        self.name_lost(Rnode { flags, size: bytes as u64, ..self.found_file(ino) })
    }

    /// Returns the rnode of a file of which only the bytes are known: only root may read it.
    fn found_file(&self, ino: InodeId) -> Rnode {
        let like = Rnode::root(Owner::default(), self.now);
        Rnode { ino, kind: FileKind::Regular, mode: 0o600, ..like }
    }

    /// Returns the changes that give a row to an rnode that has none, under a new name. The node of
    /// bytes that stay here has no name.
    fn name_lost(&self, rnode: Rnode) -> Result<Vec<Change>, table::Error> {
        if self.has_sites && self.table.get(&key::stay(rnode.ino))?.is_some() {
            let key = key::inode(rnode.ino);
            return Ok(vec![put(key, rnode.encode(self.stamp))]);
        }
        let Some(lost) = self.lost_name(rnode.ino)? else { return Ok(Vec::new()) };
        Ok(vec![put(lost.key(), NameRow::Rnode(rnode).encode(self.stamp))])
    }
}

/// Returns the change that writes `value` at `key`.
pub(super) fn put(key: Vec<u8>, value: Vec<u8>) -> Change {
    Change::Put(key, value)
}
