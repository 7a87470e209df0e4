//! The reply about versions of files of other offices that others have passed over.

use pelago_wire::{Handle, InodeId, NameHash};
use serde_json::{Value, json};

/// The versions that are kept, the newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConflictsReport {
    pub(crate) conflicts: Vec<ConflictLine>,
    /// The number of those that are not in the list, because it would be too long.
    pub(crate) left_out: u64,
}

/// A version of a file that was written here, while others wrote the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConflictLine {
    /// The inode number under which its bytes are kept.
    pub(crate) node: u64,
    /// The inode number of the file.
    pub(crate) inode: u64,
    /// The directory in which the file was.
    pub(crate) dir: u64,
    /// The hash of the name that it had there.
    pub(crate) hash: u64,
    /// The name of the office that has the file.
    pub(crate) office: String,
    /// When the bytes were last written, in seconds since 1970.
    pub(crate) seconds: i64,
    pub(crate) bytes: u64,
}

impl ConflictsReport {
    pub(super) fn to_json(&self) -> Value {
        let Self { conflicts, left_out } = self;
        json!({
            "conflicts": conflicts.iter().map(ConflictLine::to_json).collect::<Vec<_>>(),
            "left_out": left_out,
        })
    }

    /// Parses an object; `None` if it is no such reply.
    pub(super) fn from_json(object: &Value) -> Option<Self> {
        let conflicts = object["conflicts"].as_array()?;
        Some(Self {
            conflicts: conflicts.iter().map(ConflictLine::from_json).collect::<Option<_>>()?,
            left_out: object["left_out"].as_u64()?,
        })
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self { conflicts: vec![ConflictLine::sample()], left_out: 1 }
    }
}

impl ConflictLine {
    /// Returns the handle of the file as it was when its bytes were passed over.
    pub(crate) const fn recorded(&self) -> Handle {
        Handle {
            ino: InodeId::from_raw(self.inode),
            dir: InodeId::from_raw(self.dir),
            hash: NameHash(self.hash),
        }
    }

    fn to_json(&self) -> Value {
        let Self { node, inode, dir, hash, office, seconds, bytes } = self;
        json!({
            "node": node,
            "inode": inode,
            "dir": dir,
            "hash": hash,
            "office": office,
            "seconds": seconds,
            "bytes": bytes,
        })
    }

    fn from_json(object: &Value) -> Option<Self> {
        Some(Self {
            node: object["node"].as_u64()?,
            inode: object["inode"].as_u64()?,
            dir: object["dir"].as_u64()?,
            hash: object["hash"].as_u64()?,
            office: object["office"].as_str()?.to_owned(),
            seconds: object["seconds"].as_i64()?,
            bytes: object["bytes"].as_u64()?,
        })
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            node: 1 << 48 | 7,
            inode: 9,
            dir: 1,
            hash: u64::MAX,
            office: "first".to_owned(),
            seconds: 1_798_761_600,
            bytes: 5000,
        }
    }
}
