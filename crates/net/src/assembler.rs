//! The assembler of frames from a stream of bytes. A malformed frame, or one that is longer than
//! the peer may send now, makes the stream unusable.

use std::io;

use pelago_wire::frame::{FrameError, HEADER_BYTES, Header};

/// A frame that arrived whole.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) header: Header,
    pub(crate) body: Vec<u8>,
    /// Bytes of a file, in memory of their own.
    pub(crate) bulk: Vec<u8>,
}

/// The limits of a frame that a peer may send now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameLimits {
    /// Bytes of a body.
    pub(crate) body: usize,
    /// Bytes of bulk.
    pub(crate) bulk: usize,
}

impl FrameLimits {
    /// Returns the number of bytes that are read at a time. It is small for a peer that may send
    /// little, or that sends little, so that its connection takes little memory.
    fn input_bytes(self, is_busy: bool) -> usize {
        let most = if is_busy { INPUT_BYTES } else { FIRST_BYTES };
        (HEADER_BYTES + self.body + self.bulk).min(most)
    }
}

/// The reason for which no frame could be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The socket failed.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// The other end has closed the connection.
    #[error("the other end closed the connection")]
    Closed,
    /// The other end does not speak our protocol.
    #[error("a malformed frame: {0}")]
    Malformed(#[from] FrameError),
    /// The frame is longer than this peer may send now.
    #[error("a frame of {bytes} bytes where at most {limit} are allowed")]
    TooLong {
        /// Bytes that the header announces.
        bytes: usize,
        /// Bytes that are allowed.
        limit: usize,
    },
}

/// Bytes that are read at a time until a read has filled them.
const FIRST_BYTES: usize = 4 << 10;
/// Bytes that are read at a time, at most.
const INPUT_BYTES: usize = 64 << 10;

/// The assembler of one connection. Bytes are read into one buffer; only the rest of a large
/// payload is read into the payload's own memory.
#[derive(Debug)]
pub(crate) struct Assembler {
    input: Vec<u8>,
    /// `start..end` is the part of `input` that was read and is not in a frame yet.
    start: usize,
    end: usize,
    /// A frame whose header was read.
    partial: Option<Partial>,
    /// The last read returned less than it could: the socket is empty.
    drained: bool,
    /// The last read returned all that it could.
    filled: bool,
    /// The peer has sent its last byte: no further event comes, so that everything is read now.
    ends: bool,
}

#[derive(Debug)]
struct Partial {
    frame: Frame,
    /// Valid bytes of the body.
    body: usize,
    /// Valid bytes of the bulk.
    bulk: usize,
}

impl Assembler {
    /// Returns an assembler before the first byte.
    pub(crate) const fn new() -> Self {
        let partial = None;
        let drained = false;
        let filled = false;
        let ends = false;
        Self { input: Vec::new(), start: 0, end: 0, partial, drained, filled, ends }
    }

    /// Records that bytes have arrived, or the end: the socket is not empty any more. A socket that
    /// is not read now gets no further event.
    pub(crate) const fn bytes_come(&mut self) {
        self.drained = false;
    }

    /// Records that the peer has sent its last byte.
    pub(crate) const fn end_comes(&mut self) {
        self.bytes_come();
        self.ends = true;
    }

    /// Returns the next frame; `None` if more bytes must arrive first. `read` reads from the
    /// socket, without blocking.
    ///
    /// # Errors
    /// [`ReadError`]; the connection must end.
    pub(crate) fn next(
        &mut self,
        limits: FrameLimits,
        mut read: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<Option<Frame>, ReadError> {
        loop {
            if let Some(frame) = self.take_frame(limits)? {
                return Ok(Some(frame));
            }
            if std::mem::take(&mut self.drained) {
                return Ok(None);
            }
            let (into, whole) = self.space(limits.input_bytes(self.filled));
            let wanted = into.len();
            let count = match read(into) {
                Ok(0) => return Err(ReadError::Closed),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            // A short read of a stream has emptied the socket. An event follows when more arrives.
            self.filled = count == wanted;
            self.drained = !self.filled && !self.ends;
            match (whole, &mut self.partial) {
                (true, Some(partial)) => partial.bulk += count,
                _ => self.end += count,
            }
        }
    }

    /// Returns the memory for the next bytes, and whether it is the bulk of the partial frame.
    fn space(&mut self, input_bytes: usize) -> (&mut [u8], bool) {
        if let Some(partial) = &mut self.partial
            && partial.body == partial.frame.body.len()
            && partial.frame.bulk.len() - partial.bulk >= INPUT_BYTES
        {
            return (&mut partial.frame.bulk[partial.bulk..], true);
        }
        if self.input.len() < input_bytes {
            self.input.reserve_exact(input_bytes - self.input.len());
            self.input.resize(input_bytes, 0);
        }
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        (&mut self.input[self.end..], false)
    }

    /// Takes a whole frame from the bytes that were read.
    fn take_frame(&mut self, limits: FrameLimits) -> Result<Option<Frame>, ReadError> {
        if self.partial.is_none() {
            let read = &self.input[self.start..self.end];
            let Some(bytes) = read.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
            let header = Header::decode(bytes)?;
            let body = header.body as usize;
            let bulk = header.bulk as usize;
            for (bytes, limit) in [(body, limits.body), (bulk, limits.bulk)] {
                if bytes > limit {
                    return Err(ReadError::TooLong { bytes, limit });
                }
            }
            self.start += HEADER_BYTES;
            let frame = Frame { header, body: vec![0; body], bulk: vec![0; bulk] };
            self.partial = Some(Partial { frame, body: 0, bulk: 0 });
        }
        let Some(partial) = &mut self.partial else { return Ok(None) };
        let read = &self.input[self.start..self.end];
        let (body, read_on) = move_into(&mut partial.frame.body[partial.body..], read);
        let (bulk, _) = move_into(&mut partial.frame.bulk[partial.bulk..], read_on);
        partial.body += body;
        partial.bulk += bulk;
        self.start += body + bulk;
        let is_whole =
            partial.body == partial.frame.body.len() && partial.bulk == partial.frame.bulk.len();
        Ok(if is_whole { self.partial.take().map(|partial| partial.frame) } else { None })
    }
}

/// Copies as many bytes as fit. Returns their number, and the rest of `from`.
fn move_into<'a>(to: &mut [u8], from: &'a [u8]) -> (usize, &'a [u8]) {
    let count = to.len().min(from.len());
    let (moved, left) = from.split_at(count);
    to[..count].copy_from_slice(moved);
    (count, left)
}

#[cfg(test)]
mod tests {
    use pelago_wire::frame::FrameKind;

