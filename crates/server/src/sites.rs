//! The sites of the volume, and the sessions of their servers.
//!
//! Each other site has a row in the table. Site 0 has founded the volume: it invites others
//! ([`invitation`]), and signs the list of all that the others get ([`list`]).

mod gate;
mod invitation;
mod leaving;
mod list;
mod tokens;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use pelago_holder::Copies;
use pelago_keynote::is_site_address;
use pelago_keynote::key::PrivateKey;
use pelago_meta::durability::Durability;
use pelago_meta::shard::Shard;
use pelago_store::folder::Folder;
use pelago_store::rows::{SiteRow, SiteState, SiteTokensRow};
use pelago_store::volume::VolumeId;
use pelago_wire::{
    Code, Context, DirectoryCache, Error, InodeId, LeasedService, OpenId, SessionId, SitePeer,
};

pub(crate) use self::gate::{GuestService, Pass};
pub use self::invitation::InviteError;
pub use self::leaving::LeaveError;

use self::gate::Gate;
use self::list::{KnownList, WakesSender};
use self::tokens::Tokens;
use crate::chains::Chains;
use crate::copies::{CopyStatus, CopyStore};
use crate::homecomings::Homecomings;
use crate::memory::FetchLimits;
use crate::origins::Origins;
use crate::stays::Stays;
use crate::unfinished::Unfinished;
use crate::upstream::{FarClock, LeasesElsewhere, OwnKernel, Upstream, UpstreamParts};

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
    /// Bytes of the disk that copies of other sites' files may take; `None` leaves those alone that
    /// there are.
    pub(crate) copy_bytes: Option<u64>,
    /// Limits of the memory for what is fetched from other sites.
    pub(crate) fetched: FetchLimits,
    /// The time for which guests are served although the first site cannot be reached.
    pub(crate) guests_alone: Duration,
    /// New files of other sites up to this size go home with their close.
    pub(crate) stay_least_bytes: usize,
    /// The server has no threads of its own.
    pub(crate) is_stepped: bool,
}

/// The rows of the table that are about other sites.
pub(crate) struct SiteRows {
    /// The other sites, with their numbers.
    pub(crate) others: Vec<(u16, SiteRow)>,
    /// The signed list of the sites, if there is one.
    pub(crate) list: Option<Vec<u8>>,
    /// The tokens that this site and each other one have given each other.
    pub(crate) tokens: Vec<(u16, SiteTokensRow)>,
    /// The directories of other sites that lead to own ones.
    pub(crate) chains: Chains,
    /// Changes of two sites that the last run has not finished.
    pub(crate) unfinished: Unfinished,
    /// Bytes of other sites' files that are here.
    pub(crate) stays: Stays,
    /// Clients of other sites.
    pub(crate) origins: Origins,
}

/// The sites of the volume.
pub(crate) struct Sites {
    own: u16,
    volume: VolumeId,
    folder: Option<Folder>,
    shard: Arc<Shard>,
    durability: Arc<Durability>,
    timeout: Duration,
    fetched: FetchLimits,
    /// Copies of other sites' files; `None` if none are kept.
    copies: Option<Arc<CopyStore>>,
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
    /// Locked while a connection is moved.
    moving: Mutex<()>,
    /// The list of the sites. A leaf lock.
    list: Mutex<KnownList>,
    /// The key by which the first site signs the list.
    list_key: OnceLock<PrivateKey>,
    /// Wakes the thread that sends the list.
    wakes_sender: OnceLock<WakesSender>,
    /// The tokens by which the folders of sites are known to be the newest.
    tokens: Tokens,
    /// True once this site is about to leave the volume: it makes no directory in those of others.
    is_leaving: RwLock<bool>,
    /// The directories of other sites that lead to own ones. A leaf lock.
    pub(crate) chains: Mutex<Chains>,
    /// True while a job writes their rows.
    pub(crate) writes_chains: AtomicBool,
    /// Changes of two sites that were cut short. A leaf lock.
    pub(crate) unfinished: Arc<Mutex<Unfinished>>,
    /// Bytes of other sites' files that are here.
    pub(crate) stays: Arc<Stays>,
    /// The kernel below the own mount.
    kernel: OwnKernel,
    /// New files of other sites up to this size go home with their close.
    pub(crate) stay_least_bytes: usize,
    /// Number of requests for other sites that were answered while those were silent.
    pub(crate) stale_answers: Arc<AtomicU64>,
    /// Own files whose bytes are at other sites, and are read or brought home.
    pub(crate) homecomings: Homecomings,
    /// Clients of other sites whose mutations come here.
    pub(crate) origins: Origins,
    /// Whether guests are served.
    pub(crate) gate: Gate,
}

