//! The sites of the volume, invitations to join, and the sessions of their servers.
//!
//! Each other site has a row in the table. Site 0 has founded the volume. It invites another site
//! by a key that is used once: the bearer signs the key of its own server with it, which is the key
//! of the site from then on.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use pelago_keynote::{Assertion, Authorizer, Principal, SiteInvitation};
use pelago_meta::durability::Durability;
use pelago_meta::shard::Shard;
use pelago_store::clock;
use pelago_store::folder::Folder;
use pelago_store::report::volume_failed;
use pelago_store::rows::{SITE_NAME_BYTES, SiteRow, SiteState};
use pelago_store::volume::{self, VolumeId};
use pelago_wire::{
    Code, Context, Error, InodeId, LeasedService, OpenId, SessionId, SitePeer, SiteRefusal,
};

use crate::chains::Chains;
use crate::unfinished::Unfinished;
use crate::upstream::Upstream;

/// The longest wait until the row of a site is safe.
const SAFE_TIMEOUT: Duration = Duration::from_secs(10);

/// The parts of [`Sites`].
pub(crate) struct SiteParts {
    /// The number of the own site.
    pub(crate) own: u16,
    pub(crate) volume: VolumeId,
    /// The volume's folder; `None` for a server without one.
    pub(crate) folder: Option<Folder>,
    pub(crate) shard: Arc<Shard>,
    pub(crate) durability: Arc<Durability>,
    pub(crate) rows: SiteRows,
    /// The silence of another site after which requests for it fail at once.
    pub(crate) timeout: Duration,
}

/// The rows of the table that are about other sites.
pub(crate) struct SiteRows {
    /// The other sites, with their numbers.
    pub(crate) others: Vec<(u16, SiteRow)>,
    /// The directories of other sites that lead to own ones.
    pub(crate) chains: Chains,
    /// Changes of two sites that the last run has not finished.
    pub(crate) unfinished: Unfinished,
}

/// The sites of the volume.
pub(crate) struct Sites {
    own: u16,
    volume: VolumeId,
    folder: Option<Folder>,
    shard: Arc<Shard>,
    durability: Arc<Durability>,
    timeout: Duration,
    /// True if another site has joined.
    has_others: AtomicBool,
    /// The rows of the other sites. Locked while a row is written.
    others: Mutex<BTreeMap<u16, SiteRow>>,
    /// The sessions of servers of other sites.
    sessions: RwLock<HashMap<SessionId, SitePeer>>,
    /// True if there is such a session.
    has_sessions: AtomicBool,
    /// The sessions of earlier epochs whose clients have come back, each with the epoch in which
    /// its client did.
    came_back: Mutex<HashMap<SessionId, u32>>,
    /// Taken before `others`.
    upstreams: Arc<RwLock<HashMap<u16, Arc<Upstream>>>>,
    connect: OnceLock<ConnectSite>,
    /// The directories of other sites that lead to own ones. A leaf lock.
    pub(crate) chains: Mutex<Chains>,
    /// True while a job writes their rows.
    pub(crate) writes_chains: AtomicBool,
    /// Changes of two sites that were cut short. A leaf lock.
    pub(crate) unfinished: Arc<Mutex<Unfinished>>,
}

/// The server of another site, as it can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The number of its site.
    pub site: u16,
    /// Its Ed25519 public key.
    pub key: [u8; 32],
    /// Its address, `HOST:PORT`.
    pub address: String,
}

/// Returns the service of another site's server, which may not be connected yet.
pub type ConnectSite = Box<dyn Fn(&Neighbour) -> Option<Arc<dyn LeasedService>> + Send + Sync>;

/// Another site, for `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteStatus {
    /// Its number.
    pub site: u16,
    /// Its name.
    pub name: String,
    /// Whether it has joined; else it is invited.
    pub has_joined: bool,
    /// The address of its server; empty if it is unknown.
    pub address: String,
    /// The time since its server's last sign of life; `None` before the first request.
    pub silence: Option<Duration>,
    /// Number of requests that were sent to it.
    pub requests: u64,
    /// Number of directories of the own site whose names there are to be added or removed.
    pub unfinished: usize,
}

/// The error of an invitation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InviteError {
    /// This is not the founding site.
    #[error("this is site {0} of the volume, and only its first site invites others")]
    NotFounder(u16),
    /// There is a second site.
    #[error("the volume has its second site, {0}; a third one is not built yet")]
    HasSecond(String),
    /// The name is not valid.
    #[error("the name of a site has 1 to {SITE_NAME_BYTES} letters, digits, `-` and `_`")]
    Name,
    /// The volume lies on a shared store.
    #[error("a second office of a volume on a shared store is not built yet")]
    SharedStore,
    /// The table failed.
    #[error("the invitation cannot be recorded")]
    Table(#[source] Error),
}

