//! The history of the programs' writes, and the check of each read against it.

use std::collections::BTreeSet;

use pelago_wire::{Attr, InodeId};

use crate::world::Value;

/// The writes of all programs. Each has a value of its own.
#[derive(Default)]
pub(crate) struct History {
    pub(crate) step: u64,
    last: Value,
    writes: Vec<Write>,
    /// Reads that had to show a write.
    pub(crate) reads: u32,
    /// Sizes that had to show a write.
    pub(crate) sizes: u32,
    /// Writes that the server has refused.
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
    /// Records that a program writes. Returns the value.
    pub(crate) fn begin(&mut self, client: usize, ino: InodeId, part: u64) -> Value {
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

    /// Records that the write of a value is answered.
    pub(crate) fn end(&mut self, value: Value) {
        let step = self.step;
        if let Some(write) = self.writes.iter_mut().find(|write| write.value == value) {
            write.ended = Some(step);
        }
    }

    /// Records that the leases of a client have ended: values that have not arrived at the server
    /// may be lost.
    pub(crate) fn doubt(&mut self, client: usize, arrived: &BTreeSet<Value>) {
        let is_doubtful = |it: &&mut Write| it.client == client && !arrived.contains(&it.value);
        for write in self.writes.iter_mut().filter(is_doubtful) {
            write.ended = None;
            write.may_be_lost = true;
        }
    }

    /// Records that the server has refused a value: it is lost, with the values that it has
    /// overwritten before they were sent.
    pub(crate) fn refuse(
        &mut self,
        client: usize,
        ino: InodeId,
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

    /// Asserts that a read which began at the step `begun` may return a value: no write that
    /// followed the value was answered before.
    pub(crate) fn check_read(&mut self, ino: InodeId, part: u64, value: Value, begun: u64) {
        let of_part = || self.writes.iter().filter(|it| (it.ino, it.part) == (ino, part));
        let ended = of_part().find(|it| it.value == value).map(|it| it.ended);
        let mut had_to_show = false;
        for later in of_part().filter(|it| it.value != value) {
            let is_over = later.ended.is_some_and(|ended| ended <= begun);
            had_to_show |= is_over;
            let is_later = match ended {
                // The value was never written, or is lost.
                None => true,
                Some(ended) => ended.is_some_and(|ended| ended < later.begun),
            };
            assert!(!(is_over && is_later), "{value} was read after {} was written", later.value);
        }
        self.reads += u32::from(had_to_show);
    }

    /// Asserts that the attributes in the answer to a request which began at the step `begun` have
    /// the size of the writes that were answered before.
    pub(crate) fn check_size(&mut self, attr: &Attr, begun: u64) {
        let before = self.writes.iter().filter(|it| it.ino == attr.ino);
        let ends = before.filter(|it| it.ended.is_some_and(|ended| ended <= begun));
        if let Some(least) = ends.map(|it| 8 * (it.part + 1)).max() {
            assert!(attr.size >= least, "{} of {least} bytes are shown: {attr:?}", attr.size);
            self.sizes += 1;
        }
    }
}
