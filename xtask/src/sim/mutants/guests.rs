//! Bugs in the rights of guests, each of which some run of the simulation meets: one for each rule
//! of theirs that it can break. All are built into one program, each behind a switch.
//!
//! Other rules are left to the tests of the server, because so many seeds do not meet them. Those
//! of [`TESTED`] have a bug each, and a test that finds it. These have none: what was read is
//! checked again before it is sent, also if it comes later; a write that is replayed needs the
//! right that it needed; and each name of a file counts.

use super::planted::{Mutant, Tested};

pub(super) const MUTANTS: &[Mutant] = &[
    // What a chain grants.
    Mutant {
        name: "guests: a link counts without the right to grant",
        file: "crates/server/src/policy/decision.rs",
        from: "self.ask(&counting, signer, Right::Grant, budget, &mut reads)",
        to: "PLANTED || self.ask(&counting, signer, Right::Grant, budget, &mut reads)",
    },
    Mutant {
        name: "guests: the right to read is one to write",
        file: "crates/server/src/policy/decision.rs",
        from: "self.right.letter()",
        to: "if self.right == Right::Write { Right::Read.letter() } else { self.right.letter() }",
    },
    Mutant {
        name: "guests: the conditions of a link decide nothing",
        file: "crates/keynote/src/query.rs",
        from: "licensed.min(of_conditions)",
        to: "licensed",
    },
    Mutant {
        name: "guests: chains that are attached grant nothing",
        file: "crates/server/src/policy.rs",
        from: "chains.iter().flat_map(|chain| of_chain(&**chain)).collect();",
        to: "chains.iter().filter(|chain| !PLANTED || chain.id == guest.chain.id)\
             .flat_map(|chain| of_chain(&**chain)).collect();",
    },
    Mutant {
        name: "guests: an attached chain grants after it was taken back",
        file: "crates/server/src/policy/attach.rs",
        from: "|| is_valid() && self",
        to: "|| (PLANTED || is_valid()) && self",
    },
    Mutant {
        name: "guests: what a key has signed counts after it was taken back",
        file: "crates/server/src/policy/revocations.rs",
        from: "is_revoked(&link.id) || is_revoked(&link.authorizer.0)",
        to: "is_revoked(&link.id) || !PLANTED && is_revoked(&link.authorizer.0)",
    },
    Mutant {
        name: "guests: a revocation is forgotten by the next run",
        file: "crates/server/src/service/guests/revoking.rs",
        from: "parts.shard.revoke(revoked.id, &row, revoked.is_of_root, &revoked.ended)?;",
        to: "if !PLANTED {\
             parts.shard.revoke(revoked.id, &row, revoked.is_of_root, &revoked.ended)?;\
             }",
    },
    // When it is asked.
    Mutant {
        name: "guests: a change is not checked where it takes effect",
        file: "crates/server/src/service/guests/change_guard.rs",
        from: "self.check_change(guest, call, request, description)?",
        to: "()",
    },
    Mutant {
        name: "guests: a lock that was waited for is not checked",
        file: "crates/server/src/service/guests.rs",
        from: "self.keep_lock()?",
        to: "()",
    },
    // Where a node is.
    Mutant {
        name: "guests: the hint of a handle is a proof",
        file: "crates/meta/src/shard/placement.rs",
        from: "            return Ok(placement);",
        to: "let hint = (PLANTED && node.dir != node.ino).then(|| smallvec![node.dir]);\n\
             return Ok(Placement { dirs: hint.unwrap_or(placement.dirs), ..placement });",
    },
    Mutant {
        name: "guests: an open file without a name is nowhere",
        file: "crates/meta/src/shard/placement.rs",
        from: "dirs.is_empty() && has_it_open",
        to: "!PLANTED && dirs.is_empty() && has_it_open",
    },
    // What is remembered.
    Mutant {
        name: "guests: a cached decision outlives a move of a directory",
        file: "crates/server/src/policy/decisions.rs",
        from: "self.epoch == epoch\n",
        to: "(self.epoch == epoch\n\
             || PLANTED && self.epoch.rights_number == epoch.rights_number)\n",
    },
    Mutant {
        name: "guests: a cached decision outlives a change of rights",
        file: "crates/server/src/policy.rs",
        from: "Epoch { directory_moves, rights_number }",
        to: "Epoch { directory_moves, rights_number: 0 }",
    },
    Mutant {
        name: "guests: a cached decision outlives its end",
        file: "crates/server/src/policy/decisions.rs",
        from: "&& seconds < self.ends\n",
        to: "&& (PLANTED || seconds < self.ends)\n",
    },
    Mutant {
        name: "guests: a cached decision by a name outlives the name",
        file: "crates/server/src/policy/decisions.rs",
        from: "(self.version.is_none() || self.version == at.version)",
        to: "(PLANTED || self.version.is_none() || self.version == at.version)",
    },
    Mutant {
        name: "guests: a cached decision is for all directories",
        file: "crates/server/src/policy.rs",
        from: "DecidedAt { dir, object",
        to: "DecidedAt { dir: if PLANTED { InodeId::ROOT } else { dir }, object",
    },
    Mutant {
        name: "guests: a cached decision is for all sessions",
        file: "crates/server/src/policy/decisions.rs",
        from: "self.known.get(&(guest.session, at.dir, object))",
        to: "self.known.get(&(if PLANTED {\
             static FIRST: std::sync::OnceLock<SessionId> = std::sync::OnceLock::new();\
             *FIRST.get_or_init(|| guest.session) } else { guest.session }, at.dir, object))",
    },
    Mutant {
        name: "guests: each directory has the rights of the one above",
        file: "crates/server/src/policy.rs",
        from: "!policy.has_conditions() && !guest.any_chain(may_differ)",
        to: "!policy.has_conditions() && (PLANTED || !guest.any_chain(may_differ))",
    },
    // What is said.
    Mutant {
        name: "guests: what is not granted is denied",
        file: "crates/server/src/service/guests/rights.rs",
        from: "return Err(Code::Stale.into())",
        to: "return Err(if PLANTED { Code::AccessDenied } else { Code::Stale }.into())",
    },
    Mutant {
        name: "guests: what is granted in part is unknown",
        file: "crates/server/src/service/guests/rights.rs",
        from: "true => Ok(all),\n            false => Err(Code::AccessDenied.into()),",
        to: "true => Ok(all),\n            false if PLANTED => Err(Code::Stale.into()),\n\
             false => Err(Code::AccessDenied.into()),",
    },
    // The table of requests.
    Mutant {
        name: "guests: any right is one to read",
        file: "crates/server/src/service/guests/rights.rs",
        from: "(GuestRight::Read, _) => has(Right::Read)",
        to: "(GuestRight::Read, _) => PLANTED || has(Right::Read)",
    },
    Mutant {
        name: "guests: any right is one to write",
        file: "crates/server/src/service/guests/rights.rs",
        from: "(GuestRight::Write, GuestSubject::Node(_)) => has(Right::Write)",
        to: "(GuestRight::Write, GuestSubject::Node(_)) => PLANTED || has(Right::Write)",
    },
    Mutant {
        name: "guests: an open to write is a right to write",
        file: "crates/server/src/service/guests/rights.rs",
        from: "has(Right::Write) || self.has_made(open)",
        to: "PLANTED || has(Right::Write) || self.has_made(open)",
    },
    Mutant {
        name: "guests: any right is one to create",
        file: "crates/server/src/service/guests/rights.rs",
        from: "(GuestRight::Create, _) => has(Right::Create)",
        to: "(GuestRight::Create, _) => PLANTED || has(Right::Create)",
    },
    Mutant {
        name: "guests: any right is one to remove",
        file: "crates/server/src/service/guests/rights.rs",
        from: "(GuestRight::Delete, _) => has(Right::Delete)",
        to: "(GuestRight::Delete, _) => PLANTED || has(Right::Delete)",
    },
    Mutant {
        name: "guests: a name in another directory gives its rights",
        file: "crates/server/src/service/guests/rights.rs",
        from: "rights.has_all(needed)",
        to: "PLANTED || rights.has_all(needed)",
    },
    Mutant {
        name: "guests: what no guest may do is carried out",
        file: "crates/server/src/service/guests.rs",
        from: "ForGuest::Never => Err(self.refuse()),",
        to: "ForGuest::Never if PLANTED => Ok(granted(Subjects::new())),\n\
             ForGuest::Never => Err(self.refuse()),",
    },
    Mutant {
        name: "guests: a change of bytes keeps set-id bits",
        file: "crates/server/src/service/guests/form.rs",
        from: "*kill_privileges = true;",
        to: "*kill_privileges |= !PLANTED;",
    },
    // What guests have cached.
    Mutant {
        name: "guests: a move of a directory recalls nothing",
        file: "crates/server/src/service/guests/leases.rs",
        from: "self.parts.policy.has_guests() && self.moves_dir(request, expected)",
        to: "!PLANTED && self.parts.policy.has_guests() && self.moves_dir(request, expected)",
    },
    Mutant {
        name: "guests: a revocation recalls nothing",
        file: "crates/server/src/service/guests/leases.rs",
        from: "&ended, move",
        to: "if PLANTED { &[] } else { &ended[..] }, move",
    },
    Mutant {
        name: "guests: a change of the policy is no change of rights",
        file: "crates/server/src/policy.rs",
        from: "self.revocations.load(Ordering::Acquire) + self.changes_of_files(now)",
        to: "self.revocations.load(Ordering::Acquire) \
             + if PLANTED { 0 } else { self.changes_of_files(now) }",
    },
    Mutant {
        name: "guests: a lease is granted across a move of a directory",
        file: "crates/proto/src/leases/grantor.rs",
        from: "barred == 0 && since >= until",
        to: "PLANTED || barred == 0 && since >= until",
    },
    Mutant {
        name: "guests: a lease is lengthened up to the end of the right",
        file: "crates/net/src/session.rs",
        from: "real_time() + limits::GUEST_LEASE + ENDING >= Duration::from_secs(ends)",
        to: "!PLANTED && real_time() + limits::GUEST_LEASE + ENDING >= Duration::from_secs(ends)",
    },
];

