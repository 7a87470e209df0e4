//! The reasons for which a client has no session: some pass with time, some only a person can
//! change.

use std::io;

use pelago_wire::OlderFolder;
use pelago_wire::handshake::{RefusalCode, Refused};

use crate::tls::TlsError;

/// The reason for which there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The socket could not be connected.
    #[error("the server cannot be reached")]
    Unreachable(#[source] io::Error),
    /// The server gives no session.
    #[error("{}{}", .0.code.says(), said(&.0.text))]
    Refused(Refused),
    /// The other end closed the connection, or sent something else than the protocol.
    #[error("no pelago server answers there: {0}")]
    NoServer(String),
    /// The connection ended before the server had answered: too many clients may have connected.
    #[error("the server closed the connection before it answered")]
    Cut,
    /// The server has another volume than that of the session.
    #[error("the server has the volume {}, and the mount is of {}", id(.found), id(.wanted))]
    OtherVolume {
        /// The volume of the session.
        wanted: [u8; 16],
        /// The volume of the server.
        found: [u8; 16],
    },
    /// TLS failed: the server has another key, or does not speak TLS.
    #[error(transparent)]
    Tls(TlsError),
    /// The credentials are too many, or too long.
    #[error("the credentials are too many, or too long")]
    Chain(#[source] pelago_wire::Error),
    /// No answer came in time.
    #[error("the server does not answer")]
    Silent,
    /// The system gives no thread, or no random bytes.
    #[error("no thread or no random bytes could be had")]
    NoThread(#[source] io::Error),
}

impl ConnectError {
    /// Returns the address of the owner of the volume, if a server has refused the client because
    /// it is not the owner; an empty text if the server does not know the owner.
    pub(super) fn owner(&self) -> Option<&str> {
        match self {
            Self::Refused(Refused { code: RefusalCode::NotOwner, text, .. }) => Some(text),
            _ => None,
        }
    }

    /// Returns whether nothing has come from the server within the time of an attempt.
    pub(super) fn is_silence(&self) -> bool {
        match self {
            Self::Silent => true,
            Self::Unreachable(error) => error.kind() == io::ErrorKind::TimedOut,
            _ => false,
        }
    }
}

fn id(volume: &[u8; 16]) -> String {
    volume.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn said(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(": {text}") }
}

/// Returns whether a server answers and will soon give a session.
pub(super) const fn is_passing(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Refused(Refused {
            code: RefusalCode::Starting
                | RefusalCode::TooManySessions
                | RefusalCode::TooManyOfPeer
                | RefusalCode::TooManyStrangers
                | RefusalCode::NotOwner
                | RefusalCode::NotCurrent,
            ..
        })
    )
}

/// Returns whose folder is a copy or an older one, if the server has refused this site for that.
pub(super) const fn older_folder(error: &ConnectError) -> Option<OlderFolder> {
    match error {
        ConnectError::Refused(Refused { code: RefusalCode::Older, .. }) => {
            Some(OlderFolder::OfAsker)
        }
        ConnectError::Refused(Refused { code: RefusalCode::Outdated, .. }) => {
            Some(OlderFolder::OfAnswerer)
        }
        _ => None,
    }
}

/// Returns whether the server has too much to do to take another session.
pub(super) const fn is_of_load(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Refused(Refused {
            code: RefusalCode::TooManySessions
                | RefusalCode::TooManyOfPeer
                | RefusalCode::TooManyStrangers,
            ..
        })
    )
}

/// Returns whether only a person can change the cause: the server refuses this client for good, or
/// another server answers at the address.
pub(super) const fn is_definite(error: &ConnectError) -> bool {
    match error {
        ConnectError::OtherVolume { .. }
        | ConnectError::Tls(TlsError::WrongServer { .. } | TlsError::NotEd25519) => true,
        ConnectError::Refused(refused) => matches!(
            refused.code,
            RefusalCode::UnknownKey
                | RefusalCode::NoAccess
                | RefusalCode::NotInvited
                | RefusalCode::Older
                | RefusalCode::Outdated
                | RefusalCode::NotPrimary
                | RefusalCode::OtherVersion
                | RefusalCode::NotPelago
                | RefusalCode::UnknownRole
                | RefusalCode::NotServed
        ),
        _ => false,
    }
}
