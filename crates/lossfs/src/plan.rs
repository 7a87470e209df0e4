//! Fails one call, found by counting: the n-th of a kind in a class of files.

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::operation::{CallArgs, Operation};

/// A kind of call in a class of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Kind of the call.
    pub operation: Operation,
    /// The class of the file, as [`Sorter`] names it.
    pub class: &'static str,
    /// True if one of the test's threads made the call; calls of others are counted apart.
    pub ours: bool,
}

/// Returns the class of a path. A call that creates, renames or removes a name has the path of that
/// name.
pub type Sorter = fn(&str) -> &'static str;

/// The settings of a count of calls.
#[derive(Debug, Clone)]
pub struct Counting {
    /// Returns the class of a file.
    pub sorter: Sorter,
    /// Ids of the test's threads.
    pub threads: Vec<u32>,
    /// Classes whose files count as read from the disk once, from their beginning on; later reads
    /// of the same bytes would come from the kernel's cache, and are not counted.
    pub cached: &'static [&'static str],
}

/// The way in which a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The call does nothing and returns this error.
    Error(Errno),
    /// A read or write is carried out up to the last block boundary in its range, and returns a
    /// short count. Later calls that fail too return `EIO` or `ENOSPC`. A call within one block is
    /// not counted: disks do not cut those.
    Short,
}

/// The choice of a call that fails.
#[derive(Debug, Clone, Copy)]
pub struct Injection {
    /// Kind of the call.
    pub call: Call,
    /// Number of the call among those of its kind, from 1.
    pub nth: u64,
    /// Whether all later calls of its kind fail, too.
    pub lasting: bool,
    /// The way in which the call fails.
    pub failure: Failure,
}

/// The counters of all calls, and the calls that a test lets fail.
#[derive(Debug)]
pub(crate) struct Plan {
    counting: Counting,
    counts: BTreeMap<Call, u64>,
    /// Bytes that were read of each cached file.
    read: BTreeMap<u64, u64>,
    injection: Option<Injection>,
    failed: u64,
}

impl Plan {
    pub(crate) fn new(counting: Counting) -> Self {
        let counts = BTreeMap::new();
        let read = BTreeMap::new();
        Self { counting, counts, read, injection: None, failed: 0 }
    }

    pub(crate) fn inject(&mut self, injection: Option<Injection>) {
        self.injection = injection;
    }

    pub(crate) fn counts(&self) -> BTreeMap<Call, u64> {
        self.counts.clone()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.failed
    }

    /// Counts a call, and returns the number of its bytes that are carried out, or its failure.
    pub(crate) fn admit(&mut self, attempt: &CallArgs<'_>, path: &str) -> Result<usize, Errno> {
        let CallArgs { operation, range, .. } = *attempt;
        let class = (self.counting.sorter)(path);
        if operation == Operation::Read && self.counting.cached.contains(&class) {
            let read = self.read.get(&attempt.ino).copied().unwrap_or(0);
            if range.at + range.bytes as u64 <= read {
                return Ok(range.bytes);
            }
            let carried = self.count(attempt, class)?;
            let read = self.read.entry(attempt.ino).or_default();
            if range.at <= *read {
                *read = range.at + carried as u64;
            }
            return Ok(carried);
        }
        self.count(attempt, class)
    }

    fn count(&mut self, attempt: &CallArgs<'_>, class: &'static str) -> Result<usize, Errno> {
        let CallArgs { operation, thread, range, .. } = *attempt;
        let call = Call { operation, class, ours: self.counting.threads.contains(&thread) };
        let chosen = self.injection.filter(|injection| injection.call == call);
        let is_short = chosen.is_some_and(|injection| injection.failure == Failure::Short);
        if is_short && range.cut() == 0 && self.failed == 0 {
            return Ok(range.bytes);
        }
        let count = self.counts.entry(call).or_default();
        *count += 1;
        let Some(Injection { nth, lasting, failure, .. }) = chosen else {
            return Ok(range.bytes);
        };
        if *count < nth || (*count > nth && !lasting) {
            return Ok(range.bytes);
        }
        self.failed += 1;
        match failure {
            Failure::Error(error) => Err(error),
            Failure::Short if self.failed == 1 => Ok(range.cut()),
            Failure::Short if operation == Operation::Read => Err(Errno::IO),
            Failure::Short => Err(Errno::NOSPC),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Range;

    const OURS: u32 = 7;

    fn sorted(path: &str) -> &'static str {
        if path.ends_with(".jnl") { "journal" } else { "other" }
    }

    fn plan(nth: u64, lasting: bool, failure: Failure) -> Plan {
        let call = Call { operation: Operation::Write, class: "journal", ours: true };
        let counting = Counting { sorter: sorted, threads: vec![OURS], cached: &["journal"] };
        let mut plan = Plan::new(counting);
        plan.inject(Some(Injection { call, nth, lasting, failure }));
        plan
    }

    fn write(plan: &mut Plan, path: &str, thread: u32, bytes: usize) -> Result<usize, Errno> {
        let range = Range { at: 4_000, bytes };
        plan.admit(
            &CallArgs { operation: Operation::Write, ino: 1, name: None, thread, range },
            path,
        )
    }

    fn read(plan: &mut Plan, at: u64, bytes: usize) -> Result<usize, Errno> {
        let operation = Operation::Read;
        let range = Range { at, bytes };
        plan.admit(&CallArgs { operation, ino: 1, name: None, thread: OURS, range }, "/a.jnl")
    }

    #[test]
    fn the_nth_call_of_a_kind_fails_once_or_from_there_on() {
        for lasting in [false, true] {
            let mut plan = plan(2, lasting, Failure::Error(Errno::IO));
            assert_eq!(write(&mut plan, "/a.jnl", OURS, 9), Ok(9));
            assert_eq!(write(&mut plan, "/a", OURS, 9), Ok(9));
            assert_eq!(write(&mut plan, "/a.jnl", 8, 9), Ok(9));
            assert_eq!(read(&mut plan, 0, 9), Ok(9));
            assert_eq!(write(&mut plan, "/a.jnl", OURS, 9), Err(Errno::IO));
            let third = if lasting { Err(Errno::IO) } else { Ok(9) };
            assert_eq!(write(&mut plan, "/a.jnl", OURS, 9), third);
            assert_eq!(plan.failed(), 1 + u64::from(lasting));
            let counts: Vec<u64> = plan.counts().into_values().collect();
            assert_eq!(counts, [1, 1, 3, 1]);
        }
    }

    #[test]
    fn a_short_write_ends_at_a_block_and_the_next_finds_no_space() {
        let mut plan = plan(1, true, Failure::Short);
        assert_eq!(write(&mut plan, "/a.jnl", OURS, 96), Ok(96));
        assert_eq!(write(&mut plan, "/a.jnl", OURS, 97), Ok(96));
        assert_eq!(write(&mut plan, "/a.jnl", OURS, 1), Err(Errno::NOSPC));
    }

    #[test]
    fn bytes_of_a_cached_file_that_were_read_do_not_fail() {
        let mut plan = plan(1, false, Failure::Short);
        for (at, bytes) in [(0, 100), (50, 50), (100, 100), (300, 9), (0, 201)] {
            assert_eq!(read(&mut plan, at, bytes), Ok(bytes));
        }
        let counts: Vec<u64> = plan.counts().into_values().collect();
        assert_eq!(counts, [4]);
    }
}
