//! A file of a mount, of which a query is asked. What costs a request is asked for once it is
//! needed.

use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use nix::unistd::User;
use pelago_find::Candidate;
use pelago_wire::{FileKind, Time};
use rustix::fs::{OFlags, lgetxattr};
use rustix::io::Errno;

use crate::verbs::tag;

/// Bytes of a text that are looked at.
const TEXT_BYTES: u64 = 256 << 10;

/// Room for the value of most tags.
const SHORT_VALUE_BYTES: usize = 256;

/// The numbers of users by their names, each looked up once.
#[derive(Debug, Default)]
pub(super) struct Users(RefCell<BTreeMap<String, Option<u32>>>);

/// A file.
pub(super) struct Found<'a> {
    path: &'a Path,
    name: &'a OsStr,
    kind: fs::FileType,
    users: &'a Users,
    metadata: OnceCell<Option<Metadata>>,
    /// It is gone, or nothing of it can be known.
    is_gone: Cell<bool>,
}

impl Users {
    fn uid_of(&self, name: &str) -> Option<u32> {
        let mut known = self.0.borrow_mut();
        if let Some(uid) = known.get(name) {
            return *uid;
        }
        // If the system cannot tell, there is no such user here.
        let uid = User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
        known.insert(name.to_owned(), uid);
        uid
    }
}

impl<'a> Found<'a> {
    pub(super) const fn new(
        path: &'a Path,
        name: &'a OsStr,
        kind: fs::FileType,
        users: &'a Users,
    ) -> Self {
        Self { path, name, kind, users, metadata: OnceCell::new(), is_gone: Cell::new(false) }
    }

    /// Returns whether it went away while it was looked at: it is no match then, whatever was
    /// answered about it.
    pub(super) const fn is_gone(&self) -> bool {
        self.is_gone.get()
    }

    fn metadata(&self) -> Option<&Metadata> {
        let metadata = self.metadata.get_or_init(|| {
            let read = fs::symlink_metadata(self.path);
            self.is_gone.set(self.is_gone.get() || read.is_err());
            read.ok()
        });
        metadata.as_ref()
    }

    /// Returns the beginning of the text of a file, if it is UTF-8 that this user may read.
    fn text(&self) -> io::Result<Option<String>> {
        // Another one may have its place by now, of which nothing is to be waited for.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        // All flags are in the lower 31 bits.
        let file: File =
            OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(self.path)?;
        let mut bytes = Vec::new();
        file.take(TEXT_BYTES).read_to_end(&mut bytes)?;
        let whole = match str::from_utf8(&bytes) {
            Ok(_) => bytes.len(),
            // The last letter was cut.
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Ok(None),
        };
        bytes.truncate(whole);
        Ok(String::from_utf8(bytes).ok())
    }
}

impl Candidate for Found<'_> {
    fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    fn kind(&self) -> FileKind {
        let kind = self.kind;
        match kind {
            _ if kind.is_dir() => FileKind::Directory,
            _ if kind.is_symlink() => FileKind::Symlink,
            _ if kind.is_fifo() => FileKind::Fifo,
            _ if kind.is_socket() => FileKind::Socket,
            _ if kind.is_char_device() => FileKind::CharDevice,
            _ if kind.is_block_device() => FileKind::BlockDevice,
            _ => FileKind::Regular,
        }
    }

    fn size(&self) -> u64 {
        self.metadata().map_or(0, Metadata::len)
    }

    fn mtime(&self) -> Time {
        let time = self.metadata().map(|it| (it.mtime(), it.mtime_nsec()));
        let (seconds, nanos) = time.unwrap_or_default();
        Time { seconds, nanos: u32::try_from(nanos).unwrap_or_default() }
    }

    fn uid(&self) -> u32 {
        self.metadata().map_or(u32::MAX, MetadataExt::uid)
    }

    fn tag(&self, key: &str) -> Option<Cow<'_, [u8]>> {
        let name = tag::attribute(key);
        // Without the right to read it there is none.
        for room in [SHORT_VALUE_BYTES, tag::VALUE_BYTES] {
            let mut value = vec![0; room];
            match lgetxattr(self.path, &name, &mut value[..]) {
                Ok(count) => {
                    value.truncate(count);
                    return Some(Cow::Owned(value));
                }
                Err(Errno::RANGE) => {}
                Err(_) => return None,
            }
        }
        None
    }

    fn has_text(&self, words: &[String]) -> bool {
        if !self.kind.is_file() {
            return false;
        }
        let Ok(Some(text)) = self.text() else { return false };
        let mut missing: BTreeSet<&str> = words.iter().map(String::as_str).collect();
        for word in pelago_find::words(&text) {
            missing.remove(word.as_str());
            if missing.is_empty() {
                return true;
            }
        }
        missing.is_empty()
    }

    fn uid_of(&self, name: &str) -> Option<u32> {
        self.users.uid_of(name)
    }
}
