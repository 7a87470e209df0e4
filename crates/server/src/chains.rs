//! The directories of other sites that lead to own ones, as they were last seen.
//!
//! Every path begins in the root, which is a directory of the founding site. So a path to an own
//! directory is a chain of directories, some of them of other sites. This keeps what is needed to
//! walk such a path while those sites are away: of each directory on it the attributes, the access
//! list, and the names that lead on. Each step that another site takes corrects it. It decides
//! without I/O which rows of the table change ([`Chains::take_changes`]), and what is still to be
//! asked ([`Chains::take_questions`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use pelago_store::rows::{Access, AncestryRow, SeenDir};
use pelago_wire::{Attr, FileKind, InodeId, Name, Time, limits};

/// The shortest time between two rows of a directory of which only times and counts have changed,
/// and between two questions about its access list.
const REFRESH: Duration = Duration::from_secs(60);

/// The directories of other sites that are known.
pub(crate) struct Chains {
    /// The own site.
    own: u16,
    /// Directories of other sites: those that lead to own ones, and some through which a walk has
    /// passed lately.
    dirs: HashMap<InodeId, Dir>,
    /// The place at which a directory was seen: of those in `dirs`, and of own ones that have a
    /// name there.
    places: HashMap<InodeId, NameAt>,
    /// Directories whose rows may differ from what is known.
    changed: BTreeSet<InodeId>,
    /// Directories of which something is to be asked.
    unasked: BTreeSet<InodeId>,
    /// Counts what is used, for the decision what is forgotten.
    tick: u64,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NameAt {
    pub(crate) dir: InodeId,
    pub(crate) name: Name,
}

/// A directory of another site.
#[derive(Default)]
struct Dir {
    seen: Option<SeenDir>,
    access: Access,
    /// The time of the last change (ctime) when the list was asked for.
    access_of: Option<Time>,
    /// The directory above, if its name there is not known.
    parent: Option<InodeId>,
    /// The names that lead to own directories.
    names: BTreeMap<Name, Link>,
    used: u64,
    /// There may be a row.
    has_row: bool,
    written: Option<Instant>,
    asked: Option<Instant>,
}

/// The target of a name.
#[derive(Clone, Copy)]
struct Link {
    ino: InodeId,
    used: u64,
}

/// What is asked of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    Attributes(InodeId),
    AccessList(InodeId),
}

impl Chains {
    /// Returns what the rows of the table say.
    pub(crate) fn new(own: u16, rows: Vec<(InodeId, AncestryRow)>) -> Self {
        let mut chains = Self {
            own,
            dirs: HashMap::new(),
            places: HashMap::new(),
            changed: BTreeSet::new(),
            unasked: BTreeSet::new(),
            tick: 0,
        };
        for (ino, row) in rows.into_iter().filter(|(ino, _)| ino.site() != own) {
            let AncestryRow { parent, seen, access, names } = row;
            let dir = Dir { seen: Some(seen), access, parent, has_row: true, ..Dir::default() };
            let links = names.iter().map(|(name, ino)| (name.clone(), Link { ino: *ino, used: 0 }));
            chains.dirs.insert(ino, Dir { names: links.collect(), ..dir });
            for (name, child) in names {
                chains.move_to(child, NameAt { dir: ino, name });
            }
        }
        chains
    }

    /// Returns the attributes of a directory of another site that leads to an own one.
    pub(crate) fn attr(&self, ino: InodeId) -> Option<Attr> {
        Some(self.recorded(ino)?.seen?.attr(ino))
    }

    /// Returns the access list of a directory of another site that leads to an own one.
    pub(crate) fn access(&self, ino: InodeId) -> Option<&Access> {
        self.recorded(ino).map(|dir| &dir.access)
    }

    /// Returns where a name in a directory of another site leads.
    pub(crate) fn child(&self, dir: InodeId, name: &Name) -> Option<InodeId> {
        Some(self.dirs.get(&dir)?.names.get(name)?.ino)
    }

    /// Returns the directory above a directory of another site that leads to an own one, or above
    /// an own one whose name is there.
    pub(crate) fn parent(&self, ino: InodeId) -> Option<InodeId> {
        if ino == InodeId::ROOT {
            return Some(ino);
        }
        let place = self.places.get(&ino).map(|place| place.dir);
        match ino.site() == self.own {
            true => place,
            false => place.or(self.recorded(ino)?.parent),
        }
    }

    /// Returns the path of an own directory that has its name in another site's, as it was last
    /// seen.
    pub(crate) fn path(&self, ino: InodeId) -> Option<String> {
        let mut names = Vec::new();
        let mut at = ino;
        while at != InodeId::ROOT {
            let place = self.places.get(&at)?;
            names.push(String::from_utf8_lossy(place.name.as_bytes()).into_owned());
            at = place.dir;
            if names.len() > self.places.len() {
                return None;
            }
        }
        names.push(String::new());
        names.reverse();
        Some(names.join("/"))
    }

