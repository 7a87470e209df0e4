//! The primary's thread that sends the datagrams of one connection, and takes the reports.

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use pelago_proto::fec::{Encoder, RepairMode};
use pelago_proto::link::{LinkSender, ReplayWindow, Room};
use pelago_wire::datagram::{Datagram, DatagramBody, LinkReport};
use pelago_wire::limits;
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, recv};

use super::kept::Kept;
use super::outbox::{End, Outbox};
use super::seal::{Seals, number_of};
use super::stamps::{self, Stamps};
use super::{DatagramStatus, Datagrams};

/// The time in which a first report comes if the mirror can be reached.
const FIRST_REPORT: Duration = Duration::from_secs(1);
/// The time without a report after which the mirror cannot be reached any more.
const SILENCE: Duration = Duration::from_secs(3);
/// Datagrams that are sent before reports are looked for.
const BURST: usize = 32;
/// The least sleep: what a timer that is due has to do may need room on the link first.
const LEAST_SLEEP: Duration = Duration::from_micros(200);

/// The sender of the datagrams of one connection.
pub(super) struct Pump {
    outbox: Arc<Outbox>,
    socket: UdpSocket,
    mirror: SocketAddr,
    seals: Seals,
    tcp: TcpStream,
    datagrams: Datagrams,
    encoder: Encoder,
    link: LinkSender,
    kept: Kept,
    reports: ReplayWindow,
    origin: Instant,
    /// Since when no report has come, while the mirror does not have everything.
    silent: Option<Duration>,
    was_heard: bool,
    longest: Longest,
    /// The connection has ended.
    is_gone: bool,
    /// The last error of the socket.
    error: Option<io::Error>,
    status: DatagramStatus,
    /// The datagrams that have left this machine, if a caller asks for them.
    departure: Option<Departure>,
}

/// The record of the bytes that have left this machine, with the repair packets that a waiter
/// needs.
#[derive(Default)]
struct Departure {
    stamps: Stamps,
    /// The offset before which each repair packet that is needed was handed to the kernel.
    covered: u64,
    /// Such offsets, each with the number before which all datagrams must have left.
    awaited: VecDeque<(u64, u64)>,
}

/// Whether data packets of the greatest length arrive: a path with a small MTU may drop them, and
/// say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Longest {
    NotSent,
    /// The first one has this sequence number.
    Sent(u64),
    Arrive,
}

/// The reason for which no more is sent.
enum Ended {
    /// The connection was closed here.
    Closed,
    /// The mirror has closed it, or it was lost.
    Gone,
    /// No report came.
    Blocked,
    /// The keys have sealed as much as they may.
    UsedUp,
    /// The wait for the socket fails.
    Io(io::Error),
}

impl Departure {
    /// Records the offset before which each repair packet that is needed was handed to the kernel.
    /// Returns the offset before which everything has left, if that is new.
    fn advance(&mut self, covered: u64) -> Option<u64> {
        if covered > self.covered {
            self.covered = covered;
            self.awaited.push_back((covered, self.stamps.next()));
        }
        let mut left = None;
        while let Some((offset, number)) = self.awaited.front().copied()
            && number <= self.stamps.stamped()
        {
            left = Some(offset);
            self.awaited.pop_front();
        }
        left
    }

    /// Has all offsets wait for the newest datagram: it has the content of one before.
    fn await_all(&mut self) {
        let next = self.stamps.next();
        self.awaited.iter_mut().for_each(|awaited| awaited.1 = next);
    }
}

impl Pump {
    pub(super) fn new(
        outbox: Arc<Outbox>,
        socket: UdpSocket,
        seals: Seals,
        tcp: TcpStream,
        datagrams: Datagrams,
    ) -> io::Result<Self> {
        let mirror = tcp.peer_addr()?;
        let encoder = Encoder::new(datagrams.mode());
        Ok(Self {
            outbox,
            socket,
            mirror,
            seals,
            tcp,
            datagrams,
            encoder,
            link: LinkSender::new(),
            kept: Kept::new(),
            reports: ReplayWindow::new(),
            origin: Instant::now(),
            silent: None,
            was_heard: false,
            longest: Longest::NotSent,
            is_gone: false,
            error: None,
            status: DatagramStatus::default(),
            departure: None,
        })
    }

    /// Has the kernel say which datagrams have left this machine. Without repair packets nothing
    /// is said: no loss could be mended without this machine.
    pub(super) fn ask_for_stamps(&mut self) -> io::Result<()> {
        if self.has_code() {
            stamps::ask_for_stamps(&self.socket)?;
            self.departure = Some(Departure::default());
        }
        Ok(())
    }

