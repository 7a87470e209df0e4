//! Methods for the group commit, the workers and the service.

use std::sync::atomic::Ordering;

use pelago_store::table;
use pelago_wire::{
    Context, Error, Generation, Handle, InodeId, Reply, SessionId, SessionRecord, WriteEra,
};

use crate::reply_cache::RequestKey;
use crate::shard::{
    Scan, Scanned, Shard, orphans, replies, scan, sessions, tag_scan, upkeep, writing_rows,
};
use crate::unsafe_changes::Subject;

impl Shard {
    /// Writes the counts of all directories that changed since the last call, so that the next
    /// [`table::Table::persist`] makes them safe with the changes. Returns the sequence of the
    /// newest batch.
    ///
    /// # Errors
    /// If the table fails; the counts are then written the next time.
    pub fn write_counts(&self) -> Result<u64, Error> {
        upkeep::write_counts(self, false)
    }

    /// Hands the inodes that changed since the last call to
    /// [`WritebackErrors`](crate::writeback_errors::WritebackErrors): the group commit that begins
    /// now makes their changes safe, or loses them.
    pub fn begin_group_commit(&self) {
        let mut locked = self.lock();
        let changed = std::mem::take(&mut locked.state.changed);
        let safe = self.durability.safe();
        locked.state.unsafe_changes.forget_safe(safe);
        self.durability.writeback_errors.track(changed);
    }

    /// Writes the last batches of a clean run: times of reads, counts, and the end of the used ids.
    ///
    /// # Errors
    /// If the table fails.
    pub fn finish(&self) -> Result<(), Error> {
        upkeep::finish(self)
    }

    /// Opens the table again after it stopped, and forgets the cached rows. Begins a new epoch if
    /// there are sessions of other processes. Returns whether the batches that were not safe are
    /// lost.
    ///
    /// # Errors
    /// Those of the table; it must be opened again then.
    pub fn reopen(&self) -> Result<bool, table::Error> {
        upkeep::reopen(self)
    }

    /// Forgets the cached rows and directories.
    pub fn forget_rows(&self) {
        self.lock().state.forget_rows();
    }

    /// Returns the bytes of memory of the cached rows, and of the filters.
    #[must_use]
    pub fn memory_bytes(&self) -> (u64, u64) {
        let locked = self.lock();
        (locked.state.rows.bytes(), locked.state.directories.filter_bytes())
    }

    /// Returns the reply to a request, if it is stored. If it is not, as for most requests, nothing
    /// is read.
    ///
    /// # Errors
    /// If the table fails, or the row is damaged.
    pub fn cached_reply(&self, request_key: &RequestKey) -> Result<Option<Reply>, Error> {
        match self.lock().state.replies.names(request_key) {
            true => replies::get(&*self.table, request_key),
            false => Ok(None),
        }
    }

    /// Returns whether an earlier epoch stored the reply to a request.
    #[must_use]
    pub fn has_reply_of_earlier_epoch(&self, session: SessionId, mutation: u64) -> bool {
        self.lock().state.replies.is_of_earlier_run(session, mutation)
    }

    /// Stores the reply to a request whose change is written already.
    ///
    /// # Errors
    /// If the table fails.
    pub fn store_reply(&self, context: &Context, reply: &Reply) -> Result<(), Error> {
        replies::store(self, context, reply)
    }

    /// Returns whether the reply to a change of this session must wait until all done batches are
    /// safe: because the change builds on an unsafe change of another session, which may not come
    /// back after a loss of power, or because the next run would not know this session. `opened`:
    /// the inode that the session has opened.
    #[must_use]
    pub fn builds_on_others(&self, session: SessionId, opened: Option<InodeId>) -> bool {
        if !self.has_sessions.load(Ordering::Acquire) {
            return false;
        }
        let locked = self.lock();
        let safe = self.durability.safe();
        let changes = &locked.state.unsafe_changes;
        let is_of_other = |ino| changes.is_of_other(session, Subject::Inode(ino), safe);
        changes.is_shared(session, safe)
            || locked.state.replies.forgotten(session).is_some()
            || opened.is_some_and(is_of_other)
    }

