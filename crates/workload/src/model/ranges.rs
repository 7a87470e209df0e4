//! Operations on ranges of open files.

use pelago_wire::{AllocateMode, Code, SeekFrom, Whence};

use crate::model::{Expected, Model, Node, Open, Stop};
use crate::op::{Op, Range};

impl Model {
    pub(super) fn apply_to_ranges(&mut self, op: &Op) -> Result<Expected, Stop> {
        match op {
            Op::Allocate { slot, range, mode } => self.allocate(*slot, *range, *mode),
            Op::Seek { slot, from } => Ok(Expected::Found(Node(self.open(*slot)?.id), *from)),
            Op::Copy { from, range, to, to_offset } => self.copy(*from, *range, (*to, *to_offset)),
            _ => Err(Stop::Skip),
        }
    }

    /// Compares where data or a hole was found (`None`: nowhere) with the bytes. A file system may
    /// store zeros, so that holes are where it likes, but never where there are other bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn see_offset(&self, node: Node, from: SeekFrom, found: Option<u64>) -> Result<(), String> {
        let bytes = self.tree.bytes(node.0).ok_or("not an ordinary file")?;
        let (offset, size) = (from.offset, bytes.size());
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
    ) -> Result<Expected, Stop> {
        let open = self.open(slot)?;
        if !open.write {
            return Err(Stop::fails(Code::BadOpen));
        }
        if range.length == 0 {
            return Err(Stop::Skip);
        }
        let bytes = self.tree.bytes_mut(open.id).ok_or(Stop::Skip)?;
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
        self.hold(slot, Open { dirty: true, ..open })?;
        Ok(Expected::Done)
    }

    fn copy(
        &mut self,
        from: usize,
        range: Range,
        (to, to_offset): (usize, u64),
    ) -> Result<Expected, Stop> {
        let (source, target) = (self.open(from)?, self.open(to)?);
        if !source.read || !target.write || target.append {
            return Err(Stop::fails(Code::BadOpen));
        }
        if range.length == 0 {
            return Err(Stop::Skip);
        }
        let bytes = self.tree.bytes(source.id).ok_or(Stop::Skip)?;
        let copied = bytes.read(range.offset, range.length);
        let length = copied.len() as u64;
        let overlap = to_offset < range.offset + length && range.offset < to_offset + length;
        if overlap && source.id == target.id {
            return Err(Stop::fails(Code::Invalid));
        }
        let bytes = self.tree.bytes_mut(target.id).ok_or(Stop::Skip)?;
        if length > 0 {
            bytes.write(to_offset, &copied);
            self.tree.node_mut(target.id).change_bytes();
            self.hold(to, Open { dirty: true, ..target })?;
        }
        let size = self.tree.size(target.id);
        Ok(Expected::Written { bytes: length, size })
    }
}
