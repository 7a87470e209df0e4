//! The tokens by which another site notices that the folder of this one is a copy, or an older one.
//!
//! Each site gives each other one a token, and a new one now and then. The other site keeps it in
//! its folder, and shows the last one with each hello. So an older folder shows an older token, and
//! of a folder and its copy only one goes on: the next token makes that of the other one old.
//!
//! No step may make an honest site look old, wherever the power is lost. So a token is safe in both
//! folders before the one that it replaces is taken no more:
//!
//! 1. The site that gives it writes it beside the one before, and answers once that is safe.
//! 2. The site that gets it writes it, and shows it once that is safe.
//! 3. Then it says so, and the one before is forgotten. Until that is heard both are taken, and the
//!    same one is given again: the answer may have been lost.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_store::clock::since_boot;
use pelago_store::rows::SiteTokensRow;
use pelago_wire::{
    Code, Error, OlderFolder, Reply, Request, ShownTokens, SitePass, SiteRefusal, SiteToken, limits,
};

use super::{SAFE_TIMEOUT, Sites};

/// The pause between two looks whether a token is to be renewed: a new mark of inode numbers is
/// written long before the numbers below it are used.
const LOOK: Duration = Duration::from_secs(2);

/// The tokens of this site and another one. A state machine without I/O.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Pair {
    /// As it was written last; it may not be safe.
    row: SiteTokensRow,
    /// The last token of the other site that is safe here.
    safe: SiteToken,
}

impl Pair {
    /// Returns the tokens that the table has.
    const fn stored(row: SiteTokensRow) -> Self {
        Self { row, safe: row.held }
    }

    /// Returns what this site shows to the other one.
    fn shown(&self) -> ShownTokens {
        let known = self.row.before.unwrap_or(self.row.given);
        let known = if known == SiteToken::LOST { SiteToken::NONE } else { known };
        ShownTokens { held: self.safe, known }
    }

    /// Returns whose folder is older, if what the other site shows tells that.
    fn judge(&self, shown: &ShownTokens) -> Option<OlderFolder> {
        let SiteTokensRow { held, given, before } = self.row;
        // The other site knows that this one has had it.
        let is_behind = shown.known.number > held.number
            || (shown.known.number == held.number && shown.known != held);
        if is_behind && held != SiteToken::LOST {
            return Some(OlderFolder::OfAnswerer);
        }
        let is_lost = [shown.held, given].contains(&SiteToken::LOST);
        if is_lost || shown.held == given || Some(shown.held) == before {
            return None;
        }
        // This one has never given it.
        let is_newer = shown.held.number >= given.number;
        Some(if is_newer { OlderFolder::OfAnswerer } else { OlderFolder::OfAsker })
    }

    /// Returns the token to give to the other site, which shows this one: a new one with these
    /// random bytes, or the last one again if it may not have arrived.
    fn give(&mut self, shown: SiteToken, random: [u8; 16]) -> Result<SiteToken, OlderFolder> {
        let tokens = ShownTokens { held: shown, known: SiteToken::NONE };
        if let Some(older) = self.judge(&tokens) {
            return Err(older);
        }
        let SiteTokensRow { given, before, .. } = &mut self.row;
        if *before != Some(shown) {
            let is_known = *given != SiteToken::LOST;
            let last = if is_known { given.number } else { shown.number };
            let last = if last == SiteToken::LOST.number { 0 } else { last };
            *given = SiteToken { number: last + 1, random };
            *before = Some(shown);
        }
        Ok(*given)
    }

    /// Records that a token is safe at the other site. Returns whether that is new.
    fn keep(&mut self, token: SiteToken) -> bool {
        token == self.row.given && self.row.before.take().is_some()
    }

    /// Takes a token that the other site gives. Returns false for one that is older than the last.
    fn take(&mut self, token: SiteToken) -> bool {
        let held = &mut self.row.held;
        let is_last = *held == SiteToken::LOST || token.number >= held.number;
        if is_last {
            *held = token;
        }
        is_last
    }

    /// Records that a token that was taken is safe here.
    fn is_safe(&mut self, token: SiteToken) {
        if self.safe == SiteToken::LOST || token.number > self.safe.number {
            self.safe = token;
        }
    }
}

/// The last renewal of the token that another site has given to this one.
#[derive(Debug, Clone, Copy)]
struct Renewal {
    /// The time at which it began.
    at: Duration,
    /// The mark of inode numbers then.
    mark: u64,
}