impl Sites {
    pub(crate) fn new(parts: SiteParts) -> Self {
        let SiteParts { own, volume, folder, shard, durability, rows, timeout } = parts;
        let SiteRows { others, chains, unfinished } = rows;
        let has_others =
            own != InodeId::ROOT.site() || others.iter().any(|(_, row)| has_joined(row));
        if has_others {
            shard.set_has_sites();
        }
        Self {
            own,
            volume,
            folder,
            shard,
            durability,
            timeout,
            has_others: AtomicBool::new(has_others),
            others: Mutex::new(others.into_iter().collect()),
            sessions: RwLock::default(),
            has_sessions: AtomicBool::new(false),
            came_back: Mutex::default(),
            upstreams: Arc::default(),
            connect: OnceLock::new(),
            chains: Mutex::new(chains),
            writes_chains: AtomicBool::new(false),
            unfinished: Arc::new(Mutex::new(unfinished)),
        }
    }

    /// Returns the number of the own site.
    pub(crate) fn own(&self) -> u16 {
        self.own
    }

    /// Returns whether no other site has joined.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        !self.has_others.load(Ordering::Acquire)
    }

    /// Sets the function that connects to the servers of other sites; a second call does nothing.
    pub(crate) fn set_connect(&self, connect: ConnectSite) {
        let _is_first = self.connect.set(connect);
    }

    /// Returns the numbers of the other sites that have joined.
    pub(crate) fn joined(&self) -> Vec<u16> {
        let others = self.others.lock();
        others.iter().filter(|(_, row)| has_joined(row)).map(|(site, _)| *site).collect()
    }

    /// Returns the connection to another site.
    ///
    /// # Errors
    /// `Stale` for a number that no site has; `HostDown` if its address is not known.
    pub(crate) fn upstream(&self, site: u16) -> Result<Arc<Upstream>, Error> {
        if let Some(upstream) = self.upstreams.read().get(&site) {
            return Ok(Arc::clone(upstream));
        }
        let mut upstreams = self.upstreams.write();
        if let Some(upstream) = upstreams.get(&site) {
            return Ok(Arc::clone(upstream));
        }
        // Under the lock of `upstreams`: `set_address` writes the row before it removes the old
        // connection.
        let neighbour = match self.others.lock().get(&site) {
            Some(SiteRow { state: SiteState::Joined { key, .. }, address, .. }) => {
                Neighbour { site, key: *key, address: address.clone() }
            }
            _ => return Err(Code::Stale.into()),
        };
        let service = self.connect.get().and_then(|connect| connect(&neighbour));
        let upstream = Arc::new(Upstream::new(service.ok_or(Code::HostDown)?, self.timeout));
        upstreams.insert(site, Arc::clone(&upstream));
        Ok(upstream)
    }

    /// Returns the other sites.
    pub(crate) fn status(&self) -> Vec<SiteStatus> {
        let others = self.others.lock().clone();
        let upstreams = self.upstreams.read();
        let unfinished = self.unfinished.lock();
        let status = |(site, row): (u16, SiteRow)| SiteStatus {
            site,
            has_joined: has_joined(&row),
            name: row.name,
            address: row.address,
            silence: upstreams.get(&site).and_then(|upstream| upstream.silence()),
            requests: upstreams.get(&site).map_or(0, |upstream| upstream.requests()),
            unfinished: unfinished.count(site),
        };
        others.into_iter().map(status).collect()
    }

    /// Returns the home of an open of this session, if it is another site.
    pub(crate) fn home_of(&self, session: SessionId, open: OpenId) -> Option<u16> {
        let upstreams = self.upstreams.read();
        let found = upstreams.iter().find(|(_, upstream)| upstream.has_open(session, open));
        found.map(|(site, _)| *site)
    }

    /// Asks that a request which was sent to another site ends soon.
    pub(crate) fn cancel(&self, context: &Context) -> bool {
        let upstreams: Vec<_> = self.upstreams.read().values().cloned().collect();
        upstreams.iter().any(|upstream| upstream.cancel(context))
    }

    /// Begins a session of another site's server.
    pub(crate) fn begin(&self, session: SessionId, peer: SitePeer) {
        self.sessions.write().insert(session, peer);
        self.has_sessions.store(true, Ordering::Release);
    }

    /// Ends a session: releases its opens at other sites, and forgets that it is a site's.
    pub(crate) fn end(&self, session: SessionId) {
        if self.has_sessions.load(Ordering::Acquire) {
            self.sessions.write().remove(&session);
        }
        self.came_back.lock().remove(&session);
        let upstreams: Vec<_> = self.upstreams.read().values().cloned().collect();
        for upstream in upstreams {
            upstream.end_session(session);
        }
    }

    /// Records that the client of a session of an earlier epoch has repeated the requests that were
    /// not answered then.
    pub(crate) fn came_back(&self, session: SessionId, epoch: u32) {
        self.came_back.lock().insert(session, epoch);
    }

    /// Returns whether the client of a session has come back in this epoch, so that its requests
    /// are no repetitions.
    pub(crate) fn has_come_back(&self, session: SessionId, epoch: u32) -> bool {
        self.came_back.lock().get(&session) == Some(&epoch)
    }

    /// Returns the site whose server has this session; `None` for a client's.
    pub(crate) fn of_session(&self, session: SessionId) -> Option<SitePeer> {
        match self.has_sessions.load(Ordering::Acquire) {
            true => self.sessions.read().get(&session).copied(),
            false => None,
        }
    }

    /// Returns whether an earlier session of this site's server has requests that still run.
    pub(crate) fn has_earlier_session(&self, session: SessionId, peer: SitePeer) -> bool {
        let sessions = self.sessions.read();
        sessions.iter().any(|(other, of)| of.site == peer.site && *other < session)
    }

    /// Invites a site of this name. `key` is the public key of the invitation, which expires at
    /// `until`, in seconds since 1970. Returns the site's number.
    ///
    /// # Errors
    /// [`InviteError`].
    pub(crate) fn invite(&self, name: &str, key: [u8; 32], until: u64) -> Result<u16, InviteError> {
        if self.own != InodeId::ROOT.site() {
            return Err(InviteError::NotFounder(self.own));
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !(1..=SITE_NAME_BYTES).contains(&name.len()) || !name.bytes().all(is_plain) {
            return Err(InviteError::Name);
        }
        let mut others = self.others.lock();
        if let Some(row) = others.values().find(|row| has_joined(row)) {
            return Err(InviteError::HasSecond(row.name.clone()));
        }
        // A number is never given twice, even if no site has joined under it.
        let site = others.last_key_value().map_or(self.own, |(last, _)| *last) + 1;
        if site == InodeId::MOUNT_SITE {
            return Err(InviteError::Table(Code::NoSpace.into()));
        }
        let state = SiteState::Invited { key, until };
        let row = SiteRow { state, name: name.to_owned(), address: String::new() };
        self.put(site, &row).map_err(InviteError::Table)?;
        others.insert(site, row);
        Ok(site)
    }

    /// Returns the site of a server with this key; see
    /// [`SessionService::admit_site`](pelago_wire::SessionService::admit_site).
    pub(crate) fn admit(
        &self,
        key: &[u8; 32],
        invitation: Option<&[u8]>,
    ) -> Result<SitePeer, SiteRefusal> {
        let mut others = self.others.lock();
        let is_of_key =
            |row: &SiteRow| matches!(row.state, SiteState::Joined { key: of, .. } if of == *key);
        if let Some((site, _)) = others.iter().find(|(_, row)| is_of_key(row)) {
            return Ok(SitePeer { key: *key, site: *site });
        }
        let because = |text: &str| SiteRefusal(text.to_owned());
        let no_reason = || because("");
        let Some(text) = invitation else { return Err(no_reason()) };
        let sentence = Assertion::credential(text).map_err(|_| no_reason())?;
        let Authorizer::Key(Principal(by)) = *sentence.authorizer() else {
            return Err(no_reason());
        };
        let invited = SiteInvitation::of(&sentence).ok_or_else(no_reason)?;
        if sentence.licensees().only_key() != Some(Principal(*key)) {
            return Err(no_reason());
        }
        if invited.volume != self.volume.0 {
            return Err(because("the invitation is for another volume"));
        }
        let row = others.get(&invited.site).ok_or_else(no_reason)?;
        let ends = match row.state {
            SiteState::Joined { invitation, .. } if invitation == by => None,
            SiteState::Invited { key, until } if key == by => Some(until),
            SiteState::Joined { .. } | SiteState::Invited { .. } => return Err(no_reason()),
        };
        // The signature comes after the cheap checks: a stranger must not cause costly work.
        sentence.verify().map_err(|_| no_reason())?;
        let until = ends.ok_or_else(|| because("the invitation was used already"))?;
        if clock::now().seconds >= until.cast_signed() {
            return Err(because("the invitation has expired"));
        }
        if let Some(second) = others.values().find(|row| has_joined(row)) {
            let text =
                format!("the volume has its second site, {}: a third is not built", second.name);
            return Err(SiteRefusal(text));
        }
        let state = SiteState::Joined { key: *key, invitation: by };
        let joined = SiteRow { state, ..row.clone() };
        match self.join(invited.site, &joined) {
            Ok(()) => {}
            // The row is written. If it were refused, the site would throw its key away. If the row
            // is lost with the power, the same key can use the invitation again.
            Err(error) if error.code == Code::TimedOut => {
                tracing::warn!(site = invited.site, "a site has joined, and is not safe yet");
            }
            Err(error) => return Err(because(error.code.says())),
        }
        tracing::info!(site = invited.site, name = joined.name, "a site has joined the volume");
        others.insert(invited.site, joined);
        self.has_others.store(true, Ordering::Release);
        Ok(SitePeer { key: *key, site: invited.site })
    }

    /// Records on stable storage that a site has joined.
    fn join(&self, site: u16, row: &SiteRow) -> Result<(), Error> {
        if let Some(folder) = &self.folder {
            // Before there is a name of another site, which an older program would take for damage.
            volume::set_has_sites(folder).map_err(|error| volume_failed(&error))?;
        }
        self.shard.set_has_sites();
        self.put(site, row)
    }

    /// Records the address of a site's server.
    ///
    /// # Errors
    /// `Invalid` if it is no address; those of the table.
    pub(crate) fn set_address(&self, peer: SitePeer, address: &[u8]) -> Result<(), Error> {
        let address = str::from_utf8(address).map_err(|_| Code::Invalid)?;
        if !address.is_empty() && !address.contains(':') {
            return Err(Code::Invalid.into());
        }
        let mut others = self.others.lock();
        let row = others.get_mut(&peer.site).ok_or(Code::AccessDenied)?;
        if row.address == address {
            return Ok(());
        }
        let changed = SiteRow { address: address.to_owned(), ..row.clone() };
        self.shard.put_site(peer.site, &changed)?;
        *row = changed;
        drop(others);
        let old = self.upstreams.read().get(&peer.site).cloned();
        if let Some(old) = old {
            // Then the next request makes a connection to the new address. Opens over the old
            // connection are lost with it.
            let upstreams = Arc::clone(&self.upstreams);
            let unfinished = Arc::clone(&self.unfinished);
            let flushed = Arc::clone(&old);
            old.end_write_behind(Box::new(move || {
                upstreams.write().retain(|_, upstream| !Arc::ptr_eq(upstream, &flushed));
                unfinished.lock().ask_again(peer.site);
                flushed.cancel_all();
                end_elsewhere(flushed);
            }));
        }
        Ok(())
    }

    /// Has the other sites get what the own mount has written and is held back here, and holds back
    /// no more. Waits for at most the time after which a silent site counts as down.
    pub(crate) fn flush(&self) {
        let upstreams: Vec<_> = self.upstreams.read().values().cloned().collect();
        let (sender, flushed) = mpsc::channel::<()>();
        for upstream in upstreams {
            let sender = sender.clone();
            upstream.end_write_behind(Box::new(move || drop(sender)));
        }
        drop(sender);
        // It ends when the last one is flushed.
        let _is_late: Result<(), _> = flushed.recv_timeout(self.timeout);
    }

    /// Writes the row of a site, and waits until it is safe.
    fn put(&self, site: u16, row: &SiteRow) -> Result<(), Error> {
        let invalidations = self.durability.invalidations();
        self.shard.put_site(site, row)?;
        let (sender, safe) = mpsc::channel();
        let notify = move |result: Result<(), Error>| {
            let _waits_no_more = sender.send(result);
        };
        self.durability.when_safe(self.durability.done(), invalidations, Box::new(notify));
        safe.recv_timeout(SAFE_TIMEOUT).map_err(|_| Error::from(Code::TimedOut))?
    }
}

/// Drops a connection on a thread of its own: its session ends with it, and a thread of the
/// connection itself must not wait for that.
fn end_elsewhere(upstream: Arc<Upstream>) {
    let ending = thread::Builder::new().name("end-of-site".to_owned());
    if let Err(error) = ending.spawn(move || drop(upstream)) {
        tracing::warn!(%error, "a connection to a site ended here");
    }
}

fn has_joined(row: &SiteRow) -> bool {
    matches!(row.state, SiteState::Joined { .. })
}
