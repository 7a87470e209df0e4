//! The offices of a run with several sites: a server of each, the cables between them, and how they
//! come to know each other.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_client::Files;
use pelago_keynote::{Credential, Principal, SiteInvitation};
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::own_file::OwnFile;
use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget, SessionServer, SiteRole};
use pelago_server::{Joining, Neighbour, Options, Parts, Passthrough, Server};
use pelago_store::content::ContentStore;
use pelago_store::hash::NameHasher;
use pelago_store::table::fake::FakeTable;
use pelago_wire::{Code, LeasedService, ShardId};

use super::super::{MEMORY_BYTES, SYNC_INTERVALS, TERM, gains};
use crate::cables::{Ends, client_socket, server_socket};
use crate::history::History;
use crate::ports;
use crate::programs::SITES;
use crate::shares::VOLUME;
use crate::stale::StaleAnswers;
use crate::tap::Tap;
use crate::turns::{self, Machine};

/// The clients of each site.
pub(super) const CLIENTS_OF_SITE: usize = 2;
/// The cables of clients come first, then those from each server to each other one.
pub(super) const CLIENTS: usize = SITES * CLIENTS_OF_SITE;
pub(super) const CABLES: usize = CLIENTS + SITES * (SITES - 1);
/// The names of the sites.
const NAMES: [&str; SITES] = ["first", "berlin", "rome"];
/// The first port of a server, and the first one of a cable between two.
const SERVER_PORT: u16 = 1;
const CABLE_PORT: u16 = 10;
/// The first key of a server, and the first one of an invitation.
const SERVER_KEY: u8 = 20;
const TICKET_KEY: u8 = 40;
/// The end of invitations: after each run.
const FAR: u64 = 1 << 40;
/// The pause before a site tells its address again.
const PAUSE: Duration = Duration::from_secs(5);
/// The pause between two looks whether all sites know each other, and the number of looks.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS: usize = 2_000;

/// The options of all servers of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct OfficeOptions {
    pub(super) inline_bytes: u32,
    /// The longest wait for another site.
    pub(super) remote_timeout: Duration,
    /// The size up to which new files of other sites go home.
    pub(super) stay_least_bytes: usize,
}

/// A site: its table and its folder, and the run of its server.
pub(super) struct Office {
    pub(super) site: usize,
    pub(super) dir: PathBuf,
    pub(super) table: FakeTable,
    pub(super) run: Option<OfficeRun>,
    pub(super) runs: usize,
    /// The number of times that it got another address. All lead to the same cables.
    pub(super) moves: usize,
    /// The stale answers of its runs.
    pub(super) stale: StaleAnswers,
}

/// One run of the server of a site.
pub(super) struct OfficeRun {
    pub(super) machine: Machine,
    pub(super) server: Arc<Server>,
    _sessions: SessionServer,
    pub(super) files: Files,
}

/// Returns the ends of all cables.
pub(super) fn ends(dir: &Path) -> Vec<Ends> {
    ports::lay(dir);
    let of_client = |client: usize| Ends {
        client: client_socket(dir, client),
        server: server_socket(&office_dir(dir, client / CLIENTS_OF_SITE)),
    };
    let of_line = |[from, to]: [usize; 2]| Ends {
        client: ports::path(cable_port(from, to)),
        server: ports::path(server_port(to)),
    };
    (0..CLIENTS).map(of_client).chain(lines().map(of_line)).collect()
}

/// Returns the sites that each cable between servers leads from and to, in the order of cables.
fn lines() -> impl Iterator<Item = [usize; 2]> {
    let pairs = (0..SITES).flat_map(|from| (0..SITES).map(move |to| [from, to]));
    pairs.filter(|[from, to]| from != to)
}

/// Returns the number of the cable by which a site asks another one.
pub(super) fn line(from: usize, to: usize) -> usize {
    CLIENTS + lines().position(|line| line == [from, to]).expect("two sites")
}

/// Returns the cables that end at the server of a site: those of its clients, and of the servers
/// that ask it.
pub(super) fn cables_to(site: usize) -> Vec<usize> {
    let others = (0..SITES).filter(|other| *other != site).map(|other| line(other, site));
    let of_clients = site * CLIENTS_OF_SITE..(site + 1) * CLIENTS_OF_SITE;
    of_clients.chain(others).collect()
}

