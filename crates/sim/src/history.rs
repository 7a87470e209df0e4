//! The history of a run: the operations of all programs, and the search for results that cannot be.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Write};
use std::ops::Range;

use pelago_wire::{FileLock, InodeId, LockMode};

use crate::grants::Grants;
use crate::linear::{Act, MOST, Operation, have_order};
use crate::register::{self, Cell};
use crate::shares::SharedNode;
use crate::stale::StaleAnswers;
use uses::Uses;

mod uses;

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

/// Stands for a file whose number is not known until something has seen it.
const UNKNOWN: u64 = u64::MAX;

/// An operation on a name. Its state is the file that it leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    Create(u64),
    /// The name was given to a file whose number is not known.
    CreateSome,
    /// Creating the name has failed, because it existed.
    Exists,
    Unlink,
    /// The name was taken from this file, which got another one.
    Moves(u64),
    /// The name did not exist.
    Absent,
    /// The name led to this file.
    Leads(u64),
}

impl Act for Naming {
    type State = Option<u64>;

    fn step(self, state: Option<u64>) -> Option<Option<u64>> {
        match (self, state) {
            (Self::Create(file), None) => Some(Some(file)),
            (Self::CreateSome, None) => Some(Some(UNKNOWN)),
            (Self::Moves(_), Some(UNKNOWN)) => Some(None),
            (Self::Moves(file), Some(known)) => (file == known).then_some(None),
            (Self::Leads(file), Some(UNKNOWN)) => Some(Some(file)),
            (Self::Exists, Some(_)) => Some(state),
            (Self::Unlink, Some(_)) => Some(None),
            (Self::Absent, None) => Some(None),
            (Self::Leads(file), Some(known)) => (file == known).then_some(state),
            _ => None,
        }
    }
}

/// A record that was appended to the log.
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

/// A file lock that a program held, as the replies say: from the return of the request for the lock
/// to the beginning of the last request under it, or of the request that released it, that
/// succeeded. A request that fails says that the lock may have been lost since the request before.
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

/// A part of a file: eight bytes, which are always written and read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FilePart {
    pub(crate) file: usize,
    pub(crate) number: u64,
}

impl FilePart {
    /// Bytes of a part.
    pub(crate) const BYTES: u32 = 8;

    /// Returns the offset of its first byte.
    pub(crate) const fn offset(self) -> u64 {
        self.number * Self::BYTES as u64
    }

    const fn end(self) -> u64 {
        self.offset() + Self::BYTES as u64
    }
}

/// The operations of a run, with their results.
#[derive(Default)]
pub(crate) struct History {
    moment: u64,
    parts: BTreeMap<FilePart, Vec<Operation<Cell>>>,
    names: BTreeMap<usize, Vec<Operation<Naming>>>,
    /// Names that may lead to a file of which nothing is known.
    lost_names: BTreeSet<usize>,
    grown: BTreeMap<usize, Vec<Grown>>,
    /// The files, beginnings and sizes that programs have seen. They are judged at the end, when it
    /// is known which writes may be lost.
    sizes: Vec<(usize, u64, u64)>,
    closed: BTreeSet<u64>,
    /// The name that each program has changed last.
    changing_names: BTreeMap<Program, Vec<usize>>,
    /// Directories with something in them, each from one moment to another one.
    filled: Vec<(InodeId, u64, u64)>,
    /// Directories that were removed, each between two moments.
    removed: Vec<(InodeId, u64, u64)>,
    log: BTreeMap<u64, Appended>,
    /// The values that critical sections have written, with the number of times for each.
    counted: BTreeMap<u64, usize>,
    held: Vec<LockSpan>,
    /// Programs that have a lock and ask nothing for long.
    computing: BTreeSet<Program>,
    /// The number of acknowledged writes of each program.
    writes: BTreeMap<Program, u64>,
    /// The states of the rights of guests.
    pub(crate) grants: Grants,
    /// The uses of guests, as far as they are judged at the end.
    pub(crate) uses: Uses,
    /// The stale answers of the server of each site.
    pub(crate) stale: Vec<StaleAnswers>,
    /// The number of power losses so far.
    pub(crate) power_losses: u64,
    /// True after a fault by which something may take longer than usual.
    pub(crate) may_be_late: bool,
    /// A change that got no answer may be done after later ones of its program: the server of a
    /// site has given it up, and the one of another site carries it out.
    pub(crate) may_come_late: bool,
    /// The shared files that guests have written.
    pub(crate) written_by_guests: BTreeSet<SharedNode>,
    /// The number of operations, by kind.
    pub(crate) counts: BTreeMap<&'static str, u64>,
    /// The findings.
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

