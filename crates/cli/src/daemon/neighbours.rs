//! Connections to the other sites of the volume, and the joining of a site.

use std::collections::HashMap;
use std::net::{IpAddr, TcpStream, ToSocketAddrs as _, UdpSocket};
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;
use std::{fs, io};

use parking_lot::Mutex;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::key::file::{self, KeyFileError};
use pelago_net::own_file::{OwnFile, OwnFileError};
use pelago_net::{
    ClientRole, OnReverse, Remote, RemoteOptions, RemoteStatus, ReverseConnections, ServerTarget,
    SessionServer, SiteRole,
};
use pelago_server::{Joining, Neighbour, Server};
use pelago_store::folder::Folder;
use pelago_store::volume::{self, VolumeId};
use pelago_wire::{Code, InodeId, LeasedService, SiteRefusal};

use super::{Plan, listening};
use crate::failure::{Exit, Failure, Outcome};
use crate::ticket::Ticket;

/// The longest time that the inviting server may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The pause after an attempt to send this site's address to the others.
const PAUSE: Duration = Duration::from_secs(5);

/// The sessions with the other sites of the volume.
#[derive(Default)]
pub(super) struct Neighbours {
    /// Those that are in use; a connection that was replaced, or to a site that has left, ends.
    remotes: Mutex<HashMap<u16, Weak<Remote>>>,
    /// The connections of the servers of sites that cannot be reached.
    reverse: OnceLock<Arc<ReverseConnections>>,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum JoinError {
    #[error("nobody answered at {address} ({why}); nothing was made here")]
    NobodyThere { address: String, why: io::Error },
    #[error("the other office does not let this one join: {0}")]
    Refused(String),
    #[error("the other office does not answer")]
    NotAnswered(#[source] pelago_wire::Error),
    #[error("the key of the server cannot be used")]
    Key(#[from] KeyFileError),
    #[error("a file of the volume cannot be used")]
    File(#[from] OwnFileError),
}

/// Returns the properties of a new volume from its ticket.
pub(super) fn joining(ticket: &Ticket) -> Joining {
    Joining {
        volume: VolumeId(ticket.volume),
        site: ticket.site,
        founder: Neighbour {
            site: InodeId::ROOT.site(),
            key: *ticket.founder.key().as_bytes(),
            address: place_of(&ticket.founder),
        },
        founder_name: "first".to_owned(),
    }
}

/// Checks that the inviting server accepts connections, before anything is created.
pub(super) fn expect_reachable(ticket: &Ticket) -> Outcome<()> {
    let founder = &ticket.founder;
    let connected = (founder.host(), founder.port()).to_socket_addrs().and_then(|mut found| {
        let address = found.next().ok_or(io::ErrorKind::NotFound)?;
        TcpStream::connect_timeout(&address, CONNECT)
    });
    connected.map(drop).map_err(|why| {
        let port = founder.port();
        let address = place_of(founder);
        Failure::new(Exit::Unreachable, JoinError::NobodyThere { address, why })
            .hint(format!("TCP {port} must be open there, and the volume up"))
    })
}

/// Removes a volume that was just created and could not join. It is empty. A folder that existed
/// before stays, and is empty again.
pub(super) fn undo_join(dir: &Path, was_there: bool) {
    let undone = match was_there {
        false => fs::remove_dir_all(dir),
        true => empty(dir),
    };
    if let Err(error) = undone {
        tracing::warn!(%error, dir = %dir.display(), "what was made stays; remove it");
    }
}

/// Removes the content of a folder, except the `lost+found` of a file system.
fn empty(dir: &Path) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true if entry.file_name() == "lost+found" => {}
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

impl Neighbours {
    /// Passes the server the function that connects to other sites.
    pub(super) fn connect(self: &Arc<Self>, plan: &Plan, folder: &Folder, server: &Arc<Server>) {
        let this = Arc::clone(self);
        let asking = Arc::downgrade(server);
        let showing = Arc::downgrade(server);
        let reverse = self.reverse.get_or_init(|| {
            let on_reverse: OnReverse = Box::new(move |site| expect_site(&asking, site));
            Arc::new(ReverseConnections::new(on_reverse))
        });
        let reverse = Arc::clone(reverse);
        let folder = folder.clone();
        let volume = server.status().volume;
        let give_up = Duration::from_secs(plan.remote_seconds);
        let ticket = plan.joining.clone();
        let read_only = plan.read_only;
        server.set_connect(Box::new(move |neighbour| {
            let pass = showing.upgrade()?.site_pass(neighbour.site);
            let remote = key_of(&folder).map_err(|error| error.to_string()).and_then(|key| {
                let key = Arc::new(key);
                let invitation = ticket.as_deref().map(|ticket| ticket.sentence_for(&key.public()));
                let site = SiteRole {
                    volume: volume.0,
                    wanted: neighbour.site,
                    invitation: invitation.transpose().map_err(|error| error.to_string())?,
                    pass,
                };
                let target = match neighbour.address.is_empty() {
                    true => ServerTarget::Reverse {
                        site: neighbour.site,
                        connections: Arc::clone(&reverse),
                    },
                    false => ServerTarget::Tcp { address: address_of(neighbour)?, key },
                };
                let known = this.remotes.lock().get(&neighbour.site).and_then(Weak::upgrade);
                if let Some(remote) = known {
                    remote.move_to(target);
                    return Ok(remote);
                }
                let options = RemoteOptions {
                    target,
                    read_only,
                    role: ClientRole::Site(site),
                    give_up: Some(give_up),
                };
                let remote = Remote::begin_unconnected(options);
                remote.map(Arc::new).map_err(|error| error.to_string())
            });
            match remote {
                Ok(remote) => {
                    this.remotes.lock().insert(neighbour.site, Arc::downgrade(&remote));
                    Some(remote as Arc<dyn LeasedService>)
                }
                Err(why) => {
                    tracing::warn!(site = neighbour.site, why, "a site cannot be reached");
                    None
                }
            }
        }));
    }

    /// Takes the connections of servers that cannot be reached, from now on.
    pub(super) fn accept_reverse(&self, sessions: &SessionServer) {
        if let Some(reverse) = self.reverse.get() {
            sessions.accept_reverse(Arc::clone(reverse));
        }
    }

    /// Joins the volume. When it returns, the inviting server knows this site.
    pub(super) fn join(&self, server: &Server) -> Outcome<()> {
        let Err(error) = server.tell_address(InodeId::ROOT.site(), "") else { return Ok(()) };
        Err(match self.refusal() {
            Some(why) => Failure::new(Exit::Failed, JoinError::Refused(why))
                .hint("ask for another ticket: `pelago site invite` prints it"),
            None => Failure::new(Exit::Unreachable, JoinError::NotAnswered(error))
                .hint("type the same command again: it goes on"),
        })
    }

    /// Returns the state of the session with a site; `None` if there was none.
    pub(super) fn status_of(&self, site: u16) -> Option<RemoteStatus> {
        let remote = self.remotes.lock().get(&site).and_then(Weak::upgrade)?;
        Some(remote.status())
    }

    /// Returns whether the inviting server has refused this site.
    pub(super) fn is_refused(&self) -> bool {
        self.refusal().is_some()
    }

    /// Returns whether the first site says that this one has left the volume.
    pub(super) fn says_left(&self) -> bool {
        self.refusal().is_some_and(|why| why.contains(SiteRefusal::LEFT))
    }

    fn refusal(&self) -> Option<String> {
        let founder = self.remotes.lock().get(&InodeId::ROOT.site()).and_then(Weak::upgrade);
        founder.and_then(|remote| remote.refusal())
    }

    /// Sends this site's address to each site that is known now, and repeats that until it
    /// succeeds. A site that joins later gets it with the list.
    pub(super) fn tell_address(server: &Arc<Server>, address: String) {
        let mut untold: Vec<u16> = server.neighbours().iter().map(|other| other.site).collect();
        let server = Arc::downgrade(server);
        let tell = move || {
            while let Some(server) = server.upgrade() {
                untold.retain(|site| match server.tell_address(*site, &address) {
                    Ok(()) => false,
                    // It has left.
                    Err(error) if error.code == Code::Stale => false,
                    Err(error) if error.code == Code::Invalid => {
                        tracing::warn!(site, address, "a site takes this for no address");
                        false
                    }
                    Err(error) => {
                        tracing::debug!(site, %error, "a site does not know yet where we are");
                        true
                    }
                });
                drop(server);
                if untold.is_empty() {
                    return;
                }
                // The other site may be unreachable for days.
                thread::sleep(PAUSE);
            }
        };
        if let Err(error) = thread::Builder::new().name("address".to_owned()).spawn(tell) {
            tracing::warn!(%error, "the other sites are not told where this one is");
        }
    }

    /// Ends the sessions at other sites, which closes the files that are open there.
    pub(super) fn end(&self) {
        let remotes: Vec<_> = self.remotes.lock().drain().collect();
        for remote in remotes.iter().filter_map(|(_, remote)| remote.upgrade()) {
            remote.end();
        }
    }
}

/// Has the first site's server sign the list of the sites with its key, and send it to them.
pub(super) fn begin_site_list(folder: &Folder, server: &Server) -> Outcome<()> {
    let key = listening::own_key(folder)?;
    server.begin_site_list(key).map_err(|error| Failure::new(Exit::Failed, error))
}

/// Makes the session at a site whose server has connected, on a thread of its own.
fn expect_site(server: &Weak<Server>, site: u16) {
    let Some(server) = server.upgrade() else { return };
    let expect = move || server.expect_site(site);
    if let Err(error) = thread::Builder::new().name("reverse-of".to_owned()).spawn(expect) {
        tracing::warn!(%error, site, "a site that has connected is not asked");
    }
}

/// Returns the address by which the first site reaches this one. If this site listens at all
/// addresses, it is the address of the interface that leads to the first site.
pub(super) fn own_address(
    plan: &Plan,
    listening: &ServerAddress,
    server: &Server,
) -> Option<String> {
    if let Some(address) = &plan.site_address {
        return Some(address.clone());
    }
    let is_all = plan.listen.as_deref().is_none_or(|at| {
        let host = at.rsplit_once(':').map_or(at, |(host, _)| host);
        matches!(host, "" | "0.0.0.0" | "[::]" | "[::" | "::")
    });
    if !is_all {
        return Some(place_of(listening));
    }
    let founder = server.sites().into_iter().find(|site| site.site == InodeId::ROOT.site())?;
    let reached = ["0.0.0.0:0", "[::]:0"].into_iter().find_map(|any| {
        let socket = UdpSocket::bind(any).ok()?;
        // Sends nothing: the kernel chooses the interface.
        socket.connect(&founder.address).ok()?;
        socket.local_addr().ok()
    });
    let host = match reached.map(|at| at.ip()) {
        Some(IpAddr::V4(host)) => host.to_string(),
        Some(IpAddr::V6(host)) => format!("[{host}]"),
        None => listening.host().to_owned(),
    };
    Some(format!("{host}:{}", listening.port()))
}

/// Returns the key of the volume's server. It is created if there is none.
pub(super) fn key_of(folder: &Folder) -> Result<PrivateKey, JoinError> {
    let file = OwnFile::at(folder, folder.path(), volume::KEY)?;
    Ok(file::read_or_create(&file)?)
}

pub(super) fn address_of(neighbour: &Neighbour) -> Result<ServerAddress, String> {
    let key = pelago_net::key::PublicKey::new(neighbour.key);
    format!("{key}@{}", neighbour.address).parse().map_err(|error| format!("{error}"))
}

/// Returns `HOST:PORT` of an address.
fn place_of(address: &ServerAddress) -> String {
    let text = address.to_string();
    text.split_once('@').map(|(_, place)| place.to_owned()).unwrap_or(text)
}
