//! A client that downloads a file as slowly as the test wants.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use pelago_wire::blocks::{BlockEvent, BlockReader};

/// A deadline for what must come; no test waits for it.
const DEADLINE: Duration = Duration::from_secs(120);

/// The request of a client for a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As it is.
    Plain,
    /// As blocks.
    Blocks,
}

/// The result of a download.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All bytes of a version.
    Whole(Vec<u8>),
    /// The server has said that the file has changed: by an early end, or in so many words.
    Changed,
    /// Blocks without an end.
    Cut,
    /// This status and no file.
    Refused(u16),
}

/// A download of which the head of the answer was read.
pub(crate) struct Download {
    form: Form,
    stream: TcpStream,
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Download {
    /// Asks for a file, and waits for the head of the answer: by then the file is pinned.
    pub(crate) fn begin(address: &str, name: &str, form: Form) -> Self {
        let accept = match form {
            Form::Plain => "*/*",
            Form::Blocks => "application/vnd.pelago.blocks",
        };
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        let request = format!(
            "GET /{name} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\
             Accept: {accept}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut got = Vec::new();
        let mut buffer = [0; 512];
        let end = loop {
            let read = stream.read(&mut buffer).unwrap();
            assert!(read > 0, "the answer has a head");
            got.extend(&buffer[..read]);
            if let Some(end) = got.windows(4).position(|it| it == b"\r\n\r\n") {
                break end;
            }
        };
        let head = String::from_utf8(got[..end].to_vec()).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { form, stream, status, head, body: got[end + 4..].to_vec() }
    }

    pub(crate) fn status(&self) -> u16 {
        self.status
    }

    /// Takes the rest.
    pub(crate) fn end(mut self) -> Outcome {
        // The connection ends in order or not.
        let _ended = self.stream.read_to_end(&mut self.body);
        if self.status != 200 {
            return Outcome::Refused(self.status);
        }
        match self.form {
            Form::Plain => {
                let header = self.head.lines().find_map(|it| it.strip_prefix("content-length: "));
                let length: usize = header.unwrap().parse().unwrap();
                assert!(self.body.len() <= length);
                if self.body.len() == length { Outcome::Whole(self.body) } else { Outcome::Changed }
            }
            Form::Blocks => read_blocks(&unchunked(&self.body)),
        }
    }
}

/// Returns the content of the chunks that came whole.
fn unchunked(mut body: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(end) = body.windows(2).position(|it| it == b"\r\n") {
        let size = std::str::from_utf8(&body[..end]).unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        let Some(chunk) = body.get(end + 2..end + 2 + size).filter(|_| size > 0) else { break };
        all.extend(chunk);
        body = body.get(end + 2 + size + 2..).unwrap_or_default();
    }
    all
}

fn read_blocks(mut body: &[u8]) -> Outcome {
    let mut reader = BlockReader::default();
    let mut file = Vec::new();
    let mut missing = 0;
    while let Some(event) = reader.next(&mut body).unwrap() {
        match event {
            BlockEvent::Head(extents) => {
                file = vec![0; extents.size() as usize];
                missing = file.len();
            }
            BlockEvent::Block { block, bytes } => {
                let at = (block << 16) as usize;
                file[at..at + bytes.len()].copy_from_slice(bytes);
                missing -= bytes.len();
            }
            // `get` checks the hashes.
            BlockEvent::Hash { .. } => {}
            BlockEvent::Changed => return Outcome::Changed,
            BlockEvent::End { .. } => {
                assert_eq!(missing, 0);
                return Outcome::Whole(file);
            }
            event => panic!("{event:?}"),
        }
    }
    Outcome::Cut
}