/// The server of another site, as it can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The number of its site.
    pub site: u16,
    /// Its Ed25519 public key.
    pub key: [u8; 32],
    /// Its address, `HOST:PORT`; empty if it cannot be reached, and connects itself.
    pub address: String,
}

/// Returns the service of another site's server, which may not be connected yet. Called again with
/// another address if the server has moved: then the service that was returned before connects
/// there, and goes on with what it has open.
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
    /// The Ed25519 public key of its server; `None` if it has not joined.
    pub key: Option<[u8; 32]>,
    /// The address of its server; empty if it is unknown.
    pub address: String,
    /// The time since its server's last sign of life; `None` before the first request.
    pub silence: Option<Duration>,
    /// Number of requests that were sent to it.
    pub requests: u64,
    /// Number of requests that were answered while its server was silent, from what was known
    /// before.
    pub stale_answers: u64,
    /// The clock of its server, as it was told last; see [`Server::ask_clocks`].
    ///
    /// [`Server::ask_clocks`]: crate::Server::ask_clocks
    pub clock: Option<FarClock>,
    /// Number of directories of the own site whose names there are to be added or removed.
    pub unfinished: usize,
    /// The time since a folder of it was seen that is a copy, or an older one; `None` if none was
    /// seen lately.
    pub older_seen: Option<Duration>,
    /// The number of the last token that it has given to this site, and that is safe here; 0 for
    /// none.
    pub token: u64,
}

impl Sites {
    pub(crate) fn new(parts: SiteParts) -> Self {
        let SiteParts { own, volume, folder, shard, durability, rows, timeout, .. } = parts;
        let SiteParts { copy_bytes, fetched, guests_alone, stay_least_bytes, is_stepped, .. } =
            parts;
        let copies = match (&folder, copy_bytes) {
            (Some(folder), Some(0)) => {
                CopyStore::remove_all(folder);
                None
            }
            (Some(folder), Some(bytes)) => {
                Some(Arc::new(CopyStore::new(folder.clone(), bytes, fetched)))
            }
            (None, _) | (_, None) => None,
        };
        let SiteRows { others, list, tokens, chains, unfinished, stays, origins } = rows;
        let list = Mutex::new(list.and_then(KnownList::stored).unwrap_or_default());
        let has_others =
            own != InodeId::ROOT.site() || others.iter().any(|(_, row)| has_joined(row));
        if has_others {
            shard.set_has_sites();
        }
        // A stepped server has no thread that asks.
        let asks_others = has_others && own == InodeId::ROOT.site() && !is_stepped;
        Self {
            own,
            volume,
            folder,
            shard,
            durability,
            timeout,
            fetched,
            copies,
            has_others: AtomicBool::new(has_others),
            others: Mutex::new(others.into_iter().collect()),
            sessions: RwLock::default(),
            has_sessions: AtomicBool::new(false),
            came_back: Mutex::default(),
            upstreams: Arc::default(),
            connect: OnceLock::new(),
            moving: Mutex::default(),
            list,
            list_key: OnceLock::new(),
            wakes_sender: OnceLock::new(),
            tokens: Tokens::new(tokens),
            is_leaving: RwLock::new(false),
            chains: Mutex::new(chains),
            writes_chains: AtomicBool::new(false),
            unfinished: Arc::new(Mutex::new(unfinished)),
            stays: Arc::new(stays),
            kernel: OwnKernel::default(),
            stay_least_bytes,
            stale_answers: Arc::default(),
            homecomings: Homecomings::default(),
            origins,
            gate: Gate::new(guests_alone, asks_others),
        }
    }

