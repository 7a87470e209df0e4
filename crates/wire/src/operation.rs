//! The table of requests: a row for each kind, with the facts that decide how it is treated.
//!
//! Read-only volumes, space, replay, leases, locks, memory, guests, the start of a server and its
//! log read this table, so that none of them keeps a list of all requests, except three that need
//! arguments which no column has (decision 36). A new kind does not compile without a row.
//! `server::service::execute` carries requests out.

use crate::account::{Account, Lasting};
use crate::attr::SetAttr;
use crate::description::{Effect, Subjects};
use crate::flags::{OpenFlags, RenameFlags};
use crate::guest::{ForGuest, GuestRight};
use crate::id::{Handle, InodeId, OpenId};
use crate::limits;
use crate::lock::LockOwner;
use crate::name::Name;
use crate::request::Request;
use crate::touches::{AtStart, NameIn, OpenEffect, Tells, Touches};
use GuestRight::{Any, Audit, Delete, Read, Write};
use Lasting::{Answer, Leases, Lock, LockWaiter, Open};

/// A request without its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// The operation.
    pub operation: Operation,
    /// The kind of change that it makes.
    pub effect: Effect,
    /// The inodes and open files that it names.
    pub subjects: Subjects,
}

/// The limits of the bulk bytes of a request and of its answer.
struct Bulks {
    request: usize,
    answer: usize,
}

macro_rules! operations {
    ($($name:ident { $($field:ident),* } = $says:literal {
        effect: $effect:expr, subjects: $subjects:expr, guest: $guest:expr,
        touches: $touches:expr, tells: $tells:expr,
        opens: $opens:expr, at_start: $at_start:expr,
        bulks: $bulks:expr, leaves: [$($leaves:expr),*],
    })+) => {
        /// The operation of a request, without its arguments.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Operation {
            $(#[doc = concat!("[`Request::", stringify!($name), "`].")] $name,)+
        }

        impl Operation {
            /// Every operation, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// Returns the operation's name in logs and metrics.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $says,)+ }
            }

            /// Returns whether bulk bytes may follow the body.
            #[must_use]
            pub const fn has_bulk(self) -> bool {
                let bulks: Bulks = match self { $(Self::$name => $bulks,)+ };
                bulks.request > 0
            }

            /// Returns the memory of a server that a request of this kind takes.
            #[must_use]
            pub const fn account(self) -> Account {
                let (bulks, leaves): (Bulks, &[Lasting]) = match self {
                    $(Self::$name => ($bulks, &[$($leaves),*]),)+
                };
                Account {
                    body: self.longest_body(),
                    bulk: bulks.request,
                    answer: self.longest_answer() + bulks.answer,
                    leaves,
                }
            }
        }

        // Inlined, most calls are a comparison of the kind.
        #[expect(unused_variables, reason = "no column needs all arguments of a request")]
        impl Request {
            /// Returns operation, effect and subjects.
            #[must_use]
            pub const fn describe(&self) -> Description {
                match self {
                    $(Self::$name { $($field,)* .. } => Description {
                        operation: Operation::$name,
                        effect: $effect,
                        subjects: $subjects,
                    },)+
                }
            }

            /// Returns the things that the request changes and that others may have cached.
            #[must_use]
            #[inline]
            pub const fn touches(&self) -> Touches<'_> {
                match self { $(Self::$name { $($field,)* .. } => $touches,)+ }
            }

            /// Returns the facts that its answer reports and that a client may cache.
            #[must_use]
            #[inline]
            pub const fn tells(&self) -> Tells<'_> {
                match self { $(Self::$name { $($field,)* .. } => $tells,)+ }
            }

            /// Returns the rule for the request if it comes from a guest.
            #[must_use]
            #[inline]
            pub const fn for_guest(&self) -> ForGuest {
                match self { $(Self::$name { $($field,)* .. } => $guest,)+ }
            }

            /// Returns the effect of the request on open files.
            #[must_use]
            #[inline]
            pub const fn opens(&self) -> OpenEffect {
                match self { $(Self::$name { $($field,)* .. } => $opens,)+ }
            }

            /// Returns the turn of the request while the server waits for the sessions of its last
            /// run.
            #[must_use]
            #[inline]
            pub const fn at_start(&self) -> AtStart {
                match self { $(Self::$name { $($field,)* .. } => $at_start,)+ }
            }
        }
    };
}

