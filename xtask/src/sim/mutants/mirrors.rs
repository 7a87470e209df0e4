//! Bugs in what a primary and its mirror do for each other, each of which a test of the server
//! finds. All are built into one program, each behind a switch.

use super::planted::{Mutant, Tested};

/// The test of a mirror that is promoted at some moment.
const SEEDS: &str = "mirrors::seeds::a_mirror_that_is_promoted_has_one_moment_of_its_primary";
/// The test of a fault between every two steps of a sync.
const BETWEEN: &str =
    "mirrors::between::a_sync_that_is_answered_outlives_a_fault_between_every_two_steps";
/// The tests of a loss of power at either site.
const PRIMARY_POWER: &str = "mirrors::power::no_mirror_is_ahead_of_a_primary_that_loses_power";
const MIRROR_POWER: &str =
    "mirrors::power::a_mirror_that_loses_power_keeps_what_it_has_answered_for";

pub(super) const TESTED: &[Tested] = &[
    // At the primary.
    Tested {
        mutant: Mutant {
            name: "mirrors: the bytes of a cut are of another moment than its rows",
            file: "crates/server/src/mirror/cut.rs",
            from: "parts.shard.cut(|| parts.opens.changes().cut())",
            to: "{ if PLANTED { parts.opens.changes().cut(); \
                 std::thread::sleep(std::time::Duration::from_millis(1)); } \
                 parts.shard.cut(|| if !PLANTED { parts.opens.changes().cut() }) }",
        },
        suite: "failures",
        test: SEEDS,
    },
    Tested {
        mutant: Mutant {
            name: "mirrors: rows are sent before they are safe at the primary",
            file: "crates/server/src/mirror/cut.rs",
            from: "match answer.recv() {",
            to: "if PLANTED { return Ok(()); }\n        match answer.recv() {",
        },
        suite: "failures",
        test: PRIMARY_POWER,
    },
    Tested {
        mutant: Mutant {
            name: "mirrors: bytes are sent before they are safe at the primary",
            file: "crates/server/src/mirror/sender.rs",
            from: "parts.opens.sync_contents(&contents)?;\n        \
                   self.mirror.wait_until_safe(cut)?;\n        let next",
            to: "if !PLANTED { parts.opens.sync_contents(&contents)?; }\n        \
                 self.mirror.wait_until_safe(cut)?;\n        let next",
        },
        suite: "failures",
        test: PRIMARY_POWER,
    },
    Tested {
        mutant: Mutant {
            name: "mirrors: bytes of a cut are overwritten before they are read",
            file: "crates/data/src/changed_content.rs",
            from: "self.keep_old(store, content, range);",
            to: "if !PLANTED { self.keep_old(store, content, range); }",
        },
        suite: "failures",
        test: PRIMARY_POWER,
    },
    Tested {
        mutant: Mutant {
            name: "mirrors: a change that began before a cut is not part of the next one",
            file: "crates/data/src/changed_content.rs",
            from: "self.add(key, range, size, true);",
            to: "if !PLANTED { self.add(key, range, size, true); }",
        },
        suite: "failures",
        test: "mirrors::resync::a_mirror_is_compared_while_programs_write",
    },
    Tested {
        mutant: Mutant {
            name: "mirrors: the changes of a cut that did not arrive are forgotten",
            file: "crates/server/src/mirror/cut.rs",
            from: "mirror.parts.opens.changes().take_back();",
            to: "if PLANTED { mirror.parts.opens.changes().finish_cut(); } \
                 else { mirror.parts.opens.changes().take_back(); }",
        },
        suite: "failures",
        test: "mirrors::relayed::a_group_that_a_lost_relay_delivers_late_hides_nothing",
    },
    Tested {
        mutant: Mutant {
            name: "mirrors: a sync of level remote is answered when it is safe here",
            file: "crates/server/src/service/levels.rs",
            from: "        Ok(Level::Async | Level::Local) => Outcome::WhenSafe(reply, report),",
            to: "        Ok(Level::Async | Level::Local) => Outcome::WhenSafe(reply, report),\n\
                 _ if PLANTED => Outcome::WhenSafe(reply, report),",
        },
        suite: "failures",
        test: BETWEEN,
    },
    // At the mirror.
    Tested {
        mutant: Mutant {
            name: "mirrors: a group is answered before it is safe in the spool",
            file: "crates/store/src/spool.rs",
            from: "self.file.sync_all().map_err(|source| self.failed(\"syncing\", source))?;",
            to: "if !PLANTED {\n\
                 self.file.sync_all().map_err(|source| self.failed(\"syncing\", source))?; }",
        },
        suite: "failures",
        test: MIRROR_POWER,
    },
    Tested {
        mutant: Mutant {
            name: "mirrors: the rows of a group are safe before its bytes",
            file: "crates/server/src/mirrors/apply.rs",
            from: "if !self.unsynced.is_empty() {",
            to: "if !PLANTED && !self.unsynced.is_empty() {",
        },
        suite: "failures",
        test: MIRROR_POWER,
    },
    Tested {
        mutant: Mutant {
            name: "mirrors: a group that is safe is not carried out after a kill",
            file: "crates/server/src/mirrors/slot.rs",
            from: "filter(|group| follows(&row, self.volume, group));",
            to: "filter(|group| !PLANTED && follows(&row, self.volume, group));",
        },
        suite: "failures",
        test: "mirrors::a_group_that_is_safe_is_carried_out_after_a_kill",
    },
    Tested {
        mutant: Mutant {
            name: "mirrors: a primary of an earlier reign is let in",
            file: "crates/server/src/mirrors.rs",
            from: "Some(row) if row.reign > reign =>",
            to: "Some(row) if !PLANTED && row.reign > reign =>",
        },
        suite: "failures",
        test: "mirrors::a_newer_connection_takes_the_place_of_an_older_one",
    },
];
