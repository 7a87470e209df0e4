//! Operations on open files, and on attributes.

use pelago_random::bytes_of;
use pelago_wire::{Code, OpenFlags, SetTime, XattrFlags};

use crate::model::stamp::Stamp;
use crate::model::tree::{Body, NodeId};
use crate::model::{Expected, Model, NodeRef, OpenFile, Refusal};
use crate::op::{Op, Patch, Path, Subject};

impl OpenFile {
    pub(super) const fn new(id: NodeId, flags: OpenFlags) -> Self {
        let OpenFlags { read, write, append, .. } = flags;
        Self { id, read, write, append, dirty: false }
    }
}

impl Model {
    pub(super) fn apply_to_open(&mut self, op: &Op) -> Result<Expected, Refusal> {
        match op {
            Op::Open { slot, path, flags } => self.open_path(*slot, path, *flags),
            Op::Flush { slot } | Op::Fsync { slot, .. } => {
                self.commit(*slot)?;
                Ok(Expected::Done)
            }
            Op::Close { slot } => self.close(*slot),
            Op::Write { slot, patch } => self.write(*slot, patch),
            Op::Read { slot, offset, size } => {
                let open = self.open(*slot)?;
                if !open.read {
                    return Err(Refusal::fails(Code::BadOpen));
                }
                let bytes = self.tree.bytes(open.id).ok_or(Refusal::Skip)?;
                Ok(Expected::Bytes(bytes.read(*offset, u64::from(*size))))
            }
            _ => Err(Refusal::Skip),
        }
    }

    pub(super) fn apply_to_attributes(&mut self, op: &Op) -> Result<Expected, Refusal> {
        match op {
            Op::Truncate { node, size } => self.truncate(node, *size),
            Op::ChangeMode { node, mode } => {
                let id = self.subject(node)?;
                let known = self.tree.node_mut(id);
                if matches!(known.body, Body::Symlink(_)) {
                    return Err(Refusal::Skip);
                }
                known.mode = *mode;
                known.ctime.change();
                Ok(Expected::Attr(NodeRef(id)))
            }
            Op::SetTimes { node, atime, mtime } => {
                let id = self.subject(node)?;
                if atime.is_none() && mtime.is_none() {
                    return Err(Refusal::Skip);
                }
                let known = self.tree.node_mut(id);
                match mtime {
                    // Not `Exact`: an earlier call may have set a time ahead of a coarse clock.
                    Some(SetTime::Now) => known.mtime.change(),
                    Some(SetTime::To(time)) => known.mtime = Stamp::Exact(*time),
                    None => {}
                }
                known.ctime.change();
                Ok(Expected::Attr(NodeRef(id)))
            }
            Op::SetXattr { path, name, value, flags } => self.set_xattr(path, name, value, *flags),
            Op::GetXattr { path, name } => {
                let id = self.xattr_holder(path)?;
                let value = self.tree.node(id).xattrs.get(name).cloned();
                value.map(Expected::Bytes).ok_or_else(|| Refusal::fails(Code::NoXattr))
            }
            Op::ListXattr { path } => {
                let id = self.xattr_holder(path)?;
                let names = self.tree.node(id).xattrs.keys().cloned();
                Ok(Expected::XattrNames(names.collect()))
            }
            Op::RemoveXattr { path, name } => {
                let id = self.xattr_holder(path)?;
                let node = self.tree.node_mut(id);
                if node.xattrs.remove(name).is_none() {
                    return Err(Refusal::fails(Code::NoXattr));
                }
                node.ctime.change();
                Ok(Expected::Done)
            }
            _ => Err(Refusal::Skip),
        }
    }

    pub(super) fn set_slot(&mut self, slot: usize, open: OpenFile) -> Result<(), Refusal> {
        *self.slots.get_mut(slot).ok_or(Refusal::Skip)? = Some(open);
        Ok(())
    }

