//! The bytes of a kept version: they are read, and written over the file.

use pelago_wire::{
    Bulk, Code, Error, Handle, InodeId, OpenFlags, OpenId, Reply, Request, WriteFlags, limits,
};

use crate::control::ConflictLine;
use crate::failure::{Exit, Failure, Outcome};
use crate::server_session::ServerSession;

/// The opens of this command. Each session makes both at most once.
const KEPT: OpenId = OpenId(1);
const FILE: OpenId = OpenId(2);

/// Bytes after which it is waited until they are safe, so that no wait is long.
const SYNCED_AT_ONCE: u64 = 64 << 20;

/// The server, which answers requests.
pub(super) trait Asks {
    fn ask(&self, request: Request, bulk: Bulk<'_>) -> Outcome<Result<Reply, Error>>;
}

impl Asks for ServerSession {
    fn ask(&self, request: Request, bulk: Bulk<'_>) -> Outcome<Result<Reply, Error>> {
        self.ask_with(request, bulk)
    }
}

#[derive(Debug, thiserror::Error)]
enum BytesError {
    #[error("what is kept cannot be read")]
    NotRead(#[source] Error),
    #[error("what is kept has {found} bytes and not {expected}: is it written still?")]
    OtherSize { found: u64, expected: u64 },
    #[error("the file cannot be written: its office is {office}")]
    NotWritten {
        office: String,
        #[source]
        source: Error,
    },
}

/// The bytes of a version, which are read in order.
pub(super) struct KeptBytes<'a> {
    session: &'a dyn Asks,
    read: u64,
    expected: u64,
}

impl<'a> KeptBytes<'a> {
    /// Opens a version.
    ///
    /// # Errors
    /// If it cannot be opened, for one because it was removed.
    pub(super) fn open(session: &'a dyn Asks, kept: &ConflictLine) -> Outcome<Self> {
        let node = Handle::own(InodeId::from_raw(kept.node));
        let open = Request::Open { node, flags: OpenFlags::READ, open: KEPT };
        session.ask(open, Bulk::None)?.map_err(not_read)?;
        Ok(Self { session, read: 0, expected: kept.bytes })
    }

    /// Returns the next bytes; `None` at the end.
    ///
    /// # Errors
    /// If they cannot be read, or are not as many as there were.
    pub(super) fn next_part(&mut self) -> Outcome<Option<Vec<u8>>> {
        let size = limits::IO_BYTES as u32;
        let request = Request::Read { open: KEPT, offset: self.read, size };
        let part = match self.session.ask(request, Bulk::None)? {
            Ok(Reply::Data(data)) => data.as_bytes().to_vec(),
            Ok(_) => return Err(not_read(Code::Bug.into())),
            Err(error) => return Err(not_read(error)),
        };
        self.read += part.len() as u64;
        let is_end = part.is_empty();
        if self.read > self.expected || is_end && self.read < self.expected {
            let error = BytesError::OtherSize { found: self.read, expected: self.expected };
            return Err(Failure::new(Exit::Failed, error).hint("see `pelago conflicts`"));
        }
        Ok((!is_end).then_some(part))
    }
}

/// Writes the bytes of a version over the file, and returns once they are safe.
///
/// # Errors
/// If not all of that was done. The version is as it was.
pub(super) fn write_over(session: &dyn Asks, kept: &ConflictLine, file: Handle) -> Outcome<()> {
    let mut bytes = KeptBytes::open(session, kept)?;
    // Before the file is emptied: what is kept can be read.
    let first = bytes.next_part()?;
    let flags = OpenFlags { truncate: true, ..OpenFlags::WRITE };
    let open = Request::Open { node: file, flags, open: FILE };
    session.ask(open, Bulk::None)?.map_err(|error| not_opened(kept, error))?;
    let mut writing = Writing { session, written: 0, unsynced: 0 };
    let written = writing.all(first, &mut bytes);
    written.map_err(|error| error.failure(kept))
}

/// An open of the file, which is empty at first.
struct Writing<'a> {
    session: &'a dyn Asks,
    written: u64,
    unsynced: u64,
}

/// The reason why the file has not got all bytes.
enum Cut {
    /// A failure of its own.
    Failure(Failure),
    /// The answer of the server.
    Refused(Error),
}

