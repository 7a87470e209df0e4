//! The owner: a program that writes shared files, moves them out of the shared directory and in
//! again, gives them second names, and takes rights back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_client::{At, FilePos, Files};
use pelago_wire::{
    Bulk, Cookie, Done, Error, FileLock, Handle, OpenFlags, RenameFlags, Request, Service,
    WriteFlags,
};

use super::guest::{number_of, part_of};
use super::{CONTEXT, Plan, Runner, exclusive, random_below};
use crate::grants::Grant;
use crate::history::History;
use crate::shares::{
    self, DEEP, ENDING, GUESTS, GuestNumber, LOCKED_FILE, NAMED, SHARED_FILES, SHARED_NAME,
    SharedNode, SharedTree, Source, name_in,
};
use crate::turns;

/// The names that the file with several names can have, the first ones in the shared directory.
const NAMES: [&str; 4] = ["named", "second", "third", SHARED_NAME];
const INSIDE: usize = 2;
const SHARED: usize = 3;
/// One of this number of operations takes back a right.
const REVOKES: u64 = 30;
/// The owner changes the policy at one of its first operations, in one run of so many.
const POLICY_CHANGES: u64 = 2;
const FIRST_OPERATIONS: u64 = 15;
/// The server reads the policy, and guests have dropped what they have cached, within this time, if
/// nothing takes longer than usual.
const POLICY_READ: Duration = Duration::from_secs(5);

/// The owner's program.
struct OwnerProgram {
    runner: Runner,
    /// The service of its mount, for requests that no program makes.
    service: Arc<dyn Service>,
    /// The folder of the volume.
    folder: PathBuf,
    tree: SharedTree,
    /// True while the moving directory is in the shared one; `None` after a failed move.
    is_inside: Option<bool>,
    /// The names that the file has; `None` after a change that failed.
    names: Option<[bool; NAMES.len()]>,
    /// The guests whose rights were not taken back.
    guests: Vec<GuestNumber>,
    /// True after the credential was taken back that the first guest attaches.
    has_revoked_attached: bool,
}

/// Starts the program of the owner.
pub(crate) fn start(
    service: Arc<dyn Service>,
    plan: Plan,
    tree: SharedTree,
    folder: &Path,
    history: &Arc<Mutex<History>>,
) -> JoinHandle<()> {
    let folder = folder.to_owned();
    let runner = Runner::new(Files::new(Arc::clone(&service)), plan, history);
    let is_inside = Some(true);
    let names = Some([true, false, false, false]);
    let guests = (0..GUESTS).map(GuestNumber).filter(|guest| *guest != ENDING).collect();
    let program = OwnerProgram {
        runner,
        service,
        folder,
        tree,
        is_inside,
        names,
        guests,
        has_revoked_attached: false,
    };
    let thread = thread::Builder::new().name("owner".to_owned());
    thread.spawn(move || program.run()).expect("a thread")
}

impl OwnerProgram {
    fn run(mut self) {
        let changes_policy = turns::random(POLICY_CHANGES) == 0;
        let policy_at = changes_policy.then(|| turns::random(FIRST_OPERATIONS));
        for number in 0..self.runner.plan.operations {
            thread::sleep(Duration::from_micros(turns::random(400_000)));
            if policy_at == Some(number) {
                self.change_policy();
            }
            match turns::random(10) {
                _ if turns::random(REVOKES) == 0 => self.revoke(),
                0..=2 => self.write(SHARED_FILES[random_below(SHARED_FILES.len())]),
                3..=5 => self.move_directory(),
                6 => self.move_under_lock(),
                7..=8 => self.change_names(),
                _ => self.read(SHARED_FILES[random_below(SHARED_FILES.len())]),
            }
        }
    }

    /// Returns the place of a name.
    fn name(&self, number: usize) -> At {
        let dir = if number < INSIDE { self.tree.inside } else { self.tree.outside };
        name_in(dir, NAMES[number])
    }

    /// Makes a change of rights, and records them: unsure from the beginning on, and in the new
    /// state from the answer on.
    fn change(
        &self,
        what: &'static str,
        set: impl Fn(&mut History, u64, Grant),
        state: Grant,
        act: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut history = self.runner.history.lock();
        let begun = history.moment();
        set(&mut history, begun, Grant::Unsure);
        drop(history);
        let losses = self.runner.files.losses();
        let dirs = [self.tree.inside, self.tree.outside];
        // Before that a loss of power may take it back.
        let sync = |dir: &Handle| self.runner.files.fsync_dir(&CONTEXT, *dir, Some(losses)).wait();
        let result = act().and_then(|()| dirs.iter().try_for_each(sync));
        let mut history = self.runner.history.lock();
        let ended = history.moment();
        if result.is_ok() {
            set(&mut history, ended, state);
        }
        drop(history);
        self.runner.tell(format_args!("{what} {begun}-{ended}, {state:?} now"));
        self.runner.note(what, result);
        result
    }

