//! Subfolders that are far from each other on the disk, on an ext4 without a journal.
//!
//! Such a file system does not use an inode again for some minutes after its file was removed, and
//! each create looks at all of these inodes (`recently_deleted` in `fs/ext4/ialloc.c`). The inodes
//! of a subfolder's files are in the block group of the subfolder, and by default all subfolders
//! are in one or two groups: for minutes after a large tree was removed, a create takes longer than
//! the rest of the work of its request. The flag `FS_TOPDIR_FL` spreads new subfolders over the
//! groups. With a journal it gains nothing.

use std::fs;
use std::os::fd::AsFd;

use rustix::fs::{IFlags, fstat, fstatfs, ioctl_getflags, ioctl_setflags, major, minor};
use rustix::io::Errno;

/// The type of ext2, ext3 and ext4 (`linux/magic.h`).
const EXT4_SUPER_MAGIC: i64 = 0xef53;
/// The folder with an entry `DISK-INODE` for each journal of an ext4.
const JOURNALS: &str = "/proc/fs/jbd2";

/// Sets the flag that spreads new subfolders of a folder, if that gains anything. A failure does no
/// harm.
pub(super) fn spread(folder: impl AsFd) {
    if let Err(error) = try_spread(folder) {
        tracing::debug!(%error, "the subfolders of content are not spread over the disk");
    }
}

fn try_spread(folder: impl AsFd) -> Result<(), Errno> {
    let folder = folder.as_fd();
    if fstatfs(folder)?.f_type != EXT4_SUPER_MAGIC || has_journal(fstat(folder)?.st_dev) {
        return Ok(());
    }
    let flags = ioctl_getflags(folder)?;
    if !flags.contains(IFlags::TOPDIR) {
        ioctl_setflags(folder, flags | IFlags::TOPDIR)?;
    }
    Ok(())
}

/// Returns whether the file system on a disk has a journal there; `true` if that is unknown.
fn has_journal(device: u64) -> bool {
    let link = format!("/sys/dev/block/{}:{}", major(device), minor(device));
    let Ok(disk) = fs::read_link(link) else { return true };
    let Some(disk) = disk.file_name().and_then(|disk| disk.to_str()) else { return true };
    let Ok(journals) = fs::read_dir(JOURNALS) else { return true };
    journals.flatten().any(|journal| {
        let name = journal.file_name();
        name.to_str().and_then(|name| name.rsplit_once('-')).is_some_and(|(of, _)| of == disk)
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn subfolders_are_spread_on_an_ext4_without_a_journal_alone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = File::open(dir.path()).unwrap();
        spread(&folder);
        let is_ext4 = fstatfs(&folder).unwrap().f_type == EXT4_SUPER_MAGIC;
        let wanted = is_ext4 && !has_journal(fstat(&folder).unwrap().st_dev);
        let flags = ioctl_getflags(&folder).unwrap_or(IFlags::empty());
        assert_eq!(flags.contains(IFlags::TOPDIR), wanted);
    }
}
