//! A server of mirrors for tests: its keys, and the list that its primary is in.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pelago_net::clients::KeyName;
use pelago_net::clients::date::Date;
use pelago_net::clients::file::edit;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::mirror::MirrorServer;
use pelago_net::own_file::OwnFile;
use pelago_wire::mirror::{GroupState, MirrorSays, Mirrors, PrimaryRun};

pub(crate) const VOLUME: [u8; 16] = [5; 16];
pub(crate) const RUN: PrimaryRun = [6; 16];

pub(crate) fn server_key() -> PrivateKey {
    PrivateKey::from_seed([1; 32])
}

pub(crate) fn primary_key() -> PrivateKey {
    PrivateKey::from_seed([2; 32])
}

/// Returns the message of a mirror that has this group.
pub(crate) fn state(number: u64, says: MirrorSays) -> GroupState {
    GroupState { reign: 1, run: RUN, number, says }
}

/// Starts a server of mirrors at this address that lets the primary in: its key is in the file
/// `clients` of the folder.
pub(crate) fn start(folder: &Path, address: SocketAddr, mirrors: Arc<dyn Mirrors>) -> MirrorServer {
    let file = || OwnFile::of(&folder.join("clients")).unwrap();
    let key = primary_key().public();
    edit(&file(), |clients| clients.allow(key, None::<KeyName>, Date::today())).unwrap();
    let clients = Arc::new(ClientList::open(file()).unwrap());
    MirrorServer::start(address, &server_key(), clients, mirrors).unwrap()
}

/// Returns the address of a server with this key.
pub(crate) fn address(key: &PrivateKey, port: u16) -> ServerAddress {
    ServerAddress::new(key.public(), "127.0.0.1", port).unwrap()
}

/// Waits until no connection has groups: they end with it.
pub(crate) fn until_none_is_open(open: &AtomicUsize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while open.load(Ordering::SeqCst) > 0 {
        assert!(Instant::now() < deadline, "the groups of a connection end with it");
        // Polled: nothing says when the thread of the connection has dropped the groups.
        thread::sleep(Duration::from_millis(10));
    }
}