    /// Returns the present epoch, which [`Shard::reopen`] may change.
    #[must_use]
    pub fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns the sequence of the newest batch that stored a reply to this request; 0 if this
    /// epoch has stored none.
    #[must_use]
    pub fn sequence_of(&self, session: SessionId, mutation: u64) -> u64 {
        self.lock().state.replies.sequence(session, mutation)
    }

    /// Returns the sessions of the last run, and makes their rows safe. Called once, before the
    /// first request.
    ///
    /// # Errors
    /// If the table fails.
    pub fn earlier_sessions(&self) -> Result<Vec<(SessionId, SessionRecord)>, Error> {
        sessions::load(self)
    }

    /// Begins a session of another process. Without effect if it has begun already. The next run of
    /// the server knows the session, unless the machine loses power before the next group commit:
    /// then all its changes are lost too.
    ///
    /// # Errors
    /// If the table fails.
    pub fn begin_session(&self, session: SessionId, record: &SessionRecord) -> Result<(), Error> {
        sessions::begin(self, session, record)
    }

    /// Deletes the row of a session that goes on: the next run of the server will not know it.
    ///
    /// # Errors
    /// If the table fails.
    pub fn forget_session(&self, session: SessionId) -> Result<(), Error> {
        sessions::forget(self, session)
    }

    /// Writes again the row of a session that [`Shard::forget_session`] deleted, so that the next
    /// run of the server knows it. Without effect for any other session.
    ///
    /// # Errors
    /// If the table fails; the next run will not know the session.
    pub fn remember_session(&self, session: SessionId) -> Result<(), Error> {
        sessions::remember(self, session)
    }

    /// Begins new eras of leases on bytes: once the rows are safe, the next run of the server
    /// refuses the bytes that the clients of these sessions held back in earlier eras.
    ///
    /// # Errors
    /// If the table fails.
    pub fn begin_write_eras(&self, eras: &[(SessionId, WriteEra)]) -> Result<(), Error> {
        sessions::begin_write_eras(self, eras)
    }

    /// Ends a session, and deletes the replies that are stored for it.
    ///
    /// # Errors
    /// If the table fails; the next run of the server then waits for the session.
    pub fn end_session(&self, session: SessionId) -> Result<(), Error> {
        sessions::end(self, session)
    }

    /// Returns a directory in memory whose names should be scanned: one whose count was lost in an
    /// unclean stop, else one whose filter takes less than `room` bytes.
    #[must_use]
    pub fn next_to_scan(&self, room: u64) -> Option<InodeId> {
        scan::next(&self.lock().state, room)
    }

    /// Returns directories whose count was lost in an unclean stop, among some rows from the key
    /// `from` on, and the key at which to continue; `None` after the last row.
    ///
    /// # Errors
    /// If the table fails.
    pub fn dirs_to_recount(&self, from: &[u8]) -> Result<scan::Part<InodeId>, Error> {
        scan::dirs_to_recount(&*self.table, from)
    }

    /// Begins a scan: from now on the shard records the names that are added and removed. Returns
    /// `None` if the directory was removed, or needs no scan any more.
    ///
    /// # Errors
    /// If the table fails.
    pub fn begin_scan(&self, dir: InodeId) -> Result<Option<Scan>, Error> {
        scan::begin(&mut self.lock(), dir)
    }

    /// Ends a scan: its result, with the changes recorded since it began, is used from now on;
    /// `None` if it failed. Returns true if too many changes were recorded, so that there is no
    /// filter: another scan at once would end in the same way.
    pub fn end_scan(&self, dir: InodeId, scanned: Option<Scanned>) -> bool {
        scan::end(&mut self.lock().state, dir, scanned)
    }

