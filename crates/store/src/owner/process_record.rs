//! The record of a living process: the text of its file in `alive/`.
//!
//! It has four lines, `key`, `address`, `boot` and `lock`, each the word, a space and the value.
//! The file is written whole before it gets its name, and never changed.

use std::io::{self, Read as _};
use std::os::fd::AsFd;

use rustix::fs::fstat;

/// Most bytes of a file in `alive/` or `servers/`.
pub(super) const TEXT_BYTES: usize = 1024;
/// The file in which Linux has the boot id of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Most bytes of that file that are read.
const BOOT_ID_BYTES: u64 = 64;

/// The record that a process writes about itself, by which others reach it and prove its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessRecord {
    /// The public key of the server, as text.
    pub key: String,
    /// The address at which it serves, `KEY@HOST:PORT`.
    pub address: String,
    /// The boot id of its machine ([`boot_id`]).
    pub boot: String,
    /// The lock of its own folder, which it holds as long as it lives.
    pub lock: LockId,
}

/// The device and inode number of a file: as long as its machine has not started again, equal
/// numbers are the same file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockId {
    /// The number of the device.
    pub device: u64,
    /// The number of the inode.
    pub inode: u64,
}

impl LockId {
    /// Returns the numbers of an open file.
    ///
    /// # Errors
    /// If the file cannot be examined.
    pub fn of(file: &impl AsFd) -> io::Result<Self> {
        let stat = fstat(file)?;
        Ok(Self { device: stat.st_dev, inode: stat.st_ino })
    }
}

/// Returns the boot id of this machine: another one after each start.
///
/// # Errors
/// If the kernel's file cannot be read.
pub fn boot_id() -> io::Result<String> {
    let mut text = String::new();
    std::fs::File::open(BOOT_ID)?.take(BOOT_ID_BYTES).read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

impl ProcessRecord {
    /// Returns whether `self`, which holds the lock of its folder, proves that the process with the
    /// record `other` has ended: it held the same lock, on the same machine, since it was started.
    pub(super) fn proves_end_of(&self, other: &Self) -> bool {
        !self.boot.is_empty() && self.boot == other.boot && self.lock == other.lock
    }

    /// Encodes to the text of the file; `None` if a value is empty or has a line break, or if all
    /// is too long.
    pub(super) fn encode(&self) -> Option<String> {
        let LockId { device, inode } = self.lock;
        let Self { key, address, boot, .. } = self;
        let values = [key, address, boot];
        let fits = |text: &&&String| !text.is_empty() && !text.contains(char::is_control);
        let text = format!("key {key}\naddress {address}\nboot {boot}\nlock {device} {inode}\n");
        (values.iter().filter(fits).count() == values.len() && text.len() <= TEXT_BYTES)
            .then_some(text)
    }

    /// Decodes the text of a file; `None` if it is no record.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let mut value = |word: &str| lines.next()?.strip_prefix(word)?.strip_prefix(' ');
        let key = value("key")?.to_owned();
        let address = value("address")?.to_owned();
        let boot = value("boot")?.to_owned();
        let (device, inode) = value("lock")?.split_once(' ')?;
        let lock = LockId { device: device.parse().ok()?, inode: inode.parse().ok()? };
        let record = Self { key, address, boot, lock };
        // A record has one spelling: a text that would be written otherwise is refused.
        (lines.next().is_none() && record.encode().is_some_and(|own| own == text)).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record() -> ProcessRecord {
        ProcessRecord {
            key: "pelago1key".to_owned(),
            address: "pelago1key@host:1".to_owned(),
            boot: "some-boot".to_owned(),
            lock: LockId { device: 3, inode: 5 },
        }
    }

    #[test]
    fn what_a_process_says_is_read_back() {
        let text = record().encode().unwrap();
        assert_eq!(text, "key pelago1key\naddress pelago1key@host:1\nboot some-boot\nlock 3 5\n");
        assert_eq!(ProcessRecord::decode(text.as_bytes()), Some(record()));
        for cut in 0..text.len() {
            assert_eq!(ProcessRecord::decode(&text.as_bytes()[..cut]), None, "{cut}");
        }
        assert_eq!(ProcessRecord::decode(format!("{text}more\n").as_bytes()), None);
        assert_eq!(ProcessRecord { key: "a\nb".to_owned(), ..record() }.encode(), None);
        assert_eq!(ProcessRecord { key: String::new(), ..record() }.encode(), None);
        assert_eq!(ProcessRecord { key: "k".repeat(2000), ..record() }.encode(), None);
    }

    #[test]
    fn only_the_same_lock_in_the_same_boot_proves_an_end() {
        assert!(record().proves_end_of(&record()));
        let other = LockId { device: 3, inode: 6 };
        assert!(!record().proves_end_of(&ProcessRecord { lock: other, ..record() }));
        assert!(!record().proves_end_of(&ProcessRecord { boot: "other".to_owned(), ..record() }));
        let unknown = ProcessRecord { boot: String::new(), ..record() };
        assert!(!unknown.proves_end_of(&unknown));
        assert_eq!(boot_id().unwrap().len(), 36);
    }

    proptest! {
        #[test]
        fn any_bytes_are_what_a_process_says_or_not(bytes: Vec<u8>) {
            let decoded = ProcessRecord::decode(&bytes);
            prop_assert!(decoded.is_none_or(|record| record.encode().is_some()));
        }
    }
}
