//! Offline check and repair of a volume: whether its rows and its content files agree.
//!
//! [`plan`] changes nothing. [`apply`] repairs, and checks again, until no finding is left that it
//! can repair. A repair never removes bytes that a user could still want: a file whose name is lost
//! gets a new one in the root directory, `lost+found.` and its inode id; at a site that is not the
//! home of the root, in a directory that gets a name there.
//!
//! Rows are read in the order of their keys. Memory is bounded: it holds at most [`WINDOW`] inodes,
//! and a volume with more is scanned several times.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use pelago_store::clock;
use pelago_store::content::{self, ContentStore};
use pelago_store::folder::Folder;
use pelago_store::hash::NameHasher;
use pelago_store::key::{self, KeyRange};
use pelago_store::owner::OwnerError;
use pelago_store::rows::{HighWater, Row, Stamp};
use pelago_store::table::fjall::{self, FjallTable};
use pelago_store::table::{self, Change, Table};
use pelago_store::volume::{Volume, VolumeError, VolumeId};
use pelago_wire::{InodeId, ShardId, Time, limits};

pub use finding::{Damage, Finding, Repair};
pub use salvage::{SalvageError, Salvaged, salvage};

mod content_files;
mod finding;
mod found;
mod index;
mod inodes;
mod loops;
mod names;
mod rebuild;
mod rnodes;
mod rows;
mod salvage;
mod store;
mod tags;
#[cfg(test)]
mod tests;
mod window;

/// The most inodes in memory.
pub const WINDOW: usize = 1 << 19;
/// The most findings that are listed; the rest is only counted.
pub const FINDINGS: usize = 10_000;

/// Checks the volume in `dir` and changes nothing.
///
/// # Errors
/// [`CheckError`] if it cannot be opened or read.
pub fn plan(dir: &Path) -> Result<Plan, CheckError> {
    let work = |parts: Parts<'_>, volume: &Volume| {
        let mut plan = plan_on(parts)?;
        add_second_files(&mut plan, volume);
        Ok(plan)
    };
    // Also a mirror, whose keeper has stopped.
    match Volume::open_mirror(dir) {
        Err(VolumeError::SharedStore { .. }) => store::with_store(dir, work),
        opened => with_volume(opened?, work),
    }
}

/// Checks the volume in `dir` and repairs it. Returns what was found, and what is left.
///
/// # Errors
/// [`CheckError`]. Earlier repairs stay, and the call can be repeated.
pub fn apply(dir: &Path) -> Result<Applied, CheckError> {
    let volume = match Volume::open(dir) {
        Err(VolumeError::SharedStore { .. }) => return Err(CheckError::Shared),
        opened => opened?,
    };
    with_volume(volume, |parts, volume| {
        volume.mark_unclean()?;
        let mut applied = apply_on(parts)?;
        applied.repaired += add_second_files(&mut applied.before, volume);
        volume.mend()?;
        if volume.was_clean() {
            parts.content.sync_all()?;
            volume.mark_clean()?;
        }
        Ok(applied)
    })
}

/// Adds the small files of a volume that are damaged, and that their second ones stand in for.
/// Returns their number.
fn add_second_files(plan: &mut Plan, volume: &Volume) -> u64 {
    let damaged = volume.mends().iter().filter(|mend| mend.is_damage);
    let mut count = 0;
    for mend in damaged {
        let repair = Some(Repair::nothing("write it again from the second one"));
        let key = mend.path.clone().into_os_string().into_encoded_bytes();
        plan.add(Finding { damage: Damage::SecondFile, ino: None, key, repair });
        count += 1;
    }
    count
}

/// The parts of a volume that are checked.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// Rows: names, attributes and the bytes of small files.
    pub table: &'a dyn Table,
    /// Content files: the bytes of all other files.
    pub content: &'a ContentStore,
    /// The volume's id, which the table must bear.
    pub volume: VolumeId,
    /// The shard whose rows are in the table.
    pub shard: ShardId,
    /// The volume's keyed hash of names.
    pub hasher: NameHasher,
    /// True if the volume has a row for each tag, by its format.
    pub tags_are_complete: bool,
    /// The volume has several sites: names lead to directories of others, and directories have
    /// their names there.
    pub has_sites: bool,
    /// The folder of the volume, in which the search index is; `None` if that is not checked.
    pub index: Option<&'a Folder>,
}

