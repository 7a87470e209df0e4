//! Queries to a mount for the tags of its files. If a query fails, the result is empty.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use pelago_wire::xattr::tag_key;
use rustix::fs::listxattr;

use crate::control_file::{Control, Record};

/// The limit of the kernel for the names of all attributes of a file.
const NAMES_BYTES: usize = 64 << 10;

/// Returns the keys with a prefix that files below a directory have.
pub(super) fn keys(dir: &Path, prefix: &str) -> Vec<String> {
    let parts = parts(dir, format!("?tags {prefix}").as_bytes());
    parts.into_iter().filter_map(|key| String::from_utf8(key).ok()).collect()
}

/// Returns the values of a key with a prefix that files below a directory have.
pub(super) fn values(dir: &Path, key: &str, prefix: &[u8]) -> Vec<Vec<u8>> {
    // The mount drops one line end at the end. With this one, a line end of the prefix stays.
    let question = [format!("?values {key} ").as_bytes(), prefix, b"\n"].concat();
    parts(dir, &question)
}

/// Returns the keys that a file has.
pub(super) fn keys_of(path: &Path) -> Vec<String> {
    let mut names = vec![0; NAMES_BYTES];
    let count = listxattr(path, &mut names[..]).unwrap_or(0);
    names.truncate(count);
    let keys = names.split(|byte| *byte == 0).filter_map(tag_key);
    let mut keys: Vec<String> = keys.map(str::to_owned).collect();
    keys.sort_unstable();
    keys
}

/// Returns the highest directory in the mount of a file that can be listed.
pub(super) fn top_of_mount(path: &Path) -> PathBuf {
    let Ok(path) = fs::canonicalize(path) else { return path.to_owned() };
    let device = |path: &Path| fs::symlink_metadata(path).map(|found| found.dev()).ok();
    let of_file = device(&path);
    let in_mount = path.ancestors().take_while(|above| device(above) == of_file);
    let lists = |dir: &&Path| fs::read_dir(dir).is_ok();
    in_mount.filter(lists).last().unwrap_or(&path).to_owned()
}

fn parts(dir: &Path, question: &[u8]) -> Vec<Vec<u8>> {
    let Ok(mut control) = Control::ask(dir, question) else { return Vec::new() };
    let mut parts = Vec::new();
    while let Ok(Some(record)) = control.next_record() {
        match record {
            Record::Part(part) => parts.push(part),
            Record::End { .. } | Record::Error(_) => break,
            Record::Hit(_) | Record::Progress(_) => {}
        }
    }
    parts
}
