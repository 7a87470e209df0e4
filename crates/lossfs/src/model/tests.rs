//! Power cuts after sequences of calls.

use super::*;

fn about() -> About {
    let now = SystemTime::UNIX_EPOCH;
    About { mode: 0o100_600, uid: 0, gid: 0, atime: now, mtime: now, ctime: now }
}

fn file(model: &mut Model, dir: u64, name: &str, bytes: &[u8]) -> u64 {
    let ino = model.make(dir, name.as_bytes(), Kind::File, about()).unwrap();
    model.write(ino, 0, bytes, about().mtime).unwrap();
    ino
}

fn bytes(model: &mut Model, dir: u64, name: &str) -> Option<Vec<u8>> {
    let ino = model.lookup(dir, name.as_bytes()).ok()?;
    Some(model.read(ino, 0, 1 << 20).unwrap())
}

fn some(seed: u64) -> Survival {
    Survival::Some { seed, names: Names::Any }
}

#[test]
fn a_name_is_safe_after_its_directory_and_bytes_after_their_file() {
    let mut model = Model::new();
    let synced = file(&mut model, ROOT, "synced", b"1");
    model.sync(synced).unwrap();
    assert_eq!(bytes(&mut model.after_crash(Survival::Nothing), ROOT, "synced"), None);
    file(&mut model, ROOT, "named", b"2");
    model.sync_names(ROOT).unwrap();
    let mut left = model.after_crash(Survival::Nothing);
    assert_eq!(bytes(&mut left, ROOT, "synced"), Some(b"1".to_vec()));
    assert_eq!(bytes(&mut left, ROOT, "named"), Some(Vec::new()));
    assert_eq!(bytes(&mut model, ROOT, "named"), Some(b"2".to_vec()));
}

#[test]
fn a_rename_happens_whole_or_not_at_all() {
    let mut model = Model::new();
    let below = model.make(ROOT, b"below", Kind::Folder, about()).unwrap();
    for (dir, name, text) in [(ROOT, "new", b"new"), (below, "old", b"old")] {
        let ino = file(&mut model, dir, name, text);
        model.sync(ino).unwrap();
        model.sync_names(dir).unwrap();
    }
    model.sync_names(ROOT).unwrap();
    model.rename(ROOT, b"new", below, b"old", about().mtime).unwrap();
    for seed in 0..50 {
        let mut left = model.after_crash(some(seed));
        let found = (bytes(&mut left, ROOT, "new"), bytes(&mut left, below, "old"));
        let new = Some(b"new".to_vec());
        let old = Some(b"old".to_vec());
        assert!(found == (new.clone(), old) || found == (None, new), "{found:?}");
    }
    model.sync_names(below).unwrap();
    let mut left = model.after_crash(Survival::Nothing);
    assert_eq!(bytes(&mut left, ROOT, "new"), None);
    assert_eq!(bytes(&mut left, below, "old"), Some(b"new".to_vec()));
}

#[test]
fn an_unlinked_file_is_back_if_the_unlink_was_not_synced() {
    let mut model = Model::new();
    let ino = file(&mut model, ROOT, "a", b"1");
    model.sync(ino).unwrap();
    model.sync_names(ROOT).unwrap();
    model.remove(ROOT, b"a", false, about().mtime).unwrap();
    assert_eq!(model.lookup(ROOT, b"a"), Err(Errno::NOENT));
    let left = model.after_crash(Survival::Nothing);
    assert_eq!(left.lookup(ROOT, b"a"), Ok(ino));
    assert_eq!(left.node(ino).unwrap().links, 1);
}

#[test]
fn files_in_a_directory_are_lost_with_it() {
    let mut model = Model::new();
    let below = model.make(ROOT, b"below", Kind::Folder, about()).unwrap();
    file(&mut model, below, "a", b"1");
    model.sync_names(below).unwrap();
    assert_eq!(model.after_crash(Survival::Nothing).lookup(ROOT, b"below"), Err(Errno::NOENT));
    model.sync_names(ROOT).unwrap();
    let left = model.after_crash(Survival::Nothing);
    assert!(left.lookup(below, b"a").is_ok());
    assert_eq!(left.node(ROOT).unwrap().links, 3);
    assert_eq!(model.remove(ROOT, b"below", true, about().mtime), Err(Errno::NOTEMPTY));
}

#[test]
fn space_runs_out_and_is_freed() {
    let mut model = Model::new();
    model.set_limit(Some(3));
    let ino = file(&mut model, ROOT, "a", &[1; 8_192]);
    assert_eq!(model.write(ino, 8_192, &[1; 4_097], about().mtime), Err(Errno::NOSPC));
    assert_eq!(model.reserve(ino, 0..20_000, true, about().mtime), Err(Errno::NOSPC));
    model.write(ino, 8_000, &[2; 500], about().mtime).unwrap();
    assert_eq!(model.space(), (3, 3));
    model.open(ino).unwrap();
    model.remove(ROOT, b"a", false, about().mtime).unwrap();
    assert_eq!(model.space(), (3, 3));
    model.close(ino).unwrap();
    assert_eq!(model.space(), (0, 3));
}
