//! Access control lists, the umask and set-id bits: a mount is compared with a folder of a local
//! disk, byte by byte.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{
    CWD, FileType, Mode, OFlags, XattrFlags, listxattr, lremovexattr, lsetxattr, mkdirat, mknodat,
    open,
};
use rustix::io::Errno;
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::harness::program::{Ran, run};
use crate::harness::volume::folder;
use crate::mounted::{on_mount, on_volume};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWNING_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;
const NOBODY: u32 = u32::MAX;

/// Returns the bytes of a list of (tag, rights, id).
fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&rights.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

/// Returns a list with all rights for the owner, `rights` for this user and none for others.
fn list_for(user: u32, rights: u16) -> Vec<u8> {
    list(&[
        (OWNER, 7, NOBODY),
        (USER, rights, user),
        (OWNING_GROUP, 0, NOBODY),
        (MASK, 7, NOBODY),
        (OTHERS, 0, NOBODY),
    ])
}

fn set(path: &Path, name: &str, value: &[u8]) -> Result<(), Errno> {
    lsetxattr(path, name, value, XattrFlags::empty())
}

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 5000];
    let length = rustix::fs::lgetxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// Returns a folder of the local disk that supports access control lists.
fn local() -> Option<(TempDir, PathBuf)> {
    let (guard, path) = folder();
    match set(&path, ACCESS, &list_for(1, 7)).and_then(|()| lremovexattr(&path, ACCESS)) {
        Ok(()) => {
            set_mode(&path, 0o755);
            Some((guard, path))
        }
        Err(error) => {
            println!("skipped: not here: no access control lists on this disk: {error}");
            None
        }
    }
}

/// A seeded generator of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn rights(&mut self) -> u16 {
        self.below(8) as u16
    }

    fn mode(&mut self) -> u32 {
        let special = [0, 0, 0, 0o1000, 0o2000, 0o4000, 0o6000];
        self.below(0o1000) as u32 | special[self.below(7) as usize]
    }

    /// Returns a list; one in six is invalid.
    fn list(&mut self) -> Vec<u8> {
        let mut entries = vec![(OWNER, self.rights(), NOBODY)];
        for _ in 0..self.below(3) {
            entries.push((USER, self.rights(), self.below(4) as u32));
        }
        entries.push((OWNING_GROUP, self.rights(), NOBODY));
        for _ in 0..self.below(3) {
            entries.push((GROUP, self.rights(), self.below(4) as u32));
        }
        if entries.len() > 2 || self.below(3) == 0 {
            entries.push((MASK, self.rights(), NOBODY));
        }
        entries.push((OTHERS, self.rights(), NOBODY));
        let at = self.below(entries.len() as u64);
        let other = self.below(entries.len() as u64);
        let at = at as usize;
        let other = other as usize;
        match self.below(42) {
            0 => entries.swap(at, other),
            1 => entries[at].1 = 8,
            2 => entries[at].0 = 64,
            3 => drop(entries.remove(at)),
            4 => entries.push(entries[at]),
            5 => entries.insert(at, entries[other]),
            6 => entries.clear(),
            _ => {}
        }
        let mut bytes = list(&entries);
        match self.below(60) {
            0 => drop(bytes.pop()),
            1 => bytes[0] = 1,
            2 => bytes.clear(),
            _ => {}
        }
        bytes
    }
}

