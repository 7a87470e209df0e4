//! What is kept under leases.

use std::collections::HashMap;
use std::mem;

use crate::listings::Listings;
use pelago_wire::{Attr, Code, Entry, Handle, InodeId, Name, Tells, Touched, limits};

/// What answers said, as long as it holds.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    attrs: HashMap<InodeId, Attr>,
    /// What names lead to; `None` if they do not exist.
    names: HashMap<InodeId, HashMap<Name, Option<Handle>>>,
    count: usize,
    texts: HashMap<InodeId, HashMap<Text, Result<Vec<u8>, Code>>>,
    parents: HashMap<InodeId, Handle>,
    pub(crate) listings: Listings,
}

/// Something of a node that is neither a name nor an attribute.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Text {
    /// The target of a symbolic link.
    Target,
    /// The names of its extended attributes.
    Xattrs,
    /// The value of one.
    Xattr(Vec<u8>),
}

impl Text {
    /// Returns the text that an answer tells, and the node whose text it is.
    pub(crate) fn told(tells: Tells<'_>) -> Option<(InodeId, Self)> {
        match tells {
            Tells::Target(node) => Some((node, Self::Target)),
            Tells::Xattrs(node) => Some((node, Self::Xattrs)),
            Tells::Xattr { node, name } => Some((node, Self::Xattr(name.to_vec()))),
            Tells::Nothing
            | Tells::Attributes
            | Tells::Name(_)
            | Tells::NewName(_)
            | Tells::NewDir(_)
            | Tells::OldName(_)
            | Tells::Names { .. }
            | Tells::Parent(_) => None,
        }
    }
}

impl Kept {
    pub(crate) fn attr(&self, ino: InodeId) -> Option<Attr> {
        self.attrs.get(&ino).copied()
    }

    /// Returns what a name leads to, if that is known: `Some(None)` for one that does not exist.
    pub(crate) fn name(&self, dir: InodeId, name: &Name) -> Option<Option<Handle>> {
        match self.names.get(&dir).and_then(|names| names.get(name)) {
            Some(known) => Some(*known),
            None => self.listings.is_absent(dir, name).then_some(None),
        }
    }

    /// Returns the parent of a directory with its attributes, if both are kept.
    pub(crate) fn parent(&self, dir: InodeId) -> Option<Entry> {
        let handle = *self.parents.get(&dir)?;
        Some(Entry { handle, attr: self.attr(handle.ino)? })
    }

    pub(crate) fn keep_parent(&mut self, dir: InodeId, parent: Handle) {
        if self.parents.len() >= limits::HOLDER_NODES {
            self.parents.clear();
        }
        self.parents.insert(dir, parent);
    }

    pub(crate) fn text(&self, ino: InodeId, text: &Text) -> Option<Result<Vec<u8>, Code>> {
        self.texts.get(&ino)?.get(text).cloned()
    }

    pub(crate) fn keep_attr(&mut self, attr: Attr) {
        if self.attrs.len() >= limits::HOLDER_NODES {
            self.attrs.clear();
        }
        self.attrs.insert(attr.ino, attr);
    }

    pub(crate) fn keep_name(&mut self, dir: InodeId, name: Name, node: Option<Handle>) {
        if self.count >= limits::HOLDER_NAMES {
            self.names.clear();
            self.count = 0;
            // It is not known any more what their names lead to.
            self.listings.drop_all();
        }
        self.listings.know(dir, &name);
        let is_new = self.names.entry(dir).or_default().insert(name, node).is_none();
        self.count += usize::from(is_new);
    }

    pub(crate) fn keep_text(&mut self, ino: InodeId, text: Text, value: Result<Vec<u8>, Code>) {
        if value.as_ref().is_ok_and(|value| value.len() > limits::HOLDER_TEXT_BYTES) {
            return;
        }
        if self.texts.len() >= limits::HOLDER_TEXTS {
            self.texts.clear();
        }
        let texts = self.texts.entry(ino).or_default();
        if texts.len() >= limits::HOLDER_NODE_TEXTS {
            texts.clear();
        }
        texts.insert(text, value);
    }

    /// Forgets what a change touches.
    pub(crate) fn drop_touched(&mut self, touched: &[Touched]) {
        for touched in touched {
            match touched {
                Touched::Node(ino) => {
                    self.attrs.remove(ino);
                    self.texts.remove(ino);
                    self.parents.remove(ino);
                }
                Touched::Name { dir, name } => self.drop_name(*dir, name),
                Touched::Bytes(_) => {}
            }
        }
    }

    pub(crate) fn drop_attr(&mut self, ino: InodeId) {
        self.attrs.remove(&ino);
    }

    /// Forgets everything. Returns the nodes whose attributes were kept.
    pub(crate) fn drop_all(&mut self) -> Vec<InodeId> {
        mem::take(self).attrs.into_keys().collect()
    }

    /// Returns the file that a name leads to with its attributes, if both are kept.
    pub(crate) fn entry(&self, dir: InodeId, name: &Name) -> Option<Entry> {
        let handle = self.name(dir, name).flatten()?;
        Some(Entry { handle, attr: self.attr(handle.ino)? })
    }

    fn drop_name(&mut self, dir: InodeId, name: &Name) {
        self.listings.drop_name(dir, name);
        let Some(names) = self.names.get_mut(&dir) else { return };
        if names.remove(name).is_some() {
            self.count -= 1;
        }
        if names.is_empty() {
            self.names.remove(&dir);
        }
    }
}
