//! The attributes that an answer depends on, which say for what and how long it may be cached.

use std::collections::{BTreeMap, BTreeSet};

/// The attributes that an evaluation has read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reads {
    attributes: BTreeSet<String>,
    clocks: BTreeMap<String, Option<Vec<u8>>>,
}

impl Reads {
    /// Returns the names of the attributes whose values decide. The answer is the same for each
    /// action with the same values of them, while the clocks are below their ends.
    pub fn attributes(&self) -> impl Iterator<Item = &str> {
        self.attributes.iter().map(String::as_str)
    }

    /// Returns the clocks that were only compared, each with its end: the value from which on the
    /// answer may be another; `None` if it never changes.
    pub fn clocks(&self) -> impl Iterator<Item = (&str, Option<&[u8]>)> {
        self.clocks.iter().map(|(name, end)| (name.as_str(), end.as_deref()))
    }

    /// Returns whether an attribute was read, or compared as a clock.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.attributes.contains(name) || self.clocks.contains_key(name)
    }

    /// Adds what another evaluation has read.
    pub fn merge(&mut self, other: Self) {
        self.attributes.extend(other.attributes);
        for (name, end) in other.clocks {
            self.add_clock(&name, end);
        }
    }

    pub(crate) fn add(&mut self, name: &str) {
        if !self.attributes.contains(name) {
            self.attributes.insert(name.to_owned());
        }
    }

    pub(crate) fn add_clock(&mut self, name: &str, end: Option<Vec<u8>>) {
        match self.clocks.get_mut(name) {
            None => {
                self.clocks.insert(name.to_owned(), end);
            }
            Some(known) => {
                let earlier = end.filter(|end| known.as_ref().is_none_or(|known| end < known));
                if let Some(earlier) = earlier {
                    *known = Some(earlier);
                }
            }
        }
    }
}
