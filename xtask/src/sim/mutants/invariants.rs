//! A bug for each invariant of `ARCHITECTURE.md` that an assertion guards, and the test that trips
//! the assertion.
//!
//! I-10 (no panic from outside bytes) has none: decoders return errors by their types, and fuzzers
//! look for the panic.

use std::time::Duration;

use super::planted::{Copy, Mutant};
use crate::test::Package;

/// A bug that breaks an invariant.
struct Breach {
    /// The invariant, as the messages of its assertions begin.
    invariant: &'static str,
    mutant: Mutant,
    /// The package whose unit tests trip the assertion.
    package: &'static str,
    /// The filter of these tests.
    tests: &'static str,
}

/// The time in which the tests of a package run. A bug may make one hang.
pub(super) const LIMIT: Duration = Duration::from_secs(240);
/// The time in which they are built, on a busy machine for the first time.
pub(super) const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// The right order: attributes of open files are read again before the lock is taken.
const REFRESHED_BEFORE: &str = r"
    pub fn attr(&self, handle: Handle) -> Result<Attr, Error> {
        self.open_inodes.refresh(handle.ino);
        let mut locked = self.lock();
";
const REFRESHED_WITHIN: &str = r"
    pub fn attr(&self, handle: Handle) -> Result<Attr, Error> {
        let mut locked = self.lock();
        self.open_inodes.refresh(handle.ino);
";

const BREACHES: &[Breach] = &[
    Breach {
        invariant: "I-1",
        mutant: Mutant {
            name: "I-1: rows of a batch have the stamp of an earlier one",
            file: "crates/meta/src/shard/txn.rs",
            from: "        self.stamp = self.locked.next_stamp();\n        Ok(id)",
            to: "        Ok(id)",
        },
        package: "pelago-meta",
        tests: "shard::tests",
    },
    Breach {
        invariant: "I-2",
        mutant: Mutant {
            name: "I-2: a batch is called safe that is not written yet",
            file: "crates/server/src/group_commit.rs",
            from: "self.durability.persisted(sequence);",
            to: "self.durability.persisted(sequence + 1);",
        },
        package: "pelago-server",
        tests: "group_commit",
    },
    Breach {
        invariant: "I-3",
        mutant: Mutant {
            name: "I-3: an inode id is taken at the high-water mark",
            file: "crates/meta/src/shard/inode_ids.rs",
            from: "return Need::WriteAndWait(self.written + ID_BLOCK);",
            to: "return Need::Nothing;",
        },
        package: "pelago-meta",
        tests: "shard::tests",
    },
    Breach {
        invariant: "I-4",
        mutant: Mutant {
            name: "I-4: a listing is not read again after a batch",
            file: "crates/meta/src/shard/list.rs",
            from: "    if locked.state.sequence == sequence {",
            to: "    if locked.state.sequence >= sequence {",
        },
        package: "pelago-meta",
        tests: "shard::tests",
    },
    Breach {
        invariant: "I-5",
        mutant: Mutant {
            name: "I-5: a content file is written without its row",
            file: "crates/data/src/inode.rs",
            from: "        self.has_row = true;\n        self.changes += 1;",
            to: "        self.changes += 1;",
        },
        package: "pelago-data",
        tests: "write",
    },
    Breach {
        invariant: "I-6",
        mutant: Mutant {
            name: "I-6: a file that keeps a name gets an orphan row",
            file: "crates/meta/src/shard/remove.rs",
            from: "    if attr.links > 0 {\n        txn.put_node(node);",
            to: "    if attr.links > 1 {\n        txn.put_node(node);",
        },
        package: "pelago-meta",
        tests: "shard::tests",
    },
    Breach {
        invariant: "I-7",
        mutant: Mutant {
            name: "I-7: a name is taken out of a filter twice",
            file: "crates/meta/src/directory.rs",
            from: "let was_there = filter.remove(hash);",
            to: "let was_there = filter.remove(hash) && filter.remove(hash);",
        },
        package: "pelago-meta",
        tests: "shard::tests",
    },
    Breach {
        invariant: "I-8",
        mutant: Mutant {
            name: "I-8: a request for a lock gets no reply",
            file: "crates/server/src/service/dispatch.rs",
            from: "self.locks.set_or_wait(&request, number, done);",
            to: "drop((request, number, done));",
        },
        package: "pelago-server",
        tests: "tests::locks",
    },
    Breach {
        invariant: "I-9",
        mutant: Mutant {
            name: "I-9: attributes are refreshed under the lock of the shard",
            file: "crates/meta/src/shard/interface/attributes.rs",
            from: REFRESHED_BEFORE,
            to: REFRESHED_WITHIN,
        },
        package: "pelago-meta",
        tests: "shard::tests",
    },
    Breach {
        invariant: "I-11",
        mutant: Mutant {
            name: "I-11: a directory may move into itself",
            file: "crates/meta/src/shard/climb.rs",
            from: "    if ino == to.dir {\n        return Err(Code::WouldLoop.into());\n    }",
            to: "    if ino == to.dir {\n        return Ok(None);\n    }",
        },
        package: "pelago-meta",
        tests: "shard::tests",
    },
    Breach {
        invariant: "I-12",
        mutant: Mutant {
            name: "I-12: the tags of a removed file keep their rows",
            file: "crates/meta/src/shard/xattr.rs",
            from: "    for name in split(names) {\n        tags::remove(txn, ino, name)?;\n",
            to: "    for name in split(names) {\n",
        },
        package: "pelago-meta",
        tests: "shard::tests",
    },
];

/// Returns the bugs.
pub(super) fn mutants() -> impl Iterator<Item = &'static Mutant> {
    BREACHES.iter().map(|breach| &breach.mutant)
}

/// Plants each bug whose name has the filter in it, counts it in `tried`, and returns a line for
/// each whose assertion no test has tripped.
pub(super) fn run(copy: &Copy, filter: &str, tried: &mut u32) -> Result<Vec<String>, String> {
    let mut left = Vec::new();
    for breach in BREACHES.iter().filter(|breach| breach.mutant.name.contains(filter)) {
        *tried += 1;
        let Breach { invariant, mutant, package, tests } = breach;
        let selected =
            Package::named_by(package)?.ok_or_else(|| format!("no package {package}"))?;
        let selection = selected.0.selection();
        let mut arguments = vec!["test", "--release"];
        arguments.extend(selection.iter().map(String::as_str));
        arguments.extend(["--lib", tests]);
        let built = [arguments.as_slice(), &["--no-run"]].concat();
        // A test that hangs has said before what tripped.
        arguments.extend(["--", "--nocapture"]);
        let said = copy.with(mutant, || {
            copy.cargo_within(BUILD_LIMIT, &built)?;
            copy.cargo_within(LIMIT, &arguments)
        })?;
        if said.contains(&format!("{invariant}: ")) {
            println!("tripped by {package} {tests}: {}", mutant.name);
        } else if said.contains("Running unittests") {
            left.push(format!("not tripped by {package} {tests}: {}", mutant.name));
        } else {
            return Err(format!("with `{}` it does not build: {said}", mutant.name));
        }
    }
    Ok(left)
}
