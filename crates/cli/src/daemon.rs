//! A volume that is up: its server, its mount and its control socket.
//!
//! They start in this order. The server takes the volume's lock, so an existing mount of this
//! volume must be dead. They stop in the reverse order: the socket is removed before the lock is
//! released, so the socket of the next process is never removed.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_client::Files;
use pelago_http::HttpServer;
use pelago_mount::{Atime, Keeps, Mount, MountOptions, Trusts, UnmountError, mount, mount_over};
use pelago_net::key::PublicKey;
use pelago_net::mirror::{Datagrams, RepairMode};
use pelago_server::{
    HAS_SEARCH_INDEX, Indexing, LeaveError, Options, PassthroughStatus, RelayedMirror, Server,
    WhenCut, inode_table_bytes,
};
use pelago_store::folder::Folder;
use pelago_store::volume;
use pelago_wire::InodeId;

use crate::control::{Control, ControlReply, Request};
use crate::data_path::{IoUring, Passthrough};
use crate::failure::{Exit, Failure, Outcome};
use crate::guard::Guard;
use crate::retry::retry_while_exiting;
use crate::status_report::UpReport;
use crate::ticket::Ticket;
use crate::{allocator, file_sizes, locate, stale_mount};

pub(crate) use errors::start_failed;

pub(crate) use events::{Events, Stop, Watched, unmount};

pub(crate) use http::HttpPlan;
pub(crate) use report::no_ring;

use listening::NEVER;
use neighbours::Neighbours;
use sessions::Doors;

mod conflicts;
pub(crate) mod errors;
mod events;
mod handover;
mod http;
pub(crate) mod listening;
mod mirror;
mod neighbours;
mod report;
mod reverse;
mod sessions;
pub(crate) mod store;

/// The volume to start, and its options.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The volume's folder, absolute.
    pub(crate) dir: PathBuf,
    /// The mount point.
    pub(crate) point: PointPlan,
    /// The address at which the server listens for other machines, as `HOST:PORT`; `None` means the
    /// address of an earlier start, if there is one.
    pub(crate) listen: Option<String>,
    /// The options of the HTTP server; `None` if the tree is not served over HTTP.
    pub(crate) http: Option<HttpPlan>,
    /// Changes are refused.
    pub(crate) read_only: bool,
    /// The rule by which reads set the access time.
    pub(crate) atime: Atime,
    /// The rights of setuid programs and devices on the mount.
    pub(crate) trusts: Trusts,
    /// The files that are to use passthrough.
    pub(crate) passthrough: Passthrough,
    /// The limit of what the mirror may lack; `None` leaves it to the level of the volume.
    pub(crate) lag: Option<Duration>,
    /// The reaction of a sync of level *remote* to a mirror that is cut off.
    pub(crate) when_cut: WhenCut,
    /// The repair packets of datagrams to the mirror; `None` if it gets none.
    pub(crate) repair: Option<RepairMode>,
    /// The choice of `--io-uring`.
    pub(crate) io_uring: IoUring,
    /// Bytes of the largest file kept in the table, for a new volume; `None` means the default.
    pub(crate) inline_bytes: Option<u32>,
    /// Bytes of all caches and tables together.
    pub(crate) memory_bytes: u64,
    /// The choice of a search index.
    pub(crate) indexing: Indexing,
    /// The time in seconds for which a request waits for another site.
    pub(crate) remote_seconds: u64,
    /// Bytes of the disk that copies of other sites' files may take.
    pub(crate) copy_bytes: u64,
    /// The ticket by which the folder becomes a site of a volume that exists at another site.
    pub(crate) joining: Option<Arc<Ticket>>,
    /// The site that joins does not listen, now and later: the others cannot reach it.
    pub(crate) listens_never: bool,
    /// The address of this machine for other sites, if it differs from the address at which it
    /// listens.
    pub(crate) site_address: Option<String>,
}

/// The choice of a mount point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PointPlan {
    /// On the folder `files` of the volume.
    Default,
    /// On this folder.
    At(PathBuf),
    /// Nowhere: other processes and machines mount the volume.
    Nowhere,
}

/// A volume that is up.
pub(crate) struct Daemon {
    /// The volume's folder, open.
    pub(crate) folder: Folder,
    parts: Served,
    control: Control,
    events: Events,
    /// The volume was created by this start.
    pub(crate) is_new: bool,
}

