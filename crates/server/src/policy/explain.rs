//! The reason why a chain does not give a right: the first of its links that denies it.
//!
//! The links are asked in their order, each with those before it: the first one by which the right,
//! or the right to share it on, does not come through is the one to blame.

use std::cell::Cell;

use pelago_keynote::{Conditions, Principal, Right, SharedObject, hex};
use pelago_wire::{DenialCause, DeniedRight, limits};

use super::chain::Link;
use super::decision::Question;

impl Question<'_> {
    /// Returns the reason why a right is denied, which was asked before.
    pub(super) fn explain(&self, right: Right, budget: &Cell<u32>) -> DeniedRight {
        let found = self.first_denial(right, budget);
        match found {
            // A denial for want of steps says nothing of the link.
            _ if budget.get() == 0 => denied(right, None, DenialCause::Steps, String::new()),
            Some(denial) => denial,
            // Several keys are needed together.
            None => denied(right, None, DenialCause::Conditions, String::new()),
        }
    }

    fn first_denial(&self, right: Right, budget: &Cell<u32>) -> Option<DeniedRight> {
        let links = &self.chain.links;
        let root = links.first()?.authorizer;
        if !self.decide_by(&[], root, right, budget).is_granted {
            return Some(denied(right, None, DenialCause::Policy, String::new()));
        }
        // Behind the chain to which an issued credential is bound: that gives less.
        let from = links.iter().rposition(|link| link.licence.is_some()).unwrap_or(0);
        links.iter().enumerate().skip(from).find_map(|(at, link)| {
            let before = links.get(..=at).unwrap_or_default();
            let after = links.get(at + 1..).unwrap_or_default();
            let comes_to =
                |key: &Principal, right| self.decide_by(before, *key, right, budget).is_granted;
            let leads_on = |key: &Principal| {
                *key == self.principal || after.iter().any(|link| link.authorizer == *key)
            };
            let keys: Vec<Principal> = link.assertion.licensees().keys().filter(leads_on).collect();
            if !keys.iter().any(|key| comes_to(key, right)) {
                return Some(self.blame(at, link, right));
            }
            let ends_here = keys.contains(&self.principal);
            if !ends_here && !keys.iter().any(|key| comes_to(key, Right::Grant)) {
                return Some(denied(right, Some((at, link)), DenialCause::Grant, String::new()));
            }
            None
        })
    }

    /// Returns whether the node of the question is what was shared, or in it.
    fn is_of(&self, object: &SharedObject) -> bool {
        let dirs = &self.ancestors.dirs;
        match object {
            SharedObject::Folder(ino) => dirs.iter().any(|dir| dir.raw() == *ino),
            SharedObject::File(ino) => self.object.raw() == *ino,
            SharedObject::Name { directory, name } => {
                dirs.last().is_some_and(|dir| dir.raw() == *directory)
                    && self.name.is_some_and(|own| own.as_bytes() == name.as_bytes())
            }
        }
    }

    /// Returns the test of a link that is not met.
    fn blame(&self, at: usize, link: &Link, right: Right) -> DeniedRight {
        let says = |cause, detail| denied(right, Some((at, link)), cause, detail);
        let Some(share) = &link.share else {
            let conditions = link.assertion.conditions().map(Conditions::to_string);
            let mut conditions = conditions.unwrap_or_default();
            conditions.truncate(conditions.floor_char_boundary(limits::TEXT_BYTES));
            return says(DenialCause::Conditions, conditions);
        };
        let until = share.until.as_deref().filter(|until| *until <= self.moment.now.as_str());
        if hex::text(&share.volume) != self.volume {
            says(DenialCause::Volume, hex::text(&share.volume))
        } else if let Some(until) = until {
            says(DenialCause::Ended, until.to_owned())
        } else if !self.is_of(&share.object) {
            says(DenialCause::Place, place(&share.object))
        } else if !share.rights.has(right) {
            says(DenialCause::Right, String::new())
        } else if let Some(from) = share.from {
            says(DenialCause::Address, from.to_string())
        } else {
            says(DenialCause::Conditions, String::new())
        }
    }
}

/// Returns the inode number of an object, followed by its name if it has one.
fn place(object: &SharedObject) -> String {
    match object {
        SharedObject::Folder(ino) | SharedObject::File(ino) => ino.to_string(),
        SharedObject::Name { directory, name } => format!("{directory}/{name}"),
    }
}

/// Returns a denied right. The link comes with its place in the chain.
pub(super) fn denied(
    right: Right,
    link: Option<(usize, &Link)>,
    cause: DenialCause,
    detail: String,
) -> DeniedRight {
    DeniedRight {
        right: letter(right),
        link: link.map_or(0, |(at, _)| u8::try_from(at + 1).unwrap_or(u8::MAX)),
        signer: link.map_or([0; 32], |(_, link)| link.authorizer.0),
        cause,
        detail,
    }
}

/// Returns the letter of a right.
pub(super) fn letter(right: Right) -> u8 {
    right.letter().bytes().next().unwrap_or_default()
}
