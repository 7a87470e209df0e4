//! A run with a mirror: at some moments the primary burns, and its mirror is promoted and takes its
//! place. What it has must be the volume as it was at one moment.
//!
//! The mirror is the product's, with its engine and its folder. Programs of the burnt primary end
//! with it, as sessions do; new ones mount the promoted volume, which gets a new mirror.

use std::mem;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_client::Files;
use pelago_holder::Holder;
use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget, SessionServer};
use pelago_server::{MirrorStore, Options, Parts, Passthrough, Server, WhenCut};
use pelago_store::content::ContentStore;
use pelago_store::folder::Folder;
use pelago_store::hash::NameHasher;
use pelago_store::table::fake::FakeTable;
use pelago_store::table::fjall::{self, FjallTable};
use pelago_store::table::{Batch, Table as _, TableRead as _};
use pelago_store::volume::{self, VolumeId, VolumeOptions};
use pelago_wire::ShardId;

use self::line::Line;
use self::programs::observe;
use self::reign::{Reign, Thing, Values};
use super::{CLIENTS, Report, SYNC_INTERVALS, TERM, gains, guests};
use crate::cables::{Cables, Ways, client_socket, server_socket};
use crate::engine_thread::EngineThread;
use crate::faults::{Fault, Palette};
use crate::history::{History, Program};
use crate::tap::Tap;
use crate::turns::{self, Machine};

mod line;
mod programs;
mod reign;

/// The programs of each client.
const PROGRAMS: usize = 2;
/// The number of the first program of a server's own mount: those of clients are less.
const OWN: usize = 500;
/// The most promotions of a run.
const PROMOTIONS: u64 = 3;
/// The longest time between two faults, in microseconds.
const FAULT_MICROS: u64 = 2_000_000;
/// The longest time from the start of programs to the end of their primary, in milliseconds.
const BURN_MILLIS: u64 = 20_000;
/// A line that is mended brings everything in this time.
const PATIENCE: Duration = Duration::from_secs(60);
/// The name by which the primary knows its mirror.
const PEER: &str = "mirror";

/// What is the same in all reigns of a run.
#[derive(Debug, Clone, Copy)]
struct Volume {
    id: VolumeId,
    hasher: NameHasher,
    inline_bytes: u32,
    /// The offset of the bytes that are far from the beginning of a file.
    far: u64,
    /// The level of the volume is *remote*.
    is_remote: bool,
    /// A sync waits though the mirror is cut off.
    waits: bool,
}

impl Volume {
    /// Returns whether a sync that is answered says that the mirror has everything.
    const fn promises(self) -> bool {
        self.is_remote && self.waits
    }

    /// Returns the things that a file has, with their offsets.
    fn places(self, file: usize) -> Vec<(Thing, u64)> {
        // Small files are rows, others have content files.
        let mut places = vec![(Thing::Near(file), 0)];
        places.extend((file % 2 == 1).then_some((Thing::Far(file), self.far)));
        places
    }
}

/// One run of the server.
struct Run {
    machine: Machine,
    server: Arc<Server>,
    _sessions: SessionServer,
    files: Files,
}

/// A client, which ends with its primary.
struct Client {
    machine: Machine,
    _holder: Arc<Holder>,
    programs: Vec<JoinHandle<u64>>,
}

/// The place that keeps the mirror of one primary.
struct Site {
    store: Arc<MirrorStore>,
    line: Arc<Line>,
}

struct MirrorWorld<'a> {
    dir: &'a Path,
    volume: Volume,
    /// The folder of the primary's volume.
    folder: PathBuf,
    table: FakeTable,
    run: Option<Run>,
    runs: usize,
    clients: Vec<Client>,
    /// The program of the server's own mount.
    own: Option<JoinHandle<u64>>,
    cables: Cables,
    site: Option<Site>,
    engine: Arc<EngineThread>,
    reign: Arc<Mutex<Reign>>,
    reigns: usize,
    /// The tap counts here. Nothing else is in it.
    history: Arc<Mutex<History>>,
    wrong: Vec<String>,
}

