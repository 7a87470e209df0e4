//! Directories that programs make and remove in those of all sites: the name of one is at the home
//! of the directory above, and its rows are at the site of its program.

use pelago_client::At;
use pelago_wire::{Code, Error, Handle, InodeId, NewMode, OpenFlags, RenameFlags};

use super::{CONTEXT, Runner, SITES, name, random_below};
use crate::history::Naming;
use crate::turns;

/// The names of directories that come and go, and the first of their numbers among all names.
pub(crate) const SUBS: usize = 2 * SITES;
const FIRST_SUB: usize = 500;

/// Returns the number of a name among all names of a run.
const fn number_of(sub: usize) -> usize {
    FIRST_SUB + sub
}

impl Runner {
    /// Makes a directory, removes it, looks it up, or uses it.
    pub(super) fn use_sub(&mut self) {
        let sub = random_below(SUBS);
        if !self.history.lock().has_room_for_name(number_of(sub), 12) {
            return;
        }
        match turns::random(8) {
            0..=2 => self.note("site mkdir", self.make_sub(sub)),
            3 => self.note("site rmdir", self.remove_sub(sub)),
            4 => {
                // The other name in the same directory.
                let to = (sub + SITES) % SUBS;
                if self.history.lock().has_room_for_name(number_of(to), 12) {
                    self.note("site renames of directories", self.rename_sub(sub, to));
                }
            }
            5 => self.note("site lookups of directories", self.look_up_sub(sub).map(drop)),
            _ => {
                let used = self.fill_sub(sub);
                self.note("site uses of directories", used);
            }
        }
    }

    fn sub_at(&self, sub: usize) -> Result<At, Error> {
        Ok(name(self.dir(sub)?, &format!("sub-{sub}")))
    }

    fn make_sub(&self, sub: usize) -> Result<(), Error> {
        let at = self.sub_at(sub)?;
        let begun = self.history.lock().begin_dir_names(self.plan.program, &[number_of(sub)]);
        let made = self.files.make_dir(&CONTEXT, at, NewMode::exactly(0o777)).wait();
        let (act, is_certain, result) = match made {
            Ok(entry) => {
                let ino = entry.handle.ino;
                self.count_sites(sub, ino, "site directories of another site");
                (Naming::Create(ino.raw()), true, Ok(()))
            }
            Err(Error { code: Code::Exists }) => (Naming::Exists, true, Ok(())),
            Err(error) => (Naming::CreateSome, false, Err(error)),
        };
        self.tell(format_args!("{begun} makes directory {sub}: {act:?}, {result:?}"));
        self.history.lock().name(number_of(sub), begun, act, is_certain);
        result
    }

    /// Counts a directory whose rows are at another site than its name.
    fn count_sites(&self, sub: usize, ino: InodeId, what: &'static str) {
        if self.plan.dirs.of(sub).ino.site() != ino.site() {
            self.history.lock().count(what);
        }
    }

    fn remove_sub(&self, sub: usize) -> Result<(), Error> {
        let at = self.sub_at(sub)?;
        let begun = self.history.lock().begin_dir_names(self.plan.program, &[number_of(sub)]);
        let removed = self.files.remove_dir(&CONTEXT, at).wait();
        let (act, is_certain, result) = match removed {
            Ok(removed) => {
                let ino = removed.attr.ino;
                self.count_sites(sub, ino, "site removed directories of another site");
                self.history.lock().dir_removed(begun, ino);
                (Naming::Unlink, true, Ok(()))
            }
            Err(Error { code: Code::NotFound }) => (Naming::Absent, true, Ok(())),
            Err(Error { code: Code::NotEmpty }) => (Naming::Exists, true, Ok(())),
            // Another change of it is under way.
            Err(Error { code: Code::Busy }) => (Naming::Unlink, false, Ok(())),
            Err(error) => (Naming::Unlink, false, Err(error)),
        };
        self.tell(format_args!("{begun} removes directory {sub}: {act:?}, {removed:?}"));
        self.history.lock().name(number_of(sub), begun, act, is_certain);
        result
    }

