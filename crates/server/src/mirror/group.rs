//! The sender of one group: its parts in order, and the answer of the mirror.

use std::fmt;

use pelago_store::spool::GroupSum;
use pelago_wire::mirror::{GroupPart, GroupState, LinkError, MirrorLink, MirrorSays, RowChange};
use pelago_wire::{Error, Time, limits};

use super::course::Next;

/// A group that is being sent.
pub(super) struct GroupSender<'a> {
    link: &'a mut dyn MirrorLink,
    next: Next,
    sum: GroupSum,
    rows: Vec<RowChange>,
    /// Number of bytes in `rows`.
    row_bytes: usize,
    /// Number of bytes that were sent.
    sent: u64,
}

/// A question about what the mirror has, and the number of things that it names.
pub(super) struct Question {
    pub(super) part: GroupPart,
    pub(super) count: usize,
}

/// The reason why a group did not arrive.
#[derive(Debug)]
pub(super) enum SendError {
    /// The connection has ended.
    Link(LinkError),
    /// The mirror could not keep it, for this reason.
    Mirror(String),
    /// The table or a content file of the primary failed.
    Primary(Error),
    /// A file beside the table cannot be read, or is too long, for this reason.
    File(String),
    /// Too much has changed before the group was read.
    GivenUp,
}

impl SendError {
    /// Returns whether the connection goes on: the mirror knows that the group is given up.
    pub(super) const fn leaves_connection(&self) -> bool {
        match self {
            Self::Primary(_) | Self::File(_) | Self::GivenUp => true,
            Self::Link(_) | Self::Mirror(_) => false,
        }
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Link(error) => write!(f, "{error}"),
            Self::Mirror(why) => write!(f, "the mirror cannot keep a group: {why}"),
            Self::Primary(error) => write!(f, "a group cannot be read: {error}"),
            Self::File(why) => write!(f, "a file of the volume cannot be mirrored: {why}"),
            Self::GivenUp => write!(f, "too much has changed before a group was read"),
        }
    }
}

impl From<LinkError> for SendError {
    fn from(error: LinkError) -> Self {
        Self::Link(error)
    }
}

impl From<Error> for SendError {
    fn from(error: Error) -> Self {
        Self::Primary(error)
    }
}

impl<'a> GroupSender<'a> {
    /// Begins a group that was cut at this time.
    pub(super) fn begin(
        link: &'a mut dyn MirrorLink,
        next: Next,
        cut: Time,
    ) -> Result<Self, SendError> {
        let sum = GroupSum::default();
        let mut group = Self { link, next, sum, rows: Vec::new(), row_bytes: 0, sent: 0 };
        group.part(&GroupPart::Begin { number: next.number, kind: next.kind, cut })?;
        Ok(group)
    }

    /// Sends a part.
    pub(super) fn part(&mut self, part: &GroupPart) -> Result<(), SendError> {
        let body = part.encode()?;
        self.sum.add(&body);
        self.sent += body.len() as u64;
        Ok(self.link.send(&body)?)
    }

    /// Sends a question about what the mirror has, which is no part of the group. Its answer comes
    /// by [`GroupSender::answer`].
    pub(super) fn ask(&mut self, question: &GroupPart) -> Result<(), SendError> {
        let body = question.encode()?;
        self.sent += body.len() as u64;
        Ok(self.link.send(&body)?)
    }

    /// Waits for the answer to the oldest question that has none: for each of the `count` things
    /// that it names, whether it differs.
    pub(super) fn answer(&mut self, count: usize) -> Result<Vec<bool>, SendError> {
        match self.link.receive()?.says {
            MirrorSays::Differ(differ) if differ.len() == count => Ok(differ),
            MirrorSays::Failed(why) => Err(SendError::Mirror(why)),
            MirrorSays::Differ(_)
            | MirrorSays::Safe
            | MirrorSays::Ready
            | MirrorSays::Pong
            | MirrorSays::Promoted
            | MirrorSays::Datagrams
            | MirrorSays::NoDatagrams(_)
            | MirrorSays::RelayKey(_)
            | MirrorSays::Proof(_) => {
                let problem = "the mirror gives another answer to a question".to_owned();
                Err(SendError::Link(LinkError::Lost(problem)))
            }
        }
    }

    /// Sends a row, together with others in one part.
    pub(super) fn row(&mut self, row: RowChange) -> Result<(), SendError> {
        if self.row_bytes + row.bytes() > limits::GROUP_BYTES {
            self.flush_rows()?;
        }
        self.row_bytes += row.bytes();
        self.rows.push(row);
        Ok(())
    }

    /// Sends the rows that are left.
    pub(super) fn flush_rows(&mut self) -> Result<(), SendError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        self.row_bytes = 0;
        let rows = std::mem::take(&mut self.rows);
        self.part(&GroupPart::Rows(rows))
    }

    /// Returns the number of bytes that were sent so far.
    pub(super) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Ends the group, and waits until the mirror has it on stable storage.
    pub(super) fn end(mut self) -> Result<GroupState, SendError> {
        self.flush_rows()?;
        let sum = self.sum.value();
        self.link.send(&GroupPart::End { sum }.encode()?)?;
        let state = self.link.receive()?;
        match &state.says {
            MirrorSays::Safe if state.number == self.next.number => Ok(state),
            MirrorSays::Failed(why) => Err(SendError::Mirror(why.clone())),
            MirrorSays::Safe
            | MirrorSays::Ready
            | MirrorSays::Pong
            | MirrorSays::Differ(_)
            | MirrorSays::Promoted
            | MirrorSays::Datagrams
            | MirrorSays::NoDatagrams(_)
            | MirrorSays::RelayKey(_)
            | MirrorSays::Proof(_) => {
                let problem =
                    format!("the mirror gives another answer to group {}", self.next.number);
                Err(SendError::Link(LinkError::Lost(problem)))
            }
        }
    }

    /// Gives up the group: the mirror drops its parts.
    pub(super) fn abort(self) -> Result<(), SendError> {
        Ok(self.link.send(&GroupPart::Abort.encode()?)?)
    }
}
