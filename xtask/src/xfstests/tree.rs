//! A source tree of xfstests, fetched and built by the developer.

use std::fs;
use std::path::{Path, PathBuf};

/// Files of a built tree: programs that `make` builds, and the list of groups that it writes.
const BUILT: &[&str] = &["check", "ltp/fsstress", "src/lstat64", "tests/generic/group.list"];
/// Debian's packages that the build and the tests need.
const PACKAGES: &str = "acl attr automake bc dump e2fsprogs fio gawk gcc indent libacl1-dev \
                        libaio-dev libattr1-dev libcap-dev libgdbm-compat-dev libgdbm-dev \
                        libssl-dev libtool-bin liburing-dev make pkg-config quota uuid-dev \
                        xfslibs-dev xfsprogs";
/// The group of tests to run.
const GROUP: &str = "quick";

/// A built tree.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) path: PathBuf,
    groups: String,
}

impl Tree {
    /// Checks the tree; an error names the commands that build it.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let said = path.display();
        let path = path.canonicalize().map_err(|why| format!("{said}: {why}"))?;
        if let Some(missing) = BUILT.iter().find(|name| !path.join(name).exists()) {
            return Err(format!(
                "{said} has no {missing}: it is not a source tree of xfstests, or is not \
                 built; run\n  \
                 sudo apt-get install --no-install-recommends {PACKAGES}\n  \
                 make -C {said}"
            ));
        }
        let list = path.join("tests/generic/group.list");
        let groups =
            fs::read_to_string(&list).map_err(|why| format!("{}: {why}", list.display()))?;
        Ok(Self { path, groups })
    }

    /// Returns the generic tests of the quick group, in their order.
    pub(super) fn quick(&self) -> Vec<String> {
        let of_group = |(name, groups): (&str, Vec<&str>)| {
            groups.contains(&GROUP).then(|| format!("generic/{name}"))
        };
        self.tests().filter_map(of_group).collect()
    }

    /// Returns tests that are named as `generic/NNN` or `NNN`.
    pub(super) fn named(&self, names: &[String]) -> Result<Vec<String>, String> {
        let full = |name: &String| {
            let number = name.strip_prefix("generic/").unwrap_or(name);
            let is_there = self.tests().any(|(test, _)| test == number);
            let full = format!("generic/{number}");
            if is_there { Ok(full) } else { Err(format!("xfstests has no test `{full}`")) }
        };
        names.iter().map(full).collect()
    }

    /// Returns number and groups of each generic test.
    fn tests(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        let lines = self.groups.lines().map(|line| line.split('#').next().unwrap_or_default());
        lines.filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.collect()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let groups = "# made by make\n\n001 rw auto quick\n002 metadata auto\n003 quick\n";
        Tree { path: PathBuf::new(), groups: groups.to_owned() }
    }

    #[test]
    fn the_quick_group_is_read() {
        assert_eq!(tree().quick(), ["generic/001", "generic/003"]);
    }

    #[test]
    fn tests_are_named_with_and_without_their_folder() {
        let named = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            tree().named(&names)
        };
        assert_eq!(named(&["002", "generic/001"]).unwrap(), ["generic/002", "generic/001"]);
        assert!(named(&["004"]).is_err());
    }

    #[test]
    fn the_error_about_a_tree_that_is_not_built_has_the_commands() {
        let why = Tree::open(&crate::workspace::root()).unwrap_err();
        assert!(why.contains("has no check") && why.contains("\n  make -C "), "{why}");
    }
}
