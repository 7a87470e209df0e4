//! The facts that replies report: names, attributes, texts, listings and opens. Those that are
//! leased, and have not changed since the request was sent, are cached.
//!
//! A fact that is cached although it has changed is a stale read. So each one passes two checks:
//! the server has granted a lease on it, and no change of it is under way or has ended since the
//! request was sent, except those of the request itself ([`Terms`]).

use std::mem;

use pelago_wire::{
    Attr, Buffer, Code, Cookie, DirEntry, Error, Granted, Handle, InodeId, Leases, Name,
    OpenEffect, OpenId, Reply, Request, SessionId, Tells, Touched,
};

use crate::changes::Moment;
use crate::leased_cache::Text;
use crate::open_files::Writes;
use crate::read_ahead::LargerRead;
use crate::state::State;

/// The record of a request that was sent, until its reply is here.
pub(crate) struct SentRequest {
    /// The moment before it was sent.
    pub(crate) since: Moment,
    /// The nodes and names that it changes.
    pub(crate) touched: Vec<Touched>,
    /// It removes a name whose target is unknown here.
    pub(crate) removes_unknown: bool,
    pub(crate) facts: ReplyFacts,
    pub(crate) shows_dirty: Option<ShowsDirty>,
}

/// A request whose reply shows files that it does not name, while some were dirty.
pub(crate) struct ShowsDirty {
    /// The files that were dirty.
    pub(crate) files: Vec<InodeId>,
    /// The request as it came: it is sent again if its reply is too old.
    pub(crate) request: Request,
}

/// The facts that the reply to a request will report.
pub(crate) enum ReplyFacts {
    /// Attributes, if the reply has any.
    Attrs,
    /// Attributes of a file whose size was set.
    Size(InodeId),
    /// The target of a name.
    Name(InodeId, Name),
    /// The absence of a name that was removed.
    OldName(InodeId, Name),
    /// As [`ReplyFacts::Name`]; the target is a directory without names.
    NewDir(InodeId, Name),
    /// The parent of a directory.
    Parent(InodeId),
    /// The names of a directory after a position. The caller wants `most` of them.
    Names {
        dir: InodeId,
        after: Cookie,
        most: usize,
        /// The caller wants their attributes.
        attributes: bool,
    },
    Text(InodeId, Text),
    /// A new open file.
    Open(OpenId, Writes),
    /// Bytes of a file: those that the caller wants, and more.
    Bytes(LargerRead),
    /// The end of an open file.
    Release(OpenId),
    /// As [`ReplyFacts::Name`]; the target is a new file, and open.
    Created(InodeId, Name, OpenId, Writes),
}

impl ReplyFacts {
    /// Returns the facts that the reply to a request of this session will report.
    pub(crate) fn of(request: &Request, session: SessionId) -> Self {
        let opens = request.opens();
        let tells = request.tells();
        if let Request::SetAttr { node, set, .. } = request
            && set.size.is_some()
        {
            return Self::Size(node.ino);
        }
        if let OpenEffect::Ends(open) = opens {
            return Self::Release(open);
        }
        match (opens.made(), tells) {
            (Some((open, flags)), Tells::NewName(at)) => {
                Self::Created(at.dir.ino, at.name.clone(), open, Writes::of(flags, session))
            }
            (Some((open, flags)), _) => Self::Open(open, Writes::of(flags, session)),
            (None, Tells::Name(at) | Tells::NewName(at)) => Self::Name(at.dir.ino, at.name.clone()),
            (None, Tells::NewDir(at)) => Self::NewDir(at.dir.ino, at.name.clone()),
            (None, Tells::OldName(at)) => Self::OldName(at.dir.ino, at.name.clone()),
            (None, Tells::Names { dir, after, most }) => Self::Names {
                dir,
                after,
                most: usize::try_from(most).unwrap_or(usize::MAX),
                attributes: matches!(request, Request::List { attributes: true, .. }),
            },
            (None, Tells::Parent(dir)) => Self::Parent(dir),
            // A reply may have attributes that the table of requests does not list: they become
            // volatile.
            (None, Tells::Nothing | Tells::Attributes) => Self::Attrs,
            (None, Tells::Target(_) | Tells::Xattrs(_) | Tells::Xattr { .. }) => {
                Text::reported(tells).map_or(Self::Attrs, |(node, text)| Self::Text(node, text))
            }
        }
    }
}

