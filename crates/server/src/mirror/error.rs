//! The errors of setting or removing the mirror of a volume.

use pelago_wire::Error;

/// The error of setting or removing the mirror of a volume.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetMirrorError {
    /// Programs write content files without requests.
    #[error(
        "programs write files of this volume without its server: start it with \
         `--passthrough never`"
    )]
    Passthrough,
    /// The volume is served read-only.
    #[error("the volume is served read-only")]
    ReadOnly,
    /// The volume lies on a shared store.
    #[error("a mirror of a volume on a shared store is not built yet")]
    SharedStore,
    /// The server has no volume around its parts.
    #[error("the server has no volume")]
    NoVolume,
    /// It has another mirror already.
    #[error("the volume has a mirror already, {0}, and cannot have two")]
    Another(String),
    /// It has no mirror that could be removed.
    #[error("the volume has no mirror")]
    None,
    /// The address is empty or too long.
    #[error("the address of a mirror is KEY@HOST:PORT")]
    Address,
    /// The address of the relay is too long, or that of a relay without a mirror.
    #[error("the address of a relay is KEY@HOST:PORT")]
    RelayAddress,
    /// The server stops.
    #[error("the server is stopping")]
    Stopped,
    /// The system gives no thread.
    #[error("the system gives no thread")]
    NoThread,
    /// The table failed.
    #[error(transparent)]
    Table(Error),
}
