//! The service for sessions of other processes: [`SessionService`].

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use pelago_data::OpenKey;
use pelago_meta::reply_cache::RequestKey;
use pelago_wire::{
    Attr, Code, Connections, Context, Error, GuestGrant, GuestRefusal, Handle, LeaseMoment,
    LeasedAnswer, Leases, Origin, RecordedPeer, Reply, Request, Served, SessionId, SessionRecord,
    SessionService, SiteHello, SitePeer, SiteRefusal, Touches,
};

use super::{Dispatcher, LocalService};
use crate::origins::PassedOn;
use crate::policy::Asker;
use crate::pool::{Caller, Invocation};

impl SessionService for LocalService {
    fn served(&self) -> Served {
        let parts = &self.dispatcher.parts;
        Served { epoch: parts.shard.epoch(), ..parts.served }
    }

    fn set_connections(&self, connections: Weak<dyn Connections>) {
        if self.dispatcher.connections.set(connections).is_err() {
            tracing::error!("a second server of sessions: it keeps its connections for ever");
        }
    }

    fn is_on_store(&self) -> bool {
        self.dispatcher.parts.ownership.is_some()
    }

    fn may_answer(&self) -> bool {
        self.dispatcher.parts.ownership.as_ref().is_none_or(|ownership| ownership.may_answer())
    }

    fn owner_elsewhere(&self) -> Option<String> {
        // The address of the owner is unknown here: the owner names itself.
        let ownership = self.dispatcher.parts.ownership.as_ref()?;
        ownership.is_lost().then(String::new)
    }

    fn when_recorded(&self, then: Box<dyn FnOnce(Result<(), Error>) + Send>) {
        let Dispatcher { parts, .. } = &*self.dispatcher;
        if parts.ownership.is_none() {
            return then(Ok(()));
        }
        let durability = &parts.durability;
        durability.when_safe(durability.done(), durability.invalidations(), then);
    }

    fn earlier_sessions(&self) -> Vec<(SessionId, SessionRecord)> {
        let Dispatcher { parts, others, .. } = &*self.dispatcher;
        parts.earlier.iter().filter(|(session, _)| others.has(*session)).copied().collect()
    }

    fn is_starting(&self) -> bool {
        !self.dispatcher.parts.grace.is_over()
    }

    fn begin_session(&self, session: SessionId, record: SessionRecord) -> Result<(), Error> {
        self.dispatcher.parts.shard.begin_session(session, &record)?;
        self.dispatcher.retry_deletions();
        if let RecordedPeer::Site(peer) = record.peer {
            // Before its first request: a session that is not a site's has the rights of a client.
            self.dispatcher.parts.sites.begin(session, peer);
        }
        self.dispatcher.parts.opens.begin_session(session, record.peer);
        self.dispatcher.others.begin(session);
        Ok(())
    }

    fn guests_wait(&self) -> Option<String> {
        self.dispatcher.guests_wait()
    }

    fn admit_guest(
        &self,
        principal: &[u8; 32],
        chain: &[Vec<u8>],
        address: Option<IpAddr>,
    ) -> Result<GuestGrant, GuestRefusal> {
        self.dispatcher.parts.policy.admit(principal, chain, address)
    }

    fn begin_guest(
        &self,
        session: SessionId,
        grant: &GuestGrant,
        record: &SessionRecord,
    ) -> Result<(), GuestRefusal> {
        self.dispatcher.begin_guest(session, grant, record)
    }

    fn guest_came_back(&self, session: SessionId, grant: &GuestGrant) -> Result<(), GuestRefusal> {
        self.dispatcher.parts.policy.begin(session, grant)
    }

    fn admit_site(
        &self,
        key: &[u8; 32],
        presented: Option<&SiteHello<'_>>,
    ) -> Result<SitePeer, SiteRefusal> {
        self.dispatcher.parts.sites.admit(key, presented)
    }

    fn is_site(&self, peer: &SitePeer) -> bool {
        self.dispatcher.parts.sites.is_site(peer)
    }

    fn has_leases(&self, session: SessionId) -> bool {
        self.dispatcher.leases.has_any(session)
    }

    fn look_at_guests(&self) {
        self.dispatcher.look_at_guests();
    }

    fn has_access(&self, grant: &GuestGrant) -> bool {
        self.dispatcher.parts.policy.has_access(grant)
    }

