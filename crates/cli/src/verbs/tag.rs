//! `pelago tag`.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap_complete::ArgValueCompleter;
use pelago_mount::mountinfo;
use pelago_wire::limits::TAG_KEY_BYTES;
use pelago_wire::xattr::{TAG_PREFIX, is_tag_key, tag_key};
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr, stat};
use rustix::io::Errno;
use serde_json::{Map, Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::{complete, json, output};

const AFTER: &str = "\
A tag is the extended attribute `user.tag.KEY` of the file, so `cp -a`, `rsync -X` and backups \
keep it. `pelago find KEY=VALUE` finds the files that have it.";

/// The limits of the kernel for the names of all attributes of a file, and for a value.
const NAMES_BYTES: usize = 64 << 10;
const VALUE_BYTES: usize = 64 << 10;

/// Set, remove and print the tags of a file.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The file or folder
    path: PathBuf,
    /// Tags to set: a key of letters, digits, `.`, `_` and `-`, and its value
    #[arg(value_name = "KEY=VALUE", add = ArgValueCompleter::new(complete::tag))]
    tags: Vec<OsString>,
    /// Remove this tag; can be repeated
    #[arg(long, value_name = "KEY", add = ArgValueCompleter::new(complete::key_of_file))]
    remove: Vec<String>,
    /// Print the tags, after the changes; also without any change
    #[arg(long)]
    list: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// A tag that is to be set.
struct Tag<'a> {
    key: &'a str,
    value: &'a [u8],
}

/// Changes the tags, and prints them with `--list`, or if there is no change.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    // All are checked first, so that nothing changes if one of them is wrong.
    let tags: Vec<Tag<'_>> = args.tags.iter().map(|text| parse(text)).collect::<Outcome<_>>()?;
    args.remove.iter().try_for_each(|key| check_key(key))?;
    check_mount(&args.path)?;
    for Tag { key, value } in &tags {
        let set = setxattr(&args.path, attribute(key), value, XattrFlags::empty());
        set.map_err(|errno| failed(&args.path, &format!("set the tag {key}"), errno))?;
    }
    for key in &args.remove {
        let removed = removexattr(&args.path, attribute(key));
        removed.map_err(|errno| failed(&args.path, &format!("remove the tag {key}"), errno))?;
    }
    if args.json {
        let tags = tags_of(&args.path)?;
        let tags = tags.iter().map(|(key, value)| (key.clone(), json!(shown(value))));
        let tags: Map<String, Value> = tags.collect();
        output::print_json(&json!({ "version": json::VERSION, "tags": tags }))?;
    } else if args.list || tags.is_empty() && args.remove.is_empty() {
        let tags = tags_of(&args.path)?;
        let line =
            |(key, value): &(String, Vec<u8>)| format!("{key}={}\n", output::name(&shown(value)));
        output::print(&tags.iter().map(line).collect::<String>())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses a file outside of Pelago mounts: other file systems store the attribute too, but no
/// search would find it. If the file cannot be examined, the operations that follow return the
/// error.
fn check_mount(path: &Path) -> Outcome<()> {
    let found = stat(path).ok().and_then(|stat| mountinfo::of_device(stat.st_dev).ok()?);
    let Some(mount) = found.filter(|mount| mount.fs_type != mountinfo::FS_TYPE) else {
        return Ok(());
    };
    let path = output::name(&path.to_string_lossy()).into_owned();
    let why =
        format!("{path} is not in a volume: it is on a file system of type {}", mount.fs_type);
    let hint = "tags are for files in a mount of a volume; elsewhere no search finds them";
    Err(Failure::new(Exit::NotFound, why).hint(hint))
}

/// Returns the tags of a file in the order of their keys.
fn tags_of(path: &Path) -> Outcome<Vec<(String, Vec<u8>)>> {
    let mut names = vec![0; NAMES_BYTES];
    let count = listxattr(path, &mut names[..]);
    names.truncate(count.map_err(|errno| failed(path, "list the tags", errno))?);
    let mut tags = Vec::new();
    for name in names.split(|byte| *byte == 0) {
        let Some(key) = tag_key(name) else { continue };
        // The tag may have been removed meanwhile.
        if let Some(value) = value_of(path, key)? {
            tags.push((key.to_owned(), value));
        }
    }
    tags.sort_unstable();
    Ok(tags)
}

/// Returns the value of a tag, if the file has it.
fn value_of(path: &Path, key: &str) -> Outcome<Option<Vec<u8>>> {
    let mut value = vec![0; VALUE_BYTES];
    match getxattr(path, attribute(key), &mut value[..]) {
        Ok(count) => {
            value.truncate(count);
            Ok(Some(value))
        }
        Err(Errno::NODATA) => Ok(None),
        Err(errno) => Err(failed(path, &format!("read the tag {key}"), errno)),
    }
}

/// Returns the name of the extended attribute of a tag.
fn attribute(key: &str) -> String {
    format!("{TAG_PREFIX}{key}")
}

fn parse(text: &OsStr) -> Outcome<Tag<'_>> {
    let bytes = text.as_bytes();
    let wrong = || {
        let text = output::name(&text.to_string_lossy()).into_owned();
        Failure::new(Exit::Usage, format!("`{text}` is no tag"))
            .hint("write KEY=VALUE, as in `project=apollo`")
    };
    let at = bytes.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
    let key = str::from_utf8(&bytes[..at]).map_err(|_invalid| wrong())?;
    check_key(key)?;
    Ok(Tag { key, value: &bytes[at + 1..] })
}

fn check_key(key: &str) -> Outcome<()> {
    if is_tag_key(key) {
        return Ok(());
    }
    let key = output::name(key).into_owned();
    let hint = format!("a key has 1 to {TAG_KEY_BYTES} letters, digits, `.`, `_` and `-`");
    Err(Failure::new(Exit::Usage, format!("`{key}` is no key of a tag")).hint(hint))
}

/// Returns a value as text. Bytes that are not UTF-8 are replaced.
fn shown(value: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(value)
}

fn failed(path: &Path, what: &str, errno: Errno) -> Failure {
    let (exit, hint) = match errno {
        Errno::NOENT | Errno::NOTDIR => (Exit::NotFound, None),
        Errno::ACCESS | Errno::PERM => (Exit::Denied, None),
        Errno::NODATA => (Exit::NotFound, Some("`pelago tag PATH` prints the tags that it has")),
        Errno::OPNOTSUPP => (Exit::Failed, Some("tags are for files on a volume")),
        _ => (Exit::Failed, None),
    };
    let path = output::name(&path.to_string_lossy()).into_owned();
    let why = match errno {
        Errno::NODATA => "it has no such tag".to_owned(),
        errno => std::io::Error::from(errno).to_string(),
    };
    let failure = Failure::new(exit, format!("cannot {what} of {path}: {why}"));
    hint.into_iter().fold(failure, Failure::hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_a_key_and_anything_behind_the_first_equals_sign() {
        let tag = parse(OsStr::from_bytes(b"shot.no=a=\xff b")).unwrap();
        assert_eq!((tag.key, tag.value), ("shot.no", &b"a=\xff b"[..]));
        assert!(parse(OsStr::new("empty=")).unwrap().value.is_empty());
        for wrong in ["none", "=value", "a b=c", "a/b=c", "\u{e9}=c"] {
            assert!(parse(OsStr::new(wrong)).is_err(), "{wrong}");
        }
    }
}
