//! The list of the volume's sites: made and signed at the first one, sent to all others.
//!
//! It is in the same batch as the row of the site by which it changes, and sent once it is safe. A
//! site that hears of a list with a lower version than the one that it has refuses it: then the
//! folder of the first site is older than what others have seen of it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use pelago_keynote::key::PrivateKey;
use pelago_keynote::{
    LISTED_SITES, ListedSite, Principal, SITE_ADDRESS_BYTES, SITE_LIST_BYTES, SITE_NAME_BYTES,
    SignedSiteList, SiteList, is_site_address,
};
use pelago_store::rows::{self, SiteRow, SiteState};
use pelago_wire::{Bulk, Code, Context, Done, Error, InodeId, Request, SitePeer, limits};

use super::{Sites, has_joined};

/// The pause before a list is sent again that did not arrive.
const PAUSE: Duration = Duration::from_secs(5);

/// The limits of the wire and of the rows are those of the parser.
const _: () = assert!(
    LISTED_SITES == limits::LISTED_SITES
        && SITE_LIST_BYTES == limits::SITE_LIST_BYTES
        && SITE_ADDRESS_BYTES == limits::SITE_ADDRESS_BYTES
        && SITE_NAME_BYTES == rows::SITE_NAME_BYTES
        && SITE_NAME_BYTES == limits::SITE_NAME_BYTES
);

/// The list of the sites, as it is known here.
#[derive(Default)]
pub(super) struct KnownList {
    /// 0 if there is none.
    version: u64,
    sites: Vec<ListedSite>,
    text: Arc<[u8]>,
    /// [`Durability::invalidations`] from before it was written.
    ///
    /// [`Durability::invalidations`]: pelago_meta::durability::Durability::invalidations
    invalidations: u64,
    /// Of the first site: what the others have.
    sent: HashMap<u16, Sent>,
}

/// The version that another site has, or is about to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sent {
    UnderWay(u64),
    /// It has answered; it may have refused it.
    Answered(u64),
}

/// A list that differs from the known one.
struct NewList {
    list: SiteList,
    text: Vec<u8>,
}

impl KnownList {
    /// Returns the list that the table has; `None` if it is damaged.
    pub(super) fn stored(text: Vec<u8>) -> Option<Self> {
        match SignedSiteList::parse(&text) {
            Ok(parsed) => {
                let SiteList { version, sites, .. } = parsed.unverified();
                let sent = HashMap::new();
                Some(Self { version, sites, text: text.into(), invalidations: 0, sent })
            }
            Err(error) => {
                tracing::error!(%error, "the stored list of the sites is damaged");
                None
            }
        }
    }

    fn adopt(&mut self, new: NewList, invalidations: u64) {
        let NewList { list: SiteList { version, sites, .. }, text } = new;
        let sent = std::mem::take(&mut self.sent);
        *self = Self { version, sites, text: text.into(), invalidations, sent };
    }

    /// Returns whether another site is to be sent this list.
    fn is_missing(&self, site: u16) -> bool {
        self.sent.get(&site).is_none_or(|sent| match *sent {
            Sent::UnderWay(_) => false,
            Sent::Answered(version) => version != self.version,
        })
    }
}

impl Sites {
    /// Begins to sign the list with the key of this server, and to send it to the other sites. Does
    /// nothing at another site than the first one.
    ///
    /// # Errors
    /// If the table fails.
    pub(crate) fn begin_list(self: &Arc<Self>, key: PrivateKey) -> Result<(), Error> {
        if self.own != InodeId::ROOT.site() || self.list_key.set(key).is_err() {
            return Ok(());
        }
        let mut others = self.others.lock();
        // The last run may have had no key, or a program that made no list.
        self.write(&mut others, Vec::new())?;
        if others.values().any(has_joined) {
            self.wake_sender();
        }
        Ok(())
    }

    /// Writes the rows of these sites, and the list if it changes by that.
    pub(super) fn write(
        self: &Arc<Self>,
        others: &mut BTreeMap<u16, SiteRow>,
        rows: Vec<(u16, SiteRow)>,
    ) -> Result<(), Error> {
        let mut changed = others.clone();
        changed.extend(rows.iter().cloned());
        let new = self.renewed(&changed);
        if rows.is_empty() && new.is_none() {
            return Ok(());
        }
        let invalidations = self.durability.invalidations();
        self.shard.put_sites(&rows, new.as_ref().map(|new| &*new.text))?;
        *others = changed;
        if let Some(new) = new {
            self.list.lock().adopt(new, invalidations);
            self.wake_sender();
        }
        Ok(())
    }

