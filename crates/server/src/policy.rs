//! Which guests there are, and what each may use.
//!
//! A guest is a session whose client has shown a credential: a sentence, signed by a root of the
//! volume, that grants a key one directory and all below it. The file `policy` in the volume's
//! folder has the roots. Rows of the table have the credentials that were taken back.
//!
//! Nothing is remembered of an earlier verdict. Each request of a guest asks again whether its root
//! is still one, whether its credential was taken back, and where the node is.

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

/// The number of bytes that the wire carries is the one that is read.
const _: () = assert!(
    CREDENTIAL_BYTES == limits::CREDENTIAL_BYTES
        && CHAIN_LINKS == limits::CHAIN_LINKS
        && CHAIN_BYTES == limits::CHAIN_BYTES
        && REVOCATION_BYTES == limits::REVOCATION_BYTES
);

/// Which guests there are, and what each may use.
pub(crate) struct Policy {
    volume: VolumeId,
    /// `None` without a folder: there is no root, and so no guest.
    roots: Option<Roots>,
    /// The ids of the credentials that were taken back.
    revoked: RwLock<HashSet<[u8; 32]>>,
    guests: RwLock<HashMap<SessionId, Arc<Guest>>>,
    /// Whether there is any guest.
    any: AtomicBool,
}

/// The session of a guest.
pub(crate) struct Guest {
    pub(crate) grant: GuestGrant,
}

impl Policy {
    /// Returns the policy of the volume in this folder, where these credentials were taken back.
    pub(crate) fn new(volume: VolumeId, folder: Option<Folder>, revoked: Vec<[u8; 32]>) -> Self {
        Self {
            volume,
            roots: folder.map(Roots::new),
            revoked: RwLock::new(revoked.into_iter().collect()),
            guests: RwLock::default(),
            any: AtomicBool::new(false),
        }
    }

    /// Returns what a chain of credentials grants to a guest with this key.
    ///
    /// The chain must begin with a root and be for this key before a signature is verified: a
    /// stranger must not have the server calculate. Only the one for whom a chain is hears why it
    /// grants nothing.
    ///
    /// # Errors
    /// [`GuestRefusal`].
    pub(crate) fn admit(
        &self,
        principal: &[u8; 32],
        chain: &[Vec<u8>],
    ) -> Result<GuestGrant, GuestRefusal> {
        let [text] = chain else {
            let says = "this version takes a chain of one credential: delegation is not built yet";
            return Err(GuestRefusal(says.to_owned()));
        };
        let nothing = || GuestRefusal(String::new());
        let says = |error: &dyn ToString| GuestRefusal(error.to_string());
        let credential = Assertion::parse(text).map_err(|error| says(&error))?;
        let Authorizer::Key(root) = *credential.authorizer() else { return Err(nothing()) };
        if !self.is_root(&root) || credential.licensees() != [Principal(*principal)] {
            return Err(nothing());
        }
        credential.verify().map_err(|_| nothing())?;
        let share = SharedFolder::of(&credential).map_err(|error| says(&error))?;
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
    /// [`GuestRefusal`] if it has no right any more.
    pub(crate) fn begin(&self, session: SessionId, grant: &GuestGrant) -> Result<(), GuestRefusal> {
        let mut guests = self.guests.write();
        // Under the lock: a revocation looks for guests after it is in force.
        if !self.has_access(grant) {
            return Err(GuestRefusal("the credential was taken back".to_owned()));
        }
        guests.insert(session, Arc::new(Guest { grant: *grant }));
        self.any.store(true, Ordering::Release);
        Ok(())
    }

    /// Ends a session, which must not be known to the service any more: what is not a guest's is
    /// one of all rights. One that is no guest's does nothing.
    pub(crate) fn end(&self, session: SessionId) {
        if self.any.load(Ordering::Acquire) {
            let mut guests = self.guests.write();
            guests.remove(&session);
            self.any.store(!guests.is_empty(), Ordering::Release);
        }
    }

    /// Returns the guest of a session, if it is one's.
    #[inline]
    pub(crate) fn guest(&self, session: SessionId) -> Option<Arc<Guest>> {
        match self.any.load(Ordering::Acquire) {
            true => self.guests.read().get(&session).map(Arc::clone),
            false => None,
        }
    }

    /// Returns whether a grant is still one: its root is a root, and its credential was not taken
    /// back.
    pub(crate) fn has_access(&self, grant: &GuestGrant) -> bool {
        self.is_root(&Principal(grant.root)) && !self.revoked.read().contains(&grant.credential)
    }

    /// Reads a sentence that takes a credential of this volume back. Returns the credential's id.
    ///
    /// # Errors
    /// `Invalid` if it is none of this volume; `AccessDenied` if no root has signed it; `NoSpace`
    /// if too many were taken back.
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

    /// Makes sure that the volume says that it may have revocations, so that a program which does
    /// not know them does not open it. Blocks on the disk.
    ///
    /// # Errors
    /// `Io` if that cannot be written.
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