    /// Returns what has a row, or will have one: the root, and each directory that leads to an own
    /// one.
    fn recorded(&self, ino: InodeId) -> Option<&Dir> {
        let dir = self.dirs.get(&ino)?;
        (ino == InodeId::ROOT || !dir.names.is_empty()).then_some(dir)
    }

    /// Records that a name leads to a node with these attributes.
    pub(crate) fn saw_name(&mut self, place: NameAt, attr: &Attr, now: Instant) {
        let ino = attr.ino;
        if self.child(place.dir, &place.name).is_some_and(|linked| linked != ino) {
            self.saw_no_name(&place);
        }
        if attr.kind != FileKind::Directory {
            return self.saw_no_name(&place);
        }
        self.saw_attr(attr, now);
        self.saw_place(ino, place);
    }

    /// Records the place of a directory.
    fn saw_place(&mut self, ino: InodeId, place: NameAt) {
        let own = self.own;
        let is_own = |ino: InodeId| ino.site() == own;
        if is_own(place.dir) && (is_own(ino) || !self.dirs.contains_key(&ino)) {
            return;
        }
        self.move_to(ino, place);
        if is_own(ino) || self.leads(ino) {
            self.link(ino);
        }
    }

    /// Records that there is no such name.
    pub(crate) fn saw_no_name(&mut self, place: &NameAt) {
        if let Some(ino) = self.child(place.dir, &place.name) {
            self.unlink(place.clone());
            self.places.remove(&ino);
        }
    }

    /// Records a rename; of an exchange both ways.
    pub(crate) fn saw_rename(&mut self, from: &NameAt, to: &NameAt, is_exchange: bool) {
        let [moved, other] = [from, to].map(|at| self.child(at.dir, &at.name));
        self.saw_no_name(from);
        self.saw_no_name(to);
        if let Some(moved) = moved {
            self.saw_place(moved, to.clone());
        }
        if let Some(other) = other.filter(|_| is_exchange) {
            self.saw_place(other, from.clone());
        }
    }

    /// Records the directory above a directory.
    pub(crate) fn saw_parent(&mut self, ino: InodeId, parent: InodeId) {
        if let Some(dir) = self.dirs.get_mut(&ino)
            && self.places.get(&ino).is_none_or(|place| place.dir != parent)
            && dir.parent != Some(parent)
        {
            dir.parent = Some(parent);
            self.changed.insert(ino);
        }
    }

    /// Records the attributes of a node, if it is a directory of another site.
    pub(crate) fn saw_attr(&mut self, attr: &Attr, now: Instant) {
        let ino = attr.ino;
        if ino.site() == self.own || attr.kind != FileKind::Directory {
            return;
        }
        if !self.dirs.contains_key(&ino) {
            self.make_room_for_passed();
        }
        let new = SeenDir::of(attr);
        let tick = self.next_tick();
        let dir = self.dirs.entry(ino).or_default();
        dir.used = tick;
        let is_due = |last: Option<Instant>| last.is_none_or(|last| now >= last + REFRESH);
        let old = dir.seen.replace(new);
        if !new.has_xattrs && dir.access != Access::ModeOnly {
            dir.access = Access::ModeOnly;
            self.changed.insert(ino);
        }
        let is_same = |old: SeenDir| {
            let SeenDir { mode, has_xattrs, uid, gid, .. } = old;
            (mode, has_xattrs, uid, gid) == (new.mode, new.has_xattrs, new.uid, new.gid)
        };
        if !old.is_some_and(is_same) || (old != Some(new) && is_due(dir.written)) {
            self.changed.insert(ino);
        }
        // A list that changes changes the time too.
        if new.has_xattrs && dir.access_of != Some(new.ctime) && is_due(dir.asked) {
            self.unasked.insert(ino);
        }
    }

    /// Records the access list of a directory of another site.
    pub(crate) fn saw_access(&mut self, ino: InodeId, access: Access) {
        if let Access::List(list) = &access
            && !(1..=limits::ACL_BYTES).contains(&list.len())
        {
            return;
        }
        let Some(dir) = self.dirs.get_mut(&ino) else { return };
        dir.access_of = dir.seen.map(|seen| seen.ctime);
        if dir.access != access {
            dir.access = access;
            self.changed.insert(ino);
        }
    }

    /// Returns the rows that have changed since the last call, or are deleted.
    pub(crate) fn take_changes(&mut self, now: Instant) -> Vec<(InodeId, Option<AncestryRow>)> {
        let mut changes = Vec::new();
        for ino in std::mem::take(&mut self.changed) {
            let parent = self.parent(ino).filter(|_| ino != InodeId::ROOT);
            let is_recorded = self.recorded(ino).is_some();
            let Some(dir) = self.dirs.get_mut(&ino) else { continue };
            match dir.seen.filter(|_| is_recorded) {
                Some(seen) => {
                    let names = dir.names.iter().map(|(name, link)| (name.clone(), link.ino));
                    let names = names.collect();
                    let access = dir.access.clone();
                    changes.push((ino, Some(AncestryRow { parent, seen, access, names })));
                    dir.has_row = true;
                    dir.written = Some(now);
                }
                None if dir.has_row => {
                    changes.push((ino, None));
                    dir.has_row = false;
                }
                None => {}
            }
        }
        changes
    }

