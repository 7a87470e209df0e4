//! The sites of the volume: which there are, which may join, and which sessions are of their
//! servers.
//!
//! Rows of the table have the other sites. Site 0 has founded the volume. It invites another one by
//! a key that is used once; the bearer names with it the key of its own server, which is that of
//! the site from then on.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
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
use pelago_wire::{Code, Context, Error, InodeId, OpenId, SessionId, SitePeer, SiteRefusal};

use crate::upstream::Upstream;

/// How long a site that joins waits until the disk has it.
const SAFE: Duration = Duration::from_secs(10);

/// What a server is built from to be one of several sites.
pub(crate) struct SiteParts {
    /// The number of the own site.
    pub(crate) own: u16,
    pub(crate) volume: VolumeId,
    /// The volume's folder; `None` for a server without one.
    pub(crate) folder: Option<Folder>,
    pub(crate) shard: Arc<Shard>,
    pub(crate) durability: Arc<Durability>,
    /// The other sites, with their numbers.
    pub(crate) others: Vec<(u16, SiteRow)>,
    /// How long another site may be silent before requests for it fail at once.
    pub(crate) timeout: Duration,
}

/// The sites of the volume.
pub(crate) struct Sites {
    own: u16,
    volume: VolumeId,
    folder: Option<Folder>,
    shard: Arc<Shard>,
    durability: Arc<Durability>,
    timeout: Duration,
    /// Whether another site has joined.
    has_others: AtomicBool,
    /// Held while a row is written.
    others: Mutex<BTreeMap<u16, SiteRow>>,
    /// The sessions of servers of other sites.
    sessions: RwLock<HashMap<SessionId, SitePeer>>,
    /// Whether there is such a session.
    has_sessions: AtomicBool,
    /// The sessions of earlier epochs whose clients have come back, each with the epoch in which
    /// they did.
    came_back: Mutex<HashMap<SessionId, u32>>,
    /// Taken before `others`.
    upstreams: RwLock<HashMap<u16, Arc<Upstream>>>,
    connect: OnceLock<ConnectSite>,
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
pub type ConnectSite =
    Box<dyn Fn(&Neighbour) -> Option<Arc<dyn pelago_wire::Service>> + Send + Sync>;

/// Another site, for `status`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteStatus {
    /// Its number.
    pub site: u16,
    /// Its name.
    pub name: String,
    /// Whether it has joined; else it is invited.
    pub has_joined: bool,
    /// Where its server can be reached; empty if that is unknown.
    pub address: String,
    /// How long its server has said nothing; `None` if it was not asked yet.
    pub silence: Option<Duration>,
    /// How many requests it was sent.
    pub requests: u64,
}

