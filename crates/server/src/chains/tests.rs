//! Chains of directories: what is recorded after which answers.

use super::*;

const OWN: u16 = 1;

fn foreign(counter: u64) -> InodeId {
    InodeId::new(0, 0, counter).unwrap()
}

fn own(counter: u64) -> InodeId {
    InodeId::new(OWN, 0, counter).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn at(dir: InodeId, text: &str) -> NameAt {
    NameAt { dir, name: name(text) }
}

fn dir(ino: InodeId) -> Attr {
    Attr { mode: 0o755, links: 2, ..Attr::empty(ino, FileKind::Directory) }
}

/// The record, with the rows that it has written.
struct Rig {
    chains: Chains,
    rows: BTreeMap<InodeId, AncestryRow>,
    now: Instant,
    /// Number of rows that were written.
    written: usize,
}

impl Rig {
    fn new() -> Self {
        let chains = Chains::new(OWN, vec![]);
        Self { chains, rows: BTreeMap::new(), now: Instant::now(), written: 0 }
    }

    fn sees(&mut self, place: NameAt, attr: Attr) {
        self.chains.saw_name(place, &attr, self.now);
        self.writes();
    }

    fn writes(&mut self) {
        for (ino, row) in self.chains.take_changes(self.now) {
            self.written += 1;
            match row {
                Some(row) => drop(self.rows.insert(ino, row)),
                None => drop(self.rows.remove(&ino).expect("a row is deleted once")),
            }
        }
    }

    /// Walks `/a/b/own` from the root.
    fn walks(&mut self) {
        self.chains.saw_attr(&dir(InodeId::ROOT), self.now);
        self.sees(at(InodeId::ROOT, "a"), dir(foreign(10)));
        self.sees(at(foreign(10), "b"), dir(foreign(11)));
        self.sees(at(foreign(11), "own"), dir(own(5)));
    }

    /// The next run, which has the rows alone.
    fn restarts(&mut self) {
        let rows = self.rows.clone().into_iter().collect();
        self.chains = Chains::new(OWN, rows);
    }

    fn leads(&self, path: &[&str]) -> Option<InodeId> {
        path.iter().try_fold(InodeId::ROOT, |dir, text| self.chains.child(dir, &name(text)))
    }
}

#[test]
fn a_walk_to_an_own_directory_is_recorded_and_outlives_the_run() {
    let mut rig = Rig::new();
    rig.walks();
    rig.sees(at(InodeId::ROOT, "not-on-the-way"), dir(foreign(20)));
    for run in 0..2 {
        assert_eq!(rig.leads(&["a", "b", "own"]), Some(own(5)), "run {run}");
        assert_eq!(rig.leads(&["not-on-the-way"]), None);
        assert_eq!(rig.chains.parent(own(5)), Some(foreign(11)));
        assert_eq!(rig.chains.parent(foreign(11)), Some(foreign(10)));
        assert_eq!(rig.chains.parent(InodeId::ROOT), Some(InodeId::ROOT));
        let root = rig.chains.attr(InodeId::ROOT).unwrap();
        assert_eq!((root.mode, root.volatile), (0o755, true));
        rig.restarts();
    }
    let known: Vec<_> = rig.rows.keys().copied().collect();
    assert_eq!(known, [InodeId::ROOT, foreign(10), foreign(11)]);
}

/// A warm path writes nothing; times alone once in a while.
#[test]
fn what_is_known_is_not_written_again() {
    let mut rig = Rig::new();
    rig.walks();
    rig.walks();
    let written = rig.written;
    for second in 0..50 {
        rig.walks();
        let mtime = Time { seconds: second, nanos: 0 };
        rig.chains.saw_attr(&Attr { mtime, size: 7, ..dir(foreign(10)) }, rig.now);
        rig.writes();
    }
    assert_eq!(rig.written, written);
    rig.now += REFRESH;
    let mtime = Time { seconds: 100, nanos: 0 };
    rig.chains.saw_attr(&Attr { mtime, ..dir(foreign(10)) }, rig.now);
    rig.writes();
    assert_eq!(rig.rows[&foreign(10)].seen.mtime, mtime);
    assert_eq!(rig.written, written + 1);
    // What decides who may pass is written at once.
    rig.chains.saw_attr(&Attr { mode: 0o700, ..dir(foreign(10)) }, rig.now);
    rig.writes();
    assert_eq!(rig.rows[&foreign(10)].seen.mode, 0o700);
}

#[test]
fn a_name_that_is_gone_or_leads_elsewhere_is_corrected() {
    let mut rig = Rig::new();
    rig.walks();
    rig.restarts();
    // The directory has another name by now.
    rig.chains.saw_no_name(&at(InodeId::ROOT, "a"));
    rig.writes();
    assert_eq!(rig.leads(&["a"]), None);
    rig.sees(at(InodeId::ROOT, "renamed"), dir(foreign(10)));
    assert_eq!(rig.leads(&["renamed", "b", "own"]), Some(own(5)));
    // The new name is seen first.
    rig.sees(at(foreign(10), "c"), dir(foreign(11)));
    assert_eq!(
        (rig.leads(&["renamed", "b"]), rig.leads(&["renamed", "c", "own"])),
        (None, Some(own(5)))
    );
    // Another directory has the name.
    rig.sees(at(foreign(10), "c"), dir(foreign(12)));
    assert_eq!(rig.leads(&["renamed"]), None, "it leads to no own directory any more");
    // A file has the name.
    rig.walks();
    rig.sees(at(foreign(10), "b"), Attr::empty(foreign(13), FileKind::Regular));
    assert_eq!(rig.leads(&["a", "b"]), None);
    rig.restarts();
    assert_eq!(rig.leads(&["a"]), None);
    // The root stays.
    assert_eq!(rig.rows.keys().copied().collect::<Vec<_>>(), [InodeId::ROOT, foreign(11)]);
}

#[test]
fn a_rename_through_here_moves_what_is_known() {
    let mut rig = Rig::new();
    rig.walks();
    rig.sees(at(InodeId::ROOT, "second"), dir(own(6)));
    rig.chains.saw_rename(&at(foreign(11), "own"), &at(InodeId::ROOT, "new"), false);
    assert_eq!(rig.leads(&["new"]), Some(own(5)));
    assert_eq!(rig.leads(&["a"]), None);
    rig.chains.saw_rename(&at(InodeId::ROOT, "new"), &at(InodeId::ROOT, "second"), true);
    assert_eq!((rig.leads(&["new"]), rig.leads(&["second"])), (Some(own(6)), Some(own(5))));
}

/// At the founding site the first directories of a path are own ones.
#[test]
fn a_chain_ends_at_an_own_directory() {
    let mut rig = Rig::new();
    rig.sees(at(own(2), "theirs"), dir(foreign(10)));
    rig.sees(at(foreign(10), "own"), dir(own(5)));
    assert_eq!(rig.chains.child(own(2), &name("theirs")), None, "that is a row of the tree");
    assert_eq!(rig.chains.child(foreign(10), &name("own")), Some(own(5)));
    assert_eq!(rig.chains.parent(foreign(10)), Some(own(2)));
    assert_eq!(rig.rows[&foreign(10)].parent, Some(own(2)));
}

#[test]
fn what_is_missing_is_asked_once() {
    let mut rig = Rig::new();
    // A program was in the directory already: its attributes were not seen.
    rig.sees(at(foreign(10), "own"), dir(own(5)));
    assert!(rig.rows.is_empty());
    assert_eq!(rig.chains.take_questions(rig.now), [Question::Attributes(foreign(10))]);
    assert_eq!(rig.chains.take_questions(rig.now), []);
    let listed =
        |seconds| Attr { has_xattrs: true, ctime: Time { seconds, nanos: 0 }, ..dir(foreign(10)) };
    rig.now += REFRESH;
    rig.chains.saw_attr(&listed(1), rig.now);
    assert_eq!(rig.chains.take_questions(rig.now), [Question::AccessList(foreign(10))]);
    rig.chains.saw_access(foreign(10), Access::List(b"list".to_vec()));
    rig.writes();
    assert_eq!(rig.rows[&foreign(10)].access, Access::List(b"list".to_vec()));
    rig.now += REFRESH;
    rig.chains.saw_attr(&listed(1), rig.now);
    assert_eq!(rig.chains.take_questions(rig.now), []);
    // It has changed, perhaps its list.
    rig.chains.saw_attr(&listed(2), rig.now);
    assert_eq!(rig.chains.take_questions(rig.now), [Question::AccessList(foreign(10))]);
    // Without attributes it has none.
    rig.chains.saw_attr(&dir(foreign(10)), rig.now);
    assert_eq!(rig.chains.access(foreign(10)), Some(&Access::ModeOnly));
    // Of what leads nowhere nothing is known.
    rig.sees(at(InodeId::ROOT, "p"), dir(foreign(20)));
    assert_eq!((rig.chains.attr(foreign(20)), rig.chains.access(foreign(20))), (None, None));
}

#[test]
fn a_row_that_was_not_written_is_written_later() {
    let mut rig = Rig::new();
    rig.chains.saw_attr(&dir(InodeId::ROOT), rig.now);
    rig.chains.saw_name(at(InodeId::ROOT, "own"), &dir(own(5)), rig.now);
    let failed = rig.chains.take_changes(rig.now);
    assert!(!rig.chains.has_changes());
    rig.chains.put_back(&failed);
    rig.writes();
    assert_eq!(rig.rows[&InodeId::ROOT].names, [(name("own"), own(5))]);
}

#[test]
fn what_was_not_used_for_longest_is_forgotten() {
    let mut rig = Rig::new();
    rig.chains.saw_attr(&dir(InodeId::ROOT), rig.now);
    let dirs = limits::ANCESTRY_DIRS as u64;
    for number in 0..dirs + 10 {
        rig.sees(at(InodeId::ROOT, "same"), dir(foreign(100 + number)));
        rig.sees(at(foreign(100 + number), "own"), dir(own(100 + number)));
    }
    assert!(rig.rows.len() <= limits::ANCESTRY_DIRS, "{}", rig.rows.len());
    assert_eq!(rig.leads(&["same", "own"]), Some(own(109 + dirs)));
    let names = limits::ANCESTRY_NAMES as u64;
    for number in 0..names + 10 {
        rig.sees(at(foreign(7), &format!("n{number}")), dir(own(5000 + number)));
        rig.sees(at(foreign(7), "n0"), dir(own(5000)));
    }
    rig.sees(at(InodeId::ROOT, "full"), dir(foreign(7)));
    assert_eq!(rig.rows[&foreign(7)].names.len(), limits::ANCESTRY_NAMES);
    assert_eq!(rig.leads(&["full", "n0"]), Some(own(5000)), "it was used all the time");
    assert_eq!(rig.leads(&["full", "n1"]), None);
    for number in 0..2 * dirs {
        rig.sees(at(InodeId::ROOT, &format!("p{number}")), dir(foreign(20_000 + number)));
    }
    assert!(rig.chains.dirs.len() <= 2 * limits::ANCESTRY_DIRS + 1);
    assert!(rig.chains.places.len() <= 2 * limits::ANCESTRY_DIRS + rig.rows.len() + 300);
}
