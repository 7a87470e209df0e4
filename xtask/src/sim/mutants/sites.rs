//! Bugs in what servers of several sites do for each other, each of which some run of the
//! simulation with sites meets. All are built into one program, each behind a switch.

use super::planted::Mutant;

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
