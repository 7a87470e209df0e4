//! The open files of a client, and how it opens them again after the server has lost them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pelago_wire::{Code, Handle, OpenFlags, OpenId, Request, limits};

/// Requests to open a file again that are under way at a time.
const AT_ONCE: usize = 128;

/// The files that a client has open.
///
/// A server that has started anew does not know them, and neither does one that has ended the
/// session. Then the client *reclaims*: it opens each file again under its number, before it sends
/// a request that relies on it.
#[derive(Debug, Default)]
pub struct ClientOpens {
    held: BTreeMap<OpenId, OpenRecord>,
    /// Opens whose request is not sent yet, in the order of their numbers.
    unsent: VecDeque<OpenId>,
    /// Opens of files that do not exist before the client has replayed the mutations that create
    /// them.
    late: BTreeSet<OpenId>,
    /// The number of requests to open a file again that are under way.
    under_way: usize,
}

/// A file that is open.
#[derive(Debug, Clone, Copy)]
struct OpenRecord {
    node: Handle,
    flags: OpenFlags,
    /// The reason for which the server does not have it open any more.
    lost: Option<Code>,
}

impl ClientOpens {
    /// Records an open that was answered. Returns `false` if there are too many: then it is not
    /// recorded, and is lost with the server's process.
    pub fn opened(&mut self, open: OpenId, node: Handle, flags: OpenFlags) -> bool {
        if self.held.len() >= limits::PEER_OPEN_FILES {
            return false;
        }
        let flags = OpenFlags { truncate: false, kill_privileges: false, ..flags };
        self.held.insert(open, OpenRecord { node, flags, lost: None });
        true
    }

    /// Forgets an open that has ended.
    pub fn ended(&mut self, open: OpenId) {
        self.held.remove(&open);
    }

    /// Returns the number of opens.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// Returns the file of an open; `None` if it has ended.
    #[must_use]
    pub fn node(&self, open: OpenId) -> Option<Handle> {
        self.held.get(&open).map(|held| held.node)
    }

    /// Begins to open all files again; requests of an earlier attempt are forgotten.
    pub fn begin_reclaim(&mut self) {
        self.late.clear();
        self.unsent = self.held.keys().copied().collect();
        self.under_way = 0;
    }

    /// Defers an open whose request was answered: its file does not exist before the client has
    /// replayed the mutation that creates it.
    pub fn defer(&mut self, open: OpenId) {
        self.under_way = self.under_way.saturating_sub(1);
        self.late.insert(open);
    }

    /// Returns the requests for the deferred opens that are not answered.
    #[must_use]
    pub fn late_requests(&self) -> Vec<(OpenId, Request)> {
        let late = self.late.iter().filter_map(|open| Some((*open, self.held.get(open)?)));
        late.map(|(open, OpenRecord { node, flags, .. })| {
            (open, Request::Reopen { node: *node, flags: *flags, open })
        })
        .collect()
    }

    /// Returns the next request to send, and its open; `None` if all were sent, or many are under
    /// way.
    pub fn next_request(&mut self) -> Option<(OpenId, Request)> {
        if self.under_way >= AT_ONCE {
            return None;
        }
        while let Some(open) = self.unsent.pop_front() {
            if let Some(OpenRecord { node, flags, .. }) = self.held.get(&open).copied() {
                self.under_way += 1;
                return Some((open, Request::Reopen { node, flags, open }));
            }
        }
        None
    }

    /// Records the answer to a request to open a file again. Returns the file if it is lost.
    pub fn reopened(&mut self, open: OpenId, result: Result<(), Code>) -> Option<Handle> {
        if !self.late.remove(&open) {
            self.under_way = self.under_way.saturating_sub(1);
        }
        let held = self.held.get_mut(&open)?;
        held.lost = result.err().map(|code| match code {
            Code::Stale => code,
            _ => Code::Io,
        });
        held.lost.map(|_| held.node)
    }

    /// Returns whether files are still to be opened again.
    #[must_use]
    pub fn is_reclaiming(&self) -> bool {
        self.under_way > 0 || !self.unsent.is_empty()
    }

