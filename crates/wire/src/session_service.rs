//! What a server offers to the sessions of other processes, beside their requests.

use std::fmt;
use std::sync::Weak;

use crate::attr::Attr;
use crate::error::Error;
use crate::id::{Handle, InodeId, SessionId};
use crate::leases::Leases;
use crate::local_cache::Touched;
use crate::reply::Reply;
use crate::request::Request;
use crate::service::Service;
use crate::write_era::WriteEra;

/// What a session learns of the server when it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Served {
    /// The volume's id.
    pub volume: [u8; 16],
    /// The epoch of the server. Each run has a higher one, and begins another one if the table was
    /// opened again and may have lost what was answered.
    pub epoch: u32,
    /// Whether every change is refused.
    pub read_only: bool,
    /// The number of the site.
    pub site: u16,
}

/// What the volume keeps of a session, so that the next run of the server knows its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionRecord {
    /// What the mounting process chose: a copy of its machine is another client.
    pub nonce: [u8; 16],
    /// Who is at the other end.
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

/// Who is at the other end of a recorded session.
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

/// Why the server of another site gets no session, for people: lower case, without a full stop.
/// Empty for a key that is no site's and has no invitation: a stranger learns nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRefusal(pub String);

/// The right of a guest: what its credentials grant to its key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct GuestGrant {
    /// The guest's Ed25519 public key.
    pub principal: [u8; 32],
    /// The Ed25519 public key of the root of the volume that begins the chain.
    pub root: [u8; 32],
    /// The id of the credential by a root of the volume with which its chain begins.
    pub credential: [u8; 32],
    /// The directory: it and all below it may be read.
    pub directory: InodeId,
}

impl fmt::Debug for GuestGrant {
    /// Shows the first bytes of the key and of the credential, which a log has room for.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = |bytes: &[u8; 32]| -> String {
            bytes.iter().take(6).map(|byte| format!("{byte:02x}")).collect()
        };
        f.debug_struct("GuestGrant")
            .field("principal", &first(&self.principal))
            .field("credential", &first(&self.credential))
            .field("directory", &self.directory)
            .finish_non_exhaustive()
    }
}

/// Why a guest gets no session, for people: lower case, without a full stop. Empty for a chain that
/// is not one for the guest's key: a stranger learns nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestRefusal(pub String);

/// The connections of the sessions. Their service ends them for a while if the table has failed:
/// what was answered may be lost, and the clients must say what that was.
pub trait Connections: Send + Sync {
    /// Ends all connections. None is made before [`Connections::resume`].
    fn suspend(&self);

    /// Lets the clients come back, in a new epoch.
    fn resume(&self);

    /// Tells the client of a session that something is about to be changed by another one, also
    /// over later connections, until [`SessionService::recalled`] is called with this number, which
    /// is used once, or [`SessionService::leases_lost`].
    fn recall(&self, session: SessionId, number: u64, touched: &[Touched]);

    /// Ends the sessions of guests that have no right any more ([`SessionService::has_access`]).
    /// When this returns, nothing more is sent to them.
    fn end_guests(&self) {}
}

/// A moment between the changes of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct LeaseMoment(pub u64);

/// An answer of which some may be leased.
#[derive(Debug)]
pub struct LeasedAnswer<'a> {
    /// The node that the request names and of which the answer tells something besides attributes.
    pub node: Option<InodeId>,
    /// The directory of the name or of the names that the answer tells.
    pub names: Option<InodeId>,
    /// The number of the mutation; 0 if the request changes nothing.
    pub mutation: u64,
    /// Whether it opens a file for writing.
    pub opens_for_writing: bool,
    /// The reply or the error. Attributes in it that are not leased become volatile.
    pub result: &'a mut Result<Reply, Error>,
    /// The attributes that come with the answer, of what the request has changed, and a moment
    /// before they were read.
    pub changed: Option<(&'a Attr, LeaseMoment)>,
}

/// A server of sessions. A session begins before its first request, and ends after its last one
/// was taken; requests that still run then are answered to no one.
///
/// A session outlives the run of the server, and its epoch. The next one *starts*: until each
/// session of the last one has opened its files again or has ended, and for at most a term, all
/// other requests wait. Then it carries out what clients replay, which the last one has answered
/// and which may be lost.
pub trait SessionService: Service {
    /// Returns what the server serves.
    fn served(&self) -> Served;

    /// Sets the connections of the sessions, which the service ends when a new epoch begins. A
    /// service that has one epoch needs none.
    fn set_connections(&self, _connections: Weak<dyn Connections>) {}

    /// Returns whether the volume lies on a shared store: a client that knows of that asks for its
    /// servers, and follows its owner.
    fn is_on_store(&self) -> bool {
        false
    }

