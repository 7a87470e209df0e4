//! The roots of a volume: the keys whose credentials its server accepts, as the file `policy` has
//! them, and at another site than the first one the charter too.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use pelago_keynote::share::attribute;
use pelago_keynote::{Assertion, CREDENTIAL_BYTES, Principal};
use pelago_store::clock;
use pelago_store::folder::Folder;
use pelago_store::volume;
use pelago_wire::Time;

use super::scope::{grants_all_below, may_read, only_seeks_ancestors};
use super::watched::{OnChange, Source, Watched};

/// The roots of a volume, which follow changes of the file. Without a file there are only those of
/// the first site, at another one.
pub(super) struct Roots {
    file: Watched<InForce>,
    /// The roots that the first site has passed on. A leaf lock.
    elsewhere: RwLock<Arc<InForce>>,
    /// The number of changes of `elsewhere`.
    changes_elsewhere: AtomicU64,
    /// The policies that are in force, with the number of changes. A leaf lock.
    policies: Mutex<Option<(u64, Arc<Policies>)>>,
}

/// The policies that are in force together: what one of them grants is granted.
pub(super) struct Policies(Vec<Arc<Assertion>>);

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
        Self {
            file: Watched::new(folder, source).with_on_change(on_change),
            elsewhere: RwLock::default(),
            changes_elsewhere: AtomicU64::new(0),
            policies: Mutex::default(),
        }
    }

    /// Returns the text of the own policy that is in force; `None` if it is not known. The text is
    /// `None` without a policy.
    pub(super) fn text(&self) -> Option<Option<String>> {
        let state = self.file.checked();
        let policy = &state.content.policy;
        state.is_known.then(|| policy.as_ref().map(|policy| policy.text().to_owned()))
    }

    /// Checks the file now.
    #[cfg(test)]
    pub(super) fn look(&self) {
        let mut state = self.file.checked();
        self.file.look(&mut state);
    }

    /// Puts the policy of the first site in force beside the own one.
    pub(super) fn set_elsewhere(&self, roots: InForce) {
        *self.elsewhere.write() = Arc::new(roots);
        self.changes_elsewhere.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the folder of the volume.
    pub(super) fn folder(&self) -> &Folder {
        self.file.folder()
    }

    /// Returns whether a key is a root, by a file that was checked at most half a second ago.
    pub(super) fn has(&self, key: &Principal) -> bool {
        if self.elsewhere.read().keys.contains(key) {
            return true;
        }
        let mut state = self.file.checked();
        // A key that is no root may have become one a moment ago: the person who added it tries it
        // now.
        if !state.content.keys.contains(key) {
            self.file.look(&mut state);
        }
        state.content.keys.contains(key)
    }

    /// Returns the policies, by a file that was checked at most half a second ago; `None` if there
    /// is none.
    pub(super) fn policy(&self) -> Option<Arc<Policies>> {
        // Before they are read: if they change meanwhile, they are read again.
        let changes = self.changes(clock::coarse_now());
        let mut known = self.policies.lock();
        if let Some((_, policies)) = known.as_ref().filter(|(of, _)| *of == changes) {
            return policies.any();
        }
        let own = self.file.checked().content.policy.clone();
        let elsewhere = self.elsewhere.read().policy.clone();
        let policies = Arc::new(Policies(own.into_iter().chain(elsewhere).collect()));
        *known = Some((changes, Arc::clone(&policies)));
        policies.any()
    }

    /// Returns whether a policy asks for the address of a guest.
    pub(super) fn reads_address(&self) -> bool {
        self.elsewhere.read().reads_address || self.file.checked().content.reads_address
    }

    /// Returns whether the policies grant all below a directory to which they grant a right.
    pub(super) fn grants_all_below(&self) -> bool {
        let policies = self.policy();
        policies.is_none_or(|policies| policies.assertions().all(grants_all_below))
    }

    /// Returns the number of changes of the policy, at this present time.
    #[inline]
    pub(super) fn changes(&self, now: Time) -> u64 {
        // Both only grow.
        self.file.changes(now) + self.changes_elsewhere.load(Ordering::Acquire)
    }
}

impl Policies {
    /// Returns these, if there is one.
    fn any(self: &Arc<Self>) -> Option<Arc<Self>> {
        (!self.0.is_empty()).then(|| Arc::clone(self))
    }

    pub(super) fn assertions(&self) -> impl Iterator<Item = &Assertion> {
        self.0.iter().map(|policy| &**policy)
    }

    /// Returns the roots.
    pub(super) fn keys(&self) -> impl Iterator<Item = Principal> {
        self.assertions().flat_map(|policy| policy.licensees().keys())
    }

    pub(super) fn has(&self, key: &Principal) -> bool {
        self.keys().any(|root| root == *key)
    }

    /// Returns whether one of them has conditions.
    pub(super) fn has_conditions(&self) -> bool {
        self.assertions().any(|policy| policy.conditions().is_some())
    }

    /// Returns whether one of them may ask for an attribute.
    pub(super) fn may_read(&self, attribute: &str) -> bool {
        self.assertions().any(|policy| may_read(policy, attribute))
    }

    /// Returns whether all can be decided from the last directories above an object.
    pub(super) fn only_seek_ancestors(&self) -> bool {
        self.assertions().all(only_seeks_ancestors)
    }
}

impl InForce {
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let policy =
            Assertion::policy(text).map_err(|error| format!("{error}: restore the file"))?;
        Ok(Self {
            keys: policy.licensees().keys().collect(),
            reads_address: may_read(&policy, attribute::ADDRESS),
            policy: Some(Arc::new(policy)),
        })
    }
}