/// An older folder of another site that was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OlderSeen {
    /// The last time.
    last: Duration,
    /// It was seen more than once. A server of such a folder connects again each second; a single
    /// hello may have come late, from the newer one.
    is_repeated: bool,
}

/// The time for which an older folder is told that was seen.
const TOLD: Duration = Duration::from_secs(60);

/// The tokens of this site and all others.
#[derive(Default)]
pub(super) struct Tokens {
    /// Locked while a row is written: the rows of the table are in the order of what is known.
    pairs: Mutex<HashMap<u16, Pair>>,
    /// The renewals of this run. A leaf lock.
    renewals: Mutex<HashMap<u16, Renewal>>,
    /// True once it is known that this folder is a copy, or an older one.
    is_outdated: Arc<AtomicBool>,
    /// The number of the site that has shown that.
    outdated_by: OnceLock<u16>,
    /// The folders of other sites that were seen, and are copies or older ones. A leaf lock.
    older_seen: Mutex<HashMap<u16, OlderSeen>>,
    /// Wakes the thread that renews tokens.
    wakes: OnceLock<Sender<()>>,
    /// The sites that were known when that thread began. Those know this one.
    known: OnceLock<Vec<u16>>,
}

impl Tokens {
    pub(super) fn new(rows: Vec<(u16, SiteTokensRow)>) -> Self {
        let pairs = rows.into_iter().map(|(site, row)| (site, Pair::stored(row)));
        Self { pairs: Mutex::new(pairs.collect()), ..Self::default() }
    }

    /// Returns a flag that is true once this folder is known to be a copy, or an older one.
    pub(super) fn outdated_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_outdated)
    }

    /// Returns the number of the last token of a site that is safe here.
    pub(super) fn number(&self, site: u16) -> u64 {
        self.pairs.lock().get(&site).map_or(0, |pair| pair.safe.number)
    }

    /// Returns how long ago a folder of a site was seen that is a copy, or an older one; `None` if
    /// none was seen lately.
    pub(super) fn older_seen(&self, site: u16) -> Option<Duration> {
        let OlderSeen { last, is_repeated } = self.older_seen.lock().get(&site).copied()?;
        let ago = since_boot().saturating_sub(last);
        (is_repeated && ago < TOLD).then_some(ago)
    }

    /// Records that a folder of a site was seen that is a copy, or an older one. Returns whether
    /// that is to be told: it was seen for the second time.
    fn saw_older(&self, site: u16) -> bool {
        let now = since_boot();
        let mut all = self.older_seen.lock();
        let before = all.get(&site).filter(|seen| now.saturating_sub(seen.last) < TOLD).copied();
        all.insert(site, OlderSeen { last: now, is_repeated: before.is_some() });
        before.is_some_and(|seen| !seen.is_repeated)
    }

    /// Has the thread that renews tokens look at once.
    pub(super) fn wake(&self) {
        if let Some(wakes) = self.wakes.get() {
            let _is_over: Result<(), _> = wakes.send(());
        }
    }
}

/// The tokens that a site shows to another one.
struct Pass {
    sites: Weak<Sites>,
    site: u16,
}

impl std::fmt::Debug for Pass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pass").field("site", &self.site).finish_non_exhaustive()
    }
}

impl SitePass for Pass {
    fn shown(&self) -> Option<ShownTokens> {
        Some(self.sites.upgrade()?.shown(self.site))
    }

    fn refused(&self, shown: &ShownTokens, older: OlderFolder) {
        let Some(sites) = self.sites.upgrade() else { return };
        match older {
            OlderFolder::OfAnswerer => {
                if sites.tokens.saw_older(self.site) {
                    tracing::error!(
                        site = self.site,
                        "the folder that this office serves is a copy of one that goes on, or \
                         older than what was seen of it here: it is not asked"
                    );
                }
            }
            // A newer one may have come over another connection meanwhile.
            OlderFolder::OfAsker if sites.shown(self.site).held != shown.held => {}
            OlderFolder::OfAsker => sites.set_outdated(self.site),
        }
    }
}

impl Sites {
    /// Returns what this site shows to the server of another one.
    pub(crate) fn pass(self: &Arc<Self>, site: u16) -> Arc<dyn SitePass> {
        Arc::new(Pass { sites: Arc::downgrade(self), site })
    }

    fn shown(&self, site: u16) -> ShownTokens {
        self.tokens.pairs.lock().get(&site).map(Pair::shown).unwrap_or_default()
    }

    /// Returns whether this folder is known to be a copy, or older than another site has seen of
    /// it.
    pub(crate) fn is_outdated(&self) -> bool {
        self.tokens.is_outdated.load(Ordering::Acquire)
    }

