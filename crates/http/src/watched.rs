//! A connection that ends if the client takes nothing for long.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// A connection whose client takes something from time to time, or is cut.
pub(crate) struct Watched {
    stream: TcpStream,
    /// The longest time for which it may take nothing.
    limit: Duration,
    /// Rings if it has taken nothing since it could take no more.
    alarm: Option<Pin<Box<Sleep>>>,
    is_blocked: bool,
}

impl Watched {
    pub(crate) const fn new(stream: TcpStream, limit: Duration) -> Self {
        Self { stream, limit, alarm: None, is_blocked: false }
    }

    /// Passes the result of a write on, unless it waits for longer than the limit.
    fn watch(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.is_blocked = false;
            return written;
        }
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        if !self.is_blocked {
            self.is_blocked = true;
            alarm.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(alarm.as_mut().poll(context));
        self.is_blocked = false;
        // The system wakes us only once a third of the buffer is free, which takes a slow client
        // longer. If the buffer has room for anything, the client has taken something.
        match send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            sent => Poll::Ready(Ok(sent?)),
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        let first = parts.iter().find(|part| !part.is_empty());
        self.watch(context, written, first.map_or(&[], |part| part))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read;
    use std::net;
    use std::thread;

    use tokio::runtime::Builder;

    use super::*;

    const LIMIT: Duration = Duration::from_millis(50);

    fn connection() -> (net::TcpStream, net::TcpStream) {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (served, _) = listener.accept().unwrap();
        served.set_nonblocking(true).unwrap();
        (client, served)
    }

    async fn write_all(watched: &mut Watched, mut left: &[u8]) -> io::Result<()> {
        while !left.is_empty() {
            let written = poll_fn(|context| Pin::new(&mut *watched).poll_write(context, left));
            left = &left[written.await?..];
        }
        Ok(())
    }

    #[test]
    fn a_client_that_takes_nothing_is_cut() {
        let (client, served) = connection();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(async {
            let mut watched = Watched::new(TcpStream::from_std(served).unwrap(), LIMIT);
            write_all(&mut watched, &vec![0; 64 << 20]).await.unwrap_err()
        });
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(client);
    }

    #[test]
    fn a_client_that_takes_everything_gets_everything() {
        let (mut client, served) = connection();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let limit = Duration::from_secs(100);
        let taker = thread::Builder::new().spawn(move || {
            let mut taken = Vec::new();
            client.read_to_end(&mut taken).unwrap();
            taken.len()
        });
        runtime.block_on(async {
            let mut watched = Watched::new(TcpStream::from_std(served).unwrap(), limit);
            write_all(&mut watched, &vec![0; 16 << 20]).await.unwrap();
        });
        assert_eq!(taker.unwrap().join().unwrap(), 16 << 20);
    }
}
