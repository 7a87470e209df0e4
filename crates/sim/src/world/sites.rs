//! A run with several sites: a server of each, the clients of each, and the cables between all.
//!
//! Programs of all sites use files whose homes are at all sites. What they see must have an order,
//! as in a run with one server: leases between sites promise that.

use std::mem;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_client::{At, Files};
use pelago_holder::Holder;
use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget};
use pelago_wire::{Context, Handle, Name, NewMode, limits};

use self::offices::{
    CABLES, CLIENTS, CLIENTS_OF_SITE, Office, OfficeOptions, cables_between, cables_to, line,
};
use super::{Client, FAULT_MICROS, OPERATIONS, Report, TERM, WRITE_POLL, WRITE_POLLS, gains};
use crate::cables::{Cables, Ways, client_socket};
use crate::faults::Palette;
use crate::faults::sites::{Laid, SiteFault};
use crate::history::{History, Program};
use crate::programs::{self, Dirs, Does, Plan, Runner, SITES, random_below};
use crate::turns;

mod consistency;
mod offices;

/// The programs of each client.
const PROGRAMS: usize = 2;
/// The names of the sites' directories in the root.
const DIRS: [&str; SITES] = ["of-first", "of-berlin", "of-rome"];
/// Everything that was made at the beginning is safe after this time.
const SAFE: Duration = Duration::from_secs(3);

/// The longest waits for another site: the usual one, and one that is shorter than a term.
const REMOTE_TIMEOUTS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(3)];

/// The size up to which new files go home: that of all, so that none stays with its writer; less
/// than any; and one between.
const STAY_LEAST: [usize; 3] = [limits::STAY_LEAST_BYTES, 0, 16];

/// A program that uses the mount of a site's server, and ends with it.
struct OwnProgram {
    program: JoinHandle<()>,
    number: usize,
}

struct SiteWorld<'a> {
    dir: &'a Path,
    offices: Vec<Office>,
    clients: Vec<Client>,
    /// The program of each site's own mount.
    own: Vec<Option<OwnProgram>>,
    /// The number of programs so far.
    programs: usize,
    cables: Cables,
    dirs: Dirs,
    palette: Palette,
    history: Arc<Mutex<History>>,
    options: OfficeOptions,
    /// True after a fault that programs may see as an error.
    may_fail: bool,
}

/// Runs one seed in an empty folder.
pub(super) fn run(seed: u64, dir: &Path, tells_switches: bool) -> Report {
    let net = turns::begin(seed, "net", tells_switches);
    let offices: Vec<Office> = (0..SITES).map(|site| Office::new(dir, site)).collect();
    let cables = turns::on(net, || Cables::lay(offices::ends(dir))).expect("cables");
    let palette = Palette::choose();
    turns::tell(format_args!("seed {seed}, {SITES} sites, {palette:?}"));
    let history: Arc<Mutex<History>> = Arc::default();
    history.lock().may_come_late = true;
    history.lock().stale = offices.iter().map(|office| office.stale.clone()).collect();
    let options = OfficeOptions {
        inline_bytes: if palette == Palette::Power { 4096 } else { 16 },
        remote_timeout: REMOTE_TIMEOUTS[random_below(REMOTE_TIMEOUTS.len())],
        stay_least_bytes: STAY_LEAST[random_below(STAY_LEAST.len())],
    };
    let mut world = SiteWorld {
        dir,
        offices,
        clients: Vec::new(),
        own: (0..SITES).map(|_| None).collect(),
        programs: 0,
        cables,
        dirs: Dirs::Root,
        palette,
        history,
        options,
        may_fail: false,
    };
    world.prepare();
    (0..CLIENTS).for_each(|client| world.start_client(client));
    (0..SITES).for_each(|site| world.start_own_program(site));
    world.break_things();
    world.end()
}

