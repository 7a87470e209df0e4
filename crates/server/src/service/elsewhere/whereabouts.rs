//! The sites of a file and of its bytes, as `user.pelago.sites` says them.
//!
//! The home answers the server of another site with numbers. The server that a program asks puts
//! names for them, and adds what it knows alone: the bytes that are on its disk.

use std::ops::ControlFlow;
use std::sync::Arc;

use pelago_store::rows::Rnode;
use pelago_wire::{Code, Context, Done, Error, FileKind, Handle, InodeId, Reply, Request, xattr};

use super::super::execute::Executor;
use super::super::{Dispatcher, Submission};
use crate::router::Origin;

/// The sites of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Whereabouts {
    home: u16,
    /// The site of its bytes; `None` if it is no regular file.
    bytes: Option<u16>,
}

impl Whereabouts {
    /// Returns the answer of a home to another site: one number or two, with a space between.
    fn encode(self) -> Vec<u8> {
        let Self { home, bytes } = self;
        let bytes = bytes.map(|site| format!(" {site}")).unwrap_or_default();
        format!("{home}{bytes}").into_bytes()
    }

    fn decode(text: &[u8]) -> Option<Self> {
        let mut numbers = str::from_utf8(text).ok()?.split(' ').map(|number| number.parse().ok());
        let home = numbers.next()??;
        let bytes = match numbers.next() {
            Some(number) => Some(number?),
            None => None,
        };
        numbers.next().is_none().then_some(Self { home, bytes })
    }
}

impl Dispatcher {
    /// Answers a program that asks at which sites a file is; goes on with any other request.
    pub(super) fn divert_whereabouts<'a>(
        self: &Arc<Self>,
        context: &Context,
        origin: Origin,
        submission: Submission<'a>,
    ) -> ControlFlow<Option<Result<Reply, Error>>, Submission<'a>> {
        let node = match &submission.request {
            Request::GetXattr { node, name } if name == xattr::SITES => *node,
            _ => return ControlFlow::Continue(submission),
        };
        // A session of a site is answered by the home, and every home is its own.
        if origin == Origin::Site {
            return ControlFlow::Continue(submission);
        }
        let Submission { request, bulk, later } = submission;
        let home = node.ino.site();
        if home == self.parts.sites.own() {
            let stored = self.parts.shard.stored_node(node);
            let answer = stored.map(|stored| {
                // Copies are of the node that has the bytes.
                let copied = stored.rnode.bytes_at.unwrap_or(node.ino);
                Reply::Bytes(self.named(node, of_own(home, &stored.rnode), copied))
            });
            return ControlFlow::Break(Some(answer));
        }
        let this = Arc::downgrade(self);
        let done = later();
        let named: Done = Box::new(move |result| {
            let this = this.upgrade();
            done(match (result, this) {
                (Ok(Reply::Bytes(text)), Some(this)) => match Whereabouts::decode(&text) {
                    Some(found) => Ok(Reply::Bytes(this.named(node, found, node.ino))),
                    None => Err(Code::Bug.into()),
                },
                (Ok(_), Some(_)) => Err(Code::Bug.into()),
                (Ok(_), None) => Err(Code::Unavailable.into()),
                (Err(error), _) => Err(error),
            });
        });
        self.dispatch_remote(home, context, request, bulk, named);
        ControlFlow::Break(None)
    }

    /// Returns the answer to a program. `copied`: the node of which there may be copies here.
    fn named(&self, node: Handle, found: Whereabouts, copied: InodeId) -> Vec<u8> {
        let sites = &self.parts.sites;
        let Whereabouts { home, bytes } = found;
        let mut text = format!("home={}", sites.name(home));
        if let Some(bytes) = bytes {
            // The home may not know yet that they are here.
            let is_here = sites.stays.node_of(node.ino).is_some();
            let bytes = if is_here { sites.own() } else { bytes };
            text = format!("{text} bytes={}", sites.name(bytes));
        }
        let kept = sites.kept_bytes(copied);
        if kept > 0 {
            text = format!("{text} copied={kept}");
        }
        text.into_bytes()
    }
}

/// Returns the sites of a file of this site, by its row.
fn of_own(own: u16, rnode: &Rnode) -> Whereabouts {
    let bytes = match rnode.kind {
        FileKind::Regular => Some(rnode.bytes_at.map_or(own, |node| node.site())),
        _ => None,
    };
    Whereabouts { home: own, bytes }
}

impl Executor<'_> {
    /// Answers the server of another site at which sites a file of this one is. In a volume of one
    /// site there is no such attribute.
    pub(in crate::service) fn sites_of_file(&self, node: Handle) -> Result<Vec<u8>, Error> {
        let sites = &self.parts.sites;
        if sites.of_session(self.context.session).is_none() {
            return Err(Code::NoXattr.into());
        }
        let stored = self.parts.shard.stored_node(node)?;
        Ok(of_own(sites.own(), &stored.rnode).encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_number_or_two() {
        for found in
            [Whereabouts { home: 0, bytes: Some(2) }, Whereabouts { home: 65_534, bytes: None }]
        {
            assert_eq!(Whereabouts::decode(&found.encode()), Some(found));
        }
        for text in ["", "0 ", " 0", "0 1 2", "0  1", "65536", "a", "0 -1"] {
            assert_eq!(Whereabouts::decode(text.as_bytes()), None, "{text}");
        }
        assert_eq!(Whereabouts::decode(b"\xff"), None);
    }
}
