//! The end of leases: what is kept goes.

use std::sync::Arc;
use std::time::Duration;

use pelago_wire::{InodeId, LeaseHolder, LeaseTimes, Name, Then, Touched};

use crate::holder::Holder;

impl LeaseHolder for Holder {
    fn recalled(&self, touched: Arc<[Touched]>, then: Then) {
        let Some(this) = self.this.upgrade() else { return then() };
        let opens = {
            let mut state = self.state.lock();
            state.changes.begin(&touched);
            state.kept.drop_touched(&touched);
            let nodes = touched.iter().filter_map(|touched| match touched {
                Touched::Node(ino) => Some(*ino),
                _ => None,
            });
            nodes.flat_map(|ino| state.opens.unreported(Some(ino))).collect::<Vec<_>>()
        };
        let holder = Arc::clone(&this);
        let reported = move || holder.tell_cache(touched, then);
        this.report_all(&opens, Box::new(reported));
    }

    fn lost(&self) {
        let Some(this) = self.this.upgrade() else { return };
        let (nodes, opens) = {
            let mut state = self.state.lock();
            state.changes.lose();
            (state.kept.drop_all(), state.opens.unreported(None))
        };
        if let Some(cache) = self.cache.get() {
            cache.drop_all(&nodes);
        }
        this.report_all(&opens, Box::new(|| {}));
    }
}

impl Holder {
    /// Has the cache below drop what is recalled, and ends the recall.
    fn tell_cache(self: Arc<Self>, touched: Arc<[Touched]>, then: Then) {
        let mut all = touched.to_vec();
        all.extend(touched.iter().filter_map(|touched| match touched {
            Touched::Node(ino) => Some(Touched::Bytes(*ino)),
            _ => None,
        }));
        let all: Arc<[Touched]> = all.into();
        let cache = self.cache.get().cloned();
        let dropped = Arc::clone(&all);
        let of_cache = cache.clone();
        let ended = move || {
            if let Some(cache) = of_cache {
                // Pages go later; readers of the file wait for that.
                cache.end(&dropped);
            }
            self.state.lock().changes.end(&touched);
            then();
        };
        match cache {
            Some(cache) => cache.begin(&all, Box::new(ended)),
            None => ended(),
        }
    }
}

impl LeaseTimes for Holder {
    fn attr_left(&self, ino: InodeId) -> Duration {
        let state = self.state.lock();
        let is_kept = state.kept.attr(ino).is_some() && !state.changes.is_node_changing(ino);
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