/// The terms on which the facts of a reply may be cached.
struct Terms<'a> {
    /// The moment before the request was sent. Nothing is cached that has changed since.
    since: Moment,
    leases: Leases,
    /// The changes of the request itself, which do not count as changes since.
    own: &'a [Touched],
}

impl Terms<'_> {
    /// Returns how many of the request's own changes are of this node or name.
    fn own_changes(&self, of: &Touched) -> u32 {
        let count = self.own.iter().filter(|own| *own == of).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

impl State {
    /// Handles the reply to a request: caches its facts, and records its opens. Attributes in the
    /// reply that are not cached become volatile, so that no cache below caches them.
    pub(crate) fn answered(
        &mut self,
        sent: SentRequest,
        result: &mut Result<Reply, Error>,
        granted: Granted,
    ) {
        let SentRequest { since, touched, removes_unknown, facts, shows_dirty: _ } = sent;
        self.unknown_removals -= usize::from(removes_unknown);
        let terms = Terms { since, leases: granted.leases, own: &touched };
        // The checks come first: they count the request's own changes as under way.
        let attrs = self.check_attrs(&terms, result, granted.changed);
        let names = self.valid_names(&facts, &terms, result);
        let text = self.valid_text(&facts, &terms, result);
        self.lease_bytes(&facts, &terms, result);
        let set_size = match facts {
            ReplyFacts::Size(ino) => Some(ino).filter(|ino| self.node_holds(*ino, &terms)),
            _ => None,
        };
        // What a request touches that may still be carried out is not cached until it is over. The
        // release of an open that it may have made ends the lease on the bytes, and this client is
        // not told.
        match granted.may_be_done {
            false => self.changes.end(&touched),
            true => {
                for touched in &touched {
                    if let Touched::Node(ino) = touched {
                        self.end_bytes(*ino);
                    }
                }
                self.unsettled.extend_from_slice(&touched);
            }
        }
        match (set_size, &facts) {
            (Some(ino), _) => self.lease_again(ino, result),
            (None, ReplyFacts::Size(ino)) => drop(self.cut.remove(ino)),
            (None, _) => {}
        }
        self.drop_moved_nodes(result);
        attrs.into_iter().for_each(|attr| self.cached.keep_attr(attr));
        for (dir, name, node) in names {
            self.cached.keep_name(dir, name, node);
        }
        if let Some((ino, text, value)) = text {
            self.cached.keep_text(ino, text, value);
        }
        self.cache_listing(&facts, &terms, result);
        self.cache_dir(&facts, &terms, result);
        trim_listing(&facts, result);
        self.cache_bytes(&facts, result);
        self.record_opens(&facts, result);
    }

    /// Returns the attributes to cache, and makes the other ones in the reply volatile. `changed`
    /// are those that come beside the reply.
    fn check_attrs(
        &self,
        terms: &Terms<'_>,
        result: &mut Result<Reply, Error>,
        changed: Option<Attr>,
    ) -> Vec<Attr> {
        let mut valid = Vec::new();
        for attr in result.iter_mut().flat_map(Reply::attrs_mut) {
            if let Some(size) = self.dirty.size(attr.ino) {
                // The reply may be older than bytes that were sent to the server since.
                attr.size = size;
            }
            if terms.leases.node && !attr.volatile && self.node_holds(attr.ino, terms) {
                valid.push(*attr);
            } else {
                attr.volatile = true;
            }
        }
        let may_cache = |attr: &Attr| {
            terms.leases.changed && !attr.volatile && self.node_holds(attr.ino, terms)
        };
        valid.extend(changed.filter(may_cache));
        valid
    }

    fn node_holds(&self, ino: InodeId, terms: &Terms<'_>) -> bool {
        let own = terms.own_changes(&Touched::Node(ino));
        self.changes.node_holds(ino, terms.since, own)
    }

    fn name_holds(&self, dir: InodeId, name: &Name, terms: &Terms<'_>) -> bool {
        let own = terms.own_changes(&Touched::Name { dir, name: name.clone() });
        self.changes.name_holds(dir, name, terms.since, own)
    }

    /// Returns the names of a reply to cache, with their targets; `None` for one that does not
    /// exist.
    fn valid_names(
        &self,
        facts: &ReplyFacts,
        terms: &Terms<'_>,
        result: &Result<Reply, Error>,
    ) -> Vec<(InodeId, Name, Option<Handle>)> {
        if !terms.leases.names {
            return Vec::new();
        }
        let names = match (facts, result) {
            (
                ReplyFacts::Name(dir, name)
                | ReplyFacts::NewDir(dir, name)
                | ReplyFacts::Created(dir, name, ..),
                Ok(Reply::Entry(entry) | Reply::Created { entry, .. }),
            ) => vec![(*dir, name.clone(), Some(entry.handle))],
            (ReplyFacts::Name(dir, name), Ok(Reply::Stepped { node, .. })) => {
                vec![(*dir, name.clone(), Some(*node))]
            }
            // Only a lookup: a request that was to make the name says nothing of it by this error.
            (ReplyFacts::Name(dir, name), Err(Error { code: Code::NotFound, .. }))
                if terms.own.is_empty() =>
            {
                vec![(*dir, name.clone(), None)]
            }
            (ReplyFacts::OldName(dir, name), Ok(Reply::Removed(_))) => {
                vec![(*dir, name.clone(), None)]
            }
            (ReplyFacts::Names { dir, .. }, Ok(Reply::Listed { entries, .. })) => {
                let known = entries.iter().filter_map(|entry| Some((entry, node_of(*dir, entry)?)));
                known.map(|(entry, node)| (*dir, entry.name.clone(), Some(node))).collect()
            }
            _ => Vec::new(),
        };
        names.into_iter().filter(|(dir, name, _)| self.name_holds(*dir, name, terms)).collect()
    }

    /// Returns the text of a reply to cache, with its node and its value.
    fn valid_text(
        &self,
        facts: &ReplyFacts,
        terms: &Terms<'_>,
        result: &Result<Reply, Error>,
    ) -> Option<(InodeId, Text, Result<Vec<u8>, Code>)> {
        let ReplyFacts::Text(ino, text) = facts else { return None };
        let value = match result {
            Ok(Reply::Bytes(bytes)) => Ok(bytes.clone()),
            Err(Error { code: Code::NoXattr, .. }) => Err(Code::NoXattr),
            _ => return None,
        };
        let holds = terms.leases.node && self.node_holds(*ino, terms);
        holds.then(|| (*ino, text.clone(), value))
    }

    /// Records a lease on the bytes of a file that the request has opened for writing.
    fn lease_bytes(
        &mut self,
        facts: &ReplyFacts,
        terms: &Terms<'_>,
        result: &Result<Reply, Error>,
    ) {
        let (Some(Attr { ino, size, .. }), Some(era)) =
            (opened_for_write_back(facts, result), terms.leases.bytes)
        else {
            return;
        };
        if self.node_holds(ino, terms) {
            self.dirty.lease(ino, era, size);
        }
    }

    /// Keeps the bytes that were read ahead, and leaves those in the reply that its caller wants.
    fn cache_bytes(&mut self, facts: &ReplyFacts, result: &mut Result<Reply, Error>) {
        let ReplyFacts::Bytes(read) = facts else { return };
        let Ok(Reply::Data(buffer)) = result else { return self.end_read(read, None) };
        let all = mem::take(buffer).into_bytes();
        *buffer = Buffer::new(all[..read.wanted.min(all.len())].to_vec());
        self.end_read(read, Some(all));
    }

    /// Drops the nodes that a removal or a move has changed, as only its reply says, and counts
    /// them as changed now: older replies may report them as they were.
    fn drop_moved_nodes(&mut self, result: &Result<Reply, Error>) {
        let moved = result.as_ref().map_or_else(|_| Vec::new(), Reply::moved_nodes);
        self.changes.begin(&moved);
        self.changes.end(&moved);
        self.cached.drop_touched(&moved);
    }

    /// Caches a part of a listing.
    fn cache_listing(
        &mut self,
        facts: &ReplyFacts,
        terms: &Terms<'_>,
        result: &Result<Reply, Error>,
    ) {
        let (ReplyFacts::Names { dir, after, .. }, Ok(Reply::Listed { entries, end })) =
            (facts, result)
        else {
            return;
        };
        // A name that is not cached must not seem to be absent.
        let is_cached =
            |entry: &DirEntry| matches!(self.cached.name(*dir, &entry.name), Some(Some(_)));
        if terms.leases.names
            && self.changes.names_hold(*dir, terms.since)
            && entries.iter().all(is_cached)
        {
            self.cached.listings.keep(*dir, *after, entries, *end);
        }
    }

    /// Caches that a new directory has no names, or the parent of a directory.
    fn cache_dir(&mut self, facts: &ReplyFacts, terms: &Terms<'_>, result: &Result<Reply, Error>) {
        let Ok(Reply::Entry(entry)) = result else { return };
        match facts {
            ReplyFacts::NewDir(..) => {
                let dir = entry.attr.ino;
                if terms.leases.made && self.changes.names_hold(dir, terms.since) {
                    self.cached.listings.know_whole(dir);
                }
            }
            ReplyFacts::Parent(dir) => {
                if terms.leases.node && self.changes.node_holds(*dir, terms.since, 0) {
                    self.cached.keep_parent(*dir, entry.handle);
                }
            }
            ReplyFacts::Attrs
            | ReplyFacts::Size(_)
            | ReplyFacts::Name(..)
            | ReplyFacts::OldName(..)
            | ReplyFacts::Names { .. }
            | ReplyFacts::Text(..)
            | ReplyFacts::Open(..)
            | ReplyFacts::Bytes(_)
            | ReplyFacts::Release(_)
            | ReplyFacts::Created(..) => {}
        }
    }

    /// Records an open that the server has made, or the end of one.
    fn record_opens(&mut self, facts: &ReplyFacts, result: &Result<Reply, Error>) {
        match facts {
            ReplyFacts::Open(open, writes) | ReplyFacts::Created(_, _, open, writes) => {
                if let Some(attr) = result.as_ref().ok().and_then(Reply::opened) {
                    self.opens.add_at_server(*open, attr.ino, *writes);
                }
            }
            ReplyFacts::Release(open) => self.remove_open(*open),
            ReplyFacts::Attrs
            | ReplyFacts::Size(_)
            | ReplyFacts::Name(..)
            | ReplyFacts::OldName(..)
            | ReplyFacts::NewDir(..)
            | ReplyFacts::Parent(_)
            | ReplyFacts::Names { .. }
            | ReplyFacts::Bytes(_)
            | ReplyFacts::Text(..) => {}
        }
    }
}

/// Returns the node of an entry in the listing of a directory; `None` if the listing does not have
/// its handle. That of a directory of another site than the listed one has no hint.
fn node_of(dir: InodeId, entry: &DirEntry) -> Option<Handle> {
    match &entry.entry {
        Some(found) => Some(found.handle),
        None => (entry.ino.site() != dir.site()).then(|| Handle::own(entry.ino)),
    }
}

/// Leaves in a listing what its caller wants: the holder may have requested more entries, and their
/// attributes, to cache them.
fn trim_listing(facts: &ReplyFacts, result: &mut Result<Reply, Error>) {
    let (ReplyFacts::Names { most, attributes, .. }, Ok(Reply::Listed { entries, end })) =
        (facts, result)
    else {
        return;
    };
    if entries.len() > *most {
        entries.truncate(*most);
        *end = false;
    }
    if !attributes {
        entries.iter_mut().for_each(|entry| entry.entry = None);
    }
}

/// Returns the file that a request has opened, if writes to it may be buffered.
fn opened_for_write_back(facts: &ReplyFacts, result: &Result<Reply, Error>) -> Option<Attr> {
    match facts {
        ReplyFacts::Open(_, writes) | ReplyFacts::Created(_, _, _, writes) if writes.is_back() => {
            result.as_ref().ok().and_then(Reply::opened).copied()
        }
        _ => None,
    }
}
