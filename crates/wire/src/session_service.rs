//! The interface between the sessions of other processes and the server, beside their requests:
//! their beginning and end, guests and sites, leases and recalls, and the epochs of the server.

use std::fmt;
use std::net::IpAddr;
use std::sync::Weak;

use crate::attr::Attr;
use crate::error::{Code, Error};
use crate::id::{Handle, InodeId, SessionId};
use crate::leases::Leases;
use crate::local_cache::Recalled;
use crate::origin::Origin;
use crate::reply::Reply;
use crate::request::Request;
use crate::service::Service;
use crate::site_token::{OlderFolder, ShownTokens};
use crate::write_era::WriteEra;

/// The facts of a server that a session gets when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// The volume's id.
    pub volume: [u8; 16],
    /// The epoch of the server. Each run has a higher one, and begins another one if the table was
    /// opened again and may have lost what was answered.
    pub epoch: u32,
    /// Each change is refused.
    pub read_only: bool,
    /// The number of the site.
    pub site: u16,
}

/// The record of a session in the volume, by which the next run of the server knows its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRecord {
    /// Random bytes that the mounting process chose: a copy of its machine, with the machine's key,
    /// is another client.
    pub nonce: [u8; 16],
    /// The client.
    pub peer: RecordedPeer,
    /// The era of its leases on bytes.
    pub era: WriteEra,
}

impl SessionRecord {
    /// Returns the record of a session that begins.
    #[must_use]
    pub const fn new(nonce: [u8; 16], peer: RecordedPeer) -> Self {
        Self { nonce, peer, era: WriteEra::FIRST }
    }
}

/// The client of a recorded session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordedPeer {
    /// A process of this machine, of this user.
    User(u32),
    /// A machine with this Ed25519 public key.
    Machine([u8; 32]),
    /// A guest with this Ed25519 public key.
    Guest([u8; 32]),
    /// The server of another site of the volume.
    Site(SitePeer),
    /// A client of another site, whose requests come over the session of that site's server. No
    /// connection has the session, which only stores replies.
    Origin {
        /// The number of the site.
        site: u16,
        /// The client's session there.
        session: SessionId,
    },
}

/// The server of another site, at the other end of a session.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SitePeer {
    /// Its Ed25519 public key.
    pub key: [u8; 32],
    /// The number of its site.
    pub site: u16,
}

impl fmt::Debug for SitePeer {
    /// Shows the site; the log of an invitation has the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.site)
    }
}

/// The reason for which the server of another site gets no session. The texts are for people: lower
/// case, without a full stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SiteRefusal {
    /// The key is no site's, and has no invitation that counts. The text is empty for one that has
    /// none at all: a stranger learns nothing.
    NotInvited(String),
    /// A folder is a copy, or older than the other site has seen of it: the numbers of files would
    /// be given twice.
    Older {
        /// That of the asking site, or the server's own.
        folder: OlderFolder,
        /// The warning for people, with the advice.
        text: String,
    },
}

impl SiteRefusal {
    /// The reason for the server of a site that has left the volume.
    pub const LEFT: &str = "the site has left the volume";
}

/// The words that the server of a site presents with its hello.
#[derive(Debug, Clone, Copy, Default)]
pub struct SiteHello<'a> {
    /// The tokens by which its folder is known.
    pub shown: ShownTokens,
    /// The sentence of an invitation, of a site that may not have joined yet.
    pub invitation: Option<&'a [u8]>,
}

/// The right of a guest: what its credentials grant to its key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GuestGrant {
    /// The guest's Ed25519 public key.
    pub principal: [u8; 32],
    /// The id of the first credential of the chain, which a root of the volume has signed.
    pub first: [u8; 32],
    /// The identity of the chain of credentials.
    pub chain: [u8; 32],
    /// The address of the guest's machine as an IPv6 address, if the chain asks for it.
    pub address: Option<[u8; 16]>,
    /// The seconds since 1970 at which the chain ends, if it has an end.
    pub ends: Option<u64>,
}

