//! The impact of a request on caches of other sessions: what it touches, with names and opens
//! looked up.

use std::sync::Arc;

use pelago_data::OpenKey;
use pelago_meta::reply_cache::ExpectedNodes;
use pelago_proto::leases::ChangeId;
use pelago_wire::{
    Code, Context, Error, InodeId, NameIn, OpenEffect, OpenFlags, Request, SessionId, Touched,
    Touches,
};

use super::Dispatcher;

/// The impact of a request on caches of other sessions.
pub(super) enum Impact {
    /// None: it reads, or its change is announced already.
    Nothing,
    /// It makes an open that writes nothing.
    Opens(OpenKey),
    /// It writes bytes of this file, which the session has open for writing.
    Bytes(InodeId),
    /// It ends an open.
    Release(OpenKey),
    /// It changes names or nodes, and must be announced.
    Changes(Announced),
}

/// The names and nodes that a change touches, as of its announcement.
pub(super) struct Announced {
    pub(super) changes: Arc<[Touched]>,
    /// The nodes to which the names of the request lead, if it relies on them.
    pub(super) expected: Option<ExpectedNodes>,
    /// The open that the request makes.
    pub(super) opens: Option<OpenKey>,
    /// True if that open is for writing.
    pub(super) writes: bool,
    /// The sessions of guests whose rights it may change.
    pub(super) barred: Arc<[SessionId]>,
    /// The number of the announcement, after it was made.
    pub(super) change: Option<ChangeId>,
}

impl Announced {
    /// Returns a change that is not announced yet. `made` is the open that it makes.
    fn new(changes: Arc<[Touched]>, made: Option<(OpenKey, OpenFlags)>) -> Self {
        Self {
            changes,
            expected: None,
            opens: made.map(|(open, _)| open),
            writes: made.is_some_and(|(_, flags)| flags.write),
            barred: Arc::default(),
            change: None,
        }
    }

    /// Leaves out names: the kernel has got no reply with names until all replays are done. A
    /// kernel request that now waits for such a name holds it locked, so waiting for the kernel to
    /// drop it would be a deadlock.
    pub(super) fn forget_names(&mut self) {
        let inodes = |touched: &&Touched| !matches!(touched, Touched::Name { .. });
        self.changes = self.changes.iter().filter(inodes).cloned().collect();
    }
}

impl Dispatcher {
    /// Returns the impact of a request.
    ///
    /// # Errors
    /// [`Code::BadOpen`] if it names an open that does not exist; those of a lookup.
    pub(super) fn impact(&self, context: &Context, request: &Request) -> Result<Impact, Error> {
        let key = |open| OpenKey::of(context, open);
        let opens = request.opens();
        let changes: Arc<[Touched]> = match request.touches() {
            Touches::Nothing => return Ok(impact_of_open(opens, context.session)),
            Touches::Bytes(open) => return self.bytes_of(context, key(open)),
            Touches::Release(open) => return Ok(Impact::Release(key(open))),
            Touches::Node(ino) => Arc::new([Touched::Node(ino)]),
            Touches::Contents(ino) => Arc::new([Touched::Node(ino), Touched::Bytes(ino)]),
            Touches::NewName { at, of: None } => {
                Arc::new([Touched::Node(at.dir.ino), Touched::from(at)])
            }
            Touches::NewName { at, of: Some(ino) } => {
                Arc::new([Touched::Node(ino), Touched::Node(at.dir.ino), Touched::from(at)])
            }
            Touches::OldName(at) => return self.names(at, None),
            Touches::Move { from, to } => {
                let Impact::Changes(announced) = self.names(from, Some(to))? else {
                    return Err(Code::Bug.into());
                };
                let barred = self.barred_by(request, announced.expected)?.into();
                return Ok(Impact::Changes(Announced { barred, ..announced }));
            }
        };
        let made = opens.made().map(|(open, flags)| (key(open), flags));
        Ok(Impact::Changes(Announced::new(changes, made)))
    }

    /// Returns the impact of a write through an open. If the request is carried out again, the open
    /// may have ended.
    fn bytes_of(&self, context: &Context, open: OpenKey) -> Result<Impact, Error> {
        let node = context.replayed.and_then(|replayed| replayed.node);
        let found = self.parts.opens.inode_of(open);
        found.or_else(|error| node.map(|node| node.ino).ok_or(error)).map(Impact::Bytes)
    }

    /// Returns the impact of the removal of a name, or of a move from one name to another: it
    /// touches the names, their directories, and the nodes to which they lead.
    fn names(&self, first: NameIn<'_>, second: Option<NameIn<'_>>) -> Result<Impact, Error> {
        let expected = ExpectedNodes {
            first: self.led_to(first)?,
            second: second.map_or(Ok(None), |at| self.led_to(at))?,
        };
        let mut all = vec![Touched::Node(first.dir.ino), Touched::from(first)];
        if let Some(at) = second {
            all.push(Touched::from(at));
            all.extend((at.dir.ino != first.dir.ino).then_some(Touched::Node(at.dir.ino)));
        }
        let one = expected.first;
        let other = expected.second;
        all.extend(one.map(Touched::Node));
        all.extend(other.filter(|_| other != one).map(Touched::Node));
        let announced = Announced::new(all.into(), None);
        Ok(Impact::Changes(Announced { expected: Some(expected), ..announced }))
    }

    /// Returns the inode to which a name leads now.
    fn led_to(&self, at: NameIn<'_>) -> Result<Option<InodeId>, Error> {
        match self.parts.shard.step(at.dir, at.name) {
            Ok(stepped) => Ok(Some(stepped.node.ino)),
            Err(error) if error.code == Code::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the impact of a request that touches nothing in caches of others, and may make an open.
fn impact_of_open(opens: OpenEffect, session: SessionId) -> Impact {
    let key = |open| OpenKey { session, open };
    match opens {
        // Other sessions can see the inode when it gets a name.
        OpenEffect::Creates { open, flags } if flags.write => {
            Impact::Changes(Announced::new(Arc::new([]), Some((key(open), flags))))
        }
        OpenEffect::Makes { open, .. }
        | OpenEffect::Creates { open, .. }
        | OpenEffect::MakesAgain { open, .. } => Impact::Opens(key(open)),
        OpenEffect::Nothing
        | OpenEffect::UsesGuarded
        | OpenEffect::Locks { .. }
        | OpenEffect::EndsLocks { .. }
        | OpenEffect::Ends(_) => Impact::Nothing,
    }
}
