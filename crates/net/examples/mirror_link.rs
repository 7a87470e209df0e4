//! The speed of a link between a primary and its mirror, with datagrams and with TLS only.
//!
//! ```text
//! mirror_link serve ADDRESS:PORT
//! mirror_link measure HOST:PORT [MEBIBYTES [MESSAGES [ROUNDS]]]
//! ```
//!
//! Both run on one machine, in two network namespaces that `slowlink` joins, for one clock says how
//! long a message takes: from before it is sent until the mirror has all of it, without any disk.
//! Ways alternate. Each line is one round: megabytes per second of one group, and the median and
//! the 99th percentile of messages of 4 kB, each sent after the answer to the one before.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_net::clients::KeyName;
use pelago_net::clients::date::Date;
use pelago_net::clients::file::edit;
use pelago_net::clients::list::ClientList;
use pelago_net::key::PrivateKey;
use pelago_net::key::address::ServerAddress;
use pelago_net::mirror::{Datagrams, MirrorConnection, MirrorServer};
use pelago_net::own_file::OwnFile;
use pelago_proto::fec::RepairMode;
use pelago_wire::limits;
use pelago_wire::mirror::{
    GroupPart, GroupState, Groups, MirrorLink as _, MirrorSays, Mirrors, OfferRefused, PrimaryRun,
    Via,
};
use rustix::time::{ClockId, clock_gettime};

/// Bytes of a message.
const MESSAGE: usize = 4096;
/// Measured are messages after these, which find out what the link loses.
const UNMEASURED: usize = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address] => serve(address.parse()?),
        ["measure", address, numbers @ ..] => {
            let (host, port) = address.rsplit_once(':').ok_or("HOST:PORT")?;
            let address = ServerAddress::new(server_key().public(), host, port.parse()?)?;
            let number = |at: usize, usual| numbers.get(at).map_or(Ok(usual), |word| word.parse());
            measure(&address, number(0, 64)?, number(1, 1000)?, number(2, 3)?)
        }
        _ => {
            Err("mirror_link serve ADDRESS | measure HOST:PORT [MEBIBYTES MESSAGES ROUNDS]".into())
        }
    }
}

fn server_key() -> PrivateKey {
    PrivateKey::from_seed([1; 32])
}

fn primary_key() -> PrivateKey {
    PrivateKey::from_seed([2; 32])
}

/// Returns the nanoseconds of the clock of the machine.
fn clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Mirrors that keep nothing, and tell when they had all of a group.
struct Sink;

struct SinkGroups;

fn state(number: u64, says: MirrorSays) -> GroupState {
    GroupState { reign: 1, run: [1; 16], number, says }
}

impl Mirrors for Sink {
    fn offer(
        &self,
        _volume: [u8; 16],
        _reign: u64,
        _run: PrimaryRun,
        _via: Via,
    ) -> Result<Box<dyn Groups>, OfferRefused> {
        Ok(Box::new(SinkGroups))
    }
}

impl Groups for SinkGroups {
    fn ready(&self) -> GroupState {
        state(0, MirrorSays::Ready)
    }

    fn take(&mut self, body: &[u8]) -> Result<Option<GroupState>, String> {
        match GroupPart::decode(body) {
            Ok(GroupPart::End { .. }) => Ok(Some(state(clock(), MirrorSays::Safe))),
            Ok(_) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn carry_out(&mut self) -> Result<(), String> {
        Ok(())
    }
}

fn serve(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("clients");
    let key = primary_key().public();
    edit(&OwnFile::of(&path)?, |clients| clients.allow(key, None::<KeyName>, Date::today()))?;
    let clients = Arc::new(ClientList::open(OwnFile::of(&path)?)?);
    let _server = MirrorServer::start(address, &server_key(), clients, Arc::new(Sink))?;
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

fn measure(
    address: &ServerAddress,
    mebibytes: usize,
    messages: usize,
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    println!("round  way        MB/s  p50 ms  p99 ms  data, repair, again, loss, round trip");
    for round in 1..=rounds {
        for is_tls in [false, true] {
            let datagrams = Datagrams::new(RepairMode::Auto);
            let key = primary_key();
            let run = [1; 16];
            let connected = if is_tls {
                MirrorConnection::connect(&key, address, [1; 16], 1, run)
            } else {
                let volume = [1; 16];
                MirrorConnection::connect_with_datagrams(&key, address, volume, 1, run, &datagrams)
            };
            let (mut link, _) = connected?;
            let way = if link.has_datagrams() { "datagrams" } else { "tls" };
            let mut times = Vec::new();
            for number in 0..messages + UNMEASURED {
                let time = message(&mut link)?;
                if number >= UNMEASURED {
                    times.push(time);
                }
            }
            let bulk = bulk(&mut link, mebibytes << 20)?;
            times.sort_unstable();
            let percent = |percent: usize| {
                let at = times.get((times.len() * percent / 100).min(times.len() - 1));
                at.copied().unwrap_or_default().as_secs_f64() * 1e3
            };
            let status = datagrams.status().map_or_else(String::new, |status| {
                let trip = status.trip.unwrap_or_default();
                let loss = status.loss * 100.0;
                let again = status.again;
                format!("{} {} {again} {loss:.2} % {trip:.1?}", status.data, status.repair)
            });
            let megabytes = (mebibytes << 20) as f64 / 1e6 / bulk.as_secs_f64();
            let median = percent(50);
            let late = percent(99);
            println!("{round:5}  {way:9} {megabytes:5.1} {median:7.2} {late:7.2}  {status}");
        }
    }
    Ok(())
}

/// Returns how long a message takes.
fn message(link: &mut MirrorConnection) -> Result<Duration, Box<dyn Error>> {
    let begun = clock();
    let part = GroupPart::Bytes { offset: 0, bytes: vec![7; MESSAGE] };
    link.send(&part.encode()?)?;
    link.send(&GroupPart::End { sum: 0 }.encode()?)?;
    let had = link.receive()?.number;
    Ok(Duration::from_nanos(had.saturating_sub(begun)))
}

/// Returns how long a group of so many bytes takes, with its answer.
fn bulk(link: &mut MirrorConnection, bytes: usize) -> Result<Duration, Box<dyn Error>> {
    let part = GroupPart::Bytes { offset: 0, bytes: vec![7; limits::GROUP_BYTES] }.encode()?;
    let begun = Instant::now();
    for _ in 0..bytes.div_ceil(limits::GROUP_BYTES) {
        link.send(&part)?;
    }
    link.send(&GroupPart::End { sum: 0 }.encode()?)?;
    link.receive()?;
    Ok(begun.elapsed())
}
