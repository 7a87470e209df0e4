//! The guests of a volume: their credentials, grants and revocations.
//!
//! A guest is a session whose client has shown a credential: a sentence, signed by a root of the
//! volume, that grants a key one directory and all below it. The file `policy` in the volume's
//! folder has the roots. Rows of the table have the revoked credentials.
//!
//! No verdict is cached. Each request of a guest checks again whether its root is still a root,
//! whether its credential was revoked, and where the node is.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use pelago_keynote::{
    Assertion, Authorizer, CHAIN_BYTES, CHAIN_LINKS, CREDENTIAL_BYTES, Principal, REVOCATION_BYTES,
    Revocation, SharedFolder,
};
use pelago_store::folder::Folder;
use pelago_store::report::volume_failed;
use pelago_store::volume::{self, VolumeId};
use pelago_wire::{Code, Error, GuestGrant, GuestRefusal, InodeId, SessionId, limits};

use roots::Roots;

mod roots;

/// The limits of the wire are those of the parser.
const _: () = assert!(
    CREDENTIAL_BYTES == limits::CREDENTIAL_BYTES
        && CHAIN_LINKS == limits::CHAIN_LINKS
        && CHAIN_BYTES == limits::CHAIN_BYTES
        && REVOCATION_BYTES == limits::REVOCATION_BYTES
);

/// The guests of a volume.
pub(crate) struct Policy {
    volume: VolumeId,
    /// The roots; `None` without a folder, so that there is no guest.
    roots: Option<Roots>,
    /// The ids of the revoked credentials.
    revoked: RwLock<HashSet<[u8; 32]>>,
    guests: RwLock<HashMap<SessionId, Arc<Guest>>>,
    /// True if there is a guest.
    any: AtomicBool,
}

/// The session of a guest.
pub(crate) struct Guest {
    pub(crate) grant: GuestGrant,
}

impl Policy {
    /// Returns the policy of the volume in this folder. `revoked` are the revoked credentials.
    pub(crate) fn new(volume: VolumeId, folder: Option<Folder>, revoked: Vec<[u8; 32]>) -> Self {
        Self {
            volume,
            roots: folder.map(Roots::new),
            revoked: RwLock::new(revoked.into_iter().collect()),
            guests: RwLock::default(),
            any: AtomicBool::new(false),
        }
    }

    /// Returns the grant of a chain of credentials to a guest with this key.
    ///
    /// The chain must begin with a root and be for this key before a signature is verified: a
    /// stranger must not cause costly work. Only the holder of that key gets the reason of a
    /// refusal.
    ///
    /// # Errors
    /// [`GuestRefusal`].
    pub(crate) fn admit(
        &self,
        principal: &[u8; 32],
        chain: &[Vec<u8>],
    ) -> Result<GuestGrant, GuestRefusal> {
        let [text] = chain else {
            let reason =
                "this version takes a chain of one credential: delegation is not built yet";
            return Err(GuestRefusal(reason.to_owned()));
        };
        let no_reason = || GuestRefusal(String::new());
        let because = |error: &dyn ToString| GuestRefusal(error.to_string());
        let credential = Assertion::parse(text).map_err(|error| because(&error))?;
        let Authorizer::Key(root) = *credential.authorizer() else { return Err(no_reason()) };
        if !self.is_root(&root) || credential.licensees() != [Principal(*principal)] {
            return Err(no_reason());
        }
        credential.verify().map_err(|_| no_reason())?;
        let share = SharedFolder::of(&credential).map_err(|error| because(&error))?;
        if share.volume != self.volume.0 {
            return Err(GuestRefusal("the credential is for another volume".to_owned()));
        }
        let id = credential.id().0;
        if self.revoked.read().contains(&id) {
            return Err(GuestRefusal("the credential was taken back".to_owned()));
        }
        let directory = InodeId::from_raw(share.directory);
        Ok(GuestGrant { principal: *principal, root: root.0, credential: id, directory })
    }

    /// Begins the session of a guest.
    ///
    /// # Errors
    /// [`GuestRefusal`] if the grant does not hold any more.
    pub(crate) fn begin(&self, session: SessionId, grant: &GuestGrant) -> Result<(), GuestRefusal> {
        let mut guests = self.guests.write();
        // Under the lock: a revocation looks for guests only after it is in force.
        if !self.has_access(grant) {
            return Err(GuestRefusal("the credential was taken back".to_owned()));
        }
        guests.insert(session, Arc::new(Guest { grant: *grant }));
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends the session of a guest; does nothing for any other. The service must not know the
    /// session any more, because a session that is not a guest's has all rights.
    pub(crate) fn end(&self, session: SessionId) {
        if self.any.load(Ordering::Acquire) {
            let mut guests = self.guests.write();
            guests.remove(&session);
            self.any.store(!guests.is_empty(), Ordering::Release);
        }
    }

    /// Returns the guest whose session this is, if it is a guest's.
    #[inline]
    pub(crate) fn guest(&self, session: SessionId) -> Option<Arc<Guest>> {
        match self.any.load(Ordering::Acquire) {
            true => self.guests.read().get(&session).map(Arc::clone),
            false => None,
        }
    }

    /// Returns whether a grant still holds: its root is a root, and its credential is not revoked.
    pub(crate) fn has_access(&self, grant: &GuestGrant) -> bool {
        self.is_root(&Principal(grant.root)) && !self.revoked.read().contains(&grant.credential)
    }

    /// Reads a sentence that revokes a credential of this volume. Returns the credential's id.
    ///
    /// # Errors
    /// `Invalid` if it is no revocation for this volume; `AccessDenied` if no root has signed it;
    /// `NoSpace` if too many credentials are revoked.
    pub(crate) fn read_revocation(&self, sentence: &[u8]) -> Result<[u8; 32], Error> {
        let revocation = Revocation::parse(sentence).map_err(|error| {
            tracing::info!(%error, "a sentence that takes nothing back");
            Error::from(Code::Invalid)
        })?;
        if revocation.volume != self.volume.0 {
            return Err(Code::Invalid.into());
        }
        if !self.is_root(&revocation.by) || revocation.verify().is_err() {
            return Err(Code::AccessDenied.into());
        }
        let revoked = self.revoked.read();
        let id = revocation.credential.0;
        if revoked.len() >= limits::REVOCATIONS && !revoked.contains(&id) {
            return Err(Code::NoSpace.into());
        }
        Ok(id)
    }

    /// Puts a revocation in force.
    pub(crate) fn revoke(&self, credential: [u8; 32]) {
        self.revoked.write().insert(credential);
    }

    /// Writes into the volume's format that it may have revocations, so that a program which does
    /// not know them does not open it. Blocks on the disk.
    ///
    /// # Errors
    /// `Io` if the format cannot be written.
    pub(crate) fn announce_revocations(&self) -> Result<(), Error> {
        match &self.roots {
            Some(roots) => {
                volume::set_has_revocations(roots.folder()).map_err(|error| volume_failed(&error))
            }
            None => Ok(()),
        }
    }

    fn is_root(&self, key: &Principal) -> bool {
        self.roots.as_ref().is_some_and(|roots| roots.has(key))
    }
}
