//! The tables that compare the policies, and the goals.

use std::time::Duration;

use pelago_proto::deliver::{Circus, Options, Policy};

use super::crowd::{Crowd, CrowdLink, InOrder};
use super::report::{CrowdRow, CrowdTable, Goal};
use super::{CircusOptions, CircusScope};

const MIB: u64 = 1 << 20;
/// Bytes in a second of the disk.
const DISK: f64 = 20e6;

/// The small setting: 2,048 blocks of 64 KiB, 192 of them in memory, 30 clients.
const SMALL_FILE: u64 = 128 * MIB;
const SMALL_MEMORY: u64 = 12 * MIB;
const SMALL_CLIENTS: usize = 30;
/// Circus's region is a third of the memory there, as it is at most of the usual one.
const SMALL_REGION: u64 = 4 * MIB;

/// The setting of the measurements on a real disk.
const FILE: u64 = 512 * MIB;
const MEMORY: u64 = 48 * MIB;
const ARRIVE_IN: Duration = Duration::from_secs(60);

const RELEVANCE: &str = "relevance";
const CIRCUS: &str = "circus";

const fn link(name: &'static str, rate: f64) -> CrowdLink {
    CrowdLink { name, rate }
}

const FULL: CrowdLink = link("5 MB/s", 5e6);

/// Rates of a small crowd.
const SMALL: &[(&str, &[CrowdLink])] = &[
    ("equal", &[FULL]),
    ("4.5:1", &[FULL, link("1.1 MB/s", 5e6 / 4.5)]),
    ("30:1", &[FULL, link("0.17 MB/s", 5e6 / 30.0)]),
    ("three", &[link("T1", 0.193e6), link("10T", 1.25e6), link("T3", 5.625e6)]),
];

/// Returns the tables and the goals.
pub(super) fn run(options: &CircusOptions) -> (Vec<CrowdTable>, Vec<Goal>) {
    let (small, mut goals) = small(options);
    let (large, more) = large(options);
    goals.extend(more);
    (vec![small, large], goals)
}

fn small(options: &CircusOptions) -> (CrowdTable, Vec<Goal>) {
    let mut rows = Vec::new();
    let mut goals = Vec::new();
    for (name, links) in SMALL {
        let fastest = links.iter().map(|link| link.rate).fold(0.0, f64::max);
        let slowest = links.iter().map(|link| link.rate).fold(fastest, f64::min);
        let spans = [("", fastest), (", sparse", slowest)];
        for (suffix, rate) in spans.into_iter().take(if links.len() > 1 { 2 } else { 1 }) {
            let each = SMALL_CLIENTS / links.len();
            let arrive_in = Duration::from_secs_f64(3.0 * SMALL_FILE as f64 / rate);
            let crowd = Crowd {
                links: links.iter().map(|link| (*link, each)).collect(),
                files: 1,
                file_bytes: SMALL_FILE,
                in_order: InOrder::NoClient,
                arrive_in,
                is_steady: false,
                disk_rate: DISK,
                options: Options::new(Policy::Relevance, SMALL_MEMORY),
                seed: options.seed,
            };
            let setting = format!("{name}{suffix}");
            let compared = compare(&crowd, &setting, SMALL_REGION, options.scope);
            goals.extend(goals_of(&setting, &compared));
            rows.extend(compared);
        }
    }
    let title = "30 clients in 3 download times (of the fastest; sparse: of the slowest); file \
                 128 MiB, memory 12 MiB, disk 20 MB/s, region 4 MiB";
    (CrowdTable { title: title.to_owned(), paper: "", rows }, goals)
}

