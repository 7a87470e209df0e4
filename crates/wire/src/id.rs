//! Numbers that name things. None is ever used for two things.

use std::fmt;

/// The id of a file, directory or link: site 16 bits, shard 12, counter 36. Never reused. It is
/// also the inode number that programs see.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId(u64);

impl InodeId {
    /// The directory at the top of a volume.
    pub const ROOT: Self = Self(1);

    const COUNTER_BITS: u32 = 36;
    const SHARD_BITS: u32 = 12;

    /// The id that these 64 bits are.
    #[must_use]
    pub const fn from_raw(raw: u64) -> Self {
        Self(raw)
    }

    /// The id with this `counter` (36 bits) made by `shard` (12 bits) of `site`; `None` where one
    /// does not fit.
    #[must_use]
    pub const fn new(site: u16, shard: u16, counter: u64) -> Option<Self> {
        if shard >> Self::SHARD_BITS != 0 || counter >> Self::COUNTER_BITS != 0 {
            return None;
        }
        let high = ((site as u64) << Self::SHARD_BITS) | shard as u64;
        Some(Self((high << Self::COUNTER_BITS) | counter))
    }

    /// The 64 bits.
    #[must_use]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The site that made it.
    #[must_use]
    pub const fn site(self) -> u16 {
        (self.0 >> (Self::SHARD_BITS + Self::COUNTER_BITS)) as u16
    }

    /// The shard that made it, below 4096. Every row keyed by the id lives there.
    #[must_use]
    pub const fn shard(self) -> u16 {
        ((self.0 >> Self::COUNTER_BITS) & ((1 << Self::SHARD_BITS) - 1)) as u16
    }

