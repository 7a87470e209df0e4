//! Damaged volumes: the damage is reported, does not spread and gets no worse.

use std::fs;
use std::path::PathBuf;

use rustix::io::Errno;
use xxhash_rust::xxh3::xxh3_128;

use crate::harness::damage::{change_row, newest_journal};
use crate::harness::volume::{Volume, cannot_mount};

const FILES: usize = 50;

macro_rules! needs_mount {
    () => {
        if let Some(reason) = cannot_mount() {
            println!("skipped: {reason}");
            return;
        }
    };
}

fn write_files(volume: &Volume) {
    for number in 0..FILES {
        fs::write(volume.files().join(format!("f{number}")), format!("{number}")).unwrap();
    }
}

/// Returns a volume with some files that was stopped cleanly.
fn stopped() -> Volume {
    let volume = Volume::mounted();
    write_files(&volume);
    volume.run("unmount", &[]).expect_success();
    volume
}

fn errno<T: std::fmt::Debug>(result: std::io::Result<T>) -> Option<Errno> {
    Errno::from_io_error(&result.unwrap_err())
}

/// The other files can be read; `check` names the file, and `--apply` repairs the volume.
#[test]
fn a_damaged_row_costs_one_file() {
    needs_mount!();
    let volume = stopped();
    change_row(&volume, "f7", |value| value.truncate(5));
    let checked = volume.run("check", &["--json"]).expect_code(7).json();
    assert_eq!(checked["whole"], false);
    let told = volume.run("check", &[]).expect_code(7);
    assert!(told.out.contains("\"f7\""), "{told:?}");
    volume.up(&[]).expect_success();
    assert_eq!(errno(fs::read(volume.files().join("f7"))), Some(Errno::IO));
    for number in (0..FILES).filter(|number| *number != 7) {
        let text = fs::read_to_string(volume.files().join(format!("f{number}"))).unwrap();
        assert_eq!(text, format!("{number}"));
    }
    fs::write(volume.files().join("new"), "new").unwrap();
    volume.run("unmount", &[]).expect_success();
    volume.run("check", &["--apply"]).expect_success();
    volume.check_whole();
    volume.up(&[]).expect_success();
    assert_eq!(fs::read(volume.files().join("new")).unwrap(), b"new");
    assert!(fs::read_dir(volume.files()).unwrap().count() >= FILES);
    volume.finish();
}

/// The journal is cut off, as by a power failure: the rest is served, or the damage is reported;
/// nothing panics and nothing gets worse.
#[test]
fn a_truncated_journal_is_used_or_refused() {
    needs_mount!();
    for cut in [1, 7, 500, 5000] {
        let volume = Volume::mounted();
        write_files(&volume);
        volume.kill();
        let journal = newest_journal(&volume);
        let bytes = fs::read(&journal).unwrap();
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
        fs::write(&journal, &bytes[..end - cut]).unwrap();
        let ran = volume.up(&[]);
        match ran.code {
            Some(0) => {
                for entry in fs::read_dir(volume.files()).unwrap() {
                    fs::read(entry.unwrap().path()).unwrap();
                }
                volume.finish();
            }
            Some(7) => {
                assert!(ran.err.contains("data at risk: yes"), "{ran:?}");
                fs::write(&journal, &bytes).unwrap();
                volume.up(&[]).expect_success();
                assert_eq!(fs::read_dir(volume.files()).unwrap().count(), FILES);
                volume.finish();
            }
            _ => panic!("cut {cut}: {ran:?}"),
        }
    }
}

/// Damaged bytes in the middle of safe rows are not taken for a torn end.
#[test]
fn a_damaged_table_is_refused() {
    needs_mount!();
    let volume = Volume::mounted();
    write_files(&volume);
    fs::File::open(volume.files()).unwrap().sync_all().unwrap();
    volume.kill();
    let journal = newest_journal(&volume);
    let good = fs::read(&journal).unwrap();
    let mut bad = good.clone();
    bad[300] ^= 0xff;
    fs::write(&journal, &bad).unwrap();
    for verb in ["up", "check"] {
        let ran = volume.run(verb, &[]).expect_code(7);
        assert!(ran.err.contains("data at risk: yes"), "{ran:?}");
        assert!(fs::read(&journal).unwrap() == bad, "`{verb}` changed the journal");
    }
    fs::write(&journal, &good).unwrap();
    volume.up(&[]).expect_success();
    assert_eq!(fs::read_dir(volume.files()).unwrap().count(), FILES);
    volume.finish();
}