    /// Returns whether the server may tell clients of the state of the volume. Looked at after
    /// something was read, and immediately before it is sent: a server of a shared store that may
    /// not be its owner any more, as far as it knows, says no. Then nothing is sent, the connection
    /// ends, and the session waits for its client, which asks again there or elsewhere. Asked for
    /// each answer, so it takes no lock.
    fn may_answer(&self) -> bool {
        true
    }

    /// Returns the address of the server that owns the volume, `KEY@HOST:PORT`, if it is not this
    /// one; empty if it is another one and not known. No session begins then.
    ///
    /// A service whose answers to requests are [`crate::Code::NotOwner`] returns an address here.
    fn owner_elsewhere(&self) -> Option<String> {
        None
    }

    /// Returns the sessions of the last run, which their clients may resume.
    fn earlier_sessions(&self) -> Vec<(SessionId, SessionRecord)>;

    /// Returns whether the server still waits for sessions of its last run: no session begins.
    fn is_starting(&self) -> bool;

    /// A session begins. When this returns, the next run knows it.
    ///
    /// # Errors
    /// If the table fails: there is no session.
    fn begin_session(&self, session: SessionId, record: SessionRecord) -> Result<(), Error>;

    /// Calls back once the rows of all sessions that have begun are safe, or with an error once
    /// they may never be: on any thread, and exactly once. A client is told of its session from
    /// there: the next owner of a shared store must know each session whose leases may still run.
    /// The caller may hold no lock that [`SessionService::end_session`] takes.
    fn when_recorded(&self, then: Box<dyn FnOnce(Result<(), Error>) + Send>) {
        then(Ok(()));
    }

    /// Returns what these credentials, from a root of the volume to the guest, grant to a guest
    /// with this Ed25519 public key.
    ///
    /// # Errors
    /// [`GuestRefusal`]. A service may have no guests.
    fn admit_guest(
        &self,
        _principal: &[u8; 32],
        _chain: &[Vec<u8>],
    ) -> Result<GuestGrant, GuestRefusal> {
        Err(GuestRefusal(String::new()))
    }

    /// A session of a guest begins. The next run does not know it.
    ///
    /// # Errors
    /// [`GuestRefusal`] if it has no right any more.
    fn begin_guest(&self, _session: SessionId, _grant: &GuestGrant) -> Result<(), GuestRefusal> {
        Err(GuestRefusal(String::new()))
    }

    /// Returns whether the grant of a guest is still one.
    fn has_access(&self, _grant: &GuestGrant) -> bool {
        false
    }

    /// Returns the site of another server of the volume with this Ed25519 public key. The first
    /// time it presents its invitation; the site is one of the volume from then on, also after a
    /// loss of power. May wait for the disk.
    ///
    /// # Errors
    /// [`SiteRefusal`]. A service may have no sites.
    fn admit_site(
        &self,
        _key: &[u8; 32],
        _invitation: Option<&[u8]>,
    ) -> Result<SitePeer, SiteRefusal> {
        Err(SiteRefusal(String::new()))
    }

    /// A session of the last run has opened its files again, and what its client repeats has
    /// arrived.
    fn reclaimed(&self, session: SessionId);

    /// A session of the last run has the answer to each write that its client had kept back in
    /// that run, or before.
    fn flushed(&self, session: SessionId);

    /// A session has ended for its client, and some of its requests are still under way: no other
    /// session waits for it to come back. [`SessionService::end_session`] follows the last of them.
    fn ending(&self, session: SessionId);

    /// A session ends: what it has open is released, and the next run does not know it.
    fn end_session(&self, session: SessionId);

    /// Returns a moment, for [`SessionService::lease`].
    fn lease_moment(&self) -> LeaseMoment {
        LeaseMoment::default()
    }

    /// Leases to a session what it is answered, as far as nothing of it has changed since `since`,
    /// a moment before the request was carried out, except by that session itself: its client knows
    /// what it changes. A service may lease nothing.
    fn lease(&self, _session: SessionId, _since: LeaseMoment, _answer: LeasedAnswer<'_>) -> Leases {
        Leases::default()
    }

    /// The client of a session has dropped what this recall named.
    fn recalled(&self, _session: SessionId, _number: u64) {}

    /// All leases of a session have ended by its client's own clock.
    fn leases_lost(&self, _session: SessionId) {}

    /// Returns the node that a request changes and whose attributes its answer does not show: the
    /// directory of a name, or the file that it closes. Asked before the request is carried out.
    fn changed_node(&self, session: SessionId, request: &Request) -> Option<Handle>;

    /// Returns the attributes of a node that a request has just changed, if they are in memory or
    /// can be read: they save its client a question.
    fn attr(&self, node: Handle) -> Option<Attr>;

    /// Returns the newest sequence that is done, and the newest that is safe.
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