    /// Moves the directory out, or in.
    fn move_directory(&mut self) {
        let Some(is_inside) = self.is_inside else { return };
        let dir = |is_inside| if is_inside { self.tree.inside } else { self.tree.outside };
        let from = name_in(dir(is_inside), "moving");
        let to = name_in(dir(!is_inside), "moving");
        let what = if is_inside { "moves out" } else { "moves in" };
        let state = if is_inside { Grant::Denied } else { Grant::Granted };
        let set = |history: &mut History, at, state| {
            history.grants.set(Source::Inside(DEEP), at, state);
        };
        let files = &self.runner.files;
        let moved = self.change(what, set, state, || {
            files.rename(&CONTEXT, from, to, RenameFlags::NoReplace).wait().map(drop)
        });
        self.is_inside = moved.ok().map(|()| !is_inside);
        if self.is_inside == Some(false) && turns::random(2) == 0 {
            // No guest may read it any more.
            self.write(DEEP);
        }
        // A change of a guest that comes after it has no place before this.
        self.read(DEEP);
        self.list();
    }

    /// Lists the names that guests have made.
    fn list(&self) {
        let begun = self.runner.history.lock().moment();
        let listed = self.names_of_guests();
        if let Ok(names) = &listed {
            self.runner.tell(format_args!("owner lists {names:?}"));
            let mut history = self.runner.history.lock();
            let ended = history.moment();
            history.listed(begun, ended, names.clone());
        }
        self.runner.note("listings of the owner", listed.map(drop));
    }

    fn names_of_guests(&self) -> Result<BTreeMap<usize, u64>, Error> {
        let mut names = BTreeMap::new();
        let mut after = Cookie::AFTER_DOT_DOT;
        loop {
            let files = &self.runner.files;
            let page = files.list(&CONTEXT, self.tree.moving, after, None, 1000, true).wait()?;
            for entry in &page.entries {
                names.extend(number_of(&entry.name).map(|number| (number, entry.ino.raw())));
                after = entry.cookie;
            }
            if page.end || page.entries.is_empty() {
                return Ok(names);
            }
        }
    }

    /// Moves the directory while a file in it is locked.
    fn move_under_lock(&mut self) {
        let files = self.runner.files.clone();
        let handle = self.tree.files[DEEP.0];
        let opened = files.open(&CONTEXT, handle, OpenFlags::READ_WRITE).wait();
        let Ok(opened) = opened else {
            return self.runner.note("locks of the owner", opened.map(drop));
        };
        let open = opened.open;
        let lock = exclusive(0, FileLock::TO_END);
        let locked = self.runner.lock(open, LOCKED_FILE, lock);
        if locked.is_ok() {
            // Guests begin to wait.
            thread::sleep(Duration::from_micros(turns::random(300_000)));
            self.move_directory();
        }
        let unlocked = locked.and_then(|held| self.runner.unlock(open, held, lock));
        let closed = self.runner.close(open);
        self.runner.note("locks of the owner", unlocked.and(closed));
    }

    /// Renames the file with several names, or adds or removes a name.
    fn change_names(&mut self) {
        let Some(names) = self.names else { return };
        let with = |present: bool| -> Option<usize> {
            let all: Vec<usize> = (0..NAMES.len()).filter(|it| names[*it] == present).collect();
            (!all.is_empty()).then(|| all[random_below(all.len())])
        };
        let Some(old) = with(true) else { return };
        let count = names.iter().filter(|is_there| **is_there).count();
        let mut next = names;
        let node = self.tree.files[NAMED.0];
        let files = &self.runner.files;
        let what = match (turns::random(3), with(false)) {
            (0, _) if count > 1 => {
                next[old] = false;
                "names removed"
            }
            (1, Some(new)) => {
                next[new] = true;
                "second names"
            }
            (_, Some(new)) => {
                next[old] = false;
                next[new] = true;
                "renames"
            }
            _ => return,
        };
        let new = (0..NAMES.len()).find(|it| next[*it] && !names[*it]).map(|it| self.name(it));
        let is_granted = next[..INSIDE].iter().any(|is_there| *is_there);
        let state = if is_granted { Grant::Granted } else { Grant::Denied };
        let was_granted = names[..INSIDE].iter().any(|is_there| *is_there);
        let old = self.name(old);
        let is_same = is_granted == was_granted;
        let is_shared = next[SHARED];
        let set = |history: &mut History, at, state| {
            // While one name stays or follows another one, it is granted.
            if !is_same {
                history.grants.set(Source::Inside(NAMED), at, state);
            }
            if is_shared != names[SHARED] {
                let known = if is_shared { Grant::Granted } else { Grant::Denied };
                let state = if state == Grant::Unsure { state } else { known };
                history.grants.set(Source::Name, at, state);
            }
        };
        let changed = self.change(what, set, state, || match (what, new) {
            ("second names", Some(new)) => files.link(&CONTEXT, node, new).wait().map(drop),
            (_, Some(new)) => {
                files.rename(&CONTEXT, old, new, RenameFlags::NoReplace).wait().map(drop)
            }
            (_, None) => files.unlink(&CONTEXT, old).wait().map(drop),
        });
        if changed.is_err() {
            // It may have either state from now on.
            let mut history = self.runner.history.lock();
            let at = history.moment();
            history.grants.set(Source::Inside(NAMED), at, Grant::Unsure);
            history.grants.set(Source::Name, at, Grant::Unsure);
        }
        self.names = changed.ok().map(|()| next);
    }

