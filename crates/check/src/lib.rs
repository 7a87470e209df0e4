//! Checks a volume that nobody serves: whether its rows, its bytes and its files say the same, and
//! what would make them.
//!
//! [`plan`] only looks. [`apply`] repairs what has a repair, and looks again, until nothing is left
//! that it could repair. A repair never drops bytes that somebody could still want: a file whose
//! name was lost gets a new one in the root directory, `lost+found.` and its number.
//!
//! Rows are read in the order of their keys. What is known of a file is held for as many files at
//! once as [`WINDOW`] says; a volume with more files is scanned several times, so that memory is
//! bounded.

#![forbid(unsafe_code)]

use std::ops::ControlFlow;
use std::path::Path;

use pelago_store::content::{self, ContentStore};
use pelago_store::hash::NameHasher;
use pelago_store::key;
use pelago_store::rows::{HighWater, Row, Stamp};
use pelago_store::table::fjall::{self, FjallTable};
use pelago_store::table::{self, Table};
use pelago_store::volume::{Volume, VolumeError, VolumeId};
use pelago_wire::{InodeId, Time, limits};

use pelago_store::clock;
use pelago_store::volume::SHARD;

pub use finding::{Damage, Finding, Repair};

mod content_files;
mod finding;
mod names;
mod nodes;
mod rebuild;
mod rows;
#[cfg(test)]
mod tests;

/// Files that are held in memory at once.
pub const WINDOW: usize = 1 << 19;
/// Findings that are listed; more are only counted.
pub const FINDINGS: usize = 10_000;

/// Checks the volume in `dir` and changes nothing in it.
///
/// # Errors
/// [`CheckError`] where it cannot be opened or read.
pub fn plan(dir: &Path) -> Result<Plan, CheckError> {
    with_volume(dir, |parts, _| plan_on(parts))
}

/// Checks the volume in `dir` and repairs it. Answers what was repaired, and what is left.
///
/// # Errors
/// [`CheckError`]; what was repaired until then stays so, and it can be called again.
pub fn apply(dir: &Path) -> Result<Applied, CheckError> {
    with_volume(dir, |parts, volume| {
        volume.mark_unclean()?;
        let applied = apply_on(parts)?;
        if volume.was_clean() {
            parts.content.sync_all()?;
            volume.mark_clean()?;
        }
        Ok(applied)
    })
}

/// What is checked.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// The rows.
    pub table: &'a dyn Table,
    /// The bytes.
    pub content: &'a ContentStore,
    /// Whose they are.
    pub volume: VolumeId,
    /// The volume's hash of names.
    pub hasher: NameHasher,
}

/// What was found, and what would be done about it.
#[derive(Debug, Default)]
pub struct Plan {
    /// Each finding, the first [`FINDINGS`].
    pub findings: Vec<Finding>,
    /// Findings that are damage.
    pub damage: u64,
    /// Findings that only take space: what a crash may leave.
    pub leftovers: u64,
    /// Findings that have a repair.
    pub repairable: u64,
    /// What was looked at.
    pub checked: Checked,
}

/// What was looked at.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Rows of every kind.
    pub rows: u64,
    /// Files, directories and links.
    pub nodes: u64,
    /// Of those, directories.
    pub directories: u64,
    /// Content files.
    pub content_files: u64,
}

/// What a repair came to.
#[derive(Debug)]
pub struct Applied {
    /// What was found first.
    pub before: Plan,
    /// Findings that were repaired, those that only came to light on the way included.
    pub repaired: u64,
    /// What is left.
    pub after: Plan,
}

/// Why a volume cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// It cannot be opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Its table cannot be opened or read.
    #[error(transparent)]
    Table(#[from] table::Error),
    /// Its content files cannot be read.
    #[error(transparent)]
    Content(#[from] content::Error),
    /// Its table is another volume's.
    #[error("the table belongs to volume {found}: put back the table of volume {wanted}")]
    Foreign {
        /// Whose it is.
        found: VolumeId,
        /// Whose it should be.
        wanted: VolumeId,
    },
}

impl Plan {
    /// Whether nothing is damaged.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.damage == 0
    }
}

/// As [`plan`], over parts that are open.
///
/// # Errors
/// As [`plan`].
pub fn plan_on(parts: Parts<'_>) -> Result<Plan, CheckError> {
    let plan = look(parts, false)?;
    if plan.has_lost_rows() { look(parts, true) } else { Ok(plan) }
}

