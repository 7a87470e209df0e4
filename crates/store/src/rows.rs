//! The values of a table: one type for each kind of row.
//!
//! Every value is `version u8 · epoch u32 · sequence u64 · body · checksum u32`, little-endian. The
//! version is that of the body of its kind. Epoch and sequence say which shard owner wrote the
//! value, and when ([`Stamp`]). The checksum is the low half of XXH3 over all bytes before it; its
//! seed is the number of the kind, so that a value under a key of another kind is found too.
//! `docs/format.md` specifies each body byte by byte; `vectors/rows.txt` has an example of each.
//!
//! Decoding checks every length and range, uses the whole value, and never panics. It cannot check
//! whether rows agree with each other; `pelago check` does.

pub use ancestry::{Access, AncestryRow, SeenDir};
pub use error::{DecodeError, RowError};
pub use file::{Inline, Orphan, Tag, Writing, Xattr, XattrNames};
pub use intent::{IntentChange, IntentRow};
pub use mirror::{MirrorRole, MirrorRow};
pub use names::{Moved, NameRow, ParentPointer, Partition, SPLIT_MAP_BYTES};
pub use promotions::{PROMOTIONS, Promotion, Promotions};
pub use revocation::RevocationRow;
pub use rnode::{Rnode, RnodeFlags};
pub use row::{Body, Row, Stamp, stamp_of};
pub use session::RESERVED_PEERS;
pub use site::{SITE_NAME_BYTES, SiteListRow, SiteRow, SiteState, SiteTokensRow};
pub use stay::{StayRow, StayState};
pub use volume::{CACHED_REPLY_BYTES, CachedReply, HalfCommits, HighWater, Identity, IndexCommits};

mod ancestry;
mod codec;
mod error;
mod file;
mod intent;
mod mirror;
mod names;
mod promotions;
mod revocation;
mod rnode;
mod row;
mod session;
mod site;
mod stay;
mod volume;
