//! Losses of power at either site, below `lossfs`, which keeps what was synced and drops or tears
//! the rest: no mirror is ahead of its primary, and a mirror keeps what it has answered for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pelago_lossfs::{Control, Model, Names, Random, Survival};
use pelago_server::MirrorStore;
use pelago_store::folder::Folder;
use pelago_store::key::Key;
use pelago_wire::mirror::{GroupPart, RowChange};

use super::pair::{Event, Fate, connect_to, keeper, start};
use super::program::{Progress, STEPS, begin, progress, promote, run, step_of, wait};
use crate::loss::world::{Disk, mounted, place};

/// One moment in so many is tried, and so many in all.
const ODDS: u64 = 12;
const MOST: usize = 40;

/// The moments of a run, each with what must be there.
struct Moments<P>(Arc<Mutex<Vec<(Model, Survival, P)>>>);

impl<P: Send + 'static> Moments<P> {
    /// Collects moments from a file system, each with the promise that `promised` returns.
    fn of(control: &Control, seed: u64, promised: impl Fn() -> P + Send + Sync + 'static) -> Self {
        let moments = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&moments);
        let random = Mutex::new(Random(seed));
        control.watch(move |moment| {
            let mut random = random.lock();
            let mut kept = kept.lock();
            if kept.len() == MOST || random.below(ODDS) != 0 {
                return;
            }
            let names = if random.coin() { Names::PerFolder } else { Names::Ordered };
            let survival = match random.coin() {
                true => Survival::Nothing,
                false => Survival::Some { seed: random.draw(), names },
            };
            kept.push((moment.model.clone(), survival, promised()));
        });
        Self(moments)
    }

    /// Returns the file systems after these losses of power.
    fn after(self) -> Vec<(Disk, P)> {
        let moments = std::mem::take(&mut *self.0.lock());
        assert!(moments.len() > MOST / 4, "{} moments", moments.len());
        let after = |(model, survival, promised): (Model, Survival, P)| {
            Some((mounted(model.after_crash(survival))?, promised))
        };
        moments.into_iter().filter_map(after).collect()
    }
}

/// What was sent to a mirror: the largest number in bytes and in names.
#[derive(Default)]
struct Sent {
    bytes: AtomicU64,
    names: AtomicU64,
}

impl Sent {
    fn note(&self, part: &GroupPart) {
        match part {
            GroupPart::Bytes { bytes, .. } => {
                let numbers = bytes.iter().filter(|byte| **byte <= STEPS);
                let least = numbers.min().copied().unwrap_or(0);
                self.bytes.fetch_max(least.into(), Ordering::SeqCst);
            }
            GroupPart::Rows(rows) => {
                for RowChange { key, value } in rows {
                    let Some(Key::Name { name, .. }) = Key::parse(key) else { continue };
                    let step = step_of(&String::from_utf8_lossy(name)).filter(|_| value.is_some());
                    self.names.fetch_max(step.unwrap_or(0), Ordering::SeqCst);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn no_mirror_is_ahead_of_a_primary_that_loses_power() {
    let Some(disk) = mounted(Model::new()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let sent: Arc<Sent> = Arc::default();
    let noted = Arc::clone(&sent);
    let keeper = keeper(
        folder.path(),
        Box::new(move |event| {
            if let Event::Sends(part) = event {
                noted.note(part);
            }
            Fate::Arrives
        }),
    );
    let server = start(&place(disk.lossfs.point()));
    let _traffic = connect_to(&server, &keeper, |_| {});
    let open = begin(&server);
    wait(&server);
    let promised = Arc::clone(&sent);
    let moments = Moments::of(disk.lossfs.control(), 7, move || {
        [&promised.bytes, &promised.names].map(|step| step.load(Ordering::SeqCst))
    });
    run(&server, open, |_| {});
    disk.lossfs.control().unwatch();
    wait(&server);
    assert_eq!(sent.names.load(Ordering::SeqCst), u64::from(STEPS));
    server.stop().unwrap();
    for (disk, [bytes, names]) in moments.after() {
        let when = format!("after {bytes} and {names} were sent");
        let server = start(&place(disk.lossfs.point()));
        let Progress { least, named, .. } = progress(&server, &when);
        assert!(least >= bytes, "{when}: the file has {least}");
        assert!(named >= names, "{when}: the last name is {named}");
        server.stop().unwrap();
    }
}

#[test]
fn a_mirror_that_loses_power_keeps_what_it_has_answered_for() {
    let Some(disk) = mounted(Model::new()) else { return };
    let folder = tempfile::tempdir().unwrap();
    let answered: Arc<AtomicU64> = Arc::default();
    let noted = Arc::clone(&answered);
    let keeper = keeper(
        disk.lossfs.point(),
        Box::new(move |event| {
            if let Event::Sends(GroupPart::Begin { number, .. }) = event {
                noted.store(number - 1, Ordering::SeqCst);
            }
            Fate::Arrives
        }),
    );
    let server = start(&folder.path().join("volume"));
    let _traffic = connect_to(&server, &keeper, |_| {});
    let open = begin(&server);
    wait(&server);
    let promised = Arc::clone(&answered);
    let moments = Moments::of(disk.lossfs.control(), 8, move || promised.load(Ordering::SeqCst));
    run(&server, open, |_| {});
    disk.lossfs.control().unwatch();
    wait(&server);
    server.stop().unwrap();
    keeper.store.lock().take();
    for (disk, answered) in moments.after() {
        let when = format!("after group {answered} was answered");
        let folder = Folder::open(disk.lossfs.point()).unwrap();
        let (number, _) = promote(MirrorStore::open(&folder).unwrap(), &when);
        assert!(number >= answered, "{when}: it has {number}");
    }
}
