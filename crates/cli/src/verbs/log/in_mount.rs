//! The part of the log that is about a folder in a mount, which the server sends.

use std::path::{Path, PathBuf};

use pelago_wire::{AuditPage, AuditPlace, Code, Error, Reply, Request};

use super::words::Keys;
use super::{Args, print_line};
use crate::failure::{Exit, Failure, Outcome};
use crate::key_names::KeyNames;
use crate::output;
use crate::verbs::access::{NodeInMount, session_of};

#[derive(Debug, thiserror::Error)]
#[error("the server {server} sends no log of {}", path.display())]
struct Refused {
    server: String,
    path: PathBuf,
    #[source]
    source: Error,
}

/// Prints the lines about a folder and all below it, the oldest first.
pub(super) fn print(args: &Args, path: &Path) -> Outcome<()> {
    let found = session_of(path)?;
    let key_names = found.volume.as_deref().and_then(|dir| KeyNames::of(dir).ok());
    let keys = Keys { names: key_names.as_ref() };
    let mut after = AuditPlace::START;
    let mut is_empty = true;
    loop {
        let AuditPage { lines, next } = page(&found, path, after)?;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            is_empty = false;
            if !print_line(args, line, keys)? {
                return Ok(());
            }
        }
        match next {
            Some(next) if next > after => after = next,
            // A server that goes back would do so for ever.
            Some(_) => return Err(refused(&found, path, Code::Bug.into())),
            None => break,
        }
    }
    if is_empty && !args.json {
        output::print("no line: no guest has done anything here that the log has\n")?;
    }
    Ok(())
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
        _ => "the log of the volume says why",
    };
    let server = found.session.server.clone();
    let path = path.to_owned();
    Failure::new(Exit::from(source.kind()), Refused { server, path, source }).hint(hint)
}
