//! The audit log.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use pelago_keynote::{Assertion, Grant, Revocation, Right, Rights, hex, policy};
use pelago_wire::{Asker, Code, Handle, InodeId, NewMode, Request, Search, SessionId, SetAttr};
use serde_json::Value;

use super::keys;
use super::world::{Guest, POLICY_DELAY, World, key, principal};
use crate::harness::rig::{DEADLINE, name};

/// Returns the lines that are in the log now.
fn lines(world: &World) -> Vec<Value> {
    let Ok(days) = fs::read_dir(world.file("audit")) else { return Vec::new() };
    let mut days: Vec<_> = days.map(|day| day.unwrap().path()).collect();
    days.sort();
    let texts = days.iter().map(|day| fs::read_to_string(day).unwrap());
    // A line that is being written has no end yet.
    let whole = texts.map(|text| text[..text.rfind('\n').map_or(0, |end| end + 1)].to_owned());
    whole.flat_map(|text| text.lines().map(parsed).collect::<Vec<_>>()).collect()
}

fn parsed(line: &str) -> Value {
    serde_json::from_str(line).unwrap()
}

/// Waits for this number of lines of a kind, and returns them.
fn wait_for(world: &World, what: &str, count: usize) -> Vec<Value> {
    let begun = Instant::now();
    loop {
        let found: Vec<Value> =
            lines(world).into_iter().filter(|line| line["what"] == what).collect();
        if found.len() >= count {
            assert_eq!(found.len(), count, "{what}: {found:?}");
            return found;
        }
        assert!(begun.elapsed() < DEADLINE, "{what}: {:?}", lines(world));
        // The log is written by another thread.
        thread::sleep(Duration::from_millis(5));
    }
}

fn digits(number: u8) -> String {
    hex::text(&principal(number).0)
}

fn id(text: &str) -> String {
    Assertion::parse(text.as_bytes()).unwrap().id().to_string()
}

fn make_dir(world: &World, guest: &Guest, dir: Handle) -> Result<(), Code> {
    let mode = NewMode::exactly(0o755);
    world.ask(guest, Request::MakeDir { dir, name: name("new"), mode }).map(drop)
}

/// Takes a credential back, as the root (1).
pub(super) fn revoke(world: &World, text: &str) {
    let id = Assertion::parse(text.as_bytes()).unwrap().id();
    let sentence = Revocation::sign(world.volume, id, 7, &key(1).signing_key());
    let sentence = sentence.into_bytes();
    world.call(Request::Revoke { sentence, chain: vec![] }).unwrap();
}

#[test]
fn a_volume_without_guests_has_no_log() {
    let world = World::new();
    let dir = world.make_dir(Handle::ROOT, "dir");
    world.put(dir, "f", b"bytes");
    let world = world.restarted();
    assert!(!world.file("audit").exists());
    // What is refused to a stranger without a good chain is no line either.
    assert!(world.admit(3, &[&world.credential(2, dir.ino)]).is_err());
    assert!(lines(&world).iter().all(|line| line["what"] == "policy"), "{:?}", lines(&world));
}

