//! A mount of a volume that another process serves.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pelago_client::Files;
use pelago_mount::{Atime, Keeps, Mount, MountOptions, Trusts, mount};
use pelago_net::{ConnectError, Remote, RemoteOptions, ServerTarget};
use pelago_server::inode_table_bytes;

use crate::daemon::{Events, errors};
use crate::failure::{Exit, Failure, Outcome};

/// How long the first connection may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What to mount.
#[derive(Debug, Clone)]
pub(crate) struct FarPlan {
    /// The server.
    pub(crate) target: ServerTarget,
    /// The server as the user named it; `df` and `mount` show it.
    pub(crate) source: String,
    /// The mount point, absolute.
    pub(crate) point: PathBuf,
    /// Whether changes are refused.
    pub(crate) read_only: bool,
    /// Which reads set the access time.
    pub(crate) atime: Atime,
    /// Whether setuid programs and devices work on the mount.
    pub(crate) trusts: Trusts,
    /// After this time without a server a request fails; `None` waits for ever.
    pub(crate) give_up: Option<Duration>,
    /// Bytes of all caches and tables together.
    pub(crate) memory_bytes: u64,
}

/// A mount of a volume that another process serves.
pub(crate) struct FarMount {
    remote: Arc<Remote>,
    mount: Arc<Mount>,
    events: Events,
}

impl FarMount {
    /// Connects and mounts. If that fails, nothing is mounted.
    pub(crate) fn start(plan: &FarPlan) -> Outcome<Self> {
        let events = Events::new()?;
        let options = RemoteOptions {
            target: plan.target.clone(),
            read_only: plan.read_only,
            give_up: plan.give_up,
        };
        let remote = Remote::connect(options, PATIENCE);
        let remote = Arc::new(remote.map_err(|error| connect_failed(error, &plan.source))?);
        let options = MountOptions {
            mount_point: plan.point.clone(),
            fs_name: plan.source.clone(),
            read_only: plan.read_only,
            atime: plan.atime,
            trusts: plan.trusts,
            passthrough: false,
            keeps: Keeps::Nothing,
            inode_table_bytes: inode_table_bytes(plan.memory_bytes),
        };
        let files = Files::new(Arc::clone(&remote) as _);
        let mount = mount(files, &options).map_err(errors::mount_failed)?;
        Ok(Self { remote, mount: Arc::new(mount), events })
    }

    /// Returns the mount point.
    pub(crate) fn point(&self) -> &Path {
        self.mount.point()
    }

    /// Serves until a signal, an unmount or a request stops it. `tell` gets the messages for a
    /// person at a terminal.
    pub(crate) fn run(self, tell: impl Fn(&str)) -> Outcome<()> {
        let Self { remote, mount, events } = self;
        events.wait(&mount, tell)?;
        drop(mount);
        remote.end();
        Ok(())
    }
}

fn connect_failed(error: ConnectError, source: &str) -> Failure {
    let exit = match &error {
        ConnectError::Refused(_) => Exit::Denied,
        ConnectError::NoThread(_) => Exit::Failed,
        _ => Exit::Unreachable,
    };
    Failure::new(exit, FarError { source: error, server: source.to_owned() })
        .hint("check that `pelago up` or `pelago serve` runs there, and the address")
}

#[derive(Debug, thiserror::Error)]
#[error("{server} cannot be mounted")]
struct FarError {
    server: String,
    source: ConnectError,
}
