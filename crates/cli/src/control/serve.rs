//! The side that answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde_json::{Value, json};

use super::{LINE_BYTES, Request, remove_socket, short_path};

/// Connections at a time; more are closed at once.
const CONNECTIONS: usize = 16;
/// How long somebody may take to say or hear a line.
const PATIENCE: Duration = Duration::from_secs(10);

/// What answers a request; called from several threads.
pub(crate) type Handler = dyn Fn(Request) -> Value + Send + Sync;

/// The socket of a volume that is up; gone when dropped.
pub(crate) struct Control {
    path: PathBuf,
}

impl Control {
    /// Listens in `dir`, whose volume this process has to itself.
    pub(crate) fn open(dir: &Path, handler: Arc<Handler>) -> io::Result<Self> {
        let (_folder, short) = short_path(dir)?;
        remove_socket(&short)?;
        let listener = UnixListener::bind(&short)?;
        let serve = move || accept(&listener, &handler);
        thread::Builder::new().name("control".to_owned()).spawn(serve)?;
        Ok(Self { path: pelago_store::volume::socket_path(dir) })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Err(error) = remove_socket(&self.path) {
            tracing::debug!(%error, "the socket stays behind; the next life replaces it");
        }
    }
}

/// Lives as long as the process.
fn accept(listener: &UnixListener, handler: &Arc<Handler>) {
    let busy = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                // Out of descriptors, most likely: they come back, and there is no event for it.
                tracing::warn!(%error, "a question could not be heard");
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if busy.load(Ordering::Acquire) >= CONNECTIONS {
            continue;
        }
        busy.fetch_add(1, Ordering::AcqRel);
        let (handler, done) = (Arc::clone(handler), Arc::clone(&busy));
        let answer = move || {
            if let Err(error) = converse(stream, &*handler) {
                tracing::debug!(%error, "a question was not answered");
            }
            done.fetch_sub(1, Ordering::AcqRel);
        };
        if thread::Builder::new().name("answer".to_owned()).spawn(answer).is_err() {
            busy.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn converse(mut stream: UnixStream, handler: &Handler) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = socket_peercred(&stream)?.uid;
    if !peer.is_root() && peer != geteuid() {
        return say(&mut stream, &json!({ "error": "denied" }));
    }
    let mut line = Vec::new();
    BufReader::new(&stream).take(LINE_BYTES).read_until(b'\n', &mut line)?;
    let request = Request::parse(&line);
    let answer = match request {
        Ok(request) => handler(request),
        Err(says) => json!({ "error": says }),
    };
    say(&mut stream, &answer)?;
    if let Ok(Request::Unmount { .. }) = request {
        // Whoever asked learns from the end of the connection that this process has ended.
        stream.set_read_timeout(None)?;
        let _gone = stream.read(&mut [0]);
    }
    Ok(())
}

fn say(stream: &mut UnixStream, answer: &Value) -> io::Result<()> {
    stream.write_all(format!("{answer}\n").as_bytes())
}
