//! The holder of leases: a [`Service`] over a [`LeasedService`], which answers from replies that it
//! has cached under leases.
//!
//! A request goes through `holder`, the driver. `answers` answers it from `leased_cache` and
//! `listings`. Otherwise `requests` records what it changes, `ordering` what it must wait for, and
//! the driver sends it. `reply_facts` caches the facts of its reply, if `changes` has no change of
//! them since. `recall` ends leases.
//!
//! A write goes through `holder` and `write_behind`, which buffers it in `dirty` and sends it
//! later. `fetch` answers reads from blocks that were fetched ahead, as `fetched` plans, and from
//! `copies` of them that outlive a lease. `take_over` takes copies of another version whose
//! `hashes` are those of the server. `open_files` has the opens, `reports` reports those to the
//! server that it does not know. `state` is what all of them share, behind one lock.
//!
//! [`Attached`] and [`Flat`] are services below a holder: a directory of a far volume as a tree of
//! its own, and single files of one as the names of a directory.
//!
//! [`Service`]: pelago_wire::Service
//! [`LeasedService`]: pelago_wire::LeasedService

#![forbid(unsafe_code)]

pub use attached::{Attached, View};
pub use copies::{BlockLease, Copies, FileVersion};
pub use flat::{Flat, FlatName, FlatTarget};
pub use holder::Holder;
pub use stale::SILENT;

mod answers;
mod attached;
mod bytes;
mod caller;
mod changes;
mod clock;
mod copies;
mod countdown;
mod dirty;
mod fetch;
mod fetched;
mod flat;
mod hashes;
mod holder;
mod leased_cache;
mod listings;
mod most_facts;
mod open_files;
mod ordering;
mod read_ahead;
mod recall;
mod reply_facts;
mod reports;
mod requests;
mod stale;
mod state;
mod take_over;
mod timer;
mod write_behind;
