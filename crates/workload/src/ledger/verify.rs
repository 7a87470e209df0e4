//! Looks for the state that each folder has, and compares it with what was promised.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use super::book;
use super::plan::Folder;
use super::states::{last_state, nearest};
use super::{LedgerError, folder_of, seed_of};

/// The syncs of one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LevelCounts {
    /// Syncs that were answered.
    pub answered: usize,
    /// Those of them that have not happened.
    pub missing: usize,
}

/// What has become of the steps of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fates {
    /// Steps that were answered.
    pub answered: usize,
    /// Those of them that have not happened.
    pub missing: usize,
    /// The syncs of each level.
    pub levels: BTreeMap<String, LevelCounts>,
    /// One sentence for each folder that is not as it must be.
    pub problems: Vec<String>,
}

impl fmt::Display for Fates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} steps are missing", self.missing, self.answered)?;
        for (level, LevelCounts { answered, missing }) in &self.levels {
            write!(f, "; of {answered} syncs at {level} {missing}")?;
        }
        self.problems.iter().try_for_each(|problem| write!(f, "\nproblem: {problem}"))
    }
}

/// Compares the folders below `root` with the ledger of a run with this seed. Syncs of the levels
/// in `surviving` must be there; the problems are in the result.
///
/// # Errors
/// [`LedgerError::Ledger`], [`LedgerError::Line`] or [`LedgerError::Folder`] if the ledger or a
/// folder cannot be read.
pub fn verify(
    root: &Path,
    ledger: &Path,
    seed: u64,
    surviving: &[&str],
) -> Result<Fates, LedgerError> {
    let mut fates = Fates::default();
    for (writer, course) in book::read(ledger, seed, surviving)?.iter().enumerate() {
        let path = folder_of(writer);
        let found = read(&root.join(&path))
            .map_err(|source| LedgerError::Folder { path: path.clone(), source })?;
        let happened = last_state(seed_of(seed, writer), course, &found);
        if happened.is_none() {
            fates.problems.push(format!(
                "{path} has no state of its {} steps; {} were answered and {} promised; {}",
                course.begun,
                course.answered,
                course.promised,
                nearest(seed_of(seed, writer), course, &found)
            ));
        }
        let happened = happened.unwrap_or(0);
        if happened < course.promised {
            fates.problems.push(format!(
                "{path} has the state after {happened} steps, and {} of {} were promised",
                course.promised, course.answered
            ));
        }
        fates.answered += course.answered;
        fates.missing += course.answered.saturating_sub(happened);
        let counts = fates.levels.entry(course.level.clone()).or_default();
        counts.answered += course.synced.len();
        counts.missing += course.synced.iter().filter(|step| **step > happened).count();
    }
    Ok(fates)
}