impl GuestGrant {
    /// The chain of a guest whose session began in an earlier run, until it presents its
    /// credentials again.
    pub const NO_CHAIN: [u8; 32] = [0; 32];
}

impl fmt::Debug for GuestGrant {
    /// Shows the first bytes of the key and of the chain, which a log has room for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = |bytes: &[u8; 32]| -> String {
            bytes.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
        };
        f.debug_struct("GuestGrant")
            .field("principal", &first(&self.principal))
            .field("chain", &first(&self.chain))
            .finish_non_exhaustive()
    }
}

/// The reason for which a guest gets no session, for people: lower case, without a full stop. Empty
/// for a chain that is not one for the guest's key: a stranger learns nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestRefusal(pub String);

/// The connections of the sessions. The service ends them for a while if the table has failed:
/// answered mutations may be lost, and the clients must repeat those.
pub trait Connections: Send + Sync {
    /// Ends all connections. No client gets one before [`Connections::resume`].
    fn suspend(&self);

    /// Begins a new epoch, in which the clients may connect again.
    fn resume(&self);

    /// Recalls leases of a session, because another session is about to change what they are on, or
    /// because the rights of the session may have changed. The recall is repeated over later
    /// connections, until [`SessionService::recalled`] is called with this number, which is used
    /// once, or [`SessionService::leases_lost`].
    fn recall(&self, session: SessionId, number: u64, recalled: &Recalled);

    /// Ends the sessions of guests that have no right any more ([`SessionService::has_access`]).
    /// When this returns, nothing more is sent to them.
    fn end_guests(&self) {}
}

/// A moment between the changes of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LeaseMoment(pub u64);

/// An answer of which parts may be leased.
#[derive(Debug)]
pub struct LeasedAnswer<'a> {
    /// The node of the request, if the answer reports more of it than attributes.
    pub node: Option<InodeId>,
    /// The directory of the names that the answer reports.
    pub names: Option<InodeId>,
    /// The number of the mutation; 0 if the request changes nothing.
    pub mutation: u64,
    /// The origin of the mutation, if another site's server has passed it on.
    pub origin: Option<Origin>,
    /// The request opens a file for writing.
    pub opens_for_writing: bool,
    /// The reply or the error. Attributes in it that are not leased become volatile.
    pub result: &'a mut Result<Reply, Error>,
    /// The attributes of [`crate::Granted::changed`], and a moment before they were read.
    pub changed: Option<(&'a Attr, LeaseMoment)>,
}

/// A server of sessions. A session begins before its first request, and ends after its last one was
/// taken; the answers of requests that still run then go nowhere.
///
/// A session outlives the run of the server, and its epoch. The next run *starts*: all other
/// requests wait until each session of the last run has opened its files again or has ended, for at
/// most a term. Then the server carries out the mutations that clients replay: the last run has
/// answered them, and they may be lost.
pub trait SessionService: Service {
    /// Returns what the server serves.
    fn served(&self) -> Served;

    /// Sets the connections of the sessions, which the service ends when a new epoch begins. A
    /// service that has one epoch needs none.
    fn set_connections(&self, _connections: Weak<dyn Connections>) {}

    /// Returns whether the volume lies on a shared store. A client that can follow the owner then
    /// asks for the servers of the store.
    fn is_on_store(&self) -> bool {
        false
    }

    /// Returns whether the server may send answers that show the state of the volume. It is called
    /// after the state was read, immediately before the answer is sent. A server of a shared store
    /// returns false when it may not be the owner any more. Nothing is sent then, the connection
    /// ends, and the session waits for its client, which asks here again or elsewhere. Called for
    /// each answer, so it takes no lock.
    fn may_answer(&self) -> bool {
        true
    }