/// Runs one seed in an empty folder.
pub(super) fn run(seed: u64, dir: &Path, tells_switches: bool) -> Report {
    let engine = Arc::new(EngineThread::start());
    let net = turns::begin(seed, "net", tells_switches);
    let cables = turns::on(net, || Cables::lay(guests::ends(dir, false))).expect("cables");
    let palette = Palette::choose();
    let loses_bytes = palette == Palette::Power;
    let inline_bytes = if loses_bytes { 4096 } else { 16 };
    let folder = dir.join("volume");
    let created = VolumeOptions { inline_bytes, site: None };
    let made = volume::Volume::open_or_create(&folder, created).expect("a volume");
    let volume = Volume {
        id: made.id(),
        hasher: made.hasher(),
        inline_bytes,
        // As in other runs, a power loss takes rows, and no bytes of content files.
        far: if loses_bytes { 2_000 } else { 70_000 },
        is_remote: turns::random(3) != 0,
        waits: turns::random(2) == 0,
    };
    drop(made);
    turns::tell(format_args!("seed {seed}, a mirror, {palette:?}, {volume:?}"));
    let mut world = MirrorWorld {
        dir,
        volume,
        folder,
        table: FakeTable::new(),
        run: None,
        runs: 0,
        clients: Vec::new(),
        own: None,
        cables,
        site: None,
        engine,
        reign: Arc::default(),
        reigns: 0,
        history: Arc::default(),
        wrong: Vec::new(),
    };
    world.found();
    let promotions = 1 + turns::random(PROMOTIONS);
    for left in (0..promotions).rev() {
        world.start_clients();
        if !palette.loses_server() {
            // Its changes would be lost with its server.
            world.start_own_program();
        }
        world.break_things(palette);
        if left == 0 {
            world.catch_up();
        }
        world.promote();
    }
    world.end()
}

