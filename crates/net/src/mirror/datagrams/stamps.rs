//! The stamps of the kernel: which datagrams have left this machine.
//!
//! Linux numbers the datagrams of a socket (`SOF_TIMESTAMPING_OPT_ID`) and reports each one that
//! the driver of the network device has taken (`SOF_TIMESTAMPING_TX_SOFTWARE`), in the error queue
//! of the socket. That queue counts against the receive buffer, and what does not fit is dropped
//! without an error: so it is read after each burst, and a datagram without a stamp counts as not
//! sent. It is sent again then; its content has a new number.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::sockopt::Timestamping;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, SockaddrStorage, TimestampingFlag};
use nix::sys::socket::{recvmsg, setsockopt};
use pelago_wire::datagram::DatagramBody;

/// The time after which a datagram without a stamp counts as not sent.
const PATIENCE: Duration = Duration::from_millis(20);
/// The origin of an error that is a stamp (`SO_EE_ORIGIN_TIMESTAMPING`).
const IS_STAMP: u8 = 4;
/// Bytes of the control messages of one stamp: a time, and an error with an address.
const CONTROL_BYTES: usize = 256;

/// The datagrams that have no stamp yet.
#[derive(Debug, Default)]
pub(super) struct Stamps {
    /// In the order of their numbers.
    unstamped: VecDeque<Unstamped>,
    /// The number of the next datagram.
    next: u64,
    /// The number of the first datagram of the socket, whose stamp has the id 0.
    origin: u64,
}

#[derive(Debug)]
struct Unstamped {
    number: u64,
    at: Duration,
    /// The content; `None` once it has a stamp.
    body: Option<DatagramBody>,
}

/// Has the kernel stamp the datagrams of a socket that has sent none.
pub(super) fn ask_for_stamps(socket: &UdpSocket) -> io::Result<()> {
    let flags = TimestampingFlag::SOF_TIMESTAMPING_TX_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_SOFTWARE
        | TimestampingFlag::SOF_TIMESTAMPING_OPT_ID
        | TimestampingFlag::SOF_TIMESTAMPING_OPT_TSONLY;
    Ok(setsockopt(socket, Timestamping, &flags)?)
}