    /// Returns the number of the own site.
    pub(crate) fn own(&self) -> u16 {
        self.own
    }

    /// Returns whether this is the site that has founded the volume.
    #[inline]
    pub(crate) fn is_first(&self) -> bool {
        self.own == InodeId::ROOT.site()
    }

    /// Returns the key by which the first site signs, at that one.
    pub(crate) fn signing_key(&self) -> Option<&PrivateKey> {
        self.list_key.get()
    }

    /// Returns the key of the first site's server, at another one.
    pub(crate) fn founder(&self) -> Option<[u8; 32]> {
        let others = self.others.lock();
        match others.get(&InodeId::ROOT.site())?.state {
            SiteState::Joined { key, .. } => Some(key),
            SiteState::Invited { .. } | SiteState::Left { .. } => None,
        }
    }

    /// Returns the names of sites, in the order of their numbers.
    pub(crate) fn names(&self, sites: &[u16]) -> Vec<String> {
        let others = self.others.lock();
        let named = others.iter().filter(|(site, _)| sites.contains(site));
        named.map(|(_, row)| row.name.clone()).collect()
    }

    /// Returns the name of a site for a person: `here` for the own one, and the number of one that
    /// is not known.
    pub(crate) fn name(&self, site: u16) -> String {
        if site == self.own {
            return "here".to_owned();
        }
        let others = self.others.lock();
        others.get(&site).map_or_else(|| site.to_string(), |row| row.name.clone())
    }

    /// Returns the bytes of a file of another site that are kept on this disk.
    pub(crate) fn kept_bytes(&self, file: InodeId) -> u64 {
        self.copies.as_ref().map_or(0, |copies| copies.bytes_of(file))
    }

    /// Returns whether guests are served now.
    #[inline]
    pub(crate) fn serves_guests(&self) -> GuestService {
        match self.is_first() {
            _ if self.is_outdated() => GuestService::Outdated,
            true if self.gate.has_asked_others() => GuestService::Yes,
            true => GuestService::Asking,
            false => self.gate.decide(self.is_first_silent()),
        }
    }

    /// Returns whether the first site cannot be reached: it is silent, or was never asked.
    pub(crate) fn is_first_silent(&self) -> bool {
        let upstreams = self.upstreams.read();
        let first = upstreams.get(&InodeId::ROOT.site());
        first.is_none_or(|first| first.silence().is_none() || first.is_silent())
    }

    /// Returns the time that a request for another site may take.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
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

    /// Returns whether a site has left the volume.
    pub(crate) fn is_gone(&self, site: u16) -> bool {
        let others = self.others.lock();
        others.get(&site).is_some_and(|row| matches!(row.state, SiteState::Left { .. }))
    }

    /// Returns whether this is the server of a site that has not left, and this folder is not an
    /// older one. Does not wait: while a row is written it is.
    pub(crate) fn is_site(&self, peer: &SitePeer) -> bool {
        if self.is_outdated() {
            return false;
        }
        let Some(others) = self.others.try_lock() else { return true };
        others.get(&peer.site).is_none_or(|row| !matches!(row.state, SiteState::Left { .. }))
    }