/// One step of a program, with paths below a folder.
#[derive(Debug, Clone)]
enum Step {
    Set(String, &'static str, Vec<u8>),
    Remove(String, &'static str),
    Chmod(String, u32),
    Chown(String, u32, u32),
    File(String, u32),
    Dir(String, u32),
    Pipe(String, u32),
    Link(String),
    Rename(String, String),
    HardLink(String, String),
    /// Create a file, a directory and a pipe under this umask.
    Masked(String, u32),
}

impl Step {
    /// Returns the next step of a program in which these paths exist.
    fn choose(numbers: &mut Numbers, paths: &BTreeSet<String>, step: usize) -> Self {
        let pick = |numbers: &mut Numbers| {
            paths.iter().nth(numbers.below(paths.len() as u64) as usize).unwrap().clone()
        };
        let path = pick(numbers);
        let new = format!("{path}/n{step}");
        let which = if numbers.below(2) == 0 { ACCESS } else { DEFAULT };
        match numbers.below(24) {
            0..=6 => Self::Set(path, which, numbers.list()),
            7 => Self::Remove(path, which),
            8..=11 => Self::Chmod(path, numbers.mode()),
            12 => Self::Chown(path, numbers.below(3) as u32, numbers.below(3) as u32),
            13..=15 => Self::File(new, numbers.mode()),
            16..=18 => Self::Dir(new, numbers.mode()),
            19 => Self::Pipe(new, numbers.mode()),
            20 => Self::Link(new),
            21 => Self::Rename(path, format!("{}/r{step}", pick(numbers))),
            22 => Self::HardLink(path, format!("{}/h{step}", pick(numbers))),
            _ => Self::Masked(new, numbers.below(0o1000) as u32),
        }
    }

    fn run(&self, root: &Path) -> Result<(), Errno> {
        let at = |path: &str| root.join(path);
        match self {
            Self::Set(path, name, value) => set(&at(path), name, value),
            Self::Remove(path, name) => lremovexattr(at(path), *name),
            Self::Chmod(path, mode) => rustix::fs::chmod(at(path), Mode::from(*mode)),
            Self::Chown(path, uid, gid) => {
                known(std::os::unix::fs::lchown(at(path), Some(*uid), Some(*gid)))
            }
            Self::File(path, mode) => {
                let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
                open(at(path), how, Mode::from(*mode)).map(drop)
            }
            Self::Dir(path, mode) => mkdirat(CWD, at(path), Mode::from(*mode)),
            Self::Pipe(path, mode) => mknodat(CWD, at(path), FileType::Fifo, Mode::from(*mode), 0),
            Self::Link(path) => known(symlink("nowhere", at(path))),
            Self::Rename(from, to) => known(fs::rename(at(from), at(to))),
            Self::HardLink(from, to) => known(fs::hard_link(at(from), at(to))),
            Self::Masked(path, umask) => {
                let script = format!("umask {umask:o}; : > $0f; mkdir $0d; mkfifo $0p");
                let ran = run(Command::new("sh").args(["-c", &script]).arg(at(path)));
                if ran.code == Some(0) { Ok(()) } else { Err(Errno::NOTDIR) }
            }
        }
    }
}

fn known(result: std::io::Result<()>) -> Result<(), Errno> {
    result.map_err(|error| Errno::from_io_error(&error).unwrap())
}

/// Returns every path below a folder, with mode, owners and access control lists.
fn seen(root: &Path) -> (BTreeSet<String>, String) {
    let mut paths = BTreeSet::new();
    let mut said = String::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let below = path.strip_prefix(root).unwrap().to_str().unwrap();
        let mut names = vec![0; 1000];
        let names = if meta.is_symlink() { 0 } else { listxattr(&path, &mut names).unwrap() };
        let lists = [get(&path, ACCESS), get(&path, DEFAULT)];
        let mode = meta.mode();
        let uid = meta.uid();
        let gid = meta.gid();
        writeln!(said, "{below} {mode:o} {uid} {gid} {lists:02x?} {names}").unwrap();
        paths.insert(if below.is_empty() { ".".to_owned() } else { below.to_owned() });
        if meta.is_dir() {
            let mut inside: Vec<_> =
                fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()).collect();
            inside.sort();
            open.extend(inside);
        }
    }
    (paths, said)
}

/// Steps in one program.
const STEPS: usize = 120;

/// The same programs on the mount and on the disk, with lists, modes, creates and any umask.
#[test]
fn access_control_lists() {
    if !geteuid().is_root() {
        println!("skipped: needs root to go where the modes forbid it");
        return;
    }
    let Some((_guard, local)) = local() else { return };
    on_mount(|root| {
        for seed in 1..=4 {
            let here = local.join(format!("{seed}"));
            let there = root.join(format!("{seed}"));
            for folder in [&here, &there] {
                // Left by an earlier data path.
                drop(fs::remove_dir_all(folder));
                fs::create_dir(folder).unwrap();
                set_mode(folder, 0o755);
            }
            let mut numbers = Numbers(seed * 0x9e37_79b9_7f4a_7c15);
            let mut program = Vec::new();
            for number in 0..STEPS {
                let (paths, before) = seen(&here);
                let step = Step::choose(&mut numbers, &paths, number);
                program.push(step.clone());
                let results = [step.run(&here), step.run(&there)];
                let after = [seen(&here).1, seen(&there).1];
                assert!(
                    results[0] == results[1] && after[0] == after[1],
                    "seed {seed}: {program:?}\n{results:?}\nbefore:\n{before}\n\
                     on the disk:\n{}\non the mount:\n{}",
                    after[0],
                    after[1],
                );
            }
        }
    });
}