    /// Returns what a person is told if this folder is a copy, or an older one.
    pub(crate) fn says_outdated(&self) -> Option<String> {
        let by = *self.tokens.outdated_by.get()?;
        let name = self.names(&[by]).pop().unwrap_or_else(|| by.to_string());
        Some(format!(
            "this folder is a copy of one that goes on, or older than what office `{name}` has \
             seen of it: numbers of files would be given twice. {}",
            advice(self.own)
        ))
    }

    /// Returns the refusal of a server whose tokens show that its folder or the own one is a copy,
    /// or an older one. Called with the lock of the sites' rows.
    pub(super) fn judge(&self, site: u16, name: &str, shown: &ShownTokens) -> Option<SiteRefusal> {
        let known = self.tokens.pairs.lock().get(&site).copied().unwrap_or_default();
        let folder = match self.is_outdated() {
            true => OlderFolder::OfAnswerer,
            false => known.judge(shown)?,
        };
        let text = match folder {
            OlderFolder::OfAsker => {
                if self.tokens.saw_older(site) {
                    tracing::error!(
                        site,
                        name,
                        ?shown,
                        known = ?known.row,
                        "a folder of this office is a copy of one that goes on, or older than what \
                         was seen of it here: its server is refused"
                    );
                }
                format!(
                    "numbers of files would be given twice; stop the server of office `{name}`. {}",
                    advice(site)
                )
            }
            OlderFolder::OfAnswerer => {
                self.set_outdated(site);
                "stop that server, and have the newer folder served there".to_owned()
            }
        };
        Some(SiteRefusal::Older { folder, text })
    }

    /// Records that a site has shown that this folder is a copy, or an older one. From now on
    /// nothing goes to other sites, and nothing is answered to them.
    fn set_outdated(&self, by: u16) {
        if self.tokens.outdated_by.set(by).is_ok() {
            self.tokens.is_outdated.store(true, Ordering::Release);
            tracing::error!(
                by,
                "this folder is a copy of one that goes on, or older than what another office has \
                 seen of it: numbers of files would be given twice. This office is cut off. {}",
                advice(self.own)
            );
        }
    }

    /// Returns the next token of a site, which has shown this one. It may be answered once what was
    /// done is safe.
    ///
    /// # Errors
    /// `Stale` for an older token than the last; `Unavailable` if this folder is the older one;
    /// those of the table.
    pub(crate) fn give_token(&self, site: u16, shown: SiteToken) -> Result<SiteToken, Error> {
        if self.is_outdated() {
            return Err(Code::Unavailable.into());
        }
        let random = SiteTokensRow::new_random().map_err(|error| {
            tracing::warn!(%error, "no token is given: the system has no random bytes");
            Error::from(Code::Unavailable)
        })?;
        let mut pairs = self.tokens.pairs.lock();
        let pair = pairs.entry(site).or_default();
        let given = pair.give(shown, random).map_err(|older| match older {
            OlderFolder::OfAsker => Code::Stale,
            OlderFolder::OfAnswerer => Code::Unavailable,
        })?;
        // Again, although the same one was given before: that may have been lost.
        self.shard.put_site_tokens(site, &pair.row)?;
        Ok(given)
    }

    /// Records that a token is safe at the site that it was given to.
    ///
    /// # Errors
    /// Those of the table.
    pub(crate) fn keep_token(&self, site: u16, token: SiteToken) -> Result<(), Error> {
        let mut pairs = self.tokens.pairs.lock();
        let pair = pairs.entry(site).or_default();
        match pair.keep(token) {
            true => self.shard.put_site_tokens(site, &pair.row),
            false => Ok(()),
        }
    }

    /// Renews the tokens of this site at all others, now and from now on. A second call does
    /// nothing.
    pub(crate) fn begin_tokens(self: &Arc<Self>) {
        let (wakes, woken) = mpsc::channel();
        if self.tokens.wakes.set(wakes).is_err() {
            return;
        }
        let _is_first = self.tokens.known.set(self.joined());
        let own = Arc::downgrade(self);
        let renewing = move || keep_renewing(&own, &woken);
        let started = thread::Builder::new().name("site-tokens".to_owned()).spawn(renewing);
        if let Err(error) = started {
            tracing::error!(%error, "a copy of this folder would not be noticed");
        }
    }

