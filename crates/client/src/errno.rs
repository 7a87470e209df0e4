//! Mapping from error codes to errno; it is total, and the only one.
//!
//! `docs/semantics.md` has the same table. Most rows follow section 2 of the manual; these were a
//! choice:
//!
//! | code | errno | why |
//! | --- | --- | --- |
//! | `CrossHome` | EXDEV | `mv` then copies |
//! | `TooManyOpen` | EMFILE | the known remedy is `ulimit` |
//! | `Busy` | EAGAIN | try again; EBUSY would name a mount point or a device |
//! | `Unavailable` | EHOSTDOWN | not EIO: nothing is damaged; not ENOTCONN: the mount lives |
//! | `NoXattr` | ENODATA | Linux has no ENOATTR |
//! | `NoData` | ENXIO | `lseek` with `SEEK_DATA` after the last byte |
//! | `WouldLoop` | EINVAL | `rename` of a directory below itself; ELOOP is about symbolic links |
//! | `LockHeld` | EAGAIN | not EACCES, which POSIX allows too: Linux returns EAGAIN |
//! | `LeaseLost` | EIO | as for bytes that a disk did not take |
//! | `Elsewhere` | EOPNOTSUPP | not EXDEV: a copy would not remove the directory either |
//! | `NotOwner` | EIO | no program gets it: its client asks the owner |
//! | `Corrupt`, `Bug` | EIO | the only errno in POSIX; the log has the cause |
//!
//! The FUSE adapter has one exception: a `NotSupported` seek fails with ENOSYS, so that the kernel
//! stops sending FUSE_LSEEK and treats files as having no holes.

use pelago_wire::Code;
use rustix::io::Errno;

macro_rules! table {
    ($($code:ident => $errno:ident $name:literal,)+) => {
        /// Returns the errno of a code.
        #[must_use]
        pub const fn of(code: Code) -> Errno {
            match code { $(Code::$code => Errno::$errno,)+ }
        }

        /// Each code with the name of its errno, in the order of the codes.
        pub const TABLE: &[(Code, &str)] = &[$((Code::$code, $name),)+];
    };
}

table! {
    NotFound => NOENT "ENOENT",
    Exists => EXIST "EEXIST",
    NotDirectory => NOTDIR "ENOTDIR",
    IsDirectory => ISDIR "EISDIR",
    NotEmpty => NOTEMPTY "ENOTEMPTY",
    AccessDenied => ACCESS "EACCES",
    NotPermitted => PERM "EPERM",
    NameTooLong => NAMETOOLONG "ENAMETOOLONG",
    Invalid => INVAL "EINVAL",
    WouldLoop => INVAL "EINVAL",
    TooManyLinks => MLINK "EMLINK",
    FileTooLarge => FBIG "EFBIG",
    NoSpace => NOSPC "ENOSPC",
    ReadOnly => ROFS "EROFS",
    Stale => STALE "ESTALE",
    BadOpen => BADF "EBADF",
    NoXattr => NODATA "ENODATA",
    TooBig => TOOBIG "E2BIG",
    Range => RANGE "ERANGE",
    NotSupported => OPNOTSUPP "EOPNOTSUPP",
    CrossHome => XDEV "EXDEV",
    TooManyOpen => MFILE "EMFILE",
    Busy => AGAIN "EAGAIN",
    Unavailable => HOSTDOWN "EHOSTDOWN",
    Io => IO "EIO",
    Corrupt => IO "EIO",
    NoData => NXIO "ENXIO",
    Interrupted => INTR "EINTR",
    TimedOut => TIMEDOUT "ETIMEDOUT",
    TextBusy => TXTBSY "ETXTBSY",
    Bug => IO "EIO",
    NoLocks => NOLCK "ENOLCK",
    Deadlock => DEADLK "EDEADLK",
    LockHeld => AGAIN "EAGAIN",
    LeaseLost => IO "EIO",
    HostDown => HOSTDOWN "EHOSTDOWN",
    Elsewhere => OPNOTSUPP "EOPNOTSUPP",
    NotOwner => IO "EIO",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_code_once_and_in_order() {
        let codes: Vec<_> = TABLE.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, Code::ALL);
    }

    #[test]
    fn the_document_has_the_same_table() {
        let document = include_str!("../../../docs/semantics.md");
        let (_, errors) = document.split_once("## Errors").unwrap();
        let rows = errors.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
        let listed: Vec<_> = rows.map(|row| row.split(" | ").take(3).collect::<Vec<_>>()).collect();
        assert_eq!(listed.len(), TABLE.len());
        for ((code, errno), row) in TABLE.iter().zip(listed) {
            let says = format!("{} |", code.says());
            assert_eq!(row, [format!("{code:?}").as_str(), errno, &says]);
        }
    }

    /// A sample: each other name is beside the constant that it spells.
    #[test]
    fn names_belong_to_the_numbers() {
        let known = [("ENOENT", 2), ("EIO", 5), ("EEXIST", 17), ("EXDEV", 18), ("EHOSTDOWN", 112)];
        for (name, number) in known {
            let rows = TABLE.iter().filter(|(_, row)| *row == name);
            assert!(rows.clone().count() > 0, "{name}");
            for (code, _) in rows {
                assert_eq!(of(*code).raw_os_error(), number, "{code:?}");
            }
        }
    }
}