    use super::*;

    const LIMITS: FrameLimits = FrameLimits { body: 1 << 16, bulk: 1 << 20 };

    fn bytes(number: u64, body: usize, bulk: usize) -> Vec<u8> {
        let header = Header {
            body: u32::try_from(body).unwrap(),
            bulk: u32::try_from(bulk).unwrap(),
            kind: FrameKind::Request,
            is_overdue: false,
            number,
            progress: 0,
        };
        let mut out = header.encode().to_vec();
        out.extend((0..body).map(|at| at as u8));
        out.extend((0..bulk).map(|at| (at * 7) as u8));
        out
    }

    /// Feeds a stream in pieces of these sizes, and returns the frames.
    fn feed(stream: &[u8], pieces: impl Fn(usize) -> usize) -> Vec<Frame> {
        let mut at = 0;
        let mut turn = 0;
        let mut frames = Vec::new();
        let mut assembler = Assembler::new();
        while at < stream.len() {
            let mut budget = pieces(turn).min(stream.len() - at);
            turn += 1;
            loop {
                let read = |into: &mut [u8]| {
                    if budget == 0 {
                        return Err(io::ErrorKind::WouldBlock.into());
                    }
                    let count = budget.min(into.len());
                    into[..count].copy_from_slice(&stream[at..at + count]);
                    at += count;
                    budget -= count;
                    Ok(count)
                };
                match assembler.next(LIMITS, read).unwrap() {
                    Some(frame) => frames.push(frame),
                    None if budget == 0 => break,
                    None => {}
                }
            }
        }
        frames
    }

    #[test]
    fn frames_come_whole_whatever_the_pieces() {
        let sizes = [(0, 0), (10, 0), (65_536, 1 << 20), (7, 300_000), (0, 65_535), (1, 1)];
        let mut stream = Vec::new();
        for (number, (body, bulk)) in (1..).zip(sizes) {
            stream.extend(bytes(number, body, bulk));
        }
        for pieces in [1_usize << 30, 65_536, 65_535, 4097, 33] {
            let frames = feed(&stream, |turn| if turn % 3 == 2 { 1 } else { pieces });
            assert_eq!(frames.len(), sizes.len(), "pieces of {pieces}");
            let mut again = Vec::new();
            for frame in frames {
                again.extend(frame.header.encode());
                again.extend(frame.body);
                again.extend(frame.bulk);
            }
            assert!(again == stream, "pieces of {pieces}");
        }
    }

    #[test]
    fn a_peer_that_says_little_costs_little_memory() {
        let stream: Vec<u8> = (1..200).flat_map(|number| bytes(number, 100, 0)).collect();
        let mut assembler = Assembler::new();
        for mut frame in stream.chunks(HEADER_BYTES + 100) {
            let mut read = |into: &mut [u8]| io::Read::read(&mut frame, into);
            assert!(assembler.next(LIMITS, &mut read).unwrap().is_some());
            assert!(assembler.next(LIMITS, &mut read).unwrap().is_none());
            assert!(assembler.input.capacity() <= 4 << 10);
        }
        // One that sends much is read in large pieces.
        let mut left = &stream[..];
        let mut reads = 0;
        let mut read = |into: &mut [u8]| {
            reads += 1;
            io::Read::read(&mut left, into)
        };
        while assembler.next(LIMITS, &mut read).unwrap().is_some() {}
        assert_eq!((reads, assembler.input.capacity()), (2, INPUT_BYTES));
    }

    #[test]
    fn nothing_is_allocated_for_a_frame_that_is_too_long() {
        let stream = bytes(1, 10, 0);
        let mut left = &stream[..];
        let limits = FrameLimits { body: 9, bulk: 0 };
        let read = |into: &mut [u8]| io::Read::read(&mut left, into);
        let refused = Assembler::new().next(limits, read);
        assert!(matches!(refused, Err(ReadError::TooLong { bytes: 10, limit: 9 })));
    }

    #[test]
    fn the_end_of_a_stream_is_told_in_the_middle_of_a_frame_too() {
        let stream = bytes(1, 10, 0);
        let mut left = &stream[..20];
        let mut assembler = Assembler::new();
        let mut read = |into: &mut [u8]| io::Read::read(&mut left, into);
        assert!(matches!(assembler.next(LIMITS, &mut read), Ok(None)));
        assert!(matches!(assembler.next(LIMITS, &mut read), Err(ReadError::Closed)));
    }
}