/// The findings of a check, and their repairs.
#[derive(Debug, Default)]
pub struct Plan {
    /// The first [`FINDINGS`] findings.
    pub findings: Vec<Finding>,
    /// Findings that are damage.
    pub damage: u64,
    /// Findings that only take space; a crash may leave them.
    pub leftovers: u64,
    /// Findings that the next start corrects, as after each crash.
    pub pending: u64,
    /// Findings that have a repair.
    pub repairable: u64,
    /// The amount that was checked.
    pub checked: Checked,
    /// A repair waits for the directory that gets what has lost its name: that is made first.
    waits_for_found: bool,
    /// The rows of that directory; none if it cannot be made.
    makes_found: Vec<Change>,
    /// A row of a name or an inode cannot be read.
    has_lost_rows: bool,
}

/// The amount that was checked: counts of rows and files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checked {
    /// Rows of every kind.
    pub rows: u64,
    /// Inodes: files, directories, symbolic links and special files.
    pub nodes: u64,
    /// Of those, directories.
    pub directories: u64,
    /// Of those, directories whose name is at another site, or that have none.
    pub named_elsewhere: u64,
    /// Nodes without a name that have bytes of files of other sites.
    pub stays: u64,
    /// Content files.
    pub content_files: u64,
}

/// The result of a repair.
#[derive(Debug)]
pub struct Applied {
    /// The findings of the first check.
    pub before: Plan,
    /// Findings that were repaired, with those that only a repair brought to light.
    pub repaired: u64,
    /// The findings of the last check.
    pub after: Plan,
}

/// The reason why a volume cannot be checked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// The volume cannot be opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The table cannot be opened, read or written.
    #[error(transparent)]
    Table(#[from] table::Error),
    /// A content file cannot be read or removed.
    #[error(transparent)]
    Content(#[from] content::Error),
    /// The volume lies on a shared store, which is not repaired.
    #[error("--apply is not built yet for a shared store; nothing was changed")]
    Shared,
    /// A server owns the volume on the shared store, or may.
    #[error(
        "a server owns the volume in {}, or was killed while it did: stop all servers of the \
         store; if none runs, start one and stop it", path.display()
    )]
    Owned {
        /// The folder of the store.
        path: PathBuf,
    },
    /// The shared store cannot be used.
    #[error(transparent)]
    Store(#[from] OwnerError),
    /// The system gives no thread, no random bytes or no boot id.
    #[error("a thread, random bytes or the boot id of the machine cannot be had")]
    System(#[source] io::Error),
    /// The table belongs to another volume.
    #[error("the table belongs to volume {found}: put back the table of volume {wanted}")]
    Foreign {
        /// The volume that the table belongs to.
        found: VolumeId,
        /// The volume that is checked.
        wanted: VolumeId,
    },
}

impl Plan {
    /// Returns whether nothing is damaged.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.damage == 0
    }
}

/// As [`plan`], for parts that are open already.
///
/// # Errors
/// As [`plan`].
pub fn plan_on(parts: Parts<'_>) -> Result<Plan, CheckError> {
    let plan = check(parts, false)?;
    if plan.has_lost_rows { check(parts, true) } else { Ok(plan) }
}

/// As [`apply`], for parts that are open already.
///
/// # Errors
/// As [`apply`].
pub fn apply_on(parts: Parts<'_>) -> Result<Applied, CheckError> {
    let mut plan = plan_on(parts)?;
    let mut adopt_stray = plan.has_lost_rows;
    let mut repaired = 0;
    let mut before = None;
    // Each round repairs at least one finding for good; the limit guards against our mistakes.
    for _ in 0..ROUNDS {
        let done = rebuild::apply(parts, &plan)?;
        let was_made = !plan.makes_found.is_empty();
        repaired += done;
        let mut next = check(parts, adopt_stray)?;
        if next.has_lost_rows && !adopt_stray {
            // Only now the list of findings has reached them.
            adopt_stray = true;
            next = check(parts, adopt_stray)?;
        }
        let last = std::mem::replace(&mut plan, next);
        before = before.or(Some(last));
        if (done == 0 && !was_made) || plan.repairable == 0 {
            break;
        }
    }
    Ok(Applied { before: before.unwrap_or_default(), repaired, after: plan })
}

/// The most rounds of repairs.
const ROUNDS: u32 = 1000;

/// Checks a volume once. If `adopt_stray`, bytes of no inode get a new name instead of being
/// removed, because a lost row may have named them.
fn check(parts: Parts<'_>, adopt_stray: bool) -> Result<Plan, CheckError> {
    let mut check = Check::new(parts, adopt_stray)?;
    if check.is_unused()? {
        return Ok(check.plan);
    }
    check.names()?;
    check.partitions()?;
    check.inodes()?;
    check.tags()?;
    check.others()?;
    check.make_found();
    if let Some(folder) = parts.index {
        check.index(folder)?;
    }
    Ok(check.plan)
}