    /// Drops filters, the largest first, until all together take at most `limit` bytes. Returns
    /// their bytes.
    pub fn limit_filters(&self, limit: u64) -> u64 {
        scan::limit_filters(&mut self.lock().state, limit)
    }

    /// Returns the wanted files that are embedded in their names, among some rows from the key
    /// `from` on (empty: from the first), and the key at which to continue; `None` after the last
    /// row.
    ///
    /// # Errors
    /// If the table fails.
    pub fn find_embedded(
        &self,
        from: &[u8],
        is_wanted: &dyn Fn(InodeId) -> bool,
    ) -> Result<scan::Part<Handle>, Error> {
        scan::find_embedded(&*self.table, from, is_wanted)
    }

    /// Returns whether there is a row of kind [`pelago_store::key::RowKind::Tag`] for each tag, and
    /// no other, so that a search for tags may rely on them.
    #[must_use]
    pub fn tags_are_complete(&self) -> bool {
        self.tags_are_complete.load(Ordering::Acquire)
    }

    /// Records that there is a safe row for each tag, and no other row of a tag. It stays so: each
    /// operation that changes a tag changes its row too.
    pub fn set_tags_complete(&self) {
        self.tags_are_complete.store(true, Ordering::Release);
    }

    /// Returns the keys of rows of tags that no file seems to have, among some rows from the key
    /// `from` on (empty: from the first), and the key at which to continue; `None` after the last
    /// row.
    ///
    /// # Errors
    /// If the table fails.
    pub fn stray_tags(&self, from: &[u8]) -> Result<scan::Part<Vec<u8>>, Error> {
        tag_scan::strays(&*self.table, from)
    }

    /// Deletes these rows of tags, except those of tags that a file has.
    ///
    /// # Errors
    /// If the table fails.
    pub fn delete_stray_tags(&self, keys: &[Vec<u8>]) -> Result<(), Error> {
        tag_scan::delete_strays(self, keys)
    }

    /// Returns the files that seem to have a tag without a row, among some extended attributes from
    /// the key `from` on (empty: from the first), and the key at which to continue; `None` after
    /// the last one.
    ///
    /// # Errors
    /// If the table fails.
    pub fn files_without_tag_rows(&self, from: &[u8]) -> Result<scan::Part<InodeId>, Error> {
        tag_scan::without_rows(&*self.table, from)
    }

    /// Puts the rows of all tags of these files. Returns the files that were not found at the
    /// location in their handles.
    ///
    /// # Errors
    /// If the table fails.
    pub fn put_tag_rows(&self, handles: &[Handle]) -> Result<Vec<InodeId>, Error> {
        tag_scan::put_rows(self, handles)
    }

    /// Deletes the rows of a file that has no name and is not open, except its orphan row: from
    /// then on it cannot be opened. Returns the sequence of the last batch, and the generation of
    /// its newest content file. Returns `None` and does nothing if the file is open, has a name, or
    /// can be brought back.
    ///
    /// # Errors
    /// If the table fails, or a row is damaged.
    pub fn remove_unnamed(&self, ino: InodeId) -> Result<Option<(u64, Option<Generation>)>, Error> {
        orphans::remove_unnamed(self, ino)
    }

    /// Deletes the orphan rows of files that [`Shard::remove_unnamed`] removed, and whose content
    /// files are safely removed.
    ///
    /// # Errors
    /// If the table fails.
    pub fn delete_orphan_rows(&self, inos: &[InodeId]) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        orphans::delete_rows(&mut txn, inos);
        txn.commit()?;
        Ok(())
    }

    /// Deletes the `writing` rows of files that are not being written and whose bytes are safe.
    ///
    /// # Errors
    /// If the table fails.
    pub fn delete_writing_rows(&self, inos: &[InodeId]) -> Result<(), Error> {
        let mut txn = self.begin_upkeep();
        writing_rows::delete(&mut txn, inos);
        txn.commit()?;
        Ok(())
    }
}
