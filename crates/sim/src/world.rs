//! A server, its clients, the cables between them, and one run of all.

use pelago_wire::ShardId;
use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_client::Files;
use pelago_holder::Holder;
use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget, SessionServer};
use pelago_server::{Options, Parts, Passthrough, Server};
use pelago_store::content::ContentStore;
use pelago_store::hash::NameHasher;
use pelago_store::table::fake::FakeTable;

use crate::cables::{Cables, Ways, client_socket, server_socket};
use crate::faults::{Fault, Palette};
use crate::history::{History, Program};
use crate::programs::{self, Dirs, Does, Plan, Runner};
use crate::shares::{self, SharedTree};
use crate::tap::Tap;
use crate::turns::{self, Machine};

mod guests;
mod mirrors;
mod sites;

/// The number of clients, and of programs of each, of which the first one watches. One program more
/// uses the server's own mount.
const CLIENTS: usize = 2;
const PROGRAMS: usize = 3;
const OPERATIONS: u64 = 40;
/// Each seed that is a multiple of this number has guests.
const SEEDS_WITH_GUESTS: u64 = 5;
/// Each seed of this remainder by the same number has several sites.
const SEEDS_WITH_SITES: u64 = 2;
/// The longest time between two faults, in microseconds.
const FAULT_MICROS: u64 = 4_000_000;
/// The time between two checks of a fault whether a program has written.
const WRITE_POLL: Duration = Duration::from_millis(5);
const WRITE_POLLS: usize = 400;
/// The term of a session without a request; the grace of a server is a little longer.
const TERM: Duration = Duration::from_secs(10);
/// The time between two group commits: as usual, and long, so that a loss takes more changes.
const SYNC_INTERVALS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// Bytes of the server's caches: mostly many; with few it recalls leases for the sake of others.
const MEMORY_BYTES: [u64; 2] = [128 << 20, 16 << 20];

/// One run of the server.
struct Run {
    machine: Machine,
    _server: Server,
    _sessions: SessionServer,
    files: Files,
}

/// A client, and its programs.
struct Client {
    machine: Machine,
    remote: Arc<Remote>,
    holder: Arc<Holder>,
    is_killed: bool,
    /// True for a guest, which sees a part of the volume.
    is_guest: bool,
    programs: Vec<JoinHandle<()>>,
    /// The numbers of its programs.
    numbers: Range<usize>,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) wrong: Vec<String>,
    pub(crate) time: Duration,
}

struct World<'a> {
    dir: &'a Path,
    table: FakeTable,
    run: Option<Run>,
    runs: usize,
    clients: Vec<Client>,
    cables: Cables,
    /// The tree that the owner shares; `None` in a run without guests.
    shared: Option<SharedTree>,
    has_guests: bool,
    history: Arc<Mutex<History>>,
    inline_bytes: u32,
    /// True after a fault that programs may see as an error.
    may_fail: bool,
}

/// Returns whether a seed has guests.
pub(crate) const fn has_guests(seed: u64) -> bool {
    seed.is_multiple_of(SEEDS_WITH_GUESTS)
}

/// Returns whether a seed has several sites.
pub(crate) const fn has_sites(seed: u64) -> bool {
    seed % SEEDS_WITH_GUESTS == SEEDS_WITH_SITES
}

/// Runs one seed with a mirror in an empty folder.
pub(crate) fn run_with_mirror(seed: u64, dir: &Path, tells_switches: bool) -> Report {
    mirrors::run(seed, dir, tells_switches)
}

