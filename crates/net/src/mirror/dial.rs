//! The connections that a primary or a relay makes, and the errors about the other end, which is
//! named in them: "mirror" or "relay".

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{Closing, Hello};
use pelago_wire::mirror::LinkError;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::{ClientConnection, StreamOwned};

use super::frames::{Frames, FramesError, Socket, Wait};
use crate::key::PrivateKey;
use crate::key::address::ServerAddress;
use crate::tls::{self, TlsError};

/// The longest time of connecting, and of the handshake.
const ATTEMPT: Duration = Duration::from_secs(5);

/// Connects, and completes the handshake of TLS.
pub(super) fn connect(
    who: &str,
    key: &PrivateKey,
    address: &ServerAddress,
) -> Result<Frames<ClientConnection>, LinkError> {
    let refused = |error: TlsError| LinkError::Refused(error.to_string());
    let config = tls::client_config(key, address.key()).map_err(refused)?;
    let tls = tls::client_connection(config).map_err(refused)?;
    let deadline = Instant::now() + ATTEMPT;
    let stream = connect_tcp(address).map_err(|error| not_reached(who, address, &error))?;
    let socket = Socket::new(stream, Wait::Until(deadline));
    let socket = socket.map_err(|error| lost(who, &error))?;
    let mut frames = Frames::new(StreamOwned::new(tls, socket));
    frames.shake_hands().map_err(|error| lost(who, &error))?;
    frames.set_usual_wait();
    Ok(frames)
}

/// Returns the first message of a connection.
pub(super) fn hello(role: u16, volume: [u8; 16]) -> Result<Hello, LinkError> {
    let mut nonce = [0; 16];
    let no_random = |_| LinkError::Lost("the system gives no random bytes".to_owned());
    SystemRandom::new().fill(&mut nonce).map_err(no_random)?;
    Ok(Hello { role, volume: Some(volume), ..Hello::new(nonce) })
}

/// Connects to the first address of the host that answers.
fn connect_tcp(address: &ServerAddress) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for candidate in (address.host(), address.port()).to_socket_addrs()? {
        match TcpStream::connect_timeout(&candidate, ATTEMPT) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Returns the error for a frame that is no answer: often the other end's reason for closing.
pub(super) fn unexpected(who: &str, kind: FrameKind, body: &[u8]) -> LinkError {
    match (kind, Closing::decode(body)) {
        (FrameKind::Closing, Ok(closing)) if closing.text.is_empty() => {
            LinkError::Lost(closing.code.says().to_owned())
        }
        (FrameKind::Closing, Ok(closing)) => {
            LinkError::Lost(format!("{}: {}", closing.code.says(), closing.text))
        }
        _ => LinkError::Lost(format!("the {who} sent a frame of kind {kind:?}")),
    }
}

fn not_reached(who: &str, mirror: &ServerAddress, error: &io::Error) -> LinkError {
    let host = mirror.host();
    let port = mirror.port();
    LinkError::Lost(format!("the {who} at {host}, port {port}, cannot be reached: {error}"))
}

/// Returns the error for a frame that did not come.
pub(super) fn broken(who: &str, error: FramesError) -> LinkError {
    match error {
        FramesError::Io(error) => lost(who, &error),
        FramesError::Malformed(error) => LinkError::Lost(error.to_string()),
    }
}

/// Returns the error for a connection that was lost.
pub(super) fn lost(who: &str, error: &io::Error) -> LinkError {
    match TlsError::of_io(error) {
        Some(wrong @ (TlsError::WrongServer { .. } | TlsError::NotEd25519)) => {
            LinkError::Refused(format!("{wrong}: take the address that the {who} prints now"))
        }
        Some(error @ (TlsError::NotPelago(_) | TlsError::Tls(_))) => {
            LinkError::Lost(error.to_string())
        }
        None => LinkError::Lost(match error.kind() {
            io::ErrorKind::TimedOut => format!("the {who} does not answer"),
            io::ErrorKind::UnexpectedEof => format!("the {who} has ended the connection"),
            _ => format!("the connection to the {who} was lost: {error}"),
        }),
    }
}
