//! The form in which the request of a guest is carried out: what only its client could vouch for is
//! decided here.
//!
//! - A change of bytes drops set-id bits and capabilities, also if the client does not say so.
//! - A guest changes the bits of the owner. A new node gets no bits for group and others that its
//!   directory does not have.

use pelago_data::OpenKey;
use pelago_store::clock;
use pelago_wire::{
    Attr, Code, Context, Error, FileKind, FileLock, Handle, LockKind, LockMode, NewMode, OpenFlags,
    OpenId, Request, SessionId, SetAttr, WriteFlags, xattr,
};

use crate::service::Parts;

/// The bits of the owner.
const OWNER: u16 = 0o700;
/// The bits of the group and of others.
const OTHERS: u16 = 0o077;
/// The set-id and sticky bits.
const SPECIAL: u16 = 0o7000;
/// The sticky bit.
const STICKY: u16 = 0o1000;

/// Returns the request as it is announced and carried out, but for its mode.
///
/// # Errors
/// `BadOpen`.
pub(super) fn carried_out(
    parts: &Parts,
    session: SessionId,
    mut request: Request,
) -> Result<Request, Error> {
    match &mut request {
        Request::SetAttr { set, .. } if set.size.is_some() => set.kill_privileges = true,
        Request::Open { flags: OpenFlags { kill_privileges, .. }, .. }
        | Request::Write { flags: WriteFlags { kill_privileges, .. }, .. } => {
            *kill_privileges = true;
        }
        // A reader has nothing to commit, but may have locks.
        Request::Flush { open, owner: Some(owner) } if !writes(parts, session, *open)? => {
            let lock = FileLock {
                kind: LockKind::Posix,
                mode: LockMode::Unlock,
                start: 0,
                end: FileLock::TO_END,
                pid: 0,
            };
            return Ok(Request::SetLock { open: *open, owner: *owner, lock, wait: false });
        }
        _ => {}
    }
    Ok(request)
}

/// Removes the capabilities of a file (`capabilities(7)`) whose bytes a guest changes. The kernel
/// of any other machine does so itself, but a guest's may not see this attribute.
///
/// # Errors
/// Those of the table. A file that does not exist has none.
pub(super) fn drop_capabilities(
    parts: &Parts,
    context: &Context,
    request: &Request,
) -> Result<(), Error> {
    let changed = match request {
        Request::Write { open, .. }
        | Request::Allocate { open, .. }
        | Request::CopyRange { to: open, .. } => {
            let present = parts.opens.handle_of(OpenKey::of(context, *open)).ok();
            present.or_else(|| context.replayed.and_then(|replayed| replayed.node))
        }
        Request::SetAttr { node, set: SetAttr { size: Some(_), .. }, .. }
        | Request::Open { node, flags: OpenFlags { truncate: true, .. }, .. } => Some(*node),
        _ => None,
    };
    let has_some = |node: &Handle| parts.shard.attr(*node).is_ok_and(|attr| attr.has_xattrs);
    let Some(node) = changed.filter(has_some) else { return Ok(()) };
    match parts.shard.remove_xattr(node, xattr::CAPABILITIES, clock::now()) {
        Err(error) if error.code == Code::NoXattr => Ok(()),
        removed => removed,
    }
}

/// Returns a request that sets a mode or makes a node, with the mode cut to what a guest may set;
/// `None` for any other request. Called where the request takes effect: before that others may
/// narrow what it is cut to.
///
/// # Errors
/// `Stale` if the node or directory does not exist.
pub(in crate::service) fn with_cut_mode(
    parts: &Parts,
    request: &Request,
) -> Result<Option<Request>, Error> {
    let cut = match request {
        Request::SetAttr { node, set: SetAttr { mode: Some(mode), .. }, .. } => {
            NewMode::exactly(set_by_guest(parts, *node, *mode)?)
        }
        Request::Create { dir, mode, .. }
        | Request::CreateUnnamed { dir, mode, .. }
        | Request::MakeDir { dir, mode, .. }
        | Request::MakeNode { dir, mode, .. } => made_by_guest(parts, *dir, *mode)?,
        _ => return Ok(None),
    };
    let mut request = request.clone();
    match &mut request {
        Request::SetAttr { set, .. } => set.mode = Some(cut.mode),
        Request::Create { mode, .. }
        | Request::CreateUnnamed { mode, .. }
        | Request::MakeDir { mode, .. }
        | Request::MakeNode { mode, .. } => *mode = cut,
        _ => {}
    }
    Ok(Some(request))
}

/// Returns whether a file was opened to write.
///
/// # Errors
/// `BadOpen`.
pub(super) fn writes(parts: &Parts, session: SessionId, open: OpenId) -> Result<bool, Error> {
    Ok(parts.opens.opened(OpenKey { session, open })?.1.write)
}

/// Returns the mode of a new node in a directory.
fn made_by_guest(parts: &Parts, dir: Handle, mode: NewMode) -> Result<NewMode, Error> {
    let of_dir = parts.shard.attr(dir)?.mode & OTHERS;
    Ok(NewMode { mode: mode.mode & (OWNER | of_dir), ..mode })
}

/// Returns the mode that a node gets if a guest sets this one. The guest does not see the bits that
/// stay.
fn set_by_guest(parts: &Parts, node: Handle, mode: u16) -> Result<u16, Error> {
    let Attr { mode: present, kind, .. } = parts.shard.attr(node)?;
    let stay = if kind == FileKind::Directory { SPECIAL | OTHERS } else { STICKY | OTHERS };
    Ok((mode & OWNER) | (present & stay))
}
