//! The keys of a table. The first byte names the kind of the row; what follows is big-endian, so
//! that the order of bytes is the order of numbers and a range is a scan. Nothing else in the
//! product is big-endian.
//!
//! Keys are made by the functions here, named after the row they lead to; what a scan brings is
//! read back by [`Key::parse`]. A key that no function here could have made parses to `None`.
#![expect(clippy::big_endian_bytes, reason = "the order of keys is the order of their numbers")]

use pelago_wire::{InodeId, NameHash, RequestId, SessionId, limits};

/// The kinds of rows. The numbers are the first bytes of keys and never change. 10 (tag), 11
/// (quota), 13 (log), 14 (intent), 15 (lease holder) and 16 (site) are spoken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum RowKind {
    /// A name in a directory: dir · hash · name.
    Name = 1,
    /// An rnode that does not live under a name: ino.
    Inode = 2,
    /// Where a file with one name went: ino.
    Moved = 3,
    /// The names of an rnode in [`RowKind::Inode`]: ino · dir · hash · name.
    ParentPointer = 4,
    /// Counts and times of a directory's partition: dir · index.
    Partition = 5,
    /// A file without a name, or one whose content is not yet removed: ino.
    Orphan = 6,
    /// A content file open for writing: ino.
    Writing = 7,
    /// The bytes of a small file: ino.
    Inline = 8,
    /// An extended attribute: ino · name.
    Xattr = 9,
    /// A cached reply: session · request.
    CachedReply = 12,
    /// A row of the volume itself: row · shard.
    Volume = 17,
    /// The names of a file's extended attributes: ino.
    XattrNames = 18,
}

impl RowKind {
    /// Every kind, in the order of their numbers.
    pub const ALL: &'static [Self] = &[
        Self::Name,
        Self::Inode,
        Self::Moved,
        Self::ParentPointer,
        Self::Partition,
        Self::Orphan,
        Self::Writing,
        Self::Inline,
        Self::Xattr,
        Self::CachedReply,
        Self::Volume,
        Self::XattrNames,
    ];

    /// The kind with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Name,
            2 => Self::Inode,
            3 => Self::Moved,
            4 => Self::ParentPointer,
            5 => Self::Partition,
            6 => Self::Orphan,
            7 => Self::Writing,
            8 => Self::Inline,
            9 => Self::Xattr,
            12 => Self::CachedReply,
            17 => Self::Volume,
            18 => Self::XattrNames,
            _ => return None,
        })
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The kind of the row at `key`.
    #[must_use]
    pub fn of(key: &[u8]) -> Option<Self> {
        key.first().copied().and_then(Self::from_number)
    }
}

/// Which row of the volume itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VolumeRow {
    /// Whose table this is ([`crate::rows::Identity`]).
    Identity,
    /// Up to where a shard's ids are reserved ([`crate::rows::HighWater`]).
    HighWater(u16),
}

/// All keys with `from <= key < to`, as [`crate::table::Table::scan`] wants them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key that is in it.
    pub from: Vec<u8>,
    /// The first key behind it.
    pub to: Vec<u8>,
}

impl KeyRange {
    /// Whether `key` is in it.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && key < self.to.as_slice()
    }
}

/// A key, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key<'a> {
    /// A name in a directory.
    Name {
        /// The directory.
        dir: InodeId,
        /// The hash of the name.
        hash: NameHash,
        /// The name, 1 to 255 bytes; whether they make a name, [`pelago_wire::Name`] knows.
        name: &'a [u8],
    },
    /// An rnode that does not live under a name.
    Inode(InodeId),
    /// Where a file with one name went.
    Moved(InodeId),
    /// One of the names of a file.
    ParentPointer {
        /// The file.
        ino: InodeId,
        /// The directory that the name is in.
        dir: InodeId,
        /// The hash of the name.
        hash: NameHash,
        /// The name, 1 to 255 bytes.
        name: &'a [u8],
    },
    /// A directory's partition.
    Partition {
        /// The directory.
        dir: InodeId,
        /// Which of its partitions.
        index: u32,
    },
    /// A file without a name, or one whose content is not yet removed.
    Orphan(InodeId),
    /// A content file open for writing.
    Writing(InodeId),
    /// The bytes of a small file.
    Inline(InodeId),
    /// An extended attribute.
    Xattr {
        /// The file.
        ino: InodeId,
        /// The attribute's name with its prefix, 1 to 255 bytes.
        name: &'a [u8],
    },
    /// A cached reply.
    CachedReply {
        /// The session that asked.
        session: SessionId,
        /// The request's number in it.
        request: RequestId,
    },
    /// A row of the volume itself.
    Volume(VolumeRow),
    /// The names of a file's extended attributes.
    XattrNames(InodeId),
}