impl SiteWorld<'_> {
    /// Starts the servers, which join the volume, and makes the directories and files.
    fn prepare(&mut self) {
        for office in &mut self.offices {
            office.start(self.options, &self.history);
            if office.site == 0 {
                offices::invite(office);
            }
        }
        offices::join(&self.offices);
        let context = Context::direct(0, 0);
        let made = |site: usize| {
            let at = At::new(Handle::ROOT, Name::new(DIRS[site].as_bytes()).expect("a name"));
            let office = &self.offices[site];
            // What the server starts meanwhile must end with it.
            let made = turns::on(office.machine(), || {
                office.files().make_dir(&context, at, NewMode::exactly(0o777)).wait()
            });
            let made = made.expect("a directory").handle;
            assert_eq!(usize::from(made.ino.site()), site, "the home of a directory");
            (made, DIRS[site])
        };
        let mut dirs = [0, 1, 2].map(made);
        dirs.rotate_left(random_below(SITES));
        self.dirs = Dirs::OfSites(dirs);
        let by = random_below(SITES);
        let office = &self.offices[by];
        let prepared =
            turns::on(office.machine(), || programs::prepare(office.files(), &self.dirs));
        prepared.expect("new files");
        thread::sleep(SAFE);
        turns::tell(format_args!("{dirs:?}, by {by}"));
    }

    fn plan(&mut self, site: usize, does: Does) -> Plan {
        let program = Program(self.programs);
        self.programs += 1;
        Plan { program, operations: OPERATIONS, does, dirs: self.dirs, site }
    }

    fn start_client(&mut self, number: usize) {
        let machine = turns::machine(&format!("client {number}"), gains());
        let options = RemoteOptions {
            target: ServerTarget::Unix(client_socket(self.dir, number)),
            read_only: false,
            role: ClientRole::Client,
            give_up: None,
        };
        let (remote, holder) = turns::on(machine, || {
            let remote = Arc::new(Remote::connect(options, TERM).expect("a session"));
            let holder = Holder::new(Arc::clone(&remote) as _);
            holder.write_behind().expect("a thread");
            (remote, holder)
        });
        let first = self.programs;
        let does = [Does::All, if number == 0 { Does::Watches } else { Does::All }];
        let plans = does.map(|does| self.plan(number / CLIENTS_OF_SITE, does));
        let start = |plan| {
            let files = Files::new(Arc::clone(&holder) as _);
            turns::on(machine, || programs::start(files, plan, &self.history))
        };
        let programs = plans.map(start).into();
        let numbers = first..self.programs;
        debug_assert_eq!(numbers.len(), PROGRAMS);
        let is_killed = false;
        let is_guest = false;
        self.clients.push(Client {
            machine,
            remote,
            holder,
            is_killed,
            is_guest,
            programs,
            numbers,
        });
    }

    /// Starts a program of the own mount of a site's server.
    fn start_own_program(&mut self, site: usize) {
        let number = self.programs;
        let plan = self.plan(
            site,
            match self.palette {
                // Its changes would be lost with its server.
                Palette::Power => Does::Reads,
                _ => Does::All,
            },
        );
        let files = self.offices[site].files().clone();
        let machine = self.offices[site].machine();
        let program = turns::on(machine, || programs::start(files, plan, &self.history));
        self.own[site] = Some(OwnProgram { program, number });
    }

    /// Has things go wrong as long as the programs of clients run.
    fn break_things(&mut self) {
        let laid = Laid { clients: CLIENTS, cables: CABLES };
        while self.clients.iter().any(|client| !client.has_ended()) {
            thread::sleep(Duration::from_micros(turns::random(FAULT_MICROS)));
            if let Some(fault) = SiteFault::next(self.palette, laid) {
                turns::tell(format_args!("{fault:?}"));
                let mut history = self.history.lock();
                history.count(fault.kind());
                self.may_fail |= fault.may_fail(TERM);
                history.may_be_late |= self.may_fail;
                drop(history);
                self.break_thing(fault);
            }
        }
    }

    fn break_thing(&mut self, fault: SiteFault) {
        match fault {
            SiteFault::Cut(cable) => self.cables.cut(cable),
            SiteFault::Stop(cable, ways, time) => self.cables.stop(cable, ways, time),
            SiteFault::Part([one, other], time) => self.part(one, other, time),
            SiteFault::Isolate(site, time) => {
                let others = (0..SITES).filter(|other| *other != site);
                others.for_each(|other| self.part(site, other, time));
            }
            SiteFault::PauseClient(client, time) => {
                turns::stand_still(self.clients[client].machine, Some(time));
            }
            SiteFault::PauseServer(site, time) => {
                turns::stand_still(self.offices[site].machine(), Some(time));
            }
            SiteFault::SlowClient(client, time) => {
                turns::stall(self.clients[client].machine, time);
            }
            SiteFault::SlowServer(site, time) => {
                turns::stall(self.offices[site].machine(), time);
            }
            SiteFault::KillServer(site) => self.restart_server(site, usize::MAX),
            SiteFault::PowerLoss(site) => {
                self.lose_power(site);
            }
            SiteFault::KillClient(client) => self.kill_client(client),
            SiteFault::NewAddress(site) => self.offices[site].move_to_another_address(),
            SiteFault::KillHomeOfLost([lost, home], heard) => {
                let cable = line(lost, home);
                self.cables.stop(cable, Ways::ToClient, 2 * TERM);
                thread::sleep(heard);
                // The site cannot send that write any more.
                self.wait_for_own_write(lost);
                self.cables.cut(cable);
                thread::sleep(TERM + TERM / 64 - Duration::from_millis(turns::random(300)));
                match self.palette {
                    Palette::Power => self.lose_power(home),
                    _ => self.restart_server(home, usize::MAX),
                }
            }
        }
    }

    /// Has nothing go between two sites for a while.
    fn part(&self, one: usize, other: usize, time: Duration) {
        for cable in cables_between(one, other) {
            self.cables.stop(cable, Ways::Both, time);
        }
    }

    /// Waits until the program of a site's own mount has written, mostly: the server keeps back
    /// what is written to files of others.
    fn wait_for_own_write(&self, site: usize) {
        let Some(own) = &self.own[site] else { return };
        let numbers = own.number..own.number + 1;
        let known = self.history.lock().writes_of(numbers.clone());
        for _ in 0..WRITE_POLLS {
            if self.history.lock().writes_of(numbers.clone()) > known {
                return;
            }
            thread::sleep(WRITE_POLL);
        }
    }

    fn lose_power(&mut self, site: usize) {
        self.history.lock().lose_power();
        let unsafe_batches = self.offices[site].table.unsafe_batches() as u64;
        let kept = turns::random(unsafe_batches + 1);
        self.restart_server(site, usize::try_from(kept).unwrap_or(0));
    }

    /// Ends the run of a server, as `kill -9` or a power loss does, and starts another one over the
    /// safe rows and the first `keep_unsafe` unsafe batches.
    fn restart_server(&mut self, site: usize, keep_unsafe: usize) {
        let Some(run) = self.offices[site].run.take() else { return };
        turns::stand_still(run.machine, None);
        if let Some(OwnProgram { program, number }) = self.own[site].take() {
            mem::forget(program);
            self.history.lock().doubt_programs(number..number + 1);
        }
        self.history.lock().may_write_again();
        let cables = cables_to(site);
        self.cables.set_gone(&cables, true);
        let of_others = (0..SITES).filter(|other| *other != site).map(|other| line(site, other));
        of_others.for_each(|cable| self.cables.cut(cable));
        // Its threads stay, with all that they hold.
        mem::forget(run);
        self.offices[site].table = self.offices[site].table.fork_crashed(keep_unsafe);
        thread::sleep(Duration::from_micros(turns::random(3_000_000)));
        self.offices[site].start(self.options, &self.history);
        if turns::random(3) != 0 || self.palette == Palette::Power {
            // Clients and sites that do not return in time lose changes that are not safe.
            self.cables.mend_some(&cables);
            self.clients_of(site).for_each(|client| turns::go_on(client.machine));
            let running = self.offices.iter().filter_map(|office| office.run.as_ref());
            running.for_each(|run| turns::go_on(run.machine));
        }
        self.cables.set_gone(&cables, false);
        self.offices[site].introduce();
        self.start_own_program(site);
        thread::sleep(TERM / 2);
    }

    fn clients_of(&self, site: usize) -> impl Iterator<Item = &Client> {
        self.clients[site * CLIENTS_OF_SITE..].iter().take(CLIENTS_OF_SITE)
    }

    fn kill_client(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if client.is_killed {
            return;
        }
        client.is_killed = true;
        turns::stand_still(client.machine, None);
        client.programs.drain(..).for_each(mem::forget);
        let numbers: Range<usize> = client.numbers.clone();
        self.cables.cut(number);
        self.history.lock().doubt_programs(numbers);
    }

    /// Ends the run: nothing goes wrong any more, and all must say the same.
    fn end(mut self) -> Report {
        self.cables.mend();
        for client in &mut self.clients {
            client.programs.drain(..).for_each(|program| program.join().expect("a program"));
        }
        for own in self.own.iter_mut().filter_map(Option::take) {
            own.program.join().expect("a program");
        }
        turns::tell(format_args!("all programs have ended"));
        // Sessions of killed clients end, and all sites are heard again.
        thread::sleep(3 * TERM);
        let living = self.clients.iter().filter(|client| !client.is_killed);
        let mut all: Vec<_> = living
            .map(|client| (client.machine, Files::new(Arc::clone(&client.holder) as _)))
            .collect();
        let offices = self.offices.iter();
        all.extend(offices.map(|office| (office.machine(), office.files().clone())));
        let mut ends = Vec::new();
        for (machine, files) in all {
            let program = Program(usize::MAX);
            let does = Does::Reads;
            // No line is cut: nothing that it sees may be old.
            let site = SITES;
            let plan = Plan { program, operations: 0, does, dirs: self.dirs, site };
            let runner = Runner::new(files, plan, &self.history);
            ends.push(turns::on(machine, || runner.read_all()));
        }
        let mut history = self.history.lock();
        if ends.windows(2).any(|two| two[0] != two[1]) {
            history.wrong.push(format!("mounts disagree at the end: {ends:?}"));
        }
        let failed = history.counts.get("failed operations").copied().unwrap_or(0);
        if failed > 0 && !self.may_fail {
            history.wrong.push(format!("{failed} operations failed without a reason"));
        }
        match &ends[0] {
            Ok(seen) => history.check(&seen.log, seen.count),
            Err(error) => history.wrong.push(format!("nothing can be read at the end: {error:?}")),
        }
        history.wrong.extend(consistency::check(&self.offices));
        let counts = mem::take(&mut history.counts);
        let wrong = mem::take(&mut history.wrong);
        drop(history);
        // Threads of machines that were killed never end.
        mem::forget(mem::take(&mut self.offices));
        mem::forget(mem::take(&mut self.clients));
        Report { counts, wrong, time: turns::now() }
    }
}
