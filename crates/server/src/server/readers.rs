//! The server of a mirror's readers, beneath which the groups of the primary change rows and
//! content files.

use std::sync::Arc;

use pelago_search::Indexing;
use pelago_wire::{Handle, limits};

use super::{Options, Parts, Server, StartError};
use crate::Passthrough;
use crate::group_gate::GroupGate;
use crate::service::LocalService;

impl Server {
    /// Serves the readers of a mirror, whose groups pass this gate. Its table is only read.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub(crate) fn start_for_readers(
        parts: Parts,
        groups: Arc<GroupGate>,
    ) -> Result<Self, StartError> {
        let options = Options {
            memory_bytes: limits::MIRROR_READER_BYTES,
            read_only: true,
            passthrough: Passthrough::Never,
            indexing: Indexing::Never,
            workers: false,
            groups: Some(groups),
            ..Options::default()
        };
        Self::start_on(parts, options)
    }

    /// Returns the service that is told of groups.
    pub(crate) fn readers(&self) -> &LocalService {
        &self.service
    }

    /// Counts the sessions of readers.
    pub(crate) fn reader_count(&self) -> usize {
        self.service.others().all().len()
    }

    /// Returns whether a reader has a file open.
    pub(crate) fn has_open(&self, file: Handle) -> bool {
        self.core.shard.is_open(file.ino)
    }
}
