//! A volume that is up: its server, its mount, and the socket where others ask about it.
//!
//! It comes up in this order: server (which takes the volume's lock, so that a mount that still
//! claims to show this volume is known to be dead), mount, socket. It goes down in the other order;
//! the socket goes before the lock, so that a successor's is never removed.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use pelago_client::ServiceFiles;
use pelago_mount::{Atime, Mount, MountOptions, Trusts, UnmountError, mount, mount_over};
use pelago_server::{Options, PassthroughStatus, Server, inode_table_bytes};
use pelago_store::folder::Folder;
use pelago_store::volume;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::control::{Control, Request};
use crate::dead;
use crate::failure::{Exit, Failure, Outcome};
use crate::file_sizes;
use crate::patience::wait_for_the_dying;
use crate::place;

pub(crate) use errors::start_failed;
pub(crate) use report::describe;
pub(crate) use way::Passthrough;

mod errors;
mod report;
pub(crate) mod way;

/// Events that may wait; each kind matters once.
const EVENTS: usize = 16;
/// How often, and after which pause, a mount that is in use is tried again: a program that has just
/// ended may not have let go yet.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(50);

/// What to bring up.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The volume's folder, absolute.
    pub(crate) dir: PathBuf,
    /// Where to mount; a folder in `dir` where `None`.
    pub(crate) point: Option<PathBuf>,
    /// Take no changes.
    pub(crate) read_only: bool,
    /// Which reads change the time of the last read.
    pub(crate) atime: Atime,
    /// What counts on the mount.
    pub(crate) trusts: Trusts,
    /// When the kernel is given descriptors of files.
    pub(crate) passthrough: Passthrough,
    /// Bytes of a file kept in the table, where the volume is made.
    pub(crate) inline_bytes: Option<u32>,
    /// Bytes of all caches and tables together.
    pub(crate) memory_bytes: u64,
}

/// A volume that is up.
pub(crate) struct Daemon {
    /// The volume's folder, open.
    pub(crate) folder: Folder,
    server: Arc<Server>,
    mount: Arc<Mount>,
    control: Control,
    passthrough: Passthrough,
    signals: Signals,
    sender: SyncSender<Event>,
    events: Receiver<Event>,
    /// Whether the volume was made just now.
    pub(crate) is_new: bool,
}

/// What ends it.
enum Event {
    /// A signal came.
    Signal(i32),
    /// The mount ended.
    MountEnded,
    /// Somebody wants it to end whoever uses it.
    Forced,
}

impl Daemon {
    /// Brings it up. Where that fails, everything is as before, but that the volume is there.
    pub(crate) fn start(plan: &Plan) -> Outcome<Self> {
        // First of all, so that a signal from now on ends what was begun.
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Failure::new(Exit::Failed, error))?;
        file_sizes::expect_room()?;
        let point = plan.point.clone().unwrap_or_else(|| volume::mount_path(&plan.dir));
        if plan.point.is_some() {
            errors::expect_point(&point, &plan.dir)?;
        }
        let is_new = !place::is_volume(&plan.dir);
        let server = start_server(plan)?;
        let folder = server.folder().expect("a server of a volume that was just started");
        let started = mount_it(plan, &folder, &point, &server).and_then(|mount| {
            let (sender, events) = sync_channel(EVENTS);
            let control = open_control(plan, &folder, &server, &mount, &sender)?;
            Ok((mount, control, sender, events))
        });
        match started {
            Ok((mount, control, sender, events)) => {
                let passthrough = plan.passthrough;
                Ok(Self {
                    folder,
                    server,
                    mount,
                    control,
                    passthrough,
                    signals,
                    sender,
                    events,
                    is_new,
                })
            }
            Err(failure) => {
                stop_server(&server);
                Err(failure)
            }
        }
    }

    /// What it says of itself.
    pub(crate) fn describe(&self) -> Value {
        describe(&self.server.status(), &self.mount, self.passthrough)
    }

    /// Serves until it is told to end, then stops cleanly. `say` hears what a person at a terminal
    /// should know.
    pub(crate) fn run(self, say: impl Fn(&str)) -> Outcome<()> {
        let Self { server, mount, control, signals, sender, events, .. } = self;
        watch(signals, &mount, &sender).map_err(|error| Failure::new(Exit::Failed, error))?;
        let mut was_asked = false;
        // The sender above is held, so that there is always another event to wait for.
        while let Ok(event) = events.recv() {
            match event {
                Event::MountEnded => break,
                Event::Signal(SIGINT) if !was_asked => {
                    was_asked = true;
                    match unmount(&mount) {
                        Ok(()) => break,
                        Err(error) => say(&errors::still_used(&error, mount.point())),
                    }
                }
                Event::Signal(_) | Event::Forced => {
                    if unmount(&mount).is_err()
                        && let Err(error) = mount.detach()
                    {
                        tracing::warn!(%error, "the mount stays behind");
                    }
                    break;
                }
            }
        }
        drop(control);
        let stopped = server.stop();
        drop(mount);
        stopped.map_err(errors::stop_failed)
    }
}