#[test]
fn the_log_says_who_came_and_what_was_used_denied_and_taken_back() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let secret = world.make_dir(Handle::ROOT, "secret");
    let file = world.put(shared, "f", b"bytes");
    let until = world.until(shared.ino, 3600);
    let guest = world.begin(world.admit(2, &[&until]).unwrap()).unwrap();
    let line = &wait_for(&world, "share", 1)[0];
    assert_eq!(line["key"], digits(2));
    assert_eq!(line["credential"], id(&until));
    let link = &line["chain"][0];
    assert_eq!((&link["by"], &link["to"][0]), (&digits(1).into(), &digits(2).into()));
    assert_eq!((&link["rights"], &link["directory"]), (&"rx".into(), &shared.ino.raw().into()));
    assert_eq!(link["until"].as_str().unwrap().len(), 14);
    let time = line["time"].as_str().unwrap();
    assert!(time.len() == 20 && time.ends_with('Z'), "{time}");
    assert_eq!(wait_for(&world, "policy", 1)[0]["roots"][0], digits(1));

    // Each right once in a session.
    for _ in 0..3 {
        world.attr(&guest, shared).unwrap();
        let open = world.open(&guest, file).unwrap();
        world.read(&guest, open).unwrap();
    }
    let uses = wait_for(&world, "use", 2);
    assert_eq!(
        (&uses[0]["operation"], &uses[0]["node"]),
        (&"getattr".into(), &shared.ino.raw().into())
    );
    assert_eq!((&uses[1]["operation"], &uses[1]["rights"]), (&"open".into(), &"r".into()));

    // A node that is not granted, and an operation that is no guest's.
    assert_eq!(world.attr(&guest, secret), Err(Code::Stale));
    assert!(make_dir(&world, &guest, shared).is_err());
    // A node that does not exist is no denial.
    let missing = Handle::own(InodeId::new(0, 0, 77_777).unwrap());
    assert_eq!(world.attr(&guest, missing), Err(Code::Stale));
    let denials = wait_for(&world, "denial", 2);
    assert_eq!(denials[0]["operation"], "getattr");
    assert_eq!(denials[0]["node"], secret.ino.raw());
    assert_eq!(
        (&denials[1]["operation"], &denials[1]["key"]),
        (&"mkdir".into(), &digits(2).into())
    );

    // A second session of the same chain is no new share.
    let second = world.begin(guest.grant).unwrap();
    world.attr(&second, shared).unwrap();
    wait_for(&world, "use", 3);
    wait_for(&world, "share", 1);

    let sentence = Revocation::sign(
        world.volume,
        Assertion::parse(until.as_bytes()).unwrap().id(),
        7,
        &key(1).signing_key(),
    );
    let revoke = || Request::Revoke { sentence: sentence.clone().into_bytes(), chain: vec![] };
    world.call(revoke()).unwrap();
    world.call(revoke()).unwrap();
    let revoked = &wait_for(&world, "revocation", 1)[0];
    assert_eq!((&revoked["by"], &revoked["root"]), (&digits(1).into(), &true.into()));
    assert_eq!(revoked["credential"], id(&until));
    world.server.session_service().end_session(guest.session);
    let end = &wait_for(&world, "end", 1)[0];
    assert_eq!((&end["why"], &end["credential"]), (&"revoked".into(), &id(&until).into()));
    assert!(world.admit(2, &[&until]).is_err());
    assert_eq!(wait_for(&world, "refusal", 1)[0]["why"], "revoked");

    let before = lines(&world);
    let world = world.restarted();
    assert_eq!(lines(&world), before, "a stop and a start add nothing");
}

#[test]
fn the_log_says_which_credential_of_a_chain_has_ended() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let rights = Rights::READ.with(Right::Grant);
    let until = Some(world.digits_in(2));
    let first = world.signed(1, 2, &Grant { rights, until, ..world.to_read(shared.ino) });
    let second = world.signed(2, 3, &world.to_read(shared.ino));
    let guest = world.begin(world.admit(3, &[&first, &second]).unwrap()).unwrap();
    assert_eq!(wait_for(&world, "share", 1)[0]["chain"].as_array().unwrap().len(), 2);
    // Only the clock ends the share.
    thread::sleep(Duration::from_millis(3100));
    assert_eq!(world.attr(&guest, shared), Err(Code::Stale));
    world.server.session_service().end_session(guest.session);
    let end = &wait_for(&world, "end", 1)[0];
    assert_eq!((&end["why"], &end["key"]), (&"expired".into(), &digits(3).into()));
    assert_eq!(end["credential"], id(&first), "of the two, the one that has ended");
    assert!(world.admit(3, &[&first, &second]).is_err());
    let refusal = &wait_for(&world, "refusal", 1)[0];
    assert_eq!((&refusal["why"], &refusal["credential"]), (&"expired".into(), &id(&first).into()));
}

