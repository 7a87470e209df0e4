//! Files of another user beside a download, and records of an earlier run: neither decides which
//! bytes count as right, the owner of the file, or which other files are written.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use pelago_random::bytes_of;
use rustix::process::geteuid;

use crate::get::MIB;
use crate::get::relay::Relay;
use crate::get::world::{Served, until_noted};
use crate::harness::program::until;

const NOBODY: u32 = 65_534;
const TOOL: &[u8] = b"#!/bin/sh\necho right\n";
const PRECIOUS: &[u8] = b"important data of the victim\n";
const HEAD_BYTES: u64 = 8192;
const RECORD_BYTES: u64 = 40;

/// A server, and beside it a folder that all users can write.
struct Shared {
    served: Served,
    folder: PathBuf,
    victim: PathBuf,
}

impl Shared {
    fn new() -> Option<Self> {
        let served = Served::new()?;
        let folder = served.here("shared");
        let victim = served.here("victim");
        fs::create_dir(&folder).unwrap();
        set_mode(&folder, 0o777);
        fs::write(&victim, PRECIOUS).unwrap();
        set_mode(&victim, 0o600);
        served.put("tool", TOOL);
        Some(Self { served, folder, victim })
    }

    /// Downloads, and checks that the victim's file is what it was.
    fn get(&self, name: &str) -> crate::harness::program::Ran {
        let ran = self.served.get(&self.served.url("tool"), &format!("shared/{name}"), &[]);
        assert_eq!(fs::read(&self.victim).unwrap(), PRECIOUS, "{ran:?}");
        assert_eq!(mode(&self.victim), 0o600, "{ran:?}");
        ran
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Lays something.
type Plant<'a> = Box<dyn Fn() + 'a>;

/// Each of both files as each thing that another user can make there.
#[test]
fn what_others_lay_beside_a_target_is_refused_by_its_name() {
    let Some(shared) = Shared::new() else { return };
    let is_root = geteuid().is_root();
    for end in ["get", "state"] {
        let place = shared.folder.join(format!(".tool.pelago-{end}"));
        let mut plants: Vec<(&str, Plant<'_>)> = vec![
            ("a symbolic link", Box::new(|| symlink(&shared.victim, &place).unwrap())),
            ("a symbolic link", Box::new(|| symlink("dangling", &place).unwrap())),
            ("hard links", Box::new(|| fs::hard_link(&shared.victim, &place).unwrap())),
            ("of another type", Box::new(|| fs::create_dir(&place).unwrap())),
            (
                "open to other users",
                Box::new(|| {
                    fs::write(&place, "").unwrap();
                    set_mode(&place, 0o666);
                }),
            ),
        ];
        if is_root {
            plants.push((
                "another user",
                Box::new(|| {
                    fs::write(&place, "").unwrap();
                    set_mode(&place, 0o666);
                    chown(&place, Some(NOBODY), Some(NOBODY)).unwrap();
                }),
            ));
        }
        for (says, plant) in plants {
            plant();
            let ran = shared.get("tool").expect_code(4);
            assert!(ran.err.contains(says) && ran.err.contains(place.to_str().unwrap()), "{ran:?}");
            let errors = ran.err.lines().filter(|line| line.starts_with("pelago:"));
            assert_eq!(errors.count(), 1, "{ran:?}");
            assert!(
                !shared.folder.join("tool").exists() && !shared.folder.join("dangling").exists()
            );
            match place.is_dir() && !place.is_symlink() {
                true => fs::remove_dir(&place).unwrap(),
                false => fs::remove_file(&place).unwrap(),
            }
            for other in ["get", "state"] {
                let _left = fs::remove_file(shared.folder.join(format!(".tool.pelago-{other}")));
            }
        }
    }
    shared.get("tool").expect_success();
    shared.served.volume.finish();
}

/// A link of another user does not choose which file is replaced; nor does a file of another user
/// say whose the new one is, and who may write it.
#[test]
fn what_others_lay_as_the_target_decides_nothing() {
    let Some(shared) = Shared::new() else { return };
    if !geteuid().is_root() {
        shared.served.volume.finish();
        return println!("skipped: only root has files of several users");
    }
    let target = shared.folder.join("tool");
    symlink(&shared.victim, &target).unwrap();
    lchown(&target, Some(NOBODY), Some(NOBODY)).unwrap();
    let ran = shared.get("tool").expect_code(1);
    assert!(ran.err.contains("a symbolic link of another user"), "{ran:?}");
    fs::remove_file(&target).unwrap();
    fs::write(&target, "theirs").unwrap();
    set_mode(&target, 0o666);
    chown(&target, Some(NOBODY), Some(NOBODY)).unwrap();
    shared.get("tool").expect_success();
    let found = fs::metadata(&target).unwrap();
    assert_eq!((found.uid(), found.mode() & 0o022), (0, 0), "{:o}", found.mode());
    shared.served.volume.finish();
}

/// Nothing else than these two files is made beside the target, and others cannot read them.
#[test]
fn a_new_version_has_the_permissions_of_the_old_one() {
    let Some(shared) = Shared::new() else { return };
    let target = shared.folder.join("tool");
    for kept in [0o600, 0o640, 0o755, 0o4711] {
        fs::write(&target, "old").unwrap();
        set_mode(&target, kept);
        shared.get("tool").expect_success();
        // The right to act as another user is not passed on.
        assert_eq!(mode(&target), kept & 0o777, "{kept:o}");
        assert_eq!(fs::read(&target).unwrap(), TOOL);
    }
    fs::remove_file(&target).unwrap();
    shared.get("tool").expect_success();
    let plain = shared.folder.join("plain");
    File::create(&plain).unwrap();
    assert_eq!(mode(&target), mode(&plain), "as the umask says");
    assert_eq!(fs::read_dir(&shared.folder).unwrap().count(), 2);
    shared.served.volume.finish();
}

/// Begins a download and kills it; returns its target, with the notes of some extents beside it.
fn begun(served: &Served, name: &str) -> PathBuf {
    let relay = Relay::to(&served.address);
    relay.hold_at(6_000_000);
    // The notes name the URL.
    let target = served.here(name);
    let mut child = served.spawn(&relay.url("file"), name, &[]);
    until_noted(&target, 70);
    child.kill().unwrap();
    child.wait().unwrap();
    let state = target.with_file_name(format!(".{name}.pelago-state"));
    let mut head = fs::read(&state).unwrap();
    let from = relay.url("file").into_bytes();
    let to = served.url("file").into_bytes();
    // Both are as long if the ports are, which they are not always: the texts are written anew.
    let tag_at = 32 + from.len();
    let tag_bytes = u32::from_le_bytes(head[28..32].try_into().unwrap()) as usize;
    let tag = head[tag_at..tag_at + tag_bytes].to_vec();
    head[24..28].copy_from_slice(&(to.len() as u32).to_le_bytes());
    head[32..8160].fill(0);
    head[32..32 + to.len()].copy_from_slice(&to);
    head[32 + to.len()..32 + to.len() + tag_bytes].copy_from_slice(&tag);
    let hash = blake3::hash(&head[..8160]);
    head[8160..8192].copy_from_slice(hash.as_bytes());
    OpenOptions::new().write(true).open(&state).unwrap().write_all_at(&head, 0).unwrap();
    target
}

/// Puts other bytes into each extent that is noted as right, with their hash as the note. Returns
/// how many there were.
fn forge(target: &Path) -> usize {
    let name = target.file_name().unwrap().to_str().unwrap();
    let beside = |end: &str| target.with_file_name(format!(".{name}.pelago-{end}"));
    let open = |path: PathBuf| OpenOptions::new().read(true).write(true).open(path).unwrap();
    let data = open(beside("get"));
    let state = open(beside("state"));
    let records = (state.metadata().unwrap().len() - HEAD_BYTES) / RECORD_BYTES;
    let mut forged = 0;
    for extent in 0..records {
        let at = HEAD_BYTES + extent * RECORD_BYTES;
        let mut record = [0; RECORD_BYTES as usize];
        state.read_exact_at(&mut record, at).unwrap();
        if record[2] == 1 {
            let evil = vec![0xee; MIB];
            data.write_all_at(&evil, extent << 20).unwrap();
            record[8..].copy_from_slice(blake3::hash(&evil).as_bytes());
            state.write_all_at(&record, at).unwrap();
            forged += 1;
        }
    }
    forged
}

/// The notes and the bytes beside a target agree, and are not those of the file. Only hashes of the
/// server make bytes right. The server may know all hashes, and so the root, or none any more.
#[test]
fn notes_that_no_server_confirms_prove_nothing() {
    let Some(served) = Served::new() else { return };
    let bytes = bytes_of(11, 12 * MIB);
    served.put("file", &bytes);
    for forgets in [false, true] {
        let target = begun(&served, "file");
        let forged = forge(&target);
        assert!(forged > 0, "some extents were noted");
        if forgets {
            served.volume.kill();
            served.up_again();
        }
        let got = served.get(&served.url("file"), "file", &["--json"]).expect_success().json();
        assert!(fs::read(&target).unwrap() == bytes, "{forgets}: {got}");
        assert_eq!(got["verified"], true);
        assert!(got["received"].as_u64().unwrap() >= (forged as u64) << 20, "{got}");
    }
    // What is right is not fetched again: a block of each extent at most.
    let target = begun(&served, "file");
    served.volume.kill();
    served.up_again();
    let got = served.get(&served.url("file"), "file", &["--json"]).expect_success().json();
    let received = &got["received"];
    let resumed = &got["resumed"];
    assert!(received.as_u64().unwrap() < 9 * MIB as u64, "{received} with {resumed} noted");
    assert!(fs::read(&target).unwrap() == bytes);
    until("nothing is left beside it", || fs::read_dir(served.here("")).unwrap().count() == 1);
    served.volume.finish();
}
