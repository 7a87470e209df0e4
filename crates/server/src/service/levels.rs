//! The levels of files: at which level a sync answers, who sets a level, and replies that wait for
//! the mirror.

use std::sync::Arc;

use parking_lot::Mutex;
use pelago_data::{OpError, OpenKey};
use pelago_meta::shard::Ancestors;
use pelago_wire::{Code, Description, Effect, Error, Handle, Level, Reply, Request, xattr};

use super::execute::Executor;
use super::{Dispatcher, ErrorReport, OpResult, Outcome};
use crate::completion::Completion;
use crate::mirror::Awaited;

/// How often the folders above a file are looked at if they move meanwhile.
const ATTEMPTS: usize = 3;
/// Names of a file of which the folders are known. Of more the strongest level counts.
const KNOWN_NAMES: usize = 64;

impl Dispatcher {
    /// Returns whether the reply to a change must wait until the mirror has caught up.
    #[inline]
    pub(super) fn must_hold_back(&self, description: &Description, bytes: usize) -> bool {
        /// About the rows of a change.
        const ROWS_BYTES: usize = 256;
        let is_change = matches!(description.effect, Effect::Change { .. });
        let mirror = self.parts.mirror.as_ref().filter(|_| is_change);
        mirror.is_some_and(|mirror| mirror.must_hold_back(bytes + ROWS_BYTES))
    }

    /// Replies when the mirror has caught up.
    pub(super) fn reply_when_caught_up(&self, reply: Reply, done: Completion) {
        match &self.parts.mirror {
            Some(mirror) => {
                let done = done.into_done();
                mirror.when_caught_up(Box::new(move |_| done(Ok(reply))));
            }
            None => done.reply(Ok(reply)),
        }
    }

    /// Replies when everything that is done now is safe here, and has left the relay or is at the
    /// mirror.
    pub(super) fn reply_when_mirrored(
        &self,
        awaited: Awaited,
        reply: Reply,
        report: ErrorReport,
        invalidations: u64,
        done: Completion,
    ) {
        let Some(mirror) = self.parts.mirror.clone() else {
            return self.reply_when_safe(reply, report, invalidations, done);
        };
        let opens = Arc::clone(&self.parts.opens);
        let durability = &self.parts.durability;
        let answer = Arc::new(Mutex::new(Some((done.into_done(), reply))));
        // What may never be safe here fails at once: the mirror may be waiting for it.
        let of_failure = Arc::clone(&answer);
        let when_safe = move |safe: Result<(), Error>| {
            if let Err(cause) = safe
                && let Some((done, _)) = of_failure.lock().take()
            {
                done(Err(report.error(&opens, cause)));
            }
        };
        durability.when_safe(durability.done(), invalidations, Box::new(when_safe));
        let again = Arc::clone(durability);
        let sequence = durability.done();
        mirror.when_mirrored(
            awaited,
            Box::new(move |mirrored: Result<(), Error>| {
                let Some((done, reply)) = answer.lock().take() else { return };
                match mirrored {
                    // A mirror that is cut off says nothing of what is safe here.
                    Ok(()) => {
                        let when_safe = move |safe: Result<(), Error>| done(safe.map(|()| reply));
                        again.when_safe(sequence, invalidations, Box::new(when_safe));
                    }
                    Err(error) => done(Err(error)),
                }
            }),
        );
    }
}

