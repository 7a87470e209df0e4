//! The attributes that an assertion can ask for, by its text.

use pelago_keynote::Assertion;
use pelago_keynote::share::attribute;

/// Returns whether an assertion only asks which directories are above the object. So a right to a
/// directory is one to all below it.
pub(super) fn only_seeks_ancestors(assertion: &Assertion) -> bool {
    let only_seeks = assertion
        .conditions()
        .is_none_or(|conditions| conditions.only_seeks_members_of(attribute::ANCESTORS));
    only_seeks && !mentions(assertion, attribute::OBJECT)
}

/// Returns whether an assertion may ask for the address of a guest.
pub(super) fn may_read_address(assertion: &Assertion) -> bool {
    // The name may be computed.
    mentions(assertion, attribute::ADDRESS) || mentions(assertion, "$")
}

/// Returns whether the text has a word. A word in the comment makes no answer wrong: it only makes
/// a guest who travels another one, or a decision a costlier one.
fn mentions(assertion: &Assertion, word: &str) -> bool {
    assertion.text().contains(word)
}
