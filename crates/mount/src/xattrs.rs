//! SETXATTR, GETXATTR, LISTXATTR and REMOVEXATTR.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use pelago_client::Xattr;
use pelago_fuse::operation::Setxattr;
use pelago_fuse::{Header, Reply, reply};
use pelago_wire::{Code, Touched};

use crate::caller::Caller;
use crate::replies::sized;
use crate::state::State;
use crate::unlinked::Unlinked;
use crate::{attr, flags};

/// The attribute that holds the access control list; setting it may clear the setgid bit.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

impl State {
    /// Carries out a SETXATTR.
    pub(crate) fn set_xattr(
        self: &Arc<Self>,
        header: &Header,
        request: &Setxattr<'_>,
        reply: Reply<()>,
    ) {
        let how = match flags::xattr(request.flags) {
            Ok(how) => how,
            Err(code) => return reply.error(attr::error(code.into())),
        };
        let name = request.name.as_bytes().to_vec();
        let value = request.value.to_vec();
        self.entry_attrs.forget(header.pid);
        let must_ask = name == ACCESS_LIST && !self.knows_setgid();
        let state = Arc::clone(self);
        let node = header.node;
        let thread = header.pid;
        let caller = Caller::of(header);
        let go = move |kill_setgid| {
            let xattr = Xattr { name, value, kill_setgid };
            let answer = state.files.set_xattr(&caller.context(), state.handle(node), xattr, how);
            answer.then(move |result| {
                state.changed([attr::ino(node)]);
                state.used(thread, &result);
                let result =
                    result.map_err(|error| state.unless_unlinked(node, error, Code::NotFound));
                state.done(result, reply, || vec![Touched::Node(attr::ino(node))]);
            });
        };
        if must_ask {
            caller.kills_setgid(self, self.handle(node), go);
        } else {
            go(request.kill_setgid);
        }
    }

    /// Carries out a GETXATTR.
    pub(crate) fn get_xattr(
        self: &Arc<Self>,
        header: &Header,
        name: &OsStr,
        size: u32,
        reply: Reply<reply::Xattr>,
    ) {
        let name = name.as_bytes().to_vec();
        let state = Arc::clone(self);
        let node = header.node;
        let thread = header.pid;
        let absent = self.absent_xattr(&name);
        let answer = self.files.get_xattr(&self.context(header), self.handle(node), name);
        answer.then(move |result| {
            let result = result.map_err(|error| state.unless_unlinked(node, error, Code::NoXattr));
            // The kernel requests access control lists before it opens a file: the call goes on.
            state.looked(thread, &result);
            let result = result.map_err(|error| match error.code {
                Code::NoXattr => absent.into(),
                _ => error,
            });
            sized(result, size, reply);
        });
    }

    /// Carries out a LISTXATTR.
    pub(crate) fn list_xattrs(
        self: &Arc<Self>,
        header: &Header,
        size: u32,
        reply: Reply<reply::Xattr>,
    ) {
        let state = Arc::clone(self);
        let node = header.node;
        let thread = header.pid;
        let answer = self.files.list_xattr(&self.context(header), self.handle(node));
        answer.then(move |result| {
            let none = |unlinked: &Unlinked, ino| unlinked.attr(ino).map(|_| Vec::new());
            let result = state.or_unlinked(attr::ino(node), result, none);
            state.used(thread, &result);
            sized(result, size, reply);
        });
    }

    /// Carries out a REMOVEXATTR.
    pub(crate) fn remove_xattr(self: &Arc<Self>, header: &Header, name: &OsStr, reply: Reply<()>) {
        let name = name.as_bytes().to_vec();
        let state = Arc::clone(self);
        let node = header.node;
        let thread = header.pid;
        let answer = self.files.remove_xattr(&self.context(header), self.handle(node), name);
        answer.then(move |result| {
            state.changed([attr::ino(node)]);
            state.used(thread, &result);
            let result = result.map_err(|error| state.unless_unlinked(node, error, Code::NoXattr));
            state.done(result, reply, || vec![Touched::Node(attr::ino(node))]);
        });
    }
}
