//! A request to a server, over a connection of its own.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{HOST, USER_AGENT};
use hyper::http::request::Builder;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::body::Content;
use crate::fetch::url::Url;

/// The longest time until a server accepts a connection, and until it begins its response.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// The limit for the headers of a response.
const HEADER_BYTES: usize = 128 << 10;
const AGENT: &str = concat!("pelago/", env!("CARGO_PKG_VERSION"));

/// A response whose body is still to come.
pub(super) struct Incomplete {
    pub(super) response: Response<Incoming>,
    /// The longest time between two parts of the body.
    idle: Duration,
}

/// Sends a request; `most` limits each wait. The error, a text for people, says why the server
/// cannot be reached now.
pub(super) async fn ask(
    url: &Url,
    most: Duration,
    request: Builder,
    body: Vec<u8>,
) -> Result<Incomplete, String> {
    let most = most.min(ANSWER_WITHIN);
    let request: Request<Content> = request
        .uri(&url.path)
        .header(HOST, &url.authority)
        .header(USER_AGENT, AGENT)
        .body(Content::Ready(Bytes::from(body)))
        .map_err(|error| error.to_string())?;
    let connect = TcpStream::connect((url.host.as_str(), url.port));
    let stream = within(most, "it does not accept a connection", connect).await?;
    let handshake = http1::Builder::new()
        .max_buf_size(HEADER_BYTES)
        .handshake::<_, Content>(TokioIo::new(stream));
    let (mut sender, connection) = within(most, "it does not answer", handshake).await?;
    // The task ends with the response, or with the runtime.
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection of a download has ended");
        }
    });
    let response = within(most, "it does not answer", sender.send_request(request)).await?;
    Ok(Incomplete { response, idle: most })
}

impl Incomplete {
    pub(super) fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the next bytes of the body; `None` at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let body = self.response.body_mut();
            let next = poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
            let frame = timeout(self.idle, next)
                .await
                .map_err(|_late| format!("it has sent nothing for {} s", self.idle.as_secs()))?;
            match frame.transpose().map_err(|error| chain(&error))? {
                None => return Ok(None),
                // Trailers say nothing.
                Some(frame) => match frame.into_data() {
                    Ok(bytes) => return Ok(Some(bytes)),
                    Err(_trailers) => {}
                },
            }
        }
    }

    /// Returns the first line of the body, if it is a short text.
    pub(super) async fn first_line(&mut self) -> String {
        let bytes = self.next().await.ok().flatten().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
        text.lines().next().unwrap_or_default().to_owned()
    }
}

async fn within<T, E: std::error::Error>(
    most: Duration,
    late: &str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, String> {
    match timeout(most, work).await {
        Ok(result) => result.map_err(|error| chain(&error)),
        Err(_late) => Err(format!("{late} within {} s", most.as_secs())),
    }
}

/// Returns an error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
