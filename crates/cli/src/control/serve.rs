//! The server end of the control socket.

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

use super::{ControlReply, LINE_BYTES, Request, remove_socket, short_path};

/// The limit for connections at a time; further ones are closed at once.
const CONNECTIONS: usize = 16;
/// The longest time that a peer may take to send or receive a line.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// The handler of requests, which is called from several threads.
pub(crate) type Handler = dyn Fn(Request) -> ControlReply + Send + Sync;

/// The control socket of a volume that is up. Its drop waits for requests under way, then removes
/// the socket.
pub(crate) struct Control {
    folder: Folder,
    in_flight: Arc<InFlight>,
}

/// The number of requests that were received and not answered yet. Its lock is a leaf.
#[derive(Default)]
pub(crate) struct InFlight {
    count: Mutex<usize>,
    none: Condvar,
}

impl Control {
    /// Creates the socket in this folder and listens on it. The caller holds the volume's lock.
    pub(crate) fn open(folder: &Folder, handler: Arc<Handler>) -> io::Result<Self> {
        let short = short_path(folder);
        remove_socket(&short)?;
        let listener = UnixListener::bind(&short)?;
        let in_flight = Arc::new(InFlight::default());
        let counter = Arc::clone(&in_flight);
        let serve = move || accept(&listener, &handler, &counter);
        thread::Builder::new().name("control".to_owned()).spawn(serve)?;
        Ok(Self { folder: folder.clone(), in_flight })
    }
}

impl Control {
    /// Returns the requests that are not answered yet.
    pub(crate) fn answers(&self) -> Arc<InFlight> {
        Arc::clone(&self.in_flight)
    }
}

impl Drop for Control {
    /// Waits until the request that stopped this process is answered.
    fn drop(&mut self) {
        self.in_flight.wait();
        if let Err(error) = remove_socket(&short_path(&self.folder)) {
            tracing::debug!(%error, "the control socket stays; the next start replaces it");
        }
    }
}

impl InFlight {
    fn begin(&self) {
        *self.count.lock() += 1;
    }

    fn end(&self) {
        *self.count.lock() -= 1;
        self.none.notify_all();
    }

    /// Waits until all are answered, for at most [`IO_TIMEOUT`].
    pub(crate) fn wait(&self) {
        let mut count = self.count.lock();
        let deadline = Instant::now() + IO_TIMEOUT;
        while *count > 0 && !self.none.wait_until(&mut count, deadline).timed_out() {}
    }
}

/// Accepts connections until the process ends.
fn accept(listener: &UnixListener, handler: &Arc<Handler>, in_flight: &Arc<InFlight>) {
    let busy = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                // Most likely no descriptor is free; no event says when one is.
                tracing::warn!(%error, "a control connection could not be accepted");
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if busy.load(Ordering::Acquire) >= CONNECTIONS {
            continue;
        }
        busy.fetch_add(1, Ordering::AcqRel);
        let handler = Arc::clone(handler);
        let done = Arc::clone(&busy);
        let in_flight = Arc::clone(in_flight);
        let answer = move || {
            if let Err(error) = converse(stream, &*handler, &in_flight) {
                tracing::debug!(%error, "a control request was not answered");
            }
            done.fetch_sub(1, Ordering::AcqRel);
        };
        if thread::Builder::new().name("answer".to_owned()).spawn(answer).is_err() {
            busy.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn converse(mut stream: UnixStream, handler: &Handler, in_flight: &InFlight) -> io::Result<()> {
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let peer = socket_peercred(&stream)?.uid;
    if !peer.is_root() && peer != geteuid() {
        return send(&mut stream, &ControlReply::Denied);
    }
    let mut line = Vec::new();
    BufReader::new(&stream).take(LINE_BYTES).read_until(b'\n', &mut line)?;
    let request = Request::parse(&line);
    in_flight.begin();
    let unmounts = matches!(request, Ok(Request::Unmount { .. }));
    let answer = match request {
        Ok(request) => handler(request),
        Err(says) => ControlReply::Failed(says.to_owned()),
    };
    let sent = send(&mut stream, &answer);
    in_flight.end();
    sent?;
    if unmounts {
        // The connection stays open: its end informs the peer that this process has ended.
        stream.set_read_timeout(None)?;
        let _gone = stream.read(&mut [0]);
    }
    Ok(())
}

fn send(stream: &mut UnixStream, answer: &ControlReply) -> io::Result<()> {
    stream.write_all(format!("{}\n", answer.to_json()).as_bytes())
}
