//! The figures of Circus's paper.

use std::time::Duration;

use pelago_proto::deliver::{Circus, Options, Policy};

use super::crowd::{Crowd, CrowdLink, InOrder};
use super::report::{CrowdRow, CrowdTable};

/// Bytes of the paper's megabyte.
const MB: u64 = 1 << 20;
/// Bytes in a second of the server's link of 1 Gbit/s, of which the load is a share.
const SERVER_LINK: f64 = 125e6;
/// Bytes in a second of the disk: the paper's server never sends more in order.
const DISK: f64 = 30e6;
const MEMORY: u64 = 64 * MB;
const FILE: u64 = 512 * MB;

const T1: CrowdLink = CrowdLink { name: "T1", rate: 1.544e6 / 8.0 };
const TEN: CrowdLink = CrowdLink { name: "10T", rate: 10e6 / 8.0 };
const T3: CrowdLink = CrowdLink { name: "T3", rate: 45e6 / 8.0 };

/// Returns all tables.
pub(super) fn run(seed: u64) -> Vec<CrowdTable> {
    let loads = [0.1, 0.2, 0.3, 0.4, 0.5];
    let mut tables = vec![
        load(seed, &[T3], &loads, "sequential never above 30 MB/s; circus in proportion to load"),
        load(seed, &[TEN], &loads, "circus reads about 1 MB/s at each load"),
        load(seed, &[T1], &loads[..4], "as 10T; memory of processes ends it at 200 clients"),
        load(seed, &[T1, TEN, T3], &loads, "circus sends 50 MB/s at 50 %, and reads 5.6 or more"),
    ];
    tables.extend([file_size(seed), files(seed), block_size(seed)]);
    tables.extend([queue(seed), threshold(seed), leapfront(seed)]);
    tables
}

fn load(seed: u64, links: &[CrowdLink], loads: &[f64], paper: &'static str) -> CrowdTable {
    let names: Vec<&str> = links.iter().map(|link| link.name).collect();
    let rows = loads.iter().flat_map(|load| {
        let percent = load * 100.0;
        compare(&crowd(seed, links, *load, FILE), &format!("{percent:.0} %"))
    });
    let title = format!("Load, links {}; file 512 MB", names.join("+"));
    CrowdTable { title, paper, rows: rows.collect() }
}

fn file_size(seed: u64) -> CrowdTable {
    let rows = [256, 512, 1024]
        .map(|size| compare(&crowd(seed, &[T3], 0.4, size * MB), &format!("{size} MB")));
    CrowdTable {
        title: "File size, links T3, load 40 %".to_owned(),
        paper: "circus above 50 MB/s, sequential below 20",
        rows: rows.into_iter().flatten().collect(),
    }
}

fn files(seed: u64) -> CrowdTable {
    let rows = [1, 2, 4, 8, 16].map(|files| {
        // Memory for 16 regions, as the paper's server has.
        let memory = 320 * MB;
        let setting = format!("{files} files");
        let options = Options::new(Policy::Relevance, memory);
        let crowd = Crowd { files, options, ..crowd(seed, &[TEN], 0.4, FILE) };
        compare(&crowd, &setting)
    });
    CrowdTable {
        title: "Files of 512 MB, links 10T, load 40 %, memory 320 MB".to_owned(),
        paper: "circus about 50 MB/s to 8 files, 48 at 16; it reads 10 MB/s at 16",
        rows: rows.into_iter().flatten().collect(),
    }
}

fn block_size(seed: u64) -> CrowdTable {
    let sizes = [4_u32, 16, 64, 256, 1024].into_iter();
    let rows = sizes.flat_map(|size| [(size, 0.1), (size, 0.4)]).flat_map(|(size, load)| {
        let block_bytes = size << 10;
        let extent_bytes = (block_bytes * 64).min(1 << 20);
        let memory = usize::try_from(MEMORY).unwrap_or(usize::MAX);
        let options = Options {
            block_bytes,
            extent_bytes,
            extents: memory / extent_bytes as usize,
            ..Options::new(Policy::Relevance, MEMORY)
        };
        let crowd = Crowd { options, ..crowd(seed, &[TEN, T3], load, 128 * MB) };
        reordered(&crowd, &format!("{size} KB, {:.0} %", load * 100.0), Circus::default())
    });
    CrowdTable {
        title: "Block size, links 10T+T3; file 128 MB".to_owned(),
        paper: "flat above 16 KB at low load, above 64 KB at high load",
        rows: rows.collect(),
    }
}

