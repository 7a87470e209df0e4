//! What programs have written, when, and what they may read.

use std::collections::BTreeSet;

use pelago_wire::{Attr, InodeId};

use crate::world::Value;

/// The writes of all programs. Each has a value of its own.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) step: u64,
    last: Value,
    writes: Vec<Write>,
    /// Reads, and sizes, that had to show a write; writes that the server refused.
    pub(crate) reads: u32,
    pub(crate) sizes: u32,
    pub(crate) refused: u32,
}

struct Write {
    client: usize,
    ino: InodeId,
    part: u64,
    value: Value,
    begun: u64,
    /// `None` while it is not answered, or if it may be lost.
    ended: Option<u64>,
    /// The leases of its client were over before it had arrived at the server.
    may_be_lost: bool,
}

impl History {
    /// A program writes. Returns what.
    pub(crate) fn begin(&mut self, (client, ino): (usize, InodeId), part: u64) -> Value {
        self.last += 1;
        let value = self.last;
        let begun = self.step;
        self.writes.push(Write {
            client,
            ino,
            part,
            value,
            begun,
            ended: None,
            may_be_lost: false,
        });
        value
    }

    /// It is answered.
    pub(crate) fn end(&mut self, value: Value) {
        let step = self.step;
        if let Some(write) = self.writes.iter_mut().find(|write| write.value == value) {
            write.ended = Some(step);
        }
    }

    /// The leases of a client are over: what has not arrived at the server may be lost.
    pub(crate) fn doubt(&mut self, client: usize, arrived: &BTreeSet<Value>) {
        let is_doubtful = |it: &&mut Write| it.client == client && !arrived.contains(&it.value);
        for write in self.writes.iter_mut().filter(is_doubtful) {
            write.ended = None;
            write.may_be_lost = true;
        }
    }

    /// The server has refused a value: it is lost, with those that it has overwritten before they
    /// were sent.
    pub(crate) fn refuse(
        &mut self,
        (client, ino): (usize, InodeId),
        value: Value,
        arrived: &BTreeSet<Value>,
    ) {
        self.refused += 1;
        let Some(refused) = self.writes.iter().find(|it| it.value == value) else { return };
        assert!(refused.may_be_lost, "{value} was refused, and {client} had a lease");
        let part = refused.part;
        self.writes.retain(|it| {
            (it.client, it.ino, it.part) != (client, ino, part)
                || it.value > value
                || arrived.contains(&it.value)
        });
    }

    /// Asserts that a read which has begun then may return a value: no write was over before that
    /// came after the value.
    pub(crate) fn check_read(&mut self, (ino, part): (InodeId, u64), value: Value, begun: u64) {
        let of_part = || self.writes.iter().filter(|it| (it.ino, it.part) == (ino, part));
        let ended = of_part().find(|it| it.value == value).map(|it| it.ended);
        let mut had_to_show = false;
        for later in of_part().filter(|it| it.value != value) {
            let is_over = later.ended.is_some_and(|ended| ended <= begun);
            had_to_show |= is_over;
            let is_behind = match ended {
                // It was never written, or is lost.
                None => true,
                Some(ended) => ended.is_some_and(|ended| ended < later.begun),
            };
            assert!(!(is_over && is_behind), "{value} was read after {} was written", later.value);
        }
        self.reads += u32::from(had_to_show);
    }

    /// Asserts that the attributes which a request has shown that had begun then have the size of
    /// the writes before.
    pub(crate) fn check_size(&mut self, attr: &Attr, begun: u64) {
        let before = self.writes.iter().filter(|it| it.ino == attr.ino);
        let ends = before.filter(|it| it.ended.is_some_and(|ended| ended <= begun));
        if let Some(least) = ends.map(|it| 8 * (it.part + 1)).max() {
            assert!(attr.size >= least, "{} of {least} bytes are shown: {attr:?}", attr.size);
            self.sizes += 1;
        }
    }
}