    /// Returns the error of requests for an open that the server does not have any more: `Stale` if
    /// the file is gone, otherwise `Io`.
    #[must_use]
    pub fn lost(&self, open: OpenId) -> Option<Code> {
        self.held.get(&open)?.lost
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::InodeId;

    use super::*;

    const NODE: Handle = Handle::own(InodeId::from_raw(7));

    fn with(opens: impl Iterator<Item = u64>) -> ClientOpens {
        let mut all = ClientOpens::default();
        opens.for_each(|open| assert!(all.opened(OpenId(open), NODE, OpenFlags::READ_WRITE)));
        all
    }

    /// A file is not truncated a second time, nor its bits cleared.
    #[test]
    fn what_was_open_is_asked_for_without_its_effects() {
        let mut opens = ClientOpens::default();
        let flags = OpenFlags { append: true, ..OpenFlags::WRITE };
        let first = OpenFlags { truncate: true, kill_privileges: true, ..flags };
        assert!(opens.opened(OpenId(3), NODE, first) && opens.opened(OpenId(4), NODE, flags));
        opens.ended(OpenId(4));
        opens.begin_reclaim();
        let open = OpenId(3);
        assert_eq!(opens.next_request(), Some((open, Request::Reopen { node: NODE, flags, open })));
        assert_eq!(opens.next_request(), None);
        assert!(opens.is_reclaiming());
        assert_eq!(opens.reopened(open, Ok(())), None);
        assert_eq!((opens.is_reclaiming(), opens.lost(open)), (false, None));
    }

    #[test]
    fn few_are_asked_for_at_once_and_all_in_the_end() {
        let mut opens = with(1..=300);
        opens.begin_reclaim();
        let mut asked = Vec::new();
        while opens.is_reclaiming() {
            let mut some = Vec::new();
            while let Some((open, _)) = opens.next_request() {
                some.push(open.0);
            }
            assert!((1..=AT_ONCE).contains(&some.len()));
            for open in &some {
                assert_eq!(opens.reopened(OpenId(*open), Ok(())), None);
            }
            asked.extend(some);
        }
        assert_eq!(asked, (1..=300).collect::<Vec<_>>());
    }

    /// A file that a replay creates is opened again after the replay, until that is answered.
    #[test]
    fn a_file_that_does_not_exist_yet_is_asked_for_later() {
        let mut opens = with(1..=1);
        let made = Handle::own(InodeId::from_raw(8));
        assert!(opens.opened(OpenId(2), made, OpenFlags::READ));
        opens.begin_reclaim();
        while opens.next_request().is_some() {}
        assert_eq!(opens.reopened(OpenId(1), Ok(())), None);
        assert!(opens.is_reclaiming() && opens.late_requests().is_empty());
        opens.defer(OpenId(2));
        assert!(!opens.is_reclaiming());
        let late =
            (OpenId(2), Request::Reopen { node: made, flags: OpenFlags::READ, open: OpenId(2) });
        assert_eq!(opens.late_requests(), [late]);
        assert_eq!(opens.reopened(OpenId(2), Err(Code::Stale)), Some(made));
        assert_eq!((opens.late_requests(), opens.lost(OpenId(2))), (vec![], Some(Code::Stale)));
    }

    /// The connection is lost meanwhile: all are asked for again.
    #[test]
    fn an_attempt_that_was_cut_begins_anew() {
        let mut opens = with(1..=200);
        opens.begin_reclaim();
        while opens.next_request().is_some() {}
        assert_eq!(opens.reopened(OpenId(1), Ok(())), None);
        opens.begin_reclaim();
        assert_eq!(opens.next_request().map(|(open, _)| open), Some(OpenId(1)));
    }

    #[test]
    fn a_file_that_is_gone_stays_lost_until_it_is_opened_again() {
        let mut opens = with(1..=2);
        opens.begin_reclaim();
        while opens.next_request().is_some() {}
        assert_eq!(opens.reopened(OpenId(1), Err(Code::Stale)), Some(NODE));
        assert_eq!(opens.reopened(OpenId(2), Err(Code::TooManyOpen)), Some(NODE));
        assert_eq!(
            (opens.lost(OpenId(1)), opens.lost(OpenId(2))),
            (Some(Code::Stale), Some(Code::Io))
        );
        opens.begin_reclaim();
        while opens.next_request().is_some() {}
        assert_eq!(opens.reopened(OpenId(2), Ok(())), None);
        assert_eq!(opens.lost(OpenId(2)), None);
        opens.ended(OpenId(1));
        assert_eq!((opens.lost(OpenId(1)), opens.count()), (None, 1));
    }
}
