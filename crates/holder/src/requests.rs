//! Requests that are about to be sent: what each of them changes, and must wait for.
//!
//! From the moment at which a request is sent until its reply, nothing that it changes is cached.

use pelago_wire::{
    Attr, Code, InodeId, NameIn, OpenId, Request, SessionId, Touched, Touches, limits,
};

use crate::clock;
use crate::leased_cache::LeasedCache;
use crate::reply_facts::{ReplyFacts, SentRequest};
use crate::state::State;

/// After this time a read updates the time of access, whatever has changed.
const DAY_SECONDS: i64 = 24 * 60 * 60;

impl State {
    /// Prepares a request of this session that is about to be sent. What it changes is not cached
    /// from now on.
    pub(crate) fn send(&mut self, request: &mut Request, session: SessionId) -> SentRequest {
        if let Request::Read { open, .. } | Request::Hashes { open, .. } = request
            && let Some(ino) = self.opens.inode_of(*open)
        {
            self.note_read(ino);
        }
        let larger = self.read_bytes_ahead(request);
        let facts = larger.map_or_else(|| ReplyFacts::of(request, session), ReplyFacts::Bytes);
        // For the request as it came: attributes that only this holder wants are not shown.
        let shows_dirty = self.shows_dirty(request);
        self.list_with_attributes(request);
        self.read_listing_ahead(request);
        let since = self.changes.now();
        let touches = request.touches();
        let cut = self.lease_to_cut(request);
        self.end_changed_bytes(touches);
        self.cut.extend(cut);
        if let Touches::Bytes(open) = touches {
            self.opens.note_write(open);
        }
        let touched = touched(touches, &self.cached, |open| self.opens.written_inode(open));
        let is_unknown = |at: NameIn<'_>| self.cached.name(at.dir.ino, at.name).is_none();
        let removes_unknown = touches.removed_names().into_iter().flatten().any(is_unknown);
        self.unknown_removals += usize::from(removes_unknown);
        self.changes.begin(&touched);
        // The end of an open without a write ends the lease on the bytes, and leaves the attributes
        // as they are.
        let is_unchanged = |open: &OpenId| !self.opens.has_written(*open);
        if !matches!(request, Request::Release { open } if is_unchanged(open)) {
            self.cached.drop_touched(&touched);
        }
        SentRequest { since, touched, removes_unknown, facts, shows_dirty }
    }

    /// Undoes [`State::send`] for a request that is not sent after all.
    pub(crate) fn give_up(&mut self, request: &Request, sent: &SentRequest) {
        if let ReplyFacts::Bytes(read) = &sent.facts {
            self.end_read(read, None);
        }
        self.unknown_removals -= usize::from(sent.removes_unknown);
        self.changes.end(&sent.touched);
        match request {
            Request::Release { open } => self.remove_open(*open),
            Request::SetAttr { node, .. } => drop(self.cut.remove(&node.ino)),
            _ => {}
        }
    }

    /// Returns the opens that the server must know before it gets a request: the one that the
    /// request names, and those of files that it changes and that may lose their last name.
    pub(crate) fn unreported(&self, request: &Request, sent: &SentRequest) -> Vec<OpenId> {
        if sent.removes_unknown {
            return self.opens.unreported(None);
        }
        let named = request.describe().subjects;
        let named = named.each_open().filter(|open| self.opens.is_unreported(*open));
        let of_changed = sent.touched.iter().flat_map(|touched| match touched {
            Touched::Node(ino) => self.opens.unreported(Some(*ino)),
            Touched::Name { .. } | Touched::Bytes(_) => Vec::new(),
        });
        named.chain(of_changed).collect()
    }

    /// Returns whether a request names an open that the server does not know, and that is not being
    /// reported.
    pub(crate) fn names_unreported(&self, request: &Request) -> bool {
        request.describe().subjects.each_open().any(|open| self.opens.is_here(open))
    }

    /// Returns the error with which the server has refused an open that a request names.
    pub(crate) fn failure(&self, request: &Request) -> Option<Code> {
        request.describe().subjects.each_open().find_map(|open| self.opens.failure(open))
    }

    /// Requests the attributes of the entries of a listing, if no cache below asks for them: the
    /// program that lists a directory may look at each of them.
    fn list_with_attributes(&self, request: &mut Request) {
        if let Request::List { dir, behind: None, attributes, .. } = request
            && self.is_only_cache
            && self.cached.attr(dir.ino).is_some()
        {
            *attributes = true;
        }
    }

    /// Requests more entries of a listing that will be cached: a program that lists a directory
    /// continues.
    fn read_listing_ahead(&self, request: &mut Request) {
        if let Request::List { dir, after, behind: None, entries, attributes: true } = request
            && self.cached.attr(dir.ino).is_some()
            && self.cached.listings.may_follow(dir.ino, *after)
        {
            *entries = u32::try_from(limits::LIST_ENTRIES).unwrap_or(u32::MAX);
        }
    }

    /// Drops the attributes of a file whose time of access a read may update, as `relatime` has it.
    fn note_read(&mut self, ino: InodeId) {
        let is_due = |attr: &Attr| {
            attr.atime <= attr.mtime
                || attr.atime <= attr.ctime
                || clock::seconds().saturating_sub(attr.atime.seconds) >= DAY_SECONDS
        };
        if self.cached.attr(ino).as_ref().is_some_and(is_due) {
            self.cached.access_time_changes(ino);
        }
    }
}

/// Returns what a request changes, as far as that is known before the server carries it out.
/// `written` returns the file of an open that writes.
fn touched(
    touches: Touches<'_>,
    cached: &LeasedCache,
    written: impl Fn(OpenId) -> Option<InodeId>,
) -> Vec<Touched> {
    match touches {
        Touches::Nothing => Vec::new(),
        // The bytes themselves are in the cache below, which sees each change of them.
        Touches::Node(ino) | Touches::Contents(ino) => vec![Touched::Node(ino)],
        Touches::Bytes(open) | Touches::Release(open) => {
            written(open).map(Touched::Node).into_iter().collect()
        }
        Touches::NewName { at, of } => {
            let of = of.map(Touched::Node).into_iter();
            of.chain([Touched::Node(at.dir.ino), Touched::from(at)]).collect()
        }
        Touches::OldName(at) => {
            let mut all = vec![Touched::Node(at.dir.ino), Touched::from(at)];
            all.extend(target(cached, at));
            all
        }
        Touches::Move { from, to } => {
            let mut all = vec![Touched::Node(from.dir.ino), Touched::from(from), Touched::from(to)];
            all.extend((to.dir.ino != from.dir.ino).then_some(Touched::Node(to.dir.ino)));
            all.extend(target(cached, from));
            all.extend(target(cached, to));
            all
        }
    }
}

/// Returns the node to which a name leads, if that is cached.
fn target(cached: &LeasedCache, at: NameIn<'_>) -> Option<Touched> {
    cached.name(at.dir.ino, at.name).flatten().map(|handle| Touched::Node(handle.ino))
}