    /// Its number within site and shard.
    #[must_use]
    pub const fn counter(self) -> u64 {
        self.0 & ((1 << Self::COUNTER_BITS) - 1)
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

/// The keyed hash of a name within its volume. Directories are kept and listed in its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct NameHash(pub u64);

impl NameHash {
    /// Returns its first 32 bits.
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

/// An id with a hint where its row was last seen: under the name with `hash` in the directory
/// `dir`. The hint may be stale; it only saves a search, and proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    /// Which file.
    pub ino: InodeId,
    /// The directory of the hint; equal to `ino` where the row does not live under a name.
    pub dir: InodeId,
    /// The hash of the hint's name; zero where `dir` equals `ino`.
    pub hash: NameHash,
}

impl Handle {
    /// The directory at the top of a volume.
    pub const ROOT: Self = Self::own(InodeId::ROOT);

    /// A handle whose row is not under a name: a directory, a file of several names or of none.
    #[must_use]
    pub const fn own(ino: InodeId) -> Self {
        Self { ino, dir: ino, hash: NameHash(0) }
    }

    /// A handle whose row was last seen under a name.
    #[must_use]
    pub const fn at(ino: InodeId, dir: InodeId, hash: NameHash) -> Self {
        Self { ino, dir, hash }
    }

    /// Whether the hint points under a name.
    #[must_use]
    pub fn is_under_a_name(&self) -> bool {
        self.dir != self.ino
    }
}

/// A place in a directory listing.
///
/// Behind a name it follows from the name's hash alone, `(hash >> 2) + 3`, so that it stays good
/// while the directory changes, and never meets the three fixed places below it. Where names share
/// these bits of their hashes, all but the last of them have *ranked* places instead, above all
/// others: the first 32 bits of the hash, and how many names of the directory begin with these up
/// to there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cookie(pub u64);

impl Cookie {
    /// Before everything.
    pub const START: Self = Self(0);
    /// Behind `.`.
    pub const AFTER_DOT: Self = Self(1);
    /// Behind `..`, before the first name.
    pub const AFTER_DOT_DOT: Self = Self(2);

    /// The place of the names with this hash: a listing that goes on from it begins behind them.
    #[must_use]
    pub const fn of(hash: NameHash) -> Self {
        Self((hash.0 >> 2) + 3)
    }

    /// Returns the place behind the name that is the `rank`-th of those whose hashes begin as this
    /// one does, counted from 1; `None` beyond [`crate::limits::EQUAL_NAMES`].
    #[must_use]
    pub const fn ranked(hash: NameHash, rank: u64) -> Option<Self> {
        if rank == 0 || rank > crate::limits::EQUAL_NAMES {
            return None;
        }
        Some(Self(RANKED | hash.prefix() << RANK_BITS | rank))
    }

    /// Returns the lowest hash that begins as those of this ranked place, and the rank; `None` for
    /// all other places.
    #[must_use]
    pub const fn rank(self) -> Option<(NameHash, u64)> {
        if self.0 < RANKED || self.0 >> 63 != 0 {
            return None;
        }
        let prefix = (self.0 & !RANKED) >> RANK_BITS;
        Some((NameHash::first_of(prefix), self.0 & crate::limits::EQUAL_NAMES))
    }

    /// The lowest hash behind this place, which is not ranked; `None` where there is none.
    #[must_use]
    pub const fn first_hash_behind(self) -> Option<NameHash> {
        if self.0 < 3 {
            return Some(NameHash(0));
        }
        let group = self.0 - 3 + 1;
        if group >> 62 != 0 { None } else { Some(NameHash(group << 2)) }
    }
}

/// The first ranked place, above all others.
const RANKED: u64 = 3 << 61;
/// Bits of a rank.
const RANK_BITS: u32 = 29;
const _: () = assert!(crate::limits::EQUAL_NAMES == (1 << RANK_BITS) - 1, "all ranks have bits");

/// A file that a session has open. Not reused within a life of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpenId(pub u64);

/// Which of an inode's content files: counts up from 1 whenever its bytes move to a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u32);

impl Generation {
    /// The first one of every file.
    pub const FIRST: Self = Self(1);
}

/// One authenticated relation of a client with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl SessionId {
    /// The mount in the server's own process: its calls are direct, it cannot lose a reply, and
    /// so no answer is remembered for it.
    pub const DIRECT: Self = Self(0);
}

/// The number that a session gives to a request; a repeated request repeats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranked places are above all others, in the order of the hashes, and fit into what the kernel
    /// takes for an offset.
    #[test]
    fn a_ranked_place_gives_back_its_parts() {
        let last = Cookie::of(NameHash(u64::MAX));
        for hash in [0, 1 << 32, 0xfeed_f00d_dead_beef, u64::MAX] {
            let prefix = NameHash(hash >> 32 << 32);
            for rank in [1, 2, crate::limits::EQUAL_NAMES] {
                let place = Cookie::ranked(NameHash(hash), rank).unwrap();
                assert_eq!(place.rank(), Some((prefix, rank)));
                assert!(place > last && place.0 <= i64::MAX as u64);
            }
        }
        assert_eq!(Cookie::ranked(NameHash(1), 0), None);
        assert_eq!(Cookie::ranked(NameHash(1), crate::limits::EQUAL_NAMES + 1), None);
        for place in [Cookie::START, Cookie::AFTER_DOT_DOT, last, Cookie(u64::MAX)] {
            assert_eq!(place.rank(), None);
        }
    }

    #[test]
    fn an_inode_id_gives_back_its_parts() {
        let id = InodeId::new(0xabcd, 0xfff, (1 << 36) - 1).unwrap();
        assert_eq!((id.site(), id.shard(), id.counter()), (0xabcd, 0xfff, (1 << 36) - 1));
        assert_eq!(InodeId::new(0, 0, 1), Some(InodeId::ROOT));
        assert_eq!(InodeId::new(0, 0x1000, 1), None);
        assert_eq!(InodeId::new(0, 0, 1 << 36), None);
    }

    #[test]
    fn a_listing_goes_on_behind_all_names_of_a_cookie() {
        for hash in [0, 1, 3, 4, 7, u64::MAX / 2, u64::MAX - 4] {
            let behind = Cookie::of(NameHash(hash)).first_hash_behind().unwrap();
            assert!(behind.0 > hash && behind.0 - hash <= 4, "{hash}");
            assert_ne!(Cookie::of(behind), Cookie::of(NameHash(hash)));
        }
        assert_eq!(Cookie::of(NameHash(u64::MAX)).first_hash_behind(), None);
        assert_eq!(Cookie::AFTER_DOT_DOT.first_hash_behind(), Some(NameHash(0)));
    }
}
