//! The end of leases: by a recall of some of them, or by the loss of all.
//!
//! A recall is answered only when nothing that it names is used any more: programs' mapped pages
//! are written back, dirty bytes are sent, opens are reported, and the cache below has dropped what
//! it has. The change of the other session waits for that answer.

use std::sync::Arc;
use std::time::Duration;

use pelago_wire::{Attr, InodeId, LeaseHolder, LeaseTimes, Name, Then, Touched};

use crate::clock;
use crate::holder::Holder;
use crate::state::State;

impl LeaseHolder for Holder {
    fn recalled(&self, touched: Arc<[Touched]>, then: Then) {
        let Some(this) = self.this.upgrade() else { return then() };
        let (targets, written, dirty, opens) = {
            let mut state = self.state.lock();
            state.changes.begin(&touched);
            let targets = state.targets(&touched);
            state.stale.drop_touched(&touched);
            state.cached.drop_touched(&touched);
            let nodes = touched.iter().filter_map(|touched| match touched {
                Touched::Node(ino) => Some(*ino),
                Touched::Name { .. } | Touched::Bytes(_) => None,
            });
            let nodes: Vec<InodeId> = nodes.collect();
            let written = nodes.iter().filter(|ino| state.opens.is_written(**ino));
            let written: Vec<InodeId> = written.copied().collect();
            nodes.iter().for_each(|ino| state.end_bytes(*ino));
            let opens = nodes.iter().flat_map(|ino| state.opens.unreported(Some(*ino)));
            let opens: Vec<_> = opens.collect();
            (targets, written, nodes, opens)
        };
        let holder = Arc::clone(&this);
        let flushed: Then = Box::new(move || {
            let of_report = Arc::clone(&holder);
            let reported = move || of_report.drop_below(touched, targets, then);
            holder.report_all(&opens, Box::new(reported));
        });
        let of_pages = Arc::clone(&this);
        this.drop_pages(&written, Box::new(move || of_pages.flush_all(&dirty, flushed)));
    }

    fn lost(&self) {
        let Some(this) = self.this.upgrade() else { return };
        // A server that is silent gets no report, and each would wait for its deadline. The open is
        // reported when a program uses it.
        let is_silent = self.is_silent();
        let (nodes, opens) = {
            let mut state = self.state.lock();
            state.changes.lose();
            // The server knows whether other sessions have changed the files since, and takes or
            // refuses the bytes.
            state.end_all_bytes();
            let reports = !(is_silent && state.is_only_cache);
            let opens = if reports { state.opens.unreported(None) } else { Vec::new() };
            if state.is_only_cache {
                state.keep_stale();
            }
            (state.cached.drop_all(), opens)
        };
        self.send_dirty(clock::monotonic());
        if let Some(cache) = self.cache.get() {
            cache.drop_all(&nodes);
        }
        this.report_all(&opens, Box::new(|| {}));
    }

    fn refused(&self) {
        self.lost();
        self.state.lock().end_stale();
    }

    fn everything_recalled(&self, then: Then) {
        let Some(this) = self.this.upgrade() else { return then() };
        let written = self.state.lock().opens.written();
        self.lost();
        self.state.lock().end_stale();
        let holder = Arc::clone(&this);
        // Programs may have changed pages through mappings: they are sent before the answer.
        this.drop_pages(
            &written,
            Box::new(move || {
                let state = holder.state.lock();
                let dirty = state.dirty.all();
                let opens = state.opens.unreported(None);
                drop(state);
                let of_report = Arc::clone(&holder);
                let flushed = move || of_report.report_all(&opens, then);
                holder.flush_all(&dirty, Box::new(flushed));
            }),
        );
    }

    fn flush(&self, then: Then) {
        let Some(this) = self.this.upgrade() else { return then() };
        let dirty = self.state.lock().dirty.all();
        let cache = this.cache.get().cloned();
        let flushed: Then = match cache {
            Some(cache) => Box::new(move || cache.flush(then)),
            None => then,
        };
        this.flush_all(&dirty, flushed);
    }
}

