//! The last match of a clause, and its groups (RFC 2704, 4.6.5): `_0` is their number, `_1` and the
//! next ones are their texts.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;

use super::pattern::Compiled;

/// The number of groups whose texts can be read: `_1` to `_31`.
const GROUPS: usize = 31;

/// The last match of a clause.
#[derive(Clone, Default)]
pub(super) enum Matched<'a> {
    /// There was no match.
    #[default]
    Nothing,
    /// A regular expression without groups.
    WithoutGroups,
    /// A regular expression with groups.
    Groups(Rc<Groups<'a>>),
}

/// The groups of a match. Most are never read, so that they are searched for when one is.
pub(super) struct Groups<'a> {
    expression: Expression<'a>,
    text: Cow<'a, [u8]>,
    found: OnceCell<Vec<Vec<u8>>>,
}

/// A compiled regular expression of the conditions, or one that was computed.
pub(super) enum Expression<'a> {
    Literal(&'a Compiled),
    Computed(Compiled),
}

impl Expression<'_> {
    pub(super) const fn compiled(&self) -> &Compiled {
        match self {
            Self::Literal(compiled) => compiled,
            Self::Computed(compiled) => compiled,
        }
    }
}

impl<'a> Matched<'a> {
    /// Returns what a regular expression has matched that matches this text.
    pub(super) fn new(expression: Expression<'a>, text: Cow<'a, [u8]>) -> Self {
        match expression.compiled().groups() {
            0 => Self::WithoutGroups,
            _ => Self::Groups(Rc::new(Groups { expression, text, found: OnceCell::new() })),
        }
    }

    /// Returns the number of groups; `None` without a match.
    pub(super) fn count(&self) -> Option<usize> {
        match self {
            Self::Nothing => None,
            Self::WithoutGroups => Some(0),
            Self::Groups(groups) => Some(groups.expression.compiled().groups()),
        }
    }

    /// Returns the groups.
    pub(super) fn groups(&self) -> Option<&Groups<'a>> {
        match self {
            Self::Nothing | Self::WithoutGroups => None,
            Self::Groups(groups) => Some(groups),
        }
    }
}

impl Groups<'_> {
    /// Returns the steps that it takes to find the groups; 0 if they are found already.
    pub(super) fn steps(&self) -> u32 {
        match self.found.get() {
            Some(_) => 0,
            None => self.expression.compiled().group_steps(&self.text),
        }
    }

    /// Returns the text of a group, which is empty if the group is in no part of the match; `None`
    /// if there is no such group.
    pub(super) fn text(&self, number: usize) -> Option<&[u8]> {
        let find = || self.expression.compiled().find_groups(&self.text, GROUPS);
        self.found.get_or_init(find).get(number.checked_sub(1)?).map(Vec::as_slice)
    }
}
