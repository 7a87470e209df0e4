//! `xfstests`: its generic quick group, on Pelago and on ext4. A test that passes on ext4 must pass
//! on Pelago, or a committed list gives the reason.

mod lists;
mod namespace;
mod tree;
mod verdicts;

use std::path::Path;
use std::time::Instant;

use pelago_testbed::{VerbResult, machine, mounted, run_as, verdict, workspace};

use self::lists::Lists;
use self::namespace::Run;
use self::tree::Tree;
use self::verdicts::Verdicts;

/// The committed lists, in `conformance/xfstests`.
pub(crate) const LISTS: [&str; 3] = ["excluded.txt", "failing.txt", "notrun.txt"];

/// Runs the named tests, or the quick group, on both systems, and compares them with the lists.
pub(crate) fn run(arguments: &[String]) -> VerbResult {
    run_as::enter("xfstests", arguments, |run_as, rest| {
        let Some((path, names)) = rest.split_first() else {
            return Err("needs the folder of a built source tree of xfstests".to_owned());
        };
        if run_as.account.is_some() || run_as.is_far() {
            return Err("runs as root on the server's mount: takes no --user, no --far".to_owned());
        }
        let tree = Tree::open(Path::new(path))?;
        if !machine::is_root() {
            return Err("needs root: it mounts file systems and makes loop devices".to_owned());
        }
        compare(&tree, names, run_as.path.unwrap_or("auto"))
    })
}

fn compare(tree: &Tree, names: &[String], path: &str) -> VerbResult {
    let lists = Lists::read(&conformance())?;
    let quick = tree.quick();
    let tests = if names.is_empty() { lists.without_excluded(&quick) } else { tree.named(names)? };
    let logs = mounted::log_folder("xfstests")?;
    let pelago = mounted::build()?;
    let run = |system| Run { system, path, tree: &tree.path, logs: &logs, pelago: &pelago };
    let ours = measure(&run("pelago"), &tests)?;
    let theirs = measure(&run("ext4"), &tests)?;
    let mut findings = lists.compare(&tests, &ours, &theirs);
    if names.is_empty() {
        findings.extend(lists.unknown(&quick));
    }
    for finding in &findings {
        println!("{finding}");
    }
    println!("passed on ext4 and not on Pelago: {}", lists::behind(&tests, &ours, &theirs));
    println!("{}", ours.counts());
    verdict(findings.is_empty())
}

/// Runs the tests on one of the two systems, and prints the counts.
fn measure(run: &Run<'_>, tests: &[String]) -> Result<Verdicts, String> {
    println!("{}: {} tests", run.title(), tests.len());
    let start = Instant::now();
    let verdicts = run.run(tests)?;
    println!("{}: {}, {} s", run.title(), verdicts.counts(), start.elapsed().as_secs());
    Ok(verdicts)
}

/// Returns the folder of our scripts and lists.
fn conformance() -> std::path::PathBuf {
    workspace::root().join("conformance/xfstests")
}
