//! A server of a shared store: it stands by, and serves the volume while it owns it.

use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::{SessionServer, StandbyServer};
use pelago_server::{Options, Server, Standby, Standing, StartError};
use pelago_store::folder::Folder;
use pelago_store::owner::{ProcessRecord, boot_id};
use pelago_store::volume::{self, ServerFolder, VolumeId};

use super::events::{Events, Stop};
use super::listening::{self, ALL_ADDRESSES, Listening};
use super::neighbours::Neighbours;
use super::sessions::Doors;
use super::{Served, errors, report, start_failed};
use crate::control::{Control, ControlReply, Request};
use crate::data_path::Passthrough;
use crate::failure::{Exit, Failure, Outcome};
use crate::retry::retry_while_exiting;
use crate::status_report::{StandbyReport, UpReport};
use crate::verbs::serving::Printing;
use crate::{allocator, detach, file_sizes, output};

/// The time between two checks of the owner.
const LOOK: Duration = Duration::from_secs(1);
/// The pause after a failed attempt to take the volume, in which another server may try.
const RETRY: Duration = Duration::from_secs(5);

/// The store to serve, and the server's own options.
#[derive(Debug, Clone)]
pub(crate) struct StorePlan {
    /// The folder of the server, absolute.
    pub(crate) dir: PathBuf,
    /// The folder of the store, absolute.
    pub(crate) store: PathBuf,
    /// The address at which the server listens, `HOST:PORT`; `None` means the address of the last
    /// start.
    pub(crate) listen: Option<String>,
    /// Bytes of all caches and tables together.
    pub(crate) memory_bytes: u64,
}

