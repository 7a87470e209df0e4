//! The keys of a table.
//!
//! The first byte of a key is the number of its row's kind. The rest is big-endian, so that keys
//! sort as their numbers do and related rows are one range. Nothing else in the product is
//! big-endian.
//!
//! `row_kinds!` below is the one list of kinds. It makes [`RowKind`], [`Key`] with its parser, and
//! a function for each kind that returns a key. Functions that return a [`KeyRange`] follow.
#![expect(clippy::big_endian_bytes, reason = "keys sort as their numbers do")]

use pelago_wire::{InodeId, NameHash, RequestId, SessionId, limits};

use part::KeyPart;
use tag::{PutPart, TakePart};

pub use tag::{TagValue, WHOLE_TAG_VALUE_BYTES};

mod part;
mod tag;

macro_rules! row_kinds {
    ($(
        $(#[doc = $doc:literal])+
        $kind:ident = $number:literal, $make:ident $([
            $($(#[doc = $part_doc:literal])+ $part:ident: $taken:ty => $given:ty,)+
        ])? {
            $($(#[doc = $field_doc:literal])+ $field:ident: $type:ty,)*
            $(..$name:ident)?
        }
    )+) => {
        /// The kind of a row, whose number is the first byte of the row's key. Numbers never
        /// change. Later versions have [`RESERVED_KINDS`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum RowKind {
            $($(#[doc = $doc])+ $kind = $number,)+
        }

        impl RowKind {
            /// Every kind, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)+];

            /// Returns the kind with this number, or `None` if there is no such kind.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number { $($number => Some(Self::$kind),)+ _ => None }
            }
        }

        /// A parsed key.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Key<'a> {
            $($(#[doc = $doc])+ $kind {
                $($($(#[doc = $part_doc])+ $part: $taken,)+)?
                $($(#[doc = $field_doc])+ $field: $type,)*
                $(
                    /// The name: the last 1 to 255 bytes of the key. It may hold bytes that no
                    /// [`pelago_wire::Name`] may hold.
                    $name: &'a [u8],
                )?
            },)+
        }

        impl<'a> Key<'a> {
            /// Parses a key. Returns `None` for bytes that no function of this module returns.
            #[must_use]
            pub fn parse(bytes: &'a [u8]) -> Option<Self> {
                let (number, mut rest) = bytes.split_first()?;
                let key = match RowKind::from_number(*number)? {
                    $(RowKind::$kind => Self::$kind {
                        $($($part: TakePart::take(&mut rest)?,)+)?
                        $($field: KeyPart::take(&mut rest)?,)*
                        $($name: take_name(&mut rest)?,)?
                    },)+
                };
                rest.is_empty().then_some(key)
            }
        }

        $(
            #[doc = concat!("Returns the key of a [`RowKind::", stringify!($kind), "`] row.")]
            #[must_use]
            pub fn $make(
                $($($part: $given,)+)? $($field: $type,)* $($name: &[u8])?
            ) -> Vec<u8> {
                // A part of any length has a mark of at most two bytes; escapes are rare.
                let parts = 0 $($(+ $part.len() + 2)+)?;
                let bytes = 1 + parts $(+ <$type>::BYTES)* $(+ $name.len())?;
                let mut key = Vec::with_capacity(bytes);
                key.push($number);
                $($(PutPart::put($part, &mut key);)+)?
                $($field.put(&mut key);)*
                $(key.extend_from_slice($name);)?
                key
            }
        )+
    };
}

row_kinds! {
    /// A name in a directory.
    Name = 1, name {
        /// The directory.
        dir: InodeId,
        /// The hash of the name.
        hash: NameHash,
        ..name
    }
    /// The rnode of a directory, of a file that has or had several names, or of one without a name.
    Inode = 2, inode {
        /// The file.
        ino: InodeId,
    }
    /// The forwarding pointer of a file with one name: where a rename moved its rnode.
    Moved = 3, moved {
        /// The file.
        ino: InodeId,
    }
    /// A name of a file whose rnode is a [`RowKind::Inode`] row.
    ParentPointer = 4, parent_pointer {
        /// The file.
        ino: InodeId,
        /// The directory that has the name.
        dir: InodeId,
        /// The hash of the name.
        hash: NameHash,
        ..name
    }
    /// Counts and times of a partition of a directory.
    Partition = 5, partition {
        /// The directory.
        dir: InodeId,
        /// The number of the partition in the directory.
        index: u32,
    }
    /// A file that has no name, or whose content is not removed yet.
    Orphan = 6, orphan {
        /// The file.
        ino: InodeId,
    }
    /// A content file that is open for writing, or whose bytes may not be safe yet.
    Writing = 7, writing {
        /// The file.
        ino: InodeId,
    }
    /// The bytes of a small file.
    Inline = 8, inline {
        /// The file.
        ino: InodeId,
    }
    /// An extended attribute; its name includes the prefix.
    Xattr = 9, xattr {
        /// The file.
        ino: InodeId,
        ..name
    }
    /// A tag of a file, for the search of files by their tags. There is such a row for each
    /// extended attribute that is a tag ([`pelago_wire::xattr::tag_key`]), and no other.
    Tag = 10, tag [
        /// The key of the tag.
        tag: &'a str => &str,
        /// The value of the tag, or the part of it that fits.
        value: TagValue<'a> => &[u8],
    ] {
        /// The file.
        ino: InodeId,
    }
    /// The reply to an earlier request of a session.
    CachedReply = 12, cached_reply {
        /// The session that sent the request.
        session: SessionId,
        /// The number of the request in the session.
        request: RequestId,
    }
    /// A change that concerns two sites and is to be finished.
    Intent = 14, intent {
        /// The number of the change; of one of a directory, its id.
        number: u64,
    }
    /// Another site of the volume, or one that was invited or has left.
    Site = 16, site {
        /// The number of the site.
        site: u16,
    }
    /// A row about the volume itself.
    Volume = 17, volume_row {
        /// The row.
        row: VolumeRow,
    }
    /// The names of a file's extended attributes.
    XattrNames = 18, xattr_names {
        /// The file.
        ino: InodeId,
    }
    /// A session of another process, which outlives the run of the server.
    Session = 19, session {
        /// The session.
        session: SessionId,
    }
    /// A credential or a key that was revoked.
    Revocation = 20, revocation {
        /// The id of the credential, or the key.
        credential: [u8; 32],
    }
    /// A node without a name that has the bytes of a file of another site.
    Stay = 21, stay {
        /// The node.
        ino: InodeId,
    }
    /// A directory of another site that is an ancestor of a directory of this one.
    Ancestry = 22, ancestry {
        /// The directory.
        ino: InodeId,
    }
}

impl RowKind {
    /// Returns the first byte of the keys of this kind.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Returns the kind that the first byte of `key` names, without a look at the rest.
    #[must_use]
    pub fn of(key: &[u8]) -> Option<Self> {
        key.first().copied().and_then(Self::from_number)
    }
}

/// The kinds of rows of later versions, with their names; 13 was never used and never will be.
pub const RESERVED_KINDS: &[(u8, &str)] = &[
    (11, "quota"),
    (13, "retired"),
    (15, "lent"),
    (23, "keep"),
    (24, "kept version"),
    (25, "arriving"),
    (26, "trash"),
];

/// The rows about the volume of later versions, with their names.
pub const RESERVED_VOLUME_ROWS: &[(u8, &str)] = &[];

/// Returns the name of the kind of a key that this version does not know, if a later one does.
#[must_use]
pub fn reserved_name(key: &[u8]) -> Option<&'static str> {
    let (list, number) = match key {
        [kind, row, ..] if *kind == RowKind::Volume.number() => (RESERVED_VOLUME_ROWS, row),
        [kind, ..] => (RESERVED_KINDS, kind),
        [] => return None,
    };
    list.iter().find(|(reserved, _)| reserved == number).map(|(_, name)| *name)
}

/// A row about the volume itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VolumeRow {
    /// The id of the volume that the table belongs to ([`crate::rows::Identity`]).
    Identity,
    /// The end of the inode numbers that a shard has reserved ([`crate::rows::HighWater`]).
    HighWater(u16),
    /// Its role beside a mirror, or as one ([`crate::rows::MirrorRow`]).
    Mirror,
    /// The tokens that this site and another one have given each other
    /// ([`crate::rows::SiteTokensRow`]).
    SiteTokens(u16),
    /// The last commits of the search index of a shard ([`crate::rows::IndexCommits`]).
    IndexCommits(u16),
    /// The signed list of the volume's sites ([`crate::rows::SiteListRow`]).
    SiteList,
    /// The promotions in the history of the volume ([`crate::rows::Promotions`]).
    Promotions,
}

impl VolumeRow {
    pub(crate) const IDENTITY: u8 = 1;
    pub(crate) const HIGH_WATER: u8 = 2;
    pub(crate) const MIRROR: u8 = 3;
    pub(crate) const SITE_TOKENS: u8 = 4;
    pub(crate) const INDEX_COMMITS: u8 = 5;
    pub(crate) const SITE_LIST: u8 = 6;
    pub(crate) const PROMOTIONS: u8 = 7;
}

/// All keys with `from <= key < to`, the arguments of [`crate::table::TableRead::scan`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key of the range.
    pub from: Vec<u8>,
    /// The first key after the range.
    pub to: Vec<u8>,
}

impl KeyRange {
    /// Returns whether `key` is in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && key < self.to.as_slice()
    }

    /// Returns the range of all keys that begin with `prefix`.
    fn of_prefix(prefix: Vec<u8>) -> Self {
        // The first byte is a kind, and no kind is 255: `to` never becomes empty, which would mean
        // the end of the table.
        let mut to = prefix.clone();
        while let Some(last) = to.pop() {
            if let Some(next) = last.checked_add(1) {
                to.push(next);
                break;
            }
        }
        Self { from: prefix, to }
    }
}

/// Parses a [`RowKind::Name`] key into directory, hash and name. Returns `None` for other keys.
#[must_use]
pub fn parse_name(key: &[u8]) -> Option<(InodeId, NameHash, &[u8])> {
    match Key::parse(key)? {
        Key::Name { dir, hash, name } => Some((dir, hash, name)),
        _ => None,
    }
}

/// Returns whether a mirror of the volume has a row with this key: not those of the sessions and of
/// the roles of this folder, and not what was seen of other sites and their tokens.
#[must_use]
pub fn is_mirrored(key: &[u8]) -> bool {
    let kind = key.first().copied().and_then(RowKind::from_number);
    match kind {
        Some(RowKind::CachedReply | RowKind::Session | RowKind::Stay | RowKind::Ancestry) => false,
        Some(RowKind::Volume) => {
            !matches!(key.get(1), Some(&(VolumeRow::MIRROR | VolumeRow::SITE_TOKENS)))
        }
        _ => true,
    }
}

/// Returns the range of all rows of a kind.
#[must_use]
pub fn all(kind: RowKind) -> KeyRange {
    KeyRange::of_prefix(vec![kind.number()])
}

/// Returns the range of all names of a directory, which are in the order of their hashes.
#[must_use]
pub fn names_of_dir(dir: InodeId) -> KeyRange {
    KeyRange::of_prefix(with_ino(RowKind::Name, dir))
}

/// Returns the least key of the names of a directory with this hash or a greater one. A listing
/// scans from here to the end of [`names_of_dir`].
#[must_use]
pub fn names_from(dir: InodeId, hash: NameHash) -> Vec<u8> {
    name(dir, hash, b"")
}

/// Returns the range of the names of a directory with this hash: more than one only if hashes
/// collide.
#[must_use]
pub fn names_with_hash(dir: InodeId, hash: NameHash) -> KeyRange {
    KeyRange::of_prefix(name(dir, hash, b""))
}

/// Returns the range of all parent pointers of a file or directory.
#[must_use]
pub fn parent_pointers_of(ino: InodeId) -> KeyRange {
    KeyRange::of_prefix(with_ino(RowKind::ParentPointer, ino))
}

/// Returns the range of all partitions of a directory.
#[must_use]
pub fn partitions_of(dir: InodeId) -> KeyRange {
    KeyRange::of_prefix(with_ino(RowKind::Partition, dir))
}

/// Returns the range of all extended attributes of a file, which are in the order of their names.
#[must_use]
pub fn xattrs_of(ino: InodeId) -> KeyRange {
    KeyRange::of_prefix(with_ino(RowKind::Xattr, ino))
}

/// Returns the range of all files that have a tag with this value. If the value has more than
/// [`WHOLE_TAG_VALUE_BYTES`], others may be among them: the extended attribute of each decides.
#[must_use]
pub fn tagged(tag: &str, value: &[u8]) -> KeyRange {
    let mut prefix = vec![RowKind::Tag.number()];
    PutPart::put(tag, &mut prefix);
    PutPart::put(value, &mut prefix);
    KeyRange::of_prefix(prefix)
}

/// Returns the range of all files that have a tag with any value, in the order of the values.
#[must_use]
pub fn tagged_any(tag: &str) -> KeyRange {
    let mut prefix = vec![RowKind::Tag.number()];
    PutPart::put(tag, &mut prefix);
    KeyRange::of_prefix(prefix)
}

/// Returns the range of all tags whose keys begin with these characters of keys, or of all tags.
#[must_use]
pub fn tag_keys(prefix: &str) -> KeyRange {
    KeyRange::of_prefix([&[RowKind::Tag.number()], prefix.as_bytes()].concat())
}

/// Returns the range of all tags with this key whose values begin with these bytes. Among them may
/// be values of more than [`WHOLE_TAG_VALUE_BYTES`].
#[must_use]
pub fn tag_values(tag: &str, prefix: &[u8]) -> KeyRange {
    let mut bytes = vec![RowKind::Tag.number()];
    PutPart::put(tag, &mut bytes);
    tag::escape(prefix, &mut bytes);
    KeyRange::of_prefix(bytes)
}

/// Returns the range of all files that have the tag of this row, as the row has it.
#[must_use]
pub fn tagged_as(row: &[u8]) -> KeyRange {
    KeyRange::of_prefix(row[..row.len().saturating_sub(InodeId::BYTES)].to_vec())
}

/// Returns the range of all cached replies of a session, which are in the order of their requests.
#[must_use]
pub fn cached_replies_of(session: SessionId) -> KeyRange {
    let mut prefix = vec![RowKind::CachedReply.number()];
    session.put(&mut prefix);
    KeyRange::of_prefix(prefix)
}

/// Returns the key of a shard's [`VolumeRow::HighWater`] row.
#[must_use]
pub fn high_water(shard: u16) -> Vec<u8> {
    volume_row(VolumeRow::HighWater(shard))
}

/// Returns the key of a shard's [`VolumeRow::IndexCommits`] row.
#[must_use]
pub fn index_commits(shard: u16) -> Vec<u8> {
    volume_row(VolumeRow::IndexCommits(shard))
}

fn with_ino(kind: RowKind, ino: InodeId) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + InodeId::BYTES);
    key.push(kind.number());
    ino.put(&mut key);
    key
}

/// Takes all that is left as a name of a file or of an extended attribute.
fn take_name<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let name = std::mem::take(rest);
    (1..=limits::NAME_BYTES).contains(&name.len()).then_some(name)
}

const _: () = assert!(limits::XATTR_NAME_BYTES == limits::NAME_BYTES, "one limit for both names");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    const A: InodeId = InodeId::from_raw(0x0102_0304_0506_0708);

    #[test]
    fn kinds_keep_their_numbers() {
        let numbers: Vec<_> = RowKind::ALL.iter().map(|kind| kind.number()).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 17, 18, 19, 20, 21, 22]);
        for number in 0..=u8::MAX {
            let kind = RowKind::from_number(number);
            assert_eq!(kind.map(RowKind::number), numbers.contains(&number).then_some(number));
        }
    }

    #[test]
    fn every_key_is_read_back() {
        let dir = InodeId::ROOT;
        let hash = NameHash(77);
        let pairs = [
            (name(dir, hash, b"n"), Key::Name { dir, hash, name: b"n" }),
            (inode(A), Key::Inode { ino: A }),
            (moved(A), Key::Moved { ino: A }),
            (
                parent_pointer(A, dir, hash, b"n"),
                Key::ParentPointer { ino: A, dir, hash, name: b"n" },
            ),
            (partition(dir, 9), Key::Partition { dir, index: 9 }),
            (orphan(A), Key::Orphan { ino: A }),
            (writing(A), Key::Writing { ino: A }),
            (inline(A), Key::Inline { ino: A }),
            (xattr(A, b"x"), Key::Xattr { ino: A, name: b"x" }),
            (xattr_names(A), Key::XattrNames { ino: A }),
            (
                cached_reply(SessionId(1), RequestId(2)),
                Key::CachedReply { session: SessionId(1), request: RequestId(2) },
            ),
            (intent(7), Key::Intent { number: 7 }),
            (stay(A), Key::Stay { ino: A }),
            (ancestry(A), Key::Ancestry { ino: A }),
            (session(SessionId(3)), Key::Session { session: SessionId(3) }),
            (volume_row(VolumeRow::Identity), Key::Volume { row: VolumeRow::Identity }),
            (high_water(4095), Key::Volume { row: VolumeRow::HighWater(4095) }),
            (volume_row(VolumeRow::Mirror), Key::Volume { row: VolumeRow::Mirror }),
            (index_commits(7), Key::Volume { row: VolumeRow::IndexCommits(7) }),
            (volume_row(VolumeRow::SiteList), Key::Volume { row: VolumeRow::SiteList }),
            (volume_row(VolumeRow::Promotions), Key::Volume { row: VolumeRow::Promotions }),
            (volume_row(VolumeRow::SiteTokens(3)), Key::Volume { row: VolumeRow::SiteTokens(3) }),
        ];
        for (bytes, key) in pairs {
            assert_eq!(Key::parse(&bytes), Some(key));
            let kind = RowKind::of(&bytes).unwrap();
            assert!(all(kind).contains(&bytes), "{key:?}");
            assert_eq!(Key::parse(&bytes[..bytes.len() - 1]), None, "cut: {key:?}");
        }
    }

    fn tag_of(key: &[u8]) -> (&str, Vec<u8>, bool, InodeId) {
        match Key::parse(key) {
            Some(Key::Tag { tag, value, ino }) => {
                (tag, value.bytes().into_owned(), value.is_whole(), ino)
            }
            other => panic!("{}: {other:?}", key.escape_ascii()),
        }
    }

    /// The bytes of `docs/format.md`.
    #[test]
    fn a_tag_is_the_bytes_it_always_was() {
        let ino = b"\x01\x02\x03\x04\x05\x06\x07\x08";
        let whole = [b"\x0aproject\0reef\0\x01", &ino[..]].concat();
        assert_eq!(tag("project", b"reef", A), whole);
        assert_eq!(tag("a", b"\0\x01", A), [b"\x0aa\0\0\xff\x01\0\x01", &ino[..]].concat());
        let hash = b"\x9e\x09\x14\x97\x04\x6f\x1f\xa0";
        let cut = [b"\x0aa\0", &[b'v'; 248][..], hash, b"\0\x02", ino].concat();
        assert_eq!(tag("a", &[b'v'; 257], A), cut);
    }

    #[test]
    fn a_long_value_is_cut_and_says_so() {
        let most = [0; WHOLE_TAG_VALUE_BYTES];
        let more = [0; WHOLE_TAG_VALUE_BYTES + 1];
        assert_eq!(tag_of(&tag("k", &most, A)), ("k", most.to_vec(), true, A));
        let key = tag("k", &more, A);
        let (_, cut, is_whole, _) = tag_of(&key);
        assert_eq!((&cut[..CUT], cut.len(), is_whole), (&more[..CUT], most.len(), false));
        // The whole value that has the same bytes is another one.
        assert_ne!(tag("k", &cut, A), key);
        assert!(!tagged("k", &cut).contains(&key) && tagged("k", &more).contains(&key));
    }

    const CUT: usize = WHOLE_TAG_VALUE_BYTES - 8;

    #[test]
    fn no_other_bytes_are_a_tag() {
        let tail = [0; 8];
        for wrong in [
            &b"\x0a\0v\0\x01"[..],
            b"\x0aa b\0v\0\x01",
            b"\x0aa\0v\0\x03",
            b"\x0aa\0v\0\0\x01",
            b"\x0aa\0v\0\x02",
            b"\x0aa\0v",
            &[b"\x0aa\0", &[7; 257][..], b"\0\x01"].concat(),
            &[b"\x0aa\0", &[7; 257][..], b"\0\x02"].concat(),
            &[b"\x0a", &[b'k'; 65][..], b"\0v\0\x01"].concat(),
        ] {
            assert_eq!(Key::parse(&[wrong, &tail].concat()), None, "{}", wrong.escape_ascii());
        }
    }

    /// The range of the largest directory id ends at the first key of the next kind.
    #[test]
    fn a_range_ends_after_the_last_id() {
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
            let dir = InodeId::from_raw(a.0);
            let hash = NameHash(a.1);
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

        /// The order of tags is the order of (key, value, inode), and each range has exactly the
        /// tags it is named after.
        #[test]
        fn tags_are_in_the_order_of_their_values(
            a in ("[a-b.]{1,2}", prop::collection::vec(0..3_u8, 0..4), 0..3_u64),
            b in ("[a-b.]{1,2}", prop::collection::vec(any::<u8>(), 0..257), any::<u64>()),
            c in ("[a-b.]{1,2}", prop::collection::vec(0..3_u8, 0..4), 0..3_u64),
            near in any::<bool>(),
        ) {
            let b = if near { c } else { b };
            let key = |of: &(String, Vec<u8>, u64)| tag(&of.0, &of.1, InodeId::from_raw(of.2));
            // A key of a tag that begins with another one comes after it.
            prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
            prop_assert_eq!(tagged_any(&a.0).contains(&key(&b)), a.0 == b.0);
            prop_assert_eq!(tagged(&a.0, &a.1).contains(&key(&b)), (&a.0, &a.1) == (&b.0, &b.1));
            prop_assert!(all(RowKind::Tag).contains(&key(&b)));
            let bytes = key(&b);
            let (read_tag, value, is_whole, ino) = tag_of(&bytes);
            prop_assert_eq!((read_tag, value, ino.raw()), (b.0.as_str(), b.1, b.2));
            prop_assert!(is_whole);
        }

        /// An xattr key that parses is the key that [`xattr`] returns, and so is that of a tag,
        /// except that a cut value is not known.
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
                if let Some(Key::Tag { tag: key, value, ino }) = Key::parse(&bytes)
                    && value.is_whole()
                {
                    prop_assert_eq!(tag(key, &value.bytes(), ino), bytes.clone());
                }
            }
        }
    }

    #[test]
    fn a_mirror_has_all_but_what_each_folder_has_for_itself() {
        let own = [
            cached_reply(SessionId(1), RequestId(2)),
            session(SessionId(1)),
            stay(A),
            ancestry(A),
            volume_row(VolumeRow::Mirror),
            volume_row(VolumeRow::SiteTokens(1)),
        ];
        assert!(own.iter().all(|row| !is_mirrored(row)));
        let others = [
            revocation([7; 32]),
            writing(InodeId::ROOT),
            volume_row(VolumeRow::Identity),
            high_water(0),
            site(1),
        ];
        assert!(others.iter().all(|row| is_mirrored(row)));
        let own_kinds = [
            RowKind::CachedReply,
            RowKind::Session,
            RowKind::Volume,
            RowKind::Stay,
            RowKind::Ancestry,
        ];
        for kind in RowKind::ALL.iter().filter(|kind| !own_kinds.contains(kind)) {
            assert!(is_mirrored(&[kind.number(), 0]), "{kind:?}");
        }
    }
}
