//! The HTTP server of a volume.

use std::ffi::CString;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use nix::unistd::{User, getgrouplist};
use pelago_client::Files;
use pelago_http::{HttpOptions, HttpServer, ReadAs};
use pelago_server::Server;
use pelago_wire::{Pins, limits};
use rustix::process::{Resource, getrlimit};

use crate::failure::{Exit, Failure, Outcome};

/// The default port of the HTTP server.
const PORT: u16 = 8080;

/// The options of the HTTP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpPlan {
    /// The address at which it listens, as `HOST:PORT` or `HOST`.
    pub(crate) address: String,
    /// Other machines may connect, and any program on them may read.
    pub(crate) public: bool,
    /// The name of the user as whom the tree is read.
    pub(crate) reader: String,
}

/// Starts the server.
pub(super) fn open(
    plan: &HttpPlan,
    server: &Arc<Server>,
    memory_bytes: u64,
) -> Outcome<HttpServer> {
    let failed = |source: io::Error| {
        let text = format!("cannot serve HTTP on {}: {source}", plan.address);
        Failure::new(Exit::Failed, text)
            .hint("give an address of this machine that is free, HOST:PORT")
    };
    let address = resolve(&plan.address).map_err(failed)?;
    if !address.ip().is_loopback() && !plan.public {
        return Err(Failure::new(
            Exit::Usage,
            format!("{address} can be reached by other machines, and HTTP knows no accounts"),
        )
        .hint("add --http-public to let every machine that reaches it read, or use 127.0.0.1"));
    }
    let reader = reader(&plan.reader)?;
    let files = Files::new(server.service());
    let pins = Arc::clone(server) as Arc<dyn Pins>;
    let memory_bytes = delivery_bytes(memory_bytes);
    let options = HttpOptions { files, reader, pins, memory_bytes, connections: connections() };
    HttpServer::open(address, options).map_err(failed)
}

/// Returns the memory for extents, if the caches of the volume have `memory_bytes`.
fn delivery_bytes(memory_bytes: u64) -> u64 {
    limits::DELIVERY_BYTES.min(memory_bytes / 5 * 2)
}

/// Returns the limit for connections: an eighth of the descriptors.
fn connections() -> usize {
    let descriptors = getrlimit(Resource::Nofile).current;
    let share = descriptors.and_then(|all| usize::try_from(all / 8).ok());
    share.unwrap_or(limits::HTTP_CONNECTIONS).min(limits::HTTP_CONNECTIONS)
}

fn resolve(address: &str) -> io::Result<SocketAddr> {
    if let Ok(address) = address.parse() {
        return Ok(address);
    }
    let mut found = match address.contains(':') {
        true => address.to_socket_addrs()?,
        false => (address, PORT).to_socket_addrs()?,
    };
    found.next().ok_or_else(|| io::Error::from(io::ErrorKind::AddrNotAvailable))
}

/// Returns a user of this machine with all its groups.
fn reader(name: &str) -> Outcome<ReadAs> {
    let unknown = || {
        Failure::new(Exit::Usage, format!("this machine has no user `{name}`"))
            .hint("give --http-as the name of a user who may read what is to be served")
    };
    let failed = |error: nix::Error| Failure::new(Exit::Failed, io::Error::from(error));
    let user = User::from_name(name).map_err(failed)?.ok_or_else(unknown)?;
    let text = CString::new(name).map_err(|_nul| unknown())?;
    let groups = getgrouplist(&text, user.gid).map_err(failed)?;
    let gids = groups.iter().map(|gid| gid.as_raw()).collect();
    Ok(ReadAs { uid: user.uid.as_raw(), gid: user.gid.as_raw(), gids })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_process_keeps_fewer_extents() {
        assert_eq!(delivery_bytes(pelago_server::MEMORY_BYTES), limits::DELIVERY_BYTES);
        assert_eq!(delivery_bytes(limits::LEAST_MEMORY_BYTES), 8 << 20);
    }
}
