//! Answers from cached facts, without a message to the server.

use pelago_wire::{
    Code, Context, DataPath, Error, FileKind, InodeId, Name, NameIn, OpenEffect, OpenFlags, Reply,
    Request, Tells, limits, xattr,
};

use crate::caller::Caller;
use crate::changes::{Changes, LeaseEra};
use crate::leased_cache::{LeasedCache, Text};
use crate::listings::ListedName;
use crate::state::State;

/// Facts that are cached, without those that are being changed.
struct Facts<'a> {
    cached: &'a LeasedCache,
    changes: &'a Changes,
}

impl State {
    /// Answers a request from what is cached under leases; `None` if the server must be asked. An
    /// open for reading is recorded here, and reported to the server when something needs that.
    pub(crate) fn answer(
        &mut self,
        context: &Context,
        request: &Request,
    ) -> Option<Result<Reply, Error>> {
        let reply = Facts { cached: &self.cached, changes: &self.changes }.answer(request)?;
        self.record_open(context, request, self.changes.era())?;
        Some(reply)
    }

    /// Answers a request from what was cached when the leases ended last; as
    /// [`State::answer`].
    pub(crate) fn answer_stale(
        &mut self,
        context: &Context,
        request: &Request,
    ) -> Option<Result<Reply, Error>> {
        let reply = Facts { cached: &self.stale, changes: &self.changes }.answer(request)?;
        self.record_open(context, request, LeaseEra::NONE)?;
        Some(reply)
    }

    /// Records the open of a request that is answered here, if it opens a file. Returns `None` if
    /// the server must be asked.
    fn record_open(
        &mut self,
        context: &Context,
        request: &Request,
        leases: LeaseEra,
    ) -> Option<()> {
        let OpenEffect::Makes { node, open, flags } = request.opens() else { return Some(()) };
        if self.unknown_removals > 0 {
            // A removal whose target is unknown may remove the file.
            return None;
        }
        self.opens.add_here(open, node, flags, Caller::of(context), leases);
        Some(())
    }
}

impl Facts<'_> {
    /// Answers a request; `None` if the facts do not suffice.
    fn answer(&self, request: &Request) -> Option<Result<Reply, Error>> {
        let Self { cached, changes } = self;
        match request.tells() {
            Tells::Name(NameIn { dir, name }) => {
                if changes.is_name_changing(dir.ino, name) {
                    return None;
                }
                if cached.name(dir.ino, name)?.is_none() {
                    return Some(Err(Code::NotFound.into()));
                }
                if let Request::Step { .. } = request {
                    return self.answer_step(dir.ino, name).map(Ok);
                }
                let entry = cached.entry(dir.ino, name)?;
                (!changes.is_node_changing(entry.attr.ino)).then_some(Ok(Reply::Entry(entry)))
            }
            Tells::Attributes => self.answer_attributes(request).map(Ok),
            Tells::Parent(dir) => {
                let parent = cached.parent(dir)?;
                let is_changing =
                    changes.is_node_changing(dir) || changes.is_node_changing(parent.attr.ino);
                (!is_changing).then_some(Ok(Reply::Entry(parent)))
            }
            Tells::Names { .. } => self.answer_listing(request).map(Ok),
            tells @ (Tells::Target(_) | Tells::Xattrs(_) | Tells::Xattr { .. }) => {
                let (node, text) = Text::reported(tells)?;
                self.answer_text(node, &text)
            }
            Tells::Nothing | Tells::NewName(_) | Tells::NewDir(_) | Tells::OldName(_) => None,
        }
    }

    /// Answers with the node at a name for the server of another site. A directory whose home is
    /// elsewhere has no attributes in such a reply.
    fn answer_step(&self, dir: InodeId, name: &Name) -> Option<Reply> {
        let node = self.cached.name(dir, name).flatten()?;
        if node.ino.site() != dir.site() {
            return Some(Reply::Stepped { node, attr: None });
        }
        let attr = self.cached.attr(node.ino)?;
        let holds = !self.changes.is_node_changing(node.ino);
        holds.then_some(Reply::Stepped { node, attr: Some(attr) })
    }

    /// Answers a request whose reply reports attributes only.
    fn answer_attributes(&self, request: &Request) -> Option<Reply> {
        let attr_of = |ino: InodeId| {
            let attr = self.cached.attr(ino)?;
            (!self.changes.is_node_changing(ino)).then_some(attr)
        };
        if let Request::GetAttr { node } = request {
            return attr_of(node.ino).map(Reply::Attr);
        }
        let OpenEffect::Makes { node, flags, .. } = request.opens() else {
            // `SetAttr` changes them, `Find` scans for the file.
            return None;
        };
        let attr = attr_of(node.ino).filter(|attr| attr.kind == FileKind::Regular)?;
        opens_here(flags).then_some(Reply::Opened { attr, path: DataPath::Cached })
    }

    /// Answers with the target of a link, or with extended attributes.
    fn answer_text(&self, node: InodeId, text: &Text) -> Option<Result<Reply, Error>> {
        if self.changes.is_node_changing(node) {
            return None;
        }
        match self.cached.text(node, text) {
            Some(value) => Some(value.map(Reply::Bytes).map_err(Error::new)),
            None => without_xattrs(self.cached, node, text),
        }
    }

    /// Answers with a part of a cached listing. It ends before the first entry whose attributes are
    /// wanted and not cached.
    fn answer_listing(&self, request: &Request) -> Option<Reply> {
        let Request::List { dir, after, entries, attributes, .. } = request else { return None };
        let most = usize::try_from(*entries).unwrap_or(usize::MAX);
        let page = self.cached.listings.page(dir.ino, *after, most)?;
        let whole = |listed: &ListedName| match attributes {
            false => Some(listed.with(None)),
            true => match self.cached.entry(dir.ino, &listed.name) {
                Some(found) => {
                    let holds = !self.changes.is_node_changing(found.attr.ino);
                    holds.then(|| listed.with(Some(found)))
                }
                // As the home of the listed directory answers for a directory of another site.
                None => (listed.ino.site() != dir.ino.site()).then(|| listed.with(None)),
            },
        };
        let entries: Vec<_> = page.entries.iter().map_while(whole).collect();
        let is_cut = entries.len() < page.entries.len();
        let end = page.end && !is_cut;
        (!entries.is_empty() || end).then_some(Reply::Listed { entries, end })
    }
}

/// Returns whether an open with these flags needs nothing of the server yet.
const fn opens_here(flags: OpenFlags) -> bool {
    flags.read && !flags.write && !flags.truncate && !flags.append && !flags.strict_atime
}

/// Answers for a node that has no extended attributes.
fn without_xattrs(cached: &LeasedCache, ino: InodeId, text: &Text) -> Option<Result<Reply, Error>> {
    let has_none = cached.attr(ino).is_some_and(|attr| !attr.has_xattrs);
    match text {
        Text::Xattrs if has_none => Some(Ok(Reply::Bytes(Vec::new()))),
        Text::Xattr(name) if has_none && may_exist(name) => Some(Err(Code::NoXattr.into())),
        _ => None,
    }
}

/// Returns whether an extended attribute may have this name. For other names the server has errors
/// of their own.
fn may_exist(name: &[u8]) -> bool {
    let has_prefix = |prefix: &&[u8]| name.len() > prefix.len() && name.starts_with(prefix);
    let is_named = xattr::PREFIXES.iter().any(has_prefix) && !name.contains(&0);
    let is_list = name == xattr::ACL_ACCESS || name == xattr::ACL_DEFAULT;
    (is_named || is_list) && name.len() <= limits::XATTR_NAME_BYTES
}
