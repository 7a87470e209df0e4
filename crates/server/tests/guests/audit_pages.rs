//! Pages of the audit log, for guests with the right to audit and for the owner.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::thread;
use std::time::{Duration, Instant};

use pelago_keynote::hex;
use pelago_wire::{AuditPage, AuditPlace, Code, Handle, InodeId, NewMode, Reply, Request, limits};
use serde_json::{Value, json};

use super::auditing::{AUDITOR, Place};
use super::world::{Guest, World, principal};
use crate::harness::rig::{DEADLINE, name};

/// A file of the log that is older than any other.
pub(super) const OLD_DAY: &str = "2001-02-03.jsonl";
const NONE: [u64; 0] = [];

fn page_of(told: Result<Reply, Code>) -> Result<AuditPage, Code> {
    match told? {
        Reply::Audited(page) => Ok(page),
        other => panic!("{other:?}"),
    }
}

/// Returns all lines that one gets of a directory, page by page.
fn all_by(ask: impl Fn(AuditPlace) -> Result<AuditPage, Code>) -> Result<Vec<Value>, Code> {
    let mut after = AuditPlace::START;
    let mut all = Vec::new();
    loop {
        let AuditPage { lines, next } = ask(after)?;
        assert!(lines.len() <= limits::AUDIT_PAGE_BYTES);
        let lines = String::from_utf8(lines).unwrap();
        assert!(lines.is_empty() || lines.ends_with('\n'), "{lines}");
        // The owner gets damaged lines as they are.
        all.extend(lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()));
        match next {
            Some(next) => assert!(next > after, "{next:?} {after:?}"),
            None => return Ok(all),
        }
        after = next.unwrap();
    }
}

pub(super) fn told(world: &World, guest: &Guest, dir: Handle) -> Result<Vec<Value>, Code> {
    all_by(|after| page_of(world.ask(guest, Request::Audited { dir, after })))
}

pub(super) fn told_owner(world: &World, dir: Handle) -> Vec<Value> {
    all_by(|after| page_of(world.call(Request::Audited { dir, after }))).unwrap()
}

/// Returns what a guest of a number did, as operation and node.
pub(super) fn deeds(lines: &[Value], number: u8, what: &str) -> Vec<(String, u64)> {
    let key = hex::text(&principal(number).0);
    let of_guest = lines.iter().filter(|line| line["key"] == key && line["what"] == what);
    of_guest
        .map(|line| {
            (line["operation"].as_str().unwrap().to_owned(), line["node"].as_u64().unwrap())
        })
        .collect()
}

fn make_dir(world: &World, guest: &Guest, dir: Handle) -> Result<(), Code> {
    let mode = NewMode::exactly(0o755);
    world.ask(guest, Request::MakeDir { dir, name: name("new"), mode }).map(drop)
}

/// Writes a day of the log, as an older server may have.
pub(super) fn write_old_day(world: &World, lines: &[String]) {
    let dir = world.file("audit");
    // The server may make it meanwhile.
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).unwrap();
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(dir.join(OLD_DAY));
    file.unwrap().write_all(lines.concat().as_bytes()).unwrap();
}

pub(super) fn old_line(number: u64, dirs: &[InodeId]) -> String {
    let dirs: Vec<u64> = dirs.iter().map(|dir| dir.raw()).collect();
    let line = json!({ "what": "use", "node": number, "directories": dirs, "later": "field" });
    format!("{line}\n")
}

/// The numbers that [`old_line`] has put into these lines.
pub(super) fn numbers(lines: &[Value]) -> Vec<u64> {
    let old = lines.iter().filter(|line| line["key"].is_null() && line["what"] == "use");
    old.map(|line| line["node"].as_u64().unwrap()).collect()
}

#[test]
fn the_log_needs_the_right_to_audit_and_a_directory() {
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let reader = world.guest(2, shared.ino);
    assert_eq!(told(world, &reader, *shared), Err(Code::AccessDenied));
    let auditor = place.auditor("a", *below);
    assert!(told(world, &auditor, *below).is_ok());
    for outside in [*shared, *beside, Handle::ROOT] {
        assert_eq!(told(world, &auditor, outside), Err(Code::Stale), "as what does not exist");
    }
    let Ok(Reply::Entry(file)) = world.call(Request::Lookup { dir: *below, name: name("f") })
    else {
        panic!("a file")
    };
    assert_eq!(told(world, &auditor, file.handle), Err(Code::NotDirectory));
    // The denial is in the log itself.
    let lines = told_owner(world, Handle::ROOT);
    assert_eq!(deeds(&lines, 2, "denial"), [("audited".to_owned(), shared.ino.raw())]);
}