    /// Returns the address of the owner of the volume, `KEY@HOST:PORT`, if another server is the
    /// owner; an empty text if its address is not known. No session begins then.
    ///
    /// A service whose answers to requests are [`crate::Code::NotOwner`] returns an address here.
    fn owner_elsewhere(&self) -> Option<String> {
        None
    }

    /// Returns the sessions of the last run, which their clients may resume.
    fn earlier_sessions(&self) -> Vec<(SessionId, SessionRecord)>;

    /// Returns whether the server still waits for sessions of its last run: no session begins.
    fn is_starting(&self) -> bool;

    /// Begins a session. When this returns, the next run knows it.
    ///
    /// # Errors
    /// If the table fails: there is no session.
    fn begin_session(&self, session: SessionId, record: SessionRecord) -> Result<(), Error>;

    /// Calls back once the rows of all sessions that have begun are safe, or with an error once
    /// they may never be: on any thread, and exactly once. The client is welcomed by this callback:
    /// the next owner of a shared store must know each session whose leases may still run. The
    /// caller may hold no lock that [`SessionService::end_session`] takes.
    fn when_recorded(&self, then: Box<dyn FnOnce(Result<(), Error>) + Send>) {
        then(Ok(()));
    }

    /// Returns why no guest is served at the moment, for people; `None` if guests are served.
    fn guests_wait(&self) -> Option<String> {
        None
    }

    /// Returns the grant of a guest with this Ed25519 public key, at this address, by these
    /// credentials, from a root of the volume to the guest.
    ///
    /// # Errors
    /// [`GuestRefusal`]. A service may have no guests.
    fn admit_guest(
        &self,
        _principal: &[u8; 32],
        _chain: &[Vec<u8>],
        _address: Option<IpAddr>,
    ) -> Result<GuestGrant, GuestRefusal> {
        Err(GuestRefusal(String::new()))
    }

    /// Begins the session of a guest. The next run knows it only if the guest may change something.
    ///
    /// # Errors
    /// [`GuestRefusal`] if the guest has no right any more, or the session cannot be recorded.
    fn begin_guest(
        &self,
        _session: SessionId,
        _grant: &GuestGrant,
        _record: &SessionRecord,
    ) -> Result<(), GuestRefusal> {
        Err(GuestRefusal(String::new()))
    }

    /// Records that a guest whose session began in an earlier run has come back, with this grant.
    /// It may ask from now on.
    ///
    /// # Errors
    /// As [`SessionService::begin_guest`].
    fn guest_came_back(
        &self,
        _session: SessionId,
        _grant: &GuestGrant,
    ) -> Result<(), GuestRefusal> {
        Err(GuestRefusal(String::new()))
    }

    /// Returns whether the client of a session may still use what it has cached under leases. The
    /// session of a guest is not ended before.
    fn has_leases(&self, _session: SessionId) -> bool {
        false
    }

    /// Looks for guests whose rights have ended, or may have changed, although they ask nothing.
    /// Called several times a second.
    fn look_at_guests(&self) {}

    /// Returns whether the grant of a guest is still valid.
    fn has_access(&self, _grant: &GuestGrant) -> bool {
        false
    }

    /// Returns the site of another server of the volume with this Ed25519 public key. The first
    /// time it presents its invitation; the site is one of the volume from then on, also after a
    /// loss of power. May wait for the disk. `presented` is `None` for a server that lets itself be
    /// asked, over a connection that it makes: it shows its tokens when it asks.
    ///
    /// # Errors
    /// [`SiteRefusal`]. A service may have no sites.
    fn admit_site(
        &self,
        _key: &[u8; 32],
        _presented: Option<&SiteHello<'_>>,
    ) -> Result<SitePeer, SiteRefusal> {
        Err(SiteRefusal::NotInvited(String::new()))
    }

    /// Returns whether the server of a site that was admitted still is one. Its sessions end
    /// otherwise.
    fn is_site(&self, _peer: &SitePeer) -> bool {
        true
    }

