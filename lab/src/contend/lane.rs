//! A lane: two far mounts, and programs that lock one file there and in the server's own mount,
//! while the mounts and their cables are stopped.

use std::fs;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::thread;
use std::time::Duration;

use pelago_random::Random;
use pelago_testbed::mounted::Mounted;
use rustix::process::{Pid, Signal, kill_process};

use super::cable::Cable;
use super::locker::{Locker, Said};

/// Programs in each far mount.
const FAR_PROGRAMS: usize = 2;
/// Programs in the server's own mount.
const OWN_PROGRAMS: usize = 1;
/// The length of a stop in milliseconds: longer than a session lives, which is ten seconds.
const STOP: Range<u64> = 10_200..12_500;
/// The length of a shorter stop: around the term of a session.
const SHORT_STOP: Range<u64> = 8_500..10_400;
/// One stop of this number is a shorter one.
const SHORT: u64 = 5;
/// The longest time by which programs go on before their mount does, in milliseconds.
const EARLY: u64 = 300;
/// The longest time by which programs go on after their mount does, in milliseconds.
const LATE: u64 = 700;
/// The longest time between two stops, in milliseconds.
const PAUSE: u64 = 1_500;

/// A far mount of a lane.
struct FarMount {
    pid: Pid,
    point: PathBuf,
    cable: Option<Cable>,
    /// While this file exists, programs compute under their locks.
    flag: PathBuf,
}

/// A file, its mounts and its programs.
pub(super) struct Lane {
    mounts: Vec<FarMount>,
    lockers: Vec<Locker>,
    random: Random,
    /// Locked for writing while the server is away or stopped: no other fault begins then.
    server: Arc<RwLock<()>>,
}

/// The volume, the server and the reports that lanes share.
pub(super) struct Ground<'a> {
    pub(super) volume: &'a Mounted,
    pub(super) server: Arc<RwLock<()>>,
    pub(super) said: Arc<Mutex<Said>>,
    pub(super) seed: u64,
}

impl Lane {
    /// Mounts the volume twice, over this cable and over a Unix socket, and starts the programs.
    pub(super) fn start(ground: &Ground<'_>, number: usize, cable: Cable) -> Result<Self, String> {
        let volume = ground.volume;
        let scratch = ground.volume.scratch();
        let name = format!("locked-{number}");
        let own = volume.point().join(&name);
        fs::write(&own, "bytes").map_err(|why| format!("{}: {why}", own.display()))?;
        let server = Arc::clone(&ground.server);
        let random = Random::new(ground.seed.wrapping_mul(1 << 20).wrapping_add(number as u64));
        let mounts = Vec::new();
        let lockers = Vec::new();
        let mut lane = Self { mounts, lockers, random, server };
        let address = volume.address_at(cable.port)?;
        let servers = [(Some(cable), address.into()), (None, volume.socket())];
        for (at, (cable, server)) in servers.into_iter().enumerate() {
            let point = scratch.join(format!("far-{number}-{at}"));
            let flag = scratch.join(format!("flag-{number}-{at}"));
            let pid = volume.mount_far(&server, &point)?;
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or("no process id")?;
            lane.mounts.push(FarMount { pid, point, cable, flag });
        }
        let far = lane.mounts.iter().map(|far| (far.point.join(&name), far.flag.clone()));
        let far = far.flat_map(|place| vec![place; FAR_PROGRAMS]);
        let own = vec![(own, scratch.join("no-flag")); OWN_PROGRAMS];
        let places: Vec<_> = far.chain(own).collect();
        for (at, (path, flag)) in places.iter().enumerate() {
            let program = number * places.len() + at;
            let locker = Locker::start(program, number, path, flag, &ground.said)?;
            lane.lockers.push(locker);
        }
        Ok(lane)
    }

    /// Stops a mount or its cable, mostly for longer than a term. Its programs compute under their
    /// locks meanwhile, and go on when the mount does. Afterwards the cable is cut.
    pub(super) fn round(&mut self) -> Result<(), String> {
        let random = &mut self.random;
        let mut millis = |limit| Duration::from_millis(random.below(limit));
        let before = millis(400);
        // Counted from EARLY before the mount goes on.
        let programs_go_on = millis(EARLY + LATE);
        let pause = millis(PAUSE);
        let lengths = if random.below(SHORT) == 0 { SHORT_STOP } else { STOP };
        let stop = lengths.start + random.below(lengths.end - lengths.start);
        let stop = Duration::from_millis(stop);
        let mount = &self.mounts[random.index(self.mounts.len())];
        let is_cable_stopped = random.below(2) == 0;
        let said = |why: std::io::Error| format!("{}: {why}", mount.flag.display());
        let server = self.quiet_server();
        fs::write(&mount.flag, "").map_err(said)?;
        thread::sleep(before);
        let cable = mount.cable.as_ref().filter(|_| is_cable_stopped);
        mount.set_stopped(cable, true)?;
        let early = Duration::from_millis(EARLY);
        thread::sleep(stop - early + programs_go_on.min(early));
        if programs_go_on < early {
            fs::remove_file(&mount.flag).map_err(said)?;
            thread::sleep(early - programs_go_on);
        }
        mount.set_stopped(cable, false)?;
        if programs_go_on >= early {
            thread::sleep(programs_go_on - early);
            fs::remove_file(&mount.flag).map_err(said)?;
        }
        drop(server);
        thread::sleep(pause / 2);
        if let Some(cable) = &mount.cable {
            cable.cut();
        }
        thread::sleep(pause / 2);
        Ok(())
    }

    fn quiet_server(&self) -> RwLockReadGuard<'_, ()> {
        self.server.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Ends the programs.
    pub(super) fn end_programs(&mut self) -> Result<(), String> {
        self.lockers.iter_mut().for_each(Locker::tell_to_end);
        self.lockers.drain(..).try_for_each(Locker::finish)
    }

    /// Ends the mounts.
    pub(super) fn unmount(&mut self, volume: &Mounted) -> Result<(), String> {
        self.mounts.drain(..).try_for_each(|far| volume.unmount_far(&far.point))
    }
}

impl FarMount {
    fn set_stopped(&self, cable: Option<&Cable>, is_stopped: bool) -> Result<(), String> {
        match cable {
            Some(cable) => {
                cable.set_stopped(is_stopped);
                Ok(())
            }
            None => {
                let signal = if is_stopped { Signal::STOP } else { Signal::CONT };
                kill_process(self.pid, signal).map_err(|why| format!("{}: {why}", self.pid))
            }
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        for mount in &self.mounts {
            if let Some(cable) = &mount.cable {
                cable.set_stopped(false);
            }
            // It may have ended.
            let _gone = kill_process(mount.pid, Signal::CONT);
        }
    }
}