/// Runs one seed in an empty folder.
pub(crate) fn run(seed: u64, dir: &Path, tells_switches: bool) -> Report {
    if has_sites(seed) {
        return sites::run(seed, dir, tells_switches);
    }
    let net = turns::begin(seed, "net", tells_switches);
    let has_guests = has_guests(seed);
    let ends = guests::ends(dir, has_guests);
    let cables = turns::on(net, || Cables::lay(ends)).expect("cables");
    let palette = Palette::choose();
    let history: Arc<Mutex<History>> = Arc::default();
    let table = FakeTable::new();
    let clients = Vec::new();
    // A power loss takes bytes of content files that were not synced, as those of a local disk.
    let inline_bytes = if palette == Palette::Power { 4096 } else { 16 };
    let run = None;
    let runs = 0;
    let may_fail = false;
    let shared = None;
    let mut world = World {
        dir,
        table,
        run,
        runs,
        clients,
        cables,
        shared,
        has_guests,
        history,
        inline_bytes,
        may_fail,
    };
    turns::tell(format_args!("seed {seed}, {palette:?}"));
    world.start_server();
    let prepared = world.run.as_ref().map(|run| programs::prepare(&run.files, &Dirs::Root));
    prepared.expect("a server").expect("new files");
    world.prepare_shared();
    world.start_clients();
    world.start_owner_and_guests();
    let own = world.start_own_program(palette);
    world.break_things(palette);
    world.end(own)
}