operations! {
    Lookup { dir, name } = "lookup" {
        effect: Effect::None, subjects: Subjects::inode(dir), guest: ForGuest::node(Any, dir),
        touches: Touches::Nothing, tells: Tells::Name(at(dir, name)),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Leases],
    }
    Parent { dir } = "parent" {
        effect: Effect::None, subjects: Subjects::inode(dir), guest: ForGuest::Parent(*dir),
        touches: Touches::Nothing, tells: Tells::Parent(dir.ino),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Leases],
    }
    Find { ino } = "find" {
        effect: Effect::None, subjects: Subjects::inode(&Handle::own(*ino)), guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Attributes,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Leases],
    }
    GetAttr { node } = "getattr" {
        effect: Effect::None, subjects: Subjects::inode(node), guest: ForGuest::node(Any, node),
        touches: Touches::Nothing, tells: Tells::Attributes,
        opens: OpenEffect::Nothing, at_start: start_of_attributes(node),
        bulks: NO_BULKS, leaves: [Leases],
    }
    SetAttr { node, open, set } = "setattr" {
        effect: attributes(open.as_ref(), set), subjects: Subjects::held(node),
        guest: ForGuest::setting(node, open, set),
        touches: set_attributes(node, set), tells: Tells::Attributes,
        opens: OpenEffect::Nothing, at_start: AtStart::BeforeNew,
        bulks: NO_BULKS, leaves: [Answer, Leases],
    }
    Create { dir, name, flags, open } = "create" {
        effect: NEW_ROWS, subjects: Subjects::inode(dir),
        guest: ForGuest::node(GuestRight::Create, dir),
        touches: new_name(dir, name), tells: Tells::NewName(at(dir, name)),
        opens: OpenEffect::Creates { open: *open, flags: *flags }, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer, Open, Leases],
    }
    CreateUnnamed { dir, flags, open } = "tmpfile" {
        effect: NEW_ROWS, subjects: Subjects::inode(dir),
        guest: ForGuest::node(GuestRight::Create, dir),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Creates { open: *open, flags: *flags }, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer, Open, Leases],
    }
    MakeDir { dir, name } = "mkdir" {
        effect: NEW_ROWS, subjects: Subjects::inode(dir),
        guest: ForGuest::node(GuestRight::Create, dir),
        touches: new_name(dir, name), tells: Tells::NewDir(at(dir, name)),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer, Leases],
    }
    MakeNode { dir, name, kind } = "mknod" {
        effect: NEW_ROWS, subjects: Subjects::inode(dir), guest: ForGuest::making(dir, *kind),
        touches: new_name(dir, name), tells: Tells::NewName(at(dir, name)),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer, Leases],
    }
    Symlink { dir, name } = "symlink" {
        effect: NEW_ROWS, subjects: Subjects::inode(dir),
        guest: ForGuest::node(GuestRight::Create, dir),
        touches: new_name(dir, name), tells: Tells::NewName(at(dir, name)),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer, Leases],
    }
    ReadLink { node } = "readlink" {
        effect: Effect::None, subjects: Subjects::inode(node), guest: ForGuest::node(Any, node),
        touches: Touches::Nothing, tells: Tells::Target(node.ino),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Leases],
    }
    Link { node, dir, name } = "link" {
        effect: NEW_ROWS, subjects: Subjects::inodes(node, dir),
        guest: ForGuest::linking(node, dir),
        touches: Touches::NewName { at: at(dir, name), of: Some(node.ino) },
        tells: Tells::NewName(at(dir, name)),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer, Leases],
    }
    Unlink { dir, name } = "unlink" {
        effect: ROWS, subjects: Subjects::inode(dir), guest: ForGuest::node(Delete, dir),
        touches: Touches::OldName(at(dir, name)), tells: Tells::OldName(at(dir, name)),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer, Leases],
    }
    RemoveDir { dir, name } = "rmdir" {
        effect: ROWS, subjects: Subjects::inode(dir), guest: ForGuest::node(Delete, dir),
        touches: Touches::OldName(at(dir, name)), tells: Tells::OldName(at(dir, name)),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer, Leases],
    }
    Rename { from_dir, from, to_dir, to, flags } = "rename" {
        effect: renaming(*flags), subjects: Subjects::inodes(from_dir, to_dir),
        guest: ForGuest::renaming(from_dir, to_dir, *flags),
        touches: Touches::Move { from: at(from_dir, from), to: at(to_dir, to) },
        tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer, Leases],
    }
    Open { node, flags, open } = "open" {
        effect: opening(*flags), subjects: Subjects::held(node),
        guest: ForGuest::opening(node, *flags),
        touches: opened(node, *flags), tells: Tells::Attributes,
        opens: OpenEffect::Makes { node: *node, open: *open, flags: *flags },
        at_start: AtStart::BeforeNew,
        bulks: NO_BULKS, leaves: [Answer, Open, Leases],
    }
    Reopen { node, flags, open } = "reopen" {
        effect: Effect::None, subjects: Subjects::inode(node),
        guest: ForGuest::opening(node, *flags),
        touches: opened(node, without_truncation(*flags)), tells: Tells::Nothing,
        opens: OpenEffect::MakesAgain { node: *node, open: *open, flags: *flags },
        at_start: AtStart::Restores,
        bulks: NO_BULKS, leaves: [Open],
    }
    Flush { open, owner } = "flush" {
        effect: Effect::Commit, subjects: Subjects::open(open), guest: ForGuest::Commit(*open),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: closing(open, owner), at_start: AtStart::BeforeNew,
        bulks: NO_BULKS, leaves: [Answer],
    }
    Release { open } = "release" {
        effect: Effect::Commit, subjects: Subjects::open(open), guest: ForGuest::Own,
        touches: Touches::Release(*open), tells: Tells::Attributes,
        opens: OpenEffect::Ends(*open), at_start: AtStart::BeforeNew,
        bulks: NO_BULKS, leaves: [Answer],
    }
    GetLock { open, lock } = "getlk" {
        effect: Effect::None, subjects: Subjects::open(open), guest: ForGuest::locking(open, lock),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::UsesGuarded, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    SetLock { open, owner, lock } = "setlk" {
        effect: Effect::None, subjects: Subjects::open(open), guest: ForGuest::locking(open, lock),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Locks { open: *open, owner: *owner, lock: *lock },
        at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Lock, LockWaiter],
    }
    ReclaimLock { open, lock } = "reclaimlk" {
        effect: Effect::None, subjects: Subjects::open(open), guest: ForGuest::locking(open, lock),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::Restores,
        bulks: NO_BULKS, leaves: [Lock],
    }
    Fsync { open } = "fsync" {
        effect: Effect::Commit, subjects: Subjects::open(open), guest: ForGuest::Commit(*open),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::BeforeNew,
        bulks: NO_BULKS, leaves: [Answer],
    }
    FsyncAt { open } = "fsyncat" {
        effect: Effect::Commit, subjects: Subjects::open(open), guest: ForGuest::Commit(*open),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::BeforeNew,
        bulks: NO_BULKS, leaves: [Answer],
    }
    FsyncDir { dir } = "fsyncdir" {
        effect: Effect::Once, subjects: Subjects::inode(dir), guest: ForGuest::CommitDir(*dir),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer],
    }
    Read { open } = "read" {
        effect: Effect::None, subjects: Subjects::open(open), guest: ForGuest::open(Read, open),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::UsesGuarded, at_start: AtStart::InTurn,
        bulks: Bulks { request: 0, answer: limits::IO_BYTES }, leaves: [],
    }
    Write { open } = "write" {
        effect: BYTES, subjects: Subjects::open(open), guest: ForGuest::open(Write, open),
        touches: Touches::Bytes(*open), tells: Tells::Nothing,
        opens: OpenEffect::UsesGuarded, at_start: AtStart::BeforeNew,
        bulks: Bulks { request: limits::FRAME_BULK_BYTES, answer: 0 }, leaves: [Answer],
    }
    List { dir, after, entries } = "readdir" {
        effect: Effect::None, subjects: Subjects::inode(dir), guest: ForGuest::node(Read, dir),
        touches: Touches::Nothing,
        tells: Tells::Names { dir: dir.ino, after: *after, most: *entries },
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Leases],
    }
    GetXattr { node, name } = "getxattr" {
        effect: Effect::None, subjects: Subjects::held(node),
        guest: ForGuest::reading_xattr(node, name.as_slice()),
        touches: Touches::Nothing, tells: Tells::of_xattr(node.ino, name.as_slice()),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Leases],
    }
    ListXattr { node } = "listxattr" {
        effect: Effect::None, subjects: Subjects::held(node), guest: ForGuest::node(Read, node),
        touches: Touches::Nothing, tells: Tells::Xattrs(node.ino),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Leases],
    }
    SetXattr { node, name } = "setxattr" {
        effect: NEW_ROWS, subjects: Subjects::held(node),
        guest: ForGuest::writing_xattr(node, name.as_slice()),
        touches: Touches::Node(node.ino), tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::BeforeNew,
        bulks: NO_BULKS, leaves: [Answer, Leases],
    }
    RemoveXattr { node, name } = "removexattr" {
        effect: ROWS, subjects: Subjects::held(node),
        guest: ForGuest::writing_xattr(node, name.as_slice()),
        touches: Touches::Node(node.ino), tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::BeforeNew,
        bulks: NO_BULKS, leaves: [Answer, Leases],
    }
    StatFs {} = "statfs" {
        effect: Effect::None, subjects: Subjects::NONE, guest: ForGuest::Space,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::ForOwnMount,
        bulks: NO_BULKS, leaves: [],
    }
    Allocate { open } = "fallocate" {
        effect: BYTES, subjects: Subjects::open(open), guest: ForGuest::open(Write, open),
        touches: Touches::Bytes(*open), tells: Tells::Nothing,
        opens: OpenEffect::UsesGuarded, at_start: AtStart::BeforeNew,
        bulks: NO_BULKS, leaves: [Answer],
    }
    Seek { open } = "lseek" {
        effect: Effect::None, subjects: Subjects::open(open), guest: ForGuest::open(Read, open),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    CopyRange { from, to } = "copy_file_range" {
        effect: BYTES, subjects: Subjects::opens(from, to), guest: ForGuest::copying(from, to),
        touches: Touches::Bytes(*to), tells: Tells::Nothing,
        opens: OpenEffect::UsesGuarded, at_start: AtStart::BeforeNew,
        bulks: NO_BULKS, leaves: [Answer],
    }
    Search { dir } = "search" {
        effect: Effect::None, subjects: Subjects::inode(dir), guest: ForGuest::node(Read, dir),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    Tags { dir } = "tags" {
        effect: Effect::None, subjects: Subjects::inode(dir), guest: ForGuest::node(Read, dir),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    Attach {} = "attach" {
        effect: Effect::None, subjects: Subjects::NONE, guest: ForGuest::Attach,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    Issue { node } = "issue" {
        effect: Effect::None, subjects: Subjects::inode(node),
        guest: ForGuest::node(Any, node),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    Revoke {} = "revoke" {
        effect: Effect::Change { replayed: false, grows: false },
        subjects: Subjects::NONE, guest: ForGuest::Revoke,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer],
    }
    Access { node, chain } = "access" {
        effect: Effect::None, subjects: Subjects::inode(node),
        guest: ForGuest::asking(node, chain.is_empty()),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    Audited { dir } = "audited" {
        effect: Effect::None, subjects: Subjects::inode(dir), guest: ForGuest::node(Audit, dir),
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    Step { dir, to } = "step" {
        effect: Effect::None, subjects: Subjects::inode(dir), guest: ForGuest::Never,
        touches: Touches::Nothing, tells: stepped(dir, to.as_ref()),
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Leases],
    }
    AddDir { dir, name } = "adddir" {
        effect: NEW_ROWS, subjects: Subjects::inode(dir), guest: ForGuest::Never,
        touches: new_name(dir, name), tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer],
    }
    DropDir { dir, name } = "dropdir" {
        effect: ROWS, subjects: Subjects::inode(dir), guest: ForGuest::Never,
        touches: Touches::OldName(at(dir, name)), tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer],
    }
    RemoveNamedDir { dir } = "removenameddir" {
        effect: ROWS, subjects: Subjects::inode(dir), guest: ForGuest::Never,
        touches: Touches::Node(dir.ino), tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer],
    }
    SiteAddress {} = "siteaddress" {
        effect: Effect::Change { replayed: false, grows: false },
        subjects: Subjects::NONE, guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer],
    }
    SiteList {} = "sitelist" {
        effect: Effect::Change { replayed: false, grows: false },
        subjects: Subjects::NONE, guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer],
    }
    LeaveSite {} = "leavesite" {
        effect: Effect::Change { replayed: false, grows: false },
        subjects: Subjects::NONE, guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer],
    }
    Charter {} = "charter" {
        effect: Effect::None,
        subjects: Subjects::NONE, guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    Revoked {} = "revoked" {
        effect: Effect::None,
        subjects: Subjects::NONE, guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    PassRevocation {} = "passrevocation" {
        effect: Effect::Change { replayed: false, grows: false },
        subjects: Subjects::NONE, guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer],
    }
    CharterChanged {} = "charterchanged" {
        effect: Effect::None,
        subjects: Subjects::NONE, guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    SetBytes { node, flags } = "setbytes" {
        effect: BYTES, subjects: Subjects::inode(node), guest: ForGuest::Never,
        touches: match flags.asks { true => Touches::Nothing, false => Touches::Node(node.ino) },
        tells: Tells::Attributes,
        opens: OpenEffect::Nothing, at_start: AtStart::BeforeNew,
        bulks: NO_BULKS, leaves: [Answer, Leases],
    }
    GiveBytes { node } = "givebytes" {
        effect: BYTES, subjects: Subjects::inode(node), guest: ForGuest::Never,
        touches: Touches::Node(node.ino), tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer],
    }
    DropBytes { node } = "dropbytes" {
        effect: BYTES, subjects: Subjects::inode(node), guest: ForGuest::Never,
        touches: Touches::Contents(node.ino), tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [Answer],
    }
    Clock {} = "clock" {
        effect: Effect::None, subjects: Subjects::NONE, guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    Hashes { open } = "hashes" {
        effect: Effect::None, subjects: Subjects::open(open), guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::UsesGuarded, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    RenewToken {} = "renewtoken" {
        effect: Effect::None, subjects: Subjects::NONE, guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    KeepToken {} = "keeptoken" {
        effect: Effect::None, subjects: Subjects::NONE, guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
    Servers {} = "servers" {
        effect: Effect::None, subjects: Subjects::NONE, guest: ForGuest::Never,
        touches: Touches::Nothing, tells: Tells::Nothing,
        opens: OpenEffect::Nothing, at_start: AtStart::InTurn,
        bulks: NO_BULKS, leaves: [],
    }
}

/// The change consists of rows, so the reply can be stored in the same batch.
const ROWS: Effect = Effect::Change { replayed: true, grows: false };
const NEW_ROWS: Effect = Effect::Change { replayed: true, grows: true };
/// Space for bytes is checked later, when the number of blocks is known.
const BYTES: Effect = Effect::Change { replayed: false, grows: false };
const NO_BULKS: Bulks = Bulks { request: 0, answer: 0 };

const fn at<'a>(dir: &Handle, name: &'a Name) -> NameIn<'a> {
    NameIn { dir: *dir, name }
}

/// The name that a step takes, and its target. The directory above another one is not leased.
const fn stepped<'a>(dir: &Handle, to: Option<&'a Name>) -> Tells<'a> {
    match to {
        Some(name) => Tells::Name(at(dir, name)),
        None => Tells::Nothing,
    }
}

