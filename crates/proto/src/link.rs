//! The rate of a link, and its losses, as datagrams and reports show them.
//!
//! Both ends number their datagrams. The receiver counts what arrives ([`Arrivals`]) and reports
//! each few milliseconds; the sender ([`LinkSender`]) learns from that how much the link takes and
//! what it loses. It has no congestion control of a window that each loss halves: on a long link
//! with one loss of a thousand packets such a window never fills.
//!
//! # Rate
//!
//! The rate is the best delivery rate of the last ten round trips, and the window 1.9 times what
//! that delivers in the least round trip (after BBR, Cardwell et al., ACM Queue 14-5, 2016): beside
//! a stream of TCP that fills the queue both have their share. It is at least nearly a round trip
//! as it was lately, because the way may have become longer. Datagrams are paced just below the
//! rate, but for the first ten under way. One round trip now and then *probes* with a quarter more,
//! and only with a backlog: a link is not probed with what nobody waits for. If the rate grows, it
//! probes again; if a queue follows, it drains. Repair packets count like any others.
//!
//! # Loss
//!
//! Losses on a link that takes more say how much repair is needed. Losses of a full queue say that
//! less should be sent: more repair would only lengthen the queue. A round trip *has a queue* if
//! its mean is above 1.1 times the least one and a millisecond. In round trips without one, in
//! which no more was sent than the link is known to take, losses count for the code
//! ([`LinkQuality`]). In one with a queue they lower the rate by a third, if they are more than the
//! link loses anyway.
//!
//! # The contract
//!
//! No clock and no I/O. [`LinkSender::poll_send`] says when the next datagram may go,
//! [`LinkSender::handle_sent`] numbers it, and [`LinkSender::handle_report`] takes a report. The
//! numbers of a report are checked against what was sent; beyond that a peer that lies only harms
//! its own link, and no rate exceeds that at which was sent.

pub use arrivals::{Arrivals, REPORT_TIME};
pub use replay::ReplayWindow;
pub use sender::{LinkSender, Room};

mod arrivals;
mod loss;
mod phase;
mod rate;
mod replay;
mod sender;
#[cfg(test)]
pub(crate) mod tests;

/// What is known of a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkQuality {
    /// Bytes per second that it delivers; of a link that was never full, four times what it has
    /// delivered.
    pub rate: u64,
    /// The upper bound of the share of datagrams that it loses without a queue.
    pub loss: f64,
    /// The length of 95 of 100 runs of losses, or less: at least 1.
    pub burst: u32,
}

impl Default for LinkQuality {
    /// Returns what is assumed of a link of which nothing is known.
    fn default() -> Self {
        LinkSender::new().quality()
    }
}
