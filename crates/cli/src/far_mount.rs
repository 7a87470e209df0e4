//! A mount of a volume that another process serves.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use pelago_client::Files;
use pelago_holder::Holder;
use pelago_keynote::armor;
use pelago_mount::{Atime, Keeps, Mount, MountOptions, Trusts, UnmountError, mount};
use pelago_net::tls::TlsError;
use pelago_net::{ClientRole, ConnectError, Remote, RemoteOptions, ServerTarget};
use pelago_server::{inode_table_bytes, most_facts};
use pelago_store::clock;
use pelago_wire::handshake::RefusalCode;
use pelago_wire::{
    Bulk, Code, Context, Error as WireError, Handle, InodeId, LeasedService, Name, Reply,
    Request as FarRequest, limits,
};

use crate::control::{Control, ControlReply, FileName, Request};
use crate::credential::raw;
use crate::daemon::{Events, Stop, Watched, errors, no_ring, unmount};
use crate::data_path::IoUring;
use crate::failure::{Exit, Failure, Outcome};
use crate::guard::Guard;
use crate::guest::Guest;
use crate::runtime_dir::RuntimeDir;
use crate::status_report::{FarReport, GuardReport};
use crate::{allocator, stale_mount};

/// The longest time until the first session begins: a server that has just started first waits for
/// its earlier clients, and executes the requests that they repeat.
const PATIENCE: Duration = Duration::from_secs(3 * limits::TERM_SECONDS);

/// The server, the mount point and the options of a mount.
#[derive(Debug, Clone)]
pub(crate) struct FarPlan {
    /// The server.
    pub(crate) target: ServerTarget,
    /// The server as the user has named it, for `df` and `mount`.
    pub(crate) source: String,
    /// The mount point, absolute.
    pub(crate) point: PathBuf,
    /// Changes are refused.
    pub(crate) read_only: bool,
    /// The rule by which reads set the access time.
    pub(crate) atime: Atime,
    /// The rights of setuid programs and devices on the mount.
    pub(crate) trusts: Trusts,
    /// The time without a server after which a request fails; `None` waits for ever.
    pub(crate) give_up: Option<Duration>,
    /// The choice of `--io-uring`.
    pub(crate) io_uring: IoUring,
    /// Bytes of all caches and tables together.
    pub(crate) memory_bytes: u64,
    /// The credentials of a guest and its root; `None` for a machine that the server knows.
    pub(crate) guest: Option<Guest>,
}

/// A mount of a volume that another process serves.
pub(crate) struct FarMount {
    parts: Parts,
    control: Control,
    /// Dropped after the control socket, which is in this folder.
    pub(crate) runtime_dir: RuntimeDir,
    events: Events,
}

/// The parts of a mount that the control socket reports.
#[derive(Clone)]
struct Parts {
    remote: Arc<Remote>,
    holder: Arc<Holder>,
    mount: Arc<Mount>,
    guard: Arc<Guard>,
    plan: FarPlan,
}

