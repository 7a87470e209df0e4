//! Bugs in the rights of guests, each of which some run of the simulation meets.

use super::planted::Mutant;

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "a move of a directory recalls nothing from guests",
        file: "crates/server/src/service/guests/leases.rs",
        from: "match self.parts.policy.has_guests() && self.moves_dir(request, expected) {",
        to: "match false && self.parts.policy.has_guests() && self.moves_dir(request, expected) {",
    },
    Mutant {
        name: "a revocation recalls nothing from guests",
        file: "crates/server/src/service/guests/leases.rs",
        from: "self.announce_barring(UPKEEP, &[], &ended, move",
        to: "self.announce_barring(UPKEEP, &[], &ended[..0], move",
    },
    Mutant {
        name: "a cached decision outlives a move of a directory",
        file: "crates/server/src/policy/decisions.rs",
        from: "self.epoch == epoch\n",
        to: "self.epoch.rights_number == epoch.rights_number\n",
    },
    Mutant {
        name: "a revocation is forgotten by the next run",
        file: "crates/server/src/service/guests/revoking.rs",
        from: "shard.revoke(revoked.id, &row, revoked.is_of_root, &revoked.ended)?;\n",
        to: "shard.directory_moves();\n        let _forgotten = row;\n",
    },
    Mutant {
        name: "what a key has signed counts after it was taken back",
        file: "crates/server/src/policy/revocations.rs",
        from: "is_revoked(&link.id) || is_revoked(&link.authorizer.0)",
        to: "is_revoked(&link.id)",
    },
];
