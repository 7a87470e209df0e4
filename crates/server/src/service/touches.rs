//! What a request does to what others keep.

use std::sync::Arc;

use pelago_data::OpenKey;
use pelago_meta::reply_cache::ExpectedNodes;
use pelago_proto::leases::ChangeId;
use pelago_wire::{Code, Context, Error, Handle, InodeId, Name, Request, Touched};

use super::Dispatcher;

/// What a request does to what others keep.
pub(super) enum Touches {
    /// Nothing: it reads, or what it changes is announced already.
    Nothing,
    /// It makes an open that writes nothing.
    Opens(OpenKey),
    /// The bytes of this file, which the session has open for writing.
    Bytes(InodeId),
    /// It ends an open.
    Release(OpenKey),
    /// It changes this.
    Changes(Announced),
}

/// What a change touches, as it was when it was announced.
pub(super) struct Announced {
    pub(super) changes: Arc<[Touched]>,
    /// What the names of the request lead to, if the request relies on it.
    pub(super) expected: Option<ExpectedNodes>,
    /// The open that the request makes.
    pub(super) opens: Option<OpenKey>,
    /// Whether that is one for writing.
    pub(super) writes: bool,
    /// What the announcement to other sessions is known by, once it was made.
    pub(super) change: Option<ChangeId>,
}

impl Announced {
    /// Leaves out names: until all that was lost is carried out again the kernel has been answered
    /// none, and one that asks for them must not be waited for.
    pub(super) fn forget_names(&mut self) {
        let inodes = |touched: &&Touched| !matches!(touched, Touched::Name { .. });
        self.changes = self.changes.iter().filter(inodes).cloned().collect();
    }
}

/// Returns whether others are told of such a request while there are any. It is asked for each
/// request of the server's own mount, and so looks at nothing but the request:
/// [`Dispatcher::touches`] looks names and open files up.
pub(super) const fn concerns_others(request: &Request) -> bool {
    match request {
        Request::Lookup { .. }
        | Request::Parent { .. }
        | Request::Find { .. }
        | Request::GetAttr { .. }
        | Request::ReadLink { .. }
        | Request::Flush { .. }
        | Request::Fsync { .. }
        | Request::FsyncDir { .. }
        | Request::Read { .. }
        | Request::Write { .. }
        | Request::List { .. }
        | Request::GetXattr { .. }
        | Request::ListXattr { .. }
        | Request::StatFs
        | Request::Search { .. }
        | Request::Tags { .. }
        | Request::Allocate { .. }
        | Request::Seek { .. }
        | Request::CopyRange { .. }
        | Request::GetLock { .. }
        | Request::SetLock { .. }
        | Request::ReclaimLock { .. }
        | Request::CreateUnnamed { .. } => false,
        Request::Open { flags, .. } | Request::Reopen { flags, .. } => {
            flags.write || flags.truncate
        }
        Request::SetAttr { .. }
        | Request::Create { .. }
        | Request::MakeDir { .. }
        | Request::MakeNode { .. }
        | Request::Symlink { .. }
        | Request::Link { .. }
        | Request::Unlink { .. }
        | Request::RemoveDir { .. }
        | Request::Rename { .. }
        | Request::Release { .. }
        | Request::SetXattr { .. }
        | Request::RemoveXattr { .. } => true,
    }
}

impl Dispatcher {
    /// Returns what a write to an open touches. Of a request that is carried out again the open may
    /// have ended.
    fn bytes_of(&self, context: &Context, open: OpenKey) -> Result<Touches, Error> {
        let node = context.replayed.and_then(|replayed| replayed.node);
        let found = self.parts.opens.inode_of(open);
        found.or_else(|error| node.map(|node| node.ino).ok_or(error)).map(Touches::Bytes)
    }