    /// Sends until the connection ends.
    pub(super) fn run(mut self) {
        let Err(ended) = self.drive();
        self.datagrams.set_status(None);
        let end = match ended {
            // What the mirror said last can still be read.
            Ended::Closed | Ended::Gone => End::Connection,
            Ended::Blocked => End::Datagrams(self.blocked()),
            Ended::UsedUp => End::Datagrams("the keys of the datagrams are used up".to_owned()),
            Ended::Io(error) => {
                End::Datagrams(format!("the socket of the datagrams fails: {error}"))
            }
        };
        let is_open = matches!(end, End::Datagrams(_));
        self.outbox.end(end);
        if is_open {
            // It may have ended by now.
            let _closed = self.tcp.shutdown(Shutdown::Both);
        }
    }

    fn drive(&mut self) -> Result<std::convert::Infallible, Ended> {
        loop {
            if self.outbox.has_ended() {
                return Err(Ended::Closed);
            }
            if self.is_gone {
                return Err(Ended::Gone);
            }
            let now = self.now();
            self.take_reports(now);
            self.link.handle_timeout(now);
            self.encoder.handle_timeout(now);
            if self.silence_ends().is_some_and(|at| at <= now) {
                return Err(Ended::Blocked);
            }
            let mut sent = 0;
            while sent < BURST && self.send_next()? {
                sent += 1;
            }
            self.take_stamps()?;
            if sent < BURST {
                self.sleep()?;
            }
        }
    }

    /// Sends a datagram, if there is one and the link takes it. Returns whether it did.
    fn send_next(&mut self) -> Result<bool, Ended> {
        let now = self.now();
        if self.outbox.take_waiter() {
            self.encoder.wait(now);
        }
        if self.link.poll_send(now) != Room::Now {
            return Ok(false);
        }
        if let Some(body) = self.unstamped(now) {
            self.send(now, body, true)?;
            self.departure.iter_mut().for_each(Departure::await_all);
            return Ok(true);
        }
        // What the mirror waits for first: it gets nothing of the stream before that.
        if let Some(packet) = self.kept.poll(now, self.has_code()) {
            self.status.again = self.kept.again();
            return self.send(now, DatagramBody::Data(packet), true).map(|()| true);
        }
        if let Some(repair) = self.encoder.poll_repair(now) {
            self.kept.handle_other(now);
            self.status.repair += 1;
            return self.send(now, repair, true).map(|()| true);
        }
        if !self.kept.has_room() {
            return Ok(false);
        }
        let Some(piece) = self.outbox.take() else { return Ok(false) };
        let Some(packet) = self.encoder.push(now, &piece.bytes, piece.has_more) else {
            return Ok(false);
        };
        self.kept.handle_data(now, packet.clone());
        if self.longest == Longest::NotSent && packet.bytes.len() == limits::DATAGRAM_STREAM_BYTES {
            self.longest = Longest::Sent(packet.sequence);
        }
        // A stream that waits for the mirror does not fill the link.
        let has_more = piece.has_more && self.kept.has_room();
        self.silent.get_or_insert(now);
        self.status.data += 1;
        self.send(now, DatagramBody::Data(packet), has_more).map(|()| true)
    }

    fn send(&mut self, now: Duration, body: DatagramBody, has_more: bool) -> Result<(), Ended> {
        let number = self.link.handle_sent(now, body.sealed_bytes(), has_more);
        let datagram = Datagram { number, body };
        let sealed = self.seals.seal(&datagram).ok_or(Ended::UsedUp)?;
        let sent = self.socket.send_to(&sealed, self.mirror);
        if let Some(departure) = &mut self.departure {
            departure.stamps.handle_sent(now, number, datagram.body);
        }
        if let Err(error) = sent {
            // As one that the link has lost. If all fail, no report comes.
            tracing::debug!(%error, "a datagram was not sent");
            self.error = Some(error);
            self.replace_socket(now)?;
        }
        Ok(())
    }

    /// Takes another socket after a failure, if stamps are read: whether the kernel has counted the
    /// datagram is not known.
    fn replace_socket(&mut self, now: Duration) -> Result<(), Ended> {
        let Some(departure) = &mut self.departure else { return Ok(()) };
        let socket = super::socket_of(&self.tcp).map_err(Ended::Io)?;
        stamps::ask_for_stamps(&socket).map_err(Ended::Io)?;
        self.socket = socket;
        departure.stamps.handle_socket(now);
        Ok(())
    }

    /// Returns a datagram that has not left this machine after its time. The next number is
    /// recorded with it.
    fn unstamped(&mut self, now: Duration) -> Option<DatagramBody> {
        let body = self.departure.as_mut()?.stamps.poll(now)?;
        match &body {
            DatagramBody::Data(packet) => self.kept.handle_again(now, packet.sequence),
            DatagramBody::Repair(_) | DatagramBody::Layer(_) | DatagramBody::Report(_) => {
                self.kept.handle_other(now);
            }
        }
        Some(body)
    }

