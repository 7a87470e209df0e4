//! Crowds of clients, and how a policy serves them.

use std::time::Duration;

use pelago_proto::deliver::Options;
use pelago_random::Random;

use super::report::CrowdRow;
use super::world::{CrowdResult, Download, Scenario, simulate};

/// The link of a kind of clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CrowdLink {
    /// The name of the server.
    pub name: &'static str,
    /// Bytes in a second.
    pub rate: f64,
}

/// The clients of a crowd that take the blocks in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InOrder {
    /// No client.
    NoClient,
    /// Every second one.
    Half,
    /// All clients.
    Everybody,
}

/// A crowd: a number of clients of each link, for some files, and the server.
#[derive(Debug, Clone, PartialEq)]
pub struct Crowd {
    /// The links, with the number of clients of each.
    pub links: Vec<(CrowdLink, usize)>,
    /// Files; each client downloads one of them, in turn.
    pub files: usize,
    /// Bytes of a file.
    pub file_bytes: u64,
    /// The clients that take the blocks in order.
    pub in_order: InOrder,
    /// The time in which they arrive.
    pub arrive_in: Duration,
    /// True if another client takes the place of each that ends, so that the load is steady, for
    /// four times that time, of which the first quarter is not measured.
    pub is_steady: bool,
    /// Bytes that the disk reads in a second.
    pub disk_rate: f64,
    /// Settings of the machine.
    pub options: Options,
    /// The seed of the arrivals.
    pub seed: u64,
}

impl Crowd {
    /// Simulates the crowd; the row has this setting.
    pub(super) fn run(&self, setting: &str, policy: &'static str) -> CrowdRow {
        let result = simulate(&self.scenario());
        let (mean, median, worst) = result.slowdown();
        let CrowdResult { read_bytes, sent_bytes, pass_bytes, steady, ended, .. } = &result;
        let file = self.file_bytes as f64;
        let read = *read_bytes as f64;
        let sent = *sent_bytes as f64;
        let seconds = match self.is_steady {
            true => (self.arrive_in * 3).as_secs_f64(),
            false => ended.as_secs_f64(),
        };
        CrowdRow {
            setting: setting.to_owned(),
            policy,
            clients: self.links.iter().map(|(_, count)| count).sum(),
            passes: read / file,
            ideal_passes: pass_bytes / file,
            misses: read / sent.max(1.0),
            mean,
            median,
            worst,
            sent_rate: steady.sent_bytes as f64 / seconds / 1e6,
            read_rate: steady.read_bytes as f64 / seconds / 1e6,
        }
    }

    fn scenario(&self) -> Scenario {
        let mut random = Random::new(self.seed);
        // The links take turns, so that each file has clients of each.
        let most = self.links.iter().map(|(_, count)| *count).max().unwrap_or(0);
        let turns = (0..most).flat_map(|turn| {
            let links = self.links.iter().filter(move |(_, count)| turn < *count);
            links.enumerate().map(move |(at, (link, _))| (turn + at, link.rate))
        });
        let span = u64::try_from(self.arrive_in.as_micros()).unwrap_or(u64::MAX);
        let ends = self.arrive_in * 4;
        let is_ordered = |number: usize| match self.in_order {
            InOrder::NoClient => false,
            InOrder::Half => number.is_multiple_of(2),
            InOrder::Everybody => true,
        };
        let download = |(number, (turn, rate)): (usize, (usize, f64))| Download {
            file: u32::try_from(turn % self.files).expect("few files"),
            arrives: Duration::from_micros(random.below(span)),
            rate,
            is_ordered: is_ordered(number),
            repeats_until: if self.is_steady { ends } else { Duration::ZERO },
        };
        Scenario {
            options: self.options,
            disk_rate: self.disk_rate,
            file_bytes: self.file_bytes,
            downloads: turns.enumerate().map(download).collect(),
            ends: self.is_steady.then_some(ends),
            steady_from: if self.is_steady { self.arrive_in } else { Duration::ZERO },
        }
    }
}