    /// Returns the servers of the other sites that have joined.
    pub(crate) fn neighbours(&self) -> Vec<Neighbour> {
        let others = self.others.lock();
        others.iter().filter_map(|(site, row)| neighbour(*site, row)).collect()
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
        let neighbour = self.others.lock().get(&site).and_then(|row| neighbour(site, row));
        let neighbour = neighbour.ok_or(Code::Stale)?;
        let service = self.connect.get().and_then(|connect| connect(&neighbour));
        let service = service.ok_or(Code::HostDown)?;
        let copies = self.copies.clone().map(|copies| {
            copies.start();
            copies as Arc<dyn Copies>
        });
        let parts = UpstreamParts {
            copies,
            stays: Arc::clone(&self.stays),
            kernel: Arc::clone(&self.kernel),
            all_stale_answers: Arc::clone(&self.stale_answers),
            is_outdated: self.tokens.outdated_flag(),
            timeout: self.timeout,
            fetched: self.fetched,
        };
        let upstream = Arc::new(Upstream::new(site, service, parts));
        upstreams.insert(site, Arc::clone(&upstream));
        Ok(upstream)
    }

    /// Sets the kernel below the own mount. A second call does nothing.
    pub(crate) fn set_kernel(&self, kernel: Arc<dyn DirectoryCache>) {
        let _is_first = self.kernel.set(kernel);
    }

    /// Returns the leases on what has its home at other sites.
    pub(crate) fn leases_elsewhere(&self) -> LeasesElsewhere {
        LeasesElsewhere { upstreams: Arc::downgrade(&self.upstreams) }
    }

    /// Returns the other sites that have joined or are invited.
    pub(crate) fn status(&self) -> Vec<SiteStatus> {
        let others = self.others.lock().clone();
        let upstreams = self.upstreams.read();
        let unfinished = self.unfinished.lock();
        let status = |(site, row): (u16, SiteRow)| SiteStatus {
            site,
            has_joined: has_joined(&row),
            key: neighbour(site, &row).map(|neighbour| neighbour.key),
            name: row.name,
            address: row.address,
            silence: upstreams.get(&site).and_then(|upstream| upstream.silence()),
            requests: upstreams.get(&site).map_or(0, |upstream| upstream.requests()),
            stale_answers: upstreams.get(&site).map_or(0, |upstream| upstream.stale_answers()),
            clock: upstreams.get(&site).and_then(|upstream| upstream.clock()),
            unfinished: unfinished.count(site),
            older_seen: self.tokens.older_seen(site),
            token: self.tokens.number(site),
        };
        let has_left = |row: &SiteRow| matches!(row.state, SiteState::Left { .. });
        others.into_iter().filter(|(_, row)| !has_left(row)).map(status).collect()
    }

    /// Ends the thread that writes copies of other sites' files.
    pub(crate) fn stop_copies(&self) {
        if let Some(copies) = &self.copies {
            copies.stop();
        }
    }

    /// Returns how many copies of other sites' files there are.
    pub(crate) fn copies(&self) -> CopyStatus {
        self.copies.as_ref().map(|copies| copies.status()).unwrap_or_default()
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
        self.stays.end_session(session);
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
        match self.has_sessions.load(Ordering::Acquire) && session != SessionId::DIRECT {
            true => self.sessions.read().get(&session).copied(),
            false => None,
        }
    }

    /// Returns whether an earlier session of this site's server has requests that still run.
    pub(crate) fn has_earlier_session(&self, session: SessionId, peer: SitePeer) -> bool {
        let sessions = self.sessions.read();
        sessions.iter().any(|(other, of)| of.site == peer.site && *other < session)
    }

    /// Asks the servers of the sites that have been asked before, and are not silent, for their
    /// clocks. Waits for the answers for at most `patience`.
    pub(crate) fn ask_clocks(&self, patience: Duration) {
        let upstreams: Vec<_> = self.upstreams.read().values().cloned().collect();
        let (sender, answered) = mpsc::channel::<()>();
        for upstream in upstreams.iter().filter(|upstream| !upstream.is_silent()) {
            let sender = sender.clone();
            upstream.ask_clock(Box::new(move || drop(sender)));
        }
        drop(sender);
        // It ends when the last one has answered.
        let _is_late: Result<(), _> = answered.recv_timeout(patience);
    }

