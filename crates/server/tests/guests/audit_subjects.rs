//! The nodes and directories of the lines in the audit log, and who is told of them.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use pelago_wire::{AuditPlace, Code, Handle, RenameFlags, Reply, Request, limits};
use serde_json::{Value, json};

use super::audit_pages::{OLD_DAY, deeds, numbers, old_line, told, told_owner, write_old_day};
use super::auditing::{AUDITOR, Place};
use super::world::{Guest, World};
use crate::harness::rig::name;

/// Moves `f` of one directory to a name in another.
fn rename(
    world: &World,
    guest: &Guest,
    from_dir: Handle,
    to_dir: Handle,
    to: &str,
) -> Result<(), Code> {
    let to = name(to);
    let flags = RenameFlags::Replace;
    world.ask(guest, Request::Rename { from_dir, from: name("f"), to_dir, to, flags }).map(drop)
}

/// Returns the rights, nodes and directories of what a guest of a number did.
fn told_of(lines: &[Value], number: u8, what: &str) -> Vec<[Value; 3]> {
    assert_eq!(deeds(lines, number, what).len(), 1, "{lines:?}");
    let of_kind = lines.iter().filter(|line| line["what"] == what && line["session"].is_string());
    let node = deeds(lines, number, what)[0].1;
    let of_node = of_kind.filter(|line| line["node"] == node && line["operation"] == "rename");
    of_node.map(|line| ["rights", "node", "directories"].map(|field| line[field].clone())).collect()
}

fn expected(rights: &str, dir: Handle) -> [Value; 3] {
    let dir = dir.ino.raw();
    [json!(rights), json!(dir), json!([dir])]
}

#[test]
fn uses_by_a_rename_are_told_in_the_directory_of_each() {
    let place = Place::new();
    let Place { world, below, beside, .. } = &place;
    let bob = place.begin(2, &[&place.link(1, 2, "rwcd", Handle::ROOT)]);
    assert_eq!(rename(world, &bob, *below, *beside, "new"), Ok(()));
    for (dir, rights) in [(*below, "d"), (*beside, "c")] {
        let lines = told(world, &place.auditor("a", dir), dir).unwrap();
        assert_eq!(told_of(&lines, 2, "use"), [expected(rights, dir)]);
        assert!(lines.iter().all(|line| line["credential"].is_null()), "{lines:?}");
    }
}

#[test]
fn a_denial_of_a_rename_is_told_only_of_the_directory_that_lacks_the_right() {
    let place = Place::new();
    let Place { world, below, beside, .. } = &place;
    let attach = |guest: &Guest, text: &str| {
        let chain = vec![text.as_bytes().to_vec()];
        let told = world.ask(guest, Request::Attach { chain });
        assert!(matches!(told, Ok(Reply::Bytes(why)) if why.is_empty()));
    };
    let to_all = place.begin(2, &[&place.link(1, 2, "d", Handle::ROOT)]);
    assert_eq!(rename(world, &to_all, *below, *beside, "new"), Err(Code::AccessDenied));
    let to_below = place.begin(3, &[&place.link(1, 3, "cd", *below)]);
    assert_eq!(rename(world, &to_below, *below, *beside, "new"), Err(Code::Stale));
    let to_both = place.begin(4, &[&place.link(1, 4, "c", *beside)]);
    attach(&to_both, &place.link(1, 4, "d", *below));
    assert_eq!(rename(world, &to_both, *below, *beside, "f"), Err(Code::AccessDenied), "replaces");
    let lines = told(world, &place.auditor("a", *below), *below).unwrap();
    assert!(lines.iter().all(|line| line["what"] != "denial"), "{lines:?}");
    let lines = told(world, &place.auditor("a", *beside), *beside).unwrap();
    for (number, rights) in [(2, "c"), (3, "c"), (4, "d")] {
        let dirs = [(String::from("rename"), beside.ino.raw())];
        assert_eq!(deeds(&lines, number, "denial"), dirs);
        let found = told_of(&lines, number, "denial");
        assert!(found.contains(&expected(rights, *beside)), "{number}: {found:?}");
    }
}

/// A file that has many names in one directory is told of in the others, too.
#[test]
fn names_in_one_directory_hide_no_other_directory() {
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let both = world.put(*shared, "both", b"bytes");
    for number in 0..2 * limits::AUDIT_LINE_DIRS {
        world.link(both, *shared, &format!("s{number}"));
        world.link(both, *beside, &format!("b{number}"));
    }
    world.link(both, *below, "both");
    let bob = place.begin(2, &[&place.link(1, 2, "rx", Handle::ROOT)]);
    world.attr(&bob, both).unwrap();
    for dir in [*shared, *below, *beside] {
        let lines = told(world, &place.begin(AUDITOR, &[&place.link(1, AUDITOR, "a", dir)]), dir);
        assert_eq!(deeds(&lines.unwrap(), 2, "use").len(), 1);
    }
}

/// Each move of a directory would make a long page be read again, and again, up to an error.
#[test]
fn moves_of_directories_do_not_repeat_a_page() {
    const LINES: usize = 3000;
    let place = Place::new();
    let Place { world, shared, beside, .. } = &place;
    let auditor = place.auditor("a", *shared);
    let busy = world.make_dir(*beside, "busy");
    world.make_dir(busy, "moved");
    write_old_day(world, &vec![old_line(1, &[beside.ino]); LINES]);
    let ends = AtomicBool::new(false);
    let moves = AtomicUsize::new(0);
    let mut pages = Vec::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            let dirs = [busy, *beside];
            while !ends.load(Ordering::Relaxed) {
                let at = moves.fetch_add(1, Ordering::Relaxed);
                world.rename(dirs[at % 2], dirs[(at + 1) % 2], "moved");
            }
        });
        for _ in 0..3 {
            let begun = moves.load(Ordering::Relaxed);
            let after = AuditPlace::START;
            let page = world.ask(&auditor, Request::Audited { dir: *shared, after });
            pages.push((page, moves.load(Ordering::Relaxed) - begun));
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert!(moves.load(Ordering::Relaxed) > 0);
    for (page, moves) in pages {
        assert!(matches!(page, Ok(Reply::Audited(_))), "{page:?} after {moves} moves");
    }
}

/// A file of another kind, which was put into the folder of the log, hides its own day only.
#[test]
fn a_day_that_cannot_be_read_hides_no_other_day() {
    let place = Place::new();
    let Place { world, shared, .. } = &place;
    let auditor = place.auditor("a", *shared);
    world.attr(&auditor, *shared).unwrap();
    write_old_day(world, &[old_line(1, &[shared.ino])]);
    let log = world.file("audit");
    symlink(log.join(OLD_DAY), log.join("2001-02-04.jsonl")).unwrap();
    fs::create_dir(log.join("2001-02-05.jsonl")).unwrap();
    fs::write(log.join("2001-02-06.jsonl"), "x\n").unwrap();
    fs::set_permissions(log.join("2001-02-06.jsonl"), Permissions::from_mode(0o660)).unwrap();
    for lines in [told(world, &auditor, *shared).unwrap(), told_owner(world, *shared)] {
        assert_eq!(numbers(&lines), [1]);
        assert!(!deeds(&lines, AUDITOR, "use").is_empty(), "the days after");
    }
}
