//! The side that answers.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_store::folder::Folder;
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
    folder: Folder,
    pending: Arc<Pending>,
}

/// Questions that were heard and not answered yet. Its lock is a leaf.
#[derive(Default)]
struct Pending {
    count: Mutex<usize>,
    none: Condvar,
}

impl Control {
    /// Listens in this folder, whose volume this process has to itself.
    pub(crate) fn open(folder: &Folder, handler: Arc<Handler>) -> io::Result<Self> {
        let short = short_path(folder);
        remove_socket(&short)?;
        let listener = UnixListener::bind(&short)?;
        let pending = Arc::new(Pending::default());
        let heard = Arc::clone(&pending);
        let serve = move || accept(&listener, &handler, &heard);
        thread::Builder::new().name("control".to_owned()).spawn(serve)?;
        Ok(Self { folder: folder.clone(), pending })
    }
}

impl Drop for Control {
    /// Whoever asked is answered first: who asked for the end is what ended it.
    fn drop(&mut self) {
        self.pending.wait();
        if let Err(error) = remove_socket(&short_path(&self.folder)) {
            tracing::debug!(%error, "the socket stays behind; the next life replaces it");
        }
    }
}

impl Pending {
    fn begin(&self) {
        *self.count.lock() += 1;
    }

    fn end(&self) {
        *self.count.lock() -= 1;
        self.none.notify_all();
    }

    /// Waits until all are answered; not longer than somebody may take to hear.
    fn wait(&self) {
        let mut count = self.count.lock();
        let deadline = Instant::now() + PATIENCE;
        while *count > 0 && !self.none.wait_until(&mut count, deadline).timed_out() {}
    }
}

/// Lives as long as the process.
fn accept(listener: &UnixListener, handler: &Arc<Handler>, pending: &Arc<Pending>) {
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
        let pending = Arc::clone(pending);
        let answer = move || {
            if let Err(error) = converse(stream, &*handler, &pending) {
                tracing::debug!(%error, "a question was not answered");
            }
            done.fetch_sub(1, Ordering::AcqRel);
        };
        if thread::Builder::new().name("answer".to_owned()).spawn(answer).is_err() {
            busy.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn converse(mut stream: UnixStream, handler: &Handler, pending: &Pending) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let peer = socket_peercred(&stream)?.uid;
    if !peer.is_root() && peer != geteuid() {
        return say(&mut stream, &json!({ "error": "denied" }));
    }
    let mut line = Vec::new();
    BufReader::new(&stream).take(LINE_BYTES).read_until(b'\n', &mut line)?;
    let request = Request::parse(&line);
    pending.begin();
    let answer = match request {
        Ok(request) => handler(request),
        Err(says) => json!({ "error": says }),
    };
    let said = say(&mut stream, &answer);
    pending.end();
    said?;
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
