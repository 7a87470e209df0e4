//! The end of changes of two sites that were cut short: by the line, or by the end of a run.
//!
//! A directory that was made here is to get its name at the other site, and one that was closed is
//! to lose it. The other site is asked until it answers. Nothing is asked before it is known
//! whether it has carried out what it was asked before.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use pelago_store::rows::{IntentChange, IntentRow};
use pelago_wire::{Bulk, Code, Context, Done, Handle, InodeId, Reply, Request};

use super::super::Dispatcher;
use super::step::is_refusal;
use crate::pool::Invocation;
use crate::unfinished::WhenFinished;
use crate::upstream::Upstream;

/// The pause before the other site is asked again.
const PAUSE: Duration = Duration::from_secs(1);

impl Dispatcher {
    /// Has the change of a directory finished later, by its record and this site.
    pub(super) fn finish_later(self: &Arc<Self>, dir: InodeId, site: u16) {
        self.finish_all(vec![(dir, site)]);
    }

    /// Has the changes of these directories finished, each with the other site, by a thread that
    /// ends with the last one.
    pub(in crate::service) fn finish_all(self: &Arc<Self>, changes: Vec<(InodeId, u16)>) {
        if !self.parts.sites.unfinished.lock().add(changes) {
            return;
        }
        let dispatcher = Arc::downgrade(self);
        let run = thread::Builder::new().name("two-sites".to_owned());
        if let Err(error) = run.spawn(move || finish(&dispatcher)) {
            let waiting = self.parts.sites.unfinished.lock().end_thread();
            waiting.into_iter().for_each(|then| then(false));
            tracing::error!(%error, "changes of two sites are not finished before the next start");
        }
    }

    /// Calls `then` with `true` once the change of a directory has ended, or with `false` after the
    /// time that a request for another site may take.
    pub(super) fn when_finished(self: &Arc<Self>, dir: InodeId, then: WhenFinished) {
        let row = match self.parts.shard.intent(dir) {
            Ok(Some(row)) => row,
            Ok(None) => return then(true),
            Err(_) => return then(false),
        };
        let until = Instant::now() + self.parts.sites.timeout();
        let site = row.parent.site();
        self.parts.sites.unfinished.lock().wait(dir, site, until, then);
        self.finish_later(dir, site);
    }

    /// Asks the other site to do its part, once earlier requests for it are over.
    fn finish(self: &Arc<Self>, dir: InodeId) {
        let unfinished = &self.parts.sites.unfinished;
        let row = match self.parts.shard.intent(dir) {
            Ok(Some(row)) => row,
            Ok(None) => return unfinished.lock().finished(dir),
            Err(_) => return unfinished.lock().answered(dir),
        };
        if self.parts.sites.is_gone(row.parent.site()) {
            // A site that has left has no directories: the name is nowhere.
            return self.end_nameless(dir);
        }
        let Ok(upstream) = self.parts.sites.upstream(row.parent.site()) else {
            return unfinished.lock().answered(dir);
        };
        // The connection keeps the callback: it must keep neither itself nor this server alive.
        let this = Arc::downgrade(self);
        let there = Arc::downgrade(&upstream);
        upstream.when_settled(Box::new(move || {
            let (Some(this), Some(there)) = (this.upgrade(), there.upgrade()) else { return };
            match row.change {
                IntentChange::Make => this.finish_making(&there, dir, row),
                IntentChange::Remove => this.finish_removal(&there, dir, row),
            }
        }));
    }

    fn finish_making(self: &Arc<Self>, upstream: &Arc<Upstream>, dir: InodeId, row: IntentRow) {
        let this = Arc::clone(self);
        let IntentRow { parent, name, .. } = row;
        let ask = Request::AddDir { dir: Handle::own(parent), name, made: dir };
        let named: Done = Box::new(move |result| match result {
            Ok(_) => this.end_making(dir, || ()),
            Err(error) if is_final(error.code) => this.end_nameless(dir),
            Err(_) => this.parts.sites.unfinished.lock().answered(dir),
        });
        upstream.ask_for_none(ask, named);
    }

    fn finish_removal(self: &Arc<Self>, upstream: &Arc<Upstream>, dir: InodeId, row: IntentRow) {
        let this = Arc::clone(self);
        let there = Arc::clone(upstream);
        let IntentRow { parent, name, .. } = row;
        let ask = Request::DropDir { dir: Handle::own(parent), name, removed: dir };
        let dropped: Done = Box::new(move |result| match result {
            Ok(_) => this.end_nameless(dir),
            // It was removed before, or it has another name by now.
            Err(error) if is_final(error.code) => this.look_for_name(&there, dir),
            Err(_) => this.parts.sites.unfinished.lock().answered(dir),
        });
        upstream.ask_for_none(ask, dropped);
    }

    /// Removes a closed directory if it has no name at the other site, or opens it again.
    fn look_for_name(self: &Arc<Self>, upstream: &Arc<Upstream>, dir: InodeId) {
        let this = Arc::clone(self);
        let ask = Request::Step { dir: Handle::own(dir), to: None };
        let stepped: Done = Box::new(move |result| match result {
            Ok(Reply::Stepped { .. }) => this.end_closed(dir),
            Err(error) if error.code == Code::Elsewhere => this.end_nameless(dir),
            Ok(_) | Err(_) => this.parts.sites.unfinished.lock().answered(dir),
        });
        upstream.ask(&Context::direct(0, 0), ask, Bulk::None, stepped);
    }

    /// Records that a directory which was made here has its name, and calls `then`.
    pub(super) fn end_making(self: &Arc<Self>, dir: InodeId, then: impl FnOnce() + Send + 'static) {
        let this = Arc::clone(self);
        self.in_pool(move |invocation| {
            // Before the record goes: from then on there can be another one.
            this.parts.sites.unfinished.lock().finished(dir);
            if invocation == Invocation::Run
                && let Err(error) = this.parts.shard.forget_intent(dir)
            {
                tracing::warn!(%error, ino = %dir, "a directory is named again at the next start");
            }
            then();
        });
    }

    fn end_nameless(self: &Arc<Self>, dir: InodeId) {
        let this = Arc::clone(self);
        self.remove_nameless(
            dir,
            Ok(()),
            Box::new(move |_removed| this.parts.sites.unfinished.lock().finished(dir)),
        );
    }

    fn end_closed(self: &Arc<Self>, dir: InodeId) {
        let this = Arc::clone(self);
        self.in_pool(move |invocation| {
            if invocation == Invocation::Cancelled {
                return;
            }
            let opened = Arc::clone(&this);
            this.open_when_safe(dir, move |is_open| {
                let mut unfinished = opened.parts.sites.unfinished.lock();
                match is_open {
                    true => unfinished.finished(dir),
                    false => unfinished.answered(dir),
                }
            });
        });
    }
}

/// Asks for all changes again and again, until there is none.
fn finish(dispatcher: &Weak<Dispatcher>) {
    loop {
        let Some(dispatcher) = dispatcher.upgrade() else { return };
        let Some(due) = dispatcher.parts.sites.unfinished.lock().take_due() else { return };
        for dir in due {
            dispatcher.finish(dir);
        }
        let over = dispatcher.parts.sites.unfinished.lock().take_waiters(Instant::now());
        over.into_iter().for_each(|(then, is_finished)| then(is_finished));
        drop(dispatcher);
        thread::sleep(PAUSE);
    }
}

/// Returns whether the other site will never do what it was asked.
const fn is_final(code: Code) -> bool {
    let may_pass = matches!(code, Code::HostDown | Code::NoSpace | Code::ReadOnly);
    is_refusal(code) && !may_pass
}
