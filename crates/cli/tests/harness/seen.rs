//! A tree as programs see it: attributes, links, extended attributes and bytes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use rustix::fs::{lgetxattr, llistxattr};
use xxhash_rust::xxh3::xxh3_64;

/// The attributes and bytes of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    mode: u32,
    uid: u32,
    gid: u32,
    /// 0 for a directory.
    size: u64,
    links: u64,
    mtime: (i64, i64),
    rdev: u64,
    target: Option<Vec<u8>>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: Option<u64>,
}

impl Seen {
    /// Returns the same with another owner.
    pub(crate) fn of_owner(self, uid: u32, gid: u32) -> Self {
        Self { uid, gid, ..self }
    }
}

/// Each path below a folder with its attributes and bytes; an error if it cannot be read in full.
pub(crate) type Tree = BTreeMap<String, std::io::Result<Seen>>;

/// Reads a tree. A directory that cannot be listed is an error under its own path.
pub(crate) fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    walk(root, "", &mut tree);
    tree
}

fn walk(folder: &Path, below: &str, tree: &mut Tree) {
    let entries = match fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>) {
        Ok(entries) => entries,
        Err(error) => {
            tree.insert(below.to_owned(), Err(error));
            return;
        }
    };
    for entry in entries {
        let name = entry.file_name().into_string().unwrap();
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let seen = see(&entry.path());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        tree.insert(path.clone(), seen);
        if is_folder {
            walk(&entry.path(), &path, tree);
        }
    }
}

fn see(path: &Path) -> std::io::Result<Seen> {
    let meta = fs::symlink_metadata(path)?;
    let kind = meta.file_type();
    Ok(Seen {
        mode: meta.mode(),
        uid: meta.uid(),
        gid: meta.gid(),
        size: if kind.is_dir() { 0 } else { meta.len() },
        links: if kind.is_dir() { 0 } else { meta.nlink() },
        mtime: (meta.mtime(), meta.mtime_nsec()),
        rdev: meta.rdev(),
        target: match kind.is_symlink() {
            true => Some(fs::read_link(path)?.as_os_str().as_bytes().to_vec()),
            false => None,
        },
        xattrs: xattrs(path)?,
        bytes: if kind.is_file() { Some(xxh3_64(&fs::read(path)?)) } else { None },
    })
}

fn xattrs(path: &Path) -> std::io::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    let mut names = vec![0; 65_536];
    let length = llistxattr(path, &mut names[..])?;
    let mut found = BTreeMap::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 65_536];
        let length = lgetxattr(path, name, &mut value[..])?;
        value.truncate(length);
        found.insert(name.to_vec(), value);
    }
    Ok(found)
}
