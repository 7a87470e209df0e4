//! The link: it carries packets between two devices, and obeys commands meanwhile.

use std::fs::File;
use std::io::{self, Read, Write};
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use crate::direction::{Direction, Fate, PacketCounts, Tally};
use crate::pair::{MTU, NamespacePair};
use crate::pipe::Pipe;
use crate::shape::{Cut, SettingError, Shapes};

/// Packets that are taken from a device before the other one has its turn.
const BATCH: usize = 64;
/// The longest delay with which the kernel may wake this thread.
const TIMER_SLACK: Option<NonZeroU64> = NonZeroU64::new(1000);
/// Most bytes of one line of commands.
const LINE_BYTES: usize = 4096;

/// The reason for which a link cannot be made or ends early.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// A system call or `ip` failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A word means nothing.
    #[error(transparent)]
    Setting(#[from] SettingError),
}

/// A link between two new namespaces.
#[derive(Debug)]
pub struct SlowLink {
    shapes: Shapes,
    ends: [File; 2],
    ways: [(Direction, Pipe); 2],
    started: Instant,
    // Dropped last: the devices go before their namespaces.
    pair: NamespacePair,
}

impl SlowLink {
    /// Makes namespaces and devices. The seed decides which packets are lost.
    ///
    /// # Errors
    /// Returns [`LinkError::Io`] if this is not root, or there are no TUN devices.
    pub fn open(shapes: Shapes, seed: u64) -> Result<Self, LinkError> {
        // Only more precise, so the link works without it.
        let _coarse = rustix::thread::set_current_timer_slack(TIMER_SLACK);
        let pair = NamespacePair::new()?;
        let ends = [pair.open_end(0)?, pair.open_end(1)?];
        let way = |at: usize| {
            let seed = seed.wrapping_mul(2).wrapping_add(at as u64);
            (Direction::new(shapes.each[at], seed), Pipe::default())
        };
        Ok(Self { shapes, ends, ways: [way(0), way(1)], started: Instant::now(), pair })
    }

    /// Returns the namespaces and addresses of the ends.
    #[must_use]
    pub fn describe(&self) -> Value {
        let [a, b] = self.pair.names();
        let [at_a, at_b] = NamespacePair::ADDRESSES;
        json!({
            "a": { "namespace": a, "address": at_a },
            "b": { "namespace": b, "address": at_b },
        })
    }

    /// Returns the fates of the packets of each direction.
    #[must_use]
    pub fn counts(&self) -> Value {
        let [ab, ba] = [0, 1].map(|at| {
            let (direction, pipe) = &self.ways[at];
            to_json(&direction.counts, pipe.len())
        });
        json!({ "ab": ab, "ba": ba })
    }

    /// Carries packets until the commands end. A line of commands has words as [`Shapes::set`]
    /// takes them, or `counts`; `out` gets one line for each: the counts, or an error.
    ///
    /// # Errors
    /// Returns [`LinkError::Io`] if a device or the commands fail.
    pub fn run(&mut self, commands: OwnedFd, mut out: impl Write) -> Result<(), LinkError> {
        rustix::io::ioctl_fionbio(&commands, true).map_err(io::Error::from)?;
        let mut commands = File::from(commands);
        let mut line = Vec::new();
        loop {
            let is_busy = self.turn()?;
            self.wait(&commands, if is_busy { Duration::ZERO } else { Duration::MAX })?;
            match read_some(&mut commands, &mut line)? {
                Some(0) => return Ok(()),
                Some(_) => {
                    while let Some(end) = line.iter().position(|byte| *byte == b'\n') {
                        let words: Vec<u8> = line.drain(..=end).collect();
                        let reply = self.obey(&String::from_utf8_lossy(&words));
                        writeln!(out, "{reply}")?;
                        out.flush()?;
                    }
                }
                None => {}
            }
        }
    }

    fn obey(&mut self, line: &str) -> Value {
        for word in line.split_ascii_whitespace().filter(|word| *word != "counts") {
            if let Err(error) = self.shapes.set(word) {
                return json!({ "error": error.to_string() });
            }
        }
        for ((direction, pipe), shape) in self.ways.iter_mut().zip(self.shapes.each) {
            direction.shape = shape;
            if shape.cut == Cut::Severed {
                pipe.sever(|packet| direction.counts.severed.add(packet.len() as u64));
            }
        }
        self.counts()
    }

    /// Hands over the packets that have arrived and takes new ones; returns whether there may be
    /// more.
    fn turn(&mut self) -> io::Result<bool> {
        let mut is_busy = false;
        let mut packet = [0; MTU];
        for at in [0, 1] {
            let (direction, pipe) = &mut self.ways[at];
            let mut to = &self.ends[1 - at];
            let PacketCounts { forwarded, refused, .. } = &mut direction.counts;
            pipe.hand_over(self.started.elapsed(), |packet| {
                let tally = if to.write(packet).is_ok() { &mut *forwarded } else { &mut *refused };
                tally.add(packet.len() as u64);
            });
            let mut taken = 0;
            while taken < BATCH && pipe.has_room() {
                let length = match (&self.ends[at]).read(&mut packet) {
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                };
                taken += 1;
                let fate = direction.admit(length, self.started.elapsed());
                if let Fate::Arrives { at } = fate {
                    pipe.put(at, &packet[..length]);
                }
            }
            is_busy |= taken == BATCH;
        }
        Ok(is_busy)
    }

    /// Waits for packets, commands, the next arrival, or `most`.
    fn wait(&self, commands: &File, most: Duration) -> io::Result<()> {
        let now = self.started.elapsed();
        let arrivals = self.ways.iter().filter_map(|(_, pipe)| pipe.next_at());
        let next = arrivals.map(|at| at.saturating_sub(now)).min().unwrap_or(most).min(most);
        let mut watched = vec![PollFd::new(commands, PollFlags::IN)];
        for ((_, pipe), end) in self.ways.iter().zip(&self.ends) {
            if pipe.has_room() {
                watched.push(PollFd::new(end, PollFlags::IN));
            }
        }
        let limit = Timespec::try_from(next).ok();
        match poll(&mut watched, limit.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Reads the bytes that are there; returns `None` if there are none, 0 at the end.
fn read_some(commands: &mut File, line: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let mut bytes = [0; LINE_BYTES];
    match commands.read(&mut bytes) {
        Ok(_) if line.len() > LINE_BYTES => Err(io::Error::other("a line of commands is too long")),
        Ok(count) => {
            line.extend_from_slice(&bytes[..count]);
            Ok(Some(count))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn to_json(counts: &PacketCounts, under_way: usize) -> Value {
    let tally = |Tally { packets, bytes }: Tally| json!({ "packets": packets, "bytes": bytes });
    let PacketCounts { came, forwarded, lost, overflowed, cut, severed, refused } = *counts;
    json!({
        "came": tally(came),
        "forwarded": tally(forwarded),
        "lost": tally(lost),
        "overflowed": tally(overflowed),
        "cut": tally(cut),
        "severed": tally(severed),
        "refused": tally(refused),
        "under_way": under_way,
    })
}