#[derive(Debug, thiserror::Error)]
enum StoreError {
    #[error("another server owns the volume now")]
    Lost,
    #[error("the store is in the folder of the server")]
    Inside,
    #[error("the machine does not say when it was started")]
    Boot(#[source] io::Error),
    #[error("a thread or a socket cannot be had")]
    System(#[source] io::Error),
    #[error("the control socket cannot be created")]
    Control(#[source] io::Error),
}

fn system(error: io::Error) -> Failure {
    Failure::new(Exit::Failed, StoreError::System(error))
}

/// The state of the process, which the control socket reports.
struct Process {
    plan: StorePlan,
    own: Folder,
    volume: VolumeId,
    address: ServerAddress,
    stop: Stop,
    /// Not held while a server starts or stops.
    role: Mutex<Role>,
    /// The failure that ends the process, if there is one. A leaf lock.
    failure: Mutex<Option<Failure>>,
}

/// The role of the process at the store.
enum Role {
    /// It stands by.
    StandsBy {
        /// The owner, if it is known.
        owner: Option<String>,
        /// The reason why this server could not take the volume when it was free.
        trouble: Option<String>,
    },
    /// It owns the volume.
    Owns(Box<Served>),
}

impl Role {
    const NOTHING_KNOWN: Self = Self::StandsBy { owner: None, trouble: None };
}

/// The socket for clients, the key for it, and the store with the client list.
struct Entrance {
    socket: TcpListener,
    key: PrivateKey,
    store: Folder,
}

/// Serves the volume of the store, or stands by, until it is stopped or has lost the volume.
pub(crate) fn serve(plan: StorePlan, how: Printing) -> Outcome<ExitCode> {
    let events = Events::new()?;
    file_sizes::check_limit()?;
    allocator::fit(plan.memory_bytes);
    // Before anything is created.
    volume::expect_store(&plan.store)?;
    if plan.store.starts_with(&plan.dir) {
        return Err(Failure::new(Exit::Usage, StoreError::Inside)
            .hint("name a folder for the store that is not in that of a server"));
    }
    let own = retry_while_exiting(&plan.dir, || {
        ServerFolder::open_or_create(&plan.dir, &plan.store).map_err(StartError::from)
    });
    let own = own.map_err(|error| start_failed(error, &plan.dir))?;
    let at = match &plan.listen {
        Some(at) => at.clone(),
        None => listening::kept_address(own.folder())?.unwrap_or_else(|| ALL_ADDRESSES.to_owned()),
    };
    let Listening { server: socket, address } = listening::bind(own.folder(), &at)?;
    let record = record_of(&own, &address)?;
    let options = Options { memory_bytes: plan.memory_bytes, ..Options::default() };
    let begun = Standby::begin(&plan.store, own.volume(), record, options);
    let mut standby = begun.map_err(|error| start_failed(error, &plan.store))?;
    own.remember(&plan.store, standby.id())?;
    if plan.listen.is_some() {
        // A later start then needs no address.
        listening::keep_address(own.folder(), &at)?;
    }
    let process = Arc::new(Process {
        volume: standby.id(),
        own: own.folder().clone(),
        address,
        stop: events.stop(),
        role: Mutex::new(Role::NOTHING_KNOWN),
        failure: Mutex::default(),
        plan,
    });
    let store = volume::open_folder(&process.plan.store)?;
    let entrance = Entrance { socket, key: listening::own_key(own.folder())?, store };
    let next = process.look(&mut standby, &entrance)?;
    let control = open_control(&process)?;
    process.print(how)?;
    let (ended, watch) = channel();
    let stop = standby.stop_handle();
    let turns = match next {
        None => None,
        Some(next) => Some(process.stand_by(standby, entrance, next, watch)?),
    };
    if how.in_background {
        detach::report_ready(volume::open_log(&process.own)?)?;
        events.wait(None, false, |text| tracing::info!("{text}"))?;
    } else {
        events.wait(None, false, output::print_error)?;
    }
    drop(control);
    stop.stop();
    process.end(ended, turns)?;
    if !how.json && !how.in_background {
        output::print("stopped   everything is safe\n")?;
    }
    // The lock is held to the end: without it, another process of this folder would take this one
    // for dead.
    drop(own);
    Ok(ExitCode::SUCCESS)
}

/// Returns the record of this process for other servers.
fn record_of(own: &ServerFolder, address: &ServerAddress) -> Outcome<ProcessRecord> {
    let boot = boot_id().map_err(|error| Failure::new(Exit::Failed, StoreError::Boot(error)))?;
    Ok(ProcessRecord {
        key: address.key().to_string(),
        address: address.to_string(),
        boot,
        lock: own.lock_id(),
    })
}

impl Process {
    /// Checks the owner of the volume once. Returns `None` if this process owns it now, and serves
    /// it; otherwise the time until the next check.
    fn look(self: &Arc<Self>, standby: &mut Standby, at: &Entrance) -> Outcome<Option<Duration>> {
        match standby.look() {
            Ok(Standing::Waits(owner)) => {
                let owner = owner.map(|record| record.address);
                *self.role.lock() = Role::StandsBy { owner, trouble: None };
                Ok(Some(LOOK))
            }
            Ok(Standing::Owns(server)) => self.own(Arc::from(server), at).map(|()| None),
            Err(error) if error.is_passing() => {
                tracing::warn!(%error, "cannot take the volume; will try again");
                let trouble = Some(start_failed(error, &self.plan.store).chain());
                *self.role.lock() = Role::StandsBy { owner: None, trouble };
                Ok(Some(RETRY))
            }
            Err(error) => Err(start_failed(error, &self.plan.store)),
        }
    }

    /// Serves the volume to clients.
    fn own(self: &Arc<Self>, server: Arc<Server>, entrance: &Entrance) -> Outcome<()> {
        let clients = listening::clients_of(&entrance.store)?;
        let sessions = SessionServer::start(server.session_service()).and_then(|sessions| {
            sessions.listen_on(entrance.socket.try_clone()?, &entrance.key, clients)?;
            Ok(sessions)
        });
        let sessions = match sessions {
            Ok(sessions) => sessions,
            Err(error) => {
                super::stop_server(&server);
                return Err(system(error));
            }
        };
        let of_loss = Arc::downgrade(self);
        server.set_on_lost(Box::new(move || {
            if let Some(process) = of_loss.upgrade() {
                process.fail(
                    Failure::new(Exit::Failed, StoreError::Lost)
                        .hint("start it again: it stands by then"),
                );
            }
        }));
        let doors = Doors::at(&self.own, sessions, self.address.clone());
        let served = Served {
            server,
            mount: None,
            guard: None,
            doors: Arc::new(doors),
            http: None,
            neighbours: Arc::new(Neighbours::default()),
            passthrough: Passthrough::Never,
            indexing: pelago_server::Indexing::Never,
            dir: self.plan.dir.clone(),
            datagrams: None,
            handing_over: Arc::default(),
        };
        tracing::info!(store = %self.plan.store.display(), "this server owns the volume");
        *self.role.lock() = Role::Owns(Box::new(served));
        Ok(())
    }

    /// Stands by on a thread of its own: it sends clients to the owner, and checks the owner each
    /// second, until this process owns the volume or the other end of `watch` is gone.
    fn stand_by(
        self: &Arc<Self>,
        mut standby: Standby,
        entrance: Entrance,
        mut next: Duration,
        watch: Receiver<()>,
    ) -> Outcome<JoinHandle<()>> {
        let answers = self.answer_clients(&entrance)?;
        let process = Arc::clone(self);
        let turns = move || {
            let mut answers = Some(answers);
            while watch.recv_timeout(next) == Err(RecvTimeoutError::Timeout) {
                match process.look(&mut standby, &entrance) {
                    Ok(Some(pause)) => next = pause,
                    // Clients that wait to be accepted then reach the new server.
                    Ok(None) => return drop(answers.take()),
                    Err(failure) => return process.fail(failure),
                }
            }
            drop(answers.take());
            standby.end();
        };
        Builder::new().name("standby".to_owned()).spawn(turns).map_err(system)
    }

    fn answer_clients(self: &Arc<Self>, entrance: &Entrance) -> Outcome<StandbyServer> {
        let of_owner = Arc::downgrade(self);
        let owner = move || match &*of_owner.upgrade()?.role.lock() {
            Role::StandsBy { owner, .. } => owner.clone(),
            Role::Owns(_) => None,
        };
        let clients = listening::clients_of(&entrance.store)?;
        let answers = StandbyServer::start(Box::new(owner)).and_then(|answers| {
            answers.listen_on(entrance.socket.try_clone()?, &entrance.key, clients)?;
            Ok(answers)
        });
        answers.map_err(system)
    }

    /// Stops the process with this failure.
    fn fail(&self, failure: Failure) {
        tracing::error!("{}", failure.chain());
        self.failure.lock().get_or_insert(failure);
        self.stop.stop();
    }

    /// Stops the server or the thread that stands by. The drop of `ended` ends that thread.
    fn end(&self, ended: Sender<()>, turns: Option<JoinHandle<()>>) -> Outcome<()> {
        drop(ended);
        if turns.is_some_and(|turns| turns.join().is_err()) {
            tracing::error!("the thread that stands by has panicked");
        }
        let role = std::mem::replace(&mut *self.role.lock(), Role::NOTHING_KNOWN);
        let Role::Owns(served) = role else {
            return self.failure.lock().take().map_or(Ok(()), Err);
        };
        served.doors.sessions.stop();
        let stopped = served.server.stop();
        match self.failure.lock().take() {
            Some(failure) => Err(failure),
            None => stopped.map_err(errors::stop_failed),
        }
    }

    /// Prints the role of the process.
    fn print(&self, how: Printing) -> Outcome<()> {
        match &*self.role.lock() {
            Role::Owns(served) => {
                let report = report::report(served);
                match how.json {
                    true => output::print_json(&report.to_json()),
                    false => output::print(&owner_lines(&report, &self.plan.dir)),
                }
            }
            Role::StandsBy { owner, trouble } => {
                let report = self.standby_report(owner.clone(), trouble.clone());
                match how.json {
                    true => output::print_json(&report.to_json()),
                    false => output::print(&report.to_text()),
                }
            }
        }
    }

    fn standby_report(&self, owner: Option<String>, trouble: Option<String>) -> StandbyReport {
        StandbyReport {
            pelago: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            dir: self.plan.dir.clone(),
            store: self.plan.store.clone(),
            id: self.volume.to_string(),
            listening: self.address.to_string(),
            owner,
            trouble,
        }
    }

    /// Answers a request of the control socket.
    fn answer(&self, request: Request) -> ControlReply {
        let report = match &*self.role.lock() {
            Role::Owns(served) => return served.answer(&self.own, &self.stop, request),
            Role::StandsBy { owner, trouble } => {
                self.standby_report(owner.clone(), trouble.clone())
            }
        };
        match request {
            Request::Status => ControlReply::Standby(report),
            Request::Unmount { .. } => {
                self.stop.stop();
                ControlReply::Unmounted(self.plan.dir.clone())
            }
            Request::Listen { .. } => ControlReply::Listening(self.address.to_string()),
            Request::Invite { .. }
            | Request::Sites
            | Request::Leave
            | Request::Conflicts { .. }
            | Request::DropKept { .. }
            | Request::Mirror { .. }
            | Request::EndMirror
            | Request::WaitForMirror { .. }
            | Request::MakeSafe
            | Request::HandOver { .. }
            | Request::Verify { .. }
            | Request::Credentials { .. }
            | Request::Issue { .. }
            | Request::Promote { .. } => {
                ControlReply::Failed("this server stands by, and serves no volume".to_owned())
            }
        }
    }
}

fn open_control(process: &Arc<Process>) -> Outcome<Control> {
    let of_control = Arc::clone(process);
    let handler = move |request| of_control.answer(request);
    Control::open(&process.own, Arc::new(handler)).map_err(|error| {
        Failure::new(Exit::Failed, StoreError::Control(error))
            .hint("check that the server's folder can be written to")
    })
}

/// Returns the lines that the owner prints at its start.
fn owner_lines(report: &UpReport, dir: &Path) -> String {
    let store = report.store.as_ref().map(|store| store.folder.display().to_string());
    let address = report.listening.as_deref().unwrap_or_default();
    let store = store.unwrap_or_default();
    let dir = dir.display();
    format!(
        "store     {store} ({})\n\
         state     owns the volume (process {})\n\
         {}\
         listening {address}\n\
         next      `pelago key allow KEY -V {dir}` lets a machine mount it\n",
        report.id,
        report.pid,
        report.recovered.lines(),
    )
}