fn large(options: &CircusOptions) -> (CrowdTable, Vec<Goal>) {
    let slow = link("1 MB/s", 1e6);
    let mut rows = Vec::new();
    let mut goals = Vec::new();
    let settings = [
        ("5 MB/s", &[FULL][..], 20, 1),
        ("5 MB/s", &[FULL], 50, 1),
        ("5 MB/s", &[FULL], 100, 1),
        ("1 MB/s", &[slow], 200, 1),
        ("1 MB/s", &[slow], 400, 1),
        ("4.5:1", &[FULL, link("1.1 MB/s", 5e6 / 4.5)], 50, 1),
        ("1 MB/s, 16 files", &[slow], 160, 16),
    ];
    for (name, links, clients, files) in settings {
        let crowd = Crowd {
            links: links.iter().map(|link| (*link, clients / links.len())).collect(),
            files,
            file_bytes: FILE,
            in_order: InOrder::NoClient,
            arrive_in: ARRIVE_IN,
            is_steady: false,
            disk_rate: DISK,
            options: Options::new(Policy::Relevance, MEMORY),
            seed: options.seed,
        };
        let setting = format!("{clients} × {name}");
        let mut compared = compare(&crowd, &setting, Circus::default().region_bytes, options.scope);
        goals.extend(goals_of(&setting, &compared));
        if files == 1 && options.scope > CircusScope::Goals {
            for (in_order, name) in [(InOrder::Half, "half plain"), (InOrder::Everybody, "plain")] {
                compared.push(Crowd { in_order, ..crowd.clone() }.run(&setting, name));
            }
        }
        rows.extend(compared);
    }
    let title = "Clients that arrive within 60 s; file 512 MiB, memory 48 MiB, disk 20 MB/s, \
                 region 16 MiB; plain: downloads in order, served by relevance";
    (CrowdTable { title: title.to_owned(), paper: "", rows }, goals)
}

/// Simulates a crowd with each policy, and Circus also with reads of single blocks; only with the
/// two that the goals compare if that is the scope.
fn compare(crowd: &Crowd, setting: &str, region_bytes: u64, scope: CircusScope) -> Vec<CrowdRow> {
    let circus = Policy::Circus(Circus { region_bytes, ..Circus::default() });
    let blocks = crowd.options.extent_bytes / crowd.options.block_bytes;
    let with = |policy| Options { policy, ..crowd.options };
    let single = Options {
        extent_bytes: crowd.options.block_bytes,
        extents: crowd.options.extents * blocks as usize,
        ..with(circus)
    };
    let policies = [
        ("sequential", with(Policy::Sequential)),
        (CIRCUS, with(circus)),
        ("circus 64K", single),
        (RELEVANCE, with(Policy::Relevance)),
    ];
    let run = |(name, options)| Crowd { options, ..crowd.clone() }.run(setting, name);
    let is_wanted = |(name, _): &(&str, Options)| {
        scope > CircusScope::Goals || matches!(*name, CIRCUS | RELEVANCE)
    };
    policies.into_iter().filter(is_wanted).map(run).collect()
}

/// Returns the goals of a crowd.
fn goals_of(setting: &str, rows: &[CrowdRow]) -> Vec<Goal> {
    let find = |policy| rows.iter().find(|row| row.policy == policy);
    let (Some(ours), Some(circus)) = (find(RELEVANCE), find(CIRCUS)) else { return Vec::new() };
    let goal =
        |name: &str, figure, limit| Goal { name: format!("{setting}: {name}"), figure, limit };
    let is_mixed = setting.contains(':') || setting.contains("three");
    if setting.contains("files") {
        vec![goal("disk reads over the sum of the ideal passes", ours.ratio(), 1.5)]
    } else if is_mixed {
        vec![
            goal("disk reads over ideal passes", ours.ratio(), 1.5),
            goal("disk reads over those of circus", ours.passes / circus.passes, 0.5),
            goal("the slowest download over its time alone", ours.worst, 1.3),
        ]
    } else {
        vec![
            goal("disk reads over ideal passes", ours.ratio(), 1.3),
            goal("the mean download over its time alone", ours.mean, 1.15),
        ]
    }
}
