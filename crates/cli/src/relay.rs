//! The process of `relay`: the folder of a relay, the listener for primaries, and the control
//! socket.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use pelago_net::mirror::RelayServer;
use pelago_store::folder::Folder;
use pelago_store::relay_spool::SpoolFolder;
use pelago_store::volume::VolumeError;

use crate::control::{Control, ControlReply, Request};
use crate::daemon::Events;
use crate::daemon::listening::{self, ALL_ADDRESSES, Listening};
use crate::failure::{Exit, Failure, Outcome};
use crate::status_report::{RelayReport, RelayedReport};
use crate::verbs::serving::Printing;
use crate::{file_sizes, locate};

/// The relay that the control socket reports.
struct Reported {
    server: Arc<RelayServer>,
    report: RelayReport,
}

#[derive(Debug, thiserror::Error)]
enum RelayError {
    #[error("{0} is a volume, and no relay")]
    IsVolume(String),
    #[error("{0} keeps mirrors, and is no relay")]
    IsMirrors(String),
    #[error("{0} is no relay, and other files are in it")]
    Foreign(String),
    #[error("the control socket cannot be created")]
    Control(#[source] std::io::Error),
}

/// Passes groups on until it is stopped. The folder is created if it does not exist.
pub(crate) fn serve(dir: &Path, listen: Option<&str>, how: Printing) -> Outcome<ExitCode> {
    let events = Events::new()?;
    file_sizes::check_limit()?;
    let folder = open(dir)?;
    let spools = folder.open_folder(locate::RELAY).map_err(VolumeError::from)?;
    let spools = Arc::new(SpoolFolder::new(spools));
    let at = match listen {
        Some(at) => at.to_owned(),
        None => listening::kept_address(&folder)?.unwrap_or_else(|| ALL_ADDRESSES.to_owned()),
    };
    let Listening { server, address } = listening::listen(&folder, &at, |at, key, clients| {
        let server = RelayServer::start(at, key.clone(), clients, spools)?;
        let local = server.address();
        Ok((server, local))
    })?;
    if listen.is_some() {
        // A later start then needs no address.
        listening::keep_address(&folder, &at)?;
    }
    let server = Arc::new(server);
    let report = RelayReport {
        pelago: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        dir: dir.to_owned(),
        listening: address.to_string(),
        volumes: Vec::new(),
    };
    let reported = Reported { server: Arc::clone(&server), report };
    let now = reported.report();
    let control = open_control(&folder, reported, &events)?;
    let text = format!(
        "{}next      `pelago key allow KEY -V {}` lets the server of a volume send here\n",
        now.to_text(),
        dir.display()
    );
    how.until_stopped(&folder, events, &now.to_json(), &text)?;
    drop(control);
    server.stop();
    how.last_line("stopped   what the mirrors do not have is kept for the next start\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the folder, which must be that of a relay, be empty, or not exist.
fn open(dir: &Path) -> Outcome<Folder> {
    let refused = |error| Err(Failure::new(Exit::Usage, error).hint("name a folder of its own"));
    let shown = || dir.display().to_string();
    if locate::is_volume(dir) {
        return refused(RelayError::IsVolume(shown()));
    }
    if locate::is_mirrors(dir) {
        return refused(RelayError::IsMirrors(shown()));
    }
    let folder = locate::open_or_create(dir)?;
    let entries = folder.entries().map_err(VolumeError::from)?;
    if !entries.is_empty() && !locate::is_relay(dir) {
        return refused(RelayError::Foreign(shown()));
    }
    if entries.is_empty() {
        folder.create_folder(locate::RELAY).map_err(VolumeError::from)?;
        folder.sync().map_err(VolumeError::from)?;
    }
    Ok(folder)
}

fn open_control(folder: &Folder, reported: Reported, events: &Events) -> Outcome<Control> {
    let stop = events.stop();
    let handler = move |request| match request {
        Request::Status => ControlReply::Relay(reported.report()),
        Request::Unmount { .. } => {
            stop.stop();
            ControlReply::Unmounted(reported.report.dir.clone())
        }
        Request::Promote { .. }
        | Request::Invite { .. }
        | Request::Sites
        | Request::Leave
        | Request::Conflicts { .. }
        | Request::DropKept { .. }
        | Request::Listen { .. }
        | Request::Mirror { .. }
        | Request::EndMirror
        | Request::Credentials { .. }
        | Request::Issue { .. }
        | Request::WaitForMirror { .. }
        | Request::MakeSafe
        | Request::HandOver { .. }
        | Request::Verify { .. } => {
            ControlReply::Failed("this process is a relay, and serves no volume".to_owned())
        }
    };
    Control::open(folder, Arc::new(handler)).map_err(|error| {
        Failure::new(Exit::Failed, RelayError::Control(error))
            .hint("check that the folder can be written to")
    })
}

impl Reported {
    fn report(&self) -> RelayReport {
        let volumes = self.server.list().into_iter().map(RelayedReport::from).collect();
        RelayReport { volumes, ..self.report.clone() }
    }
}