impl<'a> Key<'a> {
    /// The key that these bytes are; `None` where they are none.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let kind = RowKind::of(bytes)?;
        let mut rest = bytes.get(1..)?;
        let key = match kind {
            RowKind::Name => {
                let (dir, hash, name) = parse_name(bytes)?;
                return Some(Self::Name { dir, hash, name });
            }
            RowKind::Inode => Self::Inode(take_ino(&mut rest)?),
            RowKind::Moved => Self::Moved(take_ino(&mut rest)?),
            RowKind::ParentPointer => {
                let (ino, dir) = (take_ino(&mut rest)?, take_ino(&mut rest)?);
                let hash = NameHash(take_u64(&mut rest)?);
                Self::ParentPointer {
                    ino,
                    dir,
                    hash,
                    name: take_name(&mut rest, limits::NAME_BYTES)?,
                }
            }
            RowKind::Partition => {
                let dir = take_ino(&mut rest)?;
                Self::Partition { dir, index: u32::from_be_bytes(take(&mut rest)?) }
            }
            RowKind::Orphan => Self::Orphan(take_ino(&mut rest)?),
            RowKind::Writing => Self::Writing(take_ino(&mut rest)?),
            RowKind::Inline => Self::Inline(take_ino(&mut rest)?),
            RowKind::Xattr => {
                let ino = take_ino(&mut rest)?;
                Self::Xattr { ino, name: take_name(&mut rest, limits::XATTR_NAME_BYTES)? }
            }
            RowKind::CachedReply => Self::CachedReply {
                session: SessionId(take_u64(&mut rest)?),
                request: RequestId(take_u64(&mut rest)?),
            },
            RowKind::Volume => Self::Volume(take_volume_row(&mut rest)?),
            RowKind::XattrNames => Self::XattrNames(take_ino(&mut rest)?),
        };
        rest.is_empty().then_some(key)
    }
}

/// The row of a name in a directory.
#[must_use]
pub fn name(dir: InodeId, hash: NameHash, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(17 + name.len());
    key.push(RowKind::Name.number());
    key.extend_from_slice(&dir.raw().to_be_bytes());
    key.extend_from_slice(&hash.0.to_be_bytes());
    key.extend_from_slice(name);
    key
}

/// Directory, hash and name of a [`RowKind::Name`] key; `None` where it is none.
#[must_use]
pub fn parse_name(key: &[u8]) -> Option<(InodeId, NameHash, &[u8])> {
    let (&kind, mut rest) = key.split_first()?;
    if kind != RowKind::Name.number() {
        return None;
    }
    let dir = take_ino(&mut rest)?;
    let hash = NameHash(take_u64(&mut rest)?);
    Some((dir, hash, take_name(&mut rest, limits::NAME_BYTES)?))
}

/// All names of a directory, in the order of their hashes.
#[must_use]
pub fn names_of_dir(dir: InodeId) -> KeyRange {
    below(with_ino(RowKind::Name, dir, 0))
}

/// Where the names of a directory begin whose hashes are not below `hash`. A listing scans from
/// here to the `to` of [`names_of_dir`].
#[must_use]
pub fn names_from(dir: InodeId, hash: NameHash) -> Vec<u8> {
    name(dir, hash, b"")
}

/// The names of a directory that have this hash: one, but for collisions.
#[must_use]
pub fn names_with_hash(dir: InodeId, hash: NameHash) -> KeyRange {
    below(name(dir, hash, b""))
}

/// The rnode of a directory, of a file with several names, or of one with none.
#[must_use]
pub fn inode(ino: InodeId) -> Vec<u8> {
    with_ino(RowKind::Inode, ino, 0)
}

/// Where a file with one name went.
#[must_use]
pub fn moved(ino: InodeId) -> Vec<u8> {
    with_ino(RowKind::Moved, ino, 0)
}

/// One of the names of a file or directory whose rnode is in [`RowKind::Inode`].
#[must_use]
pub fn parent_pointer(ino: InodeId, dir: InodeId, hash: NameHash, name: &[u8]) -> Vec<u8> {
    let mut key = with_ino(RowKind::ParentPointer, ino, 16 + name.len());
    key.extend_from_slice(&dir.raw().to_be_bytes());
    key.extend_from_slice(&hash.0.to_be_bytes());
    key.extend_from_slice(name);
    key
}

