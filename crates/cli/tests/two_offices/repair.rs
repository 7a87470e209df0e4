//! Damage in the folder of an office, and its repair.

use std::fs;
use std::path::{Path, PathBuf};

use crate::harness::damage::delete_names;
use crate::harness::program::until;
use crate::two_offices::office::Offices;

/// The second office is not the home of the root, in which a repair puts what has lost its name: it
/// makes a directory, whose name appears in both offices once it is up again.
#[test]
fn what_has_lost_its_name_gets_one_in_both_offices() {
    let Some(offices) = Offices::new() else { return };
    offices.berlin.types(
        "cd ~/berlin/files && mkdir own && echo lost > own/one && ln own/one own/two && \
         echo whole > own/three",
    );
    offices.berlin.types("pelago unmount -V ~/berlin --timeout 100");
    let dir = offices.berlin.home.join("berlin");
    for name in ["one", "two"] {
        delete_names(&dir, name);
    }
    offices.berlin.types("pelago check ~/berlin --apply");
    let checked = offices.berlin.types("pelago check ~/berlin --json").json();
    assert_eq!(checked["whole"], true, "{checked}");
    offices.up_there();
    for tree in [offices.tree(), offices.tree_there()] {
        let mut found = Vec::new();
        until("the directory of what was lost has its name", || {
            found = lost_dirs(&tree);
            !found.is_empty()
        });
        assert_eq!(found.len(), 1, "{found:?}");
        let lost: Vec<_> = fs::read_dir(&found[0]).unwrap().map(Result::unwrap).collect();
        assert_eq!(lost.len(), 1, "{lost:?}");
        assert_eq!(fs::read_to_string(lost[0].path()).unwrap(), "lost\n");
        assert_eq!(fs::read_to_string(tree.join("own/three")).unwrap(), "whole\n");
    }
    // It is a directory as any other.
    offices.first.types("rm -r ~/pelago/files/lost+found.*");
    assert!(lost_dirs(&offices.tree_there()).is_empty());
    offices.finish();
}

fn lost_dirs(tree: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(tree).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().contains("lost+found.")).collect()
}
