//! Ids and hashes: numbers that name files, names, opens, sessions and requests.

use std::fmt;

/// The id of a file, directory or link: 16 bits of site, 12 of shard, 36 of counter. Ids are never
/// reused. Programs see the id as the inode number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId(u64);

impl InodeId {
    /// The root directory of a volume.
    pub const ROOT: Self = Self(1);

    /// The site of no server: a mount takes ids of this site for what exists in the mount alone, as
    /// the hidden files by which it is searched. No server issues one, and none is on the wire.
    pub const MOUNT_SITE: u16 = u16::MAX;

    const COUNTER_BITS: u32 = 36;
    const SHARD_BITS: u32 = 12;

    /// Returns the id with these 64 bits; each value is an id.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// Returns the id of `counter` (36 bits) in `shard` (12 bits) of `site`, or `None` if a number
    /// is too large.
    #[must_use]
    pub const fn new(site: u16, shard: u16, counter: u64) -> Option<Self> {
        if shard >> Self::SHARD_BITS != 0 || counter >> Self::COUNTER_BITS != 0 {
            return None;
        }
        let high = ((site as u64) << Self::SHARD_BITS) | shard as u64;
        Some(Self((high << Self::COUNTER_BITS) | counter))
    }

    /// Returns the 64 bits.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Returns the site that created the file.
    #[must_use]
    pub const fn site(self) -> u16 {
        (self.0 >> (Self::SHARD_BITS + Self::COUNTER_BITS)) as u16
    }

    /// Returns the shard that created the file, below 4096. Every row keyed by the id is in it.
    #[must_use]
    pub const fn shard(self) -> u16 {
        ((self.0 >> Self::COUNTER_BITS) & ((1 << Self::SHARD_BITS) - 1)) as u16
    }

    /// Returns the shard that created the file, with its site.
    #[must_use]
    pub const fn home(self) -> ShardId {
        ShardId { site: self.site(), shard: self.shard() }
    }

    /// Returns whether the id is of a mount, not of a volume.
    #[must_use]
    pub const fn is_of_mount(self) -> bool {
        self.site() == Self::MOUNT_SITE
    }

    /// Returns the number within site and shard.
    #[must_use]
    pub const fn counter(self) -> u64 {
        self.0 & ((1 << Self::COUNTER_BITS) - 1)
    }
}

/// A shard, with its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId {
    /// The site, from 0.
    pub site: u16,
    /// The shard of the site, from 0; below 4096.
    pub shard: u16,
}

impl ShardId {
    /// The first shard of the first site, in which each volume begins.
    pub const FIRST: Self = Self { site: 0, shard: 0 };

    /// Returns the id of `counter` (36 bits) in this shard, or `None` if a number is too large.
    #[must_use]
    pub const fn inode(self, counter: u64) -> Option<InodeId> {
        InodeId::new(self.site, self.shard, counter)
    }
}

impl fmt::Debug for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// The hash of a name, keyed with the volume's secret. Directories are stored and listed in the
/// order of these hashes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NameHash(pub u64);

impl NameHash {
    /// Returns the first 32 bits of the hash.
    #[must_use]
    pub const fn prefix(self) -> u64 {
        self.0 >> 32
    }

    /// Returns the lowest hash with these first 32 bits.
    #[must_use]
    pub const fn first_of(prefix: u64) -> Self {
        Self(prefix << 32)
    }
}

impl fmt::Debug for NameHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:016x}", self.0)
    }
}

/// An inode id with a hint: its row was last seen under the name with `hash` in the directory
/// `dir`. The hint saves a search. It may be stale and proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    /// The inode.
    pub ino: InodeId,
    /// The directory of the hint; equal to `ino` if the row is not under a name.
    pub dir: InodeId,
    /// The hash of the hint's name; 0 if `dir` equals `ino`.
    pub hash: NameHash,
}

impl Handle {
    /// The root directory of a volume.
    pub const ROOT: Self = Self::own(InodeId::ROOT);

    /// Returns a handle for a row that is not under a name: of a directory, of a file with several
    /// names, or of one without a name.
    #[must_use]
    pub const fn own(ino: InodeId) -> Self {
        Self { ino, dir: ino, hash: NameHash(0) }
    }

    /// Returns a handle for a row that was last seen under a name.
    #[must_use]
    pub const fn at(ino: InodeId, dir: InodeId, hash: NameHash) -> Self {
        Self { ino, dir, hash }
    }

    /// Returns whether the hint names a row under a name.
    #[must_use]
    pub fn is_under_a_name(&self) -> bool {
        self.dir != self.ino
    }
}