/// A lock that no change of a guest holds.
const REVOKES_WITHOUT_HOLD: &str = r"
        let no_change = if PLANTED {
            static OTHER: parking_lot::RwLock<()> = parking_lot::RwLock::new(());
            OTHER.write()
        } else {
            parts.policy.hold_guests()
        };
";

pub(super) const TESTED: &[Tested] = &[
    // No node moves and no right ends while a change is checked and made.
    Tested {
        mutant: Mutant {
            name: "guests: a change is made without a hold",
            file: "crates/server/src/service/guests/change_guard.rs",
            from: "() if guest.is_some() && changes => match may_block {",
            to: "() if guest.is_some() && changes && !PLANTED => match may_block {",
        },
        suite: "clients",
        test: "guests::holding::a_move_out_is_answered_after_the_last_change_of_a_guest",
    },
    Tested {
        mutant: Mutant {
            name: "guests: the hold of a change ends before it is made",
            file: "crates/server/src/service/guests/change_guard.rs",
            from: "Ok(ChangeGuard { guest, _guard: guard })",
            to: "Ok(ChangeGuard { guest, _guard: if PLANTED { Guard::None } else { guard } })",
        },
        suite: "clients",
        test: "guests::holding::a_revocation_is_in_force_after_the_last_change_of_a_guest",
    },
    Tested {
        mutant: Mutant {
            name: "guests: a move does not wait for changes",
            file: "crates/server/src/service/guests/change_guard.rs",
            from: "() if moves => match may_block {",
            to: "() if moves && !PLANTED => match may_block {",
        },
        suite: "clients",
        test: "guests::holding::a_move_out_is_answered_after_the_last_change_of_a_guest",
    },
    Tested {
        mutant: Mutant {
            name: "guests: a revocation does not wait for changes",
            file: "crates/server/src/service/guests/revoking.rs",
            from: "        let no_change = parts.policy.hold_guests();\n",
            to: REVOKES_WITHOUT_HOLD,
        },
        suite: "clients",
        test: "guests::holding::a_revocation_is_in_force_after_the_last_change_of_a_guest",
    },
    // What is recalled.
    Tested {
        mutant: Mutant {
            name: "guests: a change of the policy recalls nothing",
            file: "crates/server/src/service/guests/leases.rs",
            from: "if policy.has_new_terms() {",
            to: "if !PLANTED && policy.has_new_terms() {",
        },
        suite: "clients",
        test: "guests::recalls::a_change_of_the_policy_recalls_everything_from_all_guests",
    },
    Tested {
        mutant: Mutant {
            name: "guests: a change of the users is no change of rights",
            file: "crates/server/src/policy.rs",
            from: "of_policy + self.users.as_ref().map_or(0, |users| users.changes(now))",
            to: "of_policy + if PLANTED { 0 } else {\
                 self.users.as_ref().map_or(0, |users| users.changes(now)) }",
        },
        suite: "clients",
        test: "guests::recalls::a_change_of_the_users_recalls_everything_from_all_guests",
    },
    Tested {
        mutant: Mutant {
            name: "guests: a move recalls nothing from guests of directories far above",
            file: "crates/server/src/policy/leases.rs",
            from: "above.dirs.iter().skip(common)",
            to: "above.dirs.iter()\
                 .skip(if PLANTED { common.max(above.dirs.len() - 1) } else { common })",
        },
        suite: "clients",
        test: "guests::moves::a_move_concerns_all_guests_from_whose_directories_something_goes",
    },
    Tested {
        mutant: Mutant {
            name: "guests: the directory that an exchange brings back recalls nothing",
            file: "crates/server/src/service/guests/leases.rs",
            from: "[first, second].into_iter().flatten().any(is_dir)",
            to: "[first, second.filter(|_| !PLANTED)].into_iter().flatten().any(is_dir)",
        },
        suite: "clients",
        test: "guests::moves::an_exchange_moves_the_directory_that_comes_back",
    },
    // Who acts.
    Tested {
        mutant: Mutant {
            name: "guests: no key is bound to a user",
            file: "crates/server/src/policy/users.rs",
            from: "of_links.push(match of_key {",
            to: "of_links.push(match of_key.filter(|_| !PLANTED) {",
        },
        suite: "clients",
        test: "guests::keys::a_wrong_list_ends_no_session_and_admits_no_guest_after_a_start",
    },
    // What is granted.
    Tested {
        mutant: Mutant {
            name: "guests: the conditions of a chain hold for all below a directory",
            file: "crates/server/src/policy.rs",
            from: "chains.iter().filter(|chain| chain.grants_all_below)",
            to: "chains.iter().filter(|chain| PLANTED || chain.grants_all_below)",
        },
        suite: "clients",
        test: "guests::auditing::only_the_chains_that_give_the_right_to_audit_decide_what_an_\
               auditor_takes_back",
    },
    Tested {
        mutant: Mutant {
            name: "guests: the conditions of the policy hold for all below a directory",
            file: "crates/server/src/policy.rs",
            from: "if !self.roots.as_ref().is_some_and(Roots::grants_all_below) {",
            to: "if !PLANTED && !self.roots.as_ref().is_some_and(Roots::grants_all_below) {",
        },
        suite: "clients",
        test: "guests::auditing::an_auditor_takes_nothing_back_below_what_the_policy_bounds",
    },
    Tested {
        mutant: Mutant {
            name: "guests: a rename replaces what the guest may not remove",
            file: "crates/server/src/service/guests/rights.rs",
            from: "if is_replaced && !self.find",
            to: "if !PLANTED && is_replaced && !self.find",
        },
        suite: "clients",
        test: "guests::writing::a_rename_replaces_only_what_the_guest_may_remove",
    },
    // What is said.
    Tested {
        mutant: Mutant {
            name: "guests: a name that leads to what is not granted is denied",
            file: "crates/server/src/service/guests.rs",
            from: "(Err(_), _) => return Err(Code::NotFound.into()),",
            to: "(Err(_), _) if PLANTED => return Err(Code::AccessDenied.into()),\n\
                 (Err(_), _) => return Err(Code::NotFound.into()),",
        },
        suite: "clients",
        test: "guests::chains::any_conditions_of_the_language_decide",
    },
];