fn read(path: &Path) -> Result<Folder, rustix::io::Errno> {
    let errno = |why: std::io::Error| {
        rustix::io::Errno::from_io_error(&why).unwrap_or(rustix::io::Errno::IO)
    };
    let mut folder = Folder::new();
    for entry in fs::read_dir(path).map_err(errno)? {
        let entry = entry.map_err(errno)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        folder.insert(name, fs::read(entry.path()).map_err(errno)?);
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use pelago_random::bytes_of;

    use super::*;
    use crate::ledger::plan::{Plan, Step, written};
    use crate::ledger::run;

    const SEED: u64 = 7;
    const STEPS: usize = 200;

    /// Runs two writers on a plain folder, and returns what `change` makes of the verdict.
    fn after(surviving: &[&str], change: impl Fn(&Path, &Path)) -> Fates {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let ledger = folder.path().join("ledger");
        fs::create_dir(&root).unwrap();
        let answered = run(&root, &ledger, SEED, &["remote", "local"], Some(STEPS)).unwrap();
        assert_eq!((answered.steps, answered.died), (2 * STEPS, None));
        change(&root, &ledger);
        verify(&root, &ledger, SEED, surviving).unwrap()
    }

    /// Makes the folder of a writer as it is after so many steps, and a part of the next one.
    fn go_back(root: &Path, writer: usize, steps: usize, part: bool) {
        let folder = root.join(folder_of(writer));
        let mut plan = Plan::new(seed_of(SEED, writer));
        (0..steps).for_each(|_| drop(plan.step()));
        let mut state = plan.folder.clone();
        if part {
            let Step::Write { name, offset, seed, .. } = plan.step() else { panic!("a write") };
            let bytes = written(&state[&name], offset, &bytes_of(seed, 1));
            state.insert(name, bytes);
        }
        fs::remove_dir_all(&folder).unwrap();
        fs::create_dir(&folder).unwrap();
        state.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).unwrap());
    }

    /// Rewrites a ledger as if one writer had done everything before the other one began.
    fn put_in_turn(ledger: &Path, writers: [usize; 2]) {
        let text = fs::read_to_string(ledger).unwrap();
        let mut lines = Vec::new();
        let mut of = [Vec::new(), Vec::new()];
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["l", ..] => lines.push(line),
                [_, writer, _] => of[writer.parse::<usize>().unwrap()].push(line),
                _ => panic!("{line}"),
            }
        }
        writers.iter().for_each(|writer| lines.extend(&of[*writer]));
        fs::write(ledger, lines.join("\n") + "\n").unwrap();
    }

    /// Returns the step before the last write of a writer that is followed by a sync.
    fn before_a_write(writer: usize) -> usize {
        let mut plan = Plan::new(seed_of(SEED, writer));
        let steps: Vec<Step> = (0..STEPS).map(|_| plan.step()).collect();
        let is_write = |step: &Step| matches!(step, Step::Write { length, .. } if *length > 1);
        let sync = steps.iter().rposition(|step| matches!(step, Step::Sync { .. })).unwrap();
        steps[..sync].iter().rposition(is_write).unwrap()
    }

    #[test]
    fn a_folder_on_which_everything_happened_lacks_nothing() {
        let fates = after(&["remote", "local"], |_, _| {});
        assert_eq!((fates.answered, fates.missing), (2 * STEPS, 0), "{fates}");
        assert_eq!(fates.problems, [""; 0]);
        assert!(fates.levels["remote"].answered > 20 && fates.levels["local"].answered > 20);
    }

    #[test]
    fn an_older_state_is_a_problem_only_of_a_level_that_survives() {
        for part in [false, true] {
            let back = |root: &Path, _: &Path| go_back(root, 1, before_a_write(1), part);
            let fates = after(&[], back);
            assert_eq!(fates.problems, [""; 0]);
            assert!(fates.missing > 0 && fates.levels["local"].missing > 0, "{fates}");
            let fates = after(&["local"], back);
            assert_eq!(fates.problems.len(), 1, "{fates}");
            assert!(fates.problems[0].contains("were promised"), "{fates}");
        }
    }

    #[test]
    fn bytes_that_are_behind_names_are_missing_and_no_problem_unless_promised() {
        let back = |root: &Path, ledger: &Path| {
            // A later sync of the other writer would cover it.
            put_in_turn(ledger, [0, 1]);
            let step = before_a_write(1);
            let mut plan = Plan::new(seed_of(SEED, 1));
            (0..step).for_each(|_| drop(plan.step()));
            let old = plan.folder.clone();
            let name = plan.step().names()[0].to_owned();
            let path = root.join(folder_of(1)).join(&name);
            (step + 1..STEPS).for_each(|_| drop(plan.step()));
            assert!(plan.folder.contains_key(&name), "choose another seed");
            fs::write(path, &old[&name]).unwrap();
        };
        let fates = after(&["remote"], back);
        assert_eq!(fates.problems, [""; 0]);
        assert_eq!(fates.missing, STEPS - before_a_write(1), "{fates}");
        let fates = after(&["local"], back);
        assert_eq!(fates.problems.len(), 1, "{fates}");
    }

    /// The writers have taken turns, so a late sync of one covers early steps of the other.
    #[test]
    fn a_sync_covers_what_others_did_before() {
        let fates = after(&["remote"], |root, ledger| {
            put_in_turn(ledger, [1, 0]);
            go_back(root, 1, 3, false);
        });
        assert_eq!(fates.problems.len(), 1, "{fates}");
    }

    #[test]
    fn a_state_that_never_was_is_a_problem() {
        let fates = after(&[], |root, _| {
            let mut files = fs::read_dir(root.join(folder_of(0))).unwrap();
            let path = files.next().unwrap().unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            bytes.push(b'x');
            fs::write(&path, bytes).unwrap();
        });
        assert_eq!(fates.problems.len(), 1, "{fates}");
        assert!(fates.problems[0].contains("no state"), "{fates}");
    }
}