    fn rename_sub(&self, from: usize, to: usize) -> Result<(), Error> {
        let dir = self.dir(from)?;
        let at = |sub| name(dir, &format!("sub-{sub}"));
        let names = [number_of(from), number_of(to)];
        let begun = self.history.lock().begin_dir_names(self.plan.program, &names);
        let renamed = self.files.rename(&CONTEXT, at(from), at(to), RenameFlags::NoReplace).wait();
        self.tell(format_args!("{begun} renames directory {from} to {to}: {renamed:?}"));
        let mut history = self.history.lock();
        // Its effect on both names is between the same moments.
        let mut both = |from_act, to_act| {
            let ended = history.moment();
            for (sub, act) in [(from, from_act), (to, to_act)] {
                if let Some(act) = act {
                    history.name_between(number_of(sub), begun, ended, act);
                }
            }
        };
        match renamed {
            Ok(renamed) => {
                let ino = renamed.moved.ino.raw();
                both(Some(Naming::Moves(ino)), Some(Naming::Create(ino)));
                Ok(())
            }
            Err(Error { code: Code::NotFound }) => {
                both(Some(Naming::Absent), None);
                Ok(())
            }
            Err(Error { code: Code::Exists }) => {
                both(None, Some(Naming::Exists));
                Ok(())
            }
            Err(error) => {
                history.name(number_of(from), begun, Naming::Unlink, false);
                history.name(number_of(to), begun, Naming::CreateSome, false);
                Err(error)
            }
        }
    }

    fn look_up_sub(&self, sub: usize) -> Result<Option<Handle>, Error> {
        let at = self.sub_at(sub)?;
        let look = self.begin_look();
        let begun = look.begun;
        let found = self.files.lookup(&CONTEXT, at).wait();
        self.tell(format_args!("{begun} finds directory {sub}: {found:?}"));
        let (act, handle) = match found {
            Ok(entry) => (Naming::Leads(entry.handle.ino.raw()), Some(entry.handle)),
            Err(Error { code: Code::NotFound }) => (Naming::Absent, None),
            // It is being removed. A kernel looks once more.
            Err(Error { code: Code::Stale }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_old =
            !self.is_current(look) || handle.is_some_and(|handle| self.may_be_old(sub, handle));
        let mut history = self.history.lock();
        match is_old {
            true => history.count("site paths that may be old"),
            false => history.name(number_of(sub), begun, act, true),
        }
        drop(history);
        Ok(handle)
    }

    /// Returns whether a name may have led to a directory a while ago, and not any more: a site
    /// that does not hear the home of the name answers as it has seen that last, if the directory
    /// is its own.
    fn may_be_old(&self, sub: usize, found: Handle) -> bool {
        let is_own = usize::from(found.ino.site()) == self.plan.site;
        let is_named_there = self.plan.dirs.of(sub).ino.site() != found.ino.site();
        is_own && is_named_there && self.history.lock().may_be_late
    }

    /// Makes a file in a directory, and removes it: in between the directory is not empty.
    fn fill_sub(&mut self, sub: usize) -> Result<(), Error> {
        let Some(dir) = self.look_up_sub(sub)? else { return Ok(()) };
        let text = format!("file-{}", self.value());
        let flags = OpenFlags::READ_WRITE;
        let mode = NewMode::exactly(0o644);
        let created = self.files.create(&CONTEXT, name(dir, &text), mode, flags).wait();
        self.tell(format_args!("makes {text} in {dir:?}: {:?}", created.as_ref().err()));
        let created = match created {
            Ok(created) => created,
            // It has been removed.
            Err(Error { code: Code::NotFound | Code::Stale }) => return Ok(()),
            Err(error) => return Err(error),
        };
        let filled = self.history.lock().dir_filled(dir.ino);
        let closed = self.close(created.open);
        self.history.lock().dir_is_filled(filled);
        let removed = self.files.unlink(&CONTEXT, name(dir, &text)).wait().map(drop);
        self.tell(format_args!("removes {text} of {dir:?}: {removed:?}"));
        closed.and(removed)
    }

    /// Looks all these directories up. Returns the nodes to which they lead.
    pub(super) fn read_subs(&self) -> Result<Vec<Option<u64>>, Error> {
        let look = |sub| Ok(self.look_up_sub(sub)?.map(|handle| handle.ino.raw()));
        (0..SUBS).map(look).collect()
    }
}
