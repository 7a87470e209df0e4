//! The owner of a shared store: the one of its servers that may change its table, and the takeover
//! by another one.
//!
//! # The fence
//!
//! The one shard of a store has a *baton*: an empty file whose name `E.P.N` says epoch, process
//! and turn. Each owner has an engine's folder of its own, `E.P/`. Two rules keep what was safe:
//!
//! 1. *Safe is what a rename has confirmed.* After each persist the owner renames the baton to the
//!    next turn ([`OwnedTable`], [`Baton::advance`]), and only then calls batches safe. A taker,
//!    the server that takes the store over, renames the same file to the next epoch. A file is
//!    renamed once, so either the owner's rename came first, and the taker copies all that it
//!    confirmed; or the taker's did, and the owner's finds no file: it is fenced, and has confirmed
//!    nothing that the taker lacks. No clock is in this: the owner may stand still between any two
//!    instructions, for any time.
//! 2. *Nothing is shared that is ever written.* A taker never opens the owner's files. It copies
//!    journals and version files into its own folder, and hard-links sorted runs, which never
//!    change (`forward`). What a stopped owner writes when it goes on is in its own folder, which
//!    nothing reads any more.
//!
//! # Life
//!
//! Clocks decide only when a takeover is tried. Each process renames a file of its own in `alive/`
//! each 2 s ([`Beat`]). Others take a process for dead if neither that file nor its baton was
//! renamed for 6 s × 65/64 ([`Candidate`]). The taker first renames that file away, so that a
//! process that was not dead fails at its next beat; the rename fails if the process has beaten
//! meanwhile. Once its last beat is older than 6 s × 63/64 ([`Beat::is_fresh`]), the owner sends no
//! reply that is not safe: a client never reads a state that is older than a taker's changes.
//!
//! # Bytes
//!
//! Rows are safe by rule 1. Bytes of content files that were written and not synced are in the page
//! cache of the owner's machine, where only processes of this machine see them, and only until it
//! starts again. So an owner records its boot id when it is ready, and at a clean stop that all is
//! synced; [`Taken::may_lack_bytes`] returns whether some may be missing.
//!
//! # A turn
//!
//! ```text
//! Candidate::look   -> Look::Free(claim)         the owner is dead, or has released the baton
//! Claim::take       -> Taken                     the baton is ours, the engine's folder is whole
//! FjallTable::open_in(taken.folder()), recovery by Taken::may_lack_bytes, persist
//! Taken::mark_ready                              from here on the next taker copies this folder
//! Taken::remove_older, then the first request    never the other way round
//! ...                                            each persist through `OwnedTable`
//! Baton::stop_within                             a store that is away does not prevent the stop
//! close of the table, sync, Taken::mark_closed   no byte is missing
//! Baton::release, Beat::end                      the next taker need not wait
//! ```

use std::time::Duration;

use pelago_wire::limits;

pub use alive::Beat;
pub use baton::Baton;
pub use candidate::{Candidate, Claim, Look};
pub use error::OwnerError;
pub use names::ProcessId;
pub use process_record::{LockId, ProcessRecord, boot_id};
pub use prove::prove;
pub use servers::{ServerRecord, list_servers, record_server};
pub use table::OwnedTable;
pub use taken::Taken;

use names::BatonName;

mod alive;
mod baton;
mod candidate;
mod error;
mod forward;
mod moment;
mod names;
mod process_record;
mod prove;
mod servers;
mod shard;
mod table;
mod taken;
mod watch;

/// The time between two beats of a process.
pub const BEAT: Duration = Duration::from_secs(2);
/// The time after which a process without a beat is dead, before the margins of both clocks.
pub const DEAD: Duration = Duration::from_secs(limits::STORE_DEAD_SECONDS);

/// The folder of the one shard, in the folder `shard`.
pub(crate) const FIRST_SHARD: &str = "0";

/// Returns the name of the baton of a new store, which no process has.
pub(crate) fn first_baton() -> String {
    BatonName::FIRST.to_string()
}
