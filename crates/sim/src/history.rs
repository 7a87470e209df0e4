//! What programs have asked and seen, and whether that can be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write};
use std::ops::Range;

use pelago_wire::{FileLock, LockMode};

use crate::linear::{Act, MOST, Operation, have_order};
use crate::register::{self, Cell};

/// A program, among all of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Program(pub(crate) usize);

/// Returns the value that a program writes: all are different, and those of a program grow.
pub(crate) const fn value(program: Program, count: u64) -> u64 {
    count * 100 + program.0 as u64 + 1
}

/// Returns the program that has written a value.
fn program_of(value: u64) -> Program {
    Program(usize::try_from(value % 100).unwrap_or(0).wrapping_sub(1))
}

/// What a program does to a name, or sees of it. The state is the file that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    Create(u64),
    /// It existed: creating it has failed.
    Exists,
    Unlink,
    /// It did not exist.
    Absent,
    /// It led to this file.
    Leads(u64),
}

impl Act for Naming {
    type State = Option<u64>;

    fn step(self, state: Option<u64>) -> Option<Option<u64>> {
        match (self, state) {
            (Self::Create(file), None) => Some(Some(file)),
            (Self::Exists, Some(_)) => Some(state),
            (Self::Unlink, Some(_)) => Some(None),
            (Self::Absent, None) => Some(None),
            (Self::Leads(file), Some(known)) => (file == known).then_some(state),
            _ => None,
        }
    }
}

/// A record of a log, and what became of it.
#[derive(Debug, Clone, Copy)]
struct Appended {
    program: Program,
    is_certain: bool,
}

/// The largest end of a write to a file: its size is not less, after that.
#[derive(Debug, Clone, Copy)]
struct Grown {
    ended: u64,
    size: u64,
    /// The operation that has written it, which may be lost.
    value: u64,
}

/// A file lock that a program had, as far as it was told: from the return of the request for the
/// lock to the beginning of the last request that the lock guards, or that gives it up, and that
/// went well. What fails says that the lock may be lost since the last one.
#[derive(Debug, Clone, Copy)]
struct LockSpan {
    program: Program,
    file: &'static str,
    lock: FileLock,
    from: u64,
    until: u64,
}

impl LockSpan {
    fn excludes(&self, other: &Self) -> bool {
        let is_shared = [self, other].iter().all(|it| it.lock.mode == LockMode::Read);
        let is_one_file = self.file == other.file && self.lock.range().overlaps(other.lock.range());
        self.program != other.program && is_one_file && !is_shared
    }

    /// Returns whether there is a moment between two moments of each at which both were held.
    const fn overlaps(&self, other: &Self) -> bool {
        let is_long = self.from < self.until && other.from < other.until;
        is_long && self.from < other.until && other.from < self.until
    }
}

/// All that was asked and seen in a run.
#[derive(Default)]
pub(crate) struct History {
    moment: u64,
    cells: BTreeMap<(usize, u64), Vec<Operation<Cell>>>,
    names: BTreeMap<usize, Vec<Operation<Naming>>>,
    /// Names that may lead to a file of which nothing is known.
    lost_names: BTreeSet<usize>,
    grown: BTreeMap<usize, Vec<Grown>>,
    /// The files, beginnings and sizes that programs have seen. They are judged at the end, when it
    /// is known which writes may be lost.
    sizes: Vec<(usize, u64, u64)>,
    closed: BTreeSet<u64>,
    /// The name that each program has changed last.
    changing_names: BTreeMap<Program, usize>,
    log: BTreeMap<u64, Appended>,
    /// What critical sections have written that went well, and how many each value has.
    counted: BTreeMap<u64, usize>,
    held: Vec<LockSpan>,
    /// Programs that have a lock and ask nothing for long.
    computing: BTreeSet<Program>,
    /// How many writes of each program were answered.
    writes: BTreeMap<Program, u64>,
    /// What programs have done, by kind.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// What cannot be.
    pub(crate) wrong: Vec<String>,
}

impl History {
    /// Returns the next moment.
    pub(crate) const fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Returns whether so many operations more of this part of a file can be checked.
    pub(crate) fn has_room(&self, cell: (usize, u64), more: usize) -> bool {
        self.cells.get(&cell).map_or(0, Vec::len) + more < MOST
    }

    /// Returns whether so many operations more of this name can be checked.
    pub(crate) fn has_room_for_name(&self, name: usize, more: usize) -> bool {
        self.names.get(&name).map_or(0, Vec::len) + more < MOST
    }

    /// A write begins: until it is known to be there, it may have an effect at any time.
    pub(crate) fn begin_write(&mut self, cell: (usize, u64), value: u64) {
        let begun = self.moment();
        let write = Operation { begun, ended: u64::MAX, act: Cell::Write(value) };
        self.cells.entry(cell).or_default().push(write);
    }

