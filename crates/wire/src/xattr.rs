//! Names of extended attributes that have a meaning to a server.

/// The list that says which users and groups may do what with a file (`acl(5)`).
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The list that a directory gives to nodes that are made in it (`acl(5)`).
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";
