//! The names and permissions of the files of a volume.

pub(super) const FORMAT: &str = "format";
pub(super) const FORMAT_NEW: &str = "format.new";
/// The second file of the format.
pub(super) const FORMAT_COPY: &str = "format.copy";
pub(super) const LOCK: &str = "lock";
pub(super) const CLEAN: &str = "clean";
pub(super) const TABLE: &str = "table";
pub(crate) const CONTENT: &str = "content";
pub(super) const RESERVE: &str = "reserve";
pub(super) const LOG: &str = "log";
pub(super) const SOCKET: &str = "control.sock";
pub(super) const SESSION_SOCKET: &str = "pelago.sock";
pub(super) const FILES: &str = "files";
/// The file of the server's private key. The crate `net` has its text.
pub const KEY: &str = "key";
/// The file with the machines that may connect. The crate `net` has its text; it is replaced by
/// `CLIENTS_NEW`.
pub const CLIENTS: &str = "clients";
pub(super) const CLIENTS_NEW: &str = "clients.new";
/// The file with the keys whose credentials the server accepts, as the crate `keynote` reads it; it
/// is replaced by `POLICY_NEW`.
pub const POLICY: &str = "policy";
pub(super) const POLICY_NEW: &str = "policy.new";
/// The file with the names of keys, and the users as whom guests act, as the crate `keynote` reads
/// it; it is replaced by `KEYS_NEW`.
pub const KEYS: &str = "keys";
pub(super) const KEYS_NEW: &str = "keys.new";
/// The file with the credential by which a root lets the server issue credentials, as the crate
/// `keynote` reads it; it is replaced by `ISSUER_NEW`.
pub const ISSUER: &str = "issuer";
pub(super) const ISSUER_NEW: &str = "issuer.new";
/// The file with the charter of the volume, as the crate `keynote` reads it: what the first site
/// says about roots and named keys. It is replaced by `CHARTER_NEW`.
pub const CHARTER: &str = "charter";
pub(super) const CHARTER_NEW: &str = "charter.new";
/// The file with the address at which the server listens, unless an option names another one; it is
/// replaced by `LISTEN_NEW`.
pub const LISTEN: &str = "listen";
pub(super) const LISTEN_NEW: &str = "listen.new";
/// The folder of the audit log.
pub const AUDIT: &str = "audit";

/// The file in the folder of a server of a shared store with the path of the store and the id of
/// its volume; it is replaced by `STORE_NEW`.
pub(super) const STORE: &str = "store";
pub(super) const STORE_NEW: &str = "store.new";

/// All names in the folder of a volume.
pub(super) const NAMES: [&str; 25] = [
    FORMAT,
    FORMAT_NEW,
    FORMAT_COPY,
    LOCK,
    CLEAN,
    TABLE,
    CONTENT,
    RESERVE,
    LOG,
    SOCKET,
    SESSION_SOCKET,
    FILES,
    KEY,
    CLIENTS,
    CLIENTS_NEW,
    POLICY,
    POLICY_NEW,
    KEYS,
    KEYS_NEW,
    ISSUER,
    ISSUER_NEW,
    CHARTER,
    CHARTER_NEW,
    LISTEN,
    LISTEN_NEW,
];

/// The folder of the shards of a shared store.
pub(crate) const SHARD: &str = "shard";
/// The folder of the living processes of a shared store.
pub(crate) const ALIVE: &str = "alive";
/// The folder of the servers of a shared store.
pub(crate) const SERVERS: &str = "servers";
/// The prefix of the names of folders in which a shared store is made.
pub(super) const NEW: &str = "new.";
/// The prefix of the names of folders in which a server proves the operations of the store.
pub(crate) const PROOF: &str = "proof.";

/// Names in the folder `table` that are not the engine's.
pub(super) const SEED: &str = "seed";
pub(super) const SEED_NEW: &str = "seed.new";
/// The second file of the seed.
pub(super) const SEED_COPY: &str = "seed.copy";

/// Permissions of a file that every user may read.
pub(super) const PUBLIC: u32 = 0o644;
/// Permissions of a file that only its owner may read.
pub(super) const SECRET: u32 = 0o600;
