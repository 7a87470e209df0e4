//! Chooses the next operation of one thread, one that must succeed.

use pelago_random::Random;
use pelago_wire::Time;

use crate::witness::action::{Action, Change, NodeId};
use crate::witness::state::{NodeKind, ThreadState};

/// Approximate number of names of one thread.
const NAMES: usize = 150;
/// Open files of one thread, at most.
const OPEN: usize = 3;
/// Changes of one file, at most, so that its history stays short.
const CHANGES: usize = 30;
/// Directories of one thread, at most.
const DIRS: usize = 8;

/// Chooses the operations of one thread.
pub(super) struct Chooser {
    pub(super) random: Random,
    pub(super) thread: usize,
    pub(super) xattrs: bool,
}

impl Chooser {
    pub(super) fn choose(&mut self, state: &ThreadState) -> Action {
        loop {
            if let Some(action) = self.try_once(state) {
                return action;
            }
        }
    }

    fn try_once(&mut self, state: &ThreadState) -> Option<Action> {
        if state.names.len() > NAMES {
            return Some(Action::Unlink { path: self.file(state)? });
        }
        match self.random.below(100) {
            0..=19 if state.open.len() < OPEN => {
                Some(Action::Create { node: state.next, path: self.free(state) })
            }
            0..=44 => self.change(state),
            45..=49 => Some(Action::Fsync { node: self.open(state)? }),
            50..=61 => Some(Action::Close { node: self.open(state)? }),
            62..=65 if state.open.len() < OPEN => {
                let path = self.closed_file(state)?;
                let short = state.node(&path)?.settled.len() < CHANGES;
                short.then_some(Action::Open { path })
            }
            62..=71 => self.rename(state),
            72 => Some(Action::Exchange { from: self.leaf(state)?, to: self.leaf(state)? })
                .filter(|action| !matches!(action, Action::Exchange { from, to } if from == to)),
            73..=78 => Some(Action::Unlink { path: self.leaf(state)? }),
            79..=81 => Some(Action::Link { from: self.file(state)?, to: self.free(state) }),
            82 => Some(Action::Symlink { path: self.free(state), target: "far/away".to_owned() }),
            83..=84 => self.make_dir(state),
            85 => self.remove_dir(state),
            86..=87 => {
                let mode = 0o600 | self.random.below(0o100) as u16;
                Some(Action::ChangeMode { path: self.file(state)?, mode })
            }
            88..=89 => {
                let seconds = self.random.below(1 << 30) as i64;
                let mtime = Time { seconds, nanos: self.random.below(1_000_000_000) as u32 };
                Some(Action::SetTime { path: self.closed_file(state)?, mtime })
            }
            90 if self.xattrs => Some(Action::SetXattr {
                path: self.file(state)?,
                name: format!("user.n{}", self.random.below(3)),
                seed: self.random.bits(),
            }),
            91..=92 => {
                let path = self.closed_file(state)?;
                let short = state.node(&path)?.settled.len() < CHANGES;
                short.then_some(Action::Truncate { path, size: self.random.below(9000) })
            }
            _ => Some(Action::Stat { path: self.closed_file(state)? }),
        }
    }

    fn change(&mut self, state: &ThreadState) -> Option<Action> {
        let node = self.open(state)?;
        let known = state.nodes.get(&node)?;
        if known.settled.len() + known.pending.len() >= CHANGES {
            return Some(Action::Close { node });
        }
        let size = known.bytes(known.pending.len()).size();
        if self.random.chance(6) {
            return Some(Action::Change { node, change: Change::Resize(self.random.below(9000)) });
        }
        let offset = match self.random.below(10) {
            0..=6 => size,
            7..=8 => self.random.below(size + 1),
            _ => size + self.random.below(100_000),
        };
        let length = match self.random.below(10) {
            0..=6 => 1 + self.random.index(1500),
            7..=8 => 4000 + self.random.index(200),
            _ => 1 + self.random.index(150_000),
        };
        let change = Change::Write { offset, length, seed: self.random.bits() };
        Some(Action::Change { node, change })
    }

    fn rename(&mut self, state: &ThreadState) -> Option<Action> {
        if self.random.chance(10) {
            let from = self.pick(state, |kind| *kind == NodeKind::Directory)?;
            let to = self.free(state);
            let loops = to.starts_with(&format!("{from}/"));
            return (!loops).then_some(Action::Rename { from, to });
        }
        let from = self.leaf(state)?;
        let to = if self.random.chance(40) { self.leaf(state)? } else { self.free(state) };
        // A rename between two names of the same file does nothing.
        (state.id(&from) != state.id(&to)).then_some(Action::Rename { from, to })
    }

    fn make_dir(&mut self, state: &ThreadState) -> Option<Action> {
        let dirs = state.nodes.values().filter(|node| node.kind == NodeKind::Directory).count();
        (dirs < DIRS).then(|| Action::MakeDir { path: self.free(state) })
    }

    fn remove_dir(&mut self, state: &ThreadState) -> Option<Action> {
        let path = self.pick(state, |kind| *kind == NodeKind::Directory)?;
        let below = format!("{path}/");
        let empty = !state.names.keys().any(|name| name.starts_with(&below));
        empty.then_some(Action::RemoveDir { path })
    }

    fn open(&mut self, state: &ThreadState) -> Option<NodeId> {
        state.open.iter().nth(self.random.index(state.open.len())).copied()
    }

    fn file(&mut self, state: &ThreadState) -> Option<String> {
        self.pick(state, |kind| *kind == NodeKind::File)
    }

    fn leaf(&mut self, state: &ThreadState) -> Option<String> {
        self.pick(state, |kind| *kind != NodeKind::Directory)
    }

    fn closed_file(&mut self, state: &ThreadState) -> Option<String> {
        let path = self.file(state)?;
        (!state.open.contains(&state.id(&path)?)).then_some(path)
    }

    fn pick(&mut self, state: &ThreadState, fits: impl Fn(&NodeKind) -> bool) -> Option<String> {
        let fits = |id| state.nodes.get(id).is_some_and(|node| fits(&node.kind));
        let all: Vec<&String> =
            state.names.iter().filter(|(_, id)| fits(id)).map(|(path, _)| path).collect();
        self.random.pick(&all).map(|path| (*path).clone())
    }

    /// Returns a free name, seldom a long one, seldom in the shared directory.
    fn free(&mut self, state: &ThreadState) -> String {
        loop {
            let mut name = format!("n{}", self.random.below(400));
            if self.random.chance(4) {
                name = format!("{name:_<250}");
            }
            let path = if self.random.chance(15) {
                format!("shared/t{}-{name}", self.thread).chars().take(250).collect()
            } else {
                let dir = self.pick(state, |kind| *kind == NodeKind::Directory);
                let shallow = dir.filter(|dir| dir.len() < 1500 && self.random.chance(70));
                let dir = shallow.unwrap_or_else(|| format!("t{}", self.thread));
                format!("{dir}/{name}")
            };
            if !state.names.contains_key(&path) {
                return path;
            }
        }
    }
}
