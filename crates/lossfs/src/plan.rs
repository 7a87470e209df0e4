//! One call that fails, found by counting: the n-th of a kind in a class of files.

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::operation::{CallArgs, Operation};

/// A kind of call, and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// What is asked of the medium.
    pub operation: Operation,
    /// The class of the file, as [`Sorter`] names it.
    pub class: &'static str,
    /// Made by a thread that the test named; the others are counted apart.
    pub ours: bool,
}

/// Names the class of a path. A call that makes, moves or removes a name has the path of that name.
pub type Sorter = fn(&str) -> &'static str;

/// Which calls are counted as what.
#[derive(Debug, Clone)]
pub struct Counting {
    /// Names the class of a file.
    pub sorter: Sorter,
    /// The threads that are ours.
    pub threads: Vec<u32>,
    /// Classes whose files are read from the medium once, from their beginning on; what was read
    /// then comes from the kernel's cache, and is no call. Files of others are read from the
    /// medium each time.
    pub cached: &'static [&'static str],
}

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// It answers this and does nothing.
    Error(Errno),
    /// A read or write is carried out to the last boundary of a block in it, and answers so. Calls
    /// behind it that fail too answer `EIO` or `ENOSPC`. One within a block is passed over and not
    /// counted: media do not cut it.
    Short,
}

/// A call that fails.
#[derive(Debug, Clone, Copy)]
pub struct Injection {
    /// Which kind.
    pub call: Call,
    /// Which of them, from 1.
    pub nth: u64,
    /// All of the kind from there on fail.
    pub lasting: bool,
    /// How.
    pub failure: Failure,
}

/// Counts calls and fails those of a test's choice.
#[derive(Debug)]
pub(crate) struct Plan {
    counting: Counting,
    counts: BTreeMap<Call, u64>,
    /// Of files that are cached, the bytes that were read.
    read: BTreeMap<u64, u64>,
    injection: Option<Injection>,
    failed: u64,
}

impl Plan {
    pub(crate) fn new(counting: Counting) -> Self {
        let (counts, read) = (BTreeMap::new(), BTreeMap::new());
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

    /// Counts a call, and decides what becomes of it: how many of its bytes are carried.
    pub(crate) fn meet(&mut self, asked: &CallArgs<'_>, path: &str) -> Result<usize, Errno> {
        let CallArgs { operation, range, .. } = *asked;
        let class = (self.counting.sorter)(path);
        if operation == Operation::Read && self.counting.cached.contains(&class) {
            let read = self.read.get(&asked.ino).copied().unwrap_or(0);
            if range.at + range.bytes as u64 <= read {
                return Ok(range.bytes);
            }
            let carried = self.count(asked, class)?;
            let read = self.read.entry(asked.ino).or_default();
            if range.at <= *read {
                *read = range.at + carried as u64;
            }
            return Ok(carried);
        }
        self.count(asked, class)
    }

    fn count(&mut self, asked: &CallArgs<'_>, class: &'static str) -> Result<usize, Errno> {
        let CallArgs { operation, thread, range, .. } = *asked;
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
        plan.meet(
            &CallArgs { operation: Operation::Write, ino: 1, name: None, thread, range },
            path,
        )
    }

    fn read(plan: &mut Plan, at: u64, bytes: usize) -> Result<usize, Errno> {
        let (operation, range) = (Operation::Read, Range { at, bytes });
        plan.meet(&CallArgs { operation, ino: 1, name: None, thread: OURS, range }, "/a.jnl")
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
    fn what_was_read_of_a_cached_file_does_not_fail() {
        let mut plan = plan(1, false, Failure::Short);
        for (at, bytes) in [(0, 100), (50, 50), (100, 100), (300, 9), (0, 201)] {
            assert_eq!(read(&mut plan, at, bytes), Ok(bytes));
        }
        let counts: Vec<u64> = plan.counts().into_values().collect();
        assert_eq!(counts, [4]);
    }
}
