//! The datagrams of one connection at the mirror.

use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use pelago_proto::fec::{Decoder, StreamBuffer};
use pelago_proto::link::Arrivals;
use pelago_wire::datagram::{Datagram, DatagramBody};

use super::incoming::{End, Incoming};
use super::seal::Seals;

/// The receiver of one connection.
#[derive(Debug)]
pub(super) struct Receiver {
    seals: Seals,
    pub(super) incoming: Arc<Incoming>,
    /// Another descriptor of the connection, whose end is the end of the stream; `None` after that.
    pub(super) tcp: Option<TcpStream>,
    /// The host of the connection.
    pub(super) host: IpAddr,
    /// The address from which a datagram came last.
    pub(super) address: Option<SocketAddr>,
    arrivals: Arrivals,
    decoder: Decoder,
    stream: StreamBuffer,
    /// The number of the next report.
    number: u64,
    /// The value of `complete` in the last report.
    complete: u64,
    /// A report said less than is complete, because too much waits for the disk.
    is_held: bool,
    /// The time for which datagrams are taken after the end of the connection: those of a relay may
    /// be under way.
    lingers: Duration,
    /// When the stream ends, after the connection has.
    ends: Option<Duration>,
}

impl Receiver {
    pub(super) fn new(
        seals: Seals,
        incoming: Arc<Incoming>,
        tcp: TcpStream,
        host: IpAddr,
        lingers: Duration,
    ) -> Self {
        Self {
            seals,
            incoming,
            tcp: Some(tcp),
            host,
            address: None,
            arrivals: Arrivals::new(),
            decoder: Decoder::new(),
            stream: StreamBuffer::new(),
            number: 0,
            complete: 0,
            is_held: false,
            lingers,
            ends: None,
        }
    }

    /// Returns whether a number is new: whether it is worth to open its seal.
    pub(super) fn is_new(&self, number: u64) -> bool {
        self.arrivals.is_new(number)
    }

    /// Takes a datagram from an address. Returns whether its seal is right.
    pub(super) fn handle(&mut self, now: Duration, from: SocketAddr, sealed: &[u8]) -> bool {
        let Some(Datagram { number, body }) = self.seals.open(sealed) else { return false };
        if !self.arrivals.handle(now, number, sealed.len()) {
            return true;
        }
        self.address = Some(from);
        match body {
            DatagramBody::Data(packet) => self.decoder.handle_data(packet),
            DatagramBody::Repair(packet) => self.decoder.handle_repair(packet),
            DatagramBody::Layer(packet) => self.decoder.handle_layer(packet),
            DatagramBody::Report(_) => {
                self.incoming.end(End::Broken("a report of a primary came"));
            }
        }
        true
    }

    /// Rebuilds what is missing, hands on what is complete, and sends a report if it is time.
    pub(super) fn work(&mut self, now: Duration, socket: &UdpSocket) {
        self.hand_on();
        if self.ends.is_some_and(|ends| ends <= now) {
            self.end();
        }
        while let Some(damaged) = self.decoder.take() {
            self.decoder.handle_rebuilt(damaged.rebuild());
            self.hand_on();
        }
        let is_full = self.incoming.is_full();
        if self.is_held && !is_full {
            self.is_held = false;
            self.arrivals.ask_report();
        }
        let complete = if is_full { self.complete } else { self.decoder.complete() };
        let Some(address) = self.address else { return };
        let Some(report) = self.arrivals.poll_report(now, complete) else { return };
        self.complete = complete;
        self.is_held = is_full;
        let body = DatagramBody::Report(report);
        let Some(sealed) = self.seals.seal(&Datagram { number: self.number, body }) else {
            self.incoming.end(End::Broken("the keys of the datagrams are used up"));
            return;
        };
        self.number += 1;
        if let Err(error) = socket.send_to(&sealed, address) {
            // As one that the link has lost.
            tracing::debug!(%error, "a report was not sent");
        }
    }

    /// Returns when there is something to do if nothing arrives.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        let report = self.address.and_then(|_| self.arrivals.poll_timeout());
        [report, self.ends].into_iter().flatten().min()
    }

    /// Records that the connection has ended.
    pub(super) fn handle_end(&mut self, now: Duration) {
        self.tcp = None;
        self.ends = Some(now + self.lingers);
    }

    /// Ends the stream.
    pub(super) fn end(&mut self) {
        self.tcp = None;
        self.ends = None;
        self.incoming.end(End::Lost);
    }

    fn hand_on(&mut self) {
        while let Some(packet) = self.decoder.poll_packet() {
            self.stream.insert(packet.offset, &packet.bytes);
        }
        self.decoder.handle_filled(self.stream.next());
        while let Some(bytes) = self.stream.poll_bytes() {
            self.incoming.push(bytes);
        }
    }
}
