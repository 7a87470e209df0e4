//! What answers tell, and how much of it is kept.

use pelago_wire::{
    Attr, Code, Cookie, DirEntry, Error, Granted, Handle, InodeId, Leases, Name, OpenEffect,
    OpenId, Reply, Request, Tells, Touched,
};

use crate::changes::Moment;
use crate::kept::Text;
use crate::open_files::Writes;
use crate::state::State;

/// A request that was sent.
pub(crate) struct Sent {
    pub(crate) since: Moment,
    /// What it changes.
    pub(crate) touched: Vec<Touched>,
    /// It removes a name of which it is not known what it leads to.
    pub(crate) is_blind: bool,
    pub(crate) told: Told,
    pub(crate) shows_dirty: Option<ShowsDirty>,
}

/// A request that shows files that it does not name, while some were dirty.
pub(crate) struct ShowsDirty {
    pub(crate) files: Vec<InodeId>,
    /// The request as it came: it is sent again if its answer is too old.
    pub(crate) request: Request,
}

/// What the answer to a request tells.
pub(crate) enum Told {
    /// Attributes, if there are any in it.
    Attrs,
    /// What a name leads to afterwards.
    Name(InodeId, Name),
    /// That a name does not exist any more.
    OldName(InodeId, Name),
    /// As [`Told::Name`], and that the directory there has no names.
    NewDir(InodeId, Name),
    /// The parent of a directory.
    Parent(InodeId),
    /// Names of a directory after a position, of which so many were wanted.
    Names {
        dir: InodeId,
        after: Cookie,
        most: usize,
    },
    Text(InodeId, Text),
    /// It opens a file, perhaps for writing; or ends that.
    Open(OpenId, Writes),
    Release(OpenId),
    /// As [`Told::Name`], and the file is open.
    Created(InodeId, Name, OpenId, Writes),
}

impl Told {
    /// Returns what the answer to a request will tell.
    pub(crate) fn by(request: &Request) -> Self {
        let opens = request.opens();
        let tells = request.tells();
        if let OpenEffect::Ends(open) = opens {
            return Self::Release(open);
        }
        match (opens.made(), tells) {
            (Some((open, flags)), Tells::NewName(at)) => {
                Self::Created(at.dir.ino, at.name.clone(), open, Writes::of(flags))
            }
            (Some((open, flags)), _) => Self::Open(open, Writes::of(flags)),
            (None, Tells::Name(at) | Tells::NewName(at)) => Self::Name(at.dir.ino, at.name.clone()),
            (None, Tells::NewDir(at)) => Self::NewDir(at.dir.ino, at.name.clone()),
            (None, Tells::OldName(at)) => Self::OldName(at.dir.ino, at.name.clone()),
            (None, Tells::Names { dir, after, most }) => {
                Self::Names { dir, after, most: usize::try_from(most).unwrap_or(usize::MAX) }
            }
            (None, Tells::Parent(dir)) => Self::Parent(dir),
            // An answer may have attributes that it does not tell: they are not kept.
            (None, Tells::Nothing | Tells::Attributes) => Self::Attrs,
            (None, Tells::Target(_) | Tells::Xattrs(_) | Tells::Xattr { .. }) => {
                Text::told(tells).map_or(Self::Attrs, |(node, text)| Self::Text(node, text))
            }
        }
    }
}

impl State {
    /// Keeps what an answer tells, as far as it may be kept; attributes that are not become
    /// volatile, so that no cache below keeps them.
    pub(crate) fn answered(
        &mut self,
        sent: Sent,
        result: &mut Result<Reply, Error>,
        granted: Granted,
    ) {
        let Sent { since, touched, is_blind, told, shows_dirty: _ } = sent;
        self.blind_removals -= usize::from(is_blind);
        let Granted { leases, changed, may_be_done } = granted;
        let own = |ino: InodeId| {
            let is_it = |touched: &&Touched| **touched == Touched::Node(ino);
            u32::try_from(touched.iter().filter(is_it).count()).unwrap_or(u32::MAX)
        };
        let mut kept = Vec::new();
        for attr in result.iter_mut().flat_map(Reply::attrs_mut) {
            if let Some(size) = self.dirty.size(attr.ino) {
                // The answer may be older than bytes that the server was sent meanwhile.
                attr.size = size;
            }
            let holds = || self.changes.node_holds(attr.ino, since, own(attr.ino));
            if leases.node && !attr.volatile && holds() {
                kept.push(*attr);
            } else {
                attr.volatile = true;
            }
        }
        kept.extend(changed.filter(|attr| {
            let holds = || self.changes.node_holds(attr.ino, since, own(attr.ino));
            leases.changed && !attr.volatile && holds()
        }));
        let names = self.told_names(&told, &touched, (since, leases), result);
        let text = self.told_text(&told, (since, leases), result);
        if let (Some(Attr { ino, size, .. }), Some(era)) =
            (opened_file(&told, result), leases.bytes)
            && self.changes.node_holds(ino, since, own(ino))
        {
            self.dirty.lease(ino, era, size);
        }
        // If it may still be carried out, what it touches is not kept again.
        if !may_be_done {
            self.changes.end(&touched);
        }
        let gone = gone_nodes(result);
        self.changes.begin(&gone);
        self.changes.end(&gone);
        self.kept.drop_touched(&gone);
        kept.into_iter().for_each(|attr| self.kept.keep_attr(attr));
        for (dir, name, node) in names {
            self.kept.keep_name(dir, name, node);
        }
        if let Some((ino, text, value)) = text {
            self.kept.keep_text(ino, text, value);
        }
        self.keep_listing(&told, (since, leases), result);
        match (&told, &*result) {
            (Told::NewDir(..), Ok(Reply::Entry(entry)))
                if leases.made && self.changes.names_hold(entry.attr.ino, since) =>
            {
                self.kept.listings.know_whole(entry.attr.ino);
            }
            (Told::Parent(dir), Ok(Reply::Entry(entry)))
                if leases.node && self.changes.node_holds(*dir, since, 0) =>
            {
                self.kept.keep_parent(*dir, entry.handle);
            }
            _ => {}
        }
        self.note_opens(&told, result);
    }