#[test]
fn an_auditor_gets_what_others_did_below_and_nothing_else() {
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let auditor = place.auditor("a", *shared);
    let bob = place.begin(2, &[&place.link(1, 2, "rx", Handle::ROOT)]);
    let carol = place.begin(3, &[&place.link(1, 3, "rx", *beside)]);
    world.attr(&bob, *below).unwrap();
    let read = Request::ListXattr { node: *beside };
    world.ask(&bob, read).unwrap();
    assert_eq!(make_dir(world, &bob, *below), Err(Code::AccessDenied));
    assert_eq!(make_dir(world, &bob, *beside), Err(Code::AccessDenied));
    world.attr(&carol, *beside).unwrap();
    assert_eq!(world.attr(&carol, *below), Err(Code::Stale));
    let Ok(Reply::Entry(file)) = world.call(Request::Lookup { dir: *below, name: name("f") })
    else {
        panic!("a file")
    };
    // No name has led to the file since: it is found by its handle.
    assert_eq!(world.attr(&carol, file.handle), Err(Code::Stale));

    let lines = told(world, &auditor, *shared).unwrap();
    let at = |operation: &str, node: Handle| (operation.to_owned(), node.ino.raw());
    assert_eq!(deeds(&lines, 2, "use"), [at("getattr", *below)]);
    assert_eq!(deeds(&lines, 2, "denial"), [at("mkdir", *below)]);
    assert_eq!(deeds(&lines, 3, "use"), []);
    let denied = [at("getattr", *below), at("getattr", file.handle)];
    assert_eq!(deeds(&lines, 3, "denial"), denied);
    assert_eq!(deeds(&lines, AUDITOR, "use"), [at("audited", *shared)]);
    assert_eq!(lines.len(), 5, "{lines:?}");
    assert!(lines.iter().all(|line| line["directories"].as_array().unwrap().len() == 1));
    assert_eq!(told(world, &auditor, *below).unwrap().len(), 4);
    // The owner gets of a directory the same, and of the root what is in the files.
    assert_eq!(told_owner(world, *shared), lines);
    let all = told_owner(world, Handle::ROOT);
    assert_eq!(deeds(&all, 2, "denial"), [at("mkdir", *below), at("mkdir", *beside)]);
    assert!(all.iter().any(|line| line["what"] == "share"));
    let mut days: Vec<_> = fs::read_dir(world.file("audit")).unwrap().collect();
    assert_eq!(days.len(), 1, "the test ran over midnight");
    let day = fs::read_to_string(days.pop().unwrap().unwrap().path()).unwrap();
    let day: Vec<Value> = day.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(day, all);
}

/// The number of denials that were left out has those of other places in it.
#[test]
fn an_auditor_is_not_told_how_many_lines_were_left_out() {
    const DENIALS: usize = 40;
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let auditor = place.auditor("a", *shared);
    let bob = place.begin(2, &[&place.link(1, 2, "rx", Handle::ROOT)]);
    let omitted = |lines: &[Value]| {
        let below = json!([below.ino.raw()]);
        lines.iter().any(|line| line["directories"] == below && !line["omitted"].is_null())
    };
    let begun = Instant::now();
    while !omitted(&told_owner(world, Handle::ROOT)) {
        assert!(begun.elapsed() < DEADLINE);
        for _ in 0..DENIALS {
            assert_eq!(make_dir(world, &bob, *beside), Err(Code::AccessDenied));
        }
        // A denial of another second counts those that were left out; only the clock begins one.
        thread::sleep(Duration::from_secs(1));
        assert_eq!(make_dir(world, &bob, *below), Err(Code::AccessDenied));
    }
    let lines = told(world, &auditor, *shared).unwrap();
    assert!(!deeds(&lines, 2, "denial").is_empty());
    assert!(lines.iter().all(|line| line["omitted"].is_null()));
}

#[test]
fn what_has_moved_out_or_is_removed_is_not_told() {
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let auditor = place.auditor("a", *shared);
    let bob = place.begin(2, &[&place.link(1, 2, "rx", Handle::ROOT)]);
    let gone = world.make_dir(*shared, "gone");
    for dir in [*shared, *below, gone, *beside] {
        assert_eq!(make_dir(world, &bob, dir), Err(Code::AccessDenied));
    }
    let denied = || {
        let lines = told(world, &auditor, *shared).unwrap();
        deeds(&lines, 2, "denial").into_iter().map(|(_, node)| node).collect::<Vec<_>>()
    };
    let [top, inside, gone, outside] = [*shared, *below, gone, *beside].map(|dir| dir.ino.raw());
    assert_eq!(denied(), [top, inside, gone]);
    world.rename(*shared, *beside, "below");
    assert_eq!(denied(), [top, gone]);
    assert_eq!(told(world, &auditor, *below), Err(Code::Stale));
    world.call(Request::RemoveDir { dir: *shared, name: name("gone") }).unwrap();
    assert_eq!(denied(), [top]);
    // What has moved in is in, also with what was before.
    world.rename(*beside, *shared, "below");
    world.rename(Handle::ROOT, *below, "beside");
    assert_eq!(denied(), [top, inside, outside]);
}

