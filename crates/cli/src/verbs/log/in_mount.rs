//! The part of the log that is about a folder in a mount, which the server sends.

use std::path::{Path, PathBuf};

use pelago_wire::{AuditPage, AuditPlace, Code, Error, Reply, Request, limits};

use super::words::Keys;
use super::{Args, print_line};
use crate::failure::{Exit, Failure, Outcome};
use crate::key_names::KeyNames;
use crate::output;
use crate::verbs::access::{NodeInMount, session_of};

/// The pages that a log may have. A line has at least 128 bytes and decides about at most
/// [`limits::AUDIT_LINE_DIRS`] directories, so a page is about 4 KiB of the log or ends a day.
const PAGES: u64 = limits::AUDIT_BYTES / (4 << 10);

const _: () = assert!(limits::AUDIT_PAGE_DIRS / limits::AUDIT_LINE_DIRS * 128 >= 4 << 10);

#[derive(Debug, thiserror::Error)]
enum LogError {
    #[error("the server {server} sends no log of {}", path.display())]
    Refused {
        server: String,
        path: PathBuf,
        #[source]
        source: Error,
    },
    #[error("the server sends more pages of the log than there can be")]
    Endless,
}

/// Prints the lines about a folder and all below it, the oldest first.
pub(super) fn print(args: &Args, path: &Path) -> Outcome<()> {
    let found = session_of(path)?;
    let key_names = found.volume.as_deref().and_then(|dir| KeyNames::of(dir).ok());
    let keys = Keys { names: key_names.as_ref() };
    let mut is_empty = true;
    let ask = |after| page(&found, path, after);
    let show = |lines: &[u8]| {
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            is_empty = false;
            if !print_line(args, line, keys)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    each_page(ask, show)?;
    if is_empty && !args.json {
        output::print("no line: the log of this server has nothing that was done here\n")?;
    }
    Ok(())
}

/// Gets all pages, and shows the lines of each until there is no reader any more.
///
/// # Errors
/// That of a request or of showing; an error for a server that goes on without an end.
fn each_page(
    ask: impl Fn(AuditPlace) -> Outcome<AuditPage>,
    mut show: impl FnMut(&[u8]) -> Outcome<bool>,
) -> Outcome<()> {
    let mut after = AuditPlace::START;
    for _ in 0..PAGES {
        let AuditPage { lines, next } = ask(after)?;
        if !show(&lines)? {
            return Ok(());
        }
        match next {
            Some(next) if next > after => after = next,
            // A server that goes back would do so for ever.
            Some(_) => break,
            None => return Ok(()),
        }
    }
    Err(Failure::new(Exit::Failed, LogError::Endless).hint("do not rely on what it has sent"))
}

fn page(found: &NodeInMount, path: &Path, after: AuditPlace) -> Outcome<AuditPage> {
    let request = Request::Audited { dir: found.node, after };
    match found.session.ask(request)? {
        Ok(Reply::Audited(page)) => Ok(page),
        Ok(_) => Err(refused(found, path, Code::Bug.into())),
        Err(error) => Err(refused(found, path, error)),
    }
}

fn refused(found: &NodeInMount, path: &Path, source: Error) -> Failure {
    let hint = match source.code {
        Code::AccessDenied => "it needs the right `a` there",
        Code::Stale | Code::NotFound => "nothing of it is granted to you, or it is gone",
        Code::NotDirectory => "name the folder in which it is",
        Code::NotSupported => "a volume that is read-only or on a shared store has no such log",
        Code::Busy => "folders are being moved all the time there: try it again",
        Code::Io => "the log of the server says why",
        _ => "try it again",
    };
    let server = found.session.server.clone();
    let path = path.to_owned();
    Failure::new(Exit::from(source.kind()), LogError::Refused { server, path, source }).hint(hint)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn asked(next: impl Fn(AuditPlace) -> Option<AuditPlace>) -> (u64, Outcome<()>) {
        let asked = Cell::new(0);
        let ask = |after| {
            asked.set(asked.get() + 1);
            assert!(asked.get() <= PAGES, "it asks without an end");
            Ok(AuditPage { lines: Vec::new(), next: next(after) })
        };
        let result = each_page(ask, |_| Ok(true));
        (asked.get(), result)
    }

    #[test]
    fn a_server_that_never_ends_is_left() {
        let later = |after: AuditPlace| AuditPlace { offset: after.offset + 1, ..after };
        let (pages, result) = asked(|after| Some(later(after)));
        assert_eq!((pages, result.is_err()), (PAGES, true));
        let (pages, result) = asked(Some);
        assert_eq!((pages, result.is_err()), (1, true), "it goes back");
        let (pages, result) = asked(|after| (after.offset < 9).then(|| later(after)));
        assert_eq!((pages, result.is_ok()), (10, true));
    }
}
