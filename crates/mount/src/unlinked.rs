//! What has lost its last name while the kernel still refers to it.
//!
//! A process may stand in a directory that was removed, and a descriptor may lead to one, to a
//! pipe, or (`O_PATH`) to anything. Where no file is open the server has forgotten them, for
//! nothing can lead to them any more but this kernel. It gets their attributes from here until it
//! forgets them too, which it does at once where nobody refers to them.

use std::collections::HashMap;

use parking_lot::Mutex;
use pelago_wire::{Attr, InodeId, OpenId, SetAttr, SetTime, Time};

use crate::clock;

/// Attributes of what is gone. Its size follows the kernel's own cache of inodes; its locks are
/// leaves.
#[derive(Default)]
pub(crate) struct Unlinked([Mutex<HashMap<u64, Left>>; SHARDS]);

/// What is kept of a file that a rename replaced.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Retained {
    /// The file itself, open.
    Open(OpenId),
    /// What a symbolic link says.
    Target(Vec<u8>),
}

struct Left {
    attr: Attr,
    kept: Option<Retained>,
}

const SHARDS: usize = 16;

impl Unlinked {
    /// A name was removed; these are the attributes of what it led to.
    pub(crate) fn add(&self, attr: Attr) {
        drop(self.keep(attr, None));
    }

    /// As [`Unlinked::add`], with what is kept of it; answers that where it is not gone.
    pub(crate) fn keep(&self, attr: Attr, kept: Option<Retained>) -> Option<Retained> {
        if attr.links > 0 {
            return kept;
        }
        self.shard(attr.ino).lock().insert(attr.ino.raw(), Left { attr, kept });
        None
    }

    /// The kernel does not refer to it any more. Answers what was kept of it.
    pub(crate) fn forget(&self, ino: InodeId) -> Option<Retained> {
        self.shard(ino).lock().remove(&ino.raw()).and_then(|left| left.kept)
    }

    /// What it says, if it is a symbolic link of which that was kept.
    pub(crate) fn target(&self, ino: InodeId) -> Option<Vec<u8>> {
        match self.shard(ino).lock().get(&ino.raw())?.kept.as_ref()? {
            Retained::Target(target) => Some(target.clone()),
            Retained::Open(_) => None,
        }
    }

    /// The attributes, if it is gone.
    pub(crate) fn attr(&self, ino: InodeId) -> Option<Attr> {
        self.shard(ino).lock().get(&ino.raw()).map(|left| left.attr)
    }

    /// Changes attributes, if it is gone. There are no bytes any more, so a size changes nothing.
    pub(crate) fn change(&self, ino: InodeId, set: &SetAttr) -> Option<Attr> {
        let mut shard = self.shard(ino).lock();
        let attr = &mut shard.get_mut(&ino.raw())?.attr;
        attr.mode = set.mode.unwrap_or(attr.mode);
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        attr.atime = set.atime.map_or(attr.atime, at);
        attr.mtime = set.mtime.map_or(attr.mtime, at);
        attr.ctime = set.ctime.unwrap_or_else(|| clock::now().max(attr.ctime.next()));
        Some(*attr)
    }

    fn shard(&self, ino: InodeId) -> &Mutex<HashMap<u64, Left>> {
        &self.0[usize::try_from(ino.raw()).unwrap_or(0) % SHARDS]
    }
}

fn at(time: SetTime) -> Time {
    match time {
        SetTime::Now => clock::now(),
        SetTime::To(time) => time,
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::FileKind;

    use super::*;

    fn attr(links: u32) -> Attr {
        let time = Time { seconds: 5, nanos: 6 };
        Attr {
            ino: InodeId::from_raw(9),
            kind: FileKind::Directory,
            mode: 0o755,
            links,
            uid: 1,
            gid: 2,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            volatile: false,
        }
    }

    #[test]
    fn what_is_gone_keeps_its_attributes_until_it_is_forgotten() {
        let unlinked = Unlinked::default();
        let ino = attr(0).ino;
        unlinked.add(attr(1));
        assert_eq!(unlinked.attr(ino), None);
        assert_eq!(unlinked.change(ino, &SetAttr::default()), None);
        unlinked.add(attr(0));
        assert_eq!(unlinked.attr(ino), Some(attr(0)));
        let mtime = Time { seconds: 70, nanos: 1 };
        let set =
            SetAttr { mode: Some(0o700), mtime: Some(SetTime::To(mtime)), ..SetAttr::default() };
        let changed = unlinked.change(ino, &set).unwrap();
        assert_eq!((changed.mode, changed.mtime, changed.uid), (0o700, mtime, 1));
        assert!(changed.ctime > attr(0).ctime);
        assert_eq!(unlinked.attr(ino), Some(changed));
        assert_eq!(unlinked.forget(ino), None);
        assert_eq!(unlinked.attr(ino), None);
        let kept = || Some(Retained::Target(b"there".to_vec()));
        assert_eq!(unlinked.keep(attr(1), kept()), kept());
        assert_eq!(unlinked.keep(attr(0), kept()), None);
        assert_eq!(unlinked.target(ino), Some(b"there".to_vec()));
        assert_eq!(unlinked.forget(ino), kept());
    }
}
