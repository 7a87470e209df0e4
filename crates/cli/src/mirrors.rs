//! The process of `serve --mirrors`: the folder of the mirrors, the listener for their primaries,
//! and the control socket.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use pelago_net::mirror::MirrorServer;
use pelago_server::{MirrorError, MirrorStore, Promoted, kept_count};
use pelago_store::folder::Folder;
use pelago_store::volume::{VolumeError, VolumeId};

use crate::control::{Control, ControlReply, Request};
use crate::daemon::Events;
use crate::daemon::listening::{self, ALL_ADDRESSES, Listening};
use crate::failure::{Exit, Failure, Outcome};
use crate::status_report::{MirrorReport, MirrorsReport};
use crate::verbs::serving::Printing;
use crate::{file_sizes, locate, mirror_socket};

/// The mirrors that the control socket reports.
struct Kept {
    store: Arc<MirrorStore>,
    report: MirrorsReport,
}

#[derive(Debug, thiserror::Error)]
enum KeepError {
    #[error("{0} is a volume, and keeps no mirrors")]
    IsVolume(String),
    #[error("{0} does not keep mirrors, and other files are in it")]
    Foreign(String),
    #[error("{0} is not the id of a volume")]
    NoId(String),
    #[error("the control socket cannot be created")]
    Control(#[source] std::io::Error),
}

/// Keeps mirrors in `dir` until it is stopped. The folder is created if it does not exist. With
/// `adopt`, the folder of a primary that was replaced becomes one of them.
pub(crate) fn serve(
    dir: &Path,
    listen: Option<&str>,
    adopt: Option<&Path>,
    how: Printing,
) -> Outcome<ExitCode> {
    let events = Events::new()?;
    file_sizes::check_limit()?;
    let folder = open(dir)?;
    let store = Arc::new(MirrorStore::open(&folder).map_err(failed)?);
    if let Some(adopt) = adopt {
        store.adopt(adopt).map_err(failed)?;
    }
    store.set_listen(Box::new(mirror_socket::listen));
    let at = match listen {
        Some(at) => at.to_owned(),
        None => listening::kept_address(&folder)?.unwrap_or_else(|| ALL_ADDRESSES.to_owned()),
    };
    let Listening { server, address } =
        listening::listen(&folder, &at, |address, key, clients| {
            let mirrors = Arc::clone(&store);
            let server = MirrorServer::start(address, key, clients, mirrors)?;
            let local = server.address();
            Ok((server, local))
        })?;
    if listen.is_some() {
        // A later start then needs no address.
        listening::keep_address(&folder, &at)?;
    }
    let report = MirrorsReport {
        pelago: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        dir: dir.to_owned(),
        listening: address.to_string(),
        mirrors: Vec::new(),
        kept: None,
    };
    let kept = Kept { store: Arc::clone(&store), report };
    let now = kept.report();
    let control = open_control(&folder, kept, &events)?;
    let text = format!(
        "{}next      `pelago key allow KEY -V {}` lets the server of a volume send here\n",
        now.to_text(),
        dir.display()
    );
    how.until_stopped(&folder, events, &now.to_json(), &text)?;
    drop(control);
    drop(server);
    store.stop();
    how.last_line("stopped   each mirror has a whole state of its volume\n")?;
    Ok(ExitCode::SUCCESS)
}

/// Promotes the mirror of a volume in `dir`, which no process serves.
pub(crate) fn promote(dir: &Path, volume: VolumeId) -> Outcome<Promoted> {
    let folder = Folder::open(dir).map_err(VolumeError::from)?;
    let store = MirrorStore::open(&folder).map_err(failed)?;
    store.promote(volume).map_err(failed)
}

/// Opens the folder, which must contain mirrors, be empty, or not exist.
fn open(dir: &Path) -> Outcome<Folder> {
    let shown = || dir.display().to_string();
    if locate::is_volume(dir) {
        return Err(Failure::new(Exit::Usage, KeepError::IsVolume(shown()))
            .hint("name a folder of its own for mirrors, or leave out --mirrors"));
    }
    let folder = locate::open_or_create(dir)?;
    let entries = folder.entries().map_err(VolumeError::from)?;
    if !entries.is_empty() && !locate::is_mirrors(dir) {
        return Err(Failure::new(Exit::Usage, KeepError::Foreign(shown()))
            .hint("name a folder that is empty or missing"));
    }
    Ok(folder)
}

fn open_control(folder: &Folder, kept: Kept, events: &Events) -> Outcome<Control> {
    let stop = events.stop();
    let handler = move |request| match request {
        Request::Status => ControlReply::Mirrors(kept.report()),
        Request::Unmount { .. } => {
            stop.stop();
            ControlReply::Unmounted(kept.report.dir.clone())
        }
        Request::Promote { volume } => kept.promote(&volume),
        Request::Invite { .. }
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
            ControlReply::Failed("this process keeps mirrors, and serves no volume".to_owned())
        }
    };
    Control::open(folder, Arc::new(handler)).map_err(|error| {
        Failure::new(Exit::Failed, KeepError::Control(error))
            .hint("check that the folder can be written to")
    })
}

impl Kept {
    fn report(&self) -> MirrorsReport {
        let mirrors = self.store.list().into_iter().map(MirrorReport::from).collect();
        // If they cannot be read, `pelago conflicts` says why.
        let kept = kept_count(&self.report.dir).map(|count| count as u64).ok();
        MirrorsReport { mirrors, kept, ..self.report.clone() }
    }

    fn promote(&self, volume: &str) -> ControlReply {
        let Some(volume) = VolumeId::parse(volume) else {
            return ControlReply::Failed(KeepError::NoId(volume.to_owned()).to_string());
        };
        match self.store.promote(volume) {
            Ok(promoted) => ControlReply::Promoted(promoted.into()),
            Err(error) => ControlReply::Failed(error.says()),
        }
    }
}

fn failed(error: MirrorError) -> Failure {
    Failure::new(Exit::from(error.kind()), error)
}
