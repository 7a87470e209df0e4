//! The attributes that an assertion can ask for, by its text.

use pelago_keynote::Assertion;
use pelago_keynote::share::attribute;

/// Returns whether a right to a directory by an assertion is one to all below it: nothing but the
/// directories above the object is asked for.
pub(super) fn grants_all_below(assertion: &Assertion) -> bool {
    let only_seeks = assertion
        .conditions()
        .is_none_or(|conditions| conditions.only_seeks_members_of(attribute::ANCESTORS));
    const OTHERS: [&str; 3] = [attribute::OBJECT, attribute::NAME, attribute::OPERATION];
    only_seeks && !OTHERS.iter().any(|other| may_read(assertion, other))
}

/// Returns whether an assertion can be decided from the last directories above the object alone:
/// more above them would grant more and never less.
pub(super) fn only_seeks_ancestors(assertion: &Assertion) -> bool {
    assertion
        .conditions()
        .is_none_or(|conditions| conditions.only_seeks_members_or_last_of(attribute::ANCESTORS))
}

/// Returns whether an assertion may ask for an attribute. The name of a condition may be computed,
/// so one that is computed may be any.
pub(super) fn may_read(assertion: &Assertion, attribute: &str) -> bool {
    assertion.conditions().is_some_and(|conditions| conditions.may_read(attribute))
}