/// All names of a file or directory whose rnode is in [`RowKind::Inode`].
#[must_use]
pub fn parent_pointers_of(ino: InodeId) -> KeyRange {
    below(with_ino(RowKind::ParentPointer, ino, 0))
}

/// A partition of a directory.
#[must_use]
pub fn partition(dir: InodeId, index: u32) -> Vec<u8> {
    let mut key = with_ino(RowKind::Partition, dir, 4);
    key.extend_from_slice(&index.to_be_bytes());
    key
}

/// All partitions of a directory.
#[must_use]
pub fn partitions_of(dir: InodeId) -> KeyRange {
    below(with_ino(RowKind::Partition, dir, 0))
}

/// A file without a name, or one whose content is not yet removed.
#[must_use]
pub fn orphan(ino: InodeId) -> Vec<u8> {
    with_ino(RowKind::Orphan, ino, 0)
}

/// A content file open for writing.
#[must_use]
pub fn writing(ino: InodeId) -> Vec<u8> {
    with_ino(RowKind::Writing, ino, 0)
}

/// The bytes of a small file.
#[must_use]
pub fn inline(ino: InodeId) -> Vec<u8> {
    with_ino(RowKind::Inline, ino, 0)
}

/// An extended attribute.
#[must_use]
pub fn xattr(ino: InodeId, name: &[u8]) -> Vec<u8> {
    let mut key = with_ino(RowKind::Xattr, ino, name.len());
    key.extend_from_slice(name);
    key
}

/// All extended attributes of a file, in the order of their names.
#[must_use]
pub fn xattrs_of(ino: InodeId) -> KeyRange {
    below(with_ino(RowKind::Xattr, ino, 0))
}

/// The names of a file's extended attributes.
#[must_use]
pub fn xattr_names(ino: InodeId) -> Vec<u8> {
    with_ino(RowKind::XattrNames, ino, 0)
}

/// The cached reply to a request of a session.
#[must_use]
pub fn cached_reply(session: SessionId, request: RequestId) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(RowKind::CachedReply.number());
    key.extend_from_slice(&session.0.to_be_bytes());
    key.extend_from_slice(&request.0.to_be_bytes());
    key
}

/// A row of the volume itself.
#[must_use]
pub fn volume_row(row: VolumeRow) -> Vec<u8> {
    let (number, shard) = match row {
        VolumeRow::Identity => (VOLUME_ROW_IDENTITY, 0),
        VolumeRow::HighWater(shard) => (VOLUME_ROW_HIGH_WATER, shard),
    };
    let [high, low] = shard.to_be_bytes();
    vec![RowKind::Volume.number(), number, high, low]
}

/// Up to where a shard's ids are reserved.
#[must_use]
pub fn high_water(shard: u16) -> Vec<u8> {
    volume_row(VolumeRow::HighWater(shard))
}

/// All rows of a kind.
#[must_use]
pub fn all(kind: RowKind) -> KeyRange {
    below(vec![kind.number()])
}

const VOLUME_ROW_IDENTITY: u8 = 1;
const VOLUME_ROW_HIGH_WATER: u8 = 2;

/// Kind and inode, with room for `more` bytes.
fn with_ino(kind: RowKind, ino: InodeId, more: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(9 + more);
    key.push(kind.number());
    key.extend_from_slice(&ino.raw().to_be_bytes());
    key
}

/// All keys that begin with `prefix`, whose first byte is a kind and so below 255.
fn below(prefix: Vec<u8>) -> KeyRange {
    let mut to = prefix.clone();
    while let Some(last) = to.pop() {
        if let Some(next) = last.checked_add(1) {
            to.push(next);
            break;
        }
    }
    KeyRange { from: prefix, to }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk::<N>()?;
    *rest = behind;
    Some(*first)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    take(rest).map(u64::from_be_bytes)
}

fn take_ino(rest: &mut &[u8]) -> Option<InodeId> {
    take_u64(rest).map(InodeId::from_raw)
}

/// All that is left, 1 to `most` bytes.
fn take_name<'a>(rest: &mut &'a [u8], most: usize) -> Option<&'a [u8]> {
    let name = std::mem::take(rest);
    (1..=most).contains(&name.len()).then_some(name)
}

