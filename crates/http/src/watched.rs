//! A connection that ends if its client takes the bytes that wait for it too slowly.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

/// A connection that is cut if bytes wait for `limit` and the client takes less than `least` bytes
/// in that time.
pub(crate) struct Watched {
    stream: TcpStream,
    /// The longest time for which bytes may wait until the client has taken `least` bytes.
    limit: Duration,
    least: usize,
    /// The timer that ends at that limit.
    alarm: Option<Pin<Box<Sleep>>>,
    /// The time since which bytes wait now.
    since: Option<Instant>,
    /// The time for which bytes waited before, since `taken` was 0.
    waited: Duration,
    /// Bytes that were taken since the limit began anew.
    taken: usize,
}

impl Watched {
    pub(crate) const fn new(stream: TcpStream, limit: Duration, least: usize) -> Self {
        Self { stream, limit, least, alarm: None, since: None, waited: Duration::ZERO, taken: 0 }
    }

    /// Passes on the result of a write, unless bytes wait for longer than the limit.
    fn watch(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = written {
            if let Some(since) = self.since.take() {
                self.waited += since.elapsed();
            }
            return Poll::Ready(written.inspect(|count| self.note_taken(*count)));
        }
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(self.limit)));
        if self.since.is_none() {
            let now = Instant::now();
            self.since = Some(now);
            alarm.as_mut().reset(now + self.limit.saturating_sub(self.waited));
        }
        ready!(alarm.as_mut().poll(context));
        self.since = None;
        self.waited = self.limit;
        // The kernel wakes this task only once a third of the socket's buffer is free, which takes
        // a slow client longer. If the buffer has any room, the client has taken something.
        let count = match send(&self.stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Err(Errno::AGAIN) => 0,
            sent => sent?,
        };
        self.note_taken(count);
        // These bytes may be one small piece. The next writes count the rest of the room; the first
        // write without room ends the connection at once, unless these bytes were enough.
        match count {
            0 => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            _ => Poll::Ready(Ok(count)),
        }
    }

    /// Counts bytes that were taken. Once they are enough, the limit begins anew.
    fn note_taken(&mut self, count: usize) {
        self.taken += count;
        if self.taken >= self.least {
            self.taken = 0;
            self.waited = Duration::ZERO;
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
    use std::sync::mpsc;
    use std::{net, thread};

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
            let mut watched = Watched::new(TcpStream::from_std(served).unwrap(), LIMIT, 1);
            write_all(&mut watched, &vec![0; 64 << 20]).await.unwrap_err()
        });
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(client);
    }

    #[test]
    fn a_client_that_takes_little_at_a_time_is_cut() {
        let (mut client, served) = connection();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let taker = thread::Builder::new().spawn(move || {
            let mut total = 0;
            while let Ok(count @ 1..) = client.read(&mut [0; 64]) {
                total += count;
                // The pace of the client, not a wait for a condition.
                thread::sleep(LIMIT / 10);
            }
            total
        });
        let error = runtime.block_on(async {
            let stream = TcpStream::from_std(served).unwrap();
            let mut watched = Watched::new(stream, LIMIT, 64 << 20);
            write_all(&mut watched, &vec![0; 64 << 20]).await.unwrap_err()
        });
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(taker);
    }

    /// The kernel reports room only once a third of its buffer is free: a client that takes enough
    /// may need more than the limit for that.
    #[test]
    fn a_slow_client_that_takes_enough_gets_everything() {
        const LIMIT: Duration = Duration::from_millis(500);
        const BYTES_EACH_MS: usize = 500;
        const MOST: usize = 64 << 20;
        let (mut client, served) = connection();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let (stop, stopped) = mpsc::channel::<()>();
        let taker = thread::Builder::new().spawn(move || {
            let begun = std::time::Instant::now();
            let mut taken = 0;
            let mut bytes = vec![0; 64 << 10];
            while stopped.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
                // It catches up after a pause by a busy machine.
                let due = begun.elapsed().as_millis() as usize * BYTES_EACH_MS;
                match client.read(&mut bytes[..due.saturating_sub(taken).min(64 << 10)]) {
                    Ok(count) => taken += count,
                    Err(error) => panic!("{error}"),
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
        runtime.block_on(async {
            let stream = TcpStream::from_std(served).unwrap();
            let mut watched = Watched::new(stream, LIMIT, 64 << 10);
            let mut waits = 0;
            let mut total = 0;
            // What the system buffers goes at once; then there were several limits.
            while waits < 8 {
                let before = Instant::now();
                let bytes = vec![0; 32 << 10];
                write_all(&mut watched, &bytes).await.unwrap();
                total += bytes.len();
                assert!(total < MOST);
                waits += usize::from(before.elapsed() >= LIMIT / 4);
            }
        });
        drop(stop);
        taker.unwrap().join().unwrap();
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
            let mut watched = Watched::new(TcpStream::from_std(served).unwrap(), limit, 1);
            write_all(&mut watched, &vec![0; 16 << 20]).await.unwrap();
        });
        assert_eq!(taker.unwrap().join().unwrap(), 16 << 20);
    }
}
