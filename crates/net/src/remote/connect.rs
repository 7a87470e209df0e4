//! The thread that makes the connection of a session, and makes it again after each loss.
//!
//! It tries the servers in rounds, with pauses that grow. If the server refuses the client for
//! good, requests fail until a later round succeeds.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use pelago_wire::frame::{FrameKind, Header};
use pelago_wire::handshake::{Hello, RefusalCode};
use pelago_wire::present::Present;
use pelago_wire::{ShownTokens, version};
use ring::rand::{SecureRandom, SystemRandom};

use super::calls::Calls;
use super::connect_error::{ConnectError, is_definite, is_of_load, is_passing, older_folder};
use super::connection::{Attempt, Connection};
use super::dial::open;
use super::round::{Round, RoundFailure};
use super::servers::{RedirectError, ServerOrder};
use super::{ClientRole, RemoteOptions, ServerTarget, SiteRole};
use crate::key::address::ServerAddress;
use crate::link::{Bytes, Link};
use crate::log_limit::LogLimit;
use crate::reactor::Mailbox;

/// The longest time of an attempt.
pub(super) const ATTEMPT: Duration = Duration::from_secs(5);
/// The first pause after a failed attempt.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// The longest pause after a server has refused the client, or has ended its connections at once.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause while no server answers, or only standby servers: one may be there at any
/// moment, programs wait for it, and each attempt may cost a handshake of TLS.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The longest time of an attempt without an answer, if there are other servers to try.
const ANSWER: Duration = Duration::from_secs(2);
/// Log lines about redirects that are not followed.
static REDIRECTS: LogLimit = LogLimit::new();

/// The maker of a session's connections.
pub(super) struct Connector {
    pub(super) options: RemoteOptions,
    nonce: [u8; 16],
    pub(super) calls: Arc<Calls>,
    pub(super) mailbox: Arc<Mailbox>,
    /// Wakes the thread that pauses between attempts.
    pause: (Mutex<()>, Condvar),
    /// The reason for which the server gives no session, if it has refused the client. A leaf lock.
    refusal: Mutex<Option<String>>,
    /// The order of the servers; `None` with a Unix socket. A leaf lock.
    order: Option<Mutex<ServerOrder>>,
    /// The targets of the server, if it has moved. A leaf lock.
    moved: Mutex<Option<Moved>>,
}

/// The targets of a server that has moved.
#[derive(Clone)]
struct Moved {
    /// The target that it has told.
    target: ServerTarget,
    /// The target of the last session: what it says may be wrong, or older.
    last: ServerTarget,
}

impl Connector {
    pub(super) fn new(
        options: RemoteOptions,
        calls: Arc<Calls>,
        mailbox: Arc<Mailbox>,
    ) -> Result<Self, ConnectError> {
        let mut nonce = [0; 16];
        let filled = SystemRandom::new().fill(&mut nonce);
        filled.map_err(|_| ConnectError::NoThread(io::ErrorKind::Other.into()))?;
        let refusal = Mutex::default();
        let order = match &options.target {
            ServerTarget::Unix(_) | ServerTarget::Reverse { .. } => None,
            ServerTarget::Tcp { address, .. } => {
                Some(Mutex::new(ServerOrder::new(address.clone())))
            }
        };
        let pause = Default::default();
        let moved = Mutex::default();
        Ok(Self { options, nonce, calls, mailbox, pause, refusal, order, moved })
    }

    /// Makes connections to this target from now on, or to the last one if no server is there. The
    /// server is the same. A connection that lives stays.
    pub(super) fn move_to(&self, target: ServerTarget) {
        let mut moved = self.moved.lock();
        let last = moved.take().map_or_else(|| self.options.target.clone(), |moved| moved.last);
        *moved = Some(Moved { target, last });
        drop(moved);
        self.wake();
    }

    /// Tries where a server says that it is, then where it was.
    fn round_of_moved(&self, moved: Moved, patience: Duration) -> Result<(), RoundFailure> {
        let Moved { target, last } = moved;
        let Err(new) = self.attempt(&target, patience, patience) else {
            if let Some(moved) = &mut *self.moved.lock() {
                moved.last = target;
            }
            return Ok(());
        };
        let Err(old) = self.attempt(&last, patience, patience) else { return Ok(()) };
        let is_definite = is_definite(&new) && is_definite(&old);
        Err(RoundFailure { error: new, is_definite })
    }

