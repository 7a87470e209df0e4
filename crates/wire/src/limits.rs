//! Limits of the protocol and of a server's memory, each with its unit.
//!
//! `docs/limits.md` lists them; `cargo xtask tidy` compares the two.

use std::time::Duration;

/// Bytes of a name in a directory (`NAME_MAX` of Linux).
pub const NAME_BYTES: usize = 255;
/// Bytes of a symbolic link's target (`PATH_MAX` of Linux, without its NUL).
pub const TARGET_BYTES: usize = 4095;
/// Bytes of the name of an extended attribute, its prefix included (`XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES: usize = 255;
/// Bytes of the value of an extended attribute (`XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES: usize = 65_536;
/// Bytes of all names of one file's extended attributes (`XATTR_LIST_MAX`).
pub const XATTR_LIST_BYTES: usize = 65_536;
/// Bytes of an access control list as an extended attribute, 511 entries: FUSE in the kernel
/// requests a page.
pub const ACL_BYTES: usize = 4096;
/// Names that one file may have.
pub const LINKS: u32 = 65_000;
/// Bytes of the largest file, and the largest offset (the maximum of `off_t`).
pub const FILE_BYTES: u64 = i64::MAX as u64;
/// Bytes of one READ or WRITE.
pub const IO_BYTES: usize = 1 << 20;
/// Entries of one reply to a listing.
pub const LIST_ENTRIES: usize = 1024;
/// Bytes of the body of a frame: a listing of names of 255 bytes with their attributes fits.
pub const FRAME_BODY_BYTES: usize = 512 << 10;
/// Bulk bytes of a frame.
pub const FRAME_BULK_BYTES: usize = IO_BYTES;
/// Bytes of the body of a frame that begins or ends a connection.
pub const HANDSHAKE_BYTES: usize = 1024;
/// Bytes of one credential, its signature included.
pub const CREDENTIAL_BYTES: usize = 8 << 10;
/// Credentials of one chain.
pub const CHAIN_LINKS: usize = 16;
/// Bytes of a chain of credentials, and of the body of the frame that presents it.
pub const CHAIN_BYTES: usize = 32 << 10;
/// Chains of credentials of one session of a guest.
pub const ATTACHED_CHAINS: usize = 16;
/// Nodes that one session of a guest has made and may ask a credential for. Older ones are
/// forgotten.
pub const MADE_NODES: usize = 4096;
/// Credentials for what it has made that one session of a guest is issued.
pub const ISSUED_CREDENTIALS: usize = 1024;
/// Bytes of the credentials of all chains of one session of a guest, beyond the first chain.
pub const ATTACHED_BYTES: usize = 64 << 10;
/// Bytes of memory for what the mirror of a volume does not have yet: keys of rows, and ranges of
/// content files. Beyond that the mirror is compared.
pub const MIRROR_CHANGES_BYTES: usize = 24 << 20;
/// Bytes of content in memory that have changed before they were sent to a mirror.
pub const MIRROR_KEPT_BYTES: usize = 32 << 20;
/// Bytes of content in a file without a name that have changed before they were sent to a mirror,
/// beyond those in memory.
pub const MIRROR_SPILLED_BYTES: u64 = 4 << 30;
/// Content files that were removed before they were sent to a mirror, and are kept open for it.
pub const MIRROR_KEPT_FILES: usize = 256;
/// Bytes of content, or of rows, in one part of a group that a mirror gets.
pub const GROUP_BYTES: usize = 256 << 10;
/// Bytes of the key of a row that a mirror gets.
pub const ROW_KEY_BYTES: usize = 1024;
/// Bytes of the value of a row that a mirror gets.
pub const ROW_BYTES: usize = 128 << 10;
/// Bytes of a file beside the table that a mirror gets.
pub const VOLUME_FILE_BYTES: usize = 480 << 10;
/// Ranges of rows, content files or blocks in one question of a primary to its mirror.
pub const COMPARED: usize = 1 << 10;
/// Bytes of the blocks of content files whose hashes a primary and its mirror compare.
pub const COMPARED_BLOCK_BYTES: usize = 1 << 20;
/// Bytes of rows that a mirror writes together.
pub const GROUP_BATCH_BYTES: usize = 4 << 20;
/// Bytes of content files that a mirror writes before it makes them safe.
pub const GROUP_UNSYNCED_BYTES: u64 = 64 << 20;
/// Content files that a mirror writes before it makes them safe, and those that it removes after a
/// group. Of more removed ones some stay, and `pelago check` finds them.
pub const GROUP_FILES: usize = 1 << 16;
/// Volumes of which a server keeps mirrors, and connections of primaries at the same time.
pub const MIRRORS: usize = 64;
/// Bytes of memory of the table of a mirror.
pub const MIRROR_TABLE_BYTES: u64 = 16 << 20;
/// Nodes and names of a group that the readers of a mirror are told one by one. Beyond that they
/// are told that everything changes.
pub const GROUP_RECALLS: usize = 1 << 10;
/// Bytes of memory of all caches for the readers of a mirror.
pub const MIRROR_READER_BYTES: u64 = 64 << 20;
/// Bytes of a sealed datagram between a primary and its mirror: every path that carries IPv6 takes
/// it (RFC 8200 asks for 1,280 with headers).
pub const DATAGRAM_BYTES: usize = 1200;
/// Bytes that the seal of a datagram takes (the tag of AES-GCM).
pub const DATAGRAM_SEAL_BYTES: usize = 16;
/// Bytes of the stream in one datagram. A repair packet has as many, their length and their offset.
pub const DATAGRAM_STREAM_BYTES: usize = 1152;
/// Data packets of a block, which share repair packets.
pub const BLOCK_PACKETS: usize = 64;
/// Repair packets of a block.
pub const BLOCK_REPAIR_PACKETS: usize = 16;
/// Data packets whose XOR one packet of the second layer carries.
pub const LAYER_PACKETS: usize = 64;
/// The distance between two such data packets, and the longest burst of losses that the second
/// layer repairs.
pub const LAYER_STEP: usize = 64;
/// Bytes of repair packets that a primary keeps of blocks that have not arrived. Those of the
/// oldest block are dropped beyond that, and what it has is safe only once the mirror has it.
pub const ENCODED_BYTES: usize = 16 << 20;
/// Data packets that a mirror keeps to rebuild others from them: the newest ones.
pub const DECODED_PACKETS: usize = 8192;
/// Bytes of repair packets that a mirror keeps; the oldest are dropped beyond that.
pub const DECODED_REPAIR_BYTES: usize = 4 << 20;
/// Runs of missing data packets that a mirror tells apart. Of more the two oldest count as one,
/// with the packets between them.
pub const DECODED_GAPS: usize = 1024;
/// Bytes of the stream that a mirror has before others arrive that precede them. More are dropped.
pub const STREAM_AHEAD_BYTES: usize = 32 << 20;
/// Bytes of the stream that a primary keeps, because no report says that the mirror has them, with
/// [`STREAM_PACKET_BYTES`] more for each packet. No more are under way, so a mirror drops none.
pub const STREAM_KEPT_BYTES: usize = 16 << 20;
/// Bytes that a packet of the stream counts for, besides its own.
pub const STREAM_PACKET_BYTES: usize = 64;
/// Bytes of the stream that wait at the primary for the link. Who sends more waits.
pub const STREAM_UNSENT_BYTES: usize = 1 << 20;
/// Bytes of the stream that are complete at the mirror, before its disk has taken them, beyond
/// which it reports no progress. The primary sends at most [`STREAM_KEPT_BYTES`] more.
pub const STREAM_READY_BYTES: usize = 4 << 20;
/// Runs of lost datagrams in one report.
pub const REPORT_RUNS: usize = 32;
/// Numbers of datagrams before the highest one that may still arrive; older ones are dropped.
pub const REPLAY_NUMBERS: usize = 8192;
/// Datagrams under way at the same time.
pub const FLIGHT_PACKETS: usize = 1 << 16;
/// Datagrams that are sealed with one key (RFC 9001, B.1.1, of packets of at most 2 KiB). The
/// connection ends before there are more, and the next one has other keys.
pub const SEALED_DATAGRAMS: u64 = 1 << 28;
/// Attempts a second of a mirror to open the seal of a datagram from an unknown address.
pub const STRANGER_SEALS: u32 = 10_000;
/// Records that are sealed with one key; the next ones have another that comes from the same key
/// of the run.
pub const SEALED_RECORDS: u64 = 1 << 24;
/// Bytes of records that a relay keeps of one volume. A primary that sends more waits.
pub const RELAY_SPOOL_BYTES: u64 = 4 << 30;
/// Bytes of a segment of the spool of a relay, after which the next record begins another one.
pub const RELAY_SEGMENT_BYTES: u64 = 64 << 20;
/// Groups that a relay has and the mirror has not, beyond which a primary cuts no more.
pub const RELAYED_GROUPS: usize = 4096;
/// Bytes of a signed sentence that takes a credential back.
pub const REVOCATION_BYTES: usize = 1 << 10;
/// Bytes of the address of another site's server, `HOST:PORT`: a host name has at most 253.
pub const SITE_ADDRESS_BYTES: usize = 320;
/// Sites of a volume besides its first one.
pub const LISTED_SITES: usize = 64;
/// Bytes of the signed list of a volume's sites.
pub const SITE_LIST_BYTES: usize = 32 << 10;
/// Bytes of the name of a site.
pub const SITE_NAME_BYTES: usize = 63;
/// Bytes of the signed charter of a volume: the policy, the names of keys, and some lines.
pub const CHARTER_BYTES: usize = CREDENTIAL_BYTES + KEYS_BYTES + 4096;
/// Bytes of the hashes of all parts of a site's revocations: 256 of 16 bytes.
pub const REVOKED_PARTS_BYTES: usize = 256 * 16;
/// Revocations in one answer to another site.
pub const PASSED_REVOCATIONS: usize = 64;
/// Revocations of one other site that the first one passes on at a time. One more is answered
/// `Busy`.
pub const PASSES: usize = 64;
/// The time for which a site serves guests after it has asked the first one what was taken back,
/// while that one can be reached.
pub const CHARTER_FRESH: Duration = Duration::from_secs(8);
/// The pause between two such questions of a site that may have guests.
pub const CHARTER_PAUSE: Duration = Duration::from_secs(2);
/// The time for which a site serves guests although it cannot reach the first one.
pub const CHARTER_ALONE: Duration = Duration::from_secs(24 * 60 * 60);
/// The time after which a site has another one give it a new token, by which a copy of its folder
/// is noticed. It does so before that if it needs a new block of [`ID_BLOCK`] numbers.
pub const TOKEN_RENEWAL: Duration = Duration::from_secs(60 * 60);
/// Directories of other sites that a site knows as ancestors of its own ones.
pub const ANCESTRY_DIRS: usize = 1024;
/// Names in such a directory that a site knows as leading to own directories. Of more, those that
/// were used last are known.
pub const ANCESTRY_NAMES: usize = 256;
/// Servers of one shared store.
pub const STORE_SERVERS: usize = 64;
/// Bytes of the address of such a server, `KEY@HOST:PORT`.
pub const SERVER_ADDRESS_BYTES: usize = 512;
/// Seconds without a sign of life after which a server of a shared store counts as dead to its
/// clients and to the other servers.
pub const STORE_DEAD_SECONDS: u64 = 6;
/// Seconds after which a client asks for the servers of a shared store again.
pub const SERVERS_ASKED_SECONDS: u64 = 10;
/// Credentials of one volume that were taken back.
pub const REVOCATIONS: usize = 65_536;
/// Guests in one answer to the question which rights to a node they have.
pub const ACCESS_GUESTS: usize = 32;
/// Bytes of the audit log of a volume. Beyond that the oldest days are removed.
pub const AUDIT_BYTES: u64 = 256 << 20;
/// Bytes of the audit log of one day. Further lines of that day are only counted.
pub const AUDIT_DAY_BYTES: u64 = 32 << 20;
/// Bytes of the audit log of one day about the guests of one credential of the volume's roots.
/// Further lines of that day are only counted.
pub const AUDIT_SHARE_BYTES: usize = 2 << 20;
/// Bytes of lines of the audit log in one answer. A longer line is left out.
pub const AUDIT_PAGE_BYTES: usize = 64 << 10;
/// Bytes of the audit log that the server reads for one answer.
pub const AUDIT_READ_BYTES: usize = 256 << 10;
/// Directories about which the server decides for one answer of the audit log, whether the guest
/// may audit them.
pub const AUDIT_PAGE_DIRS: usize = 128;
/// Directories of a node in a line of the audit log: those of its first names.
pub const AUDIT_LINE_DIRS: usize = 4;
/// Nodes and names that one recall names: as many as one request changes.
pub const RECALL_THINGS: usize = 8;
/// Bytes of the body of a recall.
pub const RECALL_BYTES: usize = 4096;
/// Bytes of a text for people in such a frame.
pub const TEXT_BYTES: usize = 512;
/// Bytes that an error has besides its code.
pub const ERROR_PAYLOAD_BYTES: usize = 4096;
/// Names of one directory whose hashes begin with the same 32 bits, if some hashes are equal.
pub const EQUAL_NAMES: u64 = (1 << 29) - 1;
/// Positions between names of equal hashes that an open directory remembers by name.
pub const LISTING_PLACES: usize = 4096;
/// Largest inline limit of a volume, in bytes of a file; the default is
/// [`INLINE_DEFAULT_BYTES`].
pub const INLINE_BYTES: usize = 65_536;
/// Default inline limit of a volume, in bytes of a file; larger files have a content file.
pub const INLINE_DEFAULT_BYTES: usize = 4096;
/// Ids that are reserved and persisted ahead, at a time.
pub const ID_BLOCK: u64 = 1 << 16;
/// Bytes of the file whose blocks are lent to the journal when the disk is full.
pub const RESERVE_BYTES: u64 = 64 << 20;
/// Bytes of the engine's journal that have blocks behind its last batch, on a disk of 256 MiB or
/// more; a sixteenth of a smaller one.
pub const JOURNAL_PREALLOCATED_BYTES: u64 = 16 << 20;
/// Free bytes of a disk below which new data is refused; fewer on a disk of less than 512 MiB.
pub const FREE_FLOOR_BYTES: u64 = 16 << 20;
/// Bytes of the engine's journals together.
pub const JOURNAL_BYTES: u64 = 64 << 20;
/// Files that all sessions of a server may have open together, if the process may have that many
/// descriptors.
pub const OPEN_FILES: usize = 1 << 20;
/// Those of them that only the server's own mount may have.
pub const OWN_OPEN_FILES: usize = 1 << 18;
/// Files that all sessions of one machine's key, or of one user of the server's machine, may have
/// open: the share of a peer of [`OPEN_FILES`].
pub const PEER_OPEN_FILES: usize = 1 << 18;
/// Seconds for which a file that a session's rename has replaced can still be opened.
pub const REPLACED_SECONDS: u64 = 2;
/// Such files at the same time. From half of them on the oldest are released early, and beyond all
/// of them the next one is not held.
pub const REPLACED_FILES: usize = 4096;
/// Seconds for which a file that has lost its last name can still be opened by its handle: a kernel
/// may hold it.
pub const REMOVED_SECONDS: u64 = 2;
/// Such files at the same time. Of more the oldest are forgotten, and all while the disk is nearly
/// full.
pub const REMOVED_FILES: usize = 16_384;
/// Bytes of the extended attributes of such a file; one with more cannot be opened.
pub const REMOVED_XATTR_BYTES: usize = 4 << 20;
/// Files without a name that a mount holds open because its kernel has not forgotten them. Of more
/// the oldest are released.
pub const HELD_INODES: usize = 1024;
/// Bytes that open files hold in memory before they are spilled to content files.
pub const OPEN_BYTES: usize = 24 << 20;
/// Bytes of the engine's block cache and memtables.
pub const TABLE_MEMORY_BYTES: usize = 64 << 20;
/// Bytes of all fingerprint filters.
pub const FILTER_BYTES: usize = 24 << 20;
/// Bytes of the row caches.
pub const ROW_CACHE_BYTES: usize = 24 << 20;
/// Bytes of the client's table of inodes that the kernel knows.
pub const INODE_TABLE_BYTES: usize = 24 << 20;
/// Least memory for the engine, the caches, open files and the inode table together, in bytes: the
/// engine needs 8 MiB.
pub const LEAST_MEMORY_BYTES: u64 = 20 << 20;
/// Bytes of the payloads of requests that wait for a thread that may block.
pub const POOL_BYTES: usize = 32 << 20;
/// Threads for requests of one user that may block.
pub const POOL_SHARE: usize = 4;
/// Threads for requests of all users that may block.
pub const POOL_THREADS: usize = 32;
/// Ancestors that a rename reads under the lock of all names; it reads those above them without the
/// lock.
pub const CLIMB_STEPS: usize = 64;
/// Rows, about, that one operation reads or writes under the lock of all names; an operation that
/// needs more releases the lock in between.
pub const LOCK_ROWS: usize = 4096;
/// Inodes whose unsafe changes are tracked individually, and inodes that lost changes; beyond this
/// number the next descriptor that asks is told.
pub const CHANGED_INODES: usize = 1 << 18;
/// Content files that stay open from their last close until they are synced.
pub const UNSYNCED_FILES: usize = 1024;
/// Ranges of one file that are tracked individually from a failed sync until they are written
/// again.
pub const LOST_RANGES: usize = 256;
/// Inodes and names whose unsafe changes are tracked beside other sessions; beyond this number the
/// changes until then count as those of another session.
pub const UNSAFE_CHANGES: usize = 1 << 16;
/// Mutations of a session that may be beyond the acknowledged one: answers that a server remembers.
pub const SESSION_MUTATIONS: u64 = 4096;
/// Requests of a session that may be under way, besides those that wait for locks.
pub const SESSION_REQUESTS: usize = 1024;
/// Largest share of one session of a server's memory, in bytes: for requests that it has read and
/// not answered, with what their answers may have, and for answers that the client did not take.
pub const SESSION_BYTES: usize = 8 << 20;
/// Least share of one session, in bytes. One that has nothing under way may have one request of any
/// size.
pub const SESSION_LEAST_BYTES: usize = 256 << 10;
/// Bytes that the shares of the sessions of one peer take, besides the least share of each. The
/// first session of a peer gets [`SESSION_BYTES`], each further one a quarter of what is left.
pub const PEER_BYTES: usize = 32 << 20;
/// Bytes that a request counts for in such a share, besides its own and those of its answer.
pub const REQUEST_BYTES: usize = 512;
/// Bytes of answered mutations that a client keeps until they are safe; [`DIRTY_BYTES`] more with
/// writes that it had kept back.
pub const SESSION_KEPT_BYTES: usize = 2 << 20;
/// Sessions of a server at the same time.
pub const SESSIONS: usize = 1024;
/// Sessions of one machine's key, or of one user of the server's machine, at the same time.
pub const PEER_SESSIONS: usize = 64;
/// The time of a guest's lease.
pub const GUEST_LEASE: Duration = Duration::from_secs(3);
/// Sessions of guests at the same time.
pub const GUEST_SESSIONS: usize = 512;
/// Sessions of guests at the same time that come with one credential of the volume's roots.
pub const CREDENTIAL_SESSIONS: usize = 64;
/// Connections to a server that have no session yet. One more ends the oldest of the source that
/// has most of them.
pub const STRANGERS: usize = 256;
/// Those of one source: an address, the first 64 bits of one with IPv6, or a user of the server's
/// machine. One more ends the oldest.
pub const SOURCE_STRANGERS: usize = 128;
/// Seconds that a connection without a session may last.
pub const STRANGER_SECONDS: u64 = 10;
/// Seconds after which a silent peer is gone, and its session with it.
pub const TERM_SECONDS: u64 = 10;
/// Bytes of the file of a private key.
pub const KEY_FILE_BYTES: usize = 4096;
/// Bytes of a volume's list of clients.
pub const CLIENTS_BYTES: usize = 1 << 20;
/// Bytes of a volume's list of named keys.
pub const KEYS_BYTES: usize = 256 << 10;
/// Bytes of the name of a key in these lists.
pub const KEY_NAME_BYTES: usize = 64;
/// Ranges of bytes that the locks of one session cover; adjacent ranges of one owner and mode count
/// as one.
pub const LOCKS: usize = 1 << 16;
/// Nodes whose attributes a client keeps under leases; one more, and it forgets them.
pub const HOLDER_NODES: usize = 1 << 16;
/// Names that a client keeps under leases; one more, and it forgets them.
pub const HOLDER_NAMES: usize = 1 << 16;
/// Names that may change in a directory of which a client knows all names; one more, and it does
/// not know that any more. There are at most [`HOLDER_NAMES`] of them in all.
pub const HOLDER_UNKNOWN_NAMES: usize = 1024;
/// Nodes whose targets and extended attributes a client keeps under leases.
pub const HOLDER_TEXTS: usize = 1 << 14;
/// Targets and extended attributes of one node that a client keeps.
pub const HOLDER_NODE_TEXTS: usize = 16;
/// Bytes written to one file that a client keeps back under a lease, those on their way included.
pub const DIRTY_FILE_BYTES: usize = 4 << 20;
/// Bytes written to all files that a client keeps back.
pub const DIRTY_BYTES: usize = 16 << 20;
/// Writes that a client keeps back, none of which continues another. A session leaves as many of
/// its [`SESSION_MUTATIONS`] to them until they are answered in a new epoch, in which nothing else
/// is.
pub const DIRTY_WRITES: usize = 512;
/// The bytes of a new file of another site that stay at the site of their writer if there are more
/// of them: fewer go home with one request, and every reader has them sooner. Fewer stay on a line
/// on which so many take longer than a round trip.
pub const STAY_LEAST_BYTES: usize = 64 << 10;
/// The bytes of a new file of another site that go home with its close on any line.
pub const SENT_AT_CLOSE_BYTES: usize = 4 << 10;

