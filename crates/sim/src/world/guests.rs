//! The guests of a run, and the owner who shares with them.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pelago_client::Files;
use pelago_holder::{Attached, Holder, View};
use pelago_net::clients::list::ClientList;
use pelago_net::key::address::ServerAddress;
use pelago_net::own_file::OwnFile;
use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget, SessionServer};
use pelago_server::{Options, Parts, Server};
use pelago_store::folder::Folder;
use pelago_wire::Context;

use super::{CLIENTS, Client, OPERATIONS, PROGRAMS, TERM, World, gains};
use crate::cables::{Ends, client_socket, server_socket};
use crate::grants::Grant;
use crate::history::Program;
use crate::ports;
use crate::programs::{Dirs, Does, Plan, Runner, guest, owner};
use crate::shares::{self, ENDING, EndTimes, GUESTS, LAPSING, SHARED_FILES, STEADY};
use crate::shares::{GuestNumber, Source};
use crate::turns;

/// The cable of the owner. Those of guests follow.
const OWNER: usize = CLIENTS;
/// The port of the server, and the first one of the cables of guests.
const SERVER_PORT: u16 = 1;
const FIRST_PORT: u16 = 2;

/// The right of a guest ends so many seconds after the beginning, and up to so many later.
const LEAST_SECONDS: u64 = 5;
const MORE_SECONDS: u64 = 10;
/// The clock of a server gains or loses at most one second in so many.
const CLOCK_GAIN: u32 = 200;
const MARGIN: Duration = Duration::from_millis(50);
/// A guest goes on for longer than others: some rights end late.
const GUEST_OPERATIONS: u64 = 60;
/// The user who attaches the directory.
const USER: u32 = 1000;

/// Returns the second at which a right ends.
fn end_second() -> u64 {
    LEAST_SECONDS + turns::random(MORE_SECONDS)
}

fn port(guest: usize) -> u16 {
    FIRST_PORT + u16::try_from(guest).unwrap_or(0)
}

/// Returns the ends of the cables of a run.
pub(super) fn ends(dir: &Path, has_guests: bool) -> Vec<Ends> {
    ports::lay(dir);
    let clients = if has_guests { CLIENTS + 1 } else { CLIENTS };
    let of_client =
        |number| Ends { client: client_socket(dir, number), server: server_socket(dir) };
    let mut ends: Vec<Ends> = (0..clients).map(of_client).collect();
    if has_guests {
        let of_guest =
            |guest| Ends { client: ports::path(port(guest)), server: ports::path(SERVER_PORT) };
        ends.extend((0..GUESTS).map(of_guest));
        shares::write_files(dir);
    }
    ends
}