/// A guest who may audit a directory gets nothing of one below that it may not audit, and of a file
/// with two names only the directory that it may know.
#[test]
fn only_directories_that_the_guest_may_audit_are_told() {
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let test = format!("object == \"{:x}\"", shared.ino.raw());
    let of_one = format!("app_domain == \"pelago\" && right == \"a\" && {test};");
    let narrow = place.begin(AUDITOR, &[&world.written(1, AUDITOR, &of_one)]);
    let auditor = place.auditor("a", *shared);
    let bob = place.begin(2, &[&place.link(1, 2, "rx", Handle::ROOT)]);
    assert_eq!(make_dir(world, &bob, *below), Err(Code::AccessDenied));
    assert_eq!(make_dir(world, &bob, *shared), Err(Code::AccessDenied));
    let denied = |guest: &Guest| {
        let lines = told(world, guest, *shared).unwrap();
        deeds(&lines, 2, "denial").into_iter().map(|(_, node)| node).collect::<Vec<_>>()
    };
    assert_eq!(denied(&auditor), [below.ino.raw(), shared.ino.raw()]);
    assert_eq!(denied(&narrow), [shared.ino.raw()]);

    let both = world.put(*beside, "both", b"bytes");
    world.link(both, *below, "both");
    world.attr(&bob, both).unwrap();
    let lines = told(world, &auditor, *shared).unwrap();
    let used = lines.iter().find(|line| line["node"] == both.ino.raw()).unwrap();
    assert_eq!(used["directories"], json!([below.ino.raw()]));
    let lines = told_owner(world, Handle::ROOT);
    let used = lines.iter().find(|line| line["node"] == both.ino.raw()).unwrap();
    assert_eq!(used["directories"].as_array().unwrap().len(), 2);
}

#[test]
fn lines_without_a_directory_are_for_those_who_may_audit_all() {
    let place = Place::new();
    let Place { world, shared, .. } = &place;
    let all = place.begin(4, &[&place.link(1, 4, "a", Handle::ROOT)]);
    let auditor = place.auditor("a", *shared);
    // By conditions that hold for the root and not for all below it.
    let test = format!("object == \"{:x}\"", InodeId::ROOT.raw());
    let of_root = format!("app_domain == \"pelago\" && right == \"a\" && {test};");
    let narrow = place.begin(5, &[&world.written(1, 5, &of_root)]);
    let old = json!({ "what": "use", "node": shared.ino.raw() });
    write_old_day(world, &[format!("{old}\n")]);
    let node = [shared.ino.raw()];
    assert_eq!(numbers(&told(world, &auditor, *shared).unwrap()), NONE);
    assert_eq!(numbers(&told(world, &narrow, Handle::ROOT).unwrap()), NONE);
    assert_eq!(numbers(&told(world, &all, Handle::ROOT).unwrap()), node);
    assert_eq!(numbers(&told(world, &all, *shared).unwrap()), NONE, "of a part");
    assert_eq!(numbers(&told_owner(world, Handle::ROOT)), node);
    let shares = |lines: &[Value]| lines.iter().filter(|line| line["what"] == "share").count();
    assert_eq!(shares(&told(world, &all, Handle::ROOT).unwrap()), 3);
    assert_eq!(shares(&told(world, &narrow, Handle::ROOT).unwrap()), 0);
}

#[test]
fn a_guest_whose_credential_was_taken_back_gets_nothing() {
    let place = Place::new();
    let Place { world, shared, .. } = &place;
    let text = place.link(1, AUDITOR, "a", *shared);
    let auditor = place.begin(AUDITOR, &[&text]);
    assert!(told(world, &auditor, *shared).is_ok());
    super::audited::revoke(world, &text);
    assert_eq!(told(world, &auditor, *shared), Err(Code::Stale));
}

