//! The credential by which the bearer of an invitation names the key of its site.
//!
//! An invitation contains the private half of a key that is used once. With it the new site signs
//! that its own key is the invited one, so that the key of a site never leaves the site.

use crate::assertion::Assertion;
use crate::conditions::{Conditions, Relation, Test};
use crate::share::APPLICATION;

/// The right that the bearer of an invitation grants to the key of its site: to be a site of the
/// volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiteInvitation {
    /// The id of the volume.
    pub volume: [u8; 16],
    /// The number of the site.
    pub site: u16,
}

impl SiteInvitation {
    /// Returns the conditions of the credential.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        Conditions::new(vec![
            Test::equals("app_domain", APPLICATION),
            Test::equals("volume", &crate::hex::text(&self.volume)),
            Test::equals("site", &self.site.to_string()),
        ])
    }

    /// Returns the right that an assertion grants; `None` unless it has exactly this form.
    #[must_use]
    pub fn of(sentence: &Assertion) -> Option<Self> {
        let tests = sentence.conditions().and_then(Conditions::tests)?;
        let [_, volume, site] = tests else { return None };
        let (_, Relation::Equal, volume) = volume.as_comparison()? else { return None };
        let (_, Relation::Equal, site) = site.as_comparison()? else { return None };
        let found = Self { volume: crate::hex::read(volume)?, site: site.parse().ok()? };
        let is_meant = found.conditions().tests() == Some(tests) && !sentence.has_constants();
        is_meant.then_some(found)
    }
}