impl World<'_> {
    /// Starts the server, with guests if the run has some.
    pub(super) fn start_on(&self, parts: Parts, options: Options) -> Server {
        let started = match self.has_guests {
            true => {
                let folder = Folder::open(self.dir).expect("a folder");
                Server::start_on_with_guests(parts, options, folder)
            }
            false => Server::start_on(parts, options),
        };
        started.expect("a server")
    }

    /// Listens on the port that guests connect to.
    pub(super) fn listen_for_guests(&self, sessions: &SessionServer) {
        if self.has_guests {
            let socket = ports::listen(SERVER_PORT).expect("a socket");
            let file = OwnFile::of(&self.dir.join("clients")).expect("a path");
            let clients = Arc::new(ClientList::open(file).expect("no list"));
            let listens = sessions.listen_on(socket, &shares::server_key(), clients);
            listens.expect("a port");
        }
    }

    /// Makes the tree that the owner shares.
    pub(super) fn prepare_shared(&mut self) {
        if self.has_guests {
            let files = &self.run.as_ref().expect("a server").files;
            self.shared = Some(shares::prepare(files).expect("new files"));
        }
    }

    pub(super) fn start_owner_and_guests(&mut self) {
        if self.shared.is_some() {
            self.start_owner();
            let ends = EndTimes { first: end_second(), attached: end_second() };
            // The one whose first credential has ended comes by another one, at some time.
            self.watch_end(ends.first, Source::First(ENDING), Some(Source::Attached(ENDING)));
            self.watch_end(ends.attached, Source::Attached(LAPSING), None);
            // The owner has not given it to the file yet.
            self.history.lock().grants.set(Source::Name, 0, Grant::Denied);
            (0..GUESTS).map(GuestNumber).for_each(|guest| self.start_guest(guest, ends));
        }
    }

    fn start_owner(&mut self) {
        let Some(tree) = self.shared else { return };
        let machine = turns::machine("owner", gains());
        let target = ServerTarget::Unix(client_socket(self.dir, OWNER));
        let options =
            RemoteOptions { target, read_only: false, role: ClientRole::Client, give_up: None };
        // After those of clients, and that of the server's own mount.
        let number = CLIENTS * PROGRAMS + 1;
        let client = turns::on(machine, || {
            let remote = Arc::new(Remote::connect(options, TERM).expect("a session"));
            let holder = Holder::new(Arc::clone(&remote) as _);
            holder.set_lease_time(pelago_wire::limits::GUEST_LEASE);
            holder.write_behind().expect("a thread");
            let plan = plan(number);
            let service = Arc::clone(&holder) as _;
            let program = owner::start(service, plan, tree, self.dir, &self.history);
            Client {
                machine,
                remote,
                holder,
                is_killed: false,
                is_guest: false,
                programs: vec![program],
                numbers: number..number + 1,
            }
        });
        self.clients.push(client);
    }

    /// Records the end of a right, a number of seconds after the beginning: it is unsure while the
    /// clock of a server may show that time. Then another one is unsure.
    fn watch_end(&self, seconds: u64, ends: Source, unsure: Option<Source>) {
        let drift = Duration::from_secs(seconds) / CLOCK_GAIN + MARGIN;
        let begins = (Duration::from_secs(seconds) - drift).saturating_sub(turns::now());
        let history = Arc::clone(&self.history);
        let watch = move || {
            for (wait, state) in [(begins, Grant::Unsure), (2 * drift, Grant::Denied)] {
                // Only the clock ends a right.
                thread::sleep(wait);
                let mut history = history.lock();
                let moment = history.moment();
                history.grants.set(ends, moment, state);
                unsure.iter().for_each(|it| history.grants.set(*it, moment, Grant::Unsure));
                drop(history);
                turns::tell(format_args!("{ends:?} is {state:?} now"));
            }
            history.lock().count("ends");
        };
        // It ends by itself, and this thread's machine has the right time.
        drop(thread::Builder::new().name("end".to_owned()).spawn(watch).expect("a thread"));
    }

    fn start_guest(&mut self, number: GuestNumber, ends: EndTimes) {
        let Some(tree) = self.shared else { return };
        let machine = turns::machine(&format!("guest {}", number.0), gains());
        let server = shares::server_key().public();
        let address = ServerAddress::new(server, "127.0.0.1", port(number.0)).expect("an address");
        let key = Arc::new(shares::guest_key(number));
        let chains = shares::chains(number, &tree, ends);
        let options = RemoteOptions {
            target: ServerTarget::Tcp { address, key },
            read_only: false,
            role: ClientRole::Guest(Arc::from(chains)),
            give_up: None,
        };
        let program = CLIENTS * PROGRAMS + 2 + number.0;
        let client = turns::on(machine, || {
            let remote = Arc::new(Remote::connect(options, TERM).expect("a session"));
            let attached =
                Attached::new(Arc::clone(&remote) as _, View::new(tree.inside.ino, USER, USER));
            let holder = Holder::new(Arc::new(attached));
            let files = Files::new(Arc::clone(&holder) as _);
            let started = guest::start(
                Arc::clone(&remote),
                files,
                Plan { operations: GUEST_OPERATIONS, ..plan(program) },
                number,
                tree,
                &self.history,
            );
            Client {
                machine,
                remote,
                holder,
                is_killed: false,
                is_guest: true,
                programs: vec![started],
                numbers: program..program + 1,
            }
        });
        self.clients.push(client);
    }

    /// Reads shared files by all mounts, at the end of a run.
    pub(super) fn read_shared(&self, mounts: &[Files]) {
        let Some(tree) = self.shared else { return };
        for files in mounts {
            let program = Program(usize::MAX);
            let plan =
                Plan { program, operations: 0, does: Does::Reads, dirs: Dirs::Root, site: 0 };
            let runner = Runner::new(files.clone(), plan, &self.history);
            let mut nodes = SHARED_FILES.into_iter();
            if let Err(error) = nodes.try_for_each(|node| runner.read_shared(&tree, node)) {
                let what = format!("shared files cannot be read at the end: {error:?}");
                self.history.lock().wrong.push(what);
            }
            let steady = files.get_attr(&Context::direct(0, 0), tree.files[STEADY.0]).wait();
            let mut history = self.history.lock();
            if let Ok(attr) = steady
                && attr.mode & 0o7000 != 0
                && history.written_by_guests.contains(&STEADY)
            {
                let what = format!("a guest has written, and the mode is {:o}", attr.mode);
                history.wrong.push(what);
            }
        }
    }
}

fn plan(number: usize) -> Plan {
    Plan {
        program: Program(number),
        operations: OPERATIONS,
        does: Does::All,
        dirs: Dirs::Root,
        site: 0,
    }
}