    fn open_path(
        &mut self,
        slot: usize,
        path: &Path,
        flags: OpenFlags,
    ) -> Result<Expected, Refusal> {
        if self.open(slot).is_ok() {
            return Err(Refusal::Skip);
        }
        let id = self.tree.find(path)?;
        if self.tree.bytes(id).is_none() {
            return Err(self.not_regular(id));
        }
        if flags.truncate {
            self.resize(id, 0);
        }
        self.set_slot(slot, OpenFile::new(id, flags))?;
        Ok(Expected::Attr(NodeRef(id)))
    }

    fn close(&mut self, slot: usize) -> Result<Expected, Refusal> {
        let open = self.commit(slot)?;
        if let Some(slot) = self.slots.get_mut(slot) {
            *slot = None;
        }
        self.forget_unreachable(open.id);
        Ok(Expected::Done)
    }

    /// Committing written bytes may give a newer ctime; the mtime is that of the write.
    fn commit(&mut self, slot: usize) -> Result<OpenFile, Refusal> {
        let open = self.open(slot)?;
        if open.dirty {
            self.tree.node_mut(open.id).ctime.maybe_change();
        }
        self.set_slot(slot, OpenFile { dirty: false, ..open })?;
        Ok(open)
    }

    fn write(&mut self, slot: usize, patch: &Patch) -> Result<Expected, Refusal> {
        let open = self.open(slot)?;
        if !open.write {
            return Err(Refusal::fails(Code::BadOpen));
        }
        if patch.length == 0 {
            return Err(Refusal::Skip);
        }
        let data = bytes_of(patch.seed, patch.length);
        let bytes = self.tree.bytes_mut(open.id).ok_or(Refusal::Skip)?;
        let offset = if open.append { bytes.size() } else { patch.offset };
        bytes.write(offset, &data);
        let size = bytes.size();
        self.tree.node_mut(open.id).change_bytes();
        self.set_slot(slot, OpenFile { dirty: true, ..open })?;
        Ok(Expected::Written { bytes: patch.length as u64, size })
    }

    fn truncate(&mut self, node: &Subject, size: u64) -> Result<Expected, Refusal> {
        let id = self.subject(node)?;
        if self.tree.bytes(id).is_none() {
            return Err(self.not_regular(id));
        }
        if let Subject::Slot(slot) = node {
            let open = self.open(*slot)?;
            if !open.write {
                return Err(Refusal::Skip);
            }
            self.set_slot(*slot, OpenFile { dirty: true, ..open })?;
        }
        self.resize(id, size);
        Ok(Expected::Attr(NodeRef(id)))
    }

    fn resize(&mut self, id: NodeId, size: u64) {
        let Some(bytes) = self.tree.bytes_mut(id) else { return };
        let same = bytes.size() == size;
        bytes.truncate(size);
        let node = self.tree.node_mut(id);
        if same {
            node.mtime.maybe_change();
            node.ctime.maybe_change();
        } else {
            node.change_bytes();
        }
    }

    fn set_xattr(
        &mut self,
        path: &Path,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<Expected, Refusal> {
        let id = self.xattr_holder(path)?;
        let node = self.tree.node_mut(id);
        match (flags, node.xattrs.contains_key(name)) {
            (XattrFlags::Create, true) => return Err(Refusal::fails(Code::Exists)),
            (XattrFlags::Replace, false) => return Err(Refusal::fails(Code::NoXattr)),
            _ => {}
        }
        node.xattrs.insert(name.to_vec(), value.to_vec());
        node.ctime.change();
        Ok(Expected::Done)
    }

    /// Linux supports `user.` attributes on files and directories only.
    fn xattr_holder(&self, path: &Path) -> Result<NodeId, Refusal> {
        if !self.traits.xattrs {
            return Err(Refusal::Skip);
        }
        let id = self.tree.find(path)?;
        match self.tree.node(id).body {
            Body::Directory | Body::Regular(_) => Ok(id),
            Body::Symlink(_) | Body::Special(_) => Err(Refusal::Skip),
        }
    }
}