const fn new_name<'a>(dir: &Handle, name: &'a Name) -> Touches<'a> {
    Touches::NewName { at: at(dir, name), of: None }
}

/// The size and `mtime` of an open file are kept with the open file until its commit.
const fn attributes(open: Option<&OpenId>, set: &SetAttr) -> Effect {
    match open {
        None if set.size.is_none() && set.mtime.is_none() => ROWS,
        _ => BYTES,
    }
}

const fn set_attributes<'a>(node: &Handle, set: &SetAttr) -> Touches<'a> {
    match set.size {
        Some(_) => Touches::Contents(node.ino),
        None => Touches::Node(node.ino),
    }
}

const fn start_of_attributes(node: &Handle) -> AtStart {
    if node.ino.raw() == InodeId::ROOT.raw() { AtStart::ForOwnMount } else { AtStart::InTurn }
}

const fn opening(flags: OpenFlags) -> Effect {
    if flags.write || flags.truncate { BYTES } else { Effect::Once }
}

const fn opened<'a>(node: &Handle, flags: OpenFlags) -> Touches<'a> {
    match (flags.truncate, flags.write) {
        (true, _) => Touches::Contents(node.ino),
        (false, true) => Touches::Node(node.ino),
        (false, false) => Touches::Nothing,
    }
}

