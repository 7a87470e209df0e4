//! The most facts that are cached under leases.

use pelago_wire::limits;

/// The most facts that are cached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MostFacts {
    /// Nodes with attributes, and listed directories.
    pub(crate) nodes: usize,
    /// Names, and entries of listings.
    pub(crate) names: usize,
    /// Nodes with texts.
    pub(crate) texts: usize,
}

impl MostFacts {
    /// Returns the limits of a process that caches at most `nodes` nodes, and as many names.
    pub(crate) const fn of(nodes: usize) -> Self {
        Self {
            nodes,
            names: nodes,
            texts: nodes.div_ceil(limits::HOLDER_NODES / limits::HOLDER_TEXTS),
        }
    }
}

impl Default for MostFacts {
    fn default() -> Self {
        Self {
            nodes: limits::HOLDER_NODES,
            names: limits::HOLDER_NAMES,
            texts: limits::HOLDER_TEXTS,
        }
    }
}