/// As [`apply`], over parts that are open.
///
/// # Errors
/// As [`apply`].
pub fn apply_on(parts: Parts<'_>) -> Result<Applied, CheckError> {
    let mut plan = plan_on(parts)?;
    let mut adopt = plan.has_lost_rows();
    let mut repaired = 0;
    let mut before = None;
    // Each round repairs at least one finding for good; the bound is for what we did not think of.
    for _ in 0..ROUNDS {
        let done = rebuild::carry_out(parts, &plan)?;
        repaired += done;
        let next = look(parts, adopt)?;
        let last = std::mem::replace(&mut plan, next);
        before = before.or(Some(last));
        adopt |= plan.has_lost_rows();
        if done == 0 || plan.repairable == 0 {
            break;
        }
    }
    Ok(Applied { before: before.unwrap_or_default(), repaired, after: plan })
}

/// Rounds of repairs, at the most.
const ROUNDS: u32 = 1000;

/// `adopt`: bytes without an owner are kept under a new name, since a row that was lost may have
/// named them.
fn look(parts: Parts<'_>, adopt: bool) -> Result<Plan, CheckError> {
    let mut check = Check::new(parts, adopt)?;
    if check.is_unused()? {
        return Ok(check.plan);
    }
    check.names()?;
    check.partitions()?;
    check.nodes()?;
    check.others()?;
    Ok(check.plan)
}

impl Plan {
    /// Whether rows that named files cannot be read.
    fn has_lost_rows(&self) -> bool {
        self.findings.iter().any(|finding| finding.damage == Damage::Row && finding.names_a_file())
    }

    fn add(&mut self, finding: Finding) {
        match finding.damage.is_leftover() {
            true => self.leftovers += 1,
            false => self.damage += 1,
        }
        self.repairable += u64::from(finding.repair.is_some());
        if self.findings.len() < FINDINGS {
            self.findings.push(finding);
        }
    }
}

/// A check under way.
struct Check<'a> {
    table: &'a dyn Table,
    content: &'a ContentStore,
    hasher: NameHasher,
    volume: VolumeId,
    adopt: bool,
    /// Numbers at or above it were never given out, as far as the volume knows.
    next_id: u64,
    /// The highest number that a file has.
    highest: u64,
    /// The stamp of what a repair writes.
    stamp: Stamp,
    now: Time,
    plan: Plan,
}

impl<'a> Check<'a> {
    fn new(parts: Parts<'a>, adopt: bool) -> Result<Self, CheckError> {
        let mark = parts.table.get(&key::high_water(SHARD))?;
        let mark = mark.as_deref().and_then(|value| HighWater::decode(value).ok());
        let (epoch, next_id) = mark.map_or((0, 0), |(stamp, mark)| (stamp.epoch, mark.next));
        Ok(Self {
            table: parts.table,
            content: parts.content,
            hasher: parts.hasher,
            volume: parts.volume,
            adopt,
            next_id,
            highest: 0,
            stamp: Stamp { epoch, sequence: 0 },
            now: clock::now(),
            plan: Plan::default(),
        })
    }

    /// Whether the volume was made and never served.
    fn is_unused(&self) -> Result<bool, CheckError> {
        let mut unused = true;
        self.table.scan(&[], &[], &mut |_, _| {
            unused = false;
            ControlFlow::Break(())
        })?;
        Ok(unused)
    }

    /// What a repair writes bears the newest epoch, which the mark says, or else the rows.
    fn saw(&mut self, stamp: Stamp) {
        self.stamp.epoch = self.stamp.epoch.max(stamp.epoch);
    }

    fn found(&mut self, damage: Damage, ino: InodeId, repair: Option<Repair>) {
        self.plan.add(Finding { damage, ino: Some(ino), key: Vec::new(), repair });
    }

    fn found_at(&mut self, damage: Damage, key: &[u8], repair: Option<Repair>) {
        self.plan.add(Finding { damage, ino: None, key: key.to_vec(), repair });
    }
}

fn with_volume<T>(
    dir: &Path,
    work: impl FnOnce(Parts<'_>, &Volume) -> Result<T, CheckError>,
) -> Result<T, CheckError> {
    let volume = Volume::open(dir)?;
    let options = fjall::Options { memory_bytes: limits::TABLE_MEMORY_BYTES as u64 };
    let table = FjallTable::open_in(volume.table(), options)?;
    let content = ContentStore::open_in(volume.content())?;
    let (hasher, id) = (volume.hasher(), volume.id());
    let parts = Parts { table: &table, content: &content, volume: id, hasher };
    let done = work(parts, &volume)?;
    table.close()?;
    Ok(done)
}