    /// Writes all rows and the list again: the table has lost them before they were safe.
    fn write_again(&self) {
        let others = self.others.lock();
        let rows: Vec<_> = others.iter().map(|(site, row)| (*site, row.clone())).collect();
        let invalidations = self.durability.invalidations();
        let text = Arc::clone(&self.list.lock().text);
        match self.shard.put_sites(&rows, Some(&text)) {
            Ok(()) => self.list.lock().invalidations = invalidations,
            Err(error) => tracing::warn!(%error, "the list of the sites is not written again"),
        }
    }

    /// Returns the next list, if these sites differ from those of the last one. It is signed by the
    /// server of the first site; the others have none to sign.
    fn renewed(&self, others: &BTreeMap<u16, SiteRow>) -> Option<NewList> {
        let key = self.list_key.get()?;
        let sites: Vec<_> = others.iter().filter_map(|(site, row)| listed(*site, row)).collect();
        let known = self.list.lock();
        // Two sites know each other by the ticket.
        if known.sites == sites || (known.version == 0 && sites.len() < 2) {
            return None;
        }
        let list = SiteList { volume: self.volume.0, version: known.version + 1, sites };
        let text = list.sign(&key.signing_key()).into_bytes();
        Some(NewList { list, text })
    }

    /// Takes a list over that another site has sent.
    ///
    /// # Errors
    /// `Invalid` if the server of the first site has not signed it, it is of another volume, or it
    /// gives a site another key; `Stale` if a newer one is known; those of the table.
    pub(crate) fn take_list(self: &Arc<Self>, from: SitePeer, text: &[u8]) -> Result<(), Error> {
        let refused = |why: &str| {
            tracing::error!(site = from.site, why, "a list of the sites is refused");
            Error::from(Code::Invalid)
        };
        let mut others = self.others.lock();
        let Some(SiteState::Joined { key: founder, .. }) =
            others.get(&InodeId::ROOT.site()).map(|row| row.state)
        else {
            return Err(refused("this is the first site, which makes the list"));
        };
        let parsed = SignedSiteList::parse(text).map_err(|error| refused(&error.to_string()))?;
        let list =
            parsed.verify(&Principal(founder)).map_err(|error| refused(&error.to_string()))?;
        if list.volume != self.volume.0 {
            return Err(refused("it is of another volume"));
        }
        let known = self.list.lock();
        if list.version == known.version && *known.text == *text {
            return Ok(());
        }
        if list.version <= known.version {
            let versions = (list.version, known.version);
            tracing::error!(
                ?versions,
                "the first site has sent an older list of the sites than the known one: its folder \
                 may be a copy that was put back"
            );
            return Err(Code::Stale.into());
        }
        drop(known);
        let rows = self.changed_by(&others, &list).map_err(|why| refused(&why))?;
        let invalidations = self.durability.invalidations();
        self.shard.put_sites(&rows, Some(text))?;
        let changed: Vec<u16> = rows.iter().map(|(site, _)| *site).collect();
        others.extend(rows);
        // Before another list is compared with it.
        self.list.lock().adopt(NewList { list, text: text.to_vec() }, invalidations);
        drop(others);
        tracing::info!(?changed, "the list of the sites has changed");
        self.tokens.wake();
        for site in changed {
            if self.is_gone(site) {
                self.origins.end_site(&self.shard, site);
            }
            self.connect_again(site);
        }
        Ok(())
    }

    /// Returns the rows that a list changes, or the reason why it cannot be the next one.
    fn changed_by(
        &self,
        others: &BTreeMap<u16, SiteRow>,
        list: &SiteList,
    ) -> Result<Vec<(u16, SiteRow)>, String> {
        let mut rows = Vec::new();
        for ListedSite { site, key, name, address } in &list.sites {
            let known = others.get(site);
            match known.map(|row| row.state) {
                Some(SiteState::Joined { key: of, .. } | SiteState::Left { key: of })
                    if of != *key =>
                {
                    return Err(format!("it gives site {site} another key"));
                }
                Some(SiteState::Left { .. }) => {
                    return Err(format!("it names site {site}, which has left"));
                }
                Some(SiteState::Joined { .. } | SiteState::Invited { .. }) | None => {}
            }
            let state = SiteState::Joined { key: *key, invitation: [0; 32] };
            let row = SiteRow { state, name: name.clone(), address: address.clone() };
            if *site != self.own && known != Some(&row) {
                rows.push((*site, row));
            }
        }
        for (site, row) in others {
            let is_listed = list.sites.iter().any(|listed| listed.site == *site);
            if let (SiteState::Joined { key, .. }, false) = (row.state, is_listed)
                && *site != InodeId::ROOT.site()
            {
                let state = SiteState::Left { key };
                rows.push((*site, SiteRow { state, address: String::new(), ..row.clone() }));
            }
        }
        Ok(rows)
    }

