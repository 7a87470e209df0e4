//! Groups of a primary that change the rows beneath the service of a mirror's readers: each is
//! announced as a change by another session is.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::mpsc::channel;

use pelago_data::HeldFile;
use pelago_proto::leases::ChangeId;
use pelago_wire::{InodeId, RequestId, SessionId, Touched, limits};

use super::{Dispatcher, LocalService};
use crate::completion::CancelKey;
use crate::leases::Wait;

/// The caller of a group, which is not cancelled.
const PRIMARY: CancelKey = CancelKey { session: SessionId::DIRECT, request: RequestId(0) };

/// The things that a group changes and that readers may have cached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GroupTouches {
    /// These.
    Things(Vec<Touched>),
    /// Any.
    Everything,
}

/// A group that is announced.
pub(crate) struct AnnouncedGroup {
    changes: Vec<ChangeId>,
    /// The sessions that were told that everything changes.
    barred: HashSet<SessionId>,
}

impl GroupTouches {
    /// Returns the nodes; `None` for all.
    fn nodes(&self) -> Option<BTreeSet<InodeId>> {
        let node = |touched: &Touched| match touched {
            Touched::Node(ino) | Touched::Bytes(ino) => Some(*ino),
            Touched::Name { .. } => None,
        };
        match self {
            Self::Things(things) => Some(things.iter().filter_map(node).collect()),
            Self::Everything => None,
        }
    }
}

impl LocalService {
    /// Announces a group. Blocks until no reader relies on what it changes, or the term of those
    /// that do is over.
    pub(crate) fn announce_group(&self, touches: &GroupTouches) -> AnnouncedGroup {
        let mut announced = AnnouncedGroup { changes: Vec::new(), barred: HashSet::new() };
        match touches {
            GroupTouches::Things(things) => {
                let recalls = things.chunks(limits::RECALL_THINGS).map(<[Touched]>::to_vec);
                let recalls = recalls.map(|things| (things, Vec::new())).collect();
                announced.changes = self.dispatcher.announce_and_wait(recalls);
            }
            GroupTouches::Everything => self.bar_others(&mut announced),
        }
        announced
    }

    /// Returns the open files that the group may remove. Called before it is carried out, when no
    /// request runs.
    pub(crate) fn hold_open_files(&self, touches: &GroupTouches) -> Vec<HeldFile> {
        self.dispatcher.parts.opens.hold(touches.nodes().as_ref())
    }

    /// Forgets what the group has changed. Called after it was carried out, before any other
    /// request runs. Returns the open files that it has removed. Those in `kept` were removed by
    /// earlier groups.
    pub(crate) fn group_is_carried_out(
        &self,
        touches: &GroupTouches,
        kept: &BTreeSet<InodeId>,
    ) -> BTreeSet<InodeId> {
        let parts = &self.dispatcher.parts;
        parts.shard.rows_have_changed(match touches {
            GroupTouches::Things(things) => Some(things),
            GroupTouches::Everything => None,
        });
        parts.opens.read_again(touches.nodes().as_ref(), kept)
    }

    /// Forgets a file that a group has removed, and that no reader has open any more.
    pub(crate) fn file_is_gone(&self, ino: InodeId) {
        self.dispatcher.parts.shard.rows_have_changed(Some(&[Touched::Node(ino)]));
    }

    /// Ends the announcement of a group.
    pub(crate) fn end_group(&self, touches: &GroupTouches, mut announced: AnnouncedGroup) {
        if *touches == GroupTouches::Everything {
            // A session that has begun since may have read what was there before.
            self.bar_others(&mut announced);
        }
        for change in announced.changes {
            self.dispatcher.leases.end(change);
        }
    }

    /// Has the sessions that were not told yet drop everything, and waits.
    fn bar_others(&self, announced: &mut AnnouncedGroup) {
        let mut sessions = self.dispatcher.others.all();
        sessions.retain(|session| announced.barred.insert(*session));
        if !sessions.is_empty() {
            let all = vec![(Vec::new(), sessions.into_iter().collect())];
            announced.changes.extend(self.dispatcher.announce_and_wait(all));
        }
    }
}

impl Dispatcher {
    /// Makes these announcements, each with the sessions that it bars, and waits for all of them.
    fn announce_and_wait(
        self: &Arc<Self>,
        all: Vec<(Vec<Touched>, Vec<SessionId>)>,
    ) -> Vec<ChangeId> {
        let (sender, over) = channel();
        for (touched, barred) in all {
            let sender = sender.clone();
            self.announce_barring(PRIMARY, &touched, &barred, move |wait| {
                if let Wait::Over(change) = wait {
                    // The receiver waits below.
                    let _sent = sender.send(change);
                }
            });
        }
        drop(sender);
        over.iter().collect()
    }
}
