//! A server of a site that other sites connect to over TLS, frame by frame or with a client.
#![allow(dead_code, reason = "each test uses its part")]

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::own_file::OwnFile;
use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget, SessionServer, SiteRole, tls};
use pelago_wire::frame::FrameKind;
use pelago_wire::handshake::{Hello, Welcome};
use pelago_wire::present::Present;
use pelago_wire::{
    Bulk, Context, Done, Error, OlderFolder, Reply, Request, RequestId, Service, SessionService,
    ShownTokens, SitePass,
};
use rustls::{ClientConnection, StreamOwned};

use crate::harness::{PATIENCE, WithSessions};
use crate::raw::RawClient;

/// The number of the key of the server.
pub(crate) const SERVER: u8 = 1;
/// Longer than a test takes.
const TERM: Duration = Duration::from_secs(600);

/// A connection of another site's server, frame by frame.
pub(crate) type Raw = RawClient<StreamOwned<ClientConnection, TcpStream>>;

pub(crate) fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

/// A server that other sites connect to. It takes each key as that of site 1.
pub(crate) struct Home<S> {
    pub(crate) service: Arc<WithSessions<S>>,
    pub(crate) server: SessionServer,
    pub(crate) address: ServerAddress,
    _folder: tempfile::TempDir,
}

impl<S: Service + 'static> Home<S> {
    pub(crate) fn new(service: S) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let service = WithSessions::new(service);
        let sessions = Arc::clone(&service) as Arc<dyn SessionService>;
        let server = SessionServer::start_with(sessions, TERM).unwrap();
        let file = OwnFile::of(&folder.path().join("clients")).unwrap();
        let clients = Arc::new(ClientList::open(file).unwrap());
        let at = "127.0.0.1:0".parse().unwrap();
        let port = server.listen_tcp(at, &key(SERVER), clients).unwrap().port();
        let address = ServerAddress::new(key(SERVER).public(), "127.0.0.1", port).unwrap();
        Self { service, server, address, _folder: folder }
    }

    /// Connects with the key of this number, and says a hello.
    pub(crate) fn connect(&self, number: u8, hello: &Hello) -> Raw {
        let config = tls::client_config(&key(number), key(SERVER).public()).unwrap();
        let socket = TcpStream::connect(("127.0.0.1", self.address.port())).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let stream = StreamOwned::new(tls::client_connection(config).unwrap(), socket);
        let mut raw = RawClient::new(stream);
        raw.send(FrameKind::Hello, 0, &hello.encode());
        raw
    }

    /// Begins a session of the site whose server has the key of this number, or resumes one.
    pub(crate) fn begin(&self, number: u8, hello: &Hello) -> (Raw, Welcome) {
        let mut raw = self.connect(number, hello);
        raw.send(FrameKind::Present, 0, &Present::default().encode().unwrap());
        let welcome = raw.receive_welcome();
        (raw, welcome)
    }
}

/// A site whose folder never had a token.
#[derive(Debug)]
struct NoTokens;

impl SitePass for NoTokens {
    fn shown(&self) -> Option<ShownTokens> {
        Some(ShownTokens::default())
    }

    fn refused(&self, shown: &ShownTokens, older: OlderFolder) {
        panic!("{older:?} is older by {shown:?}");
    }
}

/// Returns the client of another site's server, whose requests fail after `give_up`.
pub(crate) fn site_client(target: ServerTarget, give_up: Duration) -> Remote {
    let pass = Arc::new(NoTokens);
    let role = SiteRole { volume: [7; 16], wanted: 0, invitation: None, pass };
    let role = ClientRole::Site(role);
    let options = RemoteOptions { target, read_only: false, role, give_up: Some(give_up) };
    Remote::begin_unconnected(options).unwrap()
}

/// Sends a request, and returns the place of its answer.
pub(crate) fn ask(
    client: &Remote,
    number: u64,
    request: Request,
    bulk: Bulk<'_>,
) -> Receiver<Result<Reply, Error>> {
    let (sender, answer) = channel();
    let context = Context { request: RequestId(number), ..Context::direct(0, 0) };
    let later = &mut || -> Done {
        let sender = sender.clone();
        Box::new(move |result| sender.send(result).unwrap())
    };
    let now = client.ask(&context, request, bulk, later);
    now.into_iter().for_each(|result| sender.send(result).unwrap());
    answer
}