    /// Connects for the first time.
    pub(super) fn begin(&self, patience: Duration) -> Result<(), ConnectError> {
        let start = Instant::now();
        let deadline = start + patience;
        let mut pause = FIRST_PAUSE;
        loop {
            let RoundFailure { error, is_definite } = match self.round(ATTEMPT.min(patience)) {
                Ok(()) => return Ok(()),
                Err(failure) => failure,
            };
            let is_passing = match error {
                // Another program than a server of ours may do this for ever.
                ConnectError::Cut => start.elapsed() < ATTEMPT,
                _ => is_passing(&error),
            };
            if is_definite || !is_passing || Instant::now() + pause >= deadline {
                return Err(error);
            }
            self.sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes the connection again whenever it is lost, until the session ends.
    pub(super) fn keep_connected(&self) {
        let mut pause = FIRST_PAUSE;
        let mut connected = Instant::now();
        let mut is_connected = true;
        let mut answers = 0;
        while self.calls.wait_for_loss() {
            let answered = self.calls.answers();
            let was_of_use = std::mem::replace(&mut answers, answered) < answered;
            let has_lasted = is_connected && connected.elapsed() >= LONGEST_PAUSE;
            if was_of_use || has_lasted {
                pause = FIRST_PAUSE;
            }
            if is_connected && !has_lasted {
                // Each connection ends at once: it must not be made in a busy loop.
                self.sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            match self.round(ATTEMPT) {
                Ok(()) => {
                    tracing::info!("connected again");
                    *self.refusal.lock() = None;
                    connected = Instant::now();
                    is_connected = true;
                }
                Err(RoundFailure { error, is_definite }) => {
                    tracing::debug!(%error, "no connection yet");
                    is_connected = false;
                    let is_of_load = is_of_load(&error);
                    if is_definite {
                        *self.refusal.lock() = Some(error.to_string());
                        self.calls.refused(&error);
                    }
                    self.calls.tick(Instant::now());
                    self.sleep(pause);
                    let most = match is_definite || is_of_load {
                        true => LONGEST_PAUSE,
                        false => RETRY_PAUSE,
                    };
                    pause = (pause * 2).min(most);
                }
            }
        }
    }

    /// Returns the reason for which the server gives no session, if it has refused the client.
    pub(super) fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// Wakes [`Connector::keep_connected`], which returns if the session has ended.
    pub(super) fn wake(&self) {
        // A thread that has looked at the state waits by then.
        drop(self.pause.0.lock());
        self.pause.1.notify_all();
    }

    pub(super) fn sleep(&self, pause: Duration) {
        let mut guard = self.pause.0.lock();
        if !self.calls.has_ended() {
            self.pause.1.wait_for(&mut guard, pause);
        }
    }

    /// Tries each known server once, and the owner to which one of them redirects.
    fn round(&self, patience: Duration) -> Result<(), RoundFailure> {
        let moved = self.moved.lock().clone();
        if let Some(moved) = moved {
            return self.round_of_moved(moved, patience);
        }
        let (ServerTarget::Tcp { key, .. }, Some(order)) = (&self.options.target, &self.order)
        else {
            let result = self.attempt(&self.options.target, patience, patience);
            return result.map_err(|error| {
                let is_definite = is_definite(&error);
                RoundFailure { error, is_definite }
            });
        };
        let (listed, news) = self.calls.servers();
        let mut waiting = order.lock().begin(&listed, &news);
        let mut round = Round::new();
        while let Some(address) = waiting.pop_front() {
            let is_only = waiting.is_empty() && round.tried.is_empty();
            let answer = if is_only { patience } else { ANSWER.min(patience) };
            let target = ServerTarget::Tcp { address: address.clone(), key: Arc::clone(key) };
            let error = match self.attempt(&target, patience, answer) {
                Ok(()) => {
                    order.lock().note_connected(address);
                    return Ok(());
                }
                Err(error) => error,
            };
            tracing::debug!(server = %address, %error, "no session there");
            if error.is_silence() {
                order.lock().note_silent(&address);
            }
            let followed = error.owner().map(|text| order.lock().follow(&listed, text));
            round.tried.push(address.clone());
            match followed {
                Some(Ok(owner)) if round.may_follow(&owner) => {
                    waiting.retain(|other| *other != owner);
                    round.owners.push(owner.clone());
                    waiting.push_front(owner);
                }
                Some(Err(why)) => log_not_followed(&address, &why),
                Some(Ok(_)) | None => {}
            }
            if round.record(&address, error) || self.calls.has_ended() {
                break;
            }
            // Connecting a socket blocks, and deadlines of requests have passed since.
            self.calls.tick(Instant::now());
        }
        Err(round.failure())
    }

    /// Returns the server that gave a session last; `None` before the first, and by a Unix socket.
    pub(super) fn server(&self) -> Option<ServerAddress> {
        self.order.as_ref()?.lock().last().cloned()
    }

    /// Returns the target of the last connection that had a session.
    pub(super) fn last_target(&self) -> ServerTarget {
        if let Some(moved) = &*self.moved.lock() {
            return moved.last.clone();
        }
        match (&self.options.target, self.server()) {
            (ServerTarget::Tcp { key, .. }, Some(address)) => {
                ServerTarget::Tcp { address, key: Arc::clone(key) }
            }
            (target, _) => target.clone(),
        }
    }

    /// Connects to a server, within `patience`. A guest presents its chains one after another until
    /// one is accepted: the first ones may have ended, or may have been taken back.
    fn attempt(
        &self,
        target: &ServerTarget,
        patience: Duration,
        answer: Duration,
    ) -> Result<(), ConnectError> {
        let count = match &self.options.role {
            ClientRole::Guest(chains) => chains.len(),
            ClientRole::Client | ClientRole::Site(_) => 1,
        };
        let first = self.calls.presented();
        let mut refused = None;
        for next in 0..count {
            let chain = (first + next) % count;
            match self.attempt_with(target, chain, patience, answer) {
                Err(ConnectError::Refused(refusal)) if refusal.code == RefusalCode::NoAccess => {
                    refused.get_or_insert(refusal);
                }
                result => return result,
            }
        }
        Err(refused.map_or(ConnectError::Cut, ConnectError::Refused))
    }

    /// Makes one attempt to connect, within `patience`; within `answer` if no byte has come by
    /// then. The kernel takes connections for a process that was stopped and never answers.
    fn attempt_with(
        &self,
        target: &ServerTarget,
        chain: usize,
        patience: Duration,
        answer: Duration,
    ) -> Result<(), ConnectError> {
        let pass = match &self.options.role {
            ClientRole::Site(site) => Some(&site.pass),
            ClientRole::Client | ClientRole::Guest(_) => None,
        };
        let Some(pass) = pass else {
            return self.attempt_showing(target, chain, &ShownTokens::default(), patience, answer);
        };
        // Without them its folder would be taken for an older one.
        let shown = pass.shown().ok_or(ConnectError::Cut)?;
        let result = self.attempt_showing(target, chain, &shown, patience, answer);
        if let Some(older) = result.as_ref().err().and_then(older_folder) {
            pass.refused(&shown, older);
        }
        result
    }

    fn attempt_showing(
        &self,
        target: &ServerTarget,
        chain: usize,
        shown: &ShownTokens,
        patience: Duration,
        answer: Duration,
    ) -> Result<(), ConnectError> {
        let (stream, tls) = open(target, answer)?;
        if let ClientRole::Site(_) = &self.options.role {
            stream.set_long_line();
        }
        let begun = Instant::now();
        let attempt = Arc::new(Attempt::default());
        let handler = Box::new(Connection::new(Arc::clone(&self.calls), Arc::clone(&attempt)));
        let link = self.mailbox.add(stream, tls, |_| handler);
        send_first(&link, FrameKind::Hello, self.hello().encode().to_vec());
        let presented = match &self.options.role {
            ClientRole::Client => None,
            ClientRole::Guest(_) => self.calls.present(chain).map(|chain| Present { chain }),
            ClientRole::Site(site) => Some(Present::of_site(shown, site.invitation.as_deref())),
        };
        if let Some(present) = presented {
            send_first(&link, FrameKind::Present, present.encode().map_err(ConnectError::Chain)?);
        }
        if let Some(result) = attempt.wait(begun + answer) {
            return result;
        }
        // A byte of TLS shows that the server runs. Its store may be slow.
        if !link.heard().is_zero()
            && let Some(result) = attempt.wait(begun + patience)
        {
            return result;
        }
        attempt.give_up().unwrap_or_else(|| {
            link.close();
            Err(ConnectError::Silent)
        })
    }

    pub(super) fn hello(&self) -> Hello {
        let hello = Hello {
            read_only: self.options.read_only,
            resume: self.calls.session(),
            ..Hello::new(self.nonce)
        };
        match &self.options.role {
            // Only a client over TCP can follow the owner to another server.
            ClientRole::Client if self.order.is_some() => {
                Hello { features: version::FEATURES, ..hello }
            }
            ClientRole::Client => hello,
            ClientRole::Guest(_) => Hello { role: Hello::GUEST, ..hello },
            ClientRole::Site(SiteRole { volume, wanted, .. }) => {
                Hello { role: Hello::SITE, volume: Some(*volume), site: *wanted, ..hello }
            }
        }
    }
}

/// Sends a frame over a connection that has no session yet.
pub(super) fn send_first(link: &Link, kind: FrameKind, body: Vec<u8>) {
    let bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
    let head = Header::new(kind, bytes, 0).encode();
    link.send([Bytes::Header(head), Bytes::Owned(body)]);
}

/// Logs a redirect that is not followed.
fn log_not_followed(server: &ServerAddress, why: &RedirectError) {
    // A server that does not know the owner is about to know it.
    if *why != RedirectError::Unknown
        && let Some(left_out) = REDIRECTS.admit()
    {
        tracing::warn!(%server, %why, left_out, "a server stands by and leads nowhere");
    }
}
