//! Uses of shared files by guests: each success needs a moment at which it was granted, each
//! refusal one at which it was not.

use std::collections::{BTreeMap, BTreeSet};

use pelago_wire::{Code, Error};

use super::{FilePart, History, Naming, list};
use crate::grants::{Grant, Use};
use crate::linear::{MOST, Operation, have_order};
use crate::shares::STEADY;

/// The uses of guests that are judged at the end of a run.
#[derive(Debug, Default)]
pub(crate) struct Uses {
    /// Refusals although the use was granted all the time: wrong unless something may fail.
    refused: Vec<String>,
    /// Values that guests have written while that was denied all the time: nothing reads them.
    denied_writes: Vec<(FilePart, u64, Use)>,
    /// Values that guests have read by files opened before, with the last moment at which that may
    /// have been granted: they are written before it.
    read: Vec<(FilePart, u64, u64)>,
    /// The locks that guests got.
    locked: Vec<(&'static str, Use)>,
    /// The names that guests have made and removed, by their numbers.
    names: BTreeMap<usize, Vec<Operation<Naming>>>,
    /// Those of them of which nothing is known, and those that a guest is about to change, which
    /// may be killed.
    lost_names: BTreeSet<usize>,
    changing_names: BTreeSet<usize>,
    /// Listings by the owner of the directory in which they are.
    listings: Vec<Listed>,
}

/// A listing of the names that guests make, each with its file, between two moments.
#[derive(Debug)]
struct Listed {
    begun: u64,
    ended: u64,
    names: BTreeMap<usize, u64>,
}

/// Returns whether an error says that a guest has no right to something.
pub(crate) const fn is_refusal(error: Error) -> bool {
    matches!(
        error.code,
        Code::AccessDenied | Code::NotFound | Code::Stale | Code::NotPermitted | Code::BadOpen
    )
}

impl History {
    /// Judges a use of a guest. Returns the part of its time in which it may have been granted, if
    /// it went well.
    pub(crate) fn judge(
        &mut self,
        what: &'static str,
        used: Use,
        error: Option<Error>,
    ) -> Option<(u64, u64)> {
        let Some(error) = error else {
            self.count(what);
            let span = self.grants.may_be_granted(used);
            if span.is_none() {
                self.wrong.push(format!("{what} went well, and were denied: {used:?}"));
            }
            return span;
        };
        match error.code {
            // Nodes have moved all the time.
            Code::Busy => self.count("guest requests given up"),
            _ if is_refusal(error) => {
                self.count("guest refusals");
                self.judge_refusal(what, used, error);
                if self.grants.is_granted(used) {
                    let wrong = format!("{what} ended with {error:?}, and were granted: {used:?}");
                    // They name no open, which a session could have lost.
                    match matches!(what, "guest looks" | "guest lookups" | "guest listings") {
                        true => self.wrong.push(wrong),
                        false => self.uses.refused.push(wrong),
                    }
                }
            }
            // The session may have ended with the right, and what it has written with it.
            Code::Io if !self.grants.is_granted(used) => self.count("guest refusals"),
            _ => self.count("failed operations"),
        }
        None
    }

    /// Judges the reason of a refusal: what a guest has no right to looks as if it did not exist,
    /// and what it has another right to is denied.
    fn judge_refusal(&mut self, what: &'static str, used: Use, error: Error) {
        let any = Use { right: None, ..used };
        // Without a session its client says that itself.
        let is_there = self.grants.is_granted(Use { node: STEADY, right: None, ..used });
        let is_told = error.code == Code::AccessDenied && is_there;
        if is_told && self.grants.may_be_granted(any).is_none() {
            self.wrong.push(format!("{what} is told of what it has no right to: {used:?}"));
        }
        let is_unknown = matches!(error.code, Code::Stale | Code::NotFound);
        let is_denied = self.grants.may_be_granted(used).is_none();
        if is_unknown && is_denied && self.grants.is_granted(any) {
            let what = format!("{what} ended with {error:?}, and other rights are there: {used:?}");
            self.uses.refused.push(what);
        }
    }

    /// Records that a guest got a lock, perhaps after a wait.
    pub(crate) fn guest_locked(&mut self, file: &'static str, used: Use) {
        self.uses.locked.push((file, used));
    }

    /// Records that a guest is about to change a name.
    pub(crate) fn begin_guest_name(&mut self, name: usize) {
        self.uses.changing_names.insert(name);
    }