    /// Returns whether `more` further operations on this part of a file can be checked.
    pub(crate) fn has_room(&self, part: FilePart, more: usize) -> bool {
        self.parts.get(&part).map_or(0, Vec::len) + more < MOST
    }

    /// Returns whether `more` further operations on this name can be checked.
    pub(crate) fn has_room_for_name(&self, name: usize, more: usize) -> bool {
        self.names.get(&name).map_or(0, Vec::len) + more < MOST
    }

    /// Records the beginning of a write: until it is acknowledged, it may have an effect at any
    /// time.
    pub(crate) fn begin_write(&mut self, part: FilePart, value: u64) {
        let begun = self.moment();
        let write = Operation { begun, ended: u64::MAX, act: Cell::Write(value) };
        self.parts.entry(part).or_default().push(write);
    }

    /// Records that a write was acknowledged.
    pub(crate) fn end_write(&mut self, part: FilePart, value: u64) {
        let ended = self.moment();
        *self.writes.entry(program_of(value)).or_default() += 1;
        self.find_write(part, value).ended = ended;
        let size = part.end();
        self.grown.entry(part.file).or_default().push(Grown { ended, size, value });
    }

    /// Records that the server was killed: writes that it has not acknowledged may be carried out
    /// once more.
    pub(crate) fn may_write_again(&mut self) {
        let begun = self.moment();
        for all in self.parts.values_mut() {
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

    /// Returns the number of acknowledged writes of some programs.
    pub(crate) fn writes_of(&self, programs: Range<usize>) -> u64 {
        self.writes.range(Program(programs.start)..Program(programs.end)).map(|it| it.1).sum()
    }

    /// Records that a write may be lost: its program got an error, or has ended.
    pub(crate) fn doubt_write(&mut self, part: FilePart, value: u64) {
        self.find_write(part, value).ended = u64::MAX;
        self.grown.entry(part.file).or_default().retain(|grown| grown.value != value);
    }

    /// Records that these programs were killed: writes to files that they have not closed may be
    /// lost.
    pub(crate) fn doubt_programs(&mut self, programs: Range<usize>) {
        let in_doubt = programs.clone().filter_map(|it| self.changing_names.get(&Program(it)));
        self.lost_names.extend(in_doubt.flatten());
        let of_program = |value: u64| programs.contains(&program_of(value).0);
        let closed = &self.closed;
        for all in self.parts.values_mut() {
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

    /// Records that a program has closed the file of a write.
    pub(crate) fn closed(&mut self, value: u64) {
        self.closed.insert(value);
    }

    /// Records that a write was acknowledged, and has had its effect between two moments.
    pub(crate) fn end_write_between(&mut self, part: FilePart, value: u64, begun: u64, ended: u64) {
        let write = self.find_write(part, value);
        write.begun = begun;
        write.ended = ended;
    }

    /// Returns the first moment of a write; `None` if there was none of this value.
    pub(crate) fn begin_of(&self, part: FilePart, value: u64) -> Option<u64> {
        let all = self.parts.get(&part)?;
        all.iter().find(|it| it.act == Cell::Write(value)).map(|it| it.begun)
    }

    /// Returns whether something has read a value.
    pub(crate) fn was_read(&self, part: FilePart, value: u64) -> bool {
        self.parts.get(&part).into_iter().flatten().any(|it| it.act == Cell::Read(value))
    }

    fn find_write(&mut self, part: FilePart, value: u64) -> &mut Operation<Cell> {
        let all = self.parts.get_mut(&part).expect("a write that has begun");
        let found = all.iter_mut().find(|it| it.act == Cell::Write(value));
        found.expect("a write that has begun")
    }

    pub(crate) fn read(&mut self, part: FilePart, begun: u64, value: u64) {
        let ended = self.moment();
        self.read_between(part, begun, ended, value);
    }

    /// Records a read that has had its effect between two moments.
    pub(crate) fn read_between(&mut self, part: FilePart, begun: u64, ended: u64, value: u64) {
        self.parts.entry(part).or_default().push(Operation {
            begun,
            ended,
            act: Cell::Read(value),
        });
    }

    /// Records the size of a file that a program saw; its request began at `begun`.
    pub(crate) fn saw_size(&mut self, file: usize, begun: u64, size: u64) {
        self.sizes.push((file, begun, size));
    }

    /// Records that a program is about to change names by one request.
    pub(crate) fn begin_names(&mut self, program: Program, names: &[usize]) {
        self.changing_names.insert(program, names.to_vec());
    }

    /// Records an operation on a name; it has an end only if its effect is certain.
    pub(crate) fn name(&mut self, name: usize, begun: u64, act: Naming, is_certain: bool) {
        let ended = if is_certain { self.moment() } else { u64::MAX };
        self.names.entry(name).or_default().push(Operation { begun, ended, act });
    }

    /// Records an operation on a name that has had its effect between two moments.
    pub(crate) fn name_between(&mut self, name: usize, begun: u64, ended: u64, act: Naming) {
        self.names.entry(name).or_default().push(Operation { begun, ended, act });
    }

    /// Records that a name may or may not have been created.
    pub(crate) fn lose_name(&mut self, name: usize) {
        self.lost_names.insert(name);
    }

    /// Records that a program is about to change names of directories by one request. Returns this
    /// moment.
    pub(crate) fn begin_dir_names(&mut self, program: Program, names: &[usize]) -> u64 {
        self.begin_names(program, names);
        self.moment()
    }

    /// Records that something is in a directory from now on. Returns the number of this record.
    pub(crate) fn dir_filled(&mut self, dir: InodeId) -> usize {
        let moment = self.moment();
        self.filled.push((dir, moment, moment));
        self.filled.len() - 1
    }

    /// Records that what is in a directory by this record is still there.
    pub(crate) fn dir_is_filled(&mut self, filled: usize) {
        self.filled[filled].2 = self.moment();
    }

    /// Records that a directory was removed; the request began at `begun`.
    pub(crate) fn dir_removed(&mut self, begun: u64, dir: InodeId) {
        let ended = self.moment();
        self.removed.push((dir, begun, ended));
    }

    /// No directory was removed while something was in it.
    fn check_removed(&mut self) {
        for (dir, begun, ended) in &self.removed {
            let is_in = |(filled, from, until): &&(InodeId, u64, u64)| {
                filled == dir && from < begun && ended < until
            };
            if let Some((_, from, until)) = self.filled.iter().find(is_in) {
                let what = format!(
                    "{dir} was removed at {begun}-{ended}, and had a file at {from}-{until}"
                );
                self.wrong.push(what);
            }
        }
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

    /// Records that a program got a lock. Returns the number of the lock in this run.
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

    /// Checks the whole run. `log` has the values of the log at its end, `count` is the value of
    /// the counter.
    pub(crate) fn check(&mut self, log: &[u64], count: u64) {
        for (part, all) in &self.parts {
            if !register::have_order(all) {
                self.wrong.push(format!("{part:?} has no order:{}", list(all)));
            }
        }
        for (name, all) in self.names.iter().filter(|(name, _)| !self.lost_names.contains(name)) {
            if !have_order(None, all) {
                self.wrong.push(format!("name {name} has no order:{}", list(all)));
            }
        }
        self.check_sizes();
        self.check_removed();
        self.check_uses();
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
            let Some(Appended { program, is_certain }) = self.log.get(value) else {
                self.wrong.push(format!("the log has {value}, which nobody has written"));
                continue;
            };
            if self.may_come_late && !is_certain {
                continue;
            }
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
