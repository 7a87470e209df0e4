//! Answers from what is kept, and what a request does to that before it is sent.

use pelago_wire::{
    Attr, Code, Context, DataPath, DirEntry, Error, FileKind, InodeId, NameIn, OpenEffect,
    OpenFlags, OpenId, Reply, Request, Tells, Touched, Touches, limits, xattr,
};

use crate::clock;
use crate::kept::{Kept, Text};
use crate::state::State;
use crate::told::{Sent, Told};
use crate::touches::touched;

/// After this time a read updates the time of access, whatever has changed.
const DAY_SECONDS: i64 = 24 * 60 * 60;

impl State {
    /// Answers a request, if what is kept does.
    pub(crate) fn answer(
        &mut self,
        context: &Context,
        request: &Request,
    ) -> Option<Result<Reply, Error>> {
        let Self { kept, changes, .. } = &*self;
        match request.tells() {
            Tells::Name(NameIn { dir, name }) => {
                if changes.is_name_changing(dir.ino, name) {
                    return None;
                }
                if kept.name(dir.ino, name)?.is_none() {
                    return Some(Err(Code::NotFound.into()));
                }
                let entry = kept.entry(dir.ino, name)?;
                (!changes.is_node_changing(entry.attr.ino)).then_some(Ok(Reply::Entry(entry)))
            }
            Tells::Attributes => self.answer_attributes(context, request),
            Tells::Parent(dir) => {
                let parent = kept.parent(dir)?;
                let changes =
                    changes.is_node_changing(dir) || changes.is_node_changing(parent.attr.ino);
                (!changes).then_some(Ok(Reply::Entry(parent)))
            }
            Tells::Names { .. } => self.page(request).map(Ok),
            tells @ (Tells::Target(_) | Tells::Xattrs(_) | Tells::Xattr { .. }) => {
                let (node, text) = Text::told(tells)?;
                self.text(node, &text)
            }
            Tells::Nothing | Tells::NewName(_) | Tells::NewDir(_) | Tells::OldName(_) => None,
        }
    }

    /// Answers a request whose answer tells attributes only.
    fn answer_attributes(
        &mut self,
        context: &Context,
        request: &Request,
    ) -> Option<Result<Reply, Error>> {
        let Self { kept, changes, .. } = &*self;
        if let Request::GetAttr { node } = request {
            let attr = kept.attr(node.ino)?;
            return (!changes.is_node_changing(node.ino)).then_some(Ok(Reply::Attr(attr)));
        }
        let OpenEffect::Makes { node, open, flags } = request.opens() else {
            // It changes what it tells, or scans for it.
            return None;
        };
        if !opens_here(flags) || self.blind_removals > 0 {
            return None;
        }
        let attr = kept.attr(node.ino)?;
        if attr.kind != FileKind::Regular || changes.is_node_changing(node.ino) {
            return None;
        }
        let era = changes.era();
        self.opens.add_here(open, node, flags, (context.uid, context.gid), era);
        Some(Ok(Reply::Opened { attr, path: DataPath::Cached }))
    }

    /// Answers with a text of a node that is neither a name nor an attribute.
    fn text(&self, node: InodeId, text: &Text) -> Option<Result<Reply, Error>> {
        if self.changes.is_node_changing(node) {
            return None;
        }
        match self.kept.text(node, text) {
            Some(value) => Some(value.map(Reply::Bytes).map_err(Error::new)),
            None => without_xattrs(&self.kept, node, text),
        }
    }

    /// Returns a part of a listing that is kept, as long as the attributes are that it needs.
    fn page(&self, request: &Request) -> Option<Reply> {
        let Request::List { dir, after, entries, attributes, .. } = request else { return None };
        let most = usize::try_from(*entries).unwrap_or(usize::MAX);
        let page = self.kept.listings.page(dir.ino, *after, most)?;
        let whole = |entry: &DirEntry| match attributes {
            false => Some(entry.clone()),
            true => {
                let found = self.kept.entry(dir.ino, &entry.name)?;
                let holds = !self.changes.is_node_changing(found.attr.ino);
                holds.then(|| DirEntry { entry: Some(found), ..entry.clone() })
            }
        };
        let entries: Vec<DirEntry> = page.entries.iter().map_while(whole).collect();
        let is_cut = entries.len() < page.entries.len();
        let end = page.end && !is_cut;
        (!entries.is_empty() || end).then_some(Reply::Listed { entries, end })
    }

