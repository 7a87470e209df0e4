//! Uses of shared files by guests: each success needs a moment at which it was granted, each
//! refusal one at which it was not.

use pelago_wire::{Code, Error};

use super::{FilePart, History};
use crate::grants::Use;

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
                if self.grants.is_granted(used) {
                    let what = format!("{what} ended with {error:?}, and were granted: {used:?}");
                    self.uses.refused.push(what);
                }
            }
            _ => self.count("failed operations"),
        }
        None
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
        let Uses { denied_writes, read, .. } = std::mem::take(&mut self.uses);
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
}
