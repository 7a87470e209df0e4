//! Inodes that have lost their last name while the kernel still refers to them.
//!
//! A process may have a removed directory as its current one, and a descriptor may refer to a
//! removed directory, to a pipe, or (`O_PATH`) to any file. Unless a file is open, the server
//! forgets it soon, since only this kernel can still reach it. A regular file is opened in time
//! ([`crate::held_inodes`]). For the others, requests for attributes are answered from this table
//! until the kernel forgets them too, which it does at once if no process refers to them.

use std::sync::atomic::{AtomicU32, Ordering};

use pelago_wire::{Attr, FileKind, InodeId, OpenId, SetAttr, SetTime, Time};

use crate::clock;
use crate::striped::StripedMap;

/// Attributes of unlinked inodes. The size of the map follows the kernel's own inode cache.
#[derive(Default)]
pub(crate) struct Unlinked {
    inodes: StripedMap<Inode>,
    /// Counts the looks at the inodes that the kernel still refers to.
    tick: AtomicU32,
}

/// The part of a file that stays usable after its last name is gone.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Retained {
    /// The file itself, open.
    Open(OpenId),
    /// The target of a symbolic link.
    Target(Vec<u8>),
}

/// An inode without a name that the kernel has forgotten.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Forgotten {
    /// The inode is a regular file, which the server may still hold.
    pub(crate) is_file: bool,
    pub(crate) retained: Option<Retained>,
}

struct Inode {
    attr: Attr,
    retained: Option<Retained>,
    /// Number of the look before which it was added; `None` once it was looked at.
    since: Option<u32>,
}

/// Ticks until an inode is looked at: at least the time between two looks.
const TICKS: u32 = 2;

impl Unlinked {
    /// Adds an inode that lost a name; `attr` says how many it has left.
    pub(crate) fn add(&self, attr: Attr) {
        drop(self.retain(attr, None));
    }

    /// Adds an unlinked inode that is open, or about to be, so that the thread does not look at it.
    pub(crate) fn add_looked_at(&self, attr: Attr) {
        let ino = attr.ino.raw();
        let new = Inode { attr, retained: None, since: None };
        let _known = self.inodes.lock(ino).entry(ino).or_insert(new);
    }

    /// Adds an inode as [`Unlinked::add`] does, with its retained file or target. Returns
    /// `retained` if the inode still has a name.
    pub(crate) fn retain(&self, attr: Attr, retained: Option<Retained>) -> Option<Retained> {
        if attr.links > 0 {
            return retained;
        }
        let since = (attr.kind == FileKind::Regular && retained.is_none()).then(|| self.tick());
        drop(self.inodes.insert(attr.ino.raw(), Inode { attr, retained, since }));
        None
    }

