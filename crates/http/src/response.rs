//! Responses to requests: GET and HEAD of files and directories, and POST of a have-map.

use std::net::IpAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use hyper::header::{
    ACCEPT, ACCEPT_RANGES, ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HOST, HeaderName, HeaderValue, LAST_MODIFIED, LOCATION, RANGE, RETRY_AFTER, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::response::Builder;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use pelago_proto::deliver::Order;
use pelago_wire::blocks::{BLOCKS_TYPE, Extents, HaveMap};
use pelago_wire::limits::EXTENT_BYTES;
use pelago_wire::{Entry, FileKind, ModeRights};

use crate::blocks::Blocks;
use crate::body::Content;
use crate::conditions::{Verdict, Version, text};
use crate::delivery::{Client, Delivery};
use crate::failure::Failure;
use crate::listing::{self, Format};
use crate::pinned::PinnedFile;
use crate::places::{AddressPlaces, Places};
use crate::range::{self, Part};
use crate::target::Target;
use crate::tree::Tree;
use crate::{direct, have_map};

/// The time after which a client may repeat a request for a file that is open for writing, or to a
/// server with too many downloads.
const RETRY: Duration = Duration::from_secs(5);
/// The headers of each response. They make a browser revalidate a cached copy before it uses it,
/// run no script of a file, believe its media type, and show it to no page of another site.
const COMMON: [(HeaderName, &str); 4] = [
    (CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("content-security-policy"), "default-src 'none'; sandbox"),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// The tree that is served, and the state that its requests share.
pub(crate) struct Served {
    tree: Arc<Tree>,
    delivery: Arc<Delivery>,
    /// Permits for the memory of responses that do their own reads, and of have-maps that are
    /// received.
    places: Places,
    /// The server listens to this machine alone. The Host header of a request must then name this
    /// machine, or a web page of another site could read the response under a host name that was
    /// made to resolve to this address (DNS rebinding).
    is_local: bool,
}

/// The head of a request for a file, and its have-map.
struct FileRequest<'a> {
    path: &'a str,
    headers: &'a HeaderMap,
    is_head: bool,
    have: Option<Vec<u8>>,
    places: AddressPlaces,
}

impl Served {
    pub(crate) fn new(tree: Arc<Tree>, delivery: Arc<Delivery>, is_local: bool) -> Self {
        Self { tree, delivery, places: Places::new(), is_local }
    }

    /// Returns the memory permits for requests of a client at this address.
    pub(crate) fn places_of(&self, address: IpAddr) -> AddressPlaces {
        self.places.of(address)
    }

    /// Answers a request of a client with these memory permits. A HEAD gets the response to a GET;
    /// hyper leaves out its body.
    pub(crate) async fn answer<B>(
        self: Arc<Self>,
        request: Request<B>,
        places: AddressPlaces,
    ) -> Response<Content>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        match self.find(request, places).await {
            Ok(response) => response,
            Err(Failure(status, text)) => {
                let body = Content::Ready(Bytes::from(format!("{text}\n")));
                let answer = with_common(status).header(CONTENT_TYPE, "text/plain; charset=utf-8");
                let answer = match status {
                    StatusCode::SERVICE_UNAVAILABLE => answer.header(RETRY_AFTER, RETRY.as_secs()),
                    _ => answer,
                };
                finish(answer, body)
            }
        }
    }

    async fn find<B>(
        &self,
        request: Request<B>,
        places: AddressPlaces,
    ) -> Result<Response<Content>, Failure>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let (head, body) = request.into_parts();
        match head.method {
            Method::GET | Method::HEAD => {}
            Method::POST if have_map::accepts_blocks(&head.headers) => {}
            _ => {
                let answer = with_common(StatusCode::METHOD_NOT_ALLOWED);
                return Ok(finish(answer.header(ALLOW, "GET, HEAD, POST"), Content::EMPTY));
            }
        }
        if self.is_local && !names_this_machine(head.headers.get(HOST)) {
            let text = "this server is for this machine: ask it as localhost or by its address";
            return Err(Failure(StatusCode::MISDIRECTED_REQUEST, text.to_owned()));
        }
        if self.is_local && is_of_another_site(&head.headers) {
            let text = "this server is for this machine: a page of another site may not read it";
            return Err(Failure(StatusCode::FORBIDDEN, text.to_owned()));
        }
        let path = head.uri.path();
        let target = Target::parse(path)?;
        let have = match head.method {
            Method::POST => Some(have_map::receive(&head.headers, body, &places).await?),
            _ => None,
        };
        let found = self.tree.find(&target).await?;
        match found.attr.kind {
            FileKind::Regular => {
                let headers = &head.headers;
                let is_head = head.method == Method::HEAD;
                self.file(found, FileRequest { path, headers, is_head, have, places }).await
            }
            FileKind::Directory if !target.is_dir => {
                let answer = with_common(StatusCode::MOVED_PERMANENTLY);
                Ok(finish(answer.header(LOCATION, format!("{}/", path_on(path))), Content::EMPTY))
            }
            FileKind::Directory => {
                self.tree.check(ModeRights::READ, &found).await?;
                let accept = text(&head.headers, &ACCEPT);
                let format = Format::accepted(accept);
                let tree = Arc::clone(&self.tree);
                let body = listing::content(tree, found, shown(&target), format, places);
                let answer = with_common(StatusCode::OK);
                Ok(finish(answer.header(CONTENT_TYPE, format.media_type()), body))
            }
            _ => Err(Failure(StatusCode::FORBIDDEN, "this is no file".to_owned())),
        }
    }

    async fn file(
        &self,
        found: Entry,
        request: FileRequest<'_>,
    ) -> Result<Response<Content>, Failure> {
        self.tree.check(ModeRights::READ, &found).await?;
        let file = PinnedFile::of(&self.tree, found.handle).await?;
        let version = &file.version;
        let size = file.size();
        match version.judge(request.headers) {
            Verdict::Send => {}
            Verdict::NotModified => {
                return Ok(finish(version.answer(StatusCode::NOT_MODIFIED), Content::EMPTY));
            }
            Verdict::Failed => {
                return Ok(finish(version.answer(StatusCode::PRECONDITION_FAILED), Content::EMPTY));
            }
        }
        match Extents::of(size).filter(|_| have_map::accepts_blocks(request.headers)) {
            Some(extents) => self.blocks(file, extents, &request),
            None => self.bytes(file, size, &request),
        }
    }

    /// Answers with the blocks of a file that the client lacks.
    fn blocks(
        &self,
        file: PinnedFile,
        extents: Extents,
        request: &FileRequest<'_>,
    ) -> Result<Response<Content>, Failure> {
        let have = request.have.as_ref().map(|bytes| HaveMap::decode(bytes, extents)).transpose();
        let have = have.map_err(|error| Failure(StatusCode::BAD_REQUEST, error.to_string()))?;
        let answer = file.version.answer(StatusCode::OK).header(CONTENT_TYPE, BLOCKS_TYPE);
        if request.is_head {
            return Ok(finish(answer, Content::unsent(None)));
        }
        let client = Client::join(&self.delivery, file, extents, Order::Any, have.as_ref())?;
        Ok(finish(answer, Content::Blocks(Box::new(Blocks::new(client)))))
    }

    /// Answers with the bytes of a file, or with a range of them, in order.
    fn bytes(
        &self,
        file: PinnedFile,
        size: u64,
        request: &FileRequest<'_>,
    ) -> Result<Response<Content>, Failure> {
        let version = &file.version;
        let range = text(request.headers, &RANGE);
        let range = range.filter(|_| version.takes_range(request.headers));
        let whole = || (version.answer(StatusCode::OK), 0..size);
        let (answer, part): (Builder, Range<u64>) = match range.map(|it| range::part(it, size)) {
            None | Some(Part::Whole) => whole(),
            Some(Part::Some(part)) => {
                let text = format!("bytes {}-{}/{size}", part.start, part.end - 1);
                (version.answer(StatusCode::PARTIAL_CONTENT).header(CONTENT_RANGE, text), part)
            }
            Some(Part::Unsatisfiable) => {
                let answer = version.answer(StatusCode::RANGE_NOT_SATISFIABLE);
                let text = format!("bytes */{size}");
                return Ok(finish(answer.header(CONTENT_RANGE, text), Content::EMPTY));
            }
        };
        let kind = mime_guess::from_path(request.path).first_or_octet_stream();
        let length = part.end - part.start;
        let answer = answer.header(CONTENT_TYPE, kind.essence_str()).header(CONTENT_LENGTH, length);
        if request.is_head {
            return Ok(finish(answer, Content::unsent(Some(length))));
        }
        // A whole extent is not read for a few bytes.
        let shared = Extents::of(size).filter(|_| length > EXTENT_BYTES as u64);
        let body = match shared {
            Some(extents) => {
                let order = Order::Ascending { from: part.start, to: part.end };
                let client = Client::join(&self.delivery, file, extents, order, None)?;
                Content::Ordered(Box::new(client), length)
            }
            None => {
                let delivery = Arc::clone(&self.delivery);
                let places = request.places.clone();
                direct::content(file, part, delivery, places)
            }
        };
        Ok(finish(answer, body))
    }
}

