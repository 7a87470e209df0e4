//! The facts of replies that are cached under leases: attributes, names, texts, parents, listings.
//!
//! Each table is bounded: one that is full is cleared.

use std::collections::HashMap;
use std::mem;

use pelago_wire::{Attr, Code, Entry, Handle, InodeId, Name, Tells, Touched, limits};

use crate::listings::Listings;
use crate::most_facts::MostFacts;

/// The facts of replies that are cached under leases.
#[derive(Debug, Default)]
pub(crate) struct LeasedCache {
    most: MostFacts,
    attrs: HashMap<InodeId, Attr>,
    /// The attributes of files that were read since. All but the time of access is under a lease.
    read_attrs: HashMap<InodeId, Attr>,
    /// The targets of names, by their directory; `None` for a name that does not exist.
    names: HashMap<InodeId, HashMap<Name, Option<Handle>>>,
    /// Names of all directories.
    name_count: usize,
    texts: HashMap<InodeId, HashMap<Text, Result<Vec<u8>, Code>>>,
    /// The parents of directories.
    parents: HashMap<InodeId, Handle>,
    pub(crate) listings: Listings,
}

/// A text that belongs to a node, and changes with its attributes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Text {
    /// The target of a symbolic link.
    Target,
    /// The names of the extended attributes.
    Xattrs,
    /// The value of the extended attribute with this name.
    Xattr(Vec<u8>),
}

impl Text {
    /// Returns the text that a reply reports, and its node.
    pub(crate) fn reported(tells: Tells<'_>) -> Option<(InodeId, Self)> {
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

impl LeasedCache {
    /// Returns an empty cache with these limits.
    pub(crate) fn new(most: MostFacts) -> Self {
        Self { most, listings: Listings::new(most), ..Self::default() }
    }

    /// Returns the facts, and leaves none here.
    pub(crate) fn take(&mut self) -> Self {
        mem::replace(self, Self::new(self.most))
    }

    pub(crate) fn attr(&self, ino: InodeId) -> Option<Attr> {
        self.attrs.get(&ino).copied()
    }

    /// Returns the target of a name, if that is known: `Some(None)` for a name that does not exist.
    pub(crate) fn name(&self, dir: InodeId, name: &Name) -> Option<Option<Handle>> {
        match self.names.get(&dir).and_then(|names| names.get(name)) {
            Some(target) => Some(*target),
            None => self.listings.is_absent(dir, name).then_some(None),
        }
    }

    /// Returns the parent of a directory with its attributes, if both are cached.
    pub(crate) fn parent(&self, dir: InodeId) -> Option<Entry> {
        let handle = *self.parents.get(&dir)?;
        Some(Entry { handle, attr: self.attr(handle.ino)? })
    }

    pub(crate) fn keep_parent(&mut self, dir: InodeId, parent: Handle) {
        if self.parents.len() >= self.most.nodes {
            self.parents.clear();
        }
        self.parents.insert(dir, parent);
    }

    pub(crate) fn text(&self, ino: InodeId, text: &Text) -> Option<Result<Vec<u8>, Code>> {
        self.texts.get(&ino)?.get(text).cloned()
    }

    pub(crate) fn keep_attr(&mut self, attr: Attr) {
        if self.attrs.len() >= self.most.nodes {
            self.attrs.clear();
        }
        self.read_attrs.remove(&attr.ino);
        self.attrs.insert(attr.ino, attr);
    }

    /// Drops the attributes of a file whose time of access changes, and keeps the rest of them for
    /// [`LeasedCache::with_old_access_times`].
    pub(crate) fn access_time_changes(&mut self, ino: InodeId) {
        let Some(attr) = self.attrs.remove(&ino) else { return };
        if self.read_attrs.len() >= self.most.nodes {
            self.read_attrs.clear();
        }
        self.read_attrs.insert(ino, attr);
    }

    /// Returns the facts with attributes of which the time of access may be old.
    pub(crate) fn with_old_access_times(mut self) -> Self {
        for (ino, attr) in mem::take(&mut self.read_attrs) {
            self.attrs.entry(ino).or_insert(attr);
        }
        self
    }

    pub(crate) fn keep_name(&mut self, dir: InodeId, name: Name, node: Option<Handle>) {
        if self.name_count >= self.most.names {
            self.names.clear();
            self.name_count = 0;
            // Each name in a listing must have its target here.
            self.listings.drop_all();
        }
        self.listings.know(dir, &name);
        let is_new = self.names.entry(dir).or_default().insert(name, node).is_none();
        self.name_count += usize::from(is_new);
    }

    pub(crate) fn keep_text(&mut self, ino: InodeId, text: Text, value: Result<Vec<u8>, Code>) {
        if value.as_ref().is_ok_and(|value| value.len() > limits::HOLDER_TEXT_BYTES) {
            return;
        }
        if self.texts.len() >= self.most.texts {
            self.texts.clear();
        }
        let texts = self.texts.entry(ino).or_default();
        if texts.len() >= limits::HOLDER_NODE_TEXTS {
            texts.clear();
        }
        texts.insert(text, value);
    }

    /// Drops what a change touches.
    pub(crate) fn drop_touched(&mut self, touched: &[Touched]) {
        for touched in touched {
            match touched {
                Touched::Node(ino) => {
                    self.drop_attr(*ino);
                    self.texts.remove(ino);
                    self.parents.remove(ino);
                }
                Touched::Name { dir, name } => self.drop_name(*dir, name),
                // The bytes of files are in the cache below.
                Touched::Bytes(_) => {}
            }
        }
    }

    pub(crate) fn drop_attr(&mut self, ino: InodeId) {
        self.attrs.remove(&ino);
        self.read_attrs.remove(&ino);
    }

    /// Returns whether neither attributes nor names are cached.
    pub(crate) fn is_empty(&self) -> bool {
        self.attrs.is_empty() && self.read_attrs.is_empty() && self.names.is_empty()
    }

    /// Drops everything. Returns the nodes whose attributes were cached.
    pub(crate) fn drop_all(&mut self) -> Vec<InodeId> {
        self.take().attrs.into_keys().collect()
    }

    /// Returns the target of a name with its attributes, if both are cached.
    pub(crate) fn entry(&self, dir: InodeId, name: &Name) -> Option<Entry> {
        let handle = self.name(dir, name).flatten()?;
        Some(Entry { handle, attr: self.attr(handle.ino)? })
    }

    fn drop_name(&mut self, dir: InodeId, name: &Name) {
        self.listings.drop_name(dir, name);
        let Some(names) = self.names.get_mut(&dir) else { return };
        if names.remove(name).is_some() {
            self.name_count -= 1;
        }
        if names.is_empty() {
            self.names.remove(&dir);
        }
    }
}