#[test]
fn the_log_says_that_the_roots_have_changed() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let guest = world.guest(2, shared.ino);
    world.attr(&guest, shared).unwrap();
    wait_for(&world, "policy", 1);
    world.set_policy(&policy(&[principal(7)], &[]).unwrap());
    // The file is looked at twice a second.
    thread::sleep(POLICY_DELAY);
    assert_eq!(world.attr(&guest, shared), Err(Code::Stale));
    let policies = wait_for(&world, "policy", 2);
    assert_eq!(policies[1]["roots"], serde_json::json!([digits(7)]));
    world.server.session_service().end_session(guest.session);
    assert_eq!(wait_for(&world, "end", 1)[0]["why"], "no-root");
}

/// A guest that is denied something all the time fills no disk, and is counted.
#[test]
fn a_session_gets_ten_denials_a_second_and_the_rest_are_counted() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let secret = world.make_dir(Handle::ROOT, "secret");
    let guest = world.guest(2, shared.ino);
    let begun = Instant::now();
    for _ in 0..500 {
        assert_eq!(world.attr(&guest, secret), Err(Code::Stale));
    }
    let seconds = begun.elapsed().as_secs() + 2;
    // The rest is in the line of the end.
    world.server.session_service().end_session(guest.session);
    let end = &wait_for(&world, "end", 1)[0];
    assert_eq!(end["why"], "closed");
    let denials: Vec<Value> =
        lines(&world).into_iter().filter(|line| line["what"] == "denial").collect();
    assert!(denials.len() as u64 <= 10 * seconds, "{} in {seconds} s", denials.len());
    let counted = denials.iter().chain([end]).filter_map(|line| line["omitted"].as_u64());
    assert_eq!(denials.len() as u64 + counted.sum::<u64>(), 500);
    // Another session is not concerned.
    let other = world.guest(3, shared.ino);
    assert_eq!(world.attr(&other, secret), Err(Code::Stale));
    wait_for(&world, "denial", denials.len() + 1);
}

/// A line is whole even if a crash has cut the one before.
#[test]
fn a_cut_line_ends_before_the_next_one() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    world.guest(2, shared.ino);
    wait_for(&world, "share", 1);
    let world = world.restarted();
    let day = fs::read_dir(world.file("audit")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&day).unwrap();
    fs::write(&day, format!("{text}{{\"what\":\"sha")).unwrap();
    world.guest(3, shared.ino);
    let begun = Instant::now();
    let last = |text: &str| text.lines().last().map(str::to_owned);
    loop {
        let text = fs::read_to_string(&day).unwrap();
        if text.ends_with('\n') && last(&text).is_some_and(|line| line.contains(&digits(3))) {
            assert!(text.contains("{\"what\":\"sha\n{"), "{text}");
            return;
        }
        assert!(begun.elapsed() < DEADLINE, "{text}");
        // The log is written by another thread.
        thread::sleep(Duration::from_millis(5));
    }
}

/// What a guest asks for after the end is no denial of its own: the end has a line.
#[test]
fn a_session_that_has_ended_is_not_denied_each_request() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let text = world.until(shared.ino, 1);
    let guest = world.begin(world.admit(2, &[&text]).unwrap()).unwrap();
    // Only the clock ends the share.
    thread::sleep(Duration::from_millis(2100));
    for _ in 0..5 {
        assert_eq!(world.attr(&guest, shared), Err(Code::Stale));
    }
    world.server.session_service().end_session(guest.session);
    wait_for(&world, "end", 1);
    assert!(lines(&world).iter().all(|line| line["what"] != "denial"), "{:?}", lines(&world));
}