    fn reclaimed(&self, session: SessionId) {
        let epoch = self.dispatcher.parts.shard.epoch();
        self.dispatcher.parts.sites.came_back(session, epoch);
        // In the new epoch its client has dropped everything that it cached. What was granted since
        // the end of the grace it keeps.
        let grace = &self.dispatcher.parts.grace;
        self.dispatcher.leases.expire_unless(session, || grace.is_over());
        if grace.came_back(session) {
            self.dispatcher.remember_session(session);
        }
    }

    fn flushed(&self, session: SessionId) {
        self.dispatcher.parts.grace.flushed(session);
    }

    fn ending(&self, session: SessionId) {
        self.dispatcher.give_up_session(session);
    }

    fn end_session(&self, session: SessionId) {
        let context = Context { session, ..Context::direct(0, 0) };
        let dispatcher = Arc::clone(&self.dispatcher);
        // The session does not want the locks any more for which it waits.
        dispatcher.locks.cancel_session(session);
        // Closing files waits for the disk. A server that has stopped commits all files itself.
        let job = move |invocation| match invocation {
            Invocation::Run => dispatcher.end_session(session),
            Invocation::Cancelled => {}
        };
        self.dispatcher.parts.pool.submit(Caller::from(&context), Box::new(job));
    }

    fn sequence_of(&self, session: SessionId, mutation: u64) -> u64 {
        self.dispatcher.parts.shard.sequence_of(session, mutation)
    }

    fn stored_reply(&self, session: SessionId, mutation: u64) -> Result<Option<Reply>, Error> {
        let context = Context { session, mutation, ..Context::direct(0, 0) };
        match RequestKey::of(&context) {
            Some(request_key) => self.dispatcher.parts.shard.cached_reply(&request_key),
            None => Ok(None),
        }
    }

    fn when_safe(&self, then: Box<dyn FnOnce() + Send>) {
        let durability = &self.dispatcher.parts.durability;
        let done = durability.done();
        let invalidations = durability.invalidations();
        durability.when_safe(done, invalidations, Box::new(move |_| then()));
    }

    fn changed_node(&self, session: SessionId, request: &Request) -> Option<Handle> {
        match request.touches() {
            Touches::Release(open) => {
                let open = OpenKey { session, open };
                self.dispatcher.parts.opens.inode_of(open).ok().map(Handle::own)
            }
            touches => touches.changed_dir(),
        }
    }

    fn attr(&self, session: SessionId, node: Handle) -> Option<Attr> {
        match self.dispatcher.parts.policy.asker(session) {
            Asker::Trusted => self.dispatcher.parts.shard.attr(node).ok(),
            Asker::Guest(guest) => self.dispatcher.attr_for_guest(&guest, session, node),
            Asker::AbsentGuest => None,
        }
    }

    fn origin(
        &self,
        session: SessionId,
        mutation: u64,
        acknowledged: u64,
        origin: &Origin,
    ) -> Result<Origin, Error> {
        let parts = &self.dispatcher.parts;
        let SitePeer { site, .. } = parts.sites.of_session(session).ok_or(Code::AccessDenied)?;
        let passed_on = PassedOn { site, via: session, mutation, acknowledged };
        parts.sites.origins.session(&parts.shard, passed_on, origin)
    }

    fn cancelled_origin(
        &self,
        session: SessionId,
        origin: &Origin,
    ) -> Result<Option<Origin>, Error> {
        let parts = &self.dispatcher.parts;
        let peer = parts.sites.of_session(session).ok_or(Code::AccessDenied)?;
        parts.sites.origins.cancelled(&parts.shard, peer.site, origin)
    }

    fn end_origin(&self, session: SessionId, ended: SessionId) {
        let parts = &self.dispatcher.parts;
        if let Some(peer) = parts.sites.of_session(session) {
            parts.sites.origins.end_session(&parts.shard, peer.site, ended);
        }
    }

    fn lease_moment(&self) -> LeaseMoment {
        self.dispatcher.leases.now()
    }

    fn lease(&self, session: SessionId, since: LeaseMoment, answer: LeasedAnswer<'_>) -> Leases {
        self.dispatcher.lease(session, since, answer)
    }

    fn recalled(&self, session: SessionId, number: u64) {
        self.dispatcher.leases.recalled(session, number);
    }

    fn leases_lost(&self, session: SessionId) {
        self.dispatcher.lose_leases(session);
    }

    fn progress(&self) -> (u64, u64) {
        let durability = &self.dispatcher.parts.durability;
        (durability.done(), durability.safe())
    }
}
