//! POSIX access control lists: their encoding as extended attributes, their relation to the mode,
//! and their inheritance by new nodes.
//!
//! The rules are those of POSIX 1003.1e draft 17 as Linux implements them (`fs/posix_acl.c`); the
//! kernel checks permissions. An access list with entries for the owner, the owning group and
//! others only is equivalent to the mode, and is not stored. A longer list has a mask, which the
//! mode shows as the rights of the group.
//!
//! No I/O: `shard::acl` reads and writes the rows.

use pelago_wire::{Code, Error, limits};

/// A valid list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

/// The mode and the access list that a new node inherits from the default list of its directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inherited {
    /// Its mode.
    pub(crate) mode: u16,
    /// Its access list; `None` if the mode is equivalent to it.
    pub(crate) access: Option<Acl>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    /// Read 4, write 2, execute 1.
    rights: u16,
    /// The user or group of a named entry; [`NO_ID`] for other entries.
    id: u32,
}

/// The subject of an entry, in the order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tag {
    Owner,
    User,
    OwningGroup,
    Group,
    Mask,
    Others,
}

/// The version before the entries.
const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id of entries without a name.
const NO_ID: u32 = u32::MAX;
const RIGHTS: u16 = 0o7;

impl Acl {
    /// Decodes a list; `None` for a list without entries, which stands for no list.
    ///
    /// # Errors
    /// `Invalid` for anything else, `TooBig` for more than [`limits::ACL_BYTES`].
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>, Error> {
        let (version, entries) = bytes.split_first_chunk().ok_or(Code::Invalid)?;
        let (entries, rest) = entries.as_chunks::<ENTRY_BYTES>();
        if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
            return Err(Code::Invalid.into());
        }
        if entries.is_empty() {
            return Ok(None);
        }
        if bytes.len() > limits::ACL_BYTES {
            return Err(Code::TooBig.into());
        }
        let entries: Option<Vec<_>> = entries.iter().map(Entry::decode).collect();
        let list = Self(entries.ok_or(Code::Invalid)?);
        if list.is_valid() { Ok(Some(list)) } else { Err(Code::Invalid.into()) }
    }

    /// Encodes the list.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + self.0.len() * ENTRY_BYTES);
        out.extend_from_slice(&VERSION.to_le_bytes());
        for entry in &self.0 {
            entry.encode(&mut out);
        }
        out
    }

    /// Returns the mode of a file that had `mode` and gets this access list.
    pub(crate) fn mode(&self, mode: u16) -> u16 {
        let group = if self.rights(Tag::Mask).is_some() { Tag::Mask } else { Tag::OwningGroup };
        let bits = |tag, shift: u16| self.rights(tag).unwrap_or(0) << shift;
        mode & !0o777 | bits(Tag::Owner, 6) | bits(group, 3) | bits(Tag::Others, 0)
    }

    /// Returns whether a mode is equivalent to this access list.
    pub(crate) fn is_minimal(&self) -> bool {
        self.0.iter().all(|entry| entry.is_in_mode())
    }

    /// Returns this access list after a change of the mode.
    #[must_use]
    pub(crate) fn with_mode(mut self, mode: u16) -> Self {
        let has_mask = self.rights(Tag::Mask).is_some();
        for entry in &mut self.0 {
            if let Some(shift) = entry.tag.shift_in_mode(has_mask) {
                entry.rights = mode >> shift & RIGHTS;
            }
        }
        self
    }

    /// Returns what a node inherits if it is created with `mode` in a directory with this default
    /// list.
    pub(crate) fn inherit(mut self, mode: u16) -> Inherited {
        let has_mask = self.rights(Tag::Mask).is_some();
        for entry in &mut self.0 {
            if let Some(shift) = entry.tag.shift_in_mode(has_mask) {
                entry.rights &= mode >> shift;
            }
        }
        Inherited { mode: self.mode(mode), access: Some(self).filter(|list| !list.is_minimal()) }
    }

    /// Returns the rights that this access list grants to a user who is in these groups and does
    /// not own the file (`posix_acl_permission` in Linux). If the user is in several groups of the
    /// list, the first one that has all `wanted` rights decides.
    pub(crate) fn rights_of(
        &self,
        uid: u32,
        is_in: impl Fn(u32) -> bool,
        gid: u32,
        wanted: u16,
    ) -> u16 {
        let mask = self.rights(Tag::Mask).unwrap_or(RIGHTS);
        let named = |entry: &&Entry| entry.tag == Tag::User && entry.id == uid;
        if let Some(user) = self.0.iter().find(named) {
            return user.rights & mask;
        }
        let mut groups = self.0.iter().filter(|entry| match entry.tag {
            Tag::OwningGroup => is_in(gid),
            Tag::Group => is_in(entry.id),
            _ => false,
        });
        let is_enough = |entry: &&Entry| entry.rights & wanted == wanted;
        match (groups.clone().next().is_some(), groups.find(is_enough)) {
            (_, Some(group)) => group.rights & mask,
            (true, None) => 0,
            (false, None) => self.rights(Tag::Others).unwrap_or(0),
        }
    }

    fn rights(&self, tag: Tag) -> Option<u16> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.rights)
    }

    /// Returns whether the list has owner, owning group and others exactly once, and one mask,
    /// which may be missing if no user or group is named; all in the order of [`Tag`]. Named users
    /// may come in any order and more than once, and so may groups: as in Linux, the first one
    /// counts.
    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let names = count(Tag::User) + count(Tag::Group) > 0;
        let masks = count(Tag::Mask);
        self.0.is_sorted_by_key(|entry| entry.tag)
            && [Tag::Owner, Tag::OwningGroup, Tag::Others].iter().all(|tag| count(*tag) == 1)
            && (masks == 1 || masks == 0 && !names)
    }
}

impl Entry {
    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let [t0, t1, r0, r1, i0, i1, i2, i3] = *bytes;
        let tag = Tag::from_number(u16::from_le_bytes([t0, t1]))?;
        let rights = Some(u16::from_le_bytes([r0, r1])).filter(|rights| rights & !RIGHTS == 0)?;
        let id = u32::from_le_bytes([i0, i1, i2, i3]);
        match tag {
            Tag::User | Tag::Group if id == NO_ID => None,
            Tag::User | Tag::Group => Some(Self { tag, rights, id }),
            // The id of other entries has no meaning.
            _ => Some(Self { tag, rights, id: NO_ID }),
        }
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.tag.number().to_le_bytes());
        out.extend_from_slice(&self.rights.to_le_bytes());
        out.extend_from_slice(&self.id.to_le_bytes());
    }

    fn is_in_mode(&self) -> bool {
        matches!(self.tag, Tag::Owner | Tag::OwningGroup | Tag::Others)
    }
}

impl Tag {
    const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            0x01 => Self::Owner,
            0x02 => Self::User,
            0x04 => Self::OwningGroup,
            0x08 => Self::Group,
            0x10 => Self::Mask,
            0x20 => Self::Others,
            _ => return None,
        })
    }

    const fn number(self) -> u16 {
        1 << self as u16
    }

    /// Returns by how many bits the rights are shifted in the mode; `None` if the mode does not
    /// show them. `has_mask`: true if the list has a mask, which the mode shows instead of the
    /// group.
    const fn shift_in_mode(self, has_mask: bool) -> Option<u16> {
        match self {
            Self::Owner => Some(6),
            Self::OwningGroup if !has_mask => Some(3),
            Self::Mask => Some(3),
            Self::Others => Some(0),
            Self::User | Self::OwningGroup | Self::Group => None,
        }
    }
}

#[cfg(test)]
mod tests;
