//! The thread that sends groups to the mirror.
//!
//! If the connection ends, or the mirror cannot keep a group, it connects again. If a group cannot
//! be read here, its changes are part of the next cut. After too many changes the volume is
//! compared with the mirror.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pelago_data::{ContentKey, CutError};
use pelago_meta::shard::RowCut;
use pelago_store::clock;
use pelago_store::report::{content_failed, table_failed};
use pelago_store::rows::MirrorRole;
use pelago_store::table::Snapshot;
use pelago_store::volume;
use pelago_wire::mirror::{
    GroupKind, GroupPart, LinkError, MirrorLink, MirrorSays, PrimaryRun, RowChange, VolumeFile,
};
use pelago_wire::{Code, Time};

use super::content::send_piece;
use super::course::{Course, Next};
use super::cut::{Polled, TakenCut, take_back};
use super::group::{GroupSender, SendError};
use super::levels::WatchedLink;
use super::relay::{RelaySearch, Way};
use super::resync;
use super::verify::Verification;
use super::{Mirror, MirrorPhase, Offer};

/// The pause before a lost connection is made again.
const RECONNECT: Duration = Duration::from_secs(1);
/// The pause after a group that could not be read, and between two checks of the files beside the
/// table.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// The time without a group after which the mirror gets a ping.
pub(super) const PING: Duration = Duration::from_secs(3);

/// The files beside the table, as the mirror has them.
type Files = BTreeMap<VolumeFile, Option<Vec<u8>>>;

/// The reason why a connection was ended here.
pub(super) enum Followed {
    /// The server stops.
    Stopped,
    /// Another connection comes next: to the mirror after one to the relay, or the other way.
    Again,
}

/// The end of a wait for a cut.
enum Waited {
    Cut(Box<TakenCut>),
    /// The groups go another way from now on.
    Way(Way),
    /// The server stops.
    Stopped,
}

/// Sends groups until the server stops, or the mirror was promoted.
pub(super) fn run(mirror: &Arc<Mirror>, run: PrimaryRun) {
    let mut sender = Sender {
        mirror,
        course: Course::new(run),
        files: Files::new(),
        verification: None,
        search: RelaySearch::default(),
        relay_key: None,
        last_record: 0,
    };
    loop {
        match sender.follow() {
            Ok(Followed::Stopped) => return,
            Ok(Followed::Again) => continue,
            Err(SendError::Link(LinkError::Replaced { reign })) => {
                return mirror.record_replaced(reign);
            }
            Err(error) => {
                mirror.drop_cut();
                let problem = Some(error.to_string());
                tracing::warn!(%error, "the mirror gets no groups now");
                mirror.set_phase(MirrorPhase::Connecting { problem });
            }
        }
        if !mirror.pause(RECONNECT) {
            return;
        }
    }
}

/// The sending end of a mirror.
pub(super) struct Sender<'a> {
    pub(super) mirror: &'a Arc<Mirror>,
    pub(super) course: Course,
    /// The files beside the table, as the mirror has them.
    files: Files,
    /// A comparison of the mirror that a person has asked for.
    pub(super) verification: Option<Verification>,
    pub(super) search: RelaySearch,
    /// The key with which the groups of this run are sealed for the mirror, once it has told it.
    pub(super) relay_key: Option<[u8; 32]>,
    /// The number of the last record that was sealed in this run.
    pub(super) last_record: u64,
}

impl<'a> Sender<'a> {
    /// Connects, and sends groups until the server stops or another connection comes next.
    fn follow(&mut self) -> Result<Followed, SendError> {
        if let Some(followed) = self.begin_with_relay()? {
            return Ok(followed);
        }
        let Some(mut link) = self.connect()? else { return Ok(Followed::Stopped) };
        loop {
            if self.forgets_changes() {
                tracing::info!("more has changed than is kept: the mirror is compared again");
                self.course.start_over();
            }
            let sent = match self.course.kind() {
                GroupKind::Copy => self.copy(&mut link),
                GroupKind::Resync => self.resync(&mut link),
                GroupKind::Change | GroupKind::Completion => match self.wait_for_cut(&mut link)? {
                    Waited::Cut(cut) => self.send_cut(&mut link, *cut),
                    Waited::Way(Way::Relay(key)) => {
                        drop(link);
                        return self.follow_relay(key);
                    }
                    Waited::Way(Way::Itself | Way::Aside) => {
                        drop(link);
                        return Ok(match self.mirror.pause(RECONNECT) {
                            true => Followed::Again,
                            false => Followed::Stopped,
                        });
                    }
                    Waited::Stopped => return Ok(Followed::Stopped),
                },
            };
            match sent {
                Ok(()) => {}
                Err(error) if error.leaves_connection() => {
                    tracing::warn!(%error, "a group for the mirror is cut again");
                    self.mirror.note_unread();
                    if !self.mirror.pause(PAUSE) {
                        return Ok(Followed::Stopped);
                    }
                }
                Err(error) => {
                    if matches!(error, SendError::Mirror(_)) {
                        self.course.refused();
                    }
                    return Err(error);
                }
            }
        }
    }