impl Version {
    /// Begins a response about this version of a file.
    fn answer(&self, status: StatusCode) -> Builder {
        with_common(status)
            .header(ETAG, &self.tag)
            .header(LAST_MODIFIED, httpdate::fmt_http_date(self.modified))
            .header(ACCEPT_RANGES, "bytes")
            .header(VARY, "accept")
    }
}

fn with_common(status: StatusCode) -> Builder {
    let builder = Response::builder().status(status);
    COMMON.into_iter().fold(builder, |builder, (name, value)| builder.header(name, value))
}

fn finish(builder: Builder, body: Content) -> Response<Content> {
    // All headers are texts of ours.
    builder.body(body).unwrap_or_else(|error| {
        tracing::error!(%error, "an answer has a header that is none");
        let mut response = Response::new(Content::EMPTY);
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        response
    })
}

/// Returns a path with one slash in front: a browser takes `//name/` for a path of another machine.
fn path_on(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

fn shown(target: &Target) -> String {
    let names = target.names.iter().map(|name| String::from_utf8_lossy(name.as_bytes()));
    names.fold("/".to_owned(), |path, name| path + &name + "/")
}

/// Returns whether a Host header means this machine: `localhost`, or an address of the loopback
/// device, with or without a port.
fn names_this_machine(host: Option<&HeaderValue>) -> bool {
    let Some(host) = host.and_then(|it| it.to_str().ok()) else { return false };
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _port)) => name,
        None => host.split_once(':').map_or(host, |(name, _port)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Returns whether the browser says (Fetch Metadata) that a page of another site sends this
/// request, and not its user by following a link.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    let says = |name: &'static str| text(headers, &HeaderName::from_static(name));
    let is_other = matches!(says("sec-fetch-site"), Some("cross-site" | "same-site"));
    let is_followed =
        says("sec-fetch-mode") == Some("navigate") && says("sec-fetch-dest") == Some("document");
    is_other && !is_followed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_another_site_gets_nothing_and_a_user_does() {
        let asks = |fields: &[(&'static str, &'static str)]| {
            let field = |(name, value): &(&'static str, &'static str)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            };
            is_of_another_site(&fields.iter().map(field).collect())
        };
        assert!(asks(&[("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "script")]));
        assert!(asks(&[("sec-fetch-site", "same-site"), ("sec-fetch-mode", "cors")]));
        let frame = ("sec-fetch-dest", "iframe");
        assert!(asks(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), frame]));
        let page = ("sec-fetch-dest", "document");
        assert!(!asks(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), page]));
        assert!(!asks(&[("sec-fetch-site", "same-origin"), ("sec-fetch-dest", "script")]));
        assert!(!asks(&[("sec-fetch-site", "none")]) && !asks(&[]), "an address bar; curl");
    }

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        let names = |host: &str| names_this_machine(Some(&HeaderValue::from_str(host).unwrap()));
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.3.4.5:1", "[::1]:80", "[::1]"]
        {
            assert!(names(host), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example", "10.0.0.1", "[fe80::1]", ""] {
            assert!(!names(host), "{host}");
        }
        assert!(!names_this_machine(None));
    }
}
