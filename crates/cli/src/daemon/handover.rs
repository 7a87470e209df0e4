//! The handover of a volume to its mirror, and the end of this process after it.

use std::time::Duration;

use pelago_mount::{Mount, UnmountError};
use pelago_server::HandOverError;

use super::Served;
use super::events::{Stop, unmount};
use crate::control::ControlReply;

/// The longest time until the mirror has what was done before, while programs go on.
const CATCH_UP: Duration = Duration::from_secs(60);
/// The longest time until it has the last changes, and has become the primary. Programs wait.
const TAKE_OVER: Duration = Duration::from_secs(60);

impl Served {
    /// Makes the mirror of the volume the primary, and stops the process. If the mirror is behind
    /// or the mount in use, everything goes on; with `force` a mount that is in use is unmounted.
    pub(super) fn hand_over(&self, force: bool, stop: &Stop) -> ControlReply {
        // The main thread stops the server after that.
        let _stops = self.handing_over.lock();
        if let Err(error) = self.server.catch_up_mirror(CATCH_UP) {
            return ControlReply::Failed(advice(&error));
        }
        // Those of other machines are not asked to close their files.
        let mounts = self.doors.sessions.status().iter().filter(|mount| mount.connected).count();
        if mounts > 0 && !force {
            return ControlReply::Failed(format!(
                "{mounts} other mounts use the volume: unmount them, or add --busy"
            ));
        }
        let unmounted = self.mount.as_deref().map_or(Ok(()), |mount| end_mount(mount, force));
        match unmounted {
            Ok(()) => {}
            Err(UnmountError::Busy(point)) => return ControlReply::Busy(point),
            Err(error) => return ControlReply::Failed(error.to_string()),
        }
        self.doors.sessions.stop();
        self.server.flush_sites();
        let handed_over = self.server.hand_over(TAKE_OVER);
        stop.stop();
        match handed_over {
            Ok(reign) => ControlReply::HandedOver { reign },
            Err(error @ HandOverError::NotAnswered) => ControlReply::Failed(format!(
                "{error}: it may be. Look there with `pelago status`; if it is still a mirror, \
                 `pelago site promote PATH --force` there makes it the primary, and nothing is lost"
            )),
            Err(error) => {
                let dir = self.dir.display();
                ControlReply::Failed(format!(
                    "{error}; the volume is down now: `pelago up {dir}` serves it again"
                ))
            }
        }
    }
}

fn end_mount(mount: &Mount, force: bool) -> Result<(), UnmountError> {
    match unmount(mount) {
        Err(UnmountError::Busy(_)) if force => mount.detach(),
        unmounted => unmounted,
    }
}

/// Returns the error with what to do about it.
fn advice(error: &HandOverError) -> String {
    match error {
        HandOverError::NoMirror => "the volume has no mirror: `pelago site mirror`".to_owned(),
        HandOverError::Behind => {
            format!("{error}, and it goes on here: `pelago status` says how far it is")
        }
        HandOverError::Refused(_) | HandOverError::NotAnswered | HandOverError::NotStopped(_) => {
            error.to_string()
        }
    }
}