impl Writing<'_> {
    fn all(&mut self, first: Option<Vec<u8>>, bytes: &mut KeptBytes<'_>) -> Result<(), Cut> {
        let mut next = first;
        while let Some(part) = next {
            self.part(&part)?;
            next = bytes.next_part().map_err(Cut::Failure)?;
        }
        self.sync()?;
        // It is safe: the session ends both opens anyway.
        for open in [FILE, KEPT] {
            let _ended = self.session.ask(Request::Release { open }, Bulk::None);
        }
        Ok(())
    }

    fn part(&mut self, part: &[u8]) -> Result<(), Cut> {
        let request = Request::Write { open: FILE, offset: self.written, flags: WriteFlags::NONE };
        let Reply::Written { bytes, .. } = self.ask(request, Bulk::Borrowed(part))? else {
            return Err(Cut::Refused(Code::Bug.into()));
        };
        if bytes != part.len() as u64 {
            return Err(Cut::Refused(Code::NoSpace.into()));
        }
        self.written += bytes;
        self.unsynced += bytes;
        if self.unsynced >= SYNCED_AT_ONCE {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Cut> {
        self.ask(Request::Fsync { open: FILE, data_only: false }, Bulk::None)?;
        self.unsynced = 0;
        Ok(())
    }

    fn ask(&self, request: Request, bulk: Bulk<'_>) -> Result<Reply, Cut> {
        self.session.ask(request, bulk).map_err(Cut::Failure)?.map_err(Cut::Refused)
    }
}

impl Cut {
    /// Returns the failure of the command, whose file has not got all bytes.
    fn failure(self, kept: &ConflictLine) -> Failure {
        let failure = match self {
            Self::Failure(failure) => failure,
            Self::Refused(error) => not_written(kept, error),
        };
        failure.at_risk("yes, the file is not whole; what is kept is, so repeat the command")
    }
}

fn not_read(error: Error) -> Failure {
    Failure::new(Exit::from(error.kind()), BytesError::NotRead(error))
        .hint("see `pelago conflicts`: it may be decided already")
}

fn not_opened(kept: &ConflictLine, error: Error) -> Failure {
    let is_unknown = error.code == Code::TimedOut;
    let failure = not_written(kept, error);
    match is_unknown {
        true => failure.at_risk("yes, the file may be empty; what is kept is whole"),
        false => failure,
    }
}

/// Returns the failure of a command that changes the file.
pub(super) fn not_written(kept: &ConflictLine, source: Error) -> Failure {
    let hint = match source.code {
        Code::HostDown | Code::TimedOut => "what is kept stays: repeat it when the line is back",
        Code::Stale | Code::NotFound => {
            "the file is gone: `--save FILE` copies what is kept, `--keep theirs` removes it"
        }
        _ => "what is kept stays: repeat it",
    };
    let office = kept.office.clone();
    Failure::new(Exit::from(source.kind()), BytesError::NotWritten { office, source }).hint(hint)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use pelago_wire::Buffer;

    use super::*;

    /// A server with a kept version and a file.
    struct Server {
        kept: Vec<u8>,
        file: RefCell<Vec<u8>>,
        /// Bytes of the file that are safe.
        safe: RefCell<usize>,
        /// The number of requests after which the home cannot be reached.
        left: RefCell<usize>,
    }

    impl Server {
        fn new(bytes: usize, requests: usize) -> Self {
            let kept = (0..bytes).map(|at| (at / 777) as u8).collect();
            let file = RefCell::new(b"theirs".to_vec());
            Self { kept, file, safe: RefCell::new(0), left: RefCell::new(requests) }
        }

        fn line(&self) -> ConflictLine {
            ConflictLine { bytes: self.kept.len() as u64, ..ConflictLine::sample() }
        }
    }

    impl Asks for Server {
        fn ask(&self, request: Request, bulk: Bulk<'_>) -> Outcome<Result<Reply, Error>> {
            let mut left = self.left.borrow_mut();
            if *left == 0 {
                return Ok(Err(Code::HostDown.into()));
            }
            *left -= 1;
            let mut file = self.file.borrow_mut();
            let part = bulk.into_bytes();
            Ok(Ok(match request {
                Request::Open { flags, .. } => {
                    if flags.truncate {
                        file.clear();
                    }
                    Reply::Done
                }
                Request::Read { open: KEPT, offset, size } => {
                    let from = self.kept.len().min(offset as usize);
                    let to = self.kept.len().min(from + size as usize);
                    Reply::Data(Buffer::new(self.kept[from..to].to_vec()))
                }
                Request::Write { open: FILE, offset, .. } => {
                    assert_eq!(offset, file.len() as u64);
                    file.extend_from_slice(&part);
                    Reply::Written { bytes: part.len() as u64, size: file.len() as u64 }
                }
                Request::Fsync { open: FILE, .. } => {
                    *self.safe.borrow_mut() = file.len();
                    Reply::Done
                }
                Request::Release { .. } => Reply::Done,
                other => panic!("{other:?}"),
            }))
        }
    }

    #[test]
    fn the_file_has_the_bytes_and_they_are_safe() {
        for bytes in [0, 5, limits::IO_BYTES, limits::IO_BYTES * 65 + 3] {
            let server = Server::new(bytes, usize::MAX);
            write_over(&server, &server.line(), Handle::ROOT).unwrap();
            assert!(*server.file.borrow() == server.kept, "{bytes}");
            assert_eq!(*server.safe.borrow(), bytes);
        }
    }

    /// Removes the kept version only after a success.
    #[test]
    fn each_cut_before_the_bytes_are_safe_is_a_failure() {
        let mut is_whole = false;
        for requests in 0.. {
            let server = Server::new(limits::IO_BYTES * 2 + 3, requests);
            let written = write_over(&server, &server.line(), Handle::ROOT);
            let is_safe = *server.safe.borrow() == server.kept.len();
            assert_eq!(written.is_ok(), is_safe, "{requests}");
            let Err(failure) = written else {
                is_whole = true;
                break;
            };
            let failure = failure.to_json();
            assert_eq!(failure["error"]["exit"], 5);
            let has_theirs = *server.file.borrow() == b"theirs";
            assert_eq!(failure["error"]["data_at_risk"], !has_theirs, "{requests}");
        }
        assert!(is_whole);
    }

    #[test]
    fn a_version_that_is_shorter_or_longer_than_listed_is_not_taken() {
        let server = Server::new(limits::IO_BYTES + 3, usize::MAX);
        for bytes in [3, limits::IO_BYTES as u64, server.kept.len() as u64 + 1] {
            let line = ConflictLine { bytes, ..server.line() };
            assert!(write_over(&server, &line, Handle::ROOT).is_err(), "{bytes}");
        }
    }
}
