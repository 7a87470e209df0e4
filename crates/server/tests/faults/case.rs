//! A case: one call that fails, as a line of text from which it can be run again.

use std::fmt;
use std::str::FromStr;

use pelago_lossfs::{Call, Failure, Injection, Operation};
use rustix::io::Errno;

/// All kinds of calls, by name.
pub(crate) const OPERATIONS: [(&str, Operation); 15] = [
    ("create", Operation::Create),
    ("mkdir", Operation::MakeDir),
    ("rename", Operation::Rename),
    ("unlink", Operation::Remove),
    ("read", Operation::Read),
    ("write", Operation::Write),
    ("truncate", Operation::Resize),
    ("fallocate", Operation::Reserve),
    ("sync", Operation::Sync),
    ("syncdir", Operation::SyncNames),
    ("lookup", Operation::Look),
    ("stat", Operation::Measure),
    ("utimes", Operation::Change),
    ("open", Operation::Open),
    ("list", Operation::List),
];

/// All classes of files.
pub(crate) const CLASSES: [&str; 8] =
    ["journal", "record", "table", "content", "folder", "format", "reserve", "volume"];

const FAILURES: [(&str, Failure); 6] = [
    ("EIO", Failure::Error(Errno::IO)),
    ("ENOSPC", Failure::Error(Errno::NOSPC)),
    ("EDQUOT", Failure::Error(Errno::DQUOT)),
    ("EMFILE", Failure::Error(Errno::MFILE)),
    ("ENFILE", Failure::Error(Errno::NFILE)),
    ("short", Failure::Short),
];

/// When calls fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// While a program runs.
    Program,
    /// While a volume is started after a power failure, read and checked.
    Start,
    /// While a volume is made.
    New,
}

/// All phases, by name.
pub(crate) const PHASES: [(&str, Phase); 3] =
    [("program", Phase::Program), ("start", Phase::Start), ("new", Phase::New)];

/// One call that fails in one program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) phase: Phase,
    pub(crate) seed: u64,
    pub(crate) injection: Injection,
}

impl Case {
    /// The ways in which a kind of call fails.
    pub(crate) fn failures(operation: Operation) -> &'static [&'static str] {
        match operation {
            Operation::Write => &["EIO", "ENOSPC", "EDQUOT", "short"],
            Operation::Read => &["EIO", "short"],
            Operation::Open => &["EIO", "EMFILE", "ENFILE"],
            Operation::Create => &["EIO", "ENOSPC", "EDQUOT", "EMFILE"],
            Operation::MakeDir
            | Operation::Rename
            | Operation::Resize
            | Operation::Reserve
            | Operation::Sync
            | Operation::SyncNames => &["EIO", "ENOSPC", "EDQUOT"],
            _ => &["EIO"],
        }
    }

    /// Returns whether unsafe batches may be lost: the journal is cut back to the safe ones,
    /// because it is unknown how much of the rest the disk has.
    pub(crate) fn may_lose(&self) -> bool {
        let Call { operation, class, .. } = self.injection.call;
        operation == Operation::Sync && matches!(class, "journal" | "table")
    }
}

/// The name of a kind of call.
pub(crate) fn name_of(operation: Operation) -> &'static str {
    OPERATIONS.iter().find(|(_, one)| *one == operation).map_or("?", |(name, _)| name)
}

/// The failure of this name.
pub(crate) fn failure_of(name: &str) -> Option<Failure> {
    FAILURES.iter().find(|(one, _)| *one == name).map(|(_, failure)| *failure)
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Injection { call, nth, lasting, failure } = self.injection;
        let phase = PHASES.iter().find(|(_, one)| *one == self.phase).map_or("?", |(name, _)| name);
        let whose = if call.ours { "ours" } else { "engine" };
        let failure =
            FAILURES.iter().find(|(_, one)| *one == failure).map_or("?", |(name, _)| name);
        let mode = if lasting { "lasting" } else { "once" };
        let seed = self.seed;
        let kind = name_of(call.operation);
        let class = call.class;
        write!(f, "{phase},{seed},{kind},{class},{whose},{nth},{failure},{mode}")
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(',').collect();
        let [phase, seed, kind, class, whose, nth, failure, mode] = parts[..] else {
            return Err(format!("`{text}` has not eight parts"));
        };
        let operation = OPERATIONS.iter().find(|(name, _)| *name == kind);
        let class = CLASSES.iter().find(|name| **name == class);
        let phase = PHASES.iter().find(|(name, _)| *name == phase);
        let (Some((_, phase)), Some((_, operation)), Some(class), Some(failure)) =
            (phase, operation, class, failure_of(failure))
        else {
            return Err(format!("`{text}` names no call or failure"));
        };
        let call = Call { operation: *operation, class, ours: whose == "ours" };
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number"));
        let injection = Injection { call, nth: number(nth)?, lasting: mode == "lasting", failure };
        Ok(Self { phase: *phase, seed: number(seed)?, injection })
    }
}
