//! Requests to a server, with or without a rig.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use pelago_server::Server;
use pelago_wire::{
    Bulk, Code, Context, Done, Entry, Handle, Name, NewMode, OpenFlags, OpenId, RecordedPeer,
    Reply, Request, SessionId, SessionRecord, WriteFlags, limits,
};

use super::rig::DEADLINE;

/// Returns the number of an open that is to come.
pub(crate) fn next_open() -> OpenId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    OpenId(LAST.fetch_add(1, Ordering::Relaxed) + 1)
}

pub(crate) fn call(server: &Server, request: Request, bytes: &[u8]) -> Result<Reply, Code> {
    call_as(server, &Context::direct(10, 20), request, bytes)
}

/// Carries out a request and waits for its reply, which may come later.
pub(crate) fn call_as(
    server: &Server,
    who: &Context,
    request: Request,
    bytes: &[u8],
) -> Result<Reply, Code> {
    if who.session != SessionId::DIRECT {
        let record = SessionRecord::new([1; 16], RecordedPeer::User(0));
        server.session_service().begin_session(who.session, record).unwrap();
    }
    let (sender, replies) = mpsc::channel();
    let mut later = || -> Done {
        let sender = sender.clone();
        Box::new(move |reply| sender.send(reply).unwrap())
    };
    let bulk = if bytes.is_empty() { Bulk::None } else { Bulk::Borrowed(bytes) };
    if let Some(now) = server.service().ask(who, request, bulk, &mut later) {
        return now.map_err(|error| error.code);
    }
    replies.recv_timeout(DEADLINE).unwrap().map_err(|error| error.code)
}

pub(crate) fn lookup(server: &Server, dir: Handle, text: &str) -> Result<Entry, Code> {
    match call(server, Request::Lookup { dir, name: name(text) }, &[])? {
        Reply::Entry(entry) => Ok(entry),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn create(server: &Server, dir: Handle, text: &str) -> Result<(Entry, OpenId), Code> {
    let mode = NewMode::exactly(0o644);
    let flags = OpenFlags::READ_WRITE;
    let open = next_open();
    match call(server, Request::Create { dir, name: name(text), mode, flags, open }, &[])? {
        Reply::Created { entry, .. } => Ok((entry, open)),
        other => panic!("{other:?}"),
    }
}

/// Writes all bytes; `NoSpace` if only a part was written.
pub(crate) fn write(server: &Server, open: OpenId, offset: u64, bytes: &[u8]) -> Result<(), Code> {
    for (part, at) in bytes.chunks(limits::IO_BYTES).zip((offset..).step_by(limits::IO_BYTES)) {
        let request = Request::Write { open, offset: at, flags: WriteFlags::NONE };
        match call(server, request, part)? {
            Reply::Written { bytes, .. } if bytes == part.len() as u64 => {}
            _ => return Err(Code::NoSpace),
        }
    }
    Ok(())
}

pub(crate) fn close(server: &Server, open: OpenId) -> Result<(), Code> {
    let flushed = call(server, Request::Flush { open, owner: None }, &[]);
    call(server, Request::Release { open }, &[])?;
    flushed.map(drop)
}

pub(crate) fn unlink(server: &Server, dir: Handle, text: &str) -> Result<(), Code> {
    call(server, Request::Unlink { dir, name: name(text) }, &[]).map(drop)
}

/// Creates, writes and closes a file.
pub(crate) fn put(server: &Server, dir: Handle, text: &str, bytes: &[u8]) -> Result<(), Code> {
    let (_, open) = create(server, dir, text)?;
    let written = write(server, open, 0, bytes);
    close(server, open)?;
    written
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}
