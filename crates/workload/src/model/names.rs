//! Operations on names.

use pelago_wire::{Code, FileKind, Name, OpenFlags, RenameFlags};

use crate::model::bytes::SparseBytes;
use crate::model::tree::{Body, NodeId};
use crate::model::{Expected, Model, NodeRef, OpenFile, Refusal};
use crate::op::{At, Op, Path};

impl Model {
    pub(super) fn apply_to_names(&mut self, op: &Op) -> Result<Expected, Refusal> {
        match op {
            Op::Create { slot, at, mode, flags } => self.create(*slot, at, *mode, *flags),
            Op::CreateUnnamed { slot, dir, mode, flags } => {
                self.create_unnamed(*slot, dir, *mode, *flags)
            }
            Op::MakeDir { at, mode } => self.make(at, Body::Directory, *mode),
            Op::MakeNode { at, kind: FileKind::Regular, mode } => {
                self.make(at, Body::Regular(SparseBytes::default()), *mode)
            }
            Op::MakeNode { at, kind, mode } => self.make(at, Body::Special(*kind), *mode),
            Op::Symlink { at, target } => self.make(at, Body::Symlink(target.clone()), 0o777),
            Op::Link { from, at } => self.link(from, at),
            Op::LinkOpen { slot, at } => self.link_open(*slot, at),
            Op::Unlink { at } => self.unlink(at),
            Op::RemoveDir { at } => self.remove_dir(at),
            Op::Rename { from, to, flags } => self.rename(from, to, *flags),
            _ => Err(Refusal::Skip),
        }
    }

    fn make(&mut self, at: &At, body: Body, mode: u16) -> Result<Expected, Refusal> {
        let dir = self.tree.find_free(at)?;
        let id = self.tree.add(body, mode);
        self.name(dir, &at.name, id);
        Ok(Expected::Attr(NodeRef(id)))
    }

    fn create(
        &mut self,
        slot: usize,
        at: &At,
        mode: u16,
        flags: OpenFlags,
    ) -> Result<Expected, Refusal> {
        if self.open(slot).is_ok() {
            return Err(Refusal::Skip);
        }
        let dir = self.tree.find_free(at)?;
        let id = self.tree.add(Body::Regular(SparseBytes::default()), mode);
        self.name(dir, &at.name, id);
        self.set_slot(slot, OpenFile::new(id, flags))?;
        Ok(Expected::Attr(NodeRef(id)))
    }

    fn create_unnamed(
        &mut self,
        slot: usize,
        dir: &Path,
        mode: u16,
        flags: OpenFlags,
    ) -> Result<Expected, Refusal> {
        if self.open(slot).is_ok() || !self.traits.unnamed {
            return Err(Refusal::Skip);
        }
        self.tree.find_dir(dir)?;
        let id = self.tree.add(Body::Regular(SparseBytes::default()), mode);
        self.tree.node_mut(id).awaits_name = true;
        self.set_slot(slot, OpenFile::new(id, flags))?;
        Ok(Expected::Attr(NodeRef(id)))
    }

    /// A file that has lost its last name cannot get another one.
    fn link_open(&mut self, slot: usize, at: &At) -> Result<Expected, Refusal> {
        let id = self.open(slot)?.id;
        if !self.traits.unnamed {
            return Err(Refusal::Skip);
        }
        let found = match self.tree.has_name(id) || self.tree.node(id).awaits_name {
            true => Ok(id),
            false => Err(Refusal::fails(Code::NotFound)),
        };
        self.link_found(found, at)
    }

    fn link(&mut self, from: &Path, at: &At) -> Result<Expected, Refusal> {
        let found = self.tree.find(from).and_then(|id| match self.tree.is_dir(id) {
            true => Err(Refusal::fails(Code::NotPermitted)),
            false => Ok(id),
        });
        self.link_found(found, at)
    }

    fn link_found(&mut self, found: Result<NodeId, Refusal>, at: &At) -> Result<Expected, Refusal> {
        let (id, dir) = both(found, self.tree.find_free(at))?;
        self.name(dir, &at.name, id);
        let node = self.tree.node_mut(id);
        node.awaits_name = false;
        node.ctime.change();
        Ok(Expected::Attr(NodeRef(id)))
    }

    fn unlink(&mut self, at: &At) -> Result<Expected, Refusal> {
        let (dir, id) = self.tree.find_name(at)?;
        if self.tree.is_dir(id) {
            return Err(Refusal::fails(Code::IsDirectory));
        }
        self.unname(dir, &at.name);
        self.lose_name(id);
        Ok(Expected::Done)
    }