/// Reads the id of the next stamp of a socket, which counts its datagrams from 0; `None` if there
/// is none.
pub(super) fn next_stamp(socket: &UdpSocket) -> io::Result<Option<u32>> {
    let mut control = [0; CONTROL_BYTES];
    loop {
        let mut nothing = [IoSliceMut::new(&mut [])];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let fd = socket.as_raw_fd();
        let message = match recvmsg::<SockaddrStorage>(fd, &mut nothing, Some(&mut control), flags)
        {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(None),
            Err(Errno::EINTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for part in message.cmsgs()? {
            let error = match part {
                ControlMessageOwned::Ipv4RecvErr(error, _) => error,
                ControlMessageOwned::Ipv6RecvErr(error, _) => error,
                _ => continue,
            };
            if error.ee_origin == IS_STAMP {
                return Ok(Some(error.ee_data));
            }
        }
    }
}

impl Stamps {
    /// Records a datagram that was handed to the kernel, with its number.
    pub(super) fn handle_sent(&mut self, now: Duration, number: u64, body: DatagramBody) {
        self.unstamped.push_back(Unstamped { number, at: now, body: Some(body) });
        self.next = number + 1;
    }

    /// Records a stamp. An id is the low half of the number of its datagram in the socket.
    pub(super) fn handle_stamp(&mut self, id: u32) {
        let Some(first) = self.unstamped.front().map(|first| first.number) else { return };
        // Numbers that are under way differ by less than half of all ids.
        let ahead = id.wrapping_add(self.origin as u32).wrapping_sub(first as u32);
        let at = self.unstamped.partition_point(|sent| sent.number < first + u64::from(ahead));
        if let Some(sent) = self.unstamped.get_mut(at)
            && sent.number == first + u64::from(ahead)
        {
            sent.body = None;
        }
        while self.unstamped.front().is_some_and(|sent| sent.body.is_none()) {
            self.unstamped.pop_front();
        }
    }

    /// Records that another socket takes the place of the last one, whose stamps are not read any
    /// more: what has none is sent again.
    pub(super) fn handle_socket(&mut self, now: Duration) {
        self.origin = self.next;
        let late = now.saturating_sub(PATIENCE);
        self.unstamped.iter_mut().for_each(|sent| sent.at = sent.at.min(late));
    }

    /// Returns the content of a datagram that has no stamp after its time: it is to be sent again.
    pub(super) fn poll(&mut self, now: Duration) -> Option<DatagramBody> {
        while let Some(first) = self.unstamped.front()
            && (first.body.is_none() || first.at + PATIENCE <= now)
        {
            if let Some(body) = self.unstamped.pop_front().and_then(|sent| sent.body) {
                return Some(body);
            }
        }
        None
    }

    /// Returns when [`Stamps::poll`] may have a datagram.
    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        self.unstamped.front().map(|first| first.at + PATIENCE)
    }

    /// Returns the number of the next datagram.
    pub(super) const fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number before which the content of each datagram has left this machine, under
    /// that number or a later one.
    pub(super) fn stamped(&self) -> u64 {
        self.unstamped.front().map_or(self.next, |first| first.number)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use pelago_wire::datagram::DataPacket;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn body(sequence: u64) -> DatagramBody {
        DatagramBody::Data(DataPacket { sequence, offset: 0, bytes: vec![1] })
    }

    #[test]
    fn what_has_no_stamp_is_sent_again() {
        let mut stamps = Stamps::default();
        (0..4).for_each(|number| stamps.handle_sent(ms(0), number, body(number)));
        [0, 2].into_iter().for_each(|id| stamps.handle_stamp(id));
        assert_eq!(stamps.stamped(), 1);
        assert_eq!(stamps.poll(ms(19)), None);
        assert_eq!(stamps.poll(ms(20)), Some(body(1)));
        stamps.handle_sent(ms(20), 4, body(1));
        assert_eq!(stamps.poll(ms(20)), Some(body(3)));
        stamps.handle_sent(ms(20), 5, body(3));
        assert_eq!(stamps.stamped(), 4);
        // A late stamp, and one of nothing, change nothing.
        [1, 99].into_iter().for_each(|id| stamps.handle_stamp(id));
        assert_eq!((stamps.stamped(), stamps.poll_timeout()), (4, Some(ms(40))));
        [5, 4].into_iter().for_each(|id| stamps.handle_stamp(id));
        assert_eq!((stamps.stamped(), stamps.poll_timeout()), (6, None));
    }

    #[test]
    fn another_socket_counts_from_zero() {
        let mut stamps = Stamps::default();
        [0, 1].into_iter().for_each(|number| stamps.handle_sent(ms(50), number, body(number)));
        stamps.handle_stamp(0);
        stamps.handle_socket(ms(51));
        stamps.handle_sent(ms(51), 2, body(2));
        assert_eq!(stamps.poll(ms(51)), Some(body(1)));
        stamps.handle_stamp(0);
        assert_eq!(stamps.stamped(), 3);
    }

    #[test]
    fn ids_wrap() {
        let mut stamps = Stamps::default();
        let numbers = u64::from(u32::MAX) - 1..u64::from(u32::MAX) + 3;
        numbers.clone().for_each(|number| stamps.handle_sent(ms(0), number, body(number)));
        numbers.clone().for_each(|number| stamps.handle_stamp(number as u32));
        assert_eq!(stamps.stamped(), numbers.end);
    }

    /// Each datagram of a real socket gets one stamp, in a burst that the usual queue does not
    /// hold.
    #[test]
    fn the_kernel_stamps_each_datagram() {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = to.local_addr().unwrap();
        let socket = super::super::bound_socket("127.0.0.1:0".parse().unwrap()).unwrap();
        ask_for_stamps(&socket).unwrap();
        let mut stamps = Stamps::default();
        for number in 0..2000 {
            socket.send_to(&[0; 1000], address).unwrap();
            stamps.handle_sent(ms(0), number, body(number));
        }
        let begin = Instant::now();
        while stamps.stamped() < 2000 && begin.elapsed() < Duration::from_secs(5) {
            while let Some(id) = next_stamp(&socket).unwrap() {
                stamps.handle_stamp(id);
            }
        }
        assert_eq!(stamps.stamped(), 2000);
    }
}