    /// Returns the number of the last look.
    pub(crate) fn tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    /// Begins the next look, and returns its number.
    pub(crate) fn next_tick(&self) -> u32 {
        self.tick.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the files without a retained open that were added two looks ago, each once. Also
    /// returns whether others will be due.
    pub(crate) fn due(&self, tick: u32) -> (Vec<InodeId>, bool) {
        let mut due = Vec::new();
        let mut any_later = false;
        for mut stripe in self.inodes.stripes() {
            for (ino, inode) in stripe.iter_mut().filter(|(_, inode)| inode.since.is_some()) {
                match inode.since.take_if(|since| tick.wrapping_sub(*since) >= TICKS) {
                    Some(_) => due.push(InodeId::from_raw(*ino)),
                    None => any_later = true,
                }
            }
        }
        (due, any_later)
    }

    /// Retains an open of an unlinked file. Returns false if the kernel has forgotten the file, or
    /// another open is retained.
    pub(crate) fn hold(&self, ino: InodeId, open: OpenId) -> bool {
        match self.inodes.lock(ino.raw()).get_mut(&ino.raw()) {
            Some(Inode { retained: retained @ None, .. }) => {
                *retained = Some(Retained::Open(open));
                true
            }
            Some(_) | None => false,
        }
    }

    /// Returns whether a file or target is retained of an inode.
    pub(crate) fn is_held(&self, ino: InodeId) -> bool {
        let stripe = self.inodes.lock(ino.raw());
        stripe.get(&ino.raw()).is_some_and(|inode| inode.retained.is_some())
    }

    /// Takes the retained file or target of an inode; its attributes stay.
    pub(crate) fn let_go(&self, ino: InodeId) -> Option<Retained> {
        self.inodes.lock(ino.raw()).get_mut(&ino.raw())?.retained.take()
    }

    /// Removes an inode that the kernel has forgotten.
    pub(crate) fn forget(&self, ino: InodeId) -> Option<Forgotten> {
        let inode = self.inodes.remove(ino.raw())?;
        let is_file = inode.attr.kind == FileKind::Regular;
        Some(Forgotten { is_file, retained: inode.retained })
    }

    /// Returns the target of an unlinked symbolic link, if it was retained.
    pub(crate) fn target(&self, ino: InodeId) -> Option<Vec<u8>> {
        match self.inodes.lock(ino.raw()).get(&ino.raw())?.retained.as_ref()? {
            Retained::Target(target) => Some(target.clone()),
            Retained::Open(_) => None,
        }
    }

    /// Returns the attributes of an unlinked inode.
    pub(crate) fn attr(&self, ino: InodeId) -> Option<Attr> {
        self.inodes.lock(ino.raw()).get(&ino.raw()).map(|inode| inode.attr)
    }

    /// Changes and returns the attributes of an unlinked inode. A size is ignored: there are no
    /// bytes any more.
    pub(crate) fn change(&self, ino: InodeId, set: &SetAttr) -> Option<Attr> {
        let mut stripe = self.inodes.lock(ino.raw());
        let attr = &mut stripe.get_mut(&ino.raw())?.attr;
        attr.mode = set.mode.unwrap_or(attr.mode);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, resolve);
        attr.mtime = set.mtime.map_or(attr.mtime, resolve);
        attr.ctime = set.ctime.unwrap_or_else(|| clock::now().max(attr.ctime.next()));
        Some(*attr)
    }
}

fn resolve(time: SetTime) -> Time {
    match time {
        SetTime::Now => clock::now(),
        SetTime::To(time) => time,
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::FileKind;

    use super::*;

    const DIR: InodeId = InodeId::from_raw(9);

    fn attr(links: u32) -> Attr {
        Attr { mode: 0o755, links, uid: 1, ..Attr::empty(DIR, FileKind::Directory) }
    }

    #[test]
    fn an_inode_with_a_name_is_not_kept() {
        let unlinked = Unlinked::default();
        unlinked.add(attr(1));
        assert_eq!(unlinked.attr(DIR), None);
        assert_eq!(unlinked.change(DIR, &SetAttr::default()), None);
    }

    #[test]
    fn an_unlinked_inode_has_its_attributes_until_it_is_forgotten() {
        let unlinked = Unlinked::default();
        unlinked.add(attr(0));
        assert_eq!(unlinked.attr(DIR), Some(attr(0)));
        assert_eq!(unlinked.forget(DIR), Some(Forgotten { is_file: false, retained: None }));
        assert_eq!(unlinked.forget(DIR), None);
        assert_eq!(unlinked.attr(DIR), None);
    }

    #[test]
    fn attributes_of_an_unlinked_inode_can_be_changed() {
        let unlinked = Unlinked::default();
        unlinked.add(attr(0));
        let mtime = Time { seconds: 70, nanos: 1 };
        let set =
            SetAttr { mode: Some(0o700), mtime: Some(SetTime::To(mtime)), ..SetAttr::default() };
        let changed = unlinked.change(DIR, &set).unwrap();
        assert_eq!((changed.mode, changed.mtime, changed.uid), (0o700, mtime, 1));
        assert!(changed.ctime > attr(0).ctime);
        assert_eq!(unlinked.attr(DIR), Some(changed));
    }

    #[test]
    fn what_is_retained_of_an_unlinked_inode_comes_back_with_forget() {
        let unlinked = Unlinked::default();
        let retained = || Some(Retained::Target(b"there".to_vec()));
        assert_eq!(unlinked.retain(attr(1), retained()), retained());
        assert_eq!(unlinked.retain(attr(0), retained()), None);
        assert_eq!(unlinked.target(DIR), Some(b"there".to_vec()));
        let forgotten = Forgotten { is_file: false, retained: retained() };
        assert_eq!(unlinked.forget(DIR), Some(forgotten));
    }
}
