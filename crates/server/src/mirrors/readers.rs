//! The readers of a mirror: a server over its rows and content files, which is started by the first
//! reader, and waits while a group is carried out.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use pelago_data::{HeldFile, MayBlock};
use pelago_store::key;
use pelago_store::rows::{Rnode, RnodeFlags, Row, Stamp};
use pelago_store::table::SharedTable;
use pelago_store::volume::VolumeId;
use pelago_wire::{Handle, InodeId};

use super::error::MirrorError;
use super::image::Image;
use super::read_table::ReadTable;
use crate::group_gate::GroupGate;
use crate::server::{Parts, Server};
use crate::service::groups::{AnnouncedGroup, GroupTouches};

/// Listens for the readers of a mirror. Dropping the result ends that, and their sessions.
pub type ListenForReaders =
    Box<dyn Fn(ReadableMirror) -> Option<Box<dyn Send + Sync>> + Send + Sync>;

/// A mirror that can be read, until it is closed.
#[derive(Clone)]
pub struct ReadableMirror {
    /// The folder of the mirror.
    pub path: PathBuf,
    opened: Weak<Opened>,
}

impl ReadableMirror {
    /// Returns the server of the readers, which is started if there is none. Waits while a group is
    /// carried out.
    ///
    /// # Errors
    /// [`MirrorError::Superseded`] if it is closed; [`MirrorError::Readers`].
    pub fn server(&self) -> Result<Arc<Server>, MirrorError> {
        self.opened.upgrade().ok_or(MirrorError::Superseded)?.server()
    }
}

impl fmt::Debug for ReadableMirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadableMirror").field(&self.path).finish()
    }
}

/// The readers of one mirror.
#[derive(Default)]
pub(super) struct Readers {
    /// `None` while the mirror is not open. A leaf lock.
    open: Mutex<Option<Open>>,
}

/// The readers of an open mirror.
struct Open {
    opened: Arc<Opened>,
    _listener: Option<Box<dyn Send + Sync>>,
}

/// An open mirror, as its readers see it.
struct Opened {
    path: PathBuf,
    volume: VolumeId,
    table: Arc<ReadTable>,
    parts: Parts,
    gate: Arc<GroupGate>,
    /// `None` before the first reader. Taken after the gate.
    server: Mutex<Option<Arc<Server>>>,
    /// Removed files that readers have open. Locked by the thread that carries out groups alone.
    kept: Mutex<Vec<HeldFile>>,
}

impl Readers {
    /// Lets readers in, if they are not yet.
    pub(super) fn open(&self, image: &Image, listen: Option<&ListenForReaders>) {
        if self.open.lock().is_some() {
            return;
        }
        let opened = Arc::new(Opened::over(image));
        let path = opened.path.clone();
        let readable = ReadableMirror { path, opened: Arc::downgrade(&opened) };
        let listener = listen.and_then(|listen| listen(readable));
        *self.open.lock() = Some(Open { opened, _listener: listener });
    }

    /// Ends the sessions of all readers, and stops their server.
    pub(super) fn close(&self) {
        let Some(Open { opened, _listener: listener }) = self.open.lock().take() else { return };
        drop(listener);
        let server = opened.server.lock().take();
        if let Some(server) = server
            && let Err(error) = server.stop()
        {
            tracing::warn!(%error, "the readers of a mirror were not stopped cleanly");
        }
    }

    /// Returns the server of the readers.
    pub(super) fn server(&self) -> Option<Result<Arc<Server>, MirrorError>> {
        self.opened().map(|opened| opened.server())
    }

    /// Counts the readers.
    pub(super) fn count(&self) -> usize {
        let server = self.opened().and_then(|opened| opened.server.lock().clone());
        server.map_or(0, |server| server.reader_count())
    }

    /// Carries out a group between two requests of readers. `touched` returns what it changes. If
    /// that fails, the readers are closed: they would see half of the group.
    pub(super) fn around<C>(
        &self,
        context: &mut C,
        touched: impl Fn(&mut C) -> Result<GroupTouches, MirrorError>,
        carry_out: impl FnOnce(&mut C) -> Result<(), MirrorError>,
    ) -> Result<(), MirrorError> {
        let Some(opened) = self.opened() else { return carry_out(context) };
        let carried_out = opened.around(context, touched, carry_out);
        if carried_out.is_err() {
            self.close();
        }
        carried_out
    }

