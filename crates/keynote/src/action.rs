//! The action that is asked for, as its attributes (RFC 2704, 3).

use std::borrow::Cow;
use std::collections::BTreeMap;

/// The attributes of an action.
///
/// They are looked up only when a test reads them, so that a costly one costs nothing in most
/// evaluations. Names that begin with `_` belong to the language and are never looked up.
pub trait Action {
    /// Returns the value of an attribute, without NUL bytes; `None` if there is no such attribute.
    fn attribute(&self, name: &str) -> Option<Cow<'_, [u8]>>;

    /// Returns whether an attribute only grows while time passes, byte by byte compared.
    fn is_clock(&self, _name: &str) -> bool {
        false
    }
}

impl Action for BTreeMap<String, Vec<u8>> {
    fn attribute(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        self.get(name).map(|value| Cow::Borrowed(value.as_slice()))
    }
}