    /// Records that a guest has its answer about a name.
    pub(crate) fn end_guest_name(&mut self, name: usize) {
        self.uses.changing_names.remove(&name);
    }

    /// Records what a guest has done to a name, between two moments.
    pub(crate) fn guest_named(&mut self, name: usize, begun: u64, ended: u64, act: Naming) {
        self.uses.names.entry(name).or_default().push(Operation { begun, ended, act });
    }

    /// Records that it is not known whether a guest has changed a name.
    pub(crate) fn lose_guest_name(&mut self, name: usize) {
        self.uses.lost_names.insert(name);
    }

    /// Records a power loss, which may take names from guests: the server believes none of them
    /// that it has made a name before.
    pub(crate) fn lose_power(&mut self) {
        self.power_losses += 1;
        let names: Vec<usize> = self.uses.names.keys().copied().collect();
        self.uses.lost_names.extend(names);
    }

    /// Records a listing of the names of guests.
    pub(crate) fn listed(&mut self, begun: u64, ended: u64, names: BTreeMap<usize, u64>) {
        self.uses.listings.push(Listed { begun, ended, names });
    }

    /// Records that a guest has written a value and got an error.
    pub(crate) fn refused_write(&mut self, part: FilePart, value: u64, used: Use) {
        if self.grants.may_be_granted(used).is_none() {
            self.uses.denied_writes.push((part, value, used));
        }
    }

    /// Records that a guest has read a value by a file that it had opened before; it may have been
    /// granted until this moment.
    pub(crate) fn read_by_open(&mut self, part: FilePart, until: u64, value: u64) {
        self.uses.read.push((part, until, value));
    }

    /// Returns the refusals that need a reason.
    pub(crate) fn refused(&mut self) -> Vec<String> {
        std::mem::take(&mut self.uses.refused)
    }

    pub(crate) fn check_uses(&mut self) {
        let uses = std::mem::take(&mut self.uses);
        self.check_guest_locks(&uses);
        self.check_guest_names(&uses);
        let Uses { denied_writes, read, .. } = uses;
        for (part, value, used) in denied_writes {
            let is_read = read.iter().any(|it| it.0 == part && it.2 == value);
            if is_read || self.was_read(part, value) {
                let what = format!("{value} was written to {part:?}, and was denied: {used:?}");
                self.wrong.push(what);
            }
        }
        for (part, until, value) in read.into_iter().filter(|it| it.2 != 0) {
            if self.begin_of(part, value).is_none_or(|begun| begun >= until) {
                let what = format!(
                    "a guest has read {value} of {part:?}, written after it was denied at {until}"
                );
                self.wrong.push(what);
            }
        }
    }

    /// A guest got each lock at a moment at which it was granted and no one else had the lock.
    fn check_guest_locks(&mut self, uses: &Uses) {
        for (file, used) in &uses.locked {
            let held = || self.held.iter().filter(|it| it.file == *file);
            let is_free = |from: u64, end: u64| {
                let mut at = from;
                // Each span ends after the last one has.
                while let Some(span) = held().find(|it| it.from <= at && at < it.until) {
                    at = span.until;
                }
                at <= end
            };
            let spans = self.grants.spans(*used);
            let mut granted = spans.iter().filter(|(_, _, state)| *state != Grant::Denied);
            if !granted.any(|(from, end, _)| is_free(*from, *end)) {
                self.wrong.push(format!("a lock of {file} came after it was denied: {used:?}"));
            }
        }
    }

    /// The names that guests have made and removed come and go as the owner sees them.
    fn check_guest_names(&mut self, uses: &Uses) {
        let listed = uses.listings.iter().flat_map(|it| it.names.keys());
        let all: BTreeSet<usize> = uses.names.keys().chain(listed).copied().collect();
        let is_known =
            |name: &&usize| !uses.lost_names.contains(name) && !uses.changing_names.contains(name);
        for name in all.iter().filter(is_known) {
            let mut operations = uses.names.get(name).cloned().unwrap_or_default();
            let seen = uses.listings.iter().map(|it| {
                let act = it.names.get(name).map_or(Naming::Absent, |ino| Naming::Leads(*ino));
                Operation { begun: it.begun, ended: it.ended, act }
            });
            operations.extend(seen);
            operations.truncate(MOST);
            if !have_order(None, &operations) {
                let what = format!("name {name} of a guest has no order:{}", list(&operations));
                self.wrong.push(what);
            }
        }
    }
}
