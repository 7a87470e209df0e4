//! The ordered compliance values of a query (RFC 2704, 5.1).

/// The values that a query can have, the lowest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values(Vec<String>);

impl Values {
    /// The index of the lowest value.
    pub const MIN: usize = 0;

    /// Returns the values `false` and `true`.
    #[must_use]
    pub fn boolean() -> Self {
        Self(vec!["false".to_owned(), "true".to_owned()])
    }

    /// Returns these values, the lowest first; `None` if there are fewer than two, or one twice.
    #[must_use]
    pub fn new(values: Vec<String>) -> Option<Self> {
        let is_new = |(at, value)| !values.iter().take(at).any(|earlier| earlier == value);
        (values.len() >= 2 && values.iter().enumerate().all(is_new)).then_some(Self(values))
    }

    /// Returns the index of the highest value.
    #[must_use]
    pub const fn max(&self) -> usize {
        self.0.len().saturating_sub(1)
    }

    /// Returns the name of the value with this index.
    #[must_use]
    pub fn name(&self, index: usize) -> &str {
        self.0.get(index).map_or("", String::as_str)
    }

    /// Returns the index of the value with this name; the lowest if there is none.
    pub(crate) fn find(&self, name: &[u8]) -> usize {
        self.0.iter().position(|value| value.as_bytes() == name).unwrap_or(Self::MIN)
    }

    /// Returns the names, separated by commas.
    pub(crate) fn to_text(&self) -> String {
        self.0.join(",")
    }
}
