//! Listings of directories: HTML pages for people, JSON for programs. A page has no scripts, and
//! loads nothing from other servers.

use std::fmt::Write;
use std::sync::Arc;

use bytes::Bytes;
use pelago_wire::{Cookie, DirEntry, Entry, Error, FileKind};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde_json::json;
use tokio::sync::mpsc::{Sender, channel};

use crate::body::{Broken, Content};
use crate::places::{AddressPlaces, LARGE_BYTES, PieceRight, ReplyPieces};
use crate::tree::{Tree, wait};

/// Names that are listed at a time, for a large page and for a small one.
const NAMES: u32 = 256;
const FEW_NAMES: u32 = 16;
/// The characters that are encoded in a URL: all but the unreserved ones (RFC 3986, 2.3) and `/`.
const KEPT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// The format of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Html,
    /// One object for each line.
    Json,
}

impl Format {
    /// Returns the format for a client that sends this Accept header.
    pub(crate) fn accepted(header: Option<&str>) -> Self {
        let wants = |kind| header.is_some_and(|it| it.contains(kind));
        let json = wants("application/json") || wants("application/x-ndjson");
        if json && !wants("text/html") { Self::Json } else { Self::Html }
    }

    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::Json => "application/x-ndjson",
        }
    }

    fn head(self, path: &str) -> String {
        match self {
            Self::Html => format!(
                "<!doctype html><meta charset=utf-8><title>{0}</title><h1>{0}</h1><ul>\n",
                escaped(path)
            ),
            Self::Json => String::new(),
        }
    }

    const fn tail(self) -> &'static str {
        match self {
            Self::Html => "</ul>\n",
            Self::Json => "",
        }
    }

    fn line(self, entry: &DirEntry) -> String {
        let name = entry.name.as_bytes();
        let slash = if entry.kind == FileKind::Directory { "/" } else { "" };
        let url = format!("./{}{slash}", percent_encode(name, KEPT));
        let text = String::from_utf8_lossy(name);
        match self {
            Self::Html => format!("<li><a href=\"{url}\">{}{slash}</a>\n", escaped(&text)),
            Self::Json => {
                let attr = entry.entry.as_ref().map(|entry| &entry.attr);
                let line = json!({
                    "name": text,
                    "url": url,
                    "kind": kind(entry.kind),
                    "size": attr.map(|attr| attr.size),
                    "modified": attr.map(|attr| attr.mtime.seconds),
                });
                format!("{line}\n")
            }
        }
    }
}

/// A page of names, and its permit to be in memory.
struct PlacedPage {
    page: String,
    _right: PieceRight,
}

impl AsRef<[u8]> for PlacedPage {
    fn as_ref(&self) -> &[u8] {
        self.page.as_bytes()
    }
}

/// Returns a body with the names of a directory, which are read while the client takes them.
pub(crate) fn content(
    tree: Arc<Tree>,
    dir: Entry,
    path: String,
    format: Format,
    places: AddressPlaces,
) -> Content {
    let (to, pieces) = channel(1);
    tokio::spawn(async move {
        let pages = Pages { tree, dir, format };
        if let Err(error) = pages.send(format.head(&path), places.answer(), &to).await {
            // The client may be gone by now.
            let _unheard = to.send(Err(Broken::Failed(error))).await;
        }
    });
    Content::Coming(pieces, None)
}

/// The names of a directory in a format.
struct Pages {
    tree: Arc<Tree>,
    dir: Entry,
    format: Format,
}

impl Pages {
    /// Sends all names, page by page; `page` has the text before the first name.
    async fn send(
        &self,
        mut page: String,
        answer: ReplyPieces,
        to: &Sender<Result<Bytes, Broken>>,
    ) -> Result<(), Error> {
        let mut after = Some(Cookie::AFTER_DOT_DOT);
        while let Some(behind) = after {
            let right = tokio::select! {
                right = answer.piece(u64::MAX) => right,
                () = to.closed() => return Ok(()),
            };
            let Some(right) = right else { return Ok(()) };
            after = self.fill(&mut page, behind, right.bytes).await?;
            let placed = PlacedPage { page: std::mem::take(&mut page), _right: right };
            if to.send(Ok(Bytes::from_owner(placed))).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Appends names to a page until it has `bytes` bytes, or a line more. Returns the cookie at
    /// which the next page begins; `None` after the last page.
    async fn fill(
        &self,
        page: &mut String,
        mut after: Cookie,
        bytes: usize,
    ) -> Result<Option<Cookie>, Error> {
        let names = if bytes < LARGE_BYTES { FEW_NAMES } else { NAMES };
        let files = &self.tree.files;
        let context = self.tree.context();
        let listing = wait(files.list(&context, self.dir.handle, after, None, names, true)).await?;
        for entry in &listing.entries {
            if page.len() >= bytes {
                return Ok(Some(after));
            }
            page.push_str(&self.format.line(entry));
            after = entry.cookie;
        }
        if listing.end || listing.entries.is_empty() {
            page.push_str(self.format.tail());
            return Ok(None);
        }
        Ok(Some(after))
    }
}

const fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "link",
        _ => "other",
    }
}

/// Escapes a text for HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut html, letter| {
        match letter {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '"' => html.push_str("&quot;"),
            letter if letter.is_control() => {
                let _written = write!(html, "&#{};", u32::from(letter));
            }
            letter => html.push(letter),
        }
        html
    })
}

#[cfg(test)]
mod tests {
    use pelago_wire::{InodeId, Name};

    use super::*;

    fn entry(name: &[u8], kind: FileKind) -> DirEntry {
        let name = Name::new(name).unwrap();
        DirEntry { name, ino: InodeId::from_raw(20), kind, cookie: Cookie(7), entry: None }
    }

    #[test]
    fn names_of_any_bytes_are_links_that_lead_to_them() {
        let line = |name: &[u8], kind| Format::Html.line(&entry(name, kind));
        assert_eq!(line(b"a b", FileKind::Regular), "<li><a href=\"./a%20b\">a b</a>\n");
        assert_eq!(line(b"d", FileKind::Directory), "<li><a href=\"./d/\">d/</a>\n");
        let hostile = line(b"<script>\"'&\xff:", FileKind::Regular);
        assert_eq!(
            hostile,
            "<li><a href=\"./%3Cscript%3E%22%27%26%FF%3A\">&lt;script>&quot;'&amp;\u{fffd}:</a>\n"
        );
    }

    #[test]
    fn programs_get_json_if_they_ask_for_it() {
        assert_eq!(Format::accepted(None), Format::Html);
        assert_eq!(Format::accepted(Some("text/html,application/json;q=0.9")), Format::Html);
        assert_eq!(Format::accepted(Some("application/json")), Format::Json);
        let line = Format::Json.line(&entry(b"\"\n", FileKind::Symlink));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&value["name"], &value["kind"]), (&json!("\"\n"), &json!("link")));
    }
}
