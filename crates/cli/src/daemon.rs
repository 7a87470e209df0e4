//! A volume that is up: its server, its mount and its control socket.
//!
//! They start in this order. The server takes the volume's lock, so a mount that still names this
//! volume is known to be dead. They stop in the reverse order: the socket is removed before the
//! lock is released, so the next process's socket is never removed.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use std::{io, thread};

use pelago_client::Files;
use pelago_mount::{Atime, Keeps, Mount, MountOptions, Trusts, UnmountError, mount, mount_over};
use pelago_server::{Options, PassthroughStatus, Server, inode_table_bytes};
use pelago_store::folder::Folder;
use pelago_store::volume;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::control::{Control, ControlReply, Request};
use crate::data_path::Passthrough;
use crate::failure::{Exit, Failure, Outcome};
use crate::retry::retry_while_exiting;
use crate::status_report::UpReport;
use crate::{file_sizes, locate, stale_mount};

pub(crate) use errors::start_failed;

mod errors;
mod report;

/// Events that may wait; of each kind one suffices.
const EVENTS: usize = 16;
/// How often, and after which pause, a busy mount is unmounted again: a program that has just ended
/// may not have closed its files yet.
const UNMOUNT_TRIES: u32 = 5;
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// What to start.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// The volume's folder, absolute.
    pub(crate) dir: PathBuf,
    /// Where to mount; `None` means the folder `files` in `dir`.
    pub(crate) point: Option<PathBuf>,
    /// Whether changes are refused.
    pub(crate) read_only: bool,
    /// Which reads set the access time.
    pub(crate) atime: Atime,
    /// Whether setuid programs and devices work on the mount.
    pub(crate) trusts: Trusts,
    /// For which files passthrough is wanted.
    pub(crate) passthrough: Passthrough,
    /// Bytes of the largest file kept in the table, for a new volume; `None` means the default.
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
    /// Whether the volume was created by this start.
    pub(crate) is_new: bool,
}

/// A reason to stop.
enum Event {
    /// This signal arrived.
    Signal(i32),
    /// The mount was unmounted, or its connection to the kernel failed.
    MountEnded,
    /// `unmount --force` was requested.
    Forced,
}

impl Daemon {
    /// Creates the volume if it does not exist, starts its server, mounts it, and opens the control
    /// socket. If that fails, the server is stopped and nothing is mounted; a volume that was
    /// created stays.
    pub(crate) fn start(plan: &Plan) -> Outcome<Self> {
        // First, so that a signal during the start stops the volume cleanly.
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
            .map_err(|error| Failure::new(Exit::Failed, error))?;
        file_sizes::check_limit()?;
        let point = plan.point.clone().unwrap_or_else(|| volume::mount_path(&plan.dir));
        if plan.point.is_some() {
            errors::expect_point(&point, &plan.dir)?;
        }
        let is_new = !locate::is_volume(&plan.dir);
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

    /// Returns the state of the volume.
    pub(crate) fn report(&self) -> UpReport {
        report::report(&self.server.status(), &self.mount, self.passthrough)
    }

    /// Serves until a signal, an unmount or a request stops it, then stops cleanly. `tell` gets the
    /// messages for a person at a terminal.
    pub(crate) fn run(self, tell: impl Fn(&str)) -> Outcome<()> {
        let Self { server, mount, control, signals, sender, events, .. } = self;
        watch(signals, &mount, &sender).map_err(|error| Failure::new(Exit::Failed, error))?;
        let mut was_interrupted = false;
        // `sender` is still held, so `recv` does not fail.
        while let Ok(event) = events.recv() {
            match event {
                Event::MountEnded => break,
                Event::Signal(SIGINT) if !was_interrupted => {
                    was_interrupted = true;
                    match unmount(&mount) {
                        Ok(()) => break,
                        Err(error) => tell(&errors::still_used(&error, mount.point())),
                    }
                }
                Event::Signal(_) | Event::Forced => {
                    if unmount(&mount).is_err()
                        && let Err(error) = mount.detach()
                    {
                        tracing::warn!(%error, "the mount could not be detached");
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
    let (read_only, passthrough) = (plan.read_only, for_server(plan.passthrough));
    let memory_bytes = plan.memory_bytes;
    let mut options = Options { read_only, passthrough, memory_bytes, ..Options::default() };
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

fn mount_it(
    plan: &Plan,
    folder: &Folder,
    point: &Path,
    server: &Arc<Server>,
) -> Outcome<Arc<Mount>> {
    detach_dead(&plan.dir)?;
    // A mount that exists is refused below, without opening it.
    let is_default = plan.point.is_none() && !errors::is_mounted(point);
    let beneath = is_default.then(|| volume::create_mount_point(folder)).transpose();
    let beneath = beneath.map_err(errors::point_not_made)?;
    let options = MountOptions {
        mount_point: point.to_owned(),
        fs_name: plan.dir.to_string_lossy().into_owned(),
        read_only: plan.read_only,
        atime: plan.atime,
        trusts: plan.trusts,
        // With passthrough the kernel reads by itself, and no access time is set.
        passthrough: plan.atime != Atime::Always
            && server.status().passthrough == PassthroughStatus::Available,
        inode_table_bytes: inode_table_bytes(plan.memory_bytes),
        keeps: Keeps::default(),
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
            Ok(Arc::new(mount))
        }
        Err(error) => Err(errors::mount_failed(error)),
    }
}

/// Detaches mounts that an earlier run of this volume has left behind. The caller holds the
/// volume's lock.
fn detach_dead(dir: &Path) -> Outcome<()> {
    for point in locate::dead_mounts_of(dir) {
        tracing::info!(point = %point.display(), "detaching a dead mount of this volume");
        stale_mount::detach(&point).map_err(|error| errors::detach_failed(error, &point))?;
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
        Request::Status => {
            ControlReply::Status(Box::new(report::report(&server.status(), &mount, passthrough)))
        }
        Request::Unmount { force } => match (unmount(&mount), force) {
            (Ok(()), _) => ControlReply::Unmounted(mount.point().to_owned()),
            (Err(_), true) => {
                post(&sender, Event::Forced);
                ControlReply::Unmounted(mount.point().to_owned())
            }
            (Err(UnmountError::Busy(point)), false) => ControlReply::Busy(point),
            (Err(error), false) => ControlReply::Failed(error.to_string()),
        },
    };
    Control::open(folder, Arc::new(handler)).map_err(|error| {
        Failure::new(Exit::Failed, ControlError(error))
            .hint("check that the volume's folder can be written to")
    })
}

#[derive(Debug, thiserror::Error)]
#[error("the control socket cannot be created")]
struct ControlError(#[source] io::Error);

/// Unmounts; if the mount is busy, tries again for a fifth of a second.
fn unmount(mount: &Mount) -> Result<(), UnmountError> {
    for _ in 1..UNMOUNT_TRIES {
        match mount.unmount() {
            Err(UnmountError::Busy(_)) => thread::sleep(UNMOUNT_PAUSE),
            result => return result,
        }
    }
    mount.unmount()
}

/// Turns signals and the end of the mount into events, on threads that run until the process ends.
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
            tracing::error!(%error, "reading the kernel's requests failed");
        }
        post(&to, Event::MountEnded);
    })?;
    Ok(())
}

fn post(sender: &SyncSender<Event>, event: Event) {
    match sender.try_send(event) {
        // The events in a full queue stop the volume too; a closed one means that it is stopping.
        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
    }
}