impl Daemon {
    /// Creates the volume if it does not exist, starts its server, mounts it, and opens the control
    /// socket. If that fails, the server is stopped and nothing is mounted; a volume that was
    /// created stays.
    pub(crate) fn start(plan: &Plan) -> Outcome<Self> {
        let events = Events::new()?;
        file_sizes::check_limit()?;
        if let PointPlan::At(point) = &plan.point {
            errors::expect_point(point, &plan.dir)?;
        }
        if locate::is_mirrors(&plan.dir) {
            return Err(errors::keeps_mirrors(&plan.dir));
        }
        if let Some(store) = locate::store_of(&plan.dir) {
            return Err(errors::is_store_server(&plan.dir, &store));
        }
        let is_new = !locate::is_volume(&plan.dir);
        let was_there = plan.dir.exists();
        if let Some(ticket) = &plan.joining {
            neighbours::expect_reachable(ticket)?;
        }
        let server = start_server(plan)?;
        let folder = server.folder().expect("a server of a volume that was just started");
        let neighbours = Arc::new(Neighbours::default());
        neighbours.connect(plan, &folder, &server);
        let datagrams = plan.repair.map(Datagrams::new);
        let repair = mirror::relay_repair(plan.repair);
        mirror::connect(&folder, &server, datagrams.clone(), repair, events.stop());
        if plan.joining.is_some()
            && let Err(failure) = neighbours.join(&server)
        {
            let is_refused = neighbours.is_refused();
            neighbours.end();
            stop_server(&server);
            drop(folder);
            drop(server);
            // If the other office may have accepted this one, the key must not get lost: the same
            // command then continues with it.
            if is_new && is_refused {
                neighbours::undo_join(&plan.dir, was_there);
            }
            return Err(failure);
        }
        if !plan.read_only {
            server.keep_tokens();
        }
        let started = Served::start(plan, &folder, &server, neighbours, datagrams);
        let started = started.and_then(|parts| {
            let control = open_control(&folder, &parts, events.stop())?;
            if let Some(guard) = &parts.guard {
                guard.wait_until_ready();
            }
            Ok((parts, control))
        });
        match started {
            Ok((parts, control)) => Ok(Self { folder, parts, control, events, is_new }),
            Err(failure) => {
                stop_server(&server);
                Err(failure)
            }
        }
    }

    /// Returns the state of the volume.
    pub(crate) fn report(&self) -> UpReport {
        report::report(&self.parts)
    }

    /// Serves until a signal, an unmount or a request stops it, then stops cleanly. A server that
    /// listens outlives its mount. `tell` is called with messages for a person at a terminal.
    pub(crate) fn run(self, tell: impl Fn(&str)) -> Outcome<()> {
        let Self { parts, control, events, .. } = self;
        // Others ask an office that does not listen, too.
        let is_asked = parts.doors.address().is_some() || parts.doors.listens_never()?;
        let outlives = is_asked || parts.mount.is_none();
        let guarded = parts.mount.as_ref().zip(parts.guard.as_deref());
        events.wait(guarded.map(|(mount, guard)| Watched { mount, guard }), outlives, tell)?;
        let answers = control.answers();
        drop(control);
        let Served { server, mount, guard, doors, http, neighbours, handing_over, .. } = parts;
        drop(handing_over.lock());
        drop(http);
        doors.sessions.stop();
        server.flush_sites();
        neighbours.end();
        let stopped = server.stop();
        if let Some(guard) = guard.filter(|_| mount.as_ref().is_some_and(|mount| mount.has_ended()))
        {
            guard.end();
        }
        drop(mount);
        // The command that has handed the volume over learns of it.
        answers.wait();
        stopped.map_err(errors::stop_failed)
    }
}

/// The parts that serve a volume, which the control socket reports.
#[derive(Clone)]
struct Served {
    server: Arc<Server>,
    /// `None` if the volume is not mounted here.
    mount: Option<Arc<Mount>>,
    /// `None` without a mount.
    guard: Option<Arc<Guard>>,
    doors: Arc<Doors>,
    http: Option<Arc<HttpServer>>,
    neighbours: Arc<Neighbours>,
    passthrough: Passthrough,
    indexing: Indexing,
    dir: PathBuf,
    /// The datagrams to the mirror, if it is to get any.
    datagrams: Option<Datagrams>,
    /// Held while the volume is handed over to its mirror: the server is stopped after that.
    handing_over: Arc<Mutex<()>>,
}

impl Served {
    fn start(
        plan: &Plan,
        folder: &Folder,
        server: &Arc<Server>,
        neighbours: Arc<Neighbours>,
        datagrams: Option<Datagrams>,
    ) -> Outcome<Self> {
        let mount = match &plan.point {
            PointPlan::Nowhere => None,
            PointPlan::At(point) => Some(mount_it(plan, folder, point, false, server)?),
            PointPlan::Default => {
                let point = volume::mount_path(&plan.dir);
                Some(mount_it(plan, folder, &point, true, server)?)
            }
        };
        // The guard becomes ready while the rest starts.
        let guard = mount.as_deref().map(Guard::start).map(Arc::new);
        let doors = Arc::new(Doors::open(folder, server, plan.listen.as_deref())?);
        neighbours.accept_reverse(&doors.sessions);
        match server.site() == InodeId::ROOT.site() {
            true if server.sites().is_empty() => {}
            true => neighbours::begin_site_list(folder, server)?,
            false => begin_joined(plan, folder, server, &doors)?,
        }
        let http = plan.http.as_ref().map(|http| http::open(http, server, plan.memory_bytes));
        let http = http.transpose()?.map(Arc::new);
        Ok(Self {
            server: Arc::clone(server),
            mount,
            guard,
            doors,
            http,
            neighbours,
            passthrough: plan.passthrough,
            indexing: plan.indexing,
            dir: plan.dir.clone(),
            datagrams,
            handing_over: Arc::default(),
        })
    }