/// Returns the cables between two sites.
pub(super) fn cables_between(one: usize, other: usize) -> [usize; 2] {
    [line(one, other), line(other, one)]
}

fn office_dir(dir: &Path, site: usize) -> PathBuf {
    dir.join(NAMES[site])
}

fn number(site: usize) -> u16 {
    u16::try_from(site).unwrap_or(0)
}

fn server_port(site: usize) -> u16 {
    SERVER_PORT + number(site)
}

fn cable_port(from: usize, to: usize) -> u16 {
    CABLE_PORT + number(from * SITES + to)
}

fn key(first: u8, site: usize) -> PrivateKey {
    PrivateKey::from_seed([first + u8::try_from(site).unwrap_or(0); 32])
}

fn server_key(site: usize) -> PrivateKey {
    key(SERVER_KEY, site)
}

/// Returns the sentence by which a site that is invited names the key of its server.
fn sentence(site: usize) -> Vec<u8> {
    let conditions = SiteInvitation { volume: VOLUME.0, site: number(site) }.conditions();
    let licensee = Principal(*server_key(site).public().as_bytes());
    let credential = Credential { comment: &[], licensee, conditions: &conditions };
    let signed = credential.sign(&key(TICKET_KEY, site).signing_key());
    signed.expect("a credential").into_bytes()
}

impl Office {
    pub(super) fn new(dir: &Path, site: usize) -> Self {
        let dir = office_dir(dir, site);
        std::fs::create_dir(&dir).expect("a folder");
        Self {
            site,
            dir,
            table: FakeTable::new(),
            run: None,
            runs: 0,
            moves: 0,
            stale: StaleAnswers::default(),
        }
    }

    pub(super) fn shard(&self) -> ShardId {
        ShardId { site: number(self.site), shard: 0 }
    }

    pub(super) fn content(&self) -> ContentStore {
        ContentStore::open(&self.dir).expect("a folder")
    }

    pub(super) fn files(&self) -> &Files {
        &self.run.as_ref().expect("a server").files
    }

    pub(super) fn server(&self) -> &Arc<Server> {
        &self.run.as_ref().expect("a server").server
    }

    pub(super) fn machine(&self) -> Machine {
        self.run.as_ref().expect("a server").machine
    }

    /// Starts a run of the server over the state that the last run has left.
    pub(super) fn start(&mut self, own: OfficeOptions, history: &Arc<Mutex<History>>) {
        self.runs += 1;
        let machine = turns::machine(&format!("{} {}", NAMES[self.site], self.runs), gains());
        let parts = Parts {
            shard: self.shard(),
            table: Arc::new(self.table.clone()),
            content: Arc::new(self.content()),
            volume: VOLUME,
            hasher: NameHasher::new(7),
        };
        let options = Options {
            sync_interval: SYNC_INTERVALS[usize::from(turns::random(2) == 0)],
            inline_bytes: own.inline_bytes,
            remote_timeout: own.remote_timeout,
            stay_least_bytes: own.stay_least_bytes,
            memory_bytes: MEMORY_BYTES[usize::from(turns::random(10) == 0)],
            passthrough: Passthrough::Never,
            joining: (self.site != 0).then(|| self.joining()),
            ..Options::default()
        };
        let run = turns::on(machine, || {
            let server = Arc::new(Server::start_on(parts, options).expect("a server"));
            self.stale.begin_run(&server);
            let site = self.site;
            let give_up = own.remote_timeout;
            let known: Mutex<HashMap<u16, Weak<Remote>>> = Mutex::default();
            let asking = Arc::downgrade(&server);
            server.set_connect(Box::new(move |neighbour| {
                let remote = known.lock().get(&neighbour.site).and_then(Weak::upgrade);
                let remote = match remote {
                    Some(remote) => {
                        remote.move_to(target(site, neighbour));
                        remote
                    }
                    None => connect(site, neighbour, give_up, &*asking.upgrade()?),
                };
                known.lock().insert(neighbour.site, Arc::downgrade(&remote));
                Some(remote as Arc<dyn LeasedService>)
            }));
            let tap = Arc::new(Tap::new(server.session_service(), history));
            let sessions = SessionServer::start_with(tap, TERM).expect("sessions");
            sessions.listen_unix(&server_socket(&self.dir)).expect("a socket");
            let socket = ports::listen(server_port(self.site)).expect("a socket");
            let file = OwnFile::of(&self.dir.join("clients")).expect("a path");
            let clients = Arc::new(ClientList::open(file).expect("no list"));
            let listens = sessions.listen_on(socket, &server_key(self.site), clients);
            listens.expect("a port");
            let files = Files::new(server.service());
            OfficeRun { machine, server, _sessions: sessions, files }
        });
        self.run = Some(run);
    }

