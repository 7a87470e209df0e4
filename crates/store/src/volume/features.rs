//! Features that a volume gets while it is open.

use parking_lot::Mutex;

use super::format::{NOT_PRIMARY, REVOCATIONS, SITES, TAGS_ARE_COMPLETE};
use super::{VolumeError, read_format, write_format};
use crate::folder::Folder;

/// Adds to the `format` of the volume in `folder` that there is a row for each tag, on stable
/// storage. The caller has the volume open, and has made these rows safe.
///
/// # Errors
/// [`VolumeError`]. Whether it was added is unknown then; the call can be repeated.
pub fn set_tags_complete(folder: &Folder) -> Result<(), VolumeError> {
    add_needed_feature(folder, TAGS_ARE_COMPLETE)
}

/// Adds to the `format` of the volume in `folder` that there may be revocations, on stable storage.
/// The caller has the volume open, and puts no such row before.
///
/// # Errors
/// [`VolumeError`]. Whether it was added is unknown then; the call can be repeated.
pub fn set_has_revocations(folder: &Folder) -> Result<(), VolumeError> {
    add_needed_feature(folder, REVOCATIONS)
}

/// Adds to the `format` of the volume in `folder` that it has several sites, on stable storage. The
/// caller has the volume open, and lets no site join before.
///
/// # Errors
/// [`VolumeError`]. Whether it was added is unknown then; the call can be repeated.
pub fn set_has_sites(folder: &Folder) -> Result<(), VolumeError> {
    add_needed_feature(folder, SITES)
}

/// Adds to the `format` of the volume in `folder` that another folder is its primary, on stable
/// storage.
///
/// # Errors
/// [`VolumeError`]. Whether it was added is unknown then; the call can be repeated.
pub fn set_not_primary(folder: &Folder) -> Result<(), VolumeError> {
    add_needed_feature(folder, NOT_PRIMARY)
}

/// Takes back [`set_not_primary`]: this folder is the primary after all.
///
/// # Errors
/// [`VolumeError`]. Whether it was taken back is unknown then; the call can be repeated.
pub fn set_primary_again(folder: &Folder) -> Result<(), VolumeError> {
    change_needed_features(folder, |features| features & !NOT_PRIMARY)
}

/// Adds a needed feature to the `format` of the volume in `folder`, on stable storage.
fn add_needed_feature(folder: &Folder, feature: u64) -> Result<(), VolumeError> {
    change_needed_features(folder, |features| features | feature)
}

fn change_needed_features(
    folder: &Folder,
    change: impl FnOnce(u64) -> u64,
) -> Result<(), VolumeError> {
    /// Of two at once, the later one would undo the earlier one.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME.lock();
    let mut format = read_format(folder)?.value;
    format.needed_features = change(format.needed_features);
    write_format(folder, &format)
}
