//! Leases of guests: which guests may be granted leases, and from which ones everything must be
//! recalled.
//!
//! A lease says that its holder learns of a change. A guest with leases learns of changes of its
//! rights: of a move of a directory by which nodes come below a directory that its chain names, or
//! are no longer below it; of the end of its chain; and of a change of the policy.

use std::sync::atomic::Ordering;
use std::time::Duration;

use pelago_meta::shard::Shard;
use pelago_store::clock;
use pelago_wire::{Code, Error, InodeId, SessionId, limits};

use super::chain::Chain;
use super::{Guest, Policy, Roots};

/// The number of attempts to find the directories above two others while directories move.
const ATTEMPTS: u32 = 8;

/// The directories that are above one of two others, or that one itself, and not above the other.
///
/// `None` if they are not all known: those above the first known one are at another site.
///
/// # Errors
/// `Busy` if directories have moved meanwhile; errors of the table.
fn above_one_only(
    shard: &Shard,
    from: InodeId,
    to: InodeId,
) -> Result<Option<Vec<InodeId>>, Error> {
    let moves = shard.directory_moves();
    let from = shard.ancestors(from, moves)?;
    let to = shard.ancestors(to, moves)?;
    // They are in their order from the top: the common ones come first.
    let common = from.dirs.iter().zip(&to.dirs).take_while(|(one, other)| one == other).count();
    let differing = [&from, &to].into_iter().flat_map(|above| above.dirs.iter().skip(common));
    Ok((from.is_complete && to.is_complete).then(|| differing.copied().collect()))
}

impl Policy {
    /// Returns whether a guest may be granted leases: only if its links have the form of Pelago's
    /// shares, and the policy has no conditions. In others the time of the day may decide, or a
    /// test of which it is not known which moves change its result. The leases of a session end
    /// before the chain that it began with does, and may outlive an attached one: that has no end.
    pub(crate) fn may_lease(&self, guest: &Guest) -> bool {
        let prevents =
            |chain: &Chain| !chain.is_of_shares || chain.has_end && chain.id != guest.chain.id;
        let is_plain = !guest.any_chain(prevents);
        let policy = self.roots.as_ref().and_then(Roots::policy);
        is_plain && policy.is_some_and(|policy| !policy.has_conditions())
    }

    /// Returns the sessions of guests whose rights change if something moves from a directory into
    /// another one.
    ///
    /// # Errors
    /// Errors of the table.
    pub(crate) fn barred_by_move(
        &self,
        shard: &Shard,
        from: InodeId,
        to: InodeId,
    ) -> Result<Vec<SessionId>, Error> {
        // They move all the time, or are not all known: it may be any.
        let mut differing = None;
        for _ in 0..ATTEMPTS {
            match above_one_only(shard, from, to) {
                // A directory has moved meanwhile.
                Err(error) if error.code == Code::Busy => {}
                found => {
                    differing = found?;
                    break;
                }
            }
        }
        Ok(self.guests.read().concerned(differing.as_deref()))
    }

    /// Returns the sessions of all guests.
    pub(crate) fn sessions(&self) -> Vec<SessionId> {
        self.guests.read().values().flatten().map(|guest| guest.session).collect()
    }

    /// Returns the sessions of guests that have no right any more, or not those of a chain that
    /// they have attached.
    pub(crate) fn sessions_with_lost_rights(&self) -> Vec<SessionId> {
        let guests: Vec<_> = self.guests.read().values().flatten().cloned().collect();
        let has_all = |guest: &Guest| {
            self.note_all_lapsed(guest);
            self.admits(guest)
                && guest.chains().iter().all(|chain| self.is_valid(chain, &guest.principal))
        };
        let guests = guests.iter().filter(|guest| !has_all(guest));
        guests.map(|guest| guest.session).collect()
    }

    /// Returns for how long a change that takes rights away must still wait, because a guest of the
    /// last run may have leases of which this run does not know.
    pub(crate) fn unsettled(&self) -> Option<Duration> {
        if self.is_settled.load(Ordering::Relaxed) {
            return None;
        }
        let wait = limits::GUEST_LEASE + limits::GUEST_LEASE / 32;
        let left = wait.checked_sub(self.started.elapsed()).filter(|left| !left.is_zero());
        self.is_settled.store(left.is_none(), Ordering::Relaxed);
        left
    }

    /// Returns the number of changes of the policy and of the users, if it is another one than at
    /// the last call.
    pub(crate) fn has_new_terms(&self) -> bool {
        let terms = self.changes_of_files(clock::coarse_now());
        self.seen_terms.swap(terms, Ordering::AcqRel) != terms
    }

    /// Returns the seconds since 1970 at which a chain ends, if one of its links has an end.
    pub(super) fn end_of(chain: &Chain) -> Option<u64> {
        let ends = chain.links.iter().filter_map(|link| link.share.as_ref()?.until.as_deref());
        ends.filter_map(|until| super::moment::seconds_of(until.as_bytes())).min()
    }
}