    /// Returns the opens that the server must know before it gets a request: one that the request
    /// names, and those of files that it changes and that may lose their name.
    pub(crate) fn unreported(&self, request: &Request, sent: &Sent) -> Vec<OpenId> {
        if sent.is_blind {
            return self.opens.unreported(None);
        }
        let named = request.describe().subjects;
        let named = named.each_open().filter(|open| self.opens.is_unreported(*open));
        let of_changed = sent.touched.iter().flat_map(|touched| match touched {
            Touched::Node(ino) => self.opens.unreported(Some(*ino)),
            _ => Vec::new(),
        });
        named.chain(of_changed).collect()
    }

    /// A request is about to be sent: what it changes is not kept from now on.
    pub(crate) fn send(&mut self, request: &mut Request) -> Sent {
        if let Request::Read { open, .. } = request
            && let Some(ino) = self.opens.inode_of(*open)
        {
            self.note_read(ino);
        }
        let told = Told::by(request);
        let shows_dirty = self.shows_dirty(request);
        self.widen(request);
        let since = self.changes.now();
        let touches = request.touches();
        self.end_changed_bytes(touches);
        if let Touches::Bytes(open) = touches {
            self.opens.note_write(open);
        }
        let touched = touched(touches, &self.kept, |open| self.opens.written_inode(open));
        let is_unknown = |at: NameIn<'_>| self.kept.name(at.dir.ino, at.name).is_none();
        let is_blind = touches.removed_names().into_iter().flatten().any(is_unknown);
        self.blind_removals += usize::from(is_blind);
        self.changes.begin(&touched);
        // The end of an open without a write ends the lease on the bytes, and leaves the attributes
        // as they are.
        let is_unchanged = |open: &OpenId| !self.opens.has_written(*open);
        if !matches!(request, Request::Release { open } if is_unchanged(open)) {
            self.kept.drop_touched(&touched);
        }
        Sent { since, touched, is_blind, told, shows_dirty }
    }

    /// Has a listing read ahead that will be kept: a program that lists a directory goes on.
    fn widen(&self, request: &mut Request) {
        if let Request::List { dir, after, behind: None, entries, attributes: true } = request
            && self.kept.attr(dir.ino).is_some()
            && self.kept.listings.may_follow(dir.ino, *after)
        {
            *entries = u32::try_from(limits::LIST_ENTRIES).unwrap_or(u32::MAX);
        }
    }

    /// Returns why the server does not have an open that a request names.
    pub(crate) fn failure(&self, request: &Request) -> Option<Code> {
        request.describe().subjects.each_open().find_map(|open| self.opens.failure(open))
    }

    /// A request is not sent after all.
    pub(crate) fn give_up(&mut self, request: &Request, sent: &Sent) {
        self.blind_removals -= usize::from(sent.is_blind);
        self.changes.end(&sent.touched);
        if let Request::Release { open } = request {
            self.opens.remove(*open);
        }
    }

    /// A read may update the time of access, as `relatime` has it.
    fn note_read(&mut self, ino: InodeId) {
        let is_due = |attr: &Attr| {
            attr.atime <= attr.mtime
                || attr.atime <= attr.ctime
                || clock::seconds().saturating_sub(attr.atime.seconds) >= DAY_SECONDS
        };
        if self.kept.attr(ino).as_ref().is_some_and(is_due) {
            self.kept.drop_attr(ino);
        }
    }
}

/// Returns whether an open needs nothing of the server yet.
const fn opens_here(flags: OpenFlags) -> bool {
    flags.read && !flags.write && !flags.truncate && !flags.append && !flags.strict_atime
}

/// Answers for a node that has no extended attributes.
fn without_xattrs(kept: &Kept, ino: InodeId, text: &Text) -> Option<Result<Reply, Error>> {
    let has_none = kept.attr(ino).is_some_and(|attr| !attr.has_xattrs);
    match text {
        Text::Xattrs if has_none => Some(Ok(Reply::Bytes(Vec::new()))),
        Text::Xattr(name) if has_none && may_exist(name) => Some(Err(Code::NoXattr.into())),
        _ => None,
    }
}

/// Returns whether an extended attribute may have this name; the server has errors of their own for
/// others.
fn may_exist(name: &[u8]) -> bool {
    let has_prefix = |prefix: &&[u8]| name.len() > prefix.len() && name.starts_with(prefix);
    let is_named = xattr::PREFIXES.iter().any(has_prefix) && !name.contains(&0);
    let is_list = name == xattr::ACL_ACCESS || name == xattr::ACL_DEFAULT;
    (is_named || is_list) && name.len() <= limits::XATTR_NAME_BYTES
}