/// The bytes of a file with which a frame between the servers of two sites goes over their
/// connection for bulk. Fewer take less time on a line of 1 Mbit/s than a round trip does.
pub const BULK_CONNECTION_BYTES: usize = 8 << 10;

/// Files whose bytes a client reads ahead through opens that write, with [`IO_BYTES`] each at most.
pub const READ_AHEAD_FILES: usize = 16;
/// Bytes of a file that the server of a site fetches from another site with one request.
pub const FETCH_BLOCK_BYTES: usize = 256 << 10;
/// Bytes that it fetches from another site at a time, most of them ahead of programs that read
/// files in order: about as many as one session may have under way.
pub const FETCH_AHEAD_BYTES: usize = 4 << 20;
/// Fetched bytes of files of one other site that it keeps.
pub const FETCHED_BYTES: usize = 16 << 20;
/// Blocks of a file whose hashes the server of a site asks for with one request: their home reads
/// as many for it.
pub const HASHED_BLOCKS: usize = 64;
/// Bytes of the smallest file of which only the changed blocks are fetched. A smaller one is
/// fetched as a whole, which costs less than to ask for its hashes.
pub const HASHED_FILE_BYTES: u64 = 2 << 20;
/// Windows of [`HASHED_BLOCKS`] whose hashes a site keeps of the files of one other site.
pub const HASH_WINDOWS: usize = 256;
/// Files of other sites of which a site has copies on its disk.
pub const COPIED_FILES: usize = 65_536;
/// Blocks that wait to be written as copies; others are not kept.
pub const COPY_JOBS: usize = 64;
/// Files of one other site of which it keeps fetched bytes.
pub const FETCHED_FILES: usize = 1024;
/// How long a client keeps back bytes, in milliseconds.
pub const WRITE_BEHIND_MILLIS: u64 = 100;
/// Bytes of a target or an extended attribute that a client keeps.
pub const HOLDER_TEXT_BYTES: usize = 1024;
/// Leases of all sessions with the default memory, 250 to 380 bytes each; with less a twentieth of
/// the memory above 20 MiB is for them. Beyond that some are recalled to grant others.
pub const LEASES: usize = 1 << 18;
/// Leases of one session. Beyond that some of its own are recalled to grant others.
pub const SESSION_LEASES: usize = 1 << 16;
/// Requests of one session that wait for a lock.
pub const LOCK_WAITERS: usize = 4096;
/// Those of one session of a site's server that wait at another site: all its sessions share one
/// there.
pub const SITE_LOCK_WAITERS: usize = LOCK_WAITERS / 4;
/// Clients of one site whose mutations another site's server knows, so that each is carried out
/// once. One more takes the place of the one that was silent for longest.
pub const SITE_ORIGINS: usize = 1024;
/// Those of all sessions of one peer. One more is answered `NoLocks`.
pub const PEER_LOCK_WAITERS: usize = 1 << 14;
/// Bytes of a block of a file that is sent in any order; the last one of a file may have fewer.
pub const BLOCK_BYTES: usize = 64 << 10;
/// Bytes of an extent of such a file, the unit of reading and hashing.
pub const EXTENT_BYTES: usize = 1 << 20;
/// Bytes of the largest file that is sent as blocks; a client then has 64 MiB to note what it has.
pub const BLOCKS_FILE_BYTES: u64 = 16 << 40;
/// Runs of a have-map. A client with more of them leaves the shortest out.
pub const HAVE_RUNS: usize = 4096;
/// Bytes of a have-map.
pub const HAVE_BYTES: usize = 16 + 16 * HAVE_RUNS;
/// Hashes of extents that an HTTP server remembers, about 40 bytes each.
pub const EXTENT_HASHES: usize = 1 << 18;
/// Versions of files of which an HTTP server remembers hashes.
pub const HASHED_VERSIONS: usize = 1024;
/// Pins of files at the same time: downloads and other deliveries.
pub const PINS: usize = 1 << 14;
/// Bytes of small files that pins have in memory.
pub const PINNED_MEMORY_BYTES: u64 = 16 << 20;
/// Bytes of a file that are copied for its pins before a program changes it, on a disk that cannot
/// share blocks between files. The pins of a larger file end with `Changed`.
pub const PIN_COPY_BYTES: u64 = 64 << 20;
/// Bytes of all such copies. Beyond that the pins of the next file that changes end with `Changed`.
pub const PIN_COPIES_BYTES: u64 = 1 << 30;
/// Bytes of a URL that is downloaded.
pub const URL_BYTES: usize = 4096;
/// Bytes of an entity tag of a server that is no Pelago; a longer one counts as none.
pub const ENTITY_TAG_BYTES: usize = 1024;
/// Connections of an HTTP server, at most an eighth of the descriptors of the process; others wait
/// until one ends.
pub const HTTP_CONNECTIONS: usize = 10_000;
/// Pieces of 64 KiB that an HTTP server has in memory for answers that read for themselves, and
/// have-maps of more than 4 KiB that it receives. Without a place an answer goes on with 4 KiB at a
/// time; such a have-map waits.
pub const HTTP_PLACES: usize = 768;
/// Those of one address; with IPv6 of its first 64 bits.
pub const HTTP_ADDRESS_PLACES: usize = 192;
/// Seconds in which a client of an HTTP server takes at least [`HTTP_LEAST_BYTES`], while bytes
/// wait for it; another one is cut.
pub const HTTP_STALLED_SECONDS: u64 = 60;
/// Bytes that such a client takes at least in that time.
pub const HTTP_LEAST_BYTES: usize = 64 << 10;
/// Bytes of extents that an HTTP server keeps in memory, at most two fifths of `up --memory`; a
/// quarter as much is for blocks from the page cache.
pub const DELIVERY_BYTES: u64 = 64 << 20;
/// Blocks of a file that can be delivered: 16 TiB of blocks of 64 KiB.
pub const DELIVERY_FILE_BLOCKS: u32 = 1 << 28;
/// Blocks of a chunk of a delivery's set of blocks. A chunk that is there in part takes 520 bytes,
/// each other one 16.
pub const DELIVERY_CHUNK_BLOCKS: u32 = 4096;
/// Chunks of which a client of a delivery has some blocks and lacks others. One with as many
/// begins no further chunk, and one that resumes with more is refused.
pub const DELIVERY_CLIENT_CHUNKS: usize = 256;
/// Files that are delivered at the same time.
pub const DELIVERY_FILES: usize = 4096;
/// Clients of all deliveries at the same time.
pub const DELIVERY_CLIENTS: usize = 1 << 14;
/// Clients of one delivery at the same time.
pub const DELIVERY_FILE_CLIENTS: usize = 1 << 12;
/// Bytes of a query of `pelago find`, as it is written and in its canonical form.
pub const QUERY_BYTES: usize = 4096;
/// Terms of a query.
pub const QUERY_TERMS: usize = 64;
/// Brackets and `not` of a query that are inside each other.
pub const QUERY_NESTING: usize = 32;
/// Bytes of the key of a tag, without the `user.tag.` in front of it.
pub const TAG_KEY_BYTES: usize = 64;
/// Bytes of a key or value of a tag that is sought by how it begins; longer values are not found
/// so.
pub const TAG_PART_BYTES: usize = 256;
/// Keys or values in one answer to such a question.
pub const TAG_PARTS: usize = 256;
/// Names below a directory that are read for the tags of a guest.
pub const GUEST_TAG_NAMES: u32 = 65_536;
/// Supplementary groups of a process that searches.
pub const ASKER_GROUPS: usize = 4096;
/// Bytes of the path of a file that answers a query, from the directory that was searched; deeper
/// files are not found.
pub const HIT_PATH_BYTES: usize = 32 << 10;
/// Files in one page of an answer to a query.
pub const PAGE_HITS: u32 = 4096;
/// Names that are compared with a query for one page of its answer.
pub const PAGE_NAMES: u32 = 16_384;
/// Bytes of a file's beginning in which the words of a query are sought.
pub const TEXT_SEARCHED_BYTES: usize = 256 << 10;
/// Bytes of the files in one page of an answer to a query.
pub const HITS_BYTES: usize = 256 << 10;
/// Files and directories of which searches remember the names under which they were found.
pub const PLACE_HINTS: usize = 1 << 16;
/// Files that changed since the last commit of the search index. If there are more, the index reads
/// all rows that are newer than its last commit.
pub const FED_FILES: usize = 1 << 16;
/// Bytes of memory for what the two writers of the search index of one shard gather, and for what
/// waits for them. Writing a part and merging parts takes more, for a time.
pub const INDEX_MEMORY_BYTES: usize = 64 << 20;
/// Bytes of memory in which one of the two indexes of a shard gathers documents before it writes
/// them.
pub const INDEX_WRITER_BYTES: usize = 16 << 20;
/// Bytes of documents that wait for such a writer; one that is larger waits alone.
pub const INDEX_QUEUE_BYTES: usize = 1 << 20;
/// Bytes of a text that is indexed; a longer one is refused.
pub const INDEX_TEXT_BYTES: usize = 4 << 20;
/// Inodes that a writer remembers between two commits. Beyond that each one costs a search of the
/// index.
pub const INDEX_INODES: usize = 1 << 16;
/// Documents of the largest part of an index that a merge makes.
pub const INDEX_MERGED_DOCUMENTS: usize = 1 << 20;
/// Bytes of terms, each with where its documents are, of the parts that one merge joins.
pub const INDEX_MERGED_TERM_BYTES: u64 = 32 << 20;
/// Files that a folder of a query lists: the first ones of the answer.
pub const FIND_FOLDER_HITS: usize = 16_384;
/// Bytes of the paths of these files; beyond them no more are listed.
pub const FIND_FOLDER_BYTES: usize = 2 << 20;
/// Answers of such folders that a mount has at the same time: those it waits for, and those it
/// keeps for a second.
pub const FIND_FOLDERS: usize = 16;
/// Those of one user that it waits for.
pub const FIND_USER_FOLDERS: usize = 8;
/// Bytes of what a mount knows of its hidden files and folders of queries, about 256 and the query
/// or the target each. A user gets at most as much as is left for all others.
pub const FIND_NODES_BYTES: usize = 8 << 20;
