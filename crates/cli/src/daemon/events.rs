//! Events that stop a process: a signal, an unmount, or a request of the control socket.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use std::{io, thread};

use pelago_mount::{Mount, UnmountError};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::daemon::errors;
use crate::failure::{Exit, Failure, Outcome};
use crate::guard::Guard;

/// The capacity of the queue of events. One event of each kind suffices.
const EVENTS: usize = 16;
/// The number of attempts to unmount a busy mount: a program that has just ended may not have
/// closed its files yet.
const UNMOUNT_TRIES: u32 = 5;
/// The pause between two attempts.
const UNMOUNT_PAUSE: Duration = Duration::from_millis(50);

/// A reason to stop.
enum Event {
    /// A signal arrived.
    Signal(i32),
    /// The mount was unmounted, or its connection to the kernel failed.
    MountEnded,
    /// `unmount` was requested, and this process unmounts by force what is still mounted.
    Stop,
}

/// The queue of events. It is created before anything is started, so that a signal during the start
/// stops the volume cleanly.
pub(crate) struct Events {
    signals: Signals,
    sender: SyncSender<Event>,
    events: Receiver<Event>,
}

/// A mount and its guard.
#[derive(Clone, Copy)]
pub(crate) struct Watched<'a> {
    pub(crate) mount: &'a Arc<Mount>,
    pub(crate) guard: &'a Guard,
}

/// A handle that stops a process even if its mount is in use.
#[derive(Clone)]
pub(crate) struct Stop(SyncSender<Event>);

impl Stop {
    /// Stops the process.
    pub(crate) fn stop(&self) {
        post(&self.0, Event::Stop);
    }
}

impl Events {
    /// Catches signals from now on.
    pub(crate) fn new() -> Outcome<Self> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD])
            .map_err(|error| Failure::new(Exit::Failed, error))?;
        let (sender, events) = sync_channel(EVENTS);
        Ok(Self { signals, sender, events })
    }

    /// Returns the handle for a request to stop.
    pub(crate) fn stop(&self) -> Stop {
        Stop(self.sender.clone())
    }

    /// Waits until a signal, an unmount or a request stops this process, and unmounts. If the
    /// process `outlives` its mount, an unmount alone does not stop it. `tell` is called with
    /// messages for a person at a terminal. Only the main thread may call it, because it restarts a
    /// guard that was killed.
    pub(crate) fn wait(
        self,
        watched: Option<Watched<'_>>,
        outlives: bool,
        tell: impl Fn(&str),
    ) -> Outcome<()> {
        let Self { signals, sender, events } = self;
        watch(signals, watched.map(|watched| watched.mount), &sender)
            .map_err(|error| Failure::new(Exit::Failed, error))?;
        let mut was_interrupted = false;
        // `sender` is still held, so `recv` does not fail.
        while let Ok(event) = events.recv() {
            match (event, watched) {
                (Event::Signal(SIGCHLD), watched) => {
                    if let Some(Watched { mount, guard }) = watched {
                        guard.replace_if_killed(mount);
                    }
                }
                (Event::MountEnded, watched) if outlives => {
                    tracing::info!("unmounted: serving goes on");
                    if let Some(Watched { guard, .. }) = watched {
                        guard.end();
                    }
                }
                (Event::MountEnded, _) | (_, None) => break,
                (Event::Signal(SIGINT), Some(Watched { mount, .. })) if !was_interrupted => {
                    was_interrupted = true;
                    match unmount(mount) {
                        Ok(()) => break,
                        Err(error) => tell(&errors::still_used(&error, mount.point())),
                    }
                }
                (Event::Signal(_) | Event::Stop, Some(Watched { mount, .. })) => {
                    if unmount(mount).is_err()
                        && let Err(error) = mount.detach()
                    {
                        tracing::warn!(%error, "the mount could not be detached");
                    }
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Unmounts. If the mount is busy, it tries again for a fifth of a second.
pub(crate) fn unmount(mount: &Mount) -> Result<(), UnmountError> {
    for _ in 1..UNMOUNT_TRIES {
        match mount.unmount() {
            Err(UnmountError::Busy(_)) => thread::sleep(UNMOUNT_PAUSE),
            result => return result,
        }
    }
    mount.unmount()
}

/// Turns signals and the end of the mount into events, on threads that run until the process ends.
fn watch(
    mut signals: Signals,
    mount: Option<&Arc<Mount>>,
    sender: &SyncSender<Event>,
) -> io::Result<()> {
    let to = sender.clone();
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in &mut signals {
            post(&to, Event::Signal(signal));
        }
    })?;
    let Some(mount) = mount else { return Ok(()) };
    let to = sender.clone();
    let mount = Arc::clone(mount);
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
        // If the queue is full, its events stop the volume too, or concern a child that ended; if
        // it is closed, the process is stopping.
        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
    }
}