    /// Has a site give this one a new token now.
    ///
    /// # Errors
    /// Those of the site, and of the table.
    pub(crate) fn renew_token(self: &Arc<Self>, site: u16) -> Result<(), Error> {
        renew(&Arc::downgrade(self), site)
    }

    /// Returns the sites whose tokens are to be renewed. One that has joined since may not know
    /// this one, and would refuse it: it is asked once another request has gone there.
    fn due(&self) -> Vec<u16> {
        if self.is_outdated() {
            return Vec::new();
        }
        let mut joined = self.joined();
        let known = self.tokens.known.get().map_or(&[][..], Vec::as_slice);
        let asked: HashSet<u16> = self.upstreams.read().keys().copied().collect();
        joined.retain(|site| known.contains(site) || asked.contains(site));
        let mark = self.shard.id_mark();
        let now = since_boot();
        let renewals = self.tokens.renewals.lock();
        let is_due = |site: &u16| {
            renewals.get(site).is_none_or(|last| {
                last.mark != mark || now.saturating_sub(last.at) >= limits::TOKEN_RENEWAL
            })
        };
        joined.into_iter().filter(is_due).collect()
    }
}

/// Returns what a person can do about an older folder of a site.
const fn advice(site: u16) -> &'static str {
    match site {
        0 => "Serve the newer folder; if that is lost, the other offices keep what is theirs",
        _ => "Serve the newer folder; if that is lost, let the office join anew: `pelago join`",
    }
}

/// Renews tokens until the server ends.
fn keep_renewing(own: &Weak<Sites>, woken: &Receiver<()>) {
    loop {
        renew_due(own);
        // A volume with one site has nothing to look for.
        let is_alone = own.upgrade().is_none_or(|sites| sites.is_alone());
        let waited = match is_alone {
            true => woken.recv().map_err(RecvTimeoutError::from),
            false => woken.recv_timeout(LOOK),
        };
        if waited == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        while woken.try_recv().is_ok() {}
    }
}

/// Renews the tokens that are due, one after the other.
fn renew_due(own: &Weak<Sites>) {
    let due = own.upgrade().map(|sites| sites.due()).unwrap_or_default();
    for site in due {
        if let Err(error) = renew(own, site) {
            tracing::debug!(site, %error, "a site has given no new token yet");
        }
    }
}

/// Has a site give this one a new token. Keeps the server only while it works for it, and not while
/// it waits.
///
/// # Errors
/// Those of the site, and of the table.
fn renew(own: &Weak<Sites>, site: u16) -> Result<(), Error> {
    let now = || own.upgrade().ok_or_else(|| Error::from(Code::Unavailable));
    let sites = now()?;
    let renewal = Renewal { at: since_boot(), mark: sites.shard.id_mark() };
    let shown = sites.shown(site);
    drop(sites);
    let token = match ask(own, site, Request::RenewToken { token: shown.held }) {
        Ok(Reply::Token(token)) => token,
        Ok(_) => return Err(Code::Bug.into()),
        Err(error) => {
            if error.code == Code::Stale {
                now()?.pass(site).refused(&shown, OlderFolder::OfAsker);
            }
            return Err(error);
        }
    };
    let sites = now()?;
    let invalidations = sites.durability.invalidations();
    let mut pairs = sites.tokens.pairs.lock();
    let pair = pairs.entry(site).or_default();
    if !pair.take(token) {
        return Ok(());
    }
    sites.shard.put_site_tokens(site, &pair.row)?;
    drop(pairs);
    let (sender, safe) = mpsc::channel();
    let notify = move |result: Result<(), Error>| {
        let _waits_no_more = sender.send(result);
    };
    sites.durability.when_safe(sites.durability.done(), invalidations, Box::new(notify));
    drop(sites);
    safe.recv_timeout(SAFE_TIMEOUT).map_err(|_| Error::from(Code::TimedOut))??;
    if let Some(pair) = now()?.tokens.pairs.lock().get_mut(&site) {
        pair.is_safe(token);
    }
    ask(own, site, Request::KeepToken { token })?;
    now()?.tokens.renewals.lock().insert(site, renewal);
    Ok(())
}

/// Sends a request to a site, and waits for the answer.
fn ask(own: &Weak<Sites>, site: u16, request: Request) -> Result<Reply, Error> {
    let sites = own.upgrade().ok_or_else(|| Error::from(Code::Unavailable))?;
    // One that has left meanwhile has said nothing of this folder.
    let upstream = sites.upstream(site).map_err(|_| Error::from(Code::HostDown))?;
    drop(sites);
    upstream.ask_and_wait(request)
}

#[cfg(test)]
mod tests;
