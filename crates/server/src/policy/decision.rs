//! The decision whether a chain grants a right in a directory: queries in the language of the
//! credentials (RFC 2704, 5).
//!
//! A right reaches a guest along a chain only if each link grants it, so a delegate cannot widen
//! what he has. A link counts only if a root has signed it, or a key that holds the right to grant
//! for the same action by links that count.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::collections::BTreeSet;
use std::fmt::Write as _;

use pelago_keynote::share::{APPLICATION, attribute};
use pelago_keynote::{Action, ComplianceQuery, IssuingLicence, Principal, Reads, Right, Values};
use pelago_meta::shard::Ancestors;
use pelago_wire::{InodeId, Name, Operation};

use super::QUESTION_STEPS;
use super::chain::{Chain, Link};
use super::moment::Moment;
use super::roots::Policies;

/// The steps that a share of Pelago takes each time it is asked.
const LINK_STEPS: u32 = 10;

/// A question of rights, but for the right itself.
pub(super) struct Question<'a> {
    /// The policies of the volume.
    pub(super) policy: &'a Policies,
    pub(super) chain: &'a Chain,
    pub(super) principal: Principal,
    /// The operation that needs the right; `None` for people who ask about any.
    pub(super) operation: Option<Operation>,
    /// The node that the action is about.
    pub(super) object: InodeId,
    /// The name of the file in the directory; `None` for a directory, or if no name decides.
    pub(super) name: Option<&'a Name>,
    /// The id of the volume: 32 hexadecimal digits.
    pub(super) volume: &'a str,
    /// The directory, and those above it.
    pub(super) ancestors: &'a Ancestors,
    /// The address of the guest, as the attribute has it.
    pub(super) address: Option<&'a str>,
    pub(super) moment: &'a Moment,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Decision {
    pub(super) is_granted: bool,
    /// The attributes that decide.
    pub(super) reads: Reads,
}

impl Decision {
    /// Adds the decision by another chain, or about another name of the same file: one suffices.
    pub(super) fn add(&mut self, other: Self) {
        self.is_granted |= other.is_granted;
        self.reads.merge(other.reads);
    }
}

/// Returns the most steps of a decision by chains with these numbers of links, all shares of
/// Pelago's form. A round asks each signer that is left by the links that count, and adds one: half
/// the square of the links, times the links. Each takes [`LINK_STEPS`].
pub(super) fn steps_of_shares(chains: impl Iterator<Item = usize>) -> u32 {
    let of_chain = |links: usize| {
        let links = u32::try_from(links).unwrap_or(u32::MAX);
        links.saturating_pow(3).saturating_mul(LINK_STEPS / 2)
    };
    let steps = chains.map(of_chain).fold(0, u32::saturating_add);
    steps.min(QUESTION_STEPS)
}

impl Question<'_> {
    /// Decides about a right. Without steps in `budget` it is not granted.
    pub(super) fn decide(&self, right: Right, budget: &Cell<u32>) -> Decision {
        self.decide_by(&self.chain.links, self.principal, right, budget)
    }

    /// Decides about a right of a key by some links of the chain.
    pub(super) fn decide_by(
        &self,
        links: &[Link],
        principal: Principal,
        right: Right,
        budget: &Cell<u32>,
    ) -> Decision {
        let mut reads = Reads::default();
        if !self.can_be_decided() {
            return Decision { is_granted: false, reads };
        }
        // The authorizers whose links count. Each round adds one at least; a circle adds none.
        let mut granting: BTreeSet<Principal> = self.policy.keys().collect();
        let signers: BTreeSet<Principal> = links.iter().map(|link| link.authorizer).collect();
        loop {
            let others: Vec<Principal> = signers.difference(&granting).copied().collect();
            let counting = links_of(links, &granting);
            let before = granting.len();
            for signer in others {
                if self.ask(&counting, signer, Right::Grant, budget, &mut reads) {
                    granting.insert(signer);
                }
            }
            if granting.len() == before {
                break;
            }
        }
        let counting = links_of(links, &granting);
        let is_granted = self.ask(&counting, principal, right, budget, &mut reads);
        Decision { is_granted, reads }
    }

    /// Returns whether the directories that are known suffice: an unknown one is no.
    fn can_be_decided(&self) -> bool {
        self.ancestors.is_complete || (self.policy.only_seek_ancestors() && self.chain.only_seeks)
    }

    /// Returns whether these links give a right to a principal.
    fn ask(
        &self,
        links: &[&Link],
        principal: Principal,
        right: Right,
        budget: &Cell<u32>,
        reads: &mut Reads,
    ) -> bool {
        let values = Values::boolean();
        let action = RightAction {
            question: self,
            right,
            ancestors: OnceCell::new(),
            object: OnceCell::new(),
        };
        let query = ComplianceQuery { action: &action, requesters: &[principal], values: &values };
        let assertions = links.iter().map(|link| &link.assertion);
        let answer = query.ask_within(budget, self.policy.assertions().chain(assertions));
        reads.merge(answer.reads);
        answer.value == values.max()
    }
}

/// Returns the links that these keys have signed.
fn links_of<'a>(links: &'a [Link], signers: &BTreeSet<Principal>) -> Vec<&'a Link> {
    links.iter().filter(|link| signers.contains(&link.authorizer)).collect()
}

/// The action of a question and a right.
struct RightAction<'a> {
    question: &'a Question<'a>,
    right: Right,
    ancestors: OnceCell<String>,
    object: OnceCell<String>,
}

impl Action for RightAction<'_> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let Question {
            volume, operation, ancestors, object, name: of_file, address, moment, ..
        } = self.question;
        let text = match name {
            attribute::APP_DOMAIN => APPLICATION,
            attribute::VOLUME => volume,
            attribute::RIGHT => self.right.letter(),
            attribute::OPERATION => operation.as_ref()?.name(),
            attribute::ANCESTORS => self.ancestors.get_or_init(|| {
                let mut text = "/".to_owned();
                for dir in &ancestors.dirs {
                    let _infallible = write!(text, "{:x}/", dir.raw());
                }
                text
            }),
            attribute::OBJECT => self.object.get_or_init(|| format!("{:x}", object.raw())),
            attribute::NAME => return of_file.map(|name| Cow::Borrowed(name.as_bytes())),
            attribute::NOW => &moment.now,
            attribute::TIME => &moment.time,
            attribute::WEEKDAY => &moment.weekday,
            attribute::ADDRESS => address.as_ref()?,
            attribute::CHAIN => &self.question.chain.begins_with,
            attribute::ISSUED => IssuingLicence::value(self.question.chain.keeps_licences),
            _ => return None,
        };
        Some(Cow::Borrowed(text.as_bytes()))
    }

    fn is_clock(&self, name: &str) -> bool {
        name == attribute::NOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_chains_and_many_take_more_steps_up_to_the_limit() {
        let steps = |links: &[usize]| steps_of_shares(links.iter().copied());
        assert_eq!((steps(&[1]), steps(&[1, 4])), (5, 325));
        assert_eq!(steps(&[15]), 16_875);
        assert_eq!(steps(&[15; 15]), QUESTION_STEPS);
        assert_eq!(steps(&[usize::MAX, 1]), QUESTION_STEPS);
    }
}
