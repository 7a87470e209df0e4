//! The error of a command: its causes, the risk for data, hints for the user, and an exit code for
//! scripts.

use std::error::Error;
use std::fmt;

use pelago_store::volume::VolumeError;
use pelago_wire::Kind;
use serde_json::{Value, json};

use crate::json;

/// The exit code of a command that failed. `docs/cli.md` lists all codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command failed for a reason without a code of its own.
    Failed = 1,
    /// The command line is invalid.
    Usage = 2,
    /// The given file, folder or volume does not exist.
    NotFound = 3,
    /// The user has no permission.
    Denied = 4,
    /// No process answers; retrying may help.
    Unreachable = 5,
    /// Stored data is damaged.
    Damaged = 7,
    /// The deadline passed before the work was done.
    TimedOut = 8,
}

impl Exit {
    /// Returns the name of the code in `--json`.
    const fn word(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::NotFound => "not-found",
            Self::Denied => "denied",
            Self::Unreachable => "unreachable",
            Self::Damaged => "damaged",
            Self::TimedOut => "timed-out",
        }
    }
}

impl From<Kind> for Exit {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::NotFound => Self::NotFound,
            Kind::Denied => Self::Denied,
            Kind::Unavailable => Self::Unreachable,
            Kind::Corrupt => Self::Damaged,
            Kind::Exists | Kind::Invalid | Kind::Stale | Kind::Fenced | Kind::Busy | Kind::Bug => {
                Self::Failed
            }
        }
    }
}

/// The risk for stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Risk {
    /// Stored data is not affected.
    None,
    /// Some data may be lost; the text says which.
    Some(&'static str),
}

/// The error of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    source: Box<dyn Error + Send + Sync>,
    risk: Risk,
    hints: Vec<String>,
}

/// The result of a command or of a part of it.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// Creates a failure without risk and hints.
    pub(crate) fn new(exit: Exit, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { exit, source: source.into(), risk: Risk::None, hints: Vec::new() }
    }

    /// Adds a hint: what the user can do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// Warns that data may be lost; `what` begins with "yes".
    pub(crate) fn at_risk(mut self, what: &'static str) -> Self {
        self.risk = Risk::Some(what);
        self
    }

    /// Returns the exit code of the process.
    pub(crate) const fn code(&self) -> u8 {
        self.exit as u8
    }

    /// Returns the object that `--json` prints.
    pub(crate) fn to_json(&self) -> Value {
        let at_risk = self.risk != Risk::None;
        json!({
            "version": json::VERSION,
            "error": {
                "kind": self.exit.word(),
                "exit": self.code(),
                "says": self.chain(),
                "data_at_risk": at_risk,
                "next": self.hints,
            },
        })
    }

    /// Returns what happened and each cause, in one line.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.source.to_string();
        let mut next = self.source.source();
        while let Some(cause) = next {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            next = cause.source();
        }
        text
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pelago: {}", self.chain())?;
        match self.risk {
            Risk::None => write!(f, "\n  data at risk: no")?,
            Risk::Some(what) => write!(f, "\n  data at risk: {what}")?,
        }
        self.hints.iter().try_for_each(|hint| write!(f, "\n  next: {hint}"))
    }
}

impl From<VolumeError> for Failure {
    fn from(error: VolumeError) -> Self {
        // An I/O error means damage to a reader of data, but only a failure to a command.
        let exit = match &error {
            VolumeError::Io { .. } => Exit::Failed,
            error => Exit::from(error.kind()),
        };
        let is_damaged = matches!(error, VolumeError::Corrupt { .. });
        let is_older = matches!(error, VolumeError::Older { .. });
        let failure = Self::new(exit, error);
        match (is_damaged, is_older) {
            (true, _) => failure.at_risk("yes, the volume cannot be read as it is"),
            (_, true) => failure
                .hint("with the older pelago: `pelago up DIR`, then `cp -a DIR/files/. COPY`")
                .hint("with this one: `pelago up NEW`, then `cp -a COPY/. NEW/files`"),
            _ => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the outer thing failed")]
    struct Outer(#[source] io::Error);

    #[test]
    fn the_causes_risk_and_hints_are_printed_in_this_order() {
        let failure = Failure::new(Exit::Failed, Outer(io::Error::other("the inner thing")))
            .hint("`pelago status`");
        let printed = "pelago: the outer thing failed: the inner thing\n  data at risk: no\n  \
                    next: `pelago status`";
        assert_eq!(failure.to_string(), printed);
    }

    #[test]
    fn a_failure_without_risk_says_so_in_json() {
        let failure = Failure::new(Exit::Failed, io::Error::other("the thing"));
        assert_eq!(failure.to_json()["error"]["exit"], 1);
        assert_eq!(failure.to_json()["error"]["data_at_risk"], false);
    }
}