fn take_volume_row(rest: &mut &[u8]) -> Option<VolumeRow> {
    let [number] = take(rest)?;
    let shard = u16::from_be_bytes(take(rest)?);
    match number {
        VOLUME_ROW_IDENTITY if shard == 0 => Some(VolumeRow::Identity),
        VOLUME_ROW_HIGH_WATER => Some(VolumeRow::HighWater(shard)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    const A: InodeId = InodeId::from_raw(0x0102_0304_0506_0708);

    #[test]
    fn kinds_keep_their_numbers() {
        let numbers: Vec<_> = RowKind::ALL.iter().map(|kind| kind.number()).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 17, 18]);
        for number in 0..=u8::MAX {
            let kind = RowKind::from_number(number);
            assert_eq!(kind.map(RowKind::number), numbers.contains(&number).then_some(number));
        }
    }

    #[test]
    fn every_key_is_read_back() {
        let (dir, hash) = (InodeId::ROOT, NameHash(77));
        let pairs = [
            (name(dir, hash, b"n"), Key::Name { dir, hash, name: b"n" }),
            (inode(A), Key::Inode(A)),
            (moved(A), Key::Moved(A)),
            (
                parent_pointer(A, dir, hash, b"n"),
                Key::ParentPointer { ino: A, dir, hash, name: b"n" },
            ),
            (partition(dir, 9), Key::Partition { dir, index: 9 }),
            (orphan(A), Key::Orphan(A)),
            (writing(A), Key::Writing(A)),
            (inline(A), Key::Inline(A)),
            (xattr(A, b"x"), Key::Xattr { ino: A, name: b"x" }),
            (xattr_names(A), Key::XattrNames(A)),
            (
                cached_reply(SessionId(1), RequestId(2)),
                Key::CachedReply { session: SessionId(1), request: RequestId(2) },
            ),
            (volume_row(VolumeRow::Identity), Key::Volume(VolumeRow::Identity)),
            (high_water(4095), Key::Volume(VolumeRow::HighWater(4095))),
        ];
        for (bytes, key) in pairs {
            assert_eq!(Key::parse(&bytes), Some(key));
            let kind = RowKind::of(&bytes).unwrap();
            assert!(all(kind).contains(&bytes), "{key:?}");
            assert_eq!(Key::parse(&bytes[..bytes.len() - 1]), None, "cut: {key:?}");
        }
    }

    /// A directory's id of all ones has no successor of its own length: the range ends at the next
    /// kind.
    #[test]
    fn a_range_ends_behind_the_last_id() {
        let last = InodeId::from_raw(u64::MAX);
        assert_eq!(names_of_dir(last).to, [RowKind::Name.number() + 1]);
        let highest = NameHash(u64::MAX);
        assert!(names_of_dir(last).contains(&name(last, highest, &[255; 255])));
        assert!(names_with_hash(last, highest).contains(&name(last, highest, b"x")));
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            rng_seed: RngSeed::Fixed(4),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        /// The order of keys is the order of (directory, hash, name), and each range has exactly
        /// the keys it is named after.
        #[test]
        fn keys_are_in_the_order_of_their_numbers(
            a in (0_u64..3, 0_u64..3, prop::collection::vec(any::<u8>(), 1..4)),
            b in (any::<u64>(), any::<u64>(), prop::collection::vec(any::<u8>(), 1..256)),
            near in any::<bool>(),
        ) {
            let b = if near { (a.0, a.1 + b.1 % 2, b.2) } else { b };
            let key = |of: &(u64, u64, Vec<u8>)| {
                name(InodeId::from_raw(of.0), NameHash(of.1), &of.2)
            };
            prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
            let (dir, hash) = (InodeId::from_raw(a.0), NameHash(a.1));
            prop_assert_eq!(names_of_dir(dir).contains(&key(&b)), a.0 == b.0);
            prop_assert_eq!(
                names_with_hash(dir, hash).contains(&key(&b)),
                (a.0, a.1) == (b.0, b.1),
            );
            prop_assert_eq!(names_from(dir, hash) <= key(&b), (a.0, a.1) <= (b.0, b.1));
            let read = Some((InodeId::from_raw(b.0), NameHash(b.1), b.2.as_slice()));
            let bytes = key(&b);
            prop_assert_eq!(parse_name(&bytes), read);
        }

        /// What is read back was made by these functions: there is one key for each row.
        #[test]
        fn any_bytes_parse_or_do_not(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut bytes = bytes;
            for kind in RowKind::ALL {
                if let Some(first) = bytes.first_mut() {
                    *first = kind.number();
                }
                if let Some(Key::Xattr { ino, name }) = Key::parse(&bytes) {
                    prop_assert_eq!(xattr(ino, name), bytes.clone());
                }
            }
        }
    }
}
