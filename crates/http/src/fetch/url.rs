//! The URL of a download: parsing, and the parts that a request needs.

use hyper::Uri;
use pelago_wire::limits::URL_BYTES;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// The characters that a URL must encode. Those that are encoded already stay.
const ENCODED: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'`');
const PORT: u16 = 80;

/// The reason why a URL is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It is not a URL.
    #[error("{0:?} is no URL")]
    NotAUrl(String),
    /// It has another scheme than `http`.
    #[error("{0:?} does not begin with http://")]
    NotHttp(String),
    /// It has a user name, and HTTP servers of volumes know no users.
    #[error("{0:?} has a user name, which is not sent")]
    HasUser(String),
    /// It is longer than [`URL_BYTES`].
    #[error("the URL has {0} bytes, the limit is {URL_BYTES}")]
    TooLong(usize),
}

/// A URL to which a request can be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    /// The text, as the state file has it.
    pub(super) text: String,
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The value of the header Host.
    pub(super) authority: String,
    /// The target of a request.
    pub(super) path: String,
}

impl Url {
    pub(super) fn parse(given: &str) -> Result<Self, UrlError> {
        let text = utf8_percent_encode(given, ENCODED).to_string();
        if text.len() > URL_BYTES {
            return Err(UrlError::TooLong(text.len()));
        }
        let uri: Uri = text.parse().map_err(|_invalid| UrlError::NotAUrl(given.to_owned()))?;
        if uri.scheme_str() != Some("http") {
            return Err(UrlError::NotHttp(given.to_owned()));
        }
        let (Some(host), Some(authority)) = (uri.host(), uri.authority()) else {
            return Err(UrlError::NotAUrl(given.to_owned()));
        };
        if authority.as_str().contains('@') {
            return Err(UrlError::HasUser(given.to_owned()));
        }
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(PORT),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |it| it.as_str()).to_owned(),
            text,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_host_a_port_and_a_path() {
        let parts = |url: &str| {
            let url = Url::parse(url).unwrap();
            (url.host, url.port, url.authority, url.path)
        };
        let expected = |host: &str, port, authority: &str, path: &str| {
            (host.to_owned(), port, authority.to_owned(), path.to_owned())
        };
        assert_eq!(parts("http://a"), expected("a", 80, "a", "/"));
        assert_eq!(
            parts("http://[::1]:8080/a%20b c/é?x"),
            expected("::1", 8080, "[::1]:8080", "/a%20b%20c/%C3%A9?x")
        );
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        let refused = |url: &str| Url::parse(url).unwrap_err();
        assert!(matches!(refused("https://a/b"), UrlError::NotHttp(_)));
        assert!(matches!(refused("a/b"), UrlError::NotAUrl(_) | UrlError::NotHttp(_)));
        assert!(matches!(refused("http:///b"), UrlError::NotAUrl(_)));
        assert!(matches!(refused("http://me:x@a/b"), UrlError::HasUser(_)));
        let long = format!("http://a/{}", "x".repeat(URL_BYTES));
        assert!(matches!(refused(&long), UrlError::TooLong(_)));
    }
}