/// A file that is opened again is not truncated again.
const fn without_truncation(flags: OpenFlags) -> OpenFlags {
    OpenFlags { truncate: false, ..flags }
}

const fn closing(open: &OpenId, owner: &Option<LockOwner>) -> OpenEffect {
    match owner {
        Some(owner) => OpenEffect::EndsLocks { open: *open, owner: *owner },
        None => OpenEffect::Nothing,
    }
}

const fn renaming(flags: RenameFlags) -> Effect {
    if flags.leaves_a_whiteout() { NEW_ROWS } else { ROWS }
}

impl Request {
    /// Returns whether a session must not have this request carried out twice: it changes rows,
    /// bytes or what is open, or reports an error once. Such a request has a mutation number.
    #[must_use]
    pub const fn is_mutation(&self) -> bool {
        match self.describe().effect {
            Effect::None => false,
            Effect::Once | Effect::Commit | Effect::Change { .. } => true,
        }
    }

    /// Returns whether the request makes a node, which its reply has as an entry: by the columns of
    /// the table, one with a new name of no other node, or one that it opens.
    #[must_use]
    pub const fn makes_node(&self) -> bool {
        let has_new_name = match self.touches() {
            Touches::NewName { of, .. } => of.is_none(),
            Touches::Nothing
            | Touches::Node(_)
            | Touches::Contents(_)
            | Touches::Bytes(_)
            | Touches::Release(_)
            | Touches::OldName(_)
            | Touches::Move { .. } => false,
        };
        has_new_name || matches!(self.opens(), OpenEffect::Creates { .. })
    }
}

#[cfg(test)]
mod tests;