/// A position in a directory listing.
///
/// The position after a name follows from the name's hash alone: `(hash >> 2) + 3`. So it stays
/// valid while the directory changes, and it never equals one of the three fixed positions below 3.
/// If names share these bits of their hashes, all but the last have a *ranked* position instead,
/// above all others: the first 32 bits of the hash, and the rank of the name among the directory's
/// names that share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Before `.`.
    pub const START: Self = Self(0);
    /// After `.`.
    pub const AFTER_DOT: Self = Self(1);
    /// After `..`, before the first name.
    pub const AFTER_DOT_DOT: Self = Self(2);

    /// Returns the position after the names with this hash.
    #[must_use]
    pub const fn of(hash: NameHash) -> Self {
        Self((hash.0 >> 2) + 3)
    }

    /// Returns the position after the `rank`-th name (from 1) of those whose hashes share the first
    /// 32 bits of `hash`; `None` beyond [`crate::limits::EQUAL_NAMES`].
    #[must_use]
    pub const fn ranked(hash: NameHash, rank: u64) -> Option<Self> {
        if rank == 0 || rank > crate::limits::EQUAL_NAMES {
            return None;
        }
        Some(Self(RANKED | hash.prefix() << RANK_BITS | rank))
    }

    /// Returns the lowest hash with the first 32 bits of this ranked position, and the rank; `None`
    /// for other positions.
    #[must_use]
    pub const fn rank(self) -> Option<(NameHash, u64)> {
        if self.0 < RANKED || self.0 >> 63 != 0 {
            return None;
        }
        let prefix = (self.0 & !RANKED) >> RANK_BITS;
        Some((NameHash::first_of(prefix), self.0 & crate::limits::EQUAL_NAMES))
    }

    /// Returns the lowest hash after this position, which must not be ranked; `None` at the end.
    #[must_use]
    pub const fn first_hash_behind(self) -> Option<NameHash> {
        if self.0 < 3 {
            return Some(NameHash(0));
        }
        let group = self.0 - 3 + 1;
        if group >> 62 != 0 { None } else { Some(NameHash(group << 2)) }
    }
}

/// The first ranked position, above all others.
const RANKED: u64 = 3 << 61;
/// Bits of a rank.
const RANK_BITS: u32 = 29;
const _: () = assert!(crate::limits::EQUAL_NAMES == (1 << RANK_BITS) - 1, "all ranks have bits");

/// The number of an open of a file. The client chooses it with the request to open: numbers rise in
/// its session and are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub u64);

/// The number of an inode's content file: 1 at first, and 1 more each time its bytes move to a new
/// file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

impl Generation {
    /// The first content file of each inode.
    pub const FIRST: Self = Self(1);
}

/// The id of a session: one authenticated relation of a client with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl SessionId {
    /// The mount in the server's own process. Its calls are direct and cannot lose a reply, so no
    /// reply is cached for it.
    pub const DIRECT: Self = Self(0);

    /// Returns an id that no other session of the volume has: the server counts those that begin in
    /// its run, and each run has an epoch of its own.
    #[must_use]
    pub const fn new(epoch: u32, counter: u32) -> Self {
        Self((epoch as u64) << 32 | counter as u64)
    }

    /// Returns the epoch in which the session began.
    #[must_use]
    pub const fn epoch(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The number that a session gives to a request. A repeated request has the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranked positions are above all others, in the order of the hashes, and fit into the kernel's
    /// `off_t`.
    #[test]
    fn a_ranked_position_returns_its_parts() {
        let last = Cookie::of(NameHash(u64::MAX));
        for hash in [0, 1 << 32, 0xfeed_f00d_dead_beef, u64::MAX] {
            let prefix = NameHash(hash >> 32 << 32);
            for rank in [1, 2, crate::limits::EQUAL_NAMES] {
                let position = Cookie::ranked(NameHash(hash), rank).unwrap();
                assert_eq!(position.rank(), Some((prefix, rank)));
                assert!(position > last && position.0 <= i64::MAX as u64);
            }
        }
        assert_eq!(Cookie::ranked(NameHash(1), 0), None);
        assert_eq!(Cookie::ranked(NameHash(1), crate::limits::EQUAL_NAMES + 1), None);
        for position in [Cookie::START, Cookie::AFTER_DOT_DOT, last, Cookie(u64::MAX)] {
            assert_eq!(position.rank(), None);
        }
    }

    #[test]
    fn an_inode_id_returns_its_parts() {
        let id = InodeId::new(0xabcd, 0xfff, (1 << 36) - 1).unwrap();
        assert_eq!((id.site(), id.shard(), id.counter()), (0xabcd, 0xfff, (1 << 36) - 1));
        assert_eq!(InodeId::new(0, 0, 1), Some(InodeId::ROOT));
        assert!(!id.is_of_mount() && !InodeId::ROOT.is_of_mount());
        assert!(InodeId::from_raw(u64::MAX).is_of_mount());
        assert_eq!(InodeId::new(0, 0x1000, 1), None);
        assert_eq!(InodeId::new(0, 0, 1 << 36), None);
    }

    #[test]
    fn a_listing_continues_after_all_names_of_a_cookie() {
        for hash in [0, 1, 3, 4, 7, u64::MAX / 2, u64::MAX - 4] {
            let behind = Cookie::of(NameHash(hash)).first_hash_behind().unwrap();
            assert!(behind.0 > hash && behind.0 - hash <= 4, "{hash}");
            assert_ne!(Cookie::of(behind), Cookie::of(NameHash(hash)));
        }
        assert_eq!(Cookie::of(NameHash(u64::MAX)).first_hash_behind(), None);
        assert_eq!(Cookie::AFTER_DOT_DOT.first_hash_behind(), Some(NameHash(0)));
    }
}