impl FarMount {
    /// Connects and mounts. If that fails, nothing is mounted.
    pub(crate) fn start(plan: &FarPlan) -> Outcome<Self> {
        allocator::fit(plan.memory_bytes);
        let events = Events::new()?;
        let options = RemoteOptions {
            target: plan.target.clone(),
            read_only: plan.read_only,
            role: plan.guest.as_ref().map_or(ClientRole::Client, Guest::role),
            give_up: plan.give_up,
        };
        let remote = Remote::connect(options, PATIENCE);
        let remote = Arc::new(remote.map_err(|error| connect_failed(error, &plan.source))?);
        plan.guest.as_ref().map_or(Ok(()), |guest| attach(&remote, guest))?;
        let holder = Holder::new(service(&remote, plan.guest.as_ref()));
        holder.set_most_facts(most_facts(plan.memory_bytes));
        let options = MountOptions {
            mount_point: plan.point.clone(),
            fs_name: plan.source.clone(),
            read_only: plan.read_only,
            atime: plan.atime,
            trusts: plan.trusts,
            passthrough: false,
            io_uring: plan.io_uring.into(),
            keeps: Keeps::Leased(Arc::clone(&holder) as _),
            inode_table_bytes: inode_table_bytes(plan.memory_bytes),
        };
        let files = Files::new(Arc::clone(&holder) as _);
        remove_dead(&plan.point)?;
        let mount = Arc::new(mount(files, &options).map_err(errors::mount_failed)?);
        // The guard becomes ready while the rest starts.
        let guard = Arc::new(Guard::start(&mount));
        if let Some(dirs) = mount.dir_attrs() {
            // They do not pass through the tree of a guest. The server shows what its rights leave.
            let view = plan.guest.as_ref().map(Guest::view);
            let tell = move |mut attr, since| {
                if let Some(view) = view {
                    view.show(&mut attr);
                }
                dirs.tell(attr, since);
            };
            remote.tell_dirs(Box::new(tell));
        }
        if let Some(cache) = mount.local_cache() {
            holder.set_cache(cache);
        }
        if plan.guest.is_some() {
            holder.set_lease_time(limits::GUEST_LEASE);
        }
        if !plan.read_only
            && let Err(error) = holder.write_behind()
        {
            tracing::warn!(%error, "no thread: each write waits for the server");
        }
        let parts = Parts { remote, holder, mount, guard, plan: plan.clone() };
        let opened = RuntimeDir::create(parts.mount.point()).and_then(|runtime_dir| {
            let control = parts.open_control(&runtime_dir, events.stop())?;
            Ok((runtime_dir, control))
        });
        let (runtime_dir, control) = opened.map_err(|error| {
            Failure::new(Exit::Failed, ControlError(error))
                .hint("check the folder for sockets: XDG_RUNTIME_DIR, /run/pelago or /tmp")
        })?;
        parts.guard.wait_until_ready();
        Ok(Self { parts, control, runtime_dir, events })
    }

    /// Returns the state of the mount.
    pub(crate) fn report(&self) -> FarReport {
        self.parts.report()
    }

    /// Serves until a signal, an unmount or a request stops it. `tell` gets the messages for a
    /// person at a terminal.
    pub(crate) fn run(self, tell: impl Fn(&str)) -> Outcome<()> {
        let Self { parts, control, runtime_dir, events } = self;
        let Parts { mount, guard, .. } = &parts;
        events.wait(Some(Watched { mount, guard }), false, tell)?;
        drop((control, runtime_dir));
        if mount.has_ended() {
            guard.end();
        }
        // Without a server the last requests of the mount would wait for ever.
        parts.remote.end();
        Ok(())
    }
}

impl Parts {
    fn open_control(&self, runtime_dir: &RuntimeDir, stop: Stop) -> io::Result<Control> {
        let parts = self.clone();
        let handler = move |request| match request {
            Request::Status => ControlReply::Far(parts.report()),
            Request::Credentials { name } => parts.credentials(name.as_deref()),
            Request::Issue { ino, file } => parts.issue(InodeId::from_raw(ino), file.as_ref()),
            Request::Listen { .. }
            | Request::Invite { .. }
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
            | Request::Promote { .. } => {
                ControlReply::Failed("this process mounts a volume that another serves".to_owned())
            }
            Request::Unmount { force } => match (unmount(&parts.mount), force) {
                (Ok(()), _) | (Err(_), true) => {
                    stop.stop();
                    ControlReply::Unmounted(parts.mount.point().to_owned())
                }
                (Err(UnmountError::Busy(point)), false) => ControlReply::Busy(point),
                (Err(error), false) => ControlReply::Failed(error.to_string()),
            },
        };
        Control::open(&runtime_dir.folder, Arc::new(handler))
    }

    /// Returns the server of the session. Of several servers of a shared store it is the present
    /// one.
    fn server(&self) -> String {
        let server = self.remote.server().filter(|_| self.plan.guest.is_none());
        server.map_or_else(|| self.plan.source.clone(), |server| server.to_string())
    }

    /// Returns the credentials by which a guest has a name in its root, which it shares on.
    fn credentials(&self, name: Option<&str>) -> ControlReply {
        let Some(guest) = &self.plan.guest else {
            return ControlReply::Failed("this mount is not that of a guest".to_owned());
        };
        let name = name.map(|name| raw(name).unwrap_or_default());
        match guest.chain_of(name.as_deref()).map(|chain| armor(chain)) {
            Some(Ok(block)) => ControlReply::Credentials(block),
            Some(Err(error)) => ControlReply::Failed(error.to_string()),
            // It is the root of names that were attached one by one.
            None => ControlReply::Credentials(String::new()),
        }
    }

