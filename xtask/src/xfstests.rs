//! `xfstests`: its generic quick group on Pelago and on ext4 beside. What passes on ext4 passes on
//! Pelago too, but for what is committed with its reason.

mod lists;
mod namespace;
mod tree;
mod verdicts;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use self::lists::Lists;
use self::namespace::Place;
use self::tree::Tree;
use self::verdicts::Verdicts;
use crate::manner::Manner;
use crate::{Answer, machine, mounted, workspace};

/// The committed lists, in `conformance/xfstests`.
pub(crate) const LISTS: [&str; 3] = ["excluded.txt", "failing.txt", "notrun.txt"];

/// Runs the named tests, or the quick group, on both; compares with the lists.
pub(crate) fn run(arguments: &[String]) -> Answer {
    let (manner, rest) = Manner::take(arguments)?;
    let Some((path, names)) = rest.split_first() else {
        return Err("needs the folder of a built source tree of xfstests".to_owned());
    };
    if manner.account.is_some() {
        return Err("runs as root alone: takes no --user".to_owned());
    }
    let tree = Tree::open(Path::new(path))?;
    let lists = Lists::read(&conformance())?;
    let tests =
        if names.is_empty() { lists.without_excluded(&tree.quick()) } else { tree.named(names)? };
    if !machine::is_root() {
        return Err("needs root: it mounts, and makes loop devices".to_owned());
    }
    let logs = mounted::log_folder("xfstests")?;
    let pelago = mounted::build()?;
    let way = manner.way.unwrap_or("auto");

    let place = |system| Place { system, way, tree: &tree.path, logs: &logs, pelago: &pelago };
    let ours = measure(&place("pelago"), &tests)?;
    let theirs = measure(&place("ext4"), &tests)?;
    let mut findings = lists.compare(&tests, &ours, &theirs);
    if names.is_empty() {
        findings.extend(lists.unknown(&tree.quick()));
    }
    for finding in &findings {
        println!("{finding}");
    }
    println!("passed on ext4 and not on Pelago: {}", lists::behind(&tests, &ours, &theirs));
    let (passed, failed, skipped) = ours.counts();
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs the tests on one of the two, and prints how many ended how.
fn measure(place: &Place<'_>, tests: &[String]) -> Result<Verdicts, String> {
    println!("{}: {} tests", place.title(), tests.len());
    let start = Instant::now();
    let verdicts = place.run(tests)?;
    let (passed, failed, skipped) = verdicts.counts();
    let seconds = start.elapsed().as_secs();
    let title = place.title();
    println!("{title}: {passed} passed, {failed} failed, {skipped} not run, {seconds} s");
    Ok(verdicts)
}

/// Our scripts and lists.
fn conformance() -> std::path::PathBuf {
    workspace::root().join("conformance/xfstests")
}
