//! Requests of commands to the process of a volume that is up on this machine.

use std::path::Path;
use std::time::Duration;

use pelago_keynote::hex;
use pelago_net::key::address::ServerAddress;

use crate::control::{AskError, ControlReply, Request, ask, ask_status};
use crate::failure::{Exit, Failure, Outcome};
use crate::status_report::StatusReport;

/// The longest time that the process of the volume may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
enum UpVolumeError {
    #[error("the volume's process does not listen for other machines: {0}")]
    NotListening(String),
    #[error("the volume's process does not say which volume it serves: {0}")]
    NoVolume(String),
}

/// Makes the volume's process listen, and returns its address.
pub(crate) fn listen(dir: &Path, at: Option<&str>) -> Outcome<ServerAddress> {
    let request = Request::Listen { at: at.map(str::to_owned) };
    let not_listening = |why: String| {
        Failure::new(Exit::Unreachable, UpVolumeError::NotListening(why))
            .hint("name an address of this machine that others reach: `--at HOST:PORT`")
    };
    match ask(dir, request, PATIENCE) {
        Ok((ControlReply::Listening(address), _)) => {
            address.parse().map_err(|error| not_listening(format!("{error}")))
        }
        Ok(_) => Err(not_listening("it gives another answer".to_owned())),
        Err(error) => Err(not_listening(error.to_string())),
    }
}

/// Returns the id of the volume that is up in this folder.
pub(crate) fn volume_id(dir: &Path) -> Outcome<[u8; 16]> {
    let failed =
        |why: &str| Failure::new(Exit::Unreachable, UpVolumeError::NoVolume(why.to_owned()));
    match ask_status(dir, PATIENCE) {
        Ok(StatusReport::Up(report)) => {
            hex::read(&report.id).ok_or_else(|| failed("its id is no number"))
        }
        Ok(_) => Err(failed("it serves no volume")),
        Err(error) => Err(failed(&error.to_string())),
    }
}

/// The progress of the mirror.
pub(crate) struct Mirrored {
    /// The group commit: the mirror is to have all changes that were done before it.
    pub(crate) commit: u64,
    /// The mirror has these changes.
    pub(crate) done: bool,
}

/// Waits for two seconds until the mirror has all changes that were done before a group commit, or
/// before now.
///
/// # Errors
/// [`AskError::Refused`] if the volume has no mirror.
pub(crate) fn mirrored(dir: &Path, commit: Option<u64>) -> Result<Mirrored, AskError> {
    match ask(dir, Request::WaitForMirror { commit }, PATIENCE)?.0 {
        ControlReply::Mirrored { commit, done } => Ok(Mirrored { commit, done }),
        _ => Err(AskError::Garbled),
    }
}
