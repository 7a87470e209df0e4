//! The roots of a volume: the keys whose credentials its server accepts, as the file `policy` has
//! them.

use std::collections::HashSet;
use std::sync::Arc;

use pelago_keynote::share::attribute;
use pelago_keynote::{Assertion, CREDENTIAL_BYTES, Principal};
use pelago_store::folder::Folder;
use pelago_store::volume;
use pelago_wire::Time;

use super::scope::{grants_all_below, may_read};
use super::watched::{OnChange, Source, Watched};

/// The roots of a volume, which follow changes of the file. Without a file there is no root.
pub(super) struct Roots {
    file: Watched<InForce>,
}

/// The roots that are in force.
#[derive(Default)]
pub(super) struct InForce {
    pub(super) keys: HashSet<Principal>,
    /// The text; `None` without a file.
    policy: Option<Arc<Assertion>>,
    /// True if the policy asks for the address of a guest.
    reads_address: bool,
}

impl Roots {
    /// `on_change` gets the roots when they were read first, and when they have changed.
    pub(super) fn new(folder: Folder, on_change: OnChange<InForce>) -> Self {
        let source = Source {
            name: volume::POLICY,
            what: "the roots",
            limit: CREDENTIAL_BYTES,
            read: InForce::read,
        };
        Self { file: Watched::new(folder, source).with_on_change(on_change) }
    }

    /// Returns the folder of the volume.
    pub(super) fn folder(&self) -> &Folder {
        self.file.folder()
    }

    /// Returns whether a key is a root, by a file that was checked at most half a second ago.
    pub(super) fn has(&self, key: &Principal) -> bool {
        let mut state = self.file.checked();
        // A key that is no root may have become one a moment ago: the person who added it tries it
        // now.
        if !state.content.keys.contains(key) {
            self.file.look(&mut state);
        }
        state.content.keys.contains(key)
    }

    /// Returns the policy, by a file that was checked at most half a second ago.
    pub(super) fn policy(&self) -> Option<Arc<Assertion>> {
        self.file.checked().content.policy.clone()
    }

    /// Returns whether the policy asks for the address of a guest.
    pub(super) fn reads_address(&self) -> bool {
        self.file.checked().content.reads_address
    }

    /// Returns whether the policy grants all below a directory to which it grants a right.
    pub(super) fn grants_all_below(&self) -> bool {
        let state = self.file.checked();
        state.content.policy.as_ref().is_none_or(|policy| grants_all_below(policy))
    }

    /// Returns the number of changes of the policy, at this present time.
    #[inline]
    pub(super) fn changes(&self, now: Time) -> u64 {
        self.file.changes(now)
    }
}

impl InForce {
    fn read(text: &[u8]) -> Result<Self, String> {
        let policy =
            Assertion::policy(text).map_err(|error| format!("{error}: restore the file"))?;
        Ok(Self {
            keys: policy.licensees().keys().collect(),
            reads_address: may_read(&policy, attribute::ADDRESS),
            policy: Some(Arc::new(policy)),
        })
    }
}
