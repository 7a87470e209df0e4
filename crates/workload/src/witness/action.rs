//! One operation of a run, as it stands in the log.

use std::fmt;
use std::str::SplitAsciiWhitespace;

use pelago_wire::Time;

/// The id of a file or directory of one thread; never reused.
pub(super) type NodeId = u64;

/// A change of the bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Writes the bytes of `seed` at `offset`.
    Write { offset: u64, length: usize, seed: u64 },
    /// Sets the size.
    Resize(u64),
}

/// An operation. Paths are relative to the directory of the run and contain no blanks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    MakeDir {
        path: String,
    },
    Create {
        node: NodeId,
        path: String,
    },
    Open {
        path: String,
    },
    Change {
        node: NodeId,
        change: Change,
    },
    Fsync {
        node: NodeId,
    },
    Close {
        node: NodeId,
    },
    /// Sets the size of a file that is not open.
    Truncate {
        path: String,
        size: u64,
    },
    Rename {
        from: String,
        to: String,
    },
    Exchange {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Symlink {
        path: String,
        target: String,
    },
    Unlink {
        path: String,
    },
    RemoveDir {
        path: String,
    },
    ChangeMode {
        path: String,
        mode: u16,
    },
    SetTime {
        path: String,
        mtime: Time,
    },
    SetXattr {
        path: String,
        name: String,
        seed: u64,
    },
    Stat {
        path: String,
    },
}

impl Action {
    pub(super) fn parse(words: &mut SplitAsciiWhitespace<'_>) -> Option<Self> {
        let verb = words.next()?;
        let mut path = || words.next().map(str::to_owned);
        Some(match verb {
            "mkdir" => Self::MakeDir { path: path()? },
            "open" => Self::Open { path: path()? },
            "rename" => Self::Rename { from: path()?, to: path()? },
            "exchange" => Self::Exchange { from: path()?, to: path()? },
            "link" => Self::Link { from: path()?, to: path()? },
            "symlink" => Self::Symlink { path: path()?, target: path()? },
            "unlink" => Self::Unlink { path: path()? },
            "rmdir" => Self::RemoveDir { path: path()? },
            "stat" => Self::Stat { path: path()? },
            "create" => Self::Create { node: number(words)?, path: words.next()?.to_owned() },
            "write" => {
                let node = number(words)?;
                let offset = number(words)?;
                let length = number(words)?;
                Self::Change {
                    node,
                    change: Change::Write { offset, length, seed: number(words)? },
                }
            }
            "resize" => {
                Self::Change { node: number(words)?, change: Change::Resize(number(words)?) }
            }
            "fsync" => Self::Fsync { node: number(words)? },
            "close" => Self::Close { node: number(words)? },
            "chop" => Self::Truncate { path: path()?, size: number(words)? },
            "chmod" => Self::ChangeMode { path: path()?, mode: number(words)? },
            "utime" => {
                let path = path()?;
                Self::SetTime { path, mtime: parse_time(words)? }
            }
            "setxattr" => Self::SetXattr { path: path()?, name: path()?, seed: number(words)? },
            _ => return None,
        })
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MakeDir { path } => write!(f, "mkdir {path}"),
            Self::Create { node, path } => write!(f, "create {node} {path}"),
            Self::Open { path } => write!(f, "open {path}"),
            Self::Change { node, change: Change::Write { offset, length, seed } } => {
                write!(f, "write {node} {offset} {length} {seed}")
            }
            Self::Change { node, change: Change::Resize(size) } => {
                write!(f, "resize {node} {size}")
            }
            Self::Fsync { node } => write!(f, "fsync {node}"),
            Self::Close { node } => write!(f, "close {node}"),
            Self::Truncate { path, size } => write!(f, "chop {path} {size}"),
            Self::Rename { from, to } => write!(f, "rename {from} {to}"),
            Self::Exchange { from, to } => write!(f, "exchange {from} {to}"),
            Self::Link { from, to } => write!(f, "link {from} {to}"),
            Self::Symlink { path, target } => write!(f, "symlink {path} {target}"),
            Self::Unlink { path } => write!(f, "unlink {path}"),
            Self::RemoveDir { path } => write!(f, "rmdir {path}"),
            Self::ChangeMode { path, mode } => write!(f, "chmod {path} {mode}"),
            Self::SetTime { path, mtime } => {
                write!(f, "utime {path} {} {}", mtime.seconds, mtime.nanos)
            }
            Self::SetXattr { path, name, seed } => write!(f, "setxattr {path} {name} {seed}"),
            Self::Stat { path } => write!(f, "stat {path}"),
        }
    }
}

pub(super) fn number<T: std::str::FromStr>(words: &mut SplitAsciiWhitespace<'_>) -> Option<T> {
    words.next()?.parse().ok()
}

pub(super) fn parse_time(words: &mut SplitAsciiWhitespace<'_>) -> Option<Time> {
    Some(Time { seconds: number(words)?, nanos: number(words)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_survives_the_log() {
        let path = || "t0/a".to_owned();
        let change = Change::Write { offset: 7, length: 8, seed: 9 };
        let actions = [
            Action::MakeDir { path: path() },
            Action::Create { node: 4, path: path() },
            Action::Change { node: 4, change },
            Action::Change { node: 4, change: Change::Resize(77) },
            Action::Exchange { from: path(), to: "t0/b".to_owned() },
            Action::SetTime { path: path(), mtime: Time { seconds: -5, nanos: 6 } },
            Action::SetXattr { path: path(), name: "user.a".to_owned(), seed: 1 },
            Action::Truncate { path: path(), size: 3 },
        ];
        for action in actions {
            let line = action.to_string();
            assert_eq!(Action::parse(&mut line.split_ascii_whitespace()), Some(action));
        }
        assert_eq!(Action::parse(&mut "write 1 2".split_ascii_whitespace()), None);
    }
}
