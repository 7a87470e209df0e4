//! `mirror`: what a mirror costs the site of the volume, and what it takes to compare one.
//!
//! Both sites are namespaces with a line of 100 Mbit/s and 10 ms each way between them. While the
//! costs are measured, the mirror lies in memory (`/dev/shm`), so that the disk has the primary's
//! work only. The mirror uses the same processors, which makes the ratios worse than at two sites.

mod costs;
mod figures;
mod link;
mod network;
mod resync;
mod sites;

use pelago_testbed::{VerbResult, arguments, machine, mounted, verdict};

const DEFAULT_ROUNDS: u32 = 9;
const DEFAULT_FILES: u64 = 1_000_000;
const DEFAULT_MIB: u64 = 10_240;

/// Measures, and prints each figure beside its limit.
pub(crate) fn run(words: &[String]) -> VerbResult {
    if !machine::is_root() {
        return Err("needs root, for network namespaces".to_owned());
    }
    let logs = mounted::log_folder("mirror")?;
    match words {
        [kind, ..] if kind == "receive" || kind == "send" => link::end(words),
        [kind, rest @ ..] if kind == "figures" => figures::run(&logs, rest),
        [kind, rest @ ..] if kind == "link" => link::run(&logs, rest),
        [kind, rest @ ..] if kind == "network" => network::run(&logs, rest),
        [kind, rest @ ..] if kind == "costs" => {
            let (rounds, step) = rest.split_at(rest.len().min(1));
            let rounds = arguments::count(rounds, DEFAULT_ROUNDS, "rounds")?;
            verdict(costs::measure(&logs, rounds, step.first().map(String::as_str))?)
        }
        [kind, rest @ ..] if kind == "files" => {
            verdict(resync::of_files(&logs, arguments::count(rest, DEFAULT_FILES, "files")?)?)
        }
        [kind, rest @ ..] if kind == "large" => {
            verdict(resync::of_large(&logs, arguments::count(rest, DEFAULT_MIB, "MiB")?)?)
        }
        _ => Err("needs `costs`, `files`, `large`, `link`, `network` or `figures`".to_owned()),
    }
}