impl Plan {
    fn add(&mut self, finding: Finding) {
        match finding.damage {
            damage if damage.is_leftover() => self.leftovers += 1,
            damage if damage.is_pending() => self.pending += 1,
            _ => self.damage += 1,
        }
        self.repairable += u64::from(finding.repair.is_some());
        self.has_lost_rows |= finding.damage == Damage::Row && finding.names_a_file();
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
    shard: ShardId,
    tags_are_complete: bool,
    has_sites: bool,
    /// Give a name to bytes of no inode.
    adopt_stray: bool,
    /// The high-water mark: the first counter that no inode id has, says the volume.
    next_id: u64,
    /// The highest counter of an inode id.
    highest: u64,
    /// The directory that gets what has lost its name, if it exists.
    found: Option<InodeId>,
    /// A repair waits for that directory.
    wants_found: Cell<bool>,
    /// The stamp of rows that a repair writes.
    stamp: Stamp,
    now: Time,
    plan: Plan,
}

impl<'a> Check<'a> {
    fn new(parts: Parts<'a>, adopt_stray: bool) -> Result<Self, CheckError> {
        let mark = parts.table.get(&key::high_water(parts.shard.shard))?;
        let mark = mark.as_deref().and_then(|value| HighWater::decode(value).ok());
        let (epoch, next_id) = mark.map_or((0, 0), |(stamp, mark)| (stamp.epoch, mark.next));
        Ok(Self {
            table: parts.table,
            content: parts.content,
            hasher: parts.hasher,
            volume: parts.volume,
            shard: parts.shard,
            tags_are_complete: parts.tags_are_complete,
            has_sites: parts.has_sites,
            adopt_stray,
            next_id,
            highest: 0,
            found: found::find(parts)?,
            wants_found: Cell::new(false),
            stamp: Stamp { epoch, sequence: 0 },
            now: clock::now(),
            plan: Plan::default(),
        })
    }

    /// Returns whether an inode has its home at another site.
    fn is_elsewhere(&self, ino: InodeId) -> bool {
        self.has_sites && ino.site() != self.shard.site
    }

    /// Returns whether the volume was never served since it was created.
    fn is_unused(&self) -> Result<bool, CheckError> {
        let mut unused = true;
        self.table.scan(&[], &[], &mut |_, _| {
            unused = false;
            ControlFlow::Break(())
        })?;
        Ok(unused)
    }

    /// Repairs are written with the newest epoch: that of the high-water mark, or of any row if the
    /// mark is lost.
    fn note_epoch(&mut self, stamp: Stamp) {
        self.stamp.epoch = self.stamp.epoch.max(stamp.epoch);
    }

    /// Calls `visit` with each row of a range, and counts the rows.
    fn each(
        &mut self,
        range: &KeyRange,
        mut visit: impl FnMut(&mut Self, &[u8], &[u8]) -> Result<(), table::Error>,
    ) -> Result<(), CheckError> {
        let table = self.table;
        let mut failed = None;
        table.scan(&range.from, &range.to, &mut |key, value| {
            self.plan.checked.rows += 1;
            match visit(self, key, value) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn report_inode(&mut self, damage: Damage, ino: InodeId, repair: Option<Repair>) {
        self.plan.add(Finding { damage, ino: Some(ino), key: Vec::new(), repair });
    }

    fn report_row(&mut self, damage: Damage, key: &[u8], repair: Option<Repair>) {
        self.plan.add(Finding { damage, ino: None, key: key.to_vec(), repair });
    }
}

fn with_volume<T>(
    volume: Volume,
    work: impl FnOnce(Parts<'_>, &Volume) -> Result<T, CheckError>,
) -> Result<T, CheckError> {
    let table = volume.table().clone();
    let content = ContentStore::open_in(volume.content())?;
    with_table(volume, &table, &content, work)
}

/// Runs `work` with the table in this folder, which is the volume's.
fn with_table<T>(
    mut volume: Volume,
    table: &Folder,
    content: &ContentStore,
    work: impl FnOnce(Parts<'_>, &Volume) -> Result<T, CheckError>,
) -> Result<T, CheckError> {
    let options = fjall::Options { memory_bytes: limits::TABLE_MEMORY_BYTES as u64 };
    let table = FjallTable::open_in(table, options)?;
    volume.confirm_seed(&table)?;
    let parts = Parts {
        table: &table,
        content,
        volume: volume.id(),
        shard: volume.shard_id(),
        hasher: volume.hasher(),
        tags_are_complete: volume.format().tags_are_complete(),
        has_sites: volume.format().has_sites(),
        index: Some(volume.folder()),
    };
    let done = work(parts, &volume)?;
    table.close()?;
    Ok(done)
}
