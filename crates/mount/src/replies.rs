//! Replies that several requests share, from the results of `Files`.

use pelago_client::Written;
use pelago_fuse::{Errno, Reply, reply};
use pelago_wire::Error;

use crate::attr;

/// Replies without a value.
pub(crate) fn done(result: Result<(), Error>, reply: Reply<()>) {
    match result {
        Ok(()) => reply.ok(&()),
        Err(error) => reply.error(attr::error(error)),
    }
}

/// Replies with the number of bytes that were written.
pub(crate) fn written(result: Result<Written, Error>, reply: Reply<reply::Written>) {
    match result {
        Ok(written) => {
            reply.ok(&reply::Written(u32::try_from(written.bytes).unwrap_or(u32::MAX)));
        }
        Err(error) => reply.error(attr::error(error)),
    }
}

/// Replies with bytes.
pub(crate) fn bytes(result: Result<Vec<u8>, Error>, reply: Reply<[u8]>) {
    match result {
        Ok(bytes) => reply.ok(&bytes),
        Err(error) => reply.error(attr::error(error)),
    }
}

/// Replies with the value of an extended attribute, or with its size if `size` is zero.
pub(crate) fn sized(result: Result<Vec<u8>, Error>, size: u32, reply: Reply<reply::Xattr>) {
    match result {
        Ok(bytes) => match u32::try_from(bytes.len()) {
            Ok(length) if size == 0 => reply.ok(&reply::Xattr::Size(length)),
            Ok(length) if length <= size => reply.ok(&reply::Xattr::Value(bytes)),
            _ => reply.error(Errno::RANGE),
        },
        Err(error) => reply.error(attr::error(error)),
    }
}
