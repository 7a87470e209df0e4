//! The end of the link that sends groups: in datagrams with a code, over TLS and the kernel's TCP,
//! or messages in plain datagrams, which are the link's own time.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use pelago_net::key::address::ServerAddress;
use pelago_net::mirror::{DatagramStatus, Datagrams, MirrorConnection, RepairMode};
use pelago_testbed::VerbResult;
use pelago_wire::mirror::{GroupPart, MirrorLink as _};
use serde_json::{Value, json};

use super::message::{Message, now_nanos};
use super::{MESSAGE_BYTES, MIRROR_SEED, PLAIN_PORT, PRIMARY_SEED, key_of};

/// Bytes of a part of a stream without an end: small, so that the receiver's bins are even.
const PART_BYTES: usize = 16 << 10;
/// Bytes of a plain datagram, of which four are a message.
const PLAIN_BYTES: usize = 1_000;
/// The time before messages count: no window is open yet.
const WARM_UP: Duration = Duration::from_secs(2);
/// The time in which the last messages arrive.
const LINGER: Duration = Duration::from_secs(2);

/// What is sent.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// As much as the link takes.
    Bulk,
    /// So many messages a second.
    Messages(u32),
}

/// Sends to an address for some seconds: `bulk`, or so many messages a second. `how` is `tcp`,
/// `plain`, or the repair of datagrams. Prints what is known of the link at the end.
pub(super) fn run(how: &str, to: &str, volume: u8, work: &str, seconds: u32) -> VerbResult {
    let to: SocketAddr = to.parse().map_err(|why| format!("{to}: {why}"))?;
    let work = match work {
        "bulk" => Work::Bulk,
        rate => Work::Messages(rate.parse().map_err(|why| format!("{rate}: {why}"))?),
    };
    let time = Duration::from_secs(seconds.into());
    let sent = match (how, work) {
        ("plain", Work::Messages(rate)) => plain(SocketAddr::new(to.ip(), PLAIN_PORT), rate, time)?,
        ("plain", Work::Bulk) => return Err("only messages are sent plainly".to_owned()),
        _ => groups(how, to, volume, work, time)?,
    };
    println!("{sent}");
    Ok(std::process::ExitCode::SUCCESS)
}

/// Sends the parts of a group that does not end.
fn groups(
    how: &str,
    to: SocketAddr,
    volume: u8,
    work: Work,
    time: Duration,
) -> Result<Value, String> {
    let mode = match how {
        "auto" => Some(RepairMode::Auto),
        "full" => Some(RepairMode::Full),
        "off" => Some(RepairMode::Off),
        "tcp" => None,
        _ => return Err(format!("`{how}` is none of tcp, plain, auto, full and off")),
    };
    let key = key_of(PRIMARY_SEED);
    let mirror = key_of(MIRROR_SEED).public();
    let mirror = ServerAddress::new(mirror, &to.ip().to_string(), to.port());
    let mirror = mirror.map_err(|why| why.to_string())?;
    let datagrams = mode.map(Datagrams::new);
    let connected = match &datagrams {
        Some(datagrams) => MirrorConnection::connect_with_datagrams(
            &key,
            &mirror,
            [volume; 16],
            1,
            [1; 16],
            datagrams,
        ),
        None => MirrorConnection::connect(&key, &mirror, [volume; 16], 1, [1; 16]),
    };
    let (mut link, _) = connected.map_err(|why| why.to_string())?;
    let sent = match work {
        Work::Bulk => bulk(&mut link, time)?,
        Work::Messages(rate) => {
            let mut offset = 0;
            every(rate, time, |message| {
                let mut bytes = vec![0x5a; message.bytes];
                message.put(&mut bytes);
                send_part(&mut link, offset, bytes)?;
                offset += message.bytes as u64;
                link.flush_records(true).map_err(|why| why.to_string())
            })?
        }
    };
    let status = datagrams.and_then(|datagrams| datagrams.status());
    Ok(json!({ "sent": sent, "status": status.map(shown) }))
}

fn bulk(link: &mut MirrorConnection, time: Duration) -> Result<u64, String> {
    let end = now_nanos() + time.as_nanos() as u64;
    let mut offset = 0;
    while now_nanos() < end {
        send_part(link, offset, vec![0x5a; PART_BYTES])?;
        offset += PART_BYTES as u64;
    }
    Ok(offset)
}

fn send_part(link: &mut MirrorConnection, offset: u64, bytes: Vec<u8>) -> Result<(), String> {
    let part = GroupPart::Bytes { offset, bytes }.encode();
    let part = part.map_err(|why| why.to_string())?;
    link.send(&part).map_err(|why| why.to_string())
}

/// Sends messages in plain datagrams.
fn plain(to: SocketAddr, rate: u32, time: Duration) -> Result<Value, String> {
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(|why| why.to_string())?;
    let sent = every(rate, time, |message| {
        let mut bytes = [0x5a; PLAIN_BYTES];
        message.put(&mut bytes);
        for _ in 0..message.bytes / PLAIN_BYTES {
            // One that is not sent is missing at the other end.
            let _sent = socket.send_to(&bytes, to);
        }
        Ok(())
    })?;
    Ok(json!({ "sent": sent, "status": null }))
}

/// Sends a message at each of its times, though one is late. Returns how many.
fn every(
    rate: u32,
    time: Duration,
    mut send: impl FnMut(Message) -> Result<(), String>,
) -> Result<u64, String> {
    let began = now_nanos();
    let pause = 1_000_000_000 / u64::from(rate.max(1));
    let count = u64::from(rate) * (WARM_UP + time).as_secs();
    for number in 0..count {
        let due = began + number * pause;
        thread::sleep(Duration::from_nanos(due.saturating_sub(now_nanos())));
        // Zero says that it does not count.
        let sent = if number < u64::from(rate) * WARM_UP.as_secs() { 0 } else { due };
        send(Message { sent, bytes: MESSAGE_BYTES })?;
    }
    thread::sleep(LINGER);
    Ok(u64::from(rate) * time.as_secs())
}

fn shown(status: DatagramStatus) -> Value {
    let DatagramStatus { rate, loss, trip, residual, data, repair, again, refused } = status;
    json!({
        "rate": rate,
        "loss": loss,
        "trip_ms": trip.map(|trip| trip.as_secs_f64() * 1e3),
        "residual": residual,
        "data": data,
        "repair": repair,
        "again": again,
        "refused": refused,
    })
}