    /// A write is answered.
    pub(crate) fn end_write(&mut self, cell: (usize, u64), value: u64) {
        let ended = self.moment();
        *self.writes.entry(program_of(value)).or_default() += 1;
        self.find_write(cell, value).ended = ended;
        let size = 8 * (cell.1 + 1);
        self.grown.entry(cell.0).or_default().push(Grown { ended, size, value });
    }

    /// The server is killed: what it has written and not answered may be written once more.
    pub(crate) fn may_write_again(&mut self) {
        let begun = self.moment();
        for all in self.cells.values_mut() {
            let is_written = |it: &&Operation<Cell>| match it.act {
                Cell::Write(_) => it.ended == u64::MAX,
                Cell::Read(_) => false,
            };
            let again = all.iter().filter(is_written).map(|it| Operation { begun, ..*it });
            // More cannot be checked; then no order may be found although there is one. Each
            // program may be about to add some.
            let room = MOST.saturating_sub(all.len() + 24);
            let again: Vec<_> = again.take(room).collect();
            all.extend(again);
        }
    }

    /// Returns how many writes of some programs were answered.
    pub(crate) fn writes_of(&self, programs: Range<usize>) -> u64 {
        self.writes.range(Program(programs.start)..Program(programs.end)).map(|it| it.1).sum()
    }

    /// A program was told that what it has written may be lost, or has ended.
    pub(crate) fn doubt_write(&mut self, cell: (usize, u64), value: u64) {
        self.find_write(cell, value).ended = u64::MAX;
        self.grown.entry(cell.0).or_default().retain(|grown| grown.value != value);
    }

    /// These programs have ended in the middle: what they have not closed may be lost.
    pub(crate) fn doubt_programs(&mut self, programs: Range<usize>) {
        let in_doubt = programs.clone().filter_map(|it| self.changing_names.get(&Program(it)));
        self.lost_names.extend(in_doubt);
        let of_program = |value: u64| programs.contains(&program_of(value).0);
        let closed = &self.closed;
        for all in self.cells.values_mut() {
            let writes = all.iter_mut().filter(|it| match it.act {
                Cell::Write(value) => of_program(value) && !closed.contains(&value),
                Cell::Read(_) => false,
            });
            writes.for_each(|it| it.ended = u64::MAX);
        }
        for all in self.grown.values_mut() {
            all.retain(|it| !of_program(it.value) || closed.contains(&it.value));
        }
    }

    /// The file was closed that a program has written.
    pub(crate) fn closed(&mut self, value: u64) {
        self.closed.insert(value);
    }

    fn find_write(&mut self, cell: (usize, u64), value: u64) -> &mut Operation<Cell> {
        let all = self.cells.get_mut(&cell).expect("a write that has begun");
        let found = all.iter_mut().find(|it| it.act == Cell::Write(value));
        found.expect("a write that has begun")
    }

    pub(crate) fn read(&mut self, cell: (usize, u64), begun: u64, value: u64) {
        let ended = self.moment();
        self.cells.entry(cell).or_default().push(Operation {
            begun,
            ended,
            act: Cell::Read(value),
        });
    }

    /// A program saw the size of a file; it has asked for it at `begun`.
    pub(crate) fn saw_size(&mut self, file: usize, begun: u64, size: u64) {
        self.sizes.push((file, begun, size));
    }

    /// A program is about to change a name.
    pub(crate) fn begin_name(&mut self, program: Program, name: usize) {
        self.changing_names.insert(program, name);
    }

    /// An operation on a name: `ended` if it is known what it did.
    pub(crate) fn name(&mut self, name: usize, begun: u64, act: Naming, is_certain: bool) {
        let ended = if is_certain { self.moment() } else { u64::MAX };
        self.names.entry(name).or_default().push(Operation { begun, ended, act });
    }

    /// It is not known whether a name was created.
    pub(crate) fn lose_name(&mut self, name: usize) {
        self.lost_names.insert(name);
    }

    pub(crate) fn append(&mut self, program: Program, value: u64) {
        self.log.insert(value, Appended { program, is_certain: false });
    }

    pub(crate) fn set_appended(&mut self, value: u64, is_certain: bool) {
        if let Some(appended) = self.log.get_mut(&value) {
            appended.is_certain = is_certain;
        }
    }

    /// A critical section went well and has written this value.
    pub(crate) fn counted(&mut self, value: u64) {
        *self.counted.entry(value).or_default() += 1;
    }

    /// A program was told that it has a lock. Returns the number of the lock in this run.
    pub(crate) fn locked(&mut self, program: Program, file: &'static str, lock: FileLock) -> usize {
        let from = self.moment();
        self.held.push(LockSpan { program, file, lock, from, until: from });
        self.held.len() - 1
    }

    /// A program begins or ends to compute under its lock, for longer than a session lasts.
    pub(crate) fn computes(&mut self, program: Program, begins: bool) {
        self.computing.remove(&program);
        if begins {
            self.computing.insert(program);
        }
    }