/// Rights suffice, and the mode of a node does not, for the user as whom the guest acts.
#[test]
fn a_denial_by_a_mode_is_one_of_its_own() {
    let world = World::new();
    keys::put(&world, &keys::line(2, "5002"));
    let shared = world.make_dir(Handle::ROOT, "shared");
    let file = world.put(shared, "f", b"bytes");
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    world.call(Request::SetAttr { node: file, open: None, set }).unwrap();
    let share = Grant { rights: "rwcg".parse().unwrap(), ..world.to_read(shared.ino) };
    let chain = [world.signed(1, 2, &share), world.signed(2, 3, &share)];
    let guest = world.guest_of(3, &[&chain[0], &chain[1]]);
    assert_eq!(world.open(&guest, file).err(), Some(Code::AccessDenied));
    assert_eq!(make_dir(&world, &guest, shared), Err(Code::AccessDenied));
    let denials = wait_for(&world, "denial", 2);
    let said = |at: usize| ["operation", "rights", "why"].map(|field| denials[at][field].clone());
    assert_eq!(said(0), ["open", "r", "modes"]);
    assert_eq!(said(1), ["mkdir", "c", "modes"]);
}

#[test]
fn a_chain_that_is_attached_has_lines_of_its_own() {
    let world = World::new();
    let first = world.make_dir(Handle::ROOT, "first");
    let second = world.make_dir(Handle::ROOT, "second");
    let guest = world.guest(2, first.ino);
    let text = world.credential(2, second.ino);
    let attach = || {
        let chain = vec![text.as_bytes().to_vec()];
        world.ask(&guest, Request::Attach { chain }).unwrap()
    };
    attach();
    attach();
    let shares = wait_for(&world, "share", 2);
    assert_eq!(shares[1]["credential"], id(&text));
    assert_eq!(shares[1]["chain"][0]["directory"], second.ino.raw());
    assert!(world.attr(&guest, second).is_ok());
    revoke(&world, &text);
    for _ in 0..2 {
        assert_eq!(world.attr(&guest, second), Err(Code::Stale));
    }
    assert!(world.attr(&guest, first).is_ok());
    let end = &wait_for(&world, "lapse", 1)[0];
    assert_eq!((&end["credential"], &end["why"]), (&id(&text).into(), &"revoked".into()));
    // It is not attached again.
    attach();
    let refusal = &wait_for(&world, "refusal", 1)[0];
    assert_eq!((&refusal["credential"], &refusal["why"]), (&id(&text).into(), &"revoked".into()));
}

/// The log has reads by the server for a guest, as it has those of the guest itself.
#[test]
fn searches_and_questions_about_others_are_uses_and_denials() {
    let world = World::new();
    let shared = world.make_dir(Handle::ROOT, "shared");
    let guest_for = |letters: &str| {
        let share = Grant { rights: letters.parse().unwrap(), ..world.to_read(shared.ino) };
        world.begin(world.admit(2, &[&world.signed(1, 2, &share)]).unwrap()).unwrap()
    };
    let asker = Asker::default();
    let search = Search { query: b"name~*".to_vec(), hits: 9, after: None, asker };
    let search = Request::Search { dir: shared, search };
    world.ask(&guest_for("r"), search.clone()).unwrap();
    let line = &wait_for(&world, "use", 1)[0];
    assert_eq!((&line["operation"], &line["rights"]), (&"search".into(), &"r".into()));
    assert_eq!(line["node"], shared.ino.raw());
    let writer = guest_for("w");
    assert_eq!(world.ask(&writer, search).map(drop), Err(Code::AccessDenied));
    let chain = vec![world.credential(3, shared.ino).into_bytes()];
    let access = Request::Access { node: shared, chain, after: SessionId(0) };
    assert_eq!(world.ask(&writer, access).map(drop), Err(Code::AccessDenied));
    let denials = wait_for(&world, "denial", 2);
    let told = [0, 1].map(|at| (&denials[at]["operation"], &denials[at]["rights"]));
    let expected = [(&"search".into(), &"r".into()), (&"access".into(), &"a".into())];
    assert_eq!(told, expected);
}