    /// Has the server issue a credential for a file or folder that was made in this session.
    fn issue(&self, ino: InodeId, file: Option<&FileName>) -> ControlReply {
        let failed = |says: &str| ControlReply::Failed(says.to_owned());
        if self.plan.guest.is_none() {
            return failed("this mount is not that of a guest");
        }
        let node = match file {
            None => Ok(Handle::own(ino)),
            Some(FileName { dir, name }) => {
                let name = raw(name).and_then(|name| Name::new(&name).ok());
                let Some(name) = name else { return failed("it has no name of a volume") };
                let dir = Handle::own(InodeId::from_raw(*dir));
                match ask(&self.remote, FarRequest::Lookup { dir, name }) {
                    Ok(Reply::Entry(entry)) if entry.handle.ino == ino => Ok(entry.handle),
                    Ok(_) => return failed("another file has taken its name"),
                    Err(error) => Err(error),
                }
            }
        };
        match node.and_then(|node| ask(&self.remote, FarRequest::Issue { node })) {
            Ok(Reply::Issued(texts)) => {
                let texts: Vec<String> =
                    texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
                match armor(&texts) {
                    Ok(block) => ControlReply::Credentials(block),
                    Err(error) => ControlReply::Failed(error.to_string()),
                }
            }
            Ok(_) => failed("the server gives another answer"),
            Err(error) => ControlReply::Failed(not_issued(error.code).to_owned()),
        }
    }

    fn report(&self) -> FarReport {
        let status = self.remote.status();
        FarReport {
            pelago: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            server: self.server(),
            mounted: self.mount.point().to_owned(),
            read_only: self.plan.read_only,
            no_ring: no_ring(&self.mount),
            guard: GuardReport::from(self.guard.pid()),
            session: status.session.map(|session| format!("{:x}", session.0)),
            connected: status.connected,
            silent_ms: u64::try_from(status.silent.as_millis()).unwrap_or(u64::MAX),
            waiting: status.waiting as u64,
            connections: status.connections,
            requests: status.requests,
            locks_lost: status.locks_lost,
            lost_writes: self.holder.lost_files().into_iter().map(InodeId::raw).collect(),
        }
    }
}

/// Returns the tree that is mounted: the whole volume, or that of a guest.
fn service(remote: &Arc<Remote>, guest: Option<&Guest>) -> Arc<dyn LeasedService> {
    let remote = Arc::clone(remote);
    match guest {
        None => remote,
        Some(guest) => guest.tree(remote, clock::now()),
    }
}

/// Asks the server of a mount, and waits for the answer.
///
/// # Errors
/// Those of the request; `TimedOut` if there is no answer.
fn ask(remote: &Remote, request: FarRequest) -> Result<Reply, WireError> {
    let (sender, answer) = channel();
    let done = Box::new(move |result, _granted| {
        // The other end waits below, or has given up.
        let _sent = sender.send(result);
    });
    remote.ask_leased(&Context::direct(0, 0), request, Bulk::None, done);
    answer.recv_timeout(PATIENCE).unwrap_or_else(|_| Err(Code::TimedOut.into()))
}

/// Returns the reason for which a server has issued no credential, for people.
const fn not_issued(code: Code) -> &'static str {
    match code {
        Code::AccessDenied => {
            "it was not made in this mount since the server has started, or its credential was \
             taken back, or you may not create there any more"
        }
        Code::Stale | Code::NotFound => "it is gone, or out of what is shared",
        Code::Invalid => {
            "it is neither a file nor a folder, or your own credential has conditions that \
             cannot be carried over"
        }
        Code::NotSupported => {
            "the server may not issue credentials: the owner lets it by the next `pelago share`"
        }
        Code::NoSpace => "as many credentials were issued as one mount may have: attach it again",
        Code::TimedOut => "the server does not answer",
        _ => "the server fails; its log says why",
    }
}

