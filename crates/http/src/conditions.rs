//! Conditional requests (RFC 9110, 13): evaluation of their headers against a version of a file.

use std::time::{Duration, SystemTime};

use hyper::HeaderMap;
use hyper::header::{
    HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE,
};
use pelago_wire::{Attr, Time};

/// The validators of a version of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    /// A strong entity tag: inode and change time. Inode numbers are never used again, and each
    /// change of the bytes changes the change time, even if a program sets the modification time
    /// back.
    pub(crate) tag: String,
    pub(crate) modified: SystemTime,
}

/// The result of the conditions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Send,
    /// The client has this version (304).
    NotModified,
    /// The client requires another version (412).
    Failed,
}

impl Version {
    pub(crate) fn of(attr: &Attr) -> Self {
        let Time { seconds, nanos } = attr.ctime;
        let tag = format!("\"{:x}-{seconds:x}.{nanos:x}\"", attr.ino.raw());
        let since = u64::try_from(attr.mtime.seconds).unwrap_or(0);
        Self { tag, modified: SystemTime::UNIX_EPOCH + Duration::from_secs(since) }
    }

    /// Evaluates the conditions of a GET or HEAD in the order of RFC 9110, 13.2.2.
    pub(crate) fn judge(&self, headers: &HeaderMap) -> Verdict {
        match text(headers, &IF_MATCH) {
            Some(tags) if !self.is_among(tags) => return Verdict::Failed,
            None if date(headers, &IF_UNMODIFIED_SINCE).is_some_and(|it| self.modified > it) => {
                return Verdict::Failed;
            }
            _ => {}
        }
        match text(headers, &IF_NONE_MATCH) {
            // A weak comparison: the bytes are the same under the same tag.
            Some(tags) if self.is_among(&tags.replace("W/", "")) => Verdict::NotModified,
            None if date(headers, &IF_MODIFIED_SINCE).is_some_and(|it| self.modified <= it) => {
                Verdict::NotModified
            }
            _ => Verdict::Send,
        }
    }

    /// Returns whether a Range header applies: the client has the other bytes of this version.
    pub(crate) fn takes_range(&self, headers: &HeaderMap) -> bool {
        // A date proves nothing: two versions may have the same date.
        headers.get(IF_RANGE).is_none_or(|it| it.as_bytes() == self.tag.as_bytes())
    }

    fn is_among(&self, tags: &str) -> bool {
        tags.split(',').any(|tag| matches!(tag.trim(), "*") || tag.trim() == self.tag)
    }
}

/// Returns the value of a header, if it is text.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(text(headers, name)?).ok()
}

#[cfg(test)]
mod tests {
    use pelago_wire::{FileKind, InodeId};

    use super::*;

    fn version() -> Version {
        let time = Time { seconds: 784_111_777, nanos: 5 };
        let attr = Attr::empty(InodeId::from_raw(0x2a), FileKind::Regular);
        Version::of(&Attr { mtime: time, ctime: time, ..attr })
    }

    fn headers(all: &[(HeaderName, &'static str)]) -> HeaderMap {
        all.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    const SAME: &str = "\"2a-2ebc98a1.5\"";
    const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";

    #[test]
    fn conditions_are_judged_in_their_order() {
        assert_eq!(version().tag, SAME);
        let cases: [(&[(HeaderName, &str)], Verdict); 12] = [
            (&[], Verdict::Send),
            (&[(IF_NONE_MATCH, SAME)], Verdict::NotModified),
            (&[(IF_NONE_MATCH, "\"x\", W/\"2a-2ebc98a1.5\"")], Verdict::NotModified),
            (&[(IF_NONE_MATCH, "*")], Verdict::NotModified),
            (&[(IF_NONE_MATCH, "\"x\""), (IF_MODIFIED_SINCE, AT)], Verdict::Send),
            (&[(IF_MODIFIED_SINCE, AT)], Verdict::NotModified),
            (&[(IF_MODIFIED_SINCE, BEFORE)], Verdict::Send),
            (&[(IF_MODIFIED_SINCE, "yesterday")], Verdict::Send),
            (&[(IF_MATCH, "\"x\"")], Verdict::Failed),
            (&[(IF_MATCH, SAME), (IF_UNMODIFIED_SINCE, BEFORE)], Verdict::Send),
            (&[(IF_UNMODIFIED_SINCE, BEFORE)], Verdict::Failed),
            (&[(IF_MATCH, SAME), (IF_NONE_MATCH, SAME)], Verdict::NotModified),
        ];
        for (all, expected) in cases {
            assert_eq!(version().judge(&headers(all)), expected, "{all:?}");
        }
    }

    #[test]
    fn a_range_counts_for_the_same_version_only() {
        assert!(version().takes_range(&headers(&[])));
        assert!(version().takes_range(&headers(&[(IF_RANGE, SAME)])));
        for other in ["\"x\"", AT, "W/\"2a-2ebc98a1.5\""] {
            let all = [(IF_RANGE, other)];
            assert!(!version().takes_range(&headers(&all)), "{other}");
        }
    }
}
