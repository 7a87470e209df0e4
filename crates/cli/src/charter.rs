//! The charter in the folder of a volume: what the first office says about roots and named keys.

use std::path::Path;

use pelago_keynote::key::named::NamedKeys;
use pelago_keynote::{Assertion, CHARTER_BYTES, Charter, Principal, SignedCharter};
use pelago_net::own_file::{OwnFileError, Readers};
use pelago_store::volume::{self, Format};
use pelago_wire::InodeId;
use pelago_wire::mirror::VolumeFile;

use crate::failure::{Exit, Failure, Outcome};
use crate::verbs::key::own_file;

#[derive(Debug, thiserror::Error)]
#[error("the file `charter` of the volume cannot be used")]
struct CharterUnusable(#[source] pelago_keynote::CharterError);

/// Returns the charter of the volume in this folder; `None` in the folder of the first office,
/// which has only the files from which it is made, and if none has come yet.
///
/// # Errors
/// If the file cannot be used.
pub(crate) fn of(dir: &Path) -> Outcome<Option<Charter>> {
    let folder = volume::open_folder(dir)?;
    let format = volume::read_mirrored(&folder, VolumeFile::Format)?;
    let format = format.and_then(|bytes| Format::decode(&bytes).ok());
    if format.is_none_or(|format| format.site == InodeId::ROOT.site()) {
        return Ok(None);
    }
    let text = match own_file(dir, volume::CHARTER)?.read(Readers::Everybody, CHARTER_BYTES) {
        Ok((text, _)) => text,
        Err(OwnFileError::Missing { .. }) => return Ok(None),
        Err(error) => return Err(Failure::new(Exit::from(error.kind()), error)),
    };
    let parsed = SignedCharter::parse(text.as_bytes()).map_err(|error| {
        Failure::new(Exit::Damaged, CharterUnusable(error))
            .hint("remove it: the volume's process gets it again when it has started")
    })?;
    Ok(Some(parsed.unverified()))
}

/// Returns the roots that the first office has, as another one knows them.
///
/// # Errors
/// As [`of`].
pub(crate) fn roots(dir: &Path) -> Outcome<Vec<Principal>> {
    let policy = of(dir)?.and_then(|charter| charter.policy);
    let policy = policy.and_then(|text| Assertion::policy(text.as_bytes()).ok());
    Ok(policy.map(|policy| policy.licensees().keys().collect()).unwrap_or_default())
}

/// Returns the keys that the first office has named, as another one knows them.
///
/// # Errors
/// As [`of`].
pub(crate) fn named_keys(dir: &Path) -> Outcome<NamedKeys> {
    let charter = of(dir)?;
    let keys = charter.and_then(|charter| NamedKeys::parse(&charter.keys).ok());
    Ok(keys.unwrap_or_default())
}