fn queue(seed: u64) -> CrowdTable {
    let rows = [1, 2, 5, 10, 50, 200].map(|queue| {
        let options = Options { queue, ..Options::new(Policy::Relevance, MEMORY) };
        let crowd = Crowd { options, ..crowd(seed, &[TEN, T3], 0.4, FILE) };
        reordered(&crowd, &format!("{queue} blocks"), Circus::default())
    });
    CrowdTable {
        title: "Queue limit, links 10T+T3, load 40 %".to_owned(),
        paper: "more misses if longer, then bound by the disk; 5 is used",
        rows: rows.into_iter().flatten().collect(),
    }
}

fn threshold(seed: u64) -> CrowdTable {
    let rows = [0.25, 0.5, 0.75, 0.9, 1.0].map(|threshold| {
        let circus = Circus { threshold, ..Circus::default() };
        only_circus(&crowd(seed, &[T1, T3], 0.3, FILE), &format!("{threshold}"), circus)
    });
    CrowdTable {
        title: "Client threshold, links T1+T3, load 30 %".to_owned(),
        paper: "good at 0.75 or more",
        rows: rows.into(),
    }
}

fn leapfront(seed: u64) -> CrowdTable {
    let rows = [0.5, 1.0, 1.5, 2.0, 4.0].map(|leapfront| {
        let circus = Circus { leapfront, ..Circus::default() };
        only_circus(&crowd(seed, &[TEN, T3], 0.4, FILE), &format!("{leapfront}"), circus)
    });
    CrowdTable {
        title: "Leapfront factor, links 10T+T3, load 40 %".to_owned(),
        paper: "worse above 1",
        rows: rows.into(),
    }
}

/// Returns a crowd whose links together take a share of the server's link, in equal parts.
fn crowd(seed: u64, links: &[CrowdLink], load: f64, file_bytes: u64) -> Crowd {
    let share = SERVER_LINK * load / links.len() as f64;
    // Each link has a client at least; a share of the server's link has a few hundred of them.
    let count = |link: &CrowdLink| (share / link.rate).round().max(1.0) as usize;
    let slowest = links.iter().map(|link| link.rate).fold(f64::INFINITY, f64::min);
    Crowd {
        links: links.iter().map(|link| (*link, count(link))).collect(),
        files: 1,
        file_bytes,
        in_order: InOrder::NoClient,
        arrive_in: Duration::from_secs_f64(file_bytes as f64 / slowest),
        is_steady: true,
        disk_rate: DISK,
        options: Options::new(Policy::Relevance, MEMORY),
        seed,
    }
}

/// Simulates a crowd with each policy.
fn compare(crowd: &Crowd, setting: &str) -> Vec<CrowdRow> {
    let options = Options { policy: Policy::Sequential, ..crowd.options };
    let mut rows = vec![Crowd { options, ..crowd.clone() }.run(setting, "sequential")];
    rows.extend(reordered(crowd, setting, Circus::default()));
    rows
}

/// Simulates a crowd with both policies that change the order.
fn reordered(crowd: &Crowd, setting: &str, circus: Circus) -> Vec<CrowdRow> {
    vec![only_circus(crowd, setting, circus), crowd.run(setting, "relevance")]
}

fn only_circus(crowd: &Crowd, setting: &str, circus: Circus) -> CrowdRow {
    let options = Options { policy: Policy::Circus(circus), ..crowd.options };
    Crowd { options, ..crowd.clone() }.run(setting, "circus")
}