    /// Leaves the volume, and stops the process.
    fn leave(&self, stop: &Stop) -> ControlReply {
        let left = match self.server.leave_volume() {
            Err(LeaveError::NotAnswered(_)) if self.neighbours.says_left() => {
                // An earlier attempt was carried out, and its answer got lost.
                self.server.has_left_volume().map_err(LeaveError::Table)
            }
            left => left,
        };
        match left {
            Ok(()) => {
                let _stops: ControlReply = self.stop(true, stop);
                ControlReply::Left
            }
            Err(error) => ControlReply::Failed(Failure::new(Exit::Failed, error).chain()),
        }
    }

    /// Answers a request of the control socket. `folder` is the folder of the process.
    fn answer(&self, folder: &Folder, stop: &Stop, request: Request) -> ControlReply {
        let server = &self.server;
        match request {
            Request::Status => ControlReply::Status(Box::new(report::report(self))),
            Request::Unmount { force } => self.stop(force, stop),
            Request::Invite { name, key, until } => invite(folder, server, &name, &key, until),
            Request::Leave => self.leave(stop),
            Request::Sites => ControlReply::Sites(report::sites(server, &self.neighbours)),
            Request::Conflicts { inode } => ControlReply::Conflicts(conflicts::list(server, inode)),
            Request::DropKept { node } => conflicts::drop_kept(server, node),
            Request::Mirror { peer, relay } => {
                let relay = relay.unwrap_or_default();
                mirror::set(self, folder, RelayedMirror { relay, mirror: peer })
            }
            Request::EndMirror => mirror::end(server),
            Request::HandOver { force } => self.hand_over(force, stop),
            Request::Verify { begin, apply, inode } => mirror::verify(server, begin, apply, inode),
            Request::WaitForMirror { commit } => mirror::wait(server, commit),
            Request::MakeSafe => mirror::make_safe(server),
            Request::Promote { .. } => ControlReply::Failed(
                "this process serves a volume, and keeps no mirrors".to_owned(),
            ),
            Request::Credentials { .. } | Request::Issue { .. } => {
                ControlReply::Failed("this process serves a volume, and is no guest".to_owned())
            }
            Request::Listen { at } => match self.doors.listen_always(at.as_deref()) {
                Ok(address) => ControlReply::Listening(address.to_string()),
                Err(failure) => ControlReply::Failed(failure.chain()),
            },
        }
    }

    /// Unmounts and stops the process. With `force` it also unmounts a mount that is in use.
    fn stop(&self, force: bool, stop: &Stop) -> ControlReply {
        let Some(mount) = &self.mount else {
            stop.stop();
            return ControlReply::Unmounted(self.dir.clone());
        };
        match (unmount(mount), force) {
            (Ok(()), _) | (Err(_), true) => {
                stop.stop();
                ControlReply::Unmounted(mount.point().to_owned())
            }
            (Err(UnmountError::Busy(point)), false) => ControlReply::Busy(point),
            (Err(error), false) => ControlReply::Failed(error.to_string()),
        }
    }
}

fn start_server(plan: &Plan) -> Outcome<Arc<Server>> {
    if plan.indexing == Indexing::Always && !HAS_SEARCH_INDEX {
        let why = "--find needs a search index, and this pelago was built without one";
        return Err(Failure::new(Exit::Usage, why).hint("build it with the feature `search`"));
    }
    allocator::fit(plan.memory_bytes);
    let mut options = Options {
        read_only: plan.read_only,
        passthrough: for_server(plan.passthrough),
        lag: plan.lag,
        when_cut: plan.when_cut,
        memory_bytes: plan.memory_bytes,
        indexing: plan.indexing,
        on_index_reading: allocator::for_index(plan.memory_bytes),
        joining: plan.joining.as_deref().map(neighbours::joining),
        remote_timeout: Duration::from_secs(plan.remote_seconds),
        copy_bytes: plan.copy_bytes,
        ..Options::default()
    };
    if let Some(bytes) = plan.inline_bytes {
        options.inline_bytes = bytes;
    }
    match retry_while_exiting(&plan.dir, || Server::start(&plan.dir, options.clone())) {
        Ok(server) => Ok(Arc::new(server)),
        Err(error) => Err(start_failed(error, &plan.dir)),
    }
}