impl Executor<'_> {
    /// Syncs an open file at its level.
    pub(super) fn sync(&self, open: OpenKey, data_only: bool) -> OpResult {
        self.sync_to(open, data_only, self.level_of_open(open))
    }

    /// Syncs an open file at this level.
    ///
    /// # Errors
    /// `NotSupported` if the volume has no mirror or relay for the level.
    pub(super) fn sync_at(&self, open: OpenKey, level: Level) -> OpResult {
        let mirror = self.parts.mirror.as_ref();
        let can_be_reached = match level {
            Level::Async | Level::Local => true,
            Level::Network => mirror.is_some_and(|mirror| mirror.has_relay()),
            Level::Remote => mirror.is_some_and(|mirror| mirror.has_peer()),
        };
        match can_be_reached {
            true => self.sync_to(open, false, Ok(level)),
            false => Err(Code::NotSupported.into()),
        }
    }

    fn sync_to(&self, open: OpenKey, data_only: bool, level: Result<Level, Error>) -> OpResult {
        if matches!(level, Ok(Level::Async)) {
            self.parts.opens.report_error(open)?;
            return Ok(Reply::Done.into());
        }
        self.parts.opens.fsync(open, data_only, self.may_block)?;
        Ok(at_level(level, Reply::Done, ErrorReport::Open(open)))
    }

    /// Returns the outcome of a change of an open file that is a sync as well.
    pub(super) fn synced(&self, reply: Reply, open: OpenKey) -> Outcome {
        at_level(self.level_of_open(open), reply, ErrorReport::Open(open))
    }

    fn level_of_open(&self, open: OpenKey) -> Result<Level, Error> {
        self.parts.opens.handle_of(open).and_then(|node| self.level_of(node))
    }

    /// Returns the outcome of a sync of a directory.
    pub(super) fn synced_dir(&self, dir: Handle, report: ErrorReport) -> Outcome {
        at_level(self.level_of(dir), Reply::Done, report)
    }

    /// Returns the level of a file: the one that is set for it, or for the nearest folder above it;
    /// for several names the strongest of theirs.
    ///
    /// # Errors
    /// If the table fails, or folders keep moving.
    fn level_of(&self, node: Handle) -> Result<Level, Error> {
        let shard = &self.parts.shard;
        if !shard.has_xattrs() {
            return Ok(Level::Local);
        }
        if let Some(level) = self.level_set_for(node)? {
            return Ok(level);
        }
        for _ in 0..ATTEMPTS {
            let placement = shard.placement(node, true)?;
            if placement.dirs.len() >= KNOWN_NAMES {
                return Ok(Level::Remote);
            }
            let moves = placement.directory_moves;
            let above = placement.dirs.iter().map(|dir| match shard.ancestors(*dir, moves) {
                Ok(ancestors) => self.nearest_level(&ancestors),
                Err(error) => Err(error),
            });
            let strongest =
                above.collect::<Result<Vec<_>, _>>().map(|levels| levels.into_iter().max());
            match strongest {
                Ok(level) => return Ok(level.unwrap_or(Level::Local)),
                Err(error) if error.code == Code::Busy => {}
                Err(error) => return Err(error),
            }
        }
        Err(Code::Busy.into())
    }

    /// Returns the level of the last of these folders that has one. If more folders above are not
    /// looked at, theirs may be the strongest: a program waits too long rather than not long
    /// enough.
    fn nearest_level(&self, ancestors: &Ancestors) -> Result<Level, Error> {
        for dir in ancestors.dirs.iter().rev() {
            if let Some(level) = self.level_set_for(Handle::own(*dir))? {
                return Ok(level);
            }
        }
        Ok(if ancestors.has_more { Level::Remote } else { Level::Local })
    }

    fn level_set_for(&self, node: Handle) -> Result<Option<Level>, Error> {
        match self.parts.shard.get_xattr(node, xattr::LEVEL) {
            Ok(name) => Ok(Level::named(&name)),
            Err(error) if error.code == Code::NoXattr => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns how far the last change of a file has come.
    pub(super) fn reached(&self, node: Handle) -> Result<Vec<u8>, Error> {
        match &self.parts.mirror {
            Some(mirror) => mirror.reached(node).map(|reached| reached.to_string().into_bytes()),
            None => Err(Code::NoXattr.into()),
        }
    }

    /// Checks that the caller may set this level.
    ///
    /// # Errors
    /// `NotPermitted` unless the caller is root, or the user who serves the volume; `Invalid` for
    /// another name; `NotSupported` for *network* without a relay.
    pub(super) fn expect_level(&self, name: &[u8]) -> Result<(), OpError> {
        self.expect_may_set_level()?;
        match Level::named(name) {
            None => Err(Code::Invalid.into()),
            Some(Level::Network) => {
                let mirror = self.parts.mirror.as_ref();
                match mirror.is_some_and(|mirror| mirror.has_relay()) {
                    true => Ok(()),
                    false => Err(Code::NotSupported.into()),
                }
            }
            Some(Level::Async | Level::Local | Level::Remote) => Ok(()),
        }
    }

    /// Checks that the caller may set and remove levels.
    ///
    /// # Errors
    /// `NotPermitted` unless the caller is root, or the user who serves the volume.
    pub(super) fn expect_may_set_level(&self) -> Result<(), OpError> {
        let uid = self.context.uid;
        match uid == 0 || uid == rustix::process::geteuid().as_raw() {
            true => Ok(()),
            false => Err(Code::NotPermitted.into()),
        }
    }
}

/// Returns the sync that stands for one of a file whose bytes are at another site than its home.
/// Each site mirrors what it has, so no group has both the bytes and the size.
///
/// # Errors
/// `NotSupported` for a level later than *local*.
pub(super) fn sync_between_sites(request: Request) -> Result<Request, Error> {
    match request {
        Request::FsyncAt { level: Level::Network | Level::Remote, .. } => {
            Err(Code::NotSupported.into())
        }
        Request::FsyncAt { open, level: Level::Async | Level::Local } => {
            Ok(Request::Fsync { open, data_only: false })
        }
        request => Ok(request),
    }
}

/// Returns the outcome of a sync. If the level is not known, it waits for the mirror.
fn at_level(level: Result<Level, Error>, reply: Reply, report: ErrorReport) -> Outcome {
    match level {
        Ok(Level::Async | Level::Local) => Outcome::WhenSafe(reply, report),
        Ok(Level::Network) => Outcome::WhenMirrored(Awaited::Sent, reply, report),
        Ok(Level::Remote) | Err(_) => Outcome::WhenMirrored(Awaited::Mirrored, reply, report),
    }
}

#[cfg(test)]
mod tests {
    use pelago_wire::OpenId;

    use super::*;

    #[test]
    fn bytes_at_another_site_than_their_home_have_no_later_level_than_local() {
        let open = OpenId(7);
        for level in Level::ALL {
            let sync = sync_between_sites(Request::FsyncAt { open, level });
            match level {
                Level::Async | Level::Local => {
                    let plain = matches!(sync, Ok(Request::Fsync { open: OpenId(7), .. }));
                    assert!(plain, "{level}: {sync:?}");
                }
                Level::Network | Level::Remote => {
                    assert_eq!(sync.unwrap_err().code, Code::NotSupported, "{level}");
                }
            }
        }
    }
}
