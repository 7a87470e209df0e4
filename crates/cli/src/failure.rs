//! What a command says when it could not do its work: what happened, whether data is at risk, what
//! to type next, and an exit code that a script can rely on.

use std::error::Error;
use std::fmt;

use pelago_store::volume::VolumeError;
use pelago_wire::Kind;
use serde_json::{Value, json};

use crate::json;

/// Why a command ended, as its exit code. `docs/cli.md` lists them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did not work.
    Failed = 1,
    /// The command line makes no sense.
    Usage = 2,
    /// What was named is not there.
    NotFound = 3,
    /// Not allowed.
    Denied = 4,
    /// Nobody answers; try again.
    Unreachable = 5,
    /// Stored data is damaged.
    Damaged = 7,
    /// The deadline passed.
    TimedOut = 8,
}

impl Exit {
    /// The word for it in `--json`.
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

/// Whether what happened may cost data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Risk {
    /// Nothing stored is affected.
    None,
    /// Some of it may be; the text says what.
    Some(&'static str),
}

/// Why a command could not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: Exit,
    source: Box<dyn Error + Send + Sync>,
    risk: Risk,
    hints: Vec<String>,
}

/// What a command answers.
pub(crate) type Outcome<T> = Result<T, Failure>;

impl Failure {
    /// A failure with this cause.
    pub(crate) fn new(exit: Exit, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { exit, source: source.into(), risk: Risk::None, hints: Vec::new() }
    }

    /// With something to type next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// With a warning about data.
    pub(crate) fn at_risk(mut self, what: &'static str) -> Self {
        self.risk = Risk::Some(what);
        self
    }

    /// Its exit code.
    pub(crate) const fn code(&self) -> u8 {
        self.exit as u8
    }

    /// The object of `--json`.
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

    /// What happened and why, in one line.
    fn chain(&self) -> String {
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
        // What the medium answers is damage to whoever asks for data, and a failure to who starts.
        let exit = match &error {
            VolumeError::Io { .. } => Exit::Failed,
            error => Exit::from(error.kind()),
        };
        let damaged = matches!(error, VolumeError::Corrupt { .. });
        let older = matches!(error, VolumeError::Older { .. });
        let failure = Self::new(exit, error);
        match (damaged, older) {
            (true, _) => failure.at_risk("yes, the volume cannot be read as it is"),
            (_, true) => failure
                .hint("the older pelago: `pelago up DIR`, then `cp -a DIR/files/. COPY`")
                .hint("this one: `pelago up NEW`, then `cp -a COPY/. NEW/files`"),
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
    fn the_chain_is_said_once_and_hints_follow() {
        let failure = Failure::new(Exit::Failed, Outer(io::Error::other("the inner thing")))
            .hint("`pelago status`");
        let said = "pelago: the outer thing failed: the inner thing\n  data at risk: no\n  \
                    next: `pelago status`";
        assert_eq!(failure.to_string(), said);
        assert_eq!(failure.to_json()["error"]["exit"], 1);
        assert_eq!(failure.to_json()["error"]["data_at_risk"], false);
    }
}