    /// Returns whether more has changed than is kept: then the mirror is compared.
    pub(super) fn forgets_changes(&self) -> bool {
        let rows = self.mirror.parts.shard.row_risk().unwrap_or_default();
        rows.has_more || self.mirror.parts.opens.changes().has_more()
    }

    fn connect(&mut self) -> Result<Option<WatchedLink<'a>>, SendError> {
        let state = self.mirror.state.lock();
        let Some(connect) = state.connect.clone() else { return Ok(None) };
        if state.has_stopped || state.row.role != MirrorRole::Primary {
            return Ok(None);
        }
        let peer = state.row.peer.clone();
        let offer = Offer { reign: state.row.reign, run: self.course.run() };
        drop(state);
        let (link, has) = connect(&peer, self.mirror.parts.volume, offer)?;
        let mut state = self.mirror.state.lock();
        if state.has_stopped {
            return Ok(None);
        }
        state.close = Some(link.closer());
        drop(state);
        self.course.connected(&has);
        self.mirror.relay_is_overtaken(if self.course.follows() { has.number } else { 0 });
        if self.course.follows() {
            self.mirror.set_phase(MirrorPhase::Follows);
        }
        Ok(Some(WatchedLink::new(self.mirror, link)))
    }

    /// Sends the whole volume.
    fn copy(&mut self, link: &mut dyn MirrorLink) -> Result<(), SendError> {
        self.mirror.set_phase(MirrorPhase::Copying { sent: 0 });
        tracing::info!("all of the volume is copied to the mirror");
        let snapshot = self.mirror.begin_copy()?;
        self.files.clear();
        let next = self.course.begin_group();
        let mut group = GroupSender::begin(link, next, clock::now())?;
        let files = self.send_files(&mut group);
        let copied = files.and_then(|files| {
            self.send_copy(&mut group, &snapshot)?;
            Ok(files)
        });
        self.finish(group, next, copied).map(drop)
    }

    /// Finds what the mirror has otherwise than the volume, and sends that and what changed
    /// meanwhile, in one group.
    fn resync(&mut self, link: &mut dyn MirrorLink) -> Result<(), SendError> {
        self.mirror.set_phase(MirrorPhase::Comparing { rows: 0, sent: 0 });
        tracing::info!("the mirror is compared with the volume");
        let snapshot = self.mirror.begin_copy()?;
        self.files.clear();
        let next = self.course.begin_group();
        let mut group = GroupSender::begin(link, next, clock::now())?;
        let compared = resync::send_differences(self.mirror, &mut group, &snapshot);
        drop(snapshot);
        let last = compared.and_then(|()| self.send_last_cut(&mut group));
        let (sent, taken) = match last {
            Ok((files, cut)) => (Ok(files), Some(cut)),
            Err(error) => (Err(error), None),
        };
        // Most of them were sent before the cut, so they do not tell the rate of the line.
        let sent = self.finish(group, next, sent).map(|_| 0);
        match taken {
            Some(cut) => self.record(cut, sent).map(drop),
            None => sent.map(drop),
        }
    }

    /// Sends what has changed since the comparison began, as the last parts of its group. If too
    /// much changes before a cut is read, the next cut has it too: none of its rows was sent, which
    /// come last.
    fn send_last_cut(&self, group: &mut GroupSender<'_>) -> Result<(Files, TakenCut), SendError> {
        loop {
            let cut = self.next_cut()?;
            let sent = self.send_last_changes(group, &cut.rows);
            let error = match sent {
                Ok(files) => return Ok((files, cut)),
                Err(error) => error,
            };
            take_back(self.mirror, cut.rows.changed);
            if self.forgets_changes() || !matches!(error, SendError::GivenUp) {
                return Err(error);
            }
            tracing::info!("the end of a comparison is cut again: too much has changed meanwhile");
        }
    }

    /// Waits for a cut within a group, where no ping is sent.
    fn next_cut(&self) -> Result<TakenCut, SendError> {
        loop {
            match self.mirror.poll_cut(true, PAUSE) {
                Polled::Cut(cut) => return Ok(*cut),
                Polled::NotYet => {}
                Polled::Stopped => return Err(SendError::Primary(Code::Unavailable.into())),
            }
        }
    }

    /// Sends the files beside the table and the changes of a cut, as the last parts of a group.
    fn send_last_changes(
        &self,
        group: &mut GroupSender<'_>,
        cut: &RowCut,
    ) -> Result<Files, SendError> {
        let parts = &self.mirror.parts;
        if cut.changed.risk().has_more || parts.opens.changes().has_more() {
            return Err(SendError::GivenUp);
        }
        let contents = parts.opens.changes().files_of_cut();
        parts.opens.sync_contents(&contents)?;
        self.mirror.wait_until_safe(cut)?;
        self.send_changes(group, &contents, cut)
    }

    fn send_changes(
        &self,
        group: &mut GroupSender<'_>,
        contents: &[ContentKey],
        cut: &RowCut,
    ) -> Result<Files, SendError> {
        let files = self.send_files(group)?;
        self.send_contents(group, contents)?;
        send_rows(group, cut)?;
        Ok(files)
    }

    /// Waits for a cut, or for the relay, and sends a ping now and then.
    fn wait_for_cut(&mut self, link: &mut dyn MirrorLink) -> Result<Waited, SendError> {
        let mut last_sign = Instant::now();
        loop {
            let files_changed = self.files_changed()?;
            if !files_changed && self.course.follows() && self.mirror.wants_hand_over() {
                self.mirror.ask_to_take_over(link)?;
            }
            match self.move_to_relay(link)? {
                Way::Itself => {}
                way @ (Way::Relay(_) | Way::Aside) => return Ok(Waited::Way(way)),
            }
            let verifies = self.verify_some(link)?;
            let wants_rows = self.verification.as_ref().is_some_and(Verification::wants_rows);
            let is_wanted = files_changed || !self.course.follows() || wants_rows;
            match self.mirror.poll_cut(is_wanted, if verifies { Duration::ZERO } else { PAUSE }) {
                Polled::Cut(cut) => return Ok(Waited::Cut(cut)),
                Polled::NotYet => {}
                Polled::Stopped => return Ok(Waited::Stopped),
            }
            if last_sign.elapsed() >= PING {
                link.send(&GroupPart::Ping.encode()?)?;
                let reply = link.receive()?.says;
                if reply != MirrorSays::Pong {
                    let problem = format!("the mirror answers a ping with {reply:?}");
                    return Err(SendError::Link(LinkError::Lost(problem)));
                }
                last_sign = Instant::now();
            }
        }
    }

    /// Sends the changes of a cut. If they do not arrive, the next cut has them too.
    fn send_cut(&mut self, link: &mut dyn MirrorLink, cut: TakenCut) -> Result<(), SendError> {
        let sent = self.send_rows_and_content(link, &cut.rows, cut.at);
        let snapshot = self.record(cut, sent)?;
        match self.verification.as_ref().is_some_and(Verification::wants_rows) {
            true => self.verify_rows(link, &*snapshot),
            false => Ok(()),
        }
    }

    /// Records the result of sending a cut: the number of bytes. Returns its rows, which are those
    /// of the mirror.
    pub(super) fn record(
        &self,
        cut: TakenCut,
        sent: Result<u64, SendError>,
    ) -> Result<Snapshot, SendError> {
        match sent {
            Ok(bytes) => {
                self.mirror.parts.opens.changes().finish_cut();
                self.mirror.set_phase(MirrorPhase::Follows);
                self.mirror.record_mirrored(&cut, bytes);
                Ok(cut.rows.snapshot)
            }
            Err(error) => {
                take_back(self.mirror, cut.rows.changed);
                Err(error)
            }
        }
    }

    /// Returns the number of bytes that were sent.
    pub(super) fn send_rows_and_content(
        &mut self,
        link: &mut dyn MirrorLink,
        cut: &RowCut,
        at: Time,
    ) -> Result<u64, SendError> {
        let parts = &self.mirror.parts;
        // More has changed than is kept, so neither rows nor content of this cut are complete.
        if cut.changed.risk().has_more || parts.opens.changes().has_more() {
            self.course.start_over();
            return Err(SendError::GivenUp);
        }
        let contents = parts.opens.changes().files_of_cut();
        let is_empty = cut.changed.is_empty() && contents.is_empty() && !self.files_changed()?;
        let is_relayed = !self.mirror.state.lock().relay.queue().is_empty();
        if is_empty && self.course.follows() && !is_relayed {
            return Ok(0);
        }
        parts.opens.sync_contents(&contents)?;
        self.mirror.wait_until_safe(cut)?;
        let next = self.course.begin_group();
        self.mirror.state.lock().groups.begin(next.number);
        let mut group = GroupSender::begin(link, next, at)?;
        let sent = self.send_changes(&mut group, &contents, cut);
        self.finish(group, next, sent)
    }

    /// Ends a group, or gives it up. Returns the number of its bytes.
    fn finish(
        &mut self,
        group: GroupSender<'_>,
        next: Next,
        sent: Result<Files, SendError>,
    ) -> Result<u64, SendError> {
        match sent {
            Ok(files) => {
                let bytes = group.sent();
                let state = group.end()?;
                if !self.course.confirm(state.number) {
                    let problem = format!("the mirror has group {}", state.number);
                    return Err(SendError::Link(LinkError::Lost(problem)));
                }
                tracing::debug!(number = next.number, kind = ?next.kind, "the mirror has a group");
                self.files.extend(files);
                Ok(bytes)
            }
            Err(error) if error.leaves_connection() => {
                group.abort()?;
                self.course.gave_up();
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn send_contents(
        &self,
        group: &mut GroupSender<'_>,
        contents: &[ContentKey],
    ) -> Result<(), SendError> {
        let parts = &self.mirror.parts;
        for key in contents {
            let opened = parts.opens.changes().open(*key, &parts.content).map_err(cut_failed)?;
            // `None`: the file was removed before the cut.
            let Some(reader) = opened else { continue };
            group.part(&GroupPart::Content {
                ino: key.0,
                generation: key.1,
                size: reader.size(),
                mtime: reader.mtime(),
            })?;
            while let Some(piece) = reader.next_piece().map_err(cut_failed)? {
                send_piece(group, piece)?;
            }
        }
        Ok(())
    }

    /// Returns whether a file beside the table differs from that of the mirror.
    pub(super) fn files_changed(&self) -> Result<bool, SendError> {
        for file in VolumeFile::ALL {
            if self.files.get(&file) != Some(&self.read_file(file)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends the files beside the table that differ from those of the mirror. Returns them.
    fn send_files(&self, group: &mut GroupSender<'_>) -> Result<Files, SendError> {
        let mut sent = Files::new();
        for file in VolumeFile::ALL {
            let bytes = self.read_file(file)?;
            if self.files.get(&file) != Some(&bytes) {
                group.part(&GroupPart::File { file, bytes: bytes.clone() })?;
                sent.insert(file, bytes);
            }
        }
        Ok(sent)
    }

    fn read_file(&self, file: VolumeFile) -> Result<Option<Vec<u8>>, SendError> {
        let Some(folder) = &self.mirror.parts.folder else { return Ok(None) };
        volume::read_mirrored(folder, file).map_err(|error| SendError::File(error.to_string()))
    }
}

fn send_rows(group: &mut GroupSender<'_>, cut: &RowCut) -> Result<(), SendError> {
    for key in cut.changed.keys() {
        let value = cut.snapshot.get(key);
        let value = value.map_err(|error| table_failed("reading a row for the mirror", &error))?;
        group.row(RowChange { key: key.to_vec(), value })?;
    }
    group.flush_rows()
}

fn cut_failed(error: CutError) -> SendError {
    match error {
        CutError::GivenUp => SendError::GivenUp,
        CutError::Disk(error) => SendError::Primary(content_failed(&error)),
    }
}