    fn told_names(
        &self,
        told: &Told,
        touched: &[Touched],
        (since, leases): (Moment, Leases),
        result: &Result<Reply, Error>,
    ) -> Vec<(InodeId, Name, Option<Handle>)> {
        if !leases.names {
            return Vec::new();
        }
        let holds = |dir: InodeId, name: &Name| {
            let it = Touched::Name { dir, name: name.clone() };
            let own = touched.iter().filter(|touched| **touched == it).count();
            let own = u32::try_from(own).unwrap_or(u32::MAX);
            self.changes.name_holds(dir, name, since, own)
        };
        let names = match (told, result) {
            (
                Told::Name(dir, name) | Told::NewDir(dir, name) | Told::Created(dir, name, ..),
                Ok(Reply::Entry(entry) | Reply::Created { entry, .. }),
            ) => vec![(*dir, name.clone(), Some(entry.handle))],
            (Told::Name(dir, name), Err(Error { code: Code::NotFound, .. }))
                if touched.is_empty() =>
            {
                vec![(*dir, name.clone(), None)]
            }
            (Told::OldName(dir, name), Ok(Reply::Removed(_))) => vec![(*dir, name.clone(), None)],
            (Told::Names { dir, .. }, Ok(Reply::Listed { entries, .. })) => {
                let with_handles =
                    entries.iter().filter_map(|entry| Some((entry, entry.entry.as_ref()?)));
                with_handles
                    .map(|(entry, found)| (*dir, entry.name.clone(), Some(found.handle)))
                    .collect()
            }
            _ => Vec::new(),
        };
        names.into_iter().filter(|(dir, name, _)| holds(*dir, name)).collect()
    }

    fn told_text(
        &self,
        told: &Told,
        (since, leases): (Moment, Leases),
        result: &Result<Reply, Error>,
    ) -> Option<(InodeId, Text, Result<Vec<u8>, Code>)> {
        let Told::Text(ino, text) = told else { return None };
        let value = match result {
            Ok(Reply::Bytes(bytes)) => Ok(bytes.clone()),
            Err(Error { code: Code::NoXattr, .. }) => Err(Code::NoXattr),
            _ => return None,
        };
        let holds = leases.node && self.changes.node_holds(*ino, since, 0);
        holds.then(|| (*ino, text.clone(), value))
    }

    /// Keeps a part of a listing, and leaves in it what was wanted.
    fn keep_listing(
        &mut self,
        told: &Told,
        (since, leases): (Moment, Leases),
        result: &mut Result<Reply, Error>,
    ) {
        let (Told::Names { dir, after, most }, Ok(Reply::Listed { entries, end })) = (told, result)
        else {
            return;
        };
        // A name that is not kept must not seem to be absent.
        let is_kept = |entry: &DirEntry| matches!(self.kept.name(*dir, &entry.name), Some(Some(_)));
        if leases.names && self.changes.names_hold(*dir, since) && entries.iter().all(is_kept) {
            self.kept.listings.keep(*dir, *after, entries, *end);
        }
        if entries.len() > *most {
            entries.truncate(*most);
            *end = false;
        }
    }

    fn note_opens(&mut self, told: &Told, result: &Result<Reply, Error>) {
        match (told, result) {
            (Told::Open(open, writes) | Told::Created(_, _, open, writes), Ok(reply)) => {
                if let Some(attr) = reply.opened() {
                    self.opens.add_at_server(*open, attr.ino, *writes);
                }
            }
            (Told::Release(open), _) => self.opens.remove(*open),
            _ => {}
        }
    }
}

/// Returns the file that an answer opens for writing.
fn opened_file(told: &Told, result: &Result<Reply, Error>) -> Option<Attr> {
    match told {
        Told::Open(_, Writes::Held) | Told::Created(_, _, _, Writes::Held) => {
            result.as_ref().ok().and_then(Reply::opened).copied()
        }
        _ => None,
    }
}

/// Returns the nodes that a change has turned out to touch.
fn gone_nodes(result: &Result<Reply, Error>) -> Vec<Touched> {
    match result {
        Ok(Reply::Removed(attr)) => vec![Touched::Node(attr.ino)],
        Ok(Reply::Renamed { moved, replaced }) => {
            let replaced = replaced.map(|replaced| Touched::Node(replaced.attr.ino));
            [Some(Touched::Node(moved.ino)), replaced].into_iter().flatten().collect()
        }
        _ => Vec::new(),
    }
}
