//! The answer to the question which guests have which rights to a node, and why.

use crate::id::SessionId;

/// A page of the guests that are connected, or the one guest that was asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessPage {
    /// The guests, in the order of their sessions, at most [`crate::limits::ACCESS_GUESTS`].
    pub guests: Vec<GuestAccess>,
    /// True if there are more, after the last of these.
    pub more: bool,
}

/// The rights of a guest to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestAccess {
    /// The session; 0 for a chain that was asked about without one.
    pub session: SessionId,
    /// The guest's key.
    pub key: [u8; 32],
    /// The id of the last credential of its chain.
    pub credential: [u8; 32],
    /// The credentials of its chain.
    pub links: u8,
    /// The letters of the rights that it has.
    pub rights: Vec<u8>,
    /// The rights that it does not have.
    pub denied: Vec<DeniedRight>,
}

/// A right that a guest does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedRight {
    /// The letter of the right.
    pub right: u8,
    /// The first credential of the chain that decides, from 1; 0 if it is none of them.
    pub link: u8,
    /// The key that has signed it; zeros without one.
    pub signer: [u8; 32],
    /// The reason.
    pub cause: DenialCause,
    /// The value of the test that is not met, as the credential has it.
    pub detail: String,
}

/// The reason why a guest does not have a right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DenialCause {
    /// The credential does not have this right.
    Right,
    /// The credential does not let its licensee share it on, so those after it are void.
    Grant,
    /// The node is not in the directory of the credential; its number is the detail.
    Place,
    /// The credential has ended; the time is the detail.
    Ended,
    /// The guest's address is not in the range of the credential, which is the detail.
    Address,
    /// The credential is for another volume; its id is the detail.
    Volume,
    /// Other conditions of the credential are not met; they are the detail.
    Conditions,
    /// The credential was taken back.
    Revoked,
    /// The credential's signer is no root, and no credential before is for that key.
    NoRoot,
    /// The policy of the volume does not let its roots grant it.
    Policy,
    /// The question takes too many steps.
    Steps,
    /// The mode or the access list of the node denies it to the user as whom the guest acts. The
    /// detail is that user and the mode; nothing for a guest, which learns no ids of the server.
    Modes,
    /// The server does not know as whom the guest would act by the chain, or that is another user
    /// than its session acts as.
    User,
}
