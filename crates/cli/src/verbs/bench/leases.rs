//! `bench leases`: the costs of leases over the Unix socket, and over TLS.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use pelago_bench::{LeaseClients, leases};
use pelago_client::Files;
use pelago_holder::Holder;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::own_file::OwnFile;
use pelago_net::{ClientRole, Remote, RemoteOptions, ServerTarget, SessionServer};
use pelago_server::{Options, Server};

use super::{Scratch, bench_failed};
use crate::failure::{Exit, Failure, Outcome};
use crate::{daemon, output};

/// The longest time until a connection is made.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A folder; a volume is created in it, and removed afterwards
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Files, each for one request of each kind
    #[arg(long, default_value_t = 5_000)]
    files: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

pub(super) fn run(args: &Args) -> Outcome<()> {
    let scratch = Scratch::new(&args.dir, "leases")?;
    let server = Server::start(&scratch.path, Options::default())
        .map_err(|error| daemon::start_failed(error, &scratch.path))?;
    let sessions = SessionServer::start(server.session_service()).map_err(failed)?;
    let links =
        [("unix", unix(&sessions, &scratch.path)?), ("tls", tls(&sessions, &scratch.path)?)];
    let connect = |(link, target): (&'static str, ServerTarget)| {
        let one = client(target.clone())?;
        let other = client(target)?;
        Ok(LeaseClients { link, one, other })
    };
    let clients = links.into_iter().map(connect).collect::<Outcome<Vec<_>>>()?;
    let report = leases(&Files::new(server.service()), &clients, args.files);
    drop((clients, sessions));
    server.stop().map_err(failed)?;
    let report = report.map_err(bench_failed)?;
    if args.json {
        output::print_json(&report.to_json())
    } else {
        output::print(&report.render_text())
    }
}

fn unix(sessions: &SessionServer, dir: &Path) -> Outcome<ServerTarget> {
    let socket = dir.join("pelago.sock");
    sessions.listen_unix(&socket).map_err(failed)?;
    Ok(ServerTarget::Unix(socket))
}

fn tls(sessions: &SessionServer, dir: &Path) -> Outcome<ServerTarget> {
    let server = PrivateKey::generate().map_err(failed)?;
    let client = PrivateKey::generate().map_err(failed)?;
    let list = OwnFile::of(&dir.join("clients")).map_err(failed)?;
    list.create(&format!("{}\n", client.public())).map_err(failed)?;
    let list = Arc::new(ClientList::open(list).map_err(failed)?);
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let local = sessions.listen_tcp(local, &server, list).map_err(failed)?;
    let key = server.public();
    let host = local.ip().to_string();
    let address = ServerAddress::new(key, &host, local.port()).map_err(failed)?;
    Ok(ServerTarget::Tcp { address, key: Arc::new(client) })
}

fn client(target: ServerTarget) -> Outcome<Files> {
    let options =
        RemoteOptions { target, read_only: false, role: ClientRole::Client, give_up: None };
    let remote = Remote::connect(options, PATIENCE).map_err(failed)?;
    let holder = Holder::new(Arc::new(remote));
    holder.write_behind().map_err(failed)?;
    Ok(Files::new(holder))
}

fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
    Failure::new(Exit::Failed, error)
}
