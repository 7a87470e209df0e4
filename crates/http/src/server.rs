//! The HTTP listener, and the thread that serves its connections.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pelago_client::Files;
use pelago_wire::Pins;
use pelago_wire::limits::{BLOCK_BYTES, HTTP_LEAST_BYTES, HTTP_STALLED_SECONDS};
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::access::ReadAs;
use crate::delivery::Delivery;
use crate::response::Served;
use crate::traffic::HttpTraffic;
use crate::tree::Tree;
use crate::watched::Watched;

/// The time within which a client must take [`HTTP_LEAST_BYTES`], if as many bytes wait for it.
const TAKEN_WITHIN: Duration = Duration::from_secs(HTTP_STALLED_SECONDS);
/// The time within which a client that has connected must send the headers of its request.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// The number of threads that wait for the disk or compute hashes.
const WORKERS: usize = 32;
/// The limit for the headers of a request.
const HEADER_BYTES: usize = 16 << 10;
/// A connection takes more of the body while it has less than this: it sends two blocks at a time.
const WRITE_BYTES: usize = BLOCK_BYTES + HEADER_BYTES;
/// The pause after a failed accept, which fails if there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The tree that is served, and the limits of the server.
pub struct HttpOptions {
    /// The tree.
    pub files: Files,
    /// The user as whom the server reads it.
    pub reader: ReadAs,
    /// Pins the files that are sent. A file that is open for writing cannot be pinned, and is not
    /// served.
    pub pins: Arc<dyn Pins>,
    /// Bytes of the extents that are kept in memory; at least two extents are. Blocks from the page
    /// cache take up to a quarter as much.
    pub memory_bytes: u64,
    /// Connections at a time; others wait until one ends.
    pub connections: usize,
}

/// A server of one tree. Its drop closes all connections.
pub struct HttpServer {
    address: SocketAddr,
    delivery: Arc<Delivery>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts a server at an address of this machine. For port 0 the system chooses a port.
    ///
    /// # Errors
    /// Returns the error of the system if this process cannot listen there, or gets no thread.
    pub fn open(address: SocketAddr, options: HttpOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let HttpOptions { files, reader, pins, memory_bytes, connections } = options;
        let tree = Arc::new(Tree { files, reader, pins });
        let is_local = address.ip().is_loopback();
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(WORKERS)
            .build()?;
        let delivery = Delivery::new(memory_bytes, runtime.handle().clone());
        let served = Served::new(tree, Arc::clone(&delivery), is_local);
        let (end, ended) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = accept(listener, Arc::new(served), connections) => {}
                    _ended = ended => {}
                }
            });
        };
        let thread = thread::Builder::new().name("http".to_owned()).spawn(serve)?;
        Ok(Self { address, delivery, end: Some(end), thread: Some(thread) })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the counters of the server.
    #[must_use]
    pub fn traffic(&self) -> HttpTraffic {
        self.delivery.traffic()
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the HTTP server has panicked");
        }
    }
}

impl fmt::Debug for HttpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpServer({})", self.address)
    }
}

/// Serves connections. All of them end with this future.
async fn accept(listener: TcpListener, served: Arc<Served>, connections: usize) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the HTTP server cannot listen"),
    };
    let room = Arc::new(Semaphore::new(connections.max(1)));
    let mut tasks = JoinSet::new();
    loop {
        while tasks.try_join_next().is_some() {}
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "the HTTP server cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let places = served.places_of(peer.ip());
        let served = Arc::clone(&served);
        let answer = move |request| {
            let served = Arc::clone(&served);
            let places = places.clone();
            async move { Ok::<_, std::convert::Infallible>(served.answer(request, places).await) }
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WITHIN)
            .max_header_size(HEADER_BYTES)
            .max_buf_size(WRITE_BYTES)
            .serve_connection(
                TokioIo::new(Watched::new(stream, TAKEN_WITHIN, HTTP_LEAST_BYTES)),
                service_fn(answer),
            );
        tasks.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection of the HTTP server has ended");
            }
            drop(place);
        });
    }
}
