//! The form of the credentials that Pelago writes: the right to read one directory of one volume.
//!
//! This version accepts exactly this form. Any other test is an error that names it, and is never
//! skipped.

use crate::assertion::Assertion;
use crate::conditions::{Compared, Conditions, Test};

/// The name of the application in Pelago's credentials, which RFC 2704 (2.3) requires.
pub(crate) const APPLICATION: &str = "pelago";
/// The granted rights: to read, and to execute.
const RIGHTS: [&str; 2] = ["r", "x"];

/// The directory that a credential grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedFolder {
    /// The id of the volume.
    pub volume: [u8; 16],
    /// The inode number of the directory. The directory and everything below it may be read.
    pub directory: u64,
}

/// The reason why the conditions of an assertion are not those of a [`SharedFolder`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SharedFolderError {
    /// A test is not part of this form.
    #[error("the credential has the test `{0}`, which this version of pelago does not take")]
    Unknown(String),
    /// A test is missing.
    #[error("the credential has no test of `{0}`, and this version of pelago wants one")]
    Missing(&'static str),
}

impl SharedFolder {
    /// Returns the conditions of the credential.
    #[must_use]
    pub fn conditions(&self) -> Conditions {
        let rights = RIGHTS.iter().map(|right| Compared::new("right", right)).collect();
        let directory = format!("/{:x}/", self.directory);
        Conditions::new(vec![
            Test::Equals(Compared::new("app_domain", APPLICATION)),
            Test::Equals(Compared::new("volume", &crate::hex::text(&self.volume))),
            Test::OneOf(rights),
            Test::Matches(Compared::new("ancestors", &directory)),
        ])
    }

    /// Returns the directory that an assertion grants.
    ///
    /// # Errors
    /// [`SharedFolderError`].
    pub fn of(credential: &Assertion) -> Result<Self, SharedFolderError> {
        let tests = credential.conditions().map(Conditions::tests).unwrap_or_default();
        let mut tests = tests.iter();
        let mut next = |attribute| tests.next().ok_or(SharedFolderError::Missing(attribute));
        match next("app_domain")? {
            Test::Equals(test) if test.attribute == "app_domain" && test.text == APPLICATION => {}
            test => return Err(unknown(test)),
        }
        let test = next("volume")?;
        let volume = match test {
            Test::Equals(test) if test.attribute == "volume" => crate::hex::read(&test.text),
            _ => None,
        };
        let volume = volume.ok_or_else(|| unknown(test))?;
        match next("right")? {
            Test::OneOf(rights) if grants_rights(rights) => {}
            test => return Err(unknown(test)),
        }
        let test = next("ancestors")?;
        let directory = match test {
            Test::Matches(test) if test.attribute == "ancestors" => directory(&test.text),
            _ => None,
        };
        let directory = directory.ok_or_else(|| unknown(test))?;
        match tests.next() {
            None => Ok(Self { volume, directory }),
            Some(test) => Err(unknown(test)),
        }
    }
}

fn unknown(test: &Test) -> SharedFolderError {
    SharedFolderError::Unknown(test.to_string())
}

fn grants_rights(rights: &[Compared]) -> bool {
    rights.iter().all(|right| right.attribute == "right")
        && rights.iter().map(|right| right.text.as_str()).eq(RIGHTS)
}

/// Parses the inode number in a pattern `/HEX/`, which has one text for each number. Without the
/// slashes the pattern would match longer numbers too.
fn directory(pattern: &str) -> Option<u64> {
    let digits = pattern.strip_prefix('/')?.strip_suffix('/')?;
    let number = u64::from_str_radix(digits, 16).ok()?;
    (format!("{number:x}") == digits).then_some(number)
}