    /// Returns whether [`Self::take_changes`] may return something.
    pub(crate) fn has_changes(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Records that changes were not written.
    pub(crate) fn put_back(&mut self, changes: &[(InodeId, Option<AncestryRow>)]) {
        for (ino, _) in changes {
            if let Some(dir) = self.dirs.get_mut(ino) {
                dir.has_row = true;
                self.changed.insert(*ino);
            }
        }
    }

    /// Returns what is missing of directories that lead to own ones; each question once in a while.
    pub(crate) fn take_questions(&mut self, now: Instant) -> Vec<Question> {
        let mut questions = Vec::new();
        for ino in std::mem::take(&mut self.unasked) {
            let is_recorded = self.recorded(ino).is_some();
            let Some(dir) = self.dirs.get_mut(&ino).filter(|_| is_recorded) else { continue };
            dir.asked = Some(now);
            questions.push(match dir.seen {
                None => Question::Attributes(ino),
                Some(_) => Question::AccessList(ino),
            });
        }
        questions
    }

    /// Returns whether a directory of another site leads to an own one.
    fn leads(&self, ino: InodeId) -> bool {
        self.dirs.get(&ino).is_some_and(|dir| !dir.names.is_empty())
    }

    /// Records a place, and forgets the one before.
    fn move_to(&mut self, ino: InodeId, place: NameAt) {
        let old = self.places.insert(ino, place.clone());
        let Some(old) = old.filter(|old| *old != place) else { return };
        if self.child(old.dir, &old.name) == Some(ino) {
            self.unlink(old);
        }
        self.changed.insert(ino);
    }

    /// Adds the names that lead to a directory, from there up to the root or to an own directory.
    fn link(&mut self, mut ino: InodeId) {
        for _ in 0..limits::ANCESTRY_DIRS {
            let Some(place) = self.places.get(&ino).cloned() else { return };
            if place.dir.site() == self.own {
                return;
            }
            self.make_room_for(&place);
            let tick = self.next_tick();
            let dir = self.dirs.entry(place.dir).or_default();
            dir.used = tick;
            let is_new = dir.names.insert(place.name, Link { ino, used: tick }).is_none();
            if is_new {
                self.changed.insert(place.dir);
            }
            if dir.seen.is_none_or(|seen| seen.has_xattrs && dir.access == Access::Unknown)
                && dir.asked.is_none()
            {
                self.unasked.insert(place.dir);
            }
            ino = place.dir;
        }
    }

    /// Removes a name, and those that led to its directory alone.
    fn unlink(&mut self, mut place: NameAt) {
        loop {
            let Some(dir) = self.dirs.get_mut(&place.dir) else { return };
            if dir.names.remove(&place.name).is_none() {
                return;
            }
            self.changed.insert(place.dir);
            match self.places.get(&place.dir) {
                Some(above) if dir.names.is_empty() => place = above.clone(),
                _ => return,
            }
        }
    }

    /// Forgets what was not used for longest, if a name at this place would be one too many.
    fn make_room_for(&mut self, place: &NameAt) {
        let names = self.dirs.get(&place.dir).map(|dir| &dir.names);
        let Some(names) = names.filter(|names| !names.is_empty()) else {
            let leading = self.dirs.iter().filter(|(_, dir)| !dir.names.is_empty());
            if leading.clone().count() >= limits::ANCESTRY_DIRS
                && let Some((ino, _)) = leading.min_by_key(|(_, dir)| dir.used)
            {
                self.forget_names(*ino);
            }
            return;
        };
        if names.len() >= limits::ANCESTRY_NAMES
            && !names.contains_key(&place.name)
            && let Some((name, _)) = names.iter().min_by_key(|(_, link)| link.used)
        {
            let oldest = NameAt { dir: place.dir, name: name.clone() };
            self.saw_no_name(&oldest);
        }
    }

    fn forget_names(&mut self, ino: InodeId) {
        let names: Vec<Name> =
            self.dirs.get(&ino).into_iter().flat_map(|dir| dir.names.keys().cloned()).collect();
        for name in names {
            self.saw_no_name(&NameAt { dir: ino, name });
        }
    }

    /// Forgets the directory that leads nowhere and was not used for longest, if one more would be
    /// too many.
    fn make_room_for_passed(&mut self) {
        let passed = self.dirs.iter().filter(|(ino, dir)| {
            dir.names.is_empty() && **ino != InodeId::ROOT && !self.changed.contains(ino)
        });
        if passed.clone().count() >= limits::ANCESTRY_DIRS
            && let Some((ino, _)) = passed.min_by_key(|(_, dir)| dir.used)
        {
            let ino = *ino;
            self.dirs.remove(&ino);
            self.places.remove(&ino);
        }
    }

    fn next_tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }
}

#[cfg(test)]
mod tests;