fn start_server(plan: &Plan) -> Outcome<Arc<Server>> {
    let (read_only, passthrough) = (plan.read_only, plan.passthrough.for_server());
    let memory_bytes = plan.memory_bytes;
    let mut options = Options { read_only, passthrough, memory_bytes, ..Options::default() };
    if let Some(bytes) = plan.inline_bytes {
        options.inline_bytes = bytes;
    }
    match wait_for_the_dying(&plan.dir, || Server::start(&plan.dir, options.clone())) {
        Ok(server) => Ok(Arc::new(server)),
        Err(error) => Err(start_failed(error, &plan.dir)),
    }
}

fn stop_server(server: &Server) {
    if let Err(error) = server.stop() {
        tracing::warn!(%error, "the volume was not stopped cleanly; the next start recovers it");
    }
}

fn mount_it(
    plan: &Plan,
    folder: &Folder,
    point: &Path,
    server: &Arc<Server>,
) -> Outcome<Arc<Mount>> {
    detach_dead(&plan.dir)?;
    // A mount that is there already is refused below, without opening it.
    let ours = plan.point.is_none() && !errors::is_mounted(point);
    let beneath = ours.then(|| volume::create_mount_point(folder)).transpose();
    let beneath = beneath.map_err(errors::point_not_made)?;
    let options = MountOptions {
        mount_point: point.to_owned(),
        fs_name: plan.dir.to_string_lossy().into_owned(),
        read_only: plan.read_only,
        atime: plan.atime,
        trusts: plan.trusts,
        // Reads that the kernel carries out are not seen here.
        passthrough: plan.atime != Atime::Always
            && server.status().passthrough == PassthroughStatus::Available,
        inode_table_bytes: inode_table_bytes(plan.memory_bytes),
    };
    let files = Arc::new(ServiceFiles::new(server.service()));
    let mounted = match &beneath {
        Some(directory) => mount_over(files, &options, directory.as_fd()),
        None => mount(files, &options),
    };
    match mounted {
        Ok(mount) => Ok(Arc::new(mount)),
        Err(error) => Err(errors::mount_failed(error)),
    }
}

/// Detaches what a former life of this volume has left mounted. The caller holds the volume's lock.
fn detach_dead(dir: &Path) -> Outcome<()> {
    for point in place::dead_mounts_of(dir) {
        tracing::info!(point = %point.display(), "a dead mount of this volume is detached");
        dead::detach(&point).map_err(|error| errors::stuck(error, &point))?;
    }
    Ok(())
}

fn open_control(
    plan: &Plan,
    folder: &Folder,
    server: &Arc<Server>,
    mount: &Arc<Mount>,
    sender: &SyncSender<Event>,
) -> Outcome<Control> {
    let (server, mount, sender) = (Arc::clone(server), Arc::clone(mount), sender.clone());
    let passthrough = plan.passthrough;
    let handler = move |request| match request {
        Request::Status => describe(&server.status(), &mount, passthrough),
        Request::Unmount { force } => match (unmount(&mount), force) {
            (Ok(()), _) => json!({ "unmounted": mount.point() }),
            (Err(_), true) => {
                post(&sender, Event::Forced);
                json!({ "unmounted": mount.point() })
            }
            (Err(UnmountError::Busy(point)), false) => json!({ "busy": point }),
            (Err(error), false) => json!({ "error": error.to_string() }),
        },
    };
    Control::open(folder, Arc::new(handler)).map_err(|error| {
        Failure::new(Exit::Failed, error).hint("the control socket could not be made; see above")
    })
}

/// Unmounts, a little patient with programs that are just ending.
fn unmount(mount: &Mount) -> Result<(), UnmountError> {
    for _ in 1..TRIES {
        match mount.unmount() {
            Err(UnmountError::Busy(_)) => thread::sleep(PAUSE),
            done => return done,
        }
    }
    mount.unmount()
}

/// Turns signals and the end of the mount into events, on threads that live as long as the process.
fn watch(mut signals: Signals, mount: &Arc<Mount>, sender: &SyncSender<Event>) -> io::Result<()> {
    let to = sender.clone();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in &mut signals {
            post(&to, Event::Signal(signal));
        }
    })?;
    let (to, mount) = (sender.clone(), Arc::clone(mount));
    thread::Builder::new().name("mount".to_owned()).spawn(move || {
        if let Err(error) = mount.wait() {
            tracing::error!(%error, "the kernel's requests could not be read any more");
        }
        post(&to, Event::MountEnded);
    })?;
    Ok(())
}

fn post(sender: &SyncSender<Event>, event: Event) {
    match sender.try_send(event) {
        // Full of others that end it as well; or it has ended.
        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
    }
}
