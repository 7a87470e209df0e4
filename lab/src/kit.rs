//! The kit that the laboratories share: loads and their latencies, namespaces and links, groups of
//! processes with limits, statistics and reports.

pub(crate) mod clock;
pub(crate) mod group;
pub(crate) mod iperf;
pub(crate) mod latency;
pub(crate) mod load;
pub(crate) mod namespaces;
pub(crate) mod process;
pub(crate) mod report;
pub(crate) mod slow_link;
pub(crate) mod statistics;