    /// Takes back the right of a guest.
    fn revoke(&mut self) {
        if !self.has_revoked_attached && turns::random(2) == 0 {
            self.has_revoked_attached = true;
            let (guest, sentence) = shares::attached_revocation(&self.tree);
            let attached = Source::Attached(guest);
            let set = |history: &mut History, at, state| history.grants.set(attached, at, state);
            return self.take_back(sentence, set);
        }
        if self.guests.is_empty() {
            return;
        }
        let guest = self.guests.swap_remove(random_below(self.guests.len()));
        let takes_key = turns::random(2) == 0;
        let sentence = match takes_key {
            true => shares::revocation(guest),
            false => shares::credential_revocation(guest, &self.tree),
        };
        self.take_back(sentence, |history, at, state| {
            history.grants.set(Source::First(guest), at, state);
            // A guest whose first credential was taken back comes by another one, at some time.
            let of_others = if takes_key { state } else { Grant::Unsure };
            history.grants.set(Source::Attached(guest), at, of_others);
        });
    }

    /// Takes the second root out of the policy. No reply says when the server has read that, and
    /// no node moves meanwhile: a move would make guests drop what they have cached.
    fn change_policy(&self) {
        let set = |state| {
            let mut history = self.runner.history.lock();
            let moment = history.moment();
            history.grants.set(Source::SecondRoot, moment, state);
            self.runner.tell(format_args!("the second root is {state:?} now"));
        };
        set(Grant::Unsure);
        shares::write_policy(&self.folder, false);
        // The server looks at the file from time to time.
        thread::sleep(POLICY_READ);
        if !self.runner.history.lock().may_be_late {
            set(Grant::Denied);
            self.runner.history.lock().count("changes of the policy");
        }
        // Guests use what is left, before a move makes them drop it.
        thread::sleep(Duration::from_micros(turns::random(2_000_000)));
    }

    fn take_back(&self, sentence: Vec<u8>, set: impl Fn(&mut History, u64, Grant)) {
        // Guests use what they have: only the revocation changes it, and no move.
        thread::sleep(Duration::from_micros(turns::random(1_000_000)));
        let _noted =
            self.change("revocations", set, Grant::Denied, || self.send_revocation(sentence));
        SHARED_FILES.into_iter().for_each(|node| self.read(node));
        // Guests try what they had, before a move makes them drop it.
        thread::sleep(Duration::from_micros(turns::random(1_000_000)));
    }

    fn send_revocation(&self, sentence: Vec<u8>) -> Result<(), Error> {
        let (sender, replies) = mpsc::channel();
        let mut later = || -> Done {
            let sender = sender.clone();
            Box::new(move |reply| {
                // The program waits for it.
                let _sent = sender.send(reply);
            })
        };
        let request = Request::Revoke { sentence, chain: Vec::new() };
        let reply = match self.service.ask(&CONTEXT, request, Bulk::None, &mut later) {
            Some(reply) => reply,
            None => replies.recv().expect("a reply"),
        };
        reply.map(drop)
    }

    /// Reads a file, wherever it is.
    fn read(&self, node: SharedNode) {
        if self.runner.history.lock().has_room(part_of(node), 12) {
            self.runner.note("reads of the owner", self.runner.read_shared(&self.tree, node));
        }
    }

    /// Writes a value to a file, wherever it is.
    fn write(&mut self, node: SharedNode) {
        let part = part_of(node);
        if !self.runner.history.lock().has_room(part, 12) {
            return;
        }
        let value = self.runner.value();
        self.runner.history.lock().begin_write(part, value);
        let result = self.write_value(node, value);
        let mut history = self.runner.history.lock();
        match result {
            Ok(()) => {
                history.end_write(part, value);
                history.closed(value);
            }
            Err(_) => history.doubt_write(part, value),
        }
        drop(history);
        self.runner.tell(format_args!("owner wrote {value} to {node:?}"));
        self.runner.note("writes of the owner", result);
    }

    fn write_value(&self, node: SharedNode, value: u64) -> Result<(), Error> {
        let files = &self.runner.files;
        let handle = self.tree.files[node.0];
        let opened = files.open(&CONTEXT, handle, OpenFlags::READ_WRITE).wait()?;
        let to = FilePos { open: opened.open, offset: part_of(node).offset() };
        let written = files.write(&CONTEXT, to, &value.to_le_bytes(), WriteFlags::NONE).wait();
        let closed = self.runner.close(opened.open);
        written.and(closed)
    }
}
