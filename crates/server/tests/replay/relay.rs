//! A relay between a client and its server, which loses replies.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use pelago_wire::frame::{FrameKind, HEADER_BYTES, Header};

/// Passes connections on to a server.
pub(crate) struct Relay {
    pub(crate) socket: PathBuf,
    answers: Arc<Answers>,
    _folder: tempfile::TempDir,
}

struct Answers {
    /// How many replies still pass.
    pass: AtomicUsize,
    /// Replies that did not.
    lost: AtomicUsize,
    is_over: AtomicBool,
}

impl Relay {
    pub(crate) fn new(server: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let server = server.to_owned();
        let listener = UnixListener::bind(&socket).unwrap();
        let pass = AtomicUsize::new(usize::MAX);
        let lost = AtomicUsize::new(0);
        let is_over = AtomicBool::new(false);
        let answers = Arc::new(Answers { pass, lost, is_over });
        let of_thread = Arc::clone(&answers);
        let run = move || {
            for client in listener.incoming() {
                if of_thread.is_over.load(Ordering::Relaxed) {
                    return;
                }
                // Without a server the client tries again.
                if let (Ok(client), Ok(server)) = (client, UnixStream::connect(&server)) {
                    connect(&client, &server, &of_thread);
                }
            }
        };
        thread::Builder::new().spawn(run).unwrap();
        Self { socket, answers, _folder: folder }
    }

    /// Loses all replies behind the next ones.
    pub(crate) fn pass(&self, replies: usize) {
        self.answers.pass.store(replies, Ordering::Relaxed);
    }

    /// Returns how many replies were lost.
    pub(crate) fn lost(&self) -> usize {
        self.answers.lost.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.answers.is_over.store(true, Ordering::Relaxed);
        // It wakes the thread; an error says that it has ended.
        drop(UnixStream::connect(&self.socket));
    }
}

/// Passes on what both sides send, until one of them ends.
fn connect(client: &UnixStream, server: &UnixStream, answers: &Arc<Answers>) {
    let [mut from_client, mut to_client] = [client, client].map(|end| end.try_clone().unwrap());
    let [mut from_server, mut to_server] = [server, server].map(|end| end.try_clone().unwrap());
    let ask = move || {
        // An end of either connection ends both.
        drop(io::copy(&mut from_client, &mut to_server));
        drop(to_server.shutdown(Shutdown::Both));
    };
    thread::Builder::new().spawn(ask).unwrap();
    let answers = Arc::clone(answers);
    let answer = move || {
        while pass_frame(&mut from_server, &mut to_client, &answers).is_ok() {}
        drop(to_client.shutdown(Shutdown::Both));
    };
    thread::Builder::new().spawn(answer).unwrap();
}

fn pass_frame(from: &mut UnixStream, to: &mut UnixStream, answers: &Answers) -> io::Result<()> {
    let mut bytes = [0; HEADER_BYTES];
    from.read_exact(&mut bytes)?;
    let header = Header::decode(&bytes).unwrap();
    let mut frame = bytes.to_vec();
    frame.resize(HEADER_BYTES + (header.body + header.bulk) as usize, 0);
    from.read_exact(&mut frame[HEADER_BYTES..])?;
    if header.kind == FrameKind::Reply {
        let one_less = |pass: usize| pass.checked_sub(1);
        if answers.pass.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
            answers.lost.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
    }
    to.write_all(&frame)
}