    fn opened(&self) -> Option<Arc<Opened>> {
        self.open.lock().as_ref().map(|open| Arc::clone(&open.opened))
    }
}

impl Opened {
    fn over(image: &Image) -> Self {
        let table = Arc::new(ReadTable::over(Arc::clone(&image.table)));
        let volume = &image.volume;
        Self {
            path: image.path(),
            volume: volume.id(),
            parts: Parts {
                table: Arc::clone(&table) as SharedTable,
                content: Arc::clone(&image.content),
                volume: volume.id(),
                shard: volume.shard_id(),
                hasher: volume.hasher(),
            },
            table,
            gate: Arc::default(),
            server: Mutex::default(),
            kept: Mutex::default(),
        }
    }

    fn server(&self) -> Result<Arc<Server>, MirrorError> {
        let _no_group = self.gate.enter(MayBlock::Yes).map_err(|_| MirrorError::Superseded)?;
        let mut server = self.server.lock();
        if let Some(server) = &*server {
            return Ok(Arc::clone(server));
        }
        let started = Server::start_for_readers(self.parts.clone(), Arc::clone(&self.gate));
        let started = started.map_err(|source| MirrorError::Readers {
            path: self.path.clone(),
            source: Box::new(source),
        })?;
        tracing::info!(volume = %self.volume, "the mirror is read");
        Ok(Arc::clone(server.insert(Arc::new(started))))
    }

    fn around<C>(
        &self,
        context: &mut C,
        touched: impl Fn(&mut C) -> Result<GroupTouches, MirrorError>,
        carry_out: impl FnOnce(&mut C) -> Result<(), MirrorError>,
    ) -> Result<(), MirrorError> {
        loop {
            let server = self.server.lock().clone();
            let told = match &server {
                Some(server) => Some(Told::tell(server, touched(context)?)),
                None => None,
            };
            let mut closed = self.gate.close();
            if told.is_none() && self.server.lock().is_some() {
                // It was started meanwhile.
                continue;
            }
            let Some(Told { server, touches, announced }) = told else {
                return carry_out(context);
            };
            let held = server.readers().hold_open_files(&touches);
            if let Err(error) = carry_out(context) {
                closed.end();
                return Err(error);
            }
            let kept = self.kept.lock().iter().map(|file| file.rnode.ino).collect();
            let removed = server.readers().group_is_carried_out(&touches, &kept);
            self.keep(server, held, &removed);
            drop(closed);
            server.readers().end_group(&touches, announced);
            return Ok(());
        }
    }

    /// Keeps the files that a group has removed and that readers have open, and forgets those that
    /// are open no more.
    fn keep(&self, server: &Server, held: Vec<HeldFile>, removed: &BTreeSet<InodeId>) {
        let mut kept = self.kept.lock();
        kept.retain(|file| {
            let is_open = server.has_open(Handle::own(file.rnode.ino));
            if !is_open {
                rows_of(file).into_iter().for_each(|(key, _)| self.table.forget(&key));
                server.readers().file_is_gone(file.rnode.ino);
            }
            is_open
        });
        for file in held.into_iter().filter(|file| removed.contains(&file.rnode.ino)) {
            rows_of(&file).into_iter().for_each(|(key, value)| self.table.keep(key, value));
            kept.push(file);
        }
    }
}

/// A group of which the readers are told.
struct Told<'a> {
    server: &'a Server,
    touches: GroupTouches,
    announced: AnnouncedGroup,
}

impl<'a> Told<'a> {
    fn tell(server: &'a Server, touches: GroupTouches) -> Self {
        let announced = server.readers().announce_group(&touches);
        Self { server, touches, announced }
    }
}

/// Returns the rows of a removed file: those of a file without a name.
fn rows_of(file: &HeldFile) -> Vec<(Vec<u8>, Vec<u8>)> {
    let ino = file.rnode.ino;
    let flags = RnodeFlags {
        has_xattrs: false,
        has_acl: false,
        has_default_acl: false,
        moved: false,
        ..file.rnode.flags
    };
    let rnode = Rnode { links: 0, flags, ..file.rnode.clone() };
    let mut rows = vec![(key::inode(ino), rnode.encode(Stamp::default()))];
    rows.extend(file.inline.clone().map(|bytes| (key::inline(ino), bytes)));
    rows
}