    /// Reads the stamps, and says how much has left this machine.
    fn take_stamps(&mut self) -> Result<(), Ended> {
        let Some(departure) = &mut self.departure else { return Ok(()) };
        while let Some(id) = stamps::next_stamp(&self.socket).map_err(Ended::Io)? {
            departure.stamps.handle_stamp(id);
        }
        if let Some(sent) = departure.advance(self.encoder.covered()) {
            self.outbox.set_sent(sent);
        }
        Ok(())
    }

    fn take_reports(&mut self, now: Duration) {
        let mut buffer = [0; limits::DATAGRAM_BYTES + 1];
        for _ in 0..BURST {
            let Ok((_, length)) = recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) else {
                return;
            };
            let Some(sealed) = buffer.get(..length) else { continue };
            let is_new = number_of(sealed).is_some_and(|number| self.reports.is_new(number));
            let opened = is_new.then(|| self.seals.open(sealed)).flatten();
            let Some(Datagram { number, body: DatagramBody::Report(report) }) = opened else {
                self.status.refused += 1;
                continue;
            };
            self.reports.insert(number);
            self.was_heard = true;
            self.take_report(now, &report);
            self.silent = (!self.kept.is_empty()).then_some(now);
        }
    }

    fn take_report(&mut self, now: Duration, report: &LinkReport) {
        if !self.link.handle_report(now, report) {
            return;
        }
        self.kept.handle_report(now, report);
        if let Longest::Sent(sequence) = self.longest
            && report.complete > sequence
        {
            self.longest = Longest::Arrive;
        }
        self.encoder.handle_complete(report.complete);
        self.outbox.taken.fetch_max(report.complete, Ordering::Relaxed);
        let quality = self.link.quality();
        self.encoder.handle_quality(now, quality);
        self.status.rate = quality.rate;
        self.status.loss = quality.loss;
        self.status.residual = self.encoder.residual();
        self.status.trip = self.kept.trip();
        self.datagrams.set_status(Some(self.status));
    }

    /// Waits until there is something to do.
    fn sleep(&mut self) -> Result<(), Ended> {
        let now = self.now();
        let room = self.link.poll_send(now);
        let takes_bytes = room == Room::Now && self.kept.has_room();
        if takes_bytes && !self.outbox.sleep() {
            return Ok(());
        }
        // What is to be sent waits for room.
        let timer = [self.encoder.poll_timeout(now), self.kept.poll_timeout(self.has_code())];
        let timer = timer.into_iter().flatten().min();
        let timer = match room {
            Room::Now => timer,
            Room::At(at) => Some(at),
            Room::Full => None,
        };
        let least = now + LEAST_SLEEP;
        let unstamped = self.departure.as_ref().and_then(|sent| sent.stamps.poll_timeout());
        let timer = [timer, unstamped].into_iter().flatten().min();
        let timers = [timer.map(|at| at.max(least)), self.link.poll_timeout(), self.silence_ends()];
        let at = timers.into_iter().flatten().min();
        let time = at.map(|at| at.saturating_sub(now));
        // What the mirror says over the connection, another thread reads.
        let sockets = [(self.socket.as_fd(), PollFlags::IN), (self.tcp.as_fd(), PollFlags::RDHUP)];
        let happened = self.outbox.waker.wait(&sockets, time).map_err(Ended::Io)?;
        self.is_gone = happened.get(1).is_some_and(|is_gone| *is_gone);
        Ok(())
    }

    fn has_code(&self) -> bool {
        self.datagrams.mode() != RepairMode::Off
    }

    fn silence_ends(&self) -> Option<Duration> {
        let time = if self.was_heard { SILENCE } else { FIRST_REPORT };
        self.silent.map(|since| since + time)
    }

    /// Returns the reason for which no report comes. If none ever came, UDP is blocked, and the
    /// next connections have no datagrams. Nor have they if only short ones arrived: each would
    /// bring the short ones, and end at the first long one. Otherwise the link may be cut, which
    /// the next one finds out.
    fn blocked(&self) -> String {
        let port = self.mirror.port();
        let error = self.error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
        if let (true, Longest::Sent(_)) = (self.was_heard, self.longest) {
            let bytes = limits::DATAGRAM_BYTES;
            let why = format!(
                "datagrams of {bytes} bytes do not arrive at port {port} of the mirror, and \
                 shorter ones do: the MTU of the way to it is too small{error}"
            );
            self.datagrams.close(&why);
            return why;
        }
        if self.was_heard {
            let seconds = SILENCE.as_secs();
            return format!(
                "no datagram is answered for {seconds} s: the link to the mirror is cut, or UDP to \
                 its port {port} is blocked{error}"
            );
        }
        let why =
            format!("no datagram is answered: UDP to port {port} of the mirror is blocked{error}");
        self.datagrams.close(&why);
        why
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}