/// A page has a limit, and so has the part of the log that is read for it and the number of
/// directories about which is decided. The pages together have each line once.
#[test]
fn a_long_log_comes_in_pages() {
    const LINES: u64 = 12_000;
    let place = Place::new();
    let Place { world, shared, below, beside } = &place;
    let auditor = place.auditor("a", *shared);
    let mut lines = Vec::new();
    let mut expected = Vec::new();
    for number in 1..=LINES {
        let unknown = InodeId::from_raw(1_000_000 + number);
        let dirs = match number % 4 {
            0 => vec![unknown, beside.ino],
            1 => vec![unknown, below.ino],
            2 => vec![beside.ino],
            _ => vec![shared.ino],
        };
        if matches!(number % 4, 1 | 3) {
            expected.push(number);
        }
        lines.push(old_line(number, &dirs));
    }
    // Damaged ones, and some that are longer than a page, or than all that is read.
    lines.insert(100, "{\"what\":\n".to_owned());
    lines.insert(200, "\n".to_owned());
    lines.insert(300, format!("{}\n", "x".repeat(limits::AUDIT_PAGE_BYTES + 1)));
    lines.insert(400, format!("{}\n", "y".repeat(3 * limits::AUDIT_READ_BYTES)));
    lines.push("{\"cut\":".to_owned());
    write_old_day(world, &lines);
    let got = told(world, &auditor, *shared).unwrap();
    assert_eq!(numbers(&got), expected);
    assert!(got.iter().all(|line| line["later"].is_null()), "a field that is not known");
    assert_eq!(numbers(&told_owner(world, Handle::ROOT)), (1..=LINES).collect::<Vec<_>>());
    assert!(!deeds(&got, AUDITOR, "use").is_empty(), "the day after");
}

/// One request takes as long as a part of the log and some decisions, also if nothing of that part
/// is shown.
#[test]
fn a_page_ends_before_too_much_is_read_or_decided() {
    let place = Place::new();
    let Place { world, shared, beside, .. } = &place;
    let auditor = place.auditor("a", *shared);
    let first =
        |after| page_of(world.ask(&auditor, Request::Audited { dir: *shared, after })).unwrap();
    let bytes_until = |page: &AuditPage| {
        let next = page.next.unwrap();
        assert_eq!((next.day, page.lines.len()), (20_010_203, 0));
        usize::try_from(next.offset).unwrap()
    };
    let hidden = old_line(1, &[beside.ino]);
    let lines = limits::AUDIT_READ_BYTES / hidden.len();
    write_old_day(world, &vec![hidden.clone(); 3 * lines]);
    let page = first(AuditPlace::START);
    assert_eq!(bytes_until(&page), lines * hidden.len());
    let rest = bytes_until(&first(page.next.unwrap())) - bytes_until(&page);
    assert!((lines - 1..=lines).contains(&(rest / hidden.len())), "{rest}");

    let unknown = |number: usize| InodeId::from_raw(1_000_000 + number as u64);
    let dirs = limits::AUDIT_PAGE_DIRS;
    let lines: Vec<String> = (0..3 * dirs).map(|number| old_line(1, &[unknown(number)])).collect();
    write_old_day(world, &lines);
    assert_eq!(bytes_until(&first(AuditPlace::START)), lines[..dirs].concat().len());
}

#[test]
fn a_place_that_is_none_is_no_error() {
    let place = Place::new();
    let Place { world, shared, beside, .. } = &place;
    let auditor = place.auditor("a", *shared);
    let first = old_line(1, &[shared.ino]);
    // A line whose end is a line itself, if one begins within it.
    let secret = json!({ "what": "use", "node": 2, "directories": [beside.ino.raw()] }).to_string();
    let hidden = format!("{{\"text\":{secret}\n");
    let inner = format!("x{}", old_line(3, &[shared.ino]));
    write_old_day(world, &[first.clone(), hidden.clone(), inner, old_line(4, &[shared.ino])]);
    let from = |day, offset| {
        let after = AuditPlace { day, offset };
        let page = page_of(world.ask(&auditor, Request::Audited { dir: *shared, after })).unwrap();
        let text = String::from_utf8(page.lines).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        numbers(&lines)
    };
    let day = 20_010_203;
    assert_eq!(from(day, 0), [1, 4]);
    assert_eq!(from(day - 1, 7), [1, 4], "an earlier day");
    let whole = first.len() as u64;
    for within in [1, 5, whole, whole + 9, whole + hidden.len() as u64 + 1] {
        assert_eq!(from(day, within), [4], "{within}");
    }
    assert_eq!(from(day, u64::MAX), NONE);
    assert_eq!(from(day, 1 << 40), NONE);
    assert_eq!(from(u32::MAX, u64::MAX), NONE);
}