impl World<'_> {
    fn count(&self, what: &'static str) {
        self.history.lock().count(what);
    }

    /// Starts a run of the server over the state that the last run has left.
    fn start_server(&mut self) {
        self.runs += 1;
        let machine = turns::machine(&format!("server {}", self.runs), gains());
        let content = Arc::new(ContentStore::open(self.dir).expect("a folder"));
        let parts = Parts {
            shard: ShardId::FIRST,
            table: Arc::new(self.table.clone()),
            content,
            volume: shares::VOLUME,
            hasher: NameHasher::new(7),
        };
        let options = Options {
            sync_interval: SYNC_INTERVALS[usize::from(turns::random(2) == 0)],
            inline_bytes: self.inline_bytes,
            memory_bytes: MEMORY_BYTES[usize::from(turns::random(10) == 0)],
            passthrough: Passthrough::Never,
            ..Options::default()
        };
        let run = turns::on(machine, || {
            let server = self.start_on(parts, options);
            let tap = Arc::new(Tap::new(server.session_service(), &self.history));
            let sessions = SessionServer::start_with(tap, TERM).expect("sessions");
            sessions.listen_unix(&server_socket(self.dir)).expect("a socket");
            self.listen_for_guests(&sessions);
            let files = Files::new(server.service());
            Run { machine, _server: server, _sessions: sessions, files }
        });
        self.run = Some(run);
    }

    fn start_clients(&mut self) {
        for number in 0..CLIENTS {
            let machine = turns::machine(&format!("client {number}"), gains());
            let options = RemoteOptions {
                target: ServerTarget::Unix(client_socket(self.dir, number)),
                read_only: false,
                role: ClientRole::Client,
                give_up: None,
            };
            let (remote, holder) = turns::on(machine, || {
                let remote = Remote::connect(options, TERM).expect("a session");
                let remote = Arc::new(remote);
                let holder = Holder::new(Arc::clone(&remote) as _);
                holder.write_behind().expect("a thread");
                (remote, holder)
            });
            let programs = (0..PROGRAMS).map(|program| {
                let plan = Plan {
                    program: Program(number * PROGRAMS + program),
                    operations: OPERATIONS,
                    does: if program == 0 { Does::Watches } else { Does::All },
                    dirs: Dirs::Root,
                    site: 0,
                };
                let files = Files::new(Arc::clone(&holder) as _);
                turns::on(machine, || programs::start(files, plan, &self.history))
            });
            let programs = programs.collect();
            let client = Client {
                machine,
                remote,
                holder,
                is_killed: false,
                is_guest: false,
                programs,
                numbers: number * PROGRAMS..(number + 1) * PROGRAMS,
            };
            self.clients.push(client);
        }
    }

    /// Starts a program of the server's own mount. It ends with its server.
    fn start_own_program(&self, palette: Palette) -> JoinHandle<()> {
        let run = self.run.as_ref().expect("a server");
        let plan = Plan {
            program: Program(CLIENTS * PROGRAMS),
            operations: OPERATIONS,
            // Its changes would be lost with its server.
            does: if palette.loses_server() { Does::Reads } else { Does::All },
            dirs: Dirs::Root,
            site: 0,
        };
        turns::on(run.machine, || programs::start(run.files.clone(), plan, &self.history))
    }

    /// Has things go wrong as long as the programs of clients run.
    fn break_things(&mut self, palette: Palette) {
        while self.clients.iter().any(|client| !client.has_ended()) {
            thread::sleep(Duration::from_micros(turns::random(FAULT_MICROS)));
            if let Some(fault) = palette.next(self.clients.len()) {
                turns::tell(format_args!("{fault:?}"));
                self.count(fault.kind());
                self.may_fail |= fault.may_end_session(TERM);
                self.history.lock().may_be_late |= self.may_fail;
                let fault = match fault.separates().map(|client| (client, turns::random(3))) {
                    Some((client, 0)) => {
                        self.wait_for_write(client);
                        fault
                    }
                    Some((client, 1 | 2)) if self.waits_for_lock(client) => {
                        self.may_fail = true;
                        self.history.lock().may_be_late = true;
                        fault.lasting(TERM + Duration::from_millis(200 + turns::random(4_000)))
                    }
                    _ => fault,
                };
                self.break_thing(fault);
            }
        }
    }

    /// Waits until a program of a client has written, mostly: its mount keeps that back for now.
    fn wait_for_write(&self, client: usize) {
        let programs = self.clients[client].numbers.clone();
        let known = self.history.lock().writes_of(programs.clone());
        for _ in 0..WRITE_POLLS {
            if self.history.lock().writes_of(programs.clone()) > known {
                return;
            }
            thread::sleep(WRITE_POLL);
        }
    }

    /// Waits until a program of a client computes under a lock. Returns whether one does: not all
    /// clients have one soon.
    fn waits_for_lock(&self, client: usize) -> bool {
        let programs = self.clients[client].numbers.clone();
        let computes = || self.history.lock().any_computes(programs.clone());
        for _ in 0..WRITE_POLLS {
            if computes() {
                return true;
            }
            thread::sleep(WRITE_POLL);
        }
        computes()
    }

    fn break_thing(&mut self, fault: Fault) {
        let server = self.run.as_ref().expect("a server").machine;
        match fault {
            Fault::Cut(client) => self.cables.cut(client),
            Fault::Stop(client, ways, time) => self.cables.stop(client, ways, time),
            Fault::PauseClient(client, time) => {
                turns::stand_still(self.clients[client].machine, Some(time));
            }
            Fault::PauseServer(time) => turns::stand_still(server, Some(time)),
            Fault::SlowServer(time) => turns::stall(server, time),
            Fault::SlowClient(client, time) => {
                turns::stall(self.clients[client].machine, time);
            }
            Fault::KillServer => self.restart_server(usize::MAX),
            Fault::PowerLoss => {
                self.history.lock().lose_power();
                let unsafe_batches = self.table.unsafe_batches() as u64;
                let kept = turns::random(unsafe_batches + 1);
                self.restart_server(usize::try_from(kept).unwrap_or(0));
            }
            Fault::KillClient(client) => self.kill_client(client),
            Fault::KillServerOfLost(client, heard) => {
                self.cables.stop(client, Ways::ToClient, 2 * TERM);
                thread::sleep(heard);
                // The client cannot send that write any more.
                self.wait_for_write(client);
                self.cables.cut(client);
                thread::sleep(TERM + TERM / 64 - Duration::from_millis(turns::random(300)));
                self.restart_server(usize::MAX);
            }
        }
    }

    /// Ends the run of the server, as `kill -9` or a power loss does, and starts another one over
    /// the safe rows and the first `keep_unsafe` unsafe batches.
    fn restart_server(&mut self, keep_unsafe: usize) {
        let Some(run) = self.run.take() else { return };
        turns::stand_still(run.machine, None);
        self.history.lock().may_write_again();
        self.cables.set_server_gone(true);
        // Its threads stay, with all that they hold.
        mem::forget(run);
        self.table = self.table.fork_crashed(keep_unsafe);
        thread::sleep(Duration::from_micros(turns::random(3_000_000)));
        self.start_server();
        // Clients that do not return in time lose changes that are not safe.
        self.cables.mend();
        self.clients.iter().for_each(|client| turns::go_on(client.machine));
        self.cables.set_server_gone(false);
        if turns::random(2) == 0 {
            // Clients return one after the other, and in time: before the next fault.
            let client = programs::random_below(self.clients.len());
            let millis = u64::try_from(TERM.as_millis()).unwrap_or(0);
            let time = Duration::from_millis(turns::random(millis / 4));
            self.cables.stop(client, Ways::Both, time);
        }
        thread::sleep(TERM / 2);
    }

    fn kill_client(&mut self, number: usize) {
        let client = &mut self.clients[number];
        if client.is_killed {
            return;
        }
        client.is_killed = true;
        turns::stand_still(client.machine, None);
        client.programs.drain(..).for_each(mem::forget);
        let numbers = client.numbers.clone();
        self.cables.cut(number);
        self.history.lock().doubt_programs(numbers);
    }

    /// Ends the run: nothing goes wrong any more, and all must say the same.
    fn end(mut self, own: JoinHandle<()>) -> Report {
        self.cables.mend();
        if self.runs == 1 {
            own.join().expect("a program");
        } else {
            mem::forget(own);
        }
        for client in self.clients.iter_mut() {
            client.programs.drain(..).for_each(|program| program.join().expect("a program"));
        }
        turns::tell(format_args!("all programs have ended"));
        // Sessions of killed clients end.
        thread::sleep(2 * TERM);
        let run = self.run.take().expect("a server");
        let sees_all = |client: &&Client| !client.is_killed && !client.is_guest;
        let living = self.clients.iter().filter(sees_all);
        let mut all: Vec<Files> =
            living.map(|client| Files::new(Arc::clone(&client.holder) as _)).collect();
        all.push(run.files.clone());
        self.read_shared(&all);
        let mut ends = Vec::new();
        for files in all {
            let program = Program(usize::MAX);
            let plan =
                Plan { program, operations: 0, does: Does::Reads, dirs: Dirs::Root, site: 0 };
            ends.push(Runner::new(files, plan, &self.history).read_all());
        }
        let mut history = self.history.lock();
        if ends.windows(2).any(|two| two[0] != two[1]) {
            history.wrong.push(format!("mounts disagree at the end: {ends:?}"));
        }
        let failed = history.counts.get("failed operations").copied().unwrap_or(0);
        let refused = history.refused();
        if !self.may_fail {
            history.wrong.extend(refused);
        }
        if failed > 0 && !self.may_fail {
            history.wrong.push(format!("{failed} operations failed without a reason"));
        }
        match &ends[0] {
            Ok(seen) => history.check(&seen.log, seen.count),
            Err(error) => history.wrong.push(format!("nothing can be read at the end: {error:?}")),
        }
        for client in self.clients.iter().filter(|client| !client.is_killed) {
            *history.counts.entry("requests sent").or_default() += client.remote.status().requests;
        }
        let counts = mem::take(&mut history.counts);
        let wrong = mem::take(&mut history.wrong);
        drop(history);
        // Threads of machines that were killed never end.
        mem::forget(run);
        mem::forget(mem::take(&mut self.clients));
        Report { counts, wrong, time: turns::now() }
    }
}

impl Client {
    fn has_ended(&self) -> bool {
        self.is_killed || self.programs.iter().all(JoinHandle::is_finished)
    }
}

/// Returns how much a machine's clock gains, in a million: as much as leases allow for.
fn gains() -> i64 {
    i64::try_from(turns::random(10_000)).unwrap_or(0) - 5_000
}
