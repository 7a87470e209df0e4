//! The end of the link that gets groups: a server of mirrors without a disk. It notes when each
//! part has come, which is the moment at which a mirror would write it into its spool.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use pelago_net::clients::KeyName;
use pelago_net::clients::date::Date;
use pelago_net::clients::file::edit;
use pelago_net::clients::list::ClientList;
use pelago_net::mirror::MirrorServer;
use pelago_net::own_file::OwnFile;
use pelago_testbed::VerbResult;
use pelago_wire::mirror::{
    GroupPart, GroupState, Groups, MirrorSays, Mirrors, OfferRefused, PrimaryRun, Via,
};
use serde_json::{Value, json};

use super::message::{Message, now_nanos};
use super::{MIRROR_SEED, PLAIN_PORT, PRIMARY_SEED, key_of};

/// Bins of a second into which bytes are counted.
const BINS: u64 = 10;

/// What has come of one volume.
#[derive(Debug, Default)]
struct Arrived {
    /// When the first part came, in nanoseconds.
    began: u64,
    /// Bytes of each tenth of a second since then.
    bins: Vec<u64>,
    /// Milliseconds of each message, from its time on.
    millis: Vec<f64>,
}

/// All volumes, by the first bytes of their ids; 0 is what came without a code.
#[derive(Debug, Default)]
struct Book(Mutex<BTreeMap<u8, Arrived>>);

impl Book {
    fn note(&self, volume: u8, bytes: usize, message: Option<Message>) {
        let now = now_nanos();
        let mut all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let arrived = all.entry(volume).or_default();
        if arrived.began == 0 {
            arrived.began = now;
        }
        let bin = ((now - arrived.began) * BINS / 1_000_000_000) as usize;
        if arrived.bins.len() <= bin {
            arrived.bins.resize(bin + 1, 0);
        }
        arrived.bins[bin] += bytes as u64;
        let counts = message.filter(|message| message.sent > 0);
        arrived.millis.extend(counts.map(|message| message.millis(now)));
    }

    fn to_json(&self) -> Value {
        let all = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let volumes = all.iter().map(|(volume, arrived)| {
            let Arrived { bins, millis, .. } = arrived;
            (volume.to_string(), json!({ "tenths": bins, "millis": millis }))
        });
        Value::Object(volumes.collect())
    }
}

/// Takes groups at an address until the input ends. Each line of the input is answered with what
/// has come so far.
pub(super) fn run(address: &str, folder: &Path) -> VerbResult {
    let address: SocketAddr = address.parse().map_err(|why| format!("{address}: {why}"))?;
    let book = Arc::new(Book::default());
    let list = clients(folder)?;
    let mirrors = Arc::new(Sinks(Arc::clone(&book)));
    let server = MirrorServer::start(address, &key_of(MIRROR_SEED), Arc::new(list), mirrors);
    let server = server.map_err(|why| why.to_string())?;
    take_plain(SocketAddr::new(address.ip(), PLAIN_PORT), &book)?;
    println!("ready");
    for _question in io::stdin().lock().lines() {
        println!("{}", book.to_json());
        io::stdout().flush().map_err(|why| why.to_string())?;
    }
    drop(server);
    Ok(std::process::ExitCode::SUCCESS)
}

/// Takes plain datagrams in a thread: the parts of messages without a code and without a question.
fn take_plain(address: SocketAddr, book: &Arc<Book>) -> Result<(), String> {
    let socket = UdpSocket::bind(address).map_err(|why| why.to_string())?;
    let book = Arc::clone(book);
    let mut open: BTreeMap<u64, usize> = BTreeMap::new();
    let take = move || {
        let mut buffer = [0; 2048];
        while let Ok((length, _)) = socket.recv_from(&mut buffer) {
            let bytes = &buffer[..length];
            let of_message = Message::of(bytes).filter(|message| message.sent > 0);
            let Some(message) = of_message else { continue };
            let come = open.entry(message.sent).or_default();
            *come += length;
            if *come >= message.bytes {
                open.remove(&message.sent);
                book.note(0, message.bytes, Some(message));
            }
        }
    };
    thread::Builder::new().spawn(take).map(drop).map_err(|why| why.to_string())
}

/// Returns a list with the key of the sender.
fn clients(folder: &Path) -> Result<ClientList, String> {
    let file = || OwnFile::of(&folder.join("clients")).map_err(|why| why.to_string());
    let key = key_of(PRIMARY_SEED).public();
    let edited = edit(&file()?, |clients| clients.allow(key, None::<KeyName>, Date::today()));
    edited.map_err(|why| why.to_string())?;
    ClientList::open(file()?).map_err(|why| why.to_string())
}

struct Sinks(Arc<Book>);

struct Sink {
    book: Arc<Book>,
    volume: u8,
    run: PrimaryRun,
    reign: u64,
}

impl Mirrors for Sinks {
    fn offer(
        &self,
        volume: [u8; 16],
        reign: u64,
        run: PrimaryRun,
        _via: Via,
    ) -> Result<Box<dyn Groups>, OfferRefused> {
        Ok(Box::new(Sink { book: Arc::clone(&self.0), volume: volume[0], run, reign }))
    }
}

impl Groups for Sink {
    fn ready(&self) -> GroupState {
        GroupState { reign: self.reign, run: self.run, number: 0, says: MirrorSays::Ready }
    }

    fn take(&mut self, body: &[u8]) -> Result<Option<GroupState>, String> {
        match GroupPart::decode(body).map_err(|error| error.to_string())? {
            GroupPart::Bytes { bytes, .. } => {
                self.book.note(self.volume, bytes.len(), Message::of(&bytes));
                Ok(None)
            }
            GroupPart::End { .. } => {
                Ok(Some(GroupState { says: MirrorSays::Safe, ..self.ready() }))
            }
            other => Err(format!("{other:?} came")),
        }
    }

    fn carry_out(&mut self) -> Result<(), String> {
        Ok(())
    }
}
