//! The listener, and the thread that serves its connections.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use std::{fmt, io};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use pelago_client::Files;
use pelago_wire::InodeId;
use tokio::runtime::Builder;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

use crate::access::ReadAs;
use crate::response::Served;
use crate::tree::Tree;

/// Connections at a time; others wait until one ends. Each may have three pieces of a file in
/// memory ([`crate::body`], [`crate::blocks`]): one that is read, one that waits, one that is sent;
/// or a have-map, which is as long as one of them.
const CONNECTIONS: usize = 256;
/// A client that has connected sends its request within this time.
const HEADERS_WITHIN: Duration = Duration::from_secs(30);
/// The headers of a request.
const HEADER_BYTES: usize = 16 << 10;
/// The pause after a connection could not be accepted: there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// What is served.
pub struct HttpOptions {
    /// The tree.
    pub files: Files,
    /// The user as whom it is read.
    pub reader: ReadAs,
    /// Returns whether a file is open for writing: it is not served then.
    pub is_written: Box<dyn Fn(InodeId) -> bool + Send + Sync>,
}

/// A server of one tree. Its end closes all connections.
pub struct HttpServer {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts a server at an address of this machine. With port 0 the system chooses one.
    ///
    /// # Errors
    /// The system's, if it does not let this process listen there, or gives no thread.
    pub fn open(address: SocketAddr, options: HttpOptions) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let HttpOptions { files, reader, is_written } = options;
        let tree = Arc::new(Tree { files, reader, is_written });
        let is_local = address.ip().is_loopback();
        let served = Arc::new(Served { tree, hashes: Arc::default(), is_local });
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (end, ended) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async move {
                tokio::select! {
                    () = accept(listener, served) => {}
                    _ended = ended => {}
                }
            });
        };
        let thread = thread::Builder::new().name("http".to_owned()).spawn(serve)?;
        Ok(Self { address, end: Some(end), thread: Some(thread) })
    }

    /// Returns the address at which it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
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
async fn accept(listener: TcpListener, served: Arc<Served>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "the HTTP server cannot listen"),
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        // It is never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _peer)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the HTTP server cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let served = Arc::clone(&served);
        let answer = move |request| {
            let served = Arc::clone(&served);
            async move { Ok::<_, std::convert::Infallible>(served.answer(request).await) }
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADERS_WITHIN)
            .max_buf_size(HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service_fn(answer));
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection of the HTTP server has ended");
            }
            drop(place);
        });
    }
}