    /// Has the other sites get what the own mount has written and is held back here, and holds back
    /// no more. Waits for at most the time after which a silent site counts as down.
    pub(crate) fn flush(&self) {
        let upstreams: Vec<_> = self.upstreams.read().values().cloned().collect();
        let (sender, flushed) = mpsc::channel::<()>();
        let of_stays = sender.clone();
        self.stays.tell_everything(Box::new(move || drop(of_stays)));
        for upstream in upstreams {
            let sender = sender.clone();
            upstream.end_write_behind(Box::new(move || drop(sender)));
        }
        drop(sender);
        // It ends when the last one is flushed.
        let _is_late: Result<(), _> = flushed.recv_timeout(self.timeout);
    }

    /// Records the address of a site's server.
    ///
    /// # Errors
    /// `Invalid` if it is no address; those of the table.
    pub(crate) fn set_address(
        self: &Arc<Self>,
        peer: SitePeer,
        address: &[u8],
    ) -> Result<(), Error> {
        let address = str::from_utf8(address).map_err(|_| Code::Invalid)?;
        if !address.is_empty() && !is_site_address(address) {
            return Err(Code::Invalid.into());
        }
        let mut others = self.others.lock();
        let row = others.get(&peer.site).ok_or(Code::AccessDenied)?;
        // It has started, maybe with an older folder.
        self.send_list_again(peer.site);
        if row.address == address {
            drop(others);
            // The last time it may have failed.
            self.connect_again(peer.site);
            return Ok(());
        }
        let changed = SiteRow { address: address.to_owned(), ..row.clone() };
        self.write(&mut others, vec![(peer.site, changed)])?;
        drop(others);
        self.connect_again(peer.site);
        Ok(())
    }

    /// Has the connection to a site made to the address that is known now. That to a site which has
    /// left is given up.
    fn connect_again(&self, site: u16) {
        let Some(old) = self.upstreams.read().get(&site).cloned() else { return };
        // The address that was written last is the one that is used from then on.
        let moving = self.moving.lock();
        let neighbour = self.others.lock().get(&site).and_then(|row| neighbour(site, row));
        if let Some(neighbour) = neighbour {
            let connect = self.connect.get();
            if connect.is_some_and(|connect| connect(&neighbour).is_none()) {
                tracing::warn!(site, "the new address of a site is not used yet");
            }
            return;
        }
        drop(moving);
        let upstreams = Arc::clone(&self.upstreams);
        let unfinished = Arc::clone(&self.unfinished);
        let flushed = Arc::clone(&old);
        old.end_write_behind(Box::new(move || {
            upstreams.write().retain(|_, upstream| !Arc::ptr_eq(upstream, &flushed));
            flushed.drop_kept();
            unfinished.lock().ask_again(site);
            flushed.cancel_all();
            end_elsewhere(flushed);
        }));
    }

    /// Writes the row of a site, and waits until it is safe. If it is not safe in time, that is
    /// logged: if it were refused, the site that has joined would throw its key away.
    fn put(
        self: &Arc<Self>,
        others: &mut BTreeMap<u16, SiteRow>,
        site: u16,
        row: SiteRow,
    ) -> Result<(), Error> {
        let invalidations = self.durability.invalidations();
        self.write(others, vec![(site, row)])?;
        match self.wait_until_safe(invalidations) {
            Err(error) if error.code == Code::TimedOut => {
                tracing::warn!(site, "the row of a site is not safe yet");
                Ok(())
            }
            safe => safe,
        }
    }

    /// Waits until all is safe that was done. `invalidations` is the count of before that.
    fn wait_until_safe(&self, invalidations: u64) -> Result<(), Error> {
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

/// Returns the server of a site; `None` if the site has not joined.
fn neighbour(site: u16, row: &SiteRow) -> Option<Neighbour> {
    let SiteState::Joined { key, .. } = row.state else { return None };
    Some(Neighbour { site, key, address: row.address.clone() })
}

fn has_joined(row: &SiteRow) -> bool {
    matches!(row.state, SiteState::Joined { .. })
}