/// Why no site can be invited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InviteError {
    /// This is not the founding site.
    #[error("this is site {0} of the volume, and only its first site invites others")]
    NotFounder(u16),
    /// There is a second site.
    #[error("the volume has its second site, {0}; a third one is not built yet")]
    HasSecond(String),
    /// The name is none.
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
        let SiteParts { own, volume, folder, shard, durability, others, timeout } = parts;
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
            upstreams: RwLock::default(),
            connect: OnceLock::new(),
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

    /// Sets how the servers of other sites are reached; a second call does nothing.
    pub(crate) fn set_connect(&self, connect: ConnectSite) {
        let _is_first = self.connect.set(connect);
    }

    /// Returns the numbers of the other sites that have joined.
    pub(crate) fn joined(&self) -> Vec<u16> {
        let others = self.others.lock();
        others.iter().filter(|(_, row)| has_joined(row)).map(|(site, _)| *site).collect()
    }

    /// Returns the way to another site.
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
        // Under that lock: a new address takes the old way away after its row is written.
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
        let status = |(site, row): (u16, SiteRow)| SiteStatus {
            site,
            has_joined: has_joined(&row),
            name: row.name,
            address: row.address,
            silence: upstreams.get(&site).and_then(|upstream| upstream.silence()),
            requests: upstreams.get(&site).map_or(0, |upstream| upstream.requests()),
        };
        others.into_iter().map(status).collect()
    }

    /// Returns the home of an open of this session, if that is another site.
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

    /// Ends a session: what it has open at other sites, and that it is of a site's server.
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

    /// The client of a session of an earlier epoch has repeated what was not answered then.
    pub(crate) fn came_back(&self, session: SessionId, epoch: u32) {
        self.came_back.lock().insert(session, epoch);
    }

    /// Returns whether the client of a session has come back in this epoch, so that what it asks is
    /// no repetition.
    pub(crate) fn has_come_back(&self, session: SessionId, epoch: u32) -> bool {
        self.came_back.lock().get(&session) == Some(&epoch)
    }

    /// Returns the site whose server has this session.
    pub(crate) fn of_session(&self, session: SessionId) -> Option<SitePeer> {
        match self.has_sessions.load(Ordering::Acquire) {
            true => self.sessions.read().get(&session).copied(),
            false => None,
        }
    }

    /// Invites a site of this name. `key` is the public key of the invitation, which holds until
    /// the second `until` since 1970. Returns the site's number.
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
        // A number that was given is not given again, also if no site has come with it.
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
        let says = |text: &str| SiteRefusal(text.to_owned());
        let nothing = || says("");
        let Some(text) = invitation else { return Err(nothing()) };
        let sentence = Assertion::parse(text).map_err(|_| nothing())?;
        let Authorizer::Key(Principal(by)) = *sentence.authorizer() else { return Err(nothing()) };
        let invited = SiteInvitation::of(&sentence).ok_or_else(nothing)?;
        if sentence.licensees() != [Principal(*key)] {
            return Err(nothing());
        }
        if invited.volume != self.volume.0 {
            return Err(says("the invitation is for another volume"));
        }
        let row = others.get(&invited.site).ok_or_else(nothing)?;
        let ends = match row.state {
            SiteState::Joined { invitation, .. } if invitation == by => None,
            SiteState::Invited { key, until } if key == by => Some(until),
            SiteState::Joined { .. } | SiteState::Invited { .. } => return Err(nothing()),
        };
        // Last: a stranger must not have the server calculate.
        sentence.verify().map_err(|_| nothing())?;
        let until = ends.ok_or_else(|| says("the invitation was used already"))?;
        if clock::now().seconds >= until.cast_signed() {
            return Err(says("the invitation has expired"));
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
            // The row is written, and refused the site would throw its key away. If a loss of power
            // takes the row, the same key can use the invitation again.
            Err(error) if error.code == Code::TimedOut => {
                tracing::warn!(site = invited.site, "a site has joined, and is not safe yet");
            }
            Err(error) => return Err(says(error.code.says())),
        }
        tracing::info!(site = invited.site, name = joined.name, "a site has joined the volume");
        others.insert(invited.site, joined);
        self.has_others.store(true, Ordering::Release);
        Ok(SitePeer { key: *key, site: invited.site })
    }

    /// Makes it safe that a site has joined.
    fn join(&self, site: u16, row: &SiteRow) -> Result<(), Error> {
        if let Some(folder) = &self.folder {
            // Before there is any name that an older program would take for damage.
            volume::set_has_sites(folder).map_err(|error| volume_failed(&error))?;
        }
        self.shard.set_has_sites();
        self.put(site, row)
    }

    /// Notes where the server of a site can be reached.
    ///
    /// # Errors
    /// `Invalid` for what is no address; if the table fails.
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
        // Another way leads there now. What was open by the old one is lost with it.
        let old = self.upstreams.write().remove(&peer.site);
        drop(old);
        Ok(())
    }

    /// Writes a row, and waits until it is safe.
    fn put(&self, site: u16, row: &SiteRow) -> Result<(), Error> {
        let invalidations = self.durability.invalidations();
        self.shard.put_site(site, row)?;
        let (sender, safe) = mpsc::channel();
        let tell = move |result: Result<(), Error>| {
            let _waits_no_more = sender.send(result);
        };
        self.durability.when_safe(self.durability.done(), invalidations, Box::new(tell));
        safe.recv_timeout(SAFE).map_err(|_| Error::from(Code::TimedOut))?
    }
}

fn has_joined(row: &SiteRow) -> bool {
    matches!(row.state, SiteState::Joined { .. })
}