impl MirrorWorld<'_> {
    fn count(&self, what: &'static str) {
        self.history.lock().count(what);
    }

    fn running(&self) -> &Run {
        self.run.as_ref().expect("a server")
    }

    fn line(&self) -> &Arc<Line> {
        &self.site.as_ref().expect("a mirror").line
    }

    /// Starts the first primary and its mirror.
    fn found(&mut self) {
        self.start_site();
        self.start_server();
        let run = self.running();
        let prepared = turns::on(run.machine, || programs::prepare(&run.files, self.volume));
        prepared.expect("new files");
        self.mirror();
    }

    /// Opens an empty place for a mirror.
    fn start_site(&mut self) {
        self.reigns += 1;
        let machine = turns::machine(&format!("mirror {}", self.reigns), gains());
        let dir = self.dir.join(format!("site-{}", self.reigns));
        std::fs::create_dir(&dir).expect("a folder");
        let store = self.engine.run(move || {
            let dir = Folder::open(&dir).expect("a folder");
            Arc::new(MirrorStore::open(&dir).expect("mirrors"))
        });
        let line = Arc::<Line>::default();
        line.serve(machine, &store, &self.engine);
        self.site = Some(Site { store, line });
    }

    /// Gives the primary its mirror, and waits until that has everything.
    fn mirror(&self) {
        let run = self.running();
        turns::on(run.machine, || run.server.set_mirror(PEER)).expect("a mirror");
        assert!(self.wait_for_mirror(PATIENCE), "the first copy arrives");
    }

    /// Waits until the mirror has everything that is done now. Returns whether it has.
    fn wait_for_mirror(&self, patience: Duration) -> bool {
        let run = self.running();
        let moment = self.reign.lock().moment();
        let has_all = turns::on(run.machine, || {
            let commit = run.server.next_commit()?;
            run.server.wait_for_mirror(commit, patience)
        });
        let has_all = has_all == Ok(true);
        turns::tell(format_args!("the mirror has all before {moment}: {has_all}"));
        if has_all {
            self.reign.lock().cover(moment);
            self.count("mirror waits");
        }
        has_all
    }

    /// Starts a run of the server over the state that the last one has left.
    fn start_server(&mut self) {
        self.runs += 1;
        let machine = turns::machine(&format!("server {}", self.runs), gains());
        let parts = Parts {
            shard: ShardId::FIRST,
            table: Arc::new(self.table.clone()),
            content: Arc::new(ContentStore::open(&self.folder.join("content")).expect("a folder")),
            volume: self.volume.id,
            hasher: self.volume.hasher,
        };
        let options = Options {
            sync_interval: SYNC_INTERVALS[usize::from(turns::random(2) == 0)],
            inline_bytes: self.volume.inline_bytes,
            passthrough: Passthrough::Never,
            when_cut: if self.volume.waits { WhenCut::Wait } else { WhenCut::GoOn },
            ..Options::default()
        };
        let line = Arc::clone(self.line());
        let run = turns::on(machine, || {
            let folder = Folder::open(&self.folder).expect("a folder");
            let server = Server::start_on_with_guests(parts, options, folder).expect("a server");
            let connect = move |_: &str, volume, offer| line.dial(volume, offer);
            let connects = server.set_connect_mirror(Arc::new(connect), Arc::new(|_| {}));
            connects.expect("a thread");
            let tap = Arc::new(Tap::new(server.session_service(), &self.history));
            let sessions = SessionServer::start_with(tap, TERM).expect("sessions");
            sessions.listen_unix(&server_socket(self.dir)).expect("a socket");
            let files = Files::new(server.service());
            Run { machine, server: Arc::new(server), _sessions: sessions, files }
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
            let holder = turns::on(machine, || {
                let remote = Arc::new(Remote::connect(options, TERM).expect("a session"));
                let holder = Holder::new(remote as _);
                holder.write_behind().expect("a thread");
                holder
            });
            let programs = (0..PROGRAMS).map(|program| {
                let number = (self.reigns * CLIENTS + number) * PROGRAMS + program;
                let files = Files::new(Arc::clone(&holder) as _);
                turns::on(machine, || {
                    programs::start(files, self.volume, Program(number), &self.reign, false)
                })
            });
            let programs = programs.collect();
            self.clients.push(Client { machine, _holder: holder, programs });
        }
    }

    /// Starts a program of the server's own mount, which ends with it.
    fn start_own_program(&mut self) {
        let run = self.running();
        let program = Program(self.reigns * CLIENTS * PROGRAMS + OWN);
        let files = run.files.clone();
        let started = turns::on(run.machine, || {
            programs::start(files, self.volume, program, &self.reign, true)
        });
        self.own = Some(started);
    }

    /// Has things go wrong until the primary burns, or its programs have ended.
    fn break_things(&mut self, palette: Palette) {
        let burns = turns::now() + Duration::from_millis(turns::random(BURN_MILLIS));
        let has_ended = |client: &Client| client.programs.iter().all(JoinHandle::is_finished);
        while turns::now() < burns && !self.clients.iter().all(has_ended) {
            thread::sleep(Duration::from_micros(turns::random(FAULT_MICROS)));
            if turns::random(2) == 0 {
                self.break_line();
            } else if let Some(fault) = palette.next(CLIENTS) {
                turns::tell(format_args!("{fault:?}"));
                self.break_thing(fault);
            }
        }
    }

    fn break_line(&self) {
        match turns::random(5) {
            0 | 1 => {
                turns::tell(format_args!("the line is cut"));
                self.count("mirror line cut");
                self.line().cut();
            }
            2 => {
                let time = Duration::from_millis(turns::random(8_000));
                turns::tell(format_args!("the line is stopped for {time:?}"));
                self.count("mirror line stopped");
                self.line().stop(time);
            }
            3 => {
                turns::tell(format_args!("the next answer of the mirror is lost"));
                self.count("mirror answer lost");
                self.line().lose_answer();
            }
            _ => drop(self.wait_for_mirror(Duration::from_millis(turns::random(1_000)))),
        }
    }

    fn break_thing(&mut self, fault: Fault) {
        let server = self.running().machine;
        match fault {
            Fault::Cut(client) => self.cables.cut(client),
            Fault::Stop(client, ways, time) => self.cables.stop(client, ways, time),
            Fault::PauseClient(client, time) => {
                turns::stand_still(self.clients[client].machine, Some(time));
            }
            Fault::PauseServer(time) => turns::stand_still(server, Some(time)),
            Fault::SlowServer(time) => turns::stall(server, time),
            Fault::SlowClient(client, time) => turns::stall(self.clients[client].machine, time),
            Fault::KillServer | Fault::KillServerOfLost(..) => {
                self.count("mirror killed primary");
                self.restart_server(usize::MAX);
            }
            Fault::PowerLoss => {
                self.count("mirror power loss");
                let kept = turns::random(self.table.unsafe_batches() as u64 + 1);
                self.restart_server(usize::try_from(kept).unwrap_or(0));
            }
            // It would be as if it had burnt with its primary.
            Fault::KillClient(client) => self.cables.stop(client, Ways::Both, TERM / 4),
        }
    }

    /// Ends the run of the server for ever.
    fn kill_server(&mut self) {
        if let Some(run) = self.run.take() {
            turns::stand_still(run.machine, None);
            self.cables.set_server_gone(true);
            self.line().cut();
            // Its threads stay, with all that they hold.
            mem::forget(run);
        }
    }

    /// Starts another run over the safe rows and the first `keep_unsafe` unsafe batches.
    fn restart_server(&mut self, keep_unsafe: usize) {
        self.kill_server();
        self.reign.lock().may_change_again();
        self.table = self.table.fork_crashed(keep_unsafe);
        thread::sleep(Duration::from_micros(turns::random(3_000_000)));
        self.start_server();
        // Clients that do not return in time lose changes that are not safe.
        self.cables.mend();
        self.clients.iter().for_each(|client| turns::go_on(client.machine));
        self.cables.set_server_gone(false);
        thread::sleep(TERM / 2);
    }

    /// Ends the programs, and brings everything to the mirror.
    fn catch_up(&mut self) {
        self.cables.mend();
        self.line().mend();
        let of_clients = self.clients.iter_mut().flat_map(|client| client.programs.drain(..));
        for program in of_clients.chain(self.own.take()) {
            let failed = program.join().expect("a program");
            *self.history.lock().counts.entry("mirror failed operations").or_default() += failed;
        }
        if !self.wait_for_mirror(PATIENCE) {
            self.wrong.push("the mirror does not catch up".to_owned());
        }
    }

    /// The primary burns, with all its clients. Its mirror is promoted, and served in its place.
    fn promote(&mut self) {
        turns::tell(format_args!("the primary burns"));
        self.count("mirror promotions");
        self.kill_server();
        for client in self.clients.drain(..) {
            turns::stand_still(client.machine, None);
            mem::forget(client);
        }
        mem::forget(self.own.take());
        let Some(Site { store, line }) = self.site.take() else { return };
        line.end();
        *self.history.lock().counts.entry("mirror resyncs").or_default() += line.resyncs();
        let volume = self.volume.id;
        let (promoted, table) = self.engine.run(move || {
            let promoted = store.promote(volume).expect("a mirror");
            let table = read_table(&promoted.path);
            (promoted, table)
        });
        let reign = promoted.reign;
        let number = promoted.number;
        turns::tell(format_args!("reign {reign} goes on from group {number:?}"));
        self.folder = promoted.path;
        self.table = table;
        self.check_volume();
        self.start_site();
        self.start_server();
        self.cables.mend();
        self.cables.set_server_gone(false);
        let run = self.running();
        let observed = turns::on(run.machine, || observe(&run.files, self.volume));
        let values = match observed {
            Ok(values) => values,
            Err(why) => {
                self.wrong.push(format!("the promoted volume cannot be read: {why}"));
                Values::new()
            }
        };
        turns::tell(format_args!("it has {values:?}"));
        let wrong = self.reign.lock().check(&values);
        self.wrong.extend(wrong);
        self.reign = Arc::new(Mutex::new(Reign::new(values)));
        self.mirror();
    }

    /// Checks the folder of the volume, which nobody serves.
    fn check_volume(&mut self) {
        let content = ContentStore::open(&self.folder.join("content")).expect("a folder");
        let plan = pelago_check::plan_on(pelago_check::Parts {
            table: &self.table,
            content: &content,
            volume: self.volume.id,
            shard: ShardId::FIRST,
            hasher: self.volume.hasher,
            tags_are_complete: true,
            has_sites: false,
            index: None,
        });
        match plan {
            Ok(plan) if plan.is_whole() => {}
            Ok(plan) => self.wrong.push(format!("it is damaged: {:?}", plan.findings)),
            Err(error) => self.wrong.push(format!("it cannot be checked: {error}")),
        }
    }

    fn end(mut self) -> Report {
        let counts = mem::take(&mut self.history.lock().counts);
        let mut wrong = mem::take(&mut self.wrong);
        wrong.append(&mut self.history.lock().wrong);
        // Threads of machines that were killed never end.
        mem::forget(self);
        Report { counts, wrong, time: turns::now() }
    }
}

/// Returns the rows of a promoted volume in a table that loses what is not safe.
fn read_table(folder: &Path) -> FakeTable {
    let opened = volume::Volume::open(folder).expect("a volume that can be served");
    let from = FjallTable::open_in(opened.table(), fjall::Options::default()).expect("its table");
    let mut batch = Batch::new();
    let read = from.scan(&[], &[], &mut |key, value| {
        batch.put(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    });
    read.expect("its rows");
    from.close().expect("a table");
    let table = FakeTable::new();
    table.write(&batch).expect("a table in memory");
    table.persist().expect("a table in memory");
    table
}