    /// Forgets what a site has of the list: it is sent again.
    pub(super) fn send_list_again(self: &Arc<Self>, site: u16) {
        if self.list_key.get().is_some() {
            self.list.lock().sent.remove(&site);
            self.wake_sender();
        }
    }

    /// Has the sender send what the other sites do not have. Starts its thread for the first time.
    fn wake_sender(self: &Arc<Self>) {
        let sender = self.wakes_sender.get_or_init(|| {
            let (sender, woken) = mpsc::channel();
            let own = Arc::downgrade(self);
            let sending = move || keep_sending(&own, &woken);
            let started: io::Result<_> =
                thread::Builder::new().name("site-list".to_owned()).spawn(sending);
            if let Err(error) = started {
                tracing::error!(%error, "the other sites do not get the list of the sites");
            }
            sender
        });
        let _is_over: Result<(), _> = sender.send(());
    }

    /// Sends the list to each site that does not have it. Returns whether one does not have it yet.
    fn send_list(self: &Arc<Self>) -> bool {
        let joined = self.joined();
        let known = self.list.lock();
        let version = known.version;
        let text = known.text.to_vec();
        let invalidations = known.invalidations;
        let missing: Vec<_> = joined.into_iter().filter(|site| known.is_missing(*site)).collect();
        let is_under_way = known.sent.values().any(|sent| matches!(sent, Sent::UnderWay(_)));
        drop(known);
        if missing.is_empty() || version == 0 {
            return is_under_way;
        }
        // A version that is lost with the power would be given twice.
        if self.wait_until_safe(invalidations).is_err() {
            if self.durability.invalidations() != invalidations {
                self.write_again();
            }
            return true;
        }
        for site in missing {
            let Ok(upstream) = self.upstream(site) else { continue };
            self.list.lock().sent.insert(site, Sent::UnderWay(version));
            let own = Arc::downgrade(self);
            let done: Done = Box::new(move |result| {
                if let Some(sites) = own.upgrade() {
                    sites.list_answered(site, version, result.map(drop));
                }
            });
            let request = Request::SiteList { text: text.clone() };
            upstream.ask(&Context::direct(0, 0), request, Bulk::None, done);
        }
        true
    }

    /// Records the answer of a site to a list.
    fn list_answered(self: &Arc<Self>, site: u16, version: u64, result: Result<(), Error>) {
        match result {
            Ok(()) => {}
            Err(error) if matches!(error.code, Code::Stale | Code::Invalid) => {
                tracing::error!(
                    site,
                    version,
                    %error,
                    "a site refuses the list of the sites: it has a newer one, or another volume"
                );
            }
            Err(error) => {
                tracing::debug!(site, %error, "a site does not have the list of the sites yet");
                // Sent again after the pause.
                self.list.lock().sent.remove(&site);
                return;
            }
        }
        self.list.lock().sent.insert(site, Sent::Answered(version));
        // There may be a newer one by now.
        self.wake_sender();
    }
}

/// Returns the line of a site in the list; `None` if it has not joined.
fn listed(site: u16, row: &SiteRow) -> Option<ListedSite> {
    let SiteState::Joined { key, .. } = row.state else { return None };
    // An address of an earlier version may be another text.
    let address = Some(&row.address).filter(|address| is_site_address(address));
    let address = address.cloned().unwrap_or_default();
    Some(ListedSite { site, key, name: row.name.clone(), address })
}

/// Sends the list until the server ends.
fn keep_sending(sites: &Weak<Sites>, woken: &Receiver<()>) {
    let mut is_behind = false;
    loop {
        let waited = match is_behind {
            true => woken.recv_timeout(PAUSE),
            false => woken.recv().map_err(RecvTimeoutError::from),
        };
        if waited == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        while woken.try_recv().is_ok() {}
        let Some(sites) = sites.upgrade() else { return };
        is_behind = sites.send_list();
    }
}

/// The sender's end of the channel to the thread that sends the list.
pub(super) type WakesSender = Sender<()>;
