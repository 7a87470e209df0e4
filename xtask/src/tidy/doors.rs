//! The one opener of files in folders that others may write (decision 30): the crate `folder`.
//! Other ways to open, make or remove what a path names are listed here by file, each with its
//! reason.

use super::Findings;
use super::sizes::production;
use super::tree::{Source, Tree};

/// Ways of the standard library, and of rustix with a path from the current folder.
const WAYS: &[&str] = &[
    "File::open(",
    "File::create(",
    "File::create_new(",
    "File::options()",
    "OpenOptions::new()",
    "DirBuilder::new()",
    "fs::write(",
    "fs::read(",
    "fs::read_to_string(",
    "fs::read_dir(",
    "fs::create_dir(",
    "fs::create_dir_all(",
    "fs::remove_file(",
    "fs::remove_dir(",
    "fs::remove_dir_all(",
    "fs::rename(",
    "fs::copy(",
    "fs::hard_link(",
    "fs::set_permissions(",
    "openat(CWD",
    "openat2(CWD",
];

/// Crates that are not shipped, or that measure and test in folders of their own.
const FREE: &[&str] = &["bench", "chart", "lossfs", "random", "sim", "workload"];

/// A file that may use such ways, and why.
struct Door {
    path: &'static str,
    reason: &'static str,
}

const fn door(path: &'static str, reason: &'static str) -> Door {
    Door { path, reason }
}

const DOORS: &[Door] = &[
    door("crates/check/src/salvage.rs", "makes or examines the folder that the user gave"),
    door("crates/check/src/salvage/report.rs", "makes a new file in the folder of a salvage"),
    door("crates/check/src/salvage/target.rs", "opens the folder that the user gave"),
    door("crates/cli/src/complete/ask.rs", "lists folders of the mount, for completions"),
    door(
        "crates/cli/src/control.rs",
        "removes a socket below the folder's descriptor (`proc_path`)",
    ),
    door(
        "crates/cli/src/control/ask.rs",
        "opens a socket below the folder's descriptor, without following a link",
    ),
    door("crates/cli/src/control_file.rs", "opens the hidden file of a mount, and examines it"),
    door("crates/cli/src/credential.rs", "reads the credential in the file that the user gave"),
    door(
        "crates/cli/src/daemon/neighbours.rs",
        "removes the folder that a join has just made, if it fails",
    ),
    door("crates/cli/src/daemon/sessions.rs", "removes a socket below the folder's descriptor"),
    door("crates/cli/src/detach.rs", "opens /dev/null"),
    door("crates/cli/src/dying.rs", "reads /proc"),
    door("crates/cli/src/guard/process.rs", "reads /proc"),
    door("crates/cli/src/key_argument.rs", "reads the public key in the file that the user gave"),
    door("crates/cli/src/moment/zone.rs", "reads the time zone of the machine, which is a link"),
    door(
        "crates/cli/src/verbs/attach.rs",
        "makes the folder to mount on in the user's working folder, and removes it if that fails",
    ),
    door(
        "crates/cli/src/verbs/conflicts.rs",
        "makes a new file at the path that the user gave, and removes it if that fails",
    ),
    door("crates/cli/src/verbs/bench/find.rs", "lists a volume that the measurement has made"),
    door(
        "crates/cli/src/verbs/bench/million.rs",
        "works in a folder that the measurement has made",
    ),
    door(
        "crates/cli/src/verbs/bench/scratch.rs",
        "makes the folder of a measurement, new, and removes it",
    ),
    door("crates/cli/src/verbs/bench/svg_file.rs", "writes to the path that the user gave"),
    door("crates/cli/src/verbs/bench/tree.rs", "works in a folder that the measurement has made"),
    door("crates/cli/src/verbs/bench/volume.rs", "reads /proc"),
    door("crates/folder/src/lib.rs", "is the opener"),
    door("crates/fuse/src/ring.rs", "reads /sys"),
    door("crates/fuse/src/ring/retries.rs", "reads /proc"),
    door("crates/fuse/src/ring/system.rs", "reads /proc"),
    door("crates/fuse/src/waiters/thread.rs", "reads /proc"),
    door("crates/http/src/fetch/workspace.rs", "reads /proc"),
    door("crates/mount/src/busy.rs", "reads /proc"),
    door("crates/mount/src/connection.rs", "opens the control file of a connection in /sys"),
    door("crates/mount/src/mountinfo.rs", "reads /proc"),
    door("crates/mount/src/mounting/device.rs", "writes /sys, opens /dev/fuse"),
    door("crates/mount/src/mounting/point.rs", "opens the mount point that the user gave"),
    door("crates/mount/src/process.rs", "reads /proc"),
    door("crates/mount/src/state.rs", "reads /proc"),
    door("crates/net/src/key/file.rs", "makes the folder of the user's key, below HOME"),
    door("crates/net/src/own_file.rs", "has an opener of its own, for files of text"),
    door(
        "crates/net/src/remote/dial.rs",
        "opens the user's folder, for a short path of its socket",
    ),
    door("crates/net/src/serve.rs", "removes a socket below the folder's descriptor"),
    door("crates/net/src/serve/idle.rs", "removes a socket below the folder's descriptor"),
    door(
        "crates/store/src/content/extent.rs",
        "opens a file below the descriptor of a folder of ours again",
    ),
    door(
        "crates/server/src/mirrors/adopt.rs",
        "moves the folder that the user gave below a folder of ours",
    ),
    door(
        "crates/server/src/mirrors/kept.rs",
        "removes a tree of any depth below a folder of ours, and follows no link",
    ),
    door("crates/store/src/content/spread.rs", "reads /sys and /proc"),
    door("crates/store/src/owner/process_record.rs", "reads /proc"),
    door(
        "crates/store/src/table/fjall.rs",
        "works below the descriptor of the table's folder, which is ours",
    ),
    door(
        "crates/store/src/table/fjall/carry.rs",
        "works below the descriptors of the folders of two tables",
    ),
    door(
        "crates/store/src/table/fjall/disk_space.rs",
        "works below the descriptor of the table's folder",
    ),
    door(
        "crates/store/src/table/fjall/journal.rs",
        "works below the descriptor of the table's folder",
    ),
    door(
        "crates/store/src/table/fjall/manifest.rs",
        "works below the descriptor of the table's folder",
    ),
    door(
        "crates/store/src/table/fjall/opening.rs",
        "works below the descriptor of the table's folder",
    ),
    door(
        "crates/store/src/table/fjall/runs.rs",
        "reads below the descriptor of the table's folder",
    ),
    door(
        "crates/store/src/table/fjall/salvage.rs",
        "reads below the descriptor of the table's folder",
    ),
    door(
        "crates/store/src/table/fjall/sync_record.rs",
        "works below the descriptor of the table's folder",
    ),
    door(
        "crates/store/src/table/fjall/tail.rs",
        "works below the descriptor of the table's folder",
    ),
    door(
        "crates/store/src/table/fjall/verify.rs",
        "works below the descriptor of the table's folder",
    ),
    door(
        "crates/store/src/volume.rs",
        "makes the folder of a new volume at the path that the user gave",
    ),
];

