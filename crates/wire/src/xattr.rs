//! Names of extended attributes.

/// The prefixes that names may have, except those of access control lists.
pub const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
/// The beginning of the names of those that are tags.
pub const TAG_PREFIX: &[u8] = b"user.tag.";
/// The access control list of a file (`acl(5)`).
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The access control list that new nodes inherit from a directory (`acl(5)`).
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
