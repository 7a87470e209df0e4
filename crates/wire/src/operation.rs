//! The table that describes each request.
//!
//! One table describes all requests. Read-only volumes, replay, space and logs read it, and later
//! permissions and leases will, so that none of them keeps its own list of requests.

use crate::attr::SetAttr;
use crate::description::{Effect, Right, Subjects};
use crate::flags::{OpenFlags, RenameFlags};
use crate::id::{Handle, OpenId};
use crate::request::Request;

/// A request without its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Description {
    /// The operation.
    pub operation: Operation,
    /// What the request changes.
    pub effect: Effect,
    /// The inodes and open files that it names.
    pub subjects: Subjects,
    /// The right that it needs on each subject.
    pub right: Right,
}

/// The change consists of rows, so the reply can be stored in the same batch.
const ROWS: Effect = Effect::Change { replayed: true, grows: false };
const NEW_ROWS: Effect = Effect::Change { replayed: true, grows: true };
/// Space for bytes is checked later, when the number of blocks is known.
const BYTES: Effect = Effect::Change { replayed: false, grows: false };

/// The size and `mtime` of an open file are kept with the open file until its commit.
const fn attributes(open: Option<&OpenId>, set: &SetAttr) -> Effect {
    match open {
        None if set.size.is_none() && set.mtime.is_none() => ROWS,
        _ => BYTES,
    }
}

const fn opening(flags: OpenFlags) -> Effect {
    if flags.write || flags.truncate { BYTES } else { Effect::None }
}

const fn right_to(flags: OpenFlags) -> Right {
    if flags.write || flags.truncate { Right::Write } else { Right::Read }
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
            Effect::Change { .. } | Effect::Commit => true,
            Effect::None => matches!(self, Self::Open { .. } | Self::FsyncDir { .. }),
        }
    }
}

macro_rules! operations {
    ($($name:ident { $($field:ident),* } = $says:literal,
        $effect:expr, $subjects:expr, $right:expr;)+) => {
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
        }

        impl Request {
            /// Returns the row of the table for this request.
            #[must_use]
            pub const fn describe(&self) -> Description {
                match self {
                    $(Self::$name { $($field,)* .. } => Description {
                        operation: Operation::$name,
                        effect: $effect,
                        subjects: $subjects,
                        right: $right,
                    },)+
                }
            }
        }
    };
}