/// The engine removes sorted runs that its version file does not list, so damage in that file is
/// reported before the engine starts.
#[test]
fn a_damaged_list_of_sorted_runs_is_reported_and_loses_no_row() {
    needs_mount!();
    let volume = stopped();
    let version = newest_version(&volume, "1");
    let good = fs::read(&version).unwrap();
    let mut bad = good.clone();
    bad[2..18].fill(0);
    fs::write(&version, &bad).unwrap();
    for verb in ["up", "check"] {
        let ran = volume.run(verb, &[]).expect_code(7);
        assert!(ran.err.contains("data at risk: yes"), "{ran:?}");
    }
    fs::write(&version, &good).unwrap();
    volume.up(&[]).expect_success();
    assert_eq!(fs::read_dir(volume.files()).unwrap().count(), FILES);
    volume.finish();
}

/// A panic of the engine at its own files is reported as damage and ends no process, if the files
/// are those of its own keyspace. One at those of ours, which have a checksum that is compared
/// before, would be followed by a second one and end it.
#[test]
fn a_panic_of_the_engine_is_reported_as_damage() {
    needs_mount!();
    let volume = stopped();
    let version = newest_version(&volume, "0");
    let current = version.with_file_name("current");
    let good = fs::read(&version).unwrap();
    let named = fs::read(&current).unwrap();
    // The bytes are the type of tree, the number of levels and the type of checksum; the engine
    // asserts the second one.
    let levels = good.windows(3).position(|bytes| bytes == [0, 7, 0]).unwrap() + 1;
    let mut bad = good.clone();
    bad[levels] = 6;
    let mut vouched = named.clone();
    vouched[8..24].copy_from_slice(&xxh3_128(&bad).to_le_bytes());
    fs::write(&version, &bad).unwrap();
    fs::write(&current, &vouched).unwrap();
    for verb in ["up", "check"] {
        let ran = volume.run(verb, &[]).expect_code(7);
        assert!(ran.err.contains("the engine panicked"), "{ran:?}");
        assert!(ran.err.contains("data at risk: yes"), "{ran:?}");
    }
    fs::write(&version, &good).unwrap();
    fs::write(&current, &named).unwrap();
    volume.up(&[]).expect_success();
    assert_eq!(fs::read_dir(volume.files()).unwrap().count(), FILES);
    volume.finish();
}

/// Returns the file that lists the sorted runs of a keyspace.
fn newest_version(volume: &Volume, keyspace: &str) -> PathBuf {
    let mut found = Vec::new();
    let folder = volume.dir.join("table/engine/keyspaces").join(keyspace);
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        if let Some(number) = name.strip_prefix('v').and_then(|rest| rest.parse::<u64>().ok()) {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    found.pop().expect("the engine has a version").1
}

/// A missing or truncated content file costs its bytes only.
#[test]
fn a_lost_content_file_is_named() {
    needs_mount!();
    let volume = Volume::mounted();
    fs::write(volume.files().join("large"), vec![7; 100_000]).unwrap();
    fs::write(volume.files().join("other"), vec![8; 100_000]).unwrap();
    volume.run("unmount", &[]).expect_success();
    let lost = content_of(&volume, 7);
    fs::remove_file(&lost).unwrap();
    let checked = volume.run("check", &["--json"]).expect_code(7).json();
    assert_eq!(checked["found"]["findings"][0]["damage"], "content-missing");
    volume.up(&[]).expect_success();
    let read = fs::read(volume.files().join("large"));
    assert!(read.is_err(), "lost bytes were read as {} others", read.unwrap().len());
    assert_eq!(fs::read(volume.files().join("other")).unwrap(), vec![8; 100_000]);
    volume.run("unmount", &[]).expect_success();
}

/// Returns the content file that consists of this byte.
fn content_of(volume: &Volume, byte: u8) -> PathBuf {
    let mut folders = vec![volume.dir.join("content")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if fs::read(entry.path()).unwrap().first() == Some(&byte) {
                return entry.path();
            }
        }
    }
    panic!("no content file has these bytes");
}
