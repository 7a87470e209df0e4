//! Credentials that a server issues to the maker of a file or folder, and the one by which it may.
//!
//! The maker has got the right to create by a chain of credentials, and what he is issued must not
//! outlive that. So it counts only in a chain that begins with the chain of the moment, which is
//! examined with it: by its ends, and by what was taken back. The whole is
//!
//! ```text
//! the chain of the moment, the licence of the server, the issued credential
//! ```

use super::{
    APPLICATION, Grant, Right, Rights, ShareFormError, attribute, tests_of_rights, unknown,
};
use crate::assertion::Assertion;
use crate::conditions::{Conditions, Test};
use crate::hex;

/// The value of the attribute `issued` under which a licence counts.
const TRUE: &str = "true";

/// The credential by which a root of a volume lets its server issue credentials.
///
/// It grants the rights of a maker to all of the volume, but only in chains in which each
/// credential that the server has signed is an [`IssuedGrant`], bound to a chain with which that
/// chain begins. So the server's key alone opens no session of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IssuingLicence {
    /// The id of the volume.
    pub volume: [u8; 16],
}

impl IssuingLicence {
    /// Returns the conditions of the credential.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        let mut tests = tests_of_rights(&self.volume, Rights::OF_MAKER).to_vec();
        tests.push(Test::equals(attribute::ISSUED, TRUE));
        Conditions::new(tests)
    }

    /// Returns the licence that a credential is; `None` unless it has exactly this form.
    #[must_use]
    pub fn of(credential: &Assertion) -> Option<Self> {
        let tests = credential.conditions()?.tests()?;
        let [application, volume, ..] = tests else { return None };
        if *application != Test::equals(attribute::APP_DOMAIN, APPLICATION) {
            return None;
        }
        let found = Self { volume: hex::read(volume.as_comparison()?.2)? };
        let is_meant = found.conditions().tests() == Some(tests) && !credential.has_constants();
        is_meant.then_some(found)
    }

    /// Returns the value of the attribute `issued` for a chain that keeps the rule of licences, or
    /// does not.
    #[must_use]
    pub const fn value(is_kept: bool) -> &'static str {
        if is_kept { TRUE } else { "false" }
    }
}

/// The rights to what its holder has made, in chains that begin with a certain one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedGrant {
    /// The rights.
    pub grant: Grant,
    /// The id of the chain by which the holder was a guest.
    pub chain: [u8; 32],
}

impl IssuedGrant {
    /// Returns the conditions of the credential.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        let mut tests = self.grant.tests();
        let pattern = format!("/{}/", hex::text(&self.chain));
        tests.push(Test::matches(attribute::CHAIN, &pattern));
        Conditions::new(tests)
    }

    /// Returns the rights that a credential grants.
    ///
    /// # Errors
    /// [`ShareFormError`].
    pub fn of(credential: &Assertion) -> Result<Self, ShareFormError> {
        if credential.has_constants() {
            return Err(ShareFormError::Constants);
        }
        let tests = credential.conditions().and_then(Conditions::tests);
        let (last, tests) = tests.and_then(<[Test]>::split_last).ok_or(ShareFormError::Program)?;
        let chain = chain_of(last).ok_or_else(|| unknown(last))?;
        Ok(Self { grant: Grant::of_tests(tests)?, chain })
    }
}

/// Returns the id in a test of the chain.
fn chain_of(test: &Test) -> Option<[u8; 32]> {
    let (attribute::CHAIN, pattern) = test.as_match()? else { return None };
    let digits = pattern.strip_prefix('/')?.strip_suffix('/')?;
    hex::read(digits)
}

/// Returns the ids of the chains with which a chain begins, from the first credential alone to all.
/// `credentials` are the ids of its credentials.
pub fn chain_ids(credentials: impl IntoIterator<Item = [u8; 32]>) -> Vec<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    let ids = credentials.into_iter();
    ids.map(|id| *hasher.update(&id).finalize().as_bytes()).collect()
}

/// Returns the value of the attribute `chain` for these ids.
#[must_use]
pub fn chain_text(ids: &[[u8; 32]]) -> String {
    let mut text = "/".to_owned();
    for id in ids {
        text.push_str(&hex::text(id));
        text.push('/');
    }
    text
}

impl Rights {
    /// Returns whether these contain the right to change something.
    #[must_use]
    pub fn may_change(self) -> bool {
        [Right::Write, Right::Create, Right::Delete].into_iter().any(|right| self.has(right))
    }
}