operations! {
    Lookup { dir } = "lookup", Effect::None, Subjects::inode(dir), Right::Search;
    Parent { dir } = "parent", Effect::None, Subjects::inode(dir), Right::Search;
    Find { ino } = "find", Effect::None, Subjects::inode(&Handle::own(*ino)), Right::None;
    GetAttr { node } = "getattr", Effect::None, Subjects::inode(node), Right::None;
    SetAttr { node, open, set } = "setattr",
        attributes(open.as_ref(), set), Subjects::inode(node), Right::Own;
    Create { dir } = "create", NEW_ROWS, Subjects::inode(dir), Right::Write;
    CreateUnnamed { dir } = "tmpfile", NEW_ROWS, Subjects::inode(dir), Right::Write;
    MakeDir { dir } = "mkdir", NEW_ROWS, Subjects::inode(dir), Right::Write;
    MakeNode { dir } = "mknod", NEW_ROWS, Subjects::inode(dir), Right::Write;
    Symlink { dir } = "symlink", NEW_ROWS, Subjects::inode(dir), Right::Write;
    ReadLink { node } = "readlink", Effect::None, Subjects::inode(node), Right::None;
    Link { node, dir } = "link", NEW_ROWS, Subjects::inodes(node, dir), Right::Write;
    Unlink { dir } = "unlink", ROWS, Subjects::inode(dir), Right::Write;
    RemoveDir { dir } = "rmdir", ROWS, Subjects::inode(dir), Right::Write;
    Rename { from_dir, to_dir, flags } = "rename",
        renaming(*flags), Subjects::inodes(from_dir, to_dir), Right::Write;
    Open { node, flags } = "open", opening(*flags), Subjects::inode(node), right_to(*flags);
    Reopen { node, flags } = "reopen", Effect::None, Subjects::inode(node), right_to(*flags);
    Flush { open } = "flush", Effect::Commit, Subjects::open(open), Right::None;
    Release { open } = "release", Effect::Commit, Subjects::open(open), Right::None;
    GetLock { open } = "getlk", Effect::None, Subjects::open(open), Right::None;
    SetLock { open } = "setlk", Effect::None, Subjects::open(open), Right::None;
    ReclaimLock { open } = "reclaimlk", Effect::None, Subjects::open(open), Right::None;
    Fsync { open } = "fsync", Effect::Commit, Subjects::open(open), Right::None;
    FsyncDir { dir } = "fsyncdir", Effect::None, Subjects::inode(dir), Right::None;
    Read { open } = "read", Effect::None, Subjects::open(open), Right::Read;
    Write { open } = "write", BYTES, Subjects::open(open), Right::Write;
    List { dir } = "readdir", Effect::None, Subjects::inode(dir), Right::Read;
    GetXattr { node } = "getxattr", Effect::None, Subjects::inode(node), Right::Read;
    ListXattr { node } = "listxattr", Effect::None, Subjects::inode(node), Right::None;
    SetXattr { node } = "setxattr", NEW_ROWS, Subjects::inode(node), Right::Write;
    RemoveXattr { node } = "removexattr", ROWS, Subjects::inode(node), Right::Write;
    StatFs {} = "statfs", Effect::None, Subjects::NONE, Right::None;
    Allocate { open } = "fallocate", BYTES, Subjects::open(open), Right::Write;
    Seek { open } = "lseek", Effect::None, Subjects::open(open), Right::Read;
    CopyRange { from, to } = "copy_file_range", BYTES, Subjects::opens(from, to), Right::Write;
    Search { dir } = "search", Effect::None, Subjects::inode(dir), Right::Search;
    Tags { dir } = "tags", Effect::None, Subjects::inode(dir), Right::Search;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::attr::{NewMode, SetTime};
    use crate::id::InodeId;
    use crate::name::Name;

    const NODE: Handle = Handle::own(InodeId::ROOT);
    const OPEN: OpenId = OpenId(7);

    fn set_attr(open: Option<OpenId>, set: SetAttr) -> Effect {
        Request::SetAttr { node: NODE, open, set }.describe().effect
    }

    #[test]
    fn each_operation_has_a_name_of_its_own() {
        let names: BTreeSet<_> = Operation::ALL.iter().map(|operation| operation.name()).collect();
        assert_eq!(names.len(), Operation::ALL.len());
    }

    /// The number of an open is the client's, so that it means the same in every run.
    #[test]
    fn a_create_is_replayed_and_an_open_is_not() {
        let name = Name::new(b"a").unwrap();
        let mode = NewMode::exactly(0o644);
        let flags = OpenFlags { write: true, ..OpenFlags::default() };
        let create = Request::Create { dir: NODE, name, mode, flags, open: OPEN }.describe();
        assert_eq!(create.effect, Effect::Change { replayed: true, grows: true });
        let open = Request::Open { node: NODE, flags, open: OPEN }.describe();
        assert_eq!(open.effect, Effect::Change { replayed: false, grows: false });
        let again = Request::Reopen { node: NODE, flags, open: OPEN };
        assert_eq!((again.describe().effect, again.is_mutation()), (Effect::None, false));
    }

    #[test]
    fn attributes_of_bytes_are_not_replayed() {
        let mode = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        assert_eq!(set_attr(None, mode), ROWS);
        assert_eq!(set_attr(Some(OPEN), mode), BYTES);
        assert_eq!(set_attr(None, SetAttr { size: Some(0), ..mode }), BYTES);
        assert_eq!(set_attr(None, SetAttr { mtime: Some(SetTime::Now), ..mode }), BYTES);
    }

    #[test]
    fn an_open_changes_what_it_may_write() {
        let open = |flags| Request::Open { node: NODE, flags, open: OPEN }.describe();
        let read = OpenFlags { read: true, ..OpenFlags::default() };
        assert_eq!((open(read).effect, open(read).right), (Effect::None, Right::Read));
        let truncate = OpenFlags { truncate: true, ..read };
        assert_eq!((open(truncate).effect, open(truncate).right), (BYTES, Right::Write));
    }

    /// A whiteout is a new file, so it takes space; a plain rename only moves a name.
    #[test]
    fn a_rename_grows_by_a_whiteout_only() {
        assert_eq!(renaming(RenameFlags::Replace), ROWS);
        assert_eq!(renaming(RenameFlags::Whiteout { replace: true }), NEW_ROWS);
    }

    #[test]
    fn subjects_are_what_the_request_names() {
        let copy = Request::CopyRange {
            from: OPEN,
            from_offset: 0,
            to: OpenId(8),
            to_offset: 0,
            length: 1,
        };
        let subjects = copy.describe().subjects;
        assert_eq!(subjects.each_open().collect::<Vec<_>>(), [OPEN, OpenId(8)]);
        assert_eq!(subjects.each_inode().count(), 0);
        assert_eq!(Request::StatFs.describe().subjects, Subjects::NONE);
    }
}
