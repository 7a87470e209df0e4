//! The thread of the first site that signs the charter, and looks whether there is something new to
//! tell. After a start it first asks the others what was taken back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use pelago_wire::{Error, InodeId, limits};

use super::asking::Asking;
use super::{Dispatcher, Unreached, wait};

/// Signs the charter anew when the roots or the named keys have changed, and tells all sites, each
/// until it has asked.
pub(super) fn keep_signing(dispatcher: &Weak<Dispatcher>, woken: &Receiver<()>) {
    // The version that each site was told of, or is being told of.
    let told: Arc<Mutex<HashMap<u16, u64>>> = Arc::default();
    let mut pause = Duration::ZERO;
    let mut has_taken_over = false;
    loop {
        if wait(woken, Some(pause)) {
            return;
        }
        pause = limits::CHARTER_PAUSE;
        let Some(now) = dispatcher.upgrade() else { return };
        let gate = &now.parts.sites.gate;
        if !gate.has_asked_others() {
            let others = now.parts.sites.joined();
            drop(now);
            let asked = ask_others(dispatcher, &others, &mut has_taken_over);
            let Some(now) = dispatcher.upgrade() else { return };
            match asked {
                Ok(()) => now.parts.sites.gate.record_others(),
                Err(error) => {
                    tracing::error!(%error, "no guest is served: what was taken back is not safe");
                }
            }
        } else {
            drop(now);
        }
        let Some(now) = dispatcher.upgrade() else { return };
        now.parts.sites.gate.take_parked().into_iter().for_each(|parked| parked());
        sign(&now, &told);
    }
}

/// Signs the charter anew if it has changed, and tells the sites that do not know it.
fn sign(dispatcher: &Dispatcher, told: &Arc<Mutex<HashMap<u16, u64>>>) {
    let sites = &dispatcher.parts.sites;
    let Some(key) = sites.signing_key().filter(|_| !sites.is_alone()) else { return };
    let policy = &dispatcher.parts.policy;
    if let Err(error) = policy.renew_charter(key) {
        tracing::warn!(%error, "the charter of the volume is not signed");
    }
    let version = policy.charter_version();
    let mut untold = sites.joined();
    untold.retain(|site| told.lock().get(site).copied().unwrap_or(0) != version);
    told.lock().extend(untold.iter().map(|site| (*site, version)));
    let of_failed = Arc::clone(told);
    let done = move |unreached: Unreached<u16>| {
        let unreached = unreached.all();
        of_failed.lock().retain(|site, _| !unreached.contains(site));
    };
    dispatcher.tell_sites(untold, Box::new(done));
}

/// Asks the other sites that can be reached what was taken back, and puts that in force: the folder
/// of this one may be an older copy. What is not reached passes it on when it asks.
///
/// # Errors
/// If it is not safe, or guests still use what has ended by it. `has_taken_over` stays true then.
fn ask_others(
    dispatcher: &Weak<Dispatcher>,
    others: &[u16],
    has_taken_over: &mut bool,
) -> Result<(), Error> {
    let has_new = &AtomicBool::new(false);
    thread::scope(|scope| {
        for site in others.iter().copied() {
            let ask = move || match (Asking { dispatcher, site }).take_revocations() {
                Ok(true) => has_new.store(true, Ordering::Release),
                Ok(false) => {}
                Err(error) => {
                    // What it has told before its error is in force.
                    has_new.store(true, Ordering::Release);
                    tracing::warn!(
                        site,
                        %error,
                        "an office has not said what it knows to be taken back: it will pass it on"
                    );
                }
            };
            let thread = thread::Builder::new().name("revocations".to_owned());
            if let Err(error) = thread.spawn_scoped(scope, ask) {
                tracing::warn!(site, %error, "an office is not asked what was taken back");
            }
        }
    });
    *has_taken_over |= has_new.load(Ordering::Acquire);
    if *has_taken_over {
        Asking { dispatcher, site: InodeId::ROOT.site() }.end_guests(false)?;
        *has_taken_over = false;
    }
    Ok(())
}
