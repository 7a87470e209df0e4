//! Operations on ranges of open files.

use pelago_wire::{AllocateMode, Code, SeekFrom, Whence};

use crate::model::{Expected, Model, NodeRef, OpenFile, Refusal};
use crate::op::{Op, Range};

impl Model {
    pub(super) fn apply_to_ranges(&mut self, op: &Op) -> Result<Expected, Refusal> {
        match op {
            Op::Allocate { slot, range, mode } => self.allocate(*slot, *range, *mode),
            Op::Seek { slot, from } => Ok(Expected::Found(NodeRef(self.open(*slot)?.id), *from)),
            Op::Copy { from, range, to, to_offset } => self.copy(*from, *range, *to, *to_offset),
            _ => Err(Refusal::Skip),
        }
    }

    /// Checks the offset of data or a hole that the file system returned (`None`: there is none). A
    /// file system may store zeros instead of a hole, but a hole contains no other bytes.
    ///
    /// # Errors
    /// A description of the wrong offset.
    pub fn check_offset(
        &self,
        node: NodeRef,
        from: SeekFrom,
        found: Option<u64>,
    ) -> Result<(), String> {
        let bytes = self.tree.bytes(node.0).ok_or("not a regular file")?;
        let offset = from.offset;
        let size = bytes.size();
        let fits = match (from.whence, found) {
            (_, Some(found)) if offset >= size || found < offset || found > size => false,
            (Whence::Data, Some(found)) => found < size && bytes.is_zero(offset, found),
            (Whence::Data, None) => bytes.is_zero(offset, size.max(offset)),
            (Whence::Hole, Some(found)) => bytes.is_zero(found, found + 1),
            (Whence::Hole, None) => offset >= size,
        };
        match fits {
            true => Ok(()),
            false => Err(format!("{from:?} in {size} bytes found {found:?}")),
        }
    }

    fn allocate(
        &mut self,
        slot: usize,
        range: Range,
        mode: AllocateMode,
    ) -> Result<Expected, Refusal> {
        let open = self.open(slot)?;
        if !open.write {
            return Err(Refusal::fails(Code::BadOpen));
        }
        if range.length == 0 {
            return Err(Refusal::Skip);
        }
        let bytes = self.tree.bytes_mut(open.id).ok_or(Refusal::Skip)?;
        let size = bytes.size();
        if !matches!(mode, AllocateMode::Reserve { .. }) {
            bytes.zero(range.offset, range.length);
        }
        let keeps_size = match mode {
            AllocateMode::Reserve { keep_size } | AllocateMode::Zero { keep_size } => keep_size,
            AllocateMode::PunchHole => true,
        };
        if !keeps_size && range.end() > size {
            bytes.truncate(range.end());
        }
        self.tree.node_mut(open.id).change_bytes();
        self.set_slot(slot, OpenFile { dirty: true, ..open })?;
        Ok(Expected::Done)
    }

    fn copy(
        &mut self,
        from: usize,
        range: Range,
        to: usize,
        to_offset: u64,
    ) -> Result<Expected, Refusal> {
        let source = self.open(from)?;
        let target = self.open(to)?;
        if !source.read || !target.write || target.append {
            return Err(Refusal::fails(Code::BadOpen));
        }
        if range.length == 0 {
            return Err(Refusal::Skip);
        }
        let bytes = self.tree.bytes(source.id).ok_or(Refusal::Skip)?;
        let copied = bytes.read(range.offset, range.length);
        let length = copied.len() as u64;
        let overlap = to_offset < range.offset + length && range.offset < to_offset + length;
        if overlap && source.id == target.id {
            return Err(Refusal::fails(Code::Invalid));
        }
        let bytes = self.tree.bytes_mut(target.id).ok_or(Refusal::Skip)?;
        if length > 0 {
            bytes.write(to_offset, &copied);
            self.tree.node_mut(target.id).change_bytes();
            self.set_slot(to, OpenFile { dirty: true, ..target })?;
        }
        let size = self.tree.size(target.id);
        Ok(Expected::Written { bytes: length, size })
    }
}