    /// Returns whether one of some programs computes under its lock.
    pub(crate) fn any_computes(&self, programs: Range<usize>) -> bool {
        let programs = Program(programs.start)..Program(programs.end);
        self.computing.range(programs).next().is_some()
    }

    /// A request that a lock guards, or that gives it up, went well. It began at `begun`.
    pub(crate) fn held(&mut self, lock: usize, begun: u64) {
        let held = &mut self.held[lock];
        held.until = held.until.max(begun);
    }

    /// Checks all of a run. `log` is what the log says at its end, `count` what the counter does.
    pub(crate) fn check(&mut self, log: &[u64], count: u64) {
        for (cell, all) in &self.cells {
            if !register::have_order(all) {
                self.wrong.push(format!("{cell:?} has no order:{}", list(all)));
            }
        }
        for (name, all) in self.names.iter().filter(|(name, _)| !self.lost_names.contains(name)) {
            if !have_order(None, all) {
                self.wrong.push(format!("name {name} has no order:{}", list(all)));
            }
        }
        self.check_sizes();
        self.check_log(log);
        self.check_locks();
        for (value, sections) in &self.counted {
            if *sections > 1 {
                self.wrong.push(format!("{sections} critical sections have counted {value}"));
            }
        }
        if let Some((most, _)) = self.counted.last_key_value()
            && *most > count
        {
            self.wrong.push(format!("the counter says {count}, and was {most}"));
        }
    }

    fn check_sizes(&mut self) {
        for (file, begun, size) in &self.sizes {
            let grown = self.grown.get(file).into_iter().flatten();
            let least = grown.filter(|it| it.ended < *begun).map(|it| it.size).max().unwrap_or(0);
            if *size < least {
                let what = format!("at {begun} file {file} has {size} bytes, and had {least}");
                self.wrong.push(what);
            }
        }
    }

    /// No two programs had locks at the same time that exclude each other.
    fn check_locks(&mut self) {
        let rest = |at: usize| self.held.iter().skip(at + 1);
        let pairs = self.held.iter().enumerate().flat_map(|(at, one)| {
            let others = rest(at).filter(|other| one.excludes(other) && one.overlaps(other));
            others.map(move |other| format!("two have a lock: {one:?} and {other:?}"))
        });
        let wrong: Vec<String> = pairs.collect();
        self.wrong.extend(wrong);
    }

    fn check_log(&mut self, log: &[u64]) {
        let times = |value: u64| log.iter().filter(|it| **it == value).count();
        for (value, appended) in &self.log {
            let times = times(*value);
            let is_certain = appended.is_certain;
            if times > 1 || (times == 0 && is_certain) {
                self.wrong.push(format!("{appended:?} {value} is {times} times in the log"));
            }
        }
        let mut last: BTreeMap<Program, u64> = BTreeMap::new();
        for value in log {
            let Some(Appended { program, .. }) = self.log.get(value) else {
                self.wrong.push(format!("the log has {value}, which nobody has written"));
                continue;
            };
            // Values of a program grow.
            if last.insert(*program, *value).is_some_and(|before| before > *value) {
                self.wrong.push(format!("{value} of {program:?} is not in its place in the log"));
            }
        }
    }
}

fn list<A: Copy + Debug>(all: &[Operation<A>]) -> String {
    let mut all = all.to_vec();
    all.sort_by_key(|it| it.begun);
    let mut text = String::new();
    for Operation { begun, ended, act } in all {
        let ended = if ended == u64::MAX { "?".to_owned() } else { ended.to_string() };
        let _fits = write!(text, "\n    {begun}-{ended} {act:?}");
    }
    text
}

#[cfg(test)]
mod tests {
    use pelago_wire::LockKind;

    use super::*;

    #[test]
    fn locks_at_one_time_are_wrong_only_if_they_exclude_each_other() {
        let lock = |mode, start, end| FileLock { kind: LockKind::Posix, mode, start, end, pid: 1 };
        let wrongs = |file: &'static str, second, program, ends_first: bool| {
            let mut history = History::default();
            let first = history.locked(Program(1), "one", lock(LockMode::Write, 0, 9));
            let begun = history.moment();
            if ends_first {
                history.held(first, begun);
            }
            let second = history.locked(Program(program), file, second);
            let begun = history.moment();
            history.held(second, begun);
            if !ends_first {
                let begun = history.moment();
                history.held(first, begun);
            }
            history.check_locks();
            history.wrong.len()
        };
        assert_eq!(wrongs("one", lock(LockMode::Read, 9, 20), 2, false), 1);
        assert_eq!(wrongs("one", lock(LockMode::Read, 9, 20), 2, true), 0);
        assert_eq!(wrongs("two", lock(LockMode::Read, 9, 20), 2, false), 0);
        assert_eq!(wrongs("one", lock(LockMode::Write, 10, 20), 2, false), 0);
        assert_eq!(wrongs("one", lock(LockMode::Write, 0, 9), 1, false), 0, "its own");
    }
}
