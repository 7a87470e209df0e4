//! The end of leases: what is kept goes.

use std::sync::Arc;
use std::time::Duration;

use pelago_wire::{Attr, InodeId, LeaseHolder, LeaseTimes, Name, Then, Touched};

use crate::clock;
use crate::holder::Holder;
use crate::state::State;

impl LeaseHolder for Holder {
    fn recalled(&self, touched: Arc<[Touched]>, then: Then) {
        let Some(this) = self.this.upgrade() else { return then() };
        let (led_to, written, dirty, opens) = {
            let mut state = self.state.lock();
            state.changes.begin(&touched);
            let led_to = state.led_to(&touched);
            state.kept.drop_touched(&touched);
            let nodes = touched.iter().filter_map(|touched| match touched {
                Touched::Node(ino) => Some(*ino),
                _ => None,
            });
            let nodes: Vec<InodeId> = nodes.collect();
            let written = nodes.iter().filter(|ino| state.opens.is_written(**ino));
            let written: Vec<InodeId> = written.copied().collect();
            nodes.iter().for_each(|ino| state.dirty.end_lease(*ino));
            let opens = nodes.iter().flat_map(|ino| state.opens.unreported(Some(*ino)));
            let opens: Vec<_> = opens.collect();
            (led_to, written, nodes, opens)
        };
        let holder = Arc::clone(&this);
        let flushed: Then = Box::new(move || {
            let of_report = Arc::clone(&holder);
            let reported = move || of_report.tell_cache(touched, led_to, then);
            holder.report_all(&opens, Box::new(reported));
        });
        let of_pages = Arc::clone(&this);
        this.drop_pages(&written, Box::new(move || of_pages.flush_all(&dirty, flushed)));
    }

    fn lost(&self) {
        let Some(this) = self.this.upgrade() else { return };
        let (nodes, opens) = {
            let mut state = self.state.lock();
            state.changes.lose();
            // The server knows whether others have changed the files since.
            state.dirty.end_all();
            (state.kept.drop_all(), state.opens.unreported(None))
        };
        self.send_dirty(clock::monotonic());
        if let Some(cache) = self.cache.get() {
            cache.drop_all(&nodes);
        }
        this.report_all(&opens, Box::new(|| {}));
    }

    fn flush(&self, then: Then) {
        let Some(this) = self.this.upgrade() else { return then() };
        let dirty = self.state.lock().dirty.all();
        this.flush_all(&dirty, then);
    }
}

impl Holder {
    /// Has the cache below drop the pages of files that this mount has open for writing, and calls
    /// `then`. A program may have written pages through a mapping, of which nothing is known here:
    /// they are sent now, before another session writes elsewhere in them.
    fn drop_pages(&self, files: &[InodeId], then: Then) {
        let Some(cache) = self.cache.get().filter(|_| !files.is_empty()) else { return then() };
        files.iter().for_each(|ino| cache.bytes_changed(*ino));
        let bytes: Vec<Touched> = files.iter().copied().map(Touched::Bytes).collect();
        cache.when_dropped(&bytes, then);
    }

    /// Has the cache below drop what is recalled, and what its names lead to, and ends the recall.
    fn tell_cache(self: Arc<Self>, touched: Arc<[Touched]>, led_to: Vec<Touched>, then: Then) {
        let mut all = touched.to_vec();
        all.extend(led_to);
        all.extend(touched.iter().filter_map(|touched| match touched {
            Touched::Node(ino) => Some(Touched::Bytes(*ino)),
            _ => None,
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
            // A kernel discards attributes that it has asked for before its pages are dropped. A
            // read that begins after the change was answered would end at the old size.
            cache.when_dropped(&dropped, answer);
        };
        match cache {
            Some(cache) => cache.begin(&all, Box::new(ended)),
            None => ended(),
        }
    }
}

impl State {
    /// Returns the nodes to which names lead that are recalled, as far as that is kept and they are
    /// not recalled themselves: their leases have ended before. A kernel that holds such a file is
    /// told that its name may go.
    fn led_to(&self, touched: &[Touched]) -> Vec<Touched> {
        let nodes = touched.iter().filter_map(|touched| match touched {
            Touched::Name { dir, name } => self.kept.name(*dir, name)?,
            Touched::Node(_) | Touched::Bytes(_) => None,
        });
        let nodes = nodes.map(|handle| Touched::Node(handle.ino));
        nodes.filter(|node| !touched.contains(node)).collect()
    }
}

impl LeaseTimes for Holder {
    fn attr_left(&self, ino: InodeId) -> Duration {
        let state = self.state.lock();
        let is_kept = state.kept.attr(ino).is_some() && !state.changes.is_node_changing(ino);
        drop(state);
        if is_kept { self.service.lease_left() } else { Duration::ZERO }
    }

    fn attr_holds(&self, attr: &Attr) -> Duration {
        let state = self.state.lock();
        let is_kept =
            state.kept.attr(attr.ino) == Some(*attr) && !state.changes.is_node_changing(attr.ino);
        drop(state);
        if is_kept { self.service.lease_left() } else { Duration::ZERO }
    }

    fn name_left(&self, dir: InodeId, name: &Name) -> Duration {
        let state = self.state.lock();
        let is_kept =
            state.kept.name(dir, name).is_some() && !state.changes.is_name_changing(dir, name);
        drop(state);
        if is_kept { self.service.lease_left() } else { Duration::ZERO }
    }
}
