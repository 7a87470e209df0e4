//! Bugs in what servers of several sites do for each other, each of which some run of the
//! simulation with sites meets, or a test of the server ([`TESTED`]). All are built into one
//! program, each behind a switch.
//!
//! One rule has no bug: that a home tells a site to drop bytes only once its own are safe. It takes
//! a loss of power between two requests, which no run of the simulation has met.

use super::planted::{Mutant, Tested};

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "sites: a name that may be there counts as refused",
        file: "crates/server/src/service/elsewhere/make_dir.rs",
        from: "Err(error) if is_refusal(error.code) =>",
        to: "Err(error) if is_refusal(error.code)\
             || (PLANTED && error.code == Code::TimedOut) =>",
    },
    Mutant {
        name: "sites: a name that may be gone counts as kept",
        file: "crates/server/src/service/elsewhere/remove_dir.rs",
        from: "Err(error) if is_refusal(error.code) =>",
        to: "Err(error) if is_refusal(error.code)\
             || (PLANTED && error.code == Code::TimedOut) =>",
    },
    Mutant {
        name: "sites: a change that the last run has begun is not finished",
        file: "crates/server/src/unfinished.rs",
        from: "intents.into_iter().map(",
        to: "intents.into_iter().filter(|_| !PLANTED).map(",
    },
    Mutant {
        name: "sites: a directory that is being removed can be filled",
        file: "crates/meta/src/shard/intents.rs",
        from: "txn.set_closed(ino, true);",
        to: "txn.set_closed(ino, !PLANTED);",
    },
];

pub(super) const TESTED: &[Tested] = &[
    Tested {
        mutant: Mutant {
            name: "sites: a mutation that is over is carried out again",
            file: "crates/server/src/origins.rs",
            from: "client.done.insert(origin.mutation, done);",
            to: "if !PLANTED { client.done.insert(origin.mutation, done); }",
        },
        suite: "clients",
        test: "sites::origins::bytes_are_written_once",
    },
    Tested {
        mutant: Mutant {
            name: "sites: bytes that were given are written",
            file: "crates/server/src/service/stays/requests.rs",
            from: "stays.give(node).ok_or(Code::Stale)?;",
            to: "if !PLANTED { stays.give(node).ok_or(Code::Stale)?; }",
        },
        suite: "clients",
        test: "sites::stays::bytes_that_were_asked_for_are_read_and_written_still",
    },
    Tested {
        mutant: Mutant {
            name: "sites: a start tells nothing of bytes that are here",
            file: "crates/server/src/stays.rs",
            from: "let stay = Stay::new(row, is_dirty);",
            to: "let stay = Stay::new(row, is_dirty && !PLANTED);",
        },
        suite: "clients",
        test: "sites::stays::a_kill_of_the_writers_server_loses_nothing",
    },
    Tested {
        mutant: Mutant {
            name: "sites: a row is written over bytes that others have written",
            file: "crates/data/src/elsewhere.rs",
            from: "None if self.state.size > 0 || attr.mtime != place.since => {",
            to: "None if !PLANTED && (self.state.size > 0 || attr.mtime != place.since) => {",
        },
        suite: "clients",
        test: "sites::stays::what_was_written_meanwhile_is_not_overwritten",
    },
];
