//! Real mounts over a small server in memory. If nothing can be mounted, the tests are skipped.

#[cfg(test)]
mod direct;
#[cfg(test)]
mod elsewhere;
#[cfg(test)]
mod ends;
#[cfg(test)]
mod everyday;
#[cfg(test)]
mod find;
#[cfg(test)]
mod leased;
#[cfg(test)]
mod listing;
#[cfg(test)]
#[path = "../../../cli/tests/harness/mapping.rs"]
mod mapping;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod passthrough;
#[cfg(test)]
mod prune;
#[cfg(test)]
mod quiet;
#[cfg(test)]
mod ranges;
#[cfg(test)]
mod stall;

use std::path::PathBuf;
use std::sync::Arc;

use pelago_client::Files;
use pelago_mount::{Atime, IoUring, Keeps, Mount, MountError, MountOptions, Trusts, mount};
use pelago_wire::limits;
use tempfile::TempDir;

use crate::memory::Memory;

/// Limit of the inode table in bytes, unless a test changes it.
const INODE_TABLE_BYTES: u64 = limits::INODE_TABLE_BYTES as u64;

/// A mount that is detached at the end of its test, in use or not.
struct Mounted {
    mount: Mount,
    memory: Arc<Memory>,
    _folder: TempDir,
}

impl Mounted {
    fn path(&self, name: &str) -> PathBuf {
        self.mount.point().join(name)
    }
}

/// Returns by which door requests come: all tests hold for both.
fn io_uring() -> IoUring {
    if std::env::var_os("PELAGO_FUSE_RING").is_some() { IoUring::Always } else { IoUring::Never }
}

fn options(folder: &TempDir) -> MountOptions {
    MountOptions {
        mount_point: folder.path().to_owned(),
        fs_name: "a test, of ours".to_owned(),
        read_only: false,
        atime: Atime::default(),
        trusts: Trusts::default(),
        passthrough: false,
        inode_table_bytes: INODE_TABLE_BYTES,
        io_uring: io_uring(),
        keeps: Keeps::default(),
    }
}

/// Mounts, or prints why not and returns `None`.
fn mounted(hash: fn(&[u8]) -> u64) -> Option<Mounted> {
    mounted_as(hash, false)
}

/// Mounts with passthrough wanted.
fn mounted_with_passthrough() -> Option<Mounted> {
    mounted_as(memory::spread, true)
}

fn mounted_as(hash: fn(&[u8]) -> u64, passthrough: bool) -> Option<Mounted> {
    mounted_with(hash, |options| options.passthrough = passthrough)
}

fn mounted_with(hash: fn(&[u8]) -> u64, choose: impl FnOnce(&mut MountOptions)) -> Option<Mounted> {
    let folder = tempfile::tempdir().expect("a folder for the mount");
    let memory = Arc::new(Memory::new(hash));
    let service = Arc::clone(&memory);
    let files: Files = Files::new(service);
    let mut options = options(&folder);
    choose(&mut options);
    match mount(files, &options) {
        Ok(mount) => Some(Mounted { mount, memory, _folder: folder }),
        Err(
            error @ (MountError::NoDevice | MountError::NoPermission(_) | MountError::NoHelper),
        ) => {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error:?}"),
    }
}
