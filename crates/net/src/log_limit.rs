//! The limit of log lines that a peer can cause: one line a second of each kind, with the number of
//! lines that were left out. No peer can fill the disk, or hide the lines of others.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

const PAUSE: Duration = Duration::from_secs(1);

/// The limit of one kind of line.
#[derive(Debug)]
pub(crate) struct LogLimit {
    /// A leaf lock.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    written: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    pub(crate) const fn new() -> Self {
        Self { state: Mutex::new(State { written: None, left_out: 0 }) }
    }

    /// Admits a line. Returns how many were left out since the last one; `None` if this one is left
    /// out, too.
    pub(crate) fn admit(&self) -> Option<u64> {
        let now = Instant::now();
        self.state.lock().admit(now)
    }

    /// Returns the number of lines that were left out, if there was no line for a second. A line
    /// that reports the number counts as the last one.
    pub(crate) fn rest(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        if state.left_out == 0 || !state.is_due(now) {
            return None;
        }
        state.admit(now)
    }

    /// Returns whether lines were left out that no line has reported.
    pub(crate) fn has_rest(&self) -> bool {
        self.state.lock().left_out > 0
    }
}

impl State {
    fn is_due(&self, now: Instant) -> bool {
        self.written.is_none_or(|written| now.saturating_duration_since(written) >= PAUSE)
    }

    fn admit(&mut self, now: Instant) -> Option<u64> {
        if !self.is_due(now) {
            self.left_out += 1;
            return None;
        }
        self.written = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

/// The lines that the clients of a server can cause.
#[derive(Debug)]
pub(crate) struct ServerLog {
    pub(crate) began: LogLimit,
    pub(crate) ended: LogLimit,
    pub(crate) refused: LogLimit,
    pub(crate) violation: LogLimit,
    pub(crate) malformed: LogLimit,
    pub(crate) foreign: LogLimit,
    pub(crate) evicted: LogLimit,
    pub(crate) failed: LogLimit,
    pub(crate) overdue: LogLimit,
}

impl ServerLog {
    pub(crate) const fn new() -> Self {
        Self {
            began: LogLimit::new(),
            ended: LogLimit::new(),
            refused: LogLimit::new(),
            violation: LogLimit::new(),
            malformed: LogLimit::new(),
            foreign: LogLimit::new(),
            evicted: LogLimit::new(),
            failed: LogLimit::new(),
            overdue: LogLimit::new(),
        }
    }

    const fn all(&self) -> [(&'static str, &LogLimit); 9] {
        [
            ("a session", &self.began),
            ("a session ended", &self.ended),
            ("a client was refused", &self.refused),
            ("a client broke the protocol", &self.violation),
            ("a connection was malformed", &self.malformed),
            ("another user's process may not connect", &self.foreign),
            ("a connection without a session made room", &self.evicted),
            ("a session or connection could not be made", &self.failed),
            ("a recall was not answered", &self.overdue),
        ]
    }

    pub(crate) fn has_rest(&self) -> bool {
        self.all().iter().any(|(_, limit)| limit.has_rest())
    }

    /// Logs the numbers of lines that were left out, of kinds without a line for a second.
    pub(crate) fn write_rest(&self, now: Instant) {
        for (what, limit) in self.all() {
            if let Some(left_out) = limit.rest(now) {
                tracing::info!(what, left_out, "more of the same");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_counts_those_that_were_left_out() {
        let start = Instant::now();
        let limit = LogLimit::new();
        let admit = |millis| limit.state.lock().admit(start + Duration::from_millis(millis));
        assert_eq!(admit(0), Some(0));
        assert_eq!([1, 500, 999].map(admit), [None; 3]);
        assert_eq!(admit(1000), Some(3));
        assert_eq!(admit(1500), None);
        // No further line comes: the rest is reported all the same, once.
        assert!(limit.has_rest());
        assert_eq!(limit.rest(start + Duration::from_secs(2)), Some(1));
        assert_eq!(limit.rest(start + Duration::from_secs(4)), None);
        assert!(!limit.has_rest());
    }

    #[test]
    fn the_rest_waits_for_its_second_and_counts_no_line_itself() {
        let start = Instant::now();
        let limit = LogLimit::new();
        let admit = |millis| limit.state.lock().admit(start + Duration::from_millis(millis));
        assert_eq!((admit(0), admit(10)), (Some(0), None));
        assert_eq!(limit.rest(start + Duration::from_millis(20)), None);
        assert_eq!(limit.rest(start + Duration::from_millis(1000)), Some(1));
    }
}