    fn remove_dir(&mut self, at: &At) -> Result<Expected, Refusal> {
        let (dir, id) = self.tree.find_name(at)?;
        if !self.tree.is_dir(id) {
            return Err(Refusal::fails(Code::NotDirectory));
        }
        if self.tree.size(id) > 0 {
            return Err(Refusal::fails(Code::NotEmpty));
        }
        self.unname(dir, &at.name);
        self.lose_name(id);
        Ok(Expected::Done)
    }

    fn rename(&mut self, from: &At, to: &At, flags: RenameFlags) -> Result<Expected, Refusal> {
        let source = self.tree.find_name(from);
        let ((from_dir, moved), to_dir) = both(source, self.tree.find_dir(&to.dir))?;
        let target = self.tree.child(to_dir, &to.name);
        let wrong = self.rename_errors(from_dir, moved, to_dir, target, flags);
        if !wrong.is_empty() {
            let skips = flags.leaves_a_whiteout() && !self.traits.keeps_times_of_failures;
            return Err(if skips { Refusal::Skip } else { Refusal::Fails(wrong) });
        }
        if target == Some(moved) {
            return Ok(Expected::Done);
        }
        match (flags, target) {
            (RenameFlags::Exchange, Some(other)) => {
                self.name(from_dir, &from.name, other);
                self.tree.node_mut(other).ctime.change();
            }
            _ if flags.leaves_a_whiteout() => {
                let whiteout = self.tree.add(Body::Special(FileKind::CharDevice), 0);
                self.name(from_dir, &from.name, whiteout);
            }
            _ => self.unname(from_dir, &from.name),
        }
        self.name(to_dir, &to.name, moved);
        self.tree.node_mut(moved).ctime.change();
        if let (true, Some(lost)) = (flags.replaces(), target) {
            self.lose_name(lost);
        }
        Ok(Expected::Done)
    }

    fn rename_errors(
        &self,
        from_dir: NodeId,
        moved: NodeId,
        to_dir: NodeId,
        target: Option<NodeId>,
        flags: RenameFlags,
    ) -> Vec<Code> {
        let tree = &self.tree;
        let mut wrong = Vec::new();
        if tree.is_dir(moved) && tree.is_within(to_dir, moved) {
            wrong.push(Code::WouldLoop);
        }
        let Some(target) = target else {
            if flags == RenameFlags::Exchange {
                wrong.push(Code::NotFound);
            }
            return wrong;
        };
        match flags {
            RenameFlags::NoReplace | RenameFlags::Whiteout { replace: false } => {
                wrong.push(Code::Exists);
            }
            RenameFlags::Exchange => {
                if tree.is_dir(target) && tree.is_within(from_dir, target) {
                    wrong.push(Code::WouldLoop);
                }
            }
            _ if target == moved => {}
            RenameFlags::Replace | RenameFlags::Whiteout { replace: true } => {
                if tree.is_dir(moved) && !tree.is_dir(target) {
                    wrong.push(Code::NotDirectory);
                }
                if !tree.is_dir(moved) && tree.is_dir(target) {
                    wrong.push(Code::IsDirectory);
                }
                if tree.is_dir(target) && tree.size(target) > 0 {
                    wrong.push(Code::NotEmpty);
                }
            }
        }
        wrong
    }

    fn name(&mut self, dir: NodeId, name: &Name, id: NodeId) {
        self.tree.set_name(dir, name, id);
        self.touch_scans(dir, name);
    }

    fn unname(&mut self, dir: NodeId, name: &Name) {
        self.tree.remove_name(dir, name);
        self.touch_scans(dir, name);
    }

    fn touch_scans(&mut self, dir: NodeId, name: &Name) {
        for scan in self.scans.iter_mut().flatten() {
            scan.touch(dir, name);
        }
    }

    /// Updates a node that has lost a name; it is removed with its last name and last open file.
    fn lose_name(&mut self, id: NodeId) {
        self.tree.node_mut(id).ctime.change();
        self.forget_unreachable(id);
    }

    pub(super) fn forget_unreachable(&mut self, id: NodeId) {
        let is_open = self.slots.iter().flatten().any(|open| open.id == id);
        if !is_open && !self.tree.has_name(id) {
            self.tree.forget(id);
        }
    }
}

/// Returns both results, or the errors of both.
fn both<A, B>(first: Result<A, Refusal>, second: Result<B, Refusal>) -> Result<(A, B), Refusal> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (Err(Refusal::Fails(mut codes)), Err(Refusal::Fails(more))) => {
            codes.extend(more);
            Err(Refusal::Fails(codes))
        }
        (Err(stop), _) | (_, Err(stop)) => Err(stop),
    }
}