impl Holder {
    /// Has the cache below drop the pages of files that this mount has open for writing, and calls
    /// `then`. A program may have changed pages through a mapping, without a request: they are sent
    /// now, before another session writes to other parts of them.
    fn drop_pages(&self, files: &[InodeId], then: Then) {
        let Some(cache) = self.cache.get().filter(|_| !files.is_empty()) else { return then() };
        files.iter().for_each(|ino| cache.bytes_changed(*ino));
        let bytes: Vec<Touched> = files.iter().copied().map(Touched::Bytes).collect();
        cache.when_dropped(&bytes, then);
    }

    /// Has the cache below drop what is recalled, and the targets of recalled names, and ends the
    /// recall.
    fn drop_below(self: Arc<Self>, touched: Arc<[Touched]>, targets: Vec<Touched>, then: Then) {
        let mut all = touched.to_vec();
        all.extend(targets);
        all.extend(touched.iter().filter_map(|touched| match touched {
            Touched::Node(ino) => Some(Touched::Bytes(*ino)),
            Touched::Name { .. } | Touched::Bytes(_) => None,
        }));
        let all: Arc<[Touched]> = all.into();
        let cache = self.cache.get().cloned();
        let dropped = Arc::clone(&all);
        let of_cache = cache.clone();
        let ended = move || {
            let answer: Then = Box::new(move || {
                self.state.lock().changes.end(&touched);
                then();
            });
            let Some(cache) = of_cache else { return answer() };
            cache.end(&dropped);
            // A kernel discards attributes that it has requested before its pages are dropped. A
            // read that began after the reply to the change would end at the old size.
            cache.when_dropped(&dropped, answer);
        };
        match cache {
            Some(cache) => cache.begin(&all, Box::new(ended)),
            None => ended(),
        }
    }
}

impl State {
    /// Returns the targets of recalled names, as far as they are cached and not recalled
    /// themselves: their leases have ended before. A kernel that has such a file in its cache is
    /// told that the name may go.
    fn targets(&self, touched: &[Touched]) -> Vec<Touched> {
        let nodes = touched.iter().filter_map(|touched| match touched {
            Touched::Name { dir, name } => self.cached.name(*dir, name)?,
            Touched::Node(_) | Touched::Bytes(_) => None,
        });
        let nodes = nodes.map(|handle| Touched::Node(handle.ino));
        nodes.filter(|node| !touched.contains(node)).collect()
    }
}

impl Holder {
    /// Returns for how long a name leads to this node; zero if that is not leased.
    #[must_use]
    pub fn name_holds(&self, dir: InodeId, name: &Name, target: InodeId) -> Duration {
        let state = self.state.lock();
        let found = state.cached.name(dir, name).flatten();
        let holds = found.is_some_and(|handle| handle.ino == target)
            && !state.changes.is_name_changing(dir, name);
        drop(state);
        if holds { self.service.lease_left() } else { Duration::ZERO }
    }
}

impl LeaseTimes for Holder {
    fn attr_left(&self, ino: InodeId) -> Duration {
        let state = self.state.lock();
        let is_cached = state.cached.attr(ino).is_some() && !state.changes.is_node_changing(ino);
        drop(state);
        if is_cached { self.service.lease_left() } else { Duration::ZERO }
    }

    fn attr_holds(&self, attr: &Attr) -> Duration {
        let state = self.state.lock();
        let is_cached =
            state.cached.attr(attr.ino) == Some(*attr) && !state.changes.is_node_changing(attr.ino);
        drop(state);
        if is_cached { self.service.lease_left() } else { Duration::ZERO }
    }

    fn name_left(&self, dir: InodeId, name: &Name) -> Duration {
        let state = self.state.lock();
        let is_cached =
            state.cached.name(dir, name).is_some() && !state.changes.is_name_changing(dir, name);
        drop(state);
        if is_cached { self.service.lease_left() } else { Duration::ZERO }
    }
}