/// Runs a shell script in a folder, as root; `$FULL` and `$MINIMAL` are lists.
fn script(folder: &Path, script: &str) -> Ran {
    let hex = |bytes: Vec<u8>| bytes.iter().fold("0x".to_owned(), |s, b| format!("{s}{b:02x}"));
    let minimal = list(&[(OWNER, 6, NOBODY), (OWNING_GROUP, 5, NOBODY), (OTHERS, 4, NOBODY)]);
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(folder).env("LC_ALL", "C");
    command.env("FULL", hex(list_for(1, 6))).env("MINIMAL", hex(minimal));
    run(&mut command)
}

fn cannot_be_others() -> Option<String> {
    if !geteuid().is_root() {
        return Some("needs root to be another user".to_owned());
    }
    let has = |tool: &str| run(Command::new("sh").args(["-c", &format!("command -v {tool}")]));
    let missing = ["setpriv", "setfattr"].into_iter().find(|tool| has(tool).code != Some(0));
    missing.map(|tool| format!("not here: {tool} is not installed"))
}

/// Each way to change a file, by an owner in the file's group and by an owner outside of it.
const SET_ID: &str = r#"
    change='
        for mode in 2745 2755 6745 6755 4755 2644; do
            printf y >> $mode.append.$0
            truncate -s 9 $mode.truncate.$0
            : > $mode.empty.$0
            fallocate -l 10000 $mode.fallocate.$0
            head -c 10000 /dev/zero >> $mode.large.$0
            chown 65534 $mode.chown.$0
            chgrp 65534 $mode.chgrp.$0
            chmod u-x $mode.chmod.$0
            setfattr -n system.posix_acl_access -v $FULL $mode.full.$0
            setfattr -n system.posix_acl_access -v $MINIMAL $mode.minimal.$0
        done'
    umask 0
    for who in other member; do
        for mode in 2745 2755 6745 6755 4755 2644; do
            for how in append truncate empty fallocate large chown chgrp chmod full minimal; do
                printf x > $mode.$how.$who
                chown 65534:12345 $mode.$how.$who
                chmod $mode $mode.$how.$who
            done
        done
        mkdir dir.$who
        chown 65534:12345 dir.$who
        chmod 3777 dir.$who
    done
    be='setpriv --reuid=65534 --regid=65534'
    $be --clear-groups sh -c "$change" other
    $be --groups=12345 sh -c "$change" member
    for who in other member; do
        groups=--clear-groups
        [ $who = other ] || groups=--groups=12345
        $be $groups sh -c "umask 0; mkdir dir.$who/dir; : > dir.$who/file"
        $be $groups sh -c "mkfifo -m 2775 dir.$who/pipe; chmod g-w dir.$who"
    done
    stat -c '%n %a %u %g' *.* dir.*/*
"#;

#[test]
fn set_id_bits_go_where_they_go_on_a_local_disk() {
    if let Some(reason) = cannot_be_others() {
        println!("skipped: {reason}");
        return;
    }
    let Some((_guard, local)) = local() else { return };
    let run_in = |folder: &Path| {
        fs::create_dir(folder).unwrap();
        set_mode(folder, 0o777);
        script(folder, SET_ID)
    };
    let expected = run_in(&local.join("ids"));
    assert!(expected.out.lines().count() > 120, "{expected:?}");
    on_mount(|root| {
        let ran = run_in(&root.join("ids"));
        let mut lines = ran.out.lines().zip(expected.out.lines());
        assert_eq!(lines.find(|(ours, theirs)| ours != theirs), None, "ours, theirs");
        assert_eq!((ran.code, ran.err), (expected.code, expected.err.clone()));
    });
}

#[test]
fn a_list_lets_in_whom_it_names_and_keeps_out_whom_it_masks() {
    if let Some(reason) = cannot_be_others() {
        println!("skipped: {reason}");
        return;
    }
    on_mount(|root| {
        set_mode(root, 0o755);
        let file = root.join("file");
        fs::write(&file, "secret").unwrap();
        set_mode(&file, 0o600);
        let reads = || {
            let be = "setpriv --reuid=65534 --regid=65534 --clear-groups cat file";
            script(root, be).code == Some(0)
        };
        assert!(!reads());
        set(&file, ACCESS, &list_for(65534, 4)).unwrap();
        assert!(reads());
        assert_eq!(mode(&file), 0o770, "the group's bits are the mask");
        set_mode(&file, 0o700);
        assert!(!reads(), "the mask is the group's bits");
        set_mode(&file, 0o740);
        assert!(reads());
        lremovexattr(&file, ACCESS).unwrap();
        assert!(!reads());
        assert_eq!(get(&file, ACCESS), Err(Errno::NODATA));
        // The right to search a directory is checked without a request each time.
        fs::create_dir(root.join("dir")).unwrap();
        set_mode(&root.join("dir"), 0o700);
        fs::write(root.join("dir/inner"), "").unwrap();
        set_mode(&root.join("dir/inner"), 0o644);
        let enters = || {
            let be = "setpriv --reuid=65534 --regid=65534 --clear-groups cat dir/inner";
            script(root, be).code == Some(0)
        };
        assert!(!enters());
        set(&root.join("dir"), ACCESS, &list_for(65534, 1)).unwrap();
        assert!(enters());
        set(&root.join("dir"), ACCESS, &list_for(65534, 6)).unwrap();
        assert!(!enters());
    });
}

#[test]
fn lists_outlive_a_crash_and_go_where_their_file_goes() {
    on_volume(|volume| {
        let at = |name: &str| volume.files().join(name);
        let access = list_for(7, 5);
        fs::create_dir(at("dir")).unwrap();
        set(&at("dir"), DEFAULT, &access).unwrap();
        fs::write(at("dir/file"), "x").unwrap();
        fs::create_dir(at("dir/below")).unwrap();
        let of_file = get(&at("dir/file"), ACCESS).unwrap();
        fs::rename(at("dir/file"), at("moved")).unwrap();
        fs::hard_link(at("moved"), at("linked")).unwrap();
        fs::File::open(volume.files()).unwrap().sync_all().unwrap();
        volume.kill();
        volume.up(&[]).expect_success();
        for name in ["moved", "linked"] {
            assert_eq!(get(&at(name), ACCESS).as_ref(), Ok(&of_file), "{name}");
        }
        for name in ["dir", "dir/below"] {
            assert_eq!(get(&at(name), DEFAULT).as_ref(), Ok(&access), "{name}");
        }
        set_mode(&at("moved"), 0o600);
        let masked = list(&[
            (OWNER, 6, NOBODY),
            (USER, 5, 7),
            (OWNING_GROUP, 0, NOBODY),
            (MASK, 0, NOBODY),
            (OTHERS, 0, NOBODY),
        ]);
        assert_eq!(get(&at("linked"), ACCESS), Ok(masked));
        assert_eq!(lremovexattr(at("dir"), DEFAULT), Ok(()));
        assert_eq!(lremovexattr(at("dir"), DEFAULT), Ok(()), "there is none, and that is done");
        fs::remove_file(at("moved")).unwrap();
        fs::remove_file(at("linked")).unwrap();
    });
}

#[test]
fn a_list_has_at_most_511_entries() {
    on_mount(|root| {
        let path = root.join("file");
        fs::write(&path, "").unwrap();
        let of = |count: u32| {
            let mut entries = vec![(OWNER, 6, NOBODY)];
            entries.extend((0..count - 4).map(|id| (USER, 4, id)));
            entries.extend([(OWNING_GROUP, 4, NOBODY), (MASK, 4, NOBODY), (OTHERS, 4, NOBODY)]);
            list(&entries)
        };
        set(&path, ACCESS, &of(511)).unwrap();
        assert_eq!(set(&path, ACCESS, &of(512)), Err(Errno::TOOBIG));
        assert_eq!(get(&path, ACCESS), Ok(of(511)));
    });
}

#[test]
fn extended_attributes_of_a_removed_directory() {
    on_mount(|root| {
        let path = root.join("dir");
        fs::create_dir(&path).unwrap();
        let dir = fs::File::open(&path).unwrap();
        rustix::fs::fsetxattr(&dir, "user.a", b"1", XattrFlags::empty()).unwrap();
        fs::remove_dir(&path).unwrap();
        let set = rustix::fs::fsetxattr(&dir, "user.a", b"1", XattrFlags::empty());
        assert_eq!(set, Err(Errno::NOENT));
        assert_eq!(rustix::fs::fremovexattr(&dir, "user.a"), Err(Errno::NODATA));
        let mut value = [0; 8];
        assert_eq!(rustix::fs::fgetxattr(&dir, "user.a", &mut value), Err(Errno::NODATA));
    });
}