    /// Returns what a request touches. The match has no wildcard, so the compiler names a new
    /// request here.
    pub(super) fn touches(&self, context: &Context, request: &Request) -> Result<Touches, Error> {
        let key = |open| OpenKey::of(context, open);
        Ok(match request {
            Request::Lookup { .. }
            | Request::Parent { .. }
            | Request::Find { .. }
            | Request::GetAttr { .. }
            | Request::ReadLink { .. }
            | Request::Flush { .. }
            | Request::Fsync { .. }
            | Request::FsyncDir { .. }
            | Request::Read { .. }
            | Request::List { .. }
            | Request::GetXattr { .. }
            | Request::ListXattr { .. }
            | Request::StatFs
            | Request::Search { .. }
            | Request::Tags { .. }
            | Request::Seek { .. }
            | Request::GetLock { .. }
            | Request::SetLock { .. }
            | Request::ReclaimLock { .. } => Touches::Nothing,
            Request::Write { open, .. }
            | Request::Allocate { open, .. }
            | Request::CopyRange { to: open, .. } => self.bytes_of(context, key(*open))?,
            Request::Release { open } => Touches::Release(key(*open)),
            Request::SetAttr { node, set, .. } if set.size.is_some() => {
                changes([Touched::Node(node.ino), Touched::Bytes(node.ino)])
            }
            Request::SetAttr { node, .. }
            | Request::SetXattr { node, .. }
            | Request::RemoveXattr { node, .. } => changes([Touched::Node(node.ino)]),
            Request::Open { .. }
            | Request::Reopen { .. }
            | Request::Create { .. }
            | Request::CreateUnnamed { .. } => touches_of_open(context, request),
            Request::MakeDir { dir, name, .. }
            | Request::MakeNode { dir, name, .. }
            | Request::Symlink { dir, name, .. } => {
                changes([Touched::Node(dir.ino), named(*dir, name)])
            }
            Request::Link { node, dir, name } => {
                changes([Touched::Node(node.ino), Touched::Node(dir.ino), named(*dir, name)])
            }
            Request::Unlink { dir, name } | Request::RemoveDir { dir, name } => {
                self.names((*dir, name), None)?
            }
            Request::Rename { from_dir, from, to_dir, to, .. } => {
                self.names((*from_dir, from), Some((*to_dir, to)))?
            }
        })
    }

    /// Returns what the removal of a name touches, or the move from one to another: the names,
    /// their directories, and what they lead to.
    fn names(&self, first: At<'_>, second: Option<At<'_>>) -> Result<Touches, Error> {
        let expected = ExpectedNodes {
            first: self.led_to(first)?,
            second: second.map_or(Ok(None), |at| self.led_to(at))?,
        };
        let mut all = vec![Touched::Node(first.0.ino), named(first.0, first.1)];
        if let Some((dir, name)) = second {
            all.push(named(dir, name));
            all.extend((dir.ino != first.0.ino).then_some(Touched::Node(dir.ino)));
        }
        let (one, other) = (expected.first, expected.second);
        all.extend(one.map(Touched::Node));
        all.extend(other.filter(|_| other != one).map(Touched::Node));
        let (changes, opens, writes) = (all.into(), None, false);
        let expected = Some(expected);
        Ok(Touches::Changes(Announced { changes, expected, opens, writes, change: None }))
    }

    /// Returns what a name leads to now.
    fn led_to(&self, (dir, name): At<'_>) -> Result<Option<InodeId>, Error> {
        match self.parts.shard.lookup(dir, name) {
            Ok(entry) => Ok(Some(entry.attr.ino)),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// A name in a directory.
type At<'a> = (Handle, &'a Name);

fn named(dir: Handle, name: &Name) -> Touched {
    Touched::Name { dir: dir.ino, name: name.clone() }
}

fn changes<const N: usize>(changes: [Touched; N]) -> Touches {
    Touches::Changes(Announced {
        changes: Arc::new(changes),
        expected: None,
        opens: None,
        writes: false,
        change: None,
    })
}

/// Returns what a request touches that makes an open.
fn touches_of_open(context: &Context, request: &Request) -> Touches {
    let opened = |open, changes: &[Touched], writes| {
        Touches::Changes(Announced {
            changes: changes.into(),
            expected: None,
            opens: Some(OpenKey::of(context, open)),
            writes,
            change: None,
        })
    };
    match request {
        Request::Open { node, flags, open } if flags.truncate => {
            let all = [Touched::Node(node.ino), Touched::Bytes(node.ino)];
            opened(*open, &all, flags.write)
        }
        Request::Open { node, flags, open } | Request::Reopen { node, flags, open }
            if flags.write =>
        {
            opened(*open, &[Touched::Node(node.ino)], true)
        }
        Request::Create { dir, name, flags, open, .. } => {
            opened(*open, &[Touched::Node(dir.ino), named(*dir, name)], flags.write)
        }
        // Others may know the inode once it has a name.
        Request::CreateUnnamed { flags, open, .. } if flags.write => opened(*open, &[], true),
        Request::Open { open, .. }
        | Request::Reopen { open, .. }
        | Request::CreateUnnamed { open, .. } => Touches::Opens(OpenKey::of(context, *open)),
        _ => Touches::Nothing,
    }
}