/// Attaches the further chains of a guest, so that a person learns which one is refused.
fn attach(remote: &Remote, guest: &Guest) -> Outcome<()> {
    for (at, chain) in guest.chains.iter().enumerate().skip(1) {
        let chain = chain.iter().map(|text| text.clone().into_bytes()).collect();
        let refused = |why: String| {
            Failure::new(Exit::Denied, AttachRefused { name: guest.shown(at), why })
                .hint("ask for another one, or attach the others without it")
        };
        match ask(remote, FarRequest::Attach { chain }) {
            Ok(Reply::Bytes(why)) if why.is_empty() => {}
            Ok(Reply::Bytes(why)) => {
                let why = String::from_utf8_lossy(&why).escape_debug().to_string();
                return Err(refused(why));
            }
            Ok(_) => return Err(refused("it gives another answer".to_owned())),
            Err(error) => return Err(refused(error.to_string())),
        }
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
#[error("the server refuses the credential for {name}: {why}")]
struct AttachRefused {
    name: String,
    why: String,
}

/// Removes dead Pelago mounts from a mount point.
fn remove_dead(point: &Path) -> Outcome<()> {
    while let Some(mount) = stale_mount::dead_at(point) {
        tracing::info!(point = %point.display(), "detaching a dead mount");
        let removed = stale_mount::remove(&mount);
        removed.map_err(|error| errors::detach_failed(error, point))?;
    }
    Ok(())
}

#[derive(Debug, thiserror::Error)]
#[error("the control socket cannot be created")]
struct ControlError(#[source] io::Error);

fn connect_failed(error: ConnectError, source: &str) -> Failure {
    let (exit, hint) = match &error {
        ConnectError::Refused(refused) if refused.code == RefusalCode::UnknownKey => {
            (Exit::Denied, format!("where the volume is: `pelago key allow {}`", refused.text))
        }
        ConnectError::Refused(refused) => (Exit::Denied, remedy(refused.code).to_owned()),
        ConnectError::Tls(TlsError::WrongServer { .. }) => (
            Exit::Denied,
            "ask for the server's present address: another machine may pose as it".to_owned(),
        ),
        ConnectError::NoThread(_) => (Exit::Failed, "retry".to_owned()),
        _ => (
            Exit::Unreachable,
            "check that `pelago up` or `pelago serve` runs there, and the address".to_owned(),
        ),
    };
    Failure::new(exit, FarError { source: error, server: source.to_owned() }).hint(hint)
}

/// Returns the hint for a refusal.
const fn remedy(code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::OtherVersion => "use the same version of pelago on both machines",
        RefusalCode::NotInvited => "ask for an invitation: `pelago site invite` prints it",
        RefusalCode::NoAccess => "ask the one who shared it for another credential",
        RefusalCode::TooManyOfPeer => {
            "unmount what is not used; `pelago status` of the server lists its sessions"
        }
        _ => "retry later",
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{server} cannot be mounted")]
struct FarError {
    server: String,
    source: ConnectError,
}

#[cfg(test)]
mod tests {
    use pelago_wire::handshake::Refused;

    use super::*;

    #[test]
    fn each_refusal_says_why_and_what_to_do() {
        let said = |code| {
            let wire_min = 1;
            let wire_max = 1;
            let refused = Refused { code, wire_min, wire_max, retry_ms: 0, text: String::new() };
            connect_failed(ConnectError::Refused(refused), "server").to_string()
        };
        let cases = [
            (
                RefusalCode::TooManyOfPeer,
                "this machine or user has as many sessions as one may have",
            ),
            (RefusalCode::TooManyOfPeer, "unmount what is not used"),
            (RefusalCode::TooManyStrangers, "too many connections to the server have no session"),
            (RefusalCode::OtherVersion, "speak different versions of the protocol"),
            (RefusalCode::OtherVersion, "use the same version of pelago on both machines"),
        ];
        for (code, text) in cases {
            assert!(said(code).contains(text), "{}", said(code));
        }
    }

    #[test]
    fn another_volume_is_named() {
        let error = ConnectError::OtherVolume { wanted: [0x12; 16], found: [0xab; 16] };
        let text = error.to_string();
        assert_eq!(
            text,
            format!(
                "the server has the volume {}, and the mount is of {}",
                "ab".repeat(16),
                "12".repeat(16)
            )
        );
    }
}
