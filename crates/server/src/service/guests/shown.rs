//! Attributes as guests see them: the mode bits are what is left to the guest.
//!
//! A guest's kernel checks modes, by the ids of its own machine. So the bits of the owner are those
//! of the guest, and its client shows the attaching user as the owner. Ids of users and set-id bits
//! of the server's machine stay there.

use pelago_keynote::Right;
use pelago_wire::{Attr, FileKind};

use super::modes::UserModes;
use crate::policy::RightSet;

/// The bit of the owner to read.
const READ: u16 = 0o400;
/// The bit of the owner to write.
const WRITE: u16 = 0o200;
/// The bit of the owner to execute, or to search.
const EXECUTE: u16 = 0o100;
/// The rights by which names in a directory change.
const CHANGE_NAMES: RightSet = RightSet::of(&[Right::Create, Right::Delete]);

/// Changes attributes to those that a guest with these rights sees, who acts as a user.
pub(super) fn show(attr: &mut Attr, rights: RightSet, modes: &UserModes<'_>) {
    let is_dir = attr.kind == FileKind::Directory;
    let bits = modes.bits(attr);
    let may_write = if is_dir { rights.has_any(CHANGE_NAMES) } else { rights.has(Right::Write) };
    // Each right to a directory is one to look names up in it.
    let may_execute = is_dir || rights.has(Right::Execute);
    let shown = [
        (rights.has(Right::Read) && bits & 4 != 0, READ),
        (may_write && bits & 2 != 0, WRITE),
        (may_execute && bits & 1 != 0, EXECUTE),
    ];
    attr.mode = shown.iter().filter(|(may, _)| *may).fold(0, |mode, (_, bit)| mode | bit);
    attr.uid = 0;
    attr.gid = 0;
}