    /// Returns how the volume is made at a site that joins.
    fn joining(&self) -> Joining {
        let founder = Neighbour {
            site: 0,
            key: *server_key(0).public().as_bytes(),
            address: "host-0:1".to_owned(),
        };
        let site = number(self.site);
        Joining { volume: VOLUME, site, founder, founder_name: NAMES[0].to_owned() }
    }

    /// Has a server that has started again tell the others where it is, as each start does.
    pub(super) fn introduce(&self) {
        let server = Arc::clone(self.server());
        let site = self.site;
        turns::on(self.machine(), || server.keep_tokens());
        turns::on(self.machine(), || match site {
            0 => server.begin_site_list(server_key(0)).expect("a list"),
            _ => tell_address(&server, self.address()),
        });
    }

    /// Tells the other sites an address that they do not know yet.
    pub(super) fn move_to_another_address(&mut self) {
        if self.site != 0 {
            self.moves += 1;
            let server = Arc::clone(self.server());
            turns::on(self.machine(), || tell_address(&server, self.address()));
        }
    }

    fn address(&self) -> String {
        format!("host-{}-{}:{}", self.site, self.moves, server_port(self.site))
    }
}

/// Returns where the server of another site is.
fn target(own: usize, neighbour: &Neighbour) -> ServerTarget {
    let to = usize::from(neighbour.site);
    let there = server_key(to).public();
    let address = ServerAddress::new(there, "127.0.0.1", cable_port(own, to));
    ServerTarget::Tcp { address: address.expect("an address"), key: Arc::new(server_key(own)) }
}

/// Returns the session at the server of another site.
fn connect(own: usize, neighbour: &Neighbour, give_up: Duration, server: &Server) -> Arc<Remote> {
    let to = usize::from(neighbour.site);
    let site = SiteRole {
        volume: VOLUME.0,
        wanted: neighbour.site,
        invitation: (to == 0).then(|| sentence(own)),
        pass: server.site_pass(neighbour.site),
    };
    let options = RemoteOptions {
        target: target(own, neighbour),
        read_only: false,
        role: ClientRole::Site(site),
        give_up: Some(give_up),
    };
    Arc::new(Remote::begin_unconnected(options).expect("threads"))
}

/// Sends an address to each other site, and repeats that until it succeeds.
fn tell_address(server: &Arc<Server>, address: String) {
    let mut untold: Vec<u16> = server.neighbours().iter().map(|other| other.site).collect();
    let server = Arc::downgrade(server);
    let tell = move || {
        while let Some(server) = server.upgrade() {
            untold.retain(|other| match server.tell_address(*other, &address) {
                Ok(()) => false,
                Err(error) => error.code != Code::Stale,
            });
            drop(server);
            if untold.is_empty() {
                return;
            }
            thread::sleep(PAUSE);
        }
    };
    drop(thread::Builder::new().name("address".to_owned()).spawn(tell).expect("a thread"));
}

/// Has the first site invite all others, before they start: a server connects once it runs, and
/// fails its requests if it is not invited.
pub(super) fn invite(first: &Office) {
    for (site, name) in NAMES.iter().enumerate().skip(1) {
        let ticket = *key(TICKET_KEY, site).public().as_bytes();
        let invited = first.server().invite_site(name, ticket, FAR);
        assert_eq!(invited, Ok(number(site)));
    }
}

/// Has all sites join the volume of the first one, and waits until they know each other.
pub(super) fn join(offices: &[Office]) {
    for office in &offices[1..] {
        let told =
            turns::on(office.machine(), || office.server().tell_address(0, &office.address()));
        told.expect("it has joined");
    }
    offices[0].introduce();
    let knows = |office: &Office| office.server().neighbours().len() == SITES - 1;
    for _ in 0..LOOKS {
        if offices.iter().all(knows) {
            // Those that have joined: each later start tells the others where it is.
            for office in &offices[1..] {
                turns::on(office.machine(), || office.server().keep_tokens());
            }
            return;
        }
        thread::sleep(LOOK);
    }
    panic!("the sites do not know each other");
}