/// Reports ways past the opener in files that are not listed, and listed files without any.
pub(super) fn check(tree: &Tree, found: &mut Findings) {
    check_with(tree, DOORS, found);
}

fn check_with(tree: &Tree, doors: &[Door], found: &mut Findings) {
    let mut used = vec![false; doors.len()];
    for file in tree.rust().filter(|file| is_shipped(&file.path)) {
        let listed = doors.iter().position(|door| door.path == file.path);
        for (line, way) in ways(file) {
            match listed {
                Some(at) => used[at] = true,
                None => {
                    let what = format!(
                        "`{way}` past the opener: use the crate `folder`, or say why \
                                        not in xtask/src/tidy/doors.rs"
                    );
                    found.at(&file.path, line, what);
                }
            }
        }
    }
    for (door, used) in doors.iter().zip(used) {
        if !used || door.reason.is_empty() {
            found.of(door.path, "is listed in xtask/src/tidy/doors.rs without need, or reason");
        }
    }
}

fn is_shipped(path: &str) -> bool {
    let package = path.strip_prefix("crates/").and_then(|rest| rest.split_once("/src/"));
    package
        .is_some_and(|(package, inner)| !FREE.contains(&package) && !inner.starts_with("testing"))
}

/// Returns the line (from 1) of each such way in code that is no test and no comment.
fn ways(file: &Source) -> Vec<(usize, &'static str)> {
    let lines = production(file).lines().enumerate();
    let code = lines.filter(|(_, line)| !line.trim_start().starts_with("//"));
    code.filter_map(|(index, line)| {
        WAYS.iter().find(|way| line.contains(**way)).map(|way| (index + 1, *way))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found_in(path: &str, text: &str, doors: &[Door]) -> Vec<String> {
        let file = Source { path: path.to_owned(), text: text.to_owned() };
        let mut found = Findings::default();
        check_with(&Tree::of(vec![file]), doors, &mut found);
        found.0
    }

    #[test]
    fn a_way_past_the_opener_is_found_unless_it_is_listed() {
        let path = "crates/http/src/a.rs";
        let text = "fn f() { let a = File::open(path); }\n";
        assert_eq!(found_in(path, text, &[]).len(), 1);
        assert!(found_in(path, text, &[door(path, "why")]).is_empty());
        assert_eq!(found_in(path, text, &[door(path, "")]).len(), 1);
        assert_eq!(found_in(path, "fn f() {}\n", &[door(path, "why")]).len(), 1);
    }

    #[test]
    fn tests_comments_and_crates_that_are_not_shipped_are_free() {
        let test = "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    fn g() { fs::write(a, b) }\n}\n";
        assert!(found_in("crates/http/src/a.rs", test, &[]).is_empty());
        assert!(found_in("crates/http/src/a.rs", "// File::open(x)\n", &[]).is_empty());
        let text = "fn f() { fs::write(a, b) }\n";
        for free in ["crates/bench/src/a.rs", "crates/http/tests/a.rs", "xtask/src/a.rs"] {
            assert!(found_in(free, text, &[]).is_empty(), "{free}");
        }
    }
}