const fn for_server(wanted: Passthrough) -> pelago_server::Passthrough {
    match wanted {
        Passthrough::Auto => pelago_server::Passthrough::Auto,
        Passthrough::Always => pelago_server::Passthrough::Always,
        Passthrough::Never => pelago_server::Passthrough::Never,
    }
}

fn stop_server(server: &Server) {
    if let Err(error) = server.stop() {
        tracing::warn!(%error, "the volume was not stopped cleanly; the next start recovers it");
    }
}

/// Mounts the volume on `point`. The default mount point is created if it does not exist.
fn mount_it(
    plan: &Plan,
    folder: &Folder,
    point: &Path,
    is_default: bool,
    server: &Arc<Server>,
) -> Outcome<Arc<Mount>> {
    detach_dead(&plan.dir)?;
    // A mount that exists is refused below, without opening it.
    let is_default = is_default && !errors::is_mounted(point);
    let beneath = is_default.then(|| volume::create_mount_point(folder)).transpose();
    let beneath = beneath.map_err(errors::point_not_made)?;
    let options = MountOptions {
        mount_point: point.to_owned(),
        fs_name: plan.dir.to_string_lossy().into_owned(),
        read_only: plan.read_only,
        atime: plan.atime,
        trusts: plan.trusts,
        // With passthrough the kernel reads files itself, and no access time is set.
        passthrough: plan.atime != Atime::Always
            && server.status().passthrough == PassthroughStatus::Available,
        inode_table_bytes: inode_table_bytes(plan.memory_bytes),
        io_uring: plan.io_uring.into(),
        keeps: Keeps::EverythingOfSite(server.site(), server.leases_elsewhere()),
    };
    let files = Files::new(server.service());
    let mounted = match &beneath {
        Some(directory) => mount_over(files, &options, directory.as_fd()),
        None => mount(files, &options),
    };
    match mounted {
        Ok(mount) => {
            if let Some(cache) = mount.local_cache() {
                server.set_local_cache(cache);
            }
            if let Some(cache) = mount.directory_cache() {
                server.set_directory_cache(cache);
            }
            Ok(Arc::new(mount))
        }
        Err(error) => Err(errors::mount_failed(error)),
    }
}

/// Detaches mounts that an earlier run of this volume has left behind. The caller holds the
/// volume's lock.
fn detach_dead(dir: &Path) -> Outcome<()> {
    for mount in locate::dead_mounts_of(dir) {
        tracing::info!(point = %mount.point.display(), "detaching a dead mount of this volume");
        let removed = stale_mount::remove(&mount);
        removed.map_err(|error| errors::detach_failed(error, &mount.point))?;
    }
    Ok(())
}

fn open_control(folder: &Folder, parts: &Served, stop: Stop) -> Outcome<Control> {
    let parts = parts.clone();
    let own_folder = folder.clone();
    let handler = move |request| parts.answer(&own_folder, &stop, request);
    Control::open(folder, Arc::new(handler)).map_err(|error| {
        Failure::new(Exit::Failed, ControlError(error))
            .hint("check that the volume's folder can be written to")
    })
}

/// Makes a site that has joined reachable for the others, and tells them how.
fn begin_joined(
    plan: &Plan,
    folder: &Folder,
    server: &Arc<Server>,
    doors: &Arc<Doors>,
) -> Outcome<()> {
    if plan.listens_never {
        doors.keep_address(NEVER)?;
    }
    if doors.listens_never()? {
        reverse::keep_connected(server, doors, folder);
        Neighbours::tell_address(server, String::new());
        return Ok(());
    }
    // Other sites must be able to reach the files that have their home here.
    let listening = doors.listen_always(plan.listen.as_deref())?;
    if let Some(at) = plan.listen.as_deref().filter(|_| plan.joining.is_some()) {
        doors.keep_address(at)?;
    }
    if let Some(address) = neighbours::own_address(plan, &listening, server) {
        Neighbours::tell_address(server, address);
    }
    Ok(())
}

fn invite(
    folder: &Folder,
    server: &Arc<Server>,
    name: &str,
    key: &str,
    until: u64,
) -> ControlReply {
    if let Err(failure) = neighbours::begin_site_list(folder, server) {
        return ControlReply::Failed(failure.chain());
    }
    let Ok(key) = key.parse::<PublicKey>() else {
        return ControlReply::Failed("the key of the invitation is none".to_owned());
    };
    match server.invite_site(name, *key.as_bytes(), until) {
        Ok(site) => ControlReply::Invited(site),
        Err(error) => ControlReply::Failed(error.to_string()),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the control socket cannot be created")]
struct ControlError(#[source] io::Error);