    /// Records that a session of the last run has opened its files again, and that its client has
    /// repeated everything.
    fn reclaimed(&self, session: SessionId);

    /// Records that a session of the last run has the answer to each write that its client had
    /// buffered in that run or an earlier one.
    fn flushed(&self, session: SessionId);

    /// Records that a session has ended for its client while some of its requests are under way: no
    /// other session waits for it to come back. [`SessionService::end_session`] follows the last of
    /// them.
    fn ending(&self, session: SessionId);

    /// Ends a session: its open files are released, and the next run does not know it.
    fn end_session(&self, session: SessionId);

    /// Returns the origin of a mutation that the server of another site passes on in this session,
    /// with the session that its client has here: that stores replies, and nothing else. A new one
    /// is recorded when this returns. `mutation` is the number in this session, and `acknowledged`
    /// that up to which the site's server knows that its mutations are safe.
    ///
    /// # Errors
    /// `Io` if the mutation may be a repetition, and the client is not known: its replies are gone.
    /// Those of the table. A service may have no sites.
    fn origin(
        &self,
        _session: SessionId,
        _mutation: u64,
        _acknowledged: u64,
        _origin: &Origin,
    ) -> Result<Origin, Error> {
        Err(Code::AccessDenied.into())
    }

    /// Returns the origin of a mutation that is cancelled before it has come in this session, with
    /// the session that its client has here; `None` for a client that is not known.
    ///
    /// # Errors
    /// `Io` if it cannot be said what the mutation has done; those of the table.
    fn cancelled_origin(
        &self,
        _session: SessionId,
        _origin: &Origin,
    ) -> Result<Option<Origin>, Error> {
        Err(Code::AccessDenied.into())
    }

    /// Ends the session here for a session that has ended at another site. `session` is that of the
    /// site's server.
    fn end_origin(&self, _session: SessionId, _ended: SessionId) {}

    /// Returns a moment, for [`SessionService::lease`].
    fn lease_moment(&self) -> LeaseMoment {
        LeaseMoment::default()
    }

    /// Grants leases on an answer to a session, as far as no other session has changed those things
    /// since `since`, a moment before the request was carried out: the client knows its own
    /// changes. A service may lease nothing.
    fn lease(&self, _session: SessionId, _since: LeaseMoment, _answer: LeasedAnswer<'_>) -> Leases {
        Leases::default()
    }

    /// Records that the client of a session has dropped what this recall named.
    fn recalled(&self, _session: SessionId, _number: u64) {}

    /// Records that all leases of a session have ended by its client's own clock.
    fn leases_lost(&self, _session: SessionId) {}

    /// Returns the node that a request changes and whose attributes its reply does not have: the
    /// directory of a name, or the file that it closes. Called before the request is carried out.
    fn changed_node(&self, session: SessionId, request: &Request) -> Option<Handle>;

    /// Returns the attributes of a node that a request has just changed, if they are in memory or
    /// can be read: with them its client need not send a request for them.
    fn attr(&self, session: SessionId, node: Handle) -> Option<Attr>;

    /// Returns the newest sequence that is done, and the newest one that is safe.
    fn progress(&self) -> (u64, u64);

    /// Returns the sequence of the last batch of a mutation that succeeded: its client keeps the
    /// mutation until that is safe. 0 if the client need not keep it: there was none, or it is safe
    /// already, or the mutation cannot be repeated.
    fn sequence_of(&self, session: SessionId, mutation: u64) -> u64;

    /// Returns the reply to a mutation that was carried out, perhaps by an earlier run, and whose
    /// client may not have it. `None` if there was none.
    ///
    /// # Errors
    /// If the table cannot be read.
    fn stored_reply(&self, _session: SessionId, _mutation: u64) -> Result<Option<Reply>, Error> {
        Ok(None)
    }

    /// Calls back once everything that is done now is safe, or may never be: at once if it is safe.
    fn when_safe(&self, then: Box<dyn FnOnce() + Send>);
}
