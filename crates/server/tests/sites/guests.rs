//! Guests in a volume of several sites: roots and revocations travel between these.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use pelago_keynote::{Assertion, Charter, Grant, Principal, Revocation, RevocationSubject, policy};
use pelago_server::{Options, Server};
use pelago_wire::{
    Code, Context, GuestGrant, GuestRefusal, Handle, LeasedAnswer, OpenId, PassedRevocation,
    RecordedPeer, Reply, Request, RequestId, SessionId, SessionRecord, SitePeer, SiteToken, limits,
};

use super::world::{
    BERLIN, FIRST, Offices, ask, ask_as, begin, berlin_dir, client, copy_folder, key, next_number,
    options, public, wait_for,
};

/// The keys of a root of the first office, of one of the second office, and of two guests.
const ROOT: u8 = 61;
const ROOT_THERE: u8 = 62;
const BOB: u8 = 63;
const CAROL: u8 = 64;

fn principal(number: u8) -> Principal {
    Principal(public(number))
}

/// Two offices, of which the first one has a root.
struct World {
    offices: Offices,
    volume: [u8; 16],
    /// A directory of the second office, and one of the first.
    there: Handle,
    here: Handle,
}

impl World {
    fn new() -> Self {
        Self::of(Offices::new())
    }

    fn of(offices: Offices) -> Self {
        let world = Self::without_roots(offices);
        world.put("first/policy", &policy(&[principal(ROOT)], &[]).unwrap());
        world
    }

    fn without_roots(offices: Offices) -> Self {
        let volume = offices.first.session_service().served().volume;
        let there = offices.dir("there");
        let mode = pelago_wire::NewMode::exactly(0o755);
        let name = crate::harness::rig::name("here");
        let made = Request::MakeDir { dir: Handle::ROOT, name, mode };
        let made = ask(&offices.first, SessionId::DIRECT, made).unwrap();
        let here = crate::harness::rig::entry(made).unwrap().handle;
        let world = Self { offices, volume, there, here };
        world.offices.first.begin_site_list(key(FIRST)).unwrap();
        world
    }

    /// Puts a file into the folder of an office.
    fn put(&self, path: &str, text: &str) {
        let path = self.offices.folder.path().join(path);
        fs::write(path.with_extension("test"), text).unwrap();
        fs::rename(path.with_extension("test"), path).unwrap();
    }

    fn berlin(&self) -> &Server {
        &self.offices.berlin
    }

    fn credential(&self, by: u8, to: u8, dir: Handle) -> String {
        let grant = Grant::to_read(self.volume, dir.ino.raw());
        let credential = pelago_keynote::Credential {
            comment: &[],
            licensee: principal(to),
            conditions: &grant.conditions(),
        };
        credential.sign(&key(by).signing_key()).unwrap()
    }

    fn revocation(&self, by: u8, subject: impl Into<RevocationSubject>) -> Vec<u8> {
        Revocation::sign(self.volume, subject, 7, &key(by).signing_key()).into_bytes()
    }

    /// Waits until the second office accepts the credentials of this root.
    fn wait_for_root(&self, root: u8) {
        let text = self.credential(root, BOB, self.there);
        wait_for("the roots have come", || admit(self.berlin(), BOB, &text).is_ok());
    }

    /// Takes the credential or key back in an office. Returns the names of the unreached sites.
    fn revoke(&self, at: &Server, sentence: Vec<u8>) -> Result<Vec<String>, Code> {
        let [away, refused] = self.revoke_or_not(at, sentence)?;
        assert_eq!(refused, Vec::<String>::new());
        Ok(away)
    }

    /// As `revoke`, with the names of the sites that refuse it too.
    fn revoke_or_not(&self, at: &Server, sentence: Vec<u8>) -> Result<[Vec<String>; 2], Code> {
        match ask(at, SessionId::DIRECT, Request::Revoke { sentence, chain: Vec::new() })? {
            Reply::Unreached { away, refused } => Ok([away, refused]),
            other => panic!("{other:?}"),
        }
    }

    /// Starts the first office again, whose folder `between` changes meanwhile. The line is cut.
    fn start_first_again(self, between: impl FnOnce(&Path)) -> Self {
        let Self { offices, volume, there, here } = self;
        Self { offices: offices.start_first_with(options(), between), volume, there, here }
    }

    /// Heals the line, and has the first office begin to ask.
    fn begin_first(&self) {
        self.offices.cut(false);
        self.offices.first.begin_site_list(key(FIRST)).unwrap();
    }
}

fn id_of(text: &str) -> RevocationSubject {
    Assertion::parse(text.as_bytes()).unwrap().id().into()
}

pub(super) fn admit(server: &Server, who: u8, text: &str) -> Result<GuestGrant, GuestRefusal> {
    let chain = [text.as_bytes().to_vec()];
    server.session_service().admit_guest(&public(who), &chain, None)
}

/// Begins the session of a guest.
fn guest(server: &Server, who: u8, text: &str) -> SessionId {
    let grant = admit(server, who, text).unwrap();
    let service = server.session_service();
    let number = u32::try_from(next_number()).unwrap();
    let session = SessionId::new(service.served().epoch, number);
    let record = SessionRecord::new([0; 16], RecordedPeer::Guest(grant.principal));
    service.begin_guest(session, &grant, &record).unwrap();
    session
}

/// Reads the attributes of a directory as a guest.
fn look(server: &Server, session: SessionId, dir: Handle) -> Result<(), Code> {
    let request = RequestId(next_number());
    let context = Context { session, request, ..Context::direct(0, 0) };
    ask_as(server, &context, Request::GetAttr { node: dir }, &[]).map(drop)
}

#[test]
fn a_root_of_the_first_office_shares_what_another_one_has() {
    let world = World::new();
    let text = world.credential(ROOT, BOB, world.there);
    world.wait_for_root(ROOT);
    let bob = guest(world.berlin(), BOB, &text);
    assert_eq!(look(world.berlin(), bob, world.there), Ok(()));
    assert_eq!(look(world.berlin(), bob, world.here), Err(Code::Stale), "it is not shared");
}

/// An office that has no roots asks for nothing, and is told that there are some.
#[test]
fn roots_that_come_during_a_cut_reach_the_office_when_the_line_is_back() {
    let world = World::without_roots(Offices::new());
    let service = world.berlin().session_service();
    wait_for("it has asked once", || service.guests_wait().is_none());
    world.offices.cut(true);
    world.put("first/policy", &policy(&[principal(ROOT)], &[]).unwrap());
    // Longer than the first office takes to look at it, and to tell of it.
    thread::sleep(3 * limits::CHARTER_PAUSE);
    world.offices.cut(false);
    world.wait_for_root(ROOT);
}

#[test]
fn what_is_taken_back_in_one_office_is_refused_in_the_other_at_once() {
    let world = World::new();
    world.wait_for_root(ROOT);
    // At the first one, and at the second one.
    for (at, carol) in [(&world.offices.first, false), (&world.offices.berlin, true)] {
        let who = if carol { CAROL } else { BOB };
        let there = world.credential(ROOT, who, world.there);
        let here = world.credential(ROOT, who, world.here);
        let of_berlin = guest(world.berlin(), who, &there);
        let of_first = guest(&world.offices.first, who, &here);
        assert_eq!(look(world.berlin(), of_berlin, world.there), Ok(()));
        let sentence = world.revocation(ROOT, principal(who));
        assert_eq!(world.revoke(at, sentence), Ok(Vec::new()));
        assert_eq!(look(world.berlin(), of_berlin, world.there), Err(Code::Stale));
        assert_eq!(look(&world.offices.first, of_first, world.here), Err(Code::Stale));
        assert!(admit(world.berlin(), who, &there).is_err());
        assert!(admit(&world.offices.first, who, &here).is_err());
    }
}

#[test]
fn a_revocation_of_before_the_line_came_back_is_in_force_before_a_guest_is_served() {
    let world = World::new();
    world.wait_for_root(ROOT);
    let text = world.credential(ROOT, BOB, world.there);
    let bob = guest(world.berlin(), BOB, &text);
    assert_eq!(look(world.berlin(), bob, world.there), Ok(()));
    world.offices.cut(true);
    let began = Instant::now();
    let unreached = world.revoke(&world.offices.first, world.revocation(ROOT, id_of(&text)));
    assert_eq!(unreached, Ok(vec!["berlin".to_owned()]));
    // Before that it may take itself for one that knows everything.
    assert!(began.elapsed() > limits::CHARTER_FRESH / 2, "{:?}", began.elapsed());
    assert_eq!(look(world.berlin(), bob, world.there), Ok(()), "it cannot know");
    // The first question of the guest comes before any of the office.
    world.offices.cut(false);
    assert_eq!(look(world.berlin(), bob, world.there), Err(Code::Stale));
    assert!(admit(world.berlin(), BOB, &text).is_err());
}

#[test]
fn a_revocation_of_an_office_that_was_cut_off_reaches_the_first_one_later() {
    let world = World::new();
    world.wait_for_root(ROOT);
    let here = world.credential(ROOT, BOB, world.here);
    let bob = guest(&world.offices.first, BOB, &here);
    world.offices.cut(true);
    let sentence = world.revocation(ROOT, principal(BOB));
    assert_eq!(world.revoke(world.berlin(), sentence), Ok(vec!["first".to_owned()]));
    assert_eq!(look(&world.offices.first, bob, world.here), Ok(()));
    world.offices.cut(false);
    wait_for("the first office has it", || {
        look(&world.offices.first, bob, world.here) == Err(Code::Stale)
    });
}

/// What a guest has cached is recalled, and what was taken back is safe, before the other office
/// answers.
#[test]
fn a_guest_keeps_nothing_of_what_was_taken_back_in_the_other_office() {
    let world = World::new();
    world.wait_for_root(ROOT);
    for who in [BOB, CAROL] {
        let text = world.credential(ROOT, who, world.there);
        let session = guest(world.berlin(), who, &text);
        let service = world.berlin().session_service();
        let since = service.lease_moment();
        let context = Context { session, ..Context::direct(0, 0) };
        let asked = ask_as(world.berlin(), &context, Request::GetAttr { node: world.there }, &[]);
        let mut result = asked.map_err(Into::into);
        let answer = LeasedAnswer {
            node: Some(world.there.ino),
            names: None,
            mutation: 0,
            origin: None,
            opens_for_writing: false,
            result: &mut result,
            changed: None,
        };
        assert!(service.lease(session, since, answer).node, "{result:?}");
        let sentence = world.revocation(ROOT, id_of(&text));
        assert_eq!(world.revoke(&world.offices.first, sentence), Ok(Vec::new()));
        let (done, safe) = service.progress();
        assert_eq!(done, safe);
        assert!(world.offices.recalled_at_berlin().contains(&session));
    }
}

/// Both take the same key back, and each one of its own, at the same time.
#[test]
fn two_revocations_at_once_at_two_offices_are_in_force_at_both() {
    let world = World::new();
    world.wait_for_root(ROOT);
    for round in 0..20_u8 {
        let keys = [100 + round, 130 + round, 160 + round];
        thread::scope(|scope| {
            for (at, own) in [(&world.offices.first, keys[0]), (&world.offices.berlin, keys[1])] {
                let world = &world;
                scope.spawn(move || {
                    for key in [own, keys[2]] {
                        let sentence = world.revocation(ROOT, principal(key));
                        assert_eq!(world.revoke(at, sentence), Ok(Vec::new()));
                    }
                });
            }
        });
        for who in keys {
            let there = world.credential(ROOT, who, world.there);
            let here = world.credential(ROOT, who, world.here);
            assert!(admit(world.berlin(), who, &there).is_err(), "{who}");
            assert!(admit(&world.offices.first, who, &here).is_err(), "{who}");
        }
    }
}

/// Guests ask all the time while one is taken back: none gets an answer after the revocation was
/// answered.
#[test]
fn no_request_that_runs_meanwhile_is_answered_after_a_revocation() {
    let world = World::new();
    world.wait_for_root(ROOT);
    for round in 0..10_u8 {
        let who = 200 + round;
        let text = world.credential(ROOT, who, world.there);
        let session = guest(world.berlin(), who, &text);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let asking = scope.spawn(|| {
                let mut answered = 0_u32;
                loop {
                    let was_over = is_over.load(Ordering::Acquire);
                    match look(world.berlin(), session, world.there) {
                        Ok(()) => answered += 1,
                        Err(_) => return (answered, false),
                    }
                    if was_over {
                        return (answered, true);
                    }
                }
            });
            thread::sleep(Duration::from_millis(20));
            let sentence = world.revocation(ROOT, id_of(&text));
            assert_eq!(world.revoke(&world.offices.first, sentence), Ok(Vec::new()));
            is_over.store(true, Ordering::Release);
            let (answered, is_late) = asking.join().unwrap();
            assert!(answered > 0 && !is_late, "{answered} {is_late}");
        });
    }
}

#[test]
fn an_office_alone_serves_no_guest_after_its_time_and_says_why() {
    let alone = Duration::from_secs(10);
    let of_berlin = Options { guests_alone: alone, ..options() };
    let world = World::of(Offices::with(of_berlin));
    world.wait_for_root(ROOT);
    let text = world.credential(ROOT, BOB, world.there);
    let bob = guest(world.berlin(), BOB, &text);
    world.offices.cut(true);
    assert_eq!(look(world.berlin(), bob, world.there), Ok(()));
    assert_eq!(world.berlin().session_service().guests_wait(), None);
    thread::sleep(alone + Duration::from_secs(1));
    assert_eq!(look(world.berlin(), bob, world.there), Err(Code::HostDown));
    let why = world.berlin().session_service().guests_wait().unwrap();
    assert!(why.contains("has not heard from the first office"), "{why}");
    world.offices.cut(false);
    assert_eq!(look(world.berlin(), bob, world.there), Ok(()));
    assert_eq!(world.berlin().session_service().guests_wait(), None);
}

/// As a kill between the receipt of a revocation and its row: the next run asks first.
#[test]
fn an_office_that_has_started_asks_before_it_serves() {
    let world = World::new();
    world.wait_for_root(ROOT);
    let text = world.credential(ROOT, BOB, world.there);
    let World { offices, volume, there, here } = world;
    offices.is_cut.store(true, Ordering::Release);
    let first = std::sync::Arc::clone(&offices.first);
    let offices = offices.start_berlin_again(options());
    let world = World { offices, volume, there, here };
    // What the last run was told is in force, and nobody is served by it.
    assert!(admit(world.berlin(), BOB, &text).is_ok(), "the roots are on the disk");
    assert!(world.berlin().session_service().guests_wait().is_some());
    let bob = guest(world.berlin(), BOB, &text);
    assert_eq!(look(world.berlin(), bob, world.there), Err(Code::TimedOut));
    let unreached = world.revoke(&first, world.revocation(ROOT, id_of(&text)));
    assert_eq!(unreached, Ok(vec!["berlin".to_owned()]));
    world.offices.cut(false);
    assert_eq!(look(world.berlin(), bob, world.there), Err(Code::Stale));
    wait_for("guests are served", || world.berlin().session_service().guests_wait().is_none());
    assert!(admit(world.berlin(), BOB, &text).is_err());
}

/// The folder of an office is an older copy: what it has forgotten it is told again, and what only
/// it knows it passes on.
#[test]
fn offices_restored_from_backups_have_the_revocations_of_both() {
    let world = World::new();
    world.wait_for_root(ROOT);
    let World { offices, volume, there, here } = world;
    let backup = tempfile::tempdir().unwrap();
    offices.berlin.stop().unwrap();
    copy_folder(&berlin_dir(&offices.folder), &backup.path().join("berlin"));
    let offices = offices.start_berlin_again(options());
    let world = World { offices, volume, there, here };
    wait_for("guests are served", || world.berlin().session_service().guests_wait().is_none());
    let sentence = world.revocation(ROOT, principal(BOB));
    assert_eq!(world.revoke(world.berlin(), sentence), Ok(Vec::new()));
    let World { offices, .. } = world;
    offices.berlin.stop().unwrap();
    fs::remove_dir_all(berlin_dir(&offices.folder)).unwrap();
    copy_folder(&backup.path().join("berlin"), &berlin_dir(&offices.folder));
    let offices = offices.start_berlin_again(options());
    let world = World { offices, volume, there, here };
    wait_for("guests are served", || world.berlin().session_service().guests_wait().is_none());
    let text = world.credential(ROOT, BOB, world.there);
    let refusal = admit(world.berlin(), BOB, &text).unwrap_err();
    assert_eq!(refusal.0, "the credential was taken back");
}

/// The folder of the first office is an older copy: before it serves a guest it asks the other one,
/// which has what was taken back since.
#[test]
fn a_first_office_restored_from_a_backup_asks_before_it_serves() {
    let world = World::new();
    world.wait_for_root(ROOT);
    let backup = tempfile::tempdir().unwrap();
    let backup = backup.path().join("first");
    let world = world.start_first_again(|dir| copy_folder(dir, &backup));
    world.begin_first();
    let service = world.offices.first.session_service();
    wait_for("guests are served", || service.guests_wait().is_none());
    drop(service);
    for (at, who) in [(world.berlin(), BOB), (&*world.offices.first, CAROL)] {
        let sentence = world.revocation(ROOT, principal(who));
        assert_eq!(world.revoke(at, sentence), Ok(Vec::new()));
    }
    let world = world.start_first_again(|dir| {
        fs::remove_dir_all(dir).unwrap();
        copy_folder(&backup, dir);
    });
    let first = &world.offices.first;
    let service = first.session_service();
    let why = service.guests_wait().unwrap();
    assert!(why.contains("asks the other offices"), "{why}");
    let sessions = [BOB, CAROL].map(|who| {
        // It does not know better.
        guest(first, who, &world.credential(ROOT, who, world.here))
    });
    world.begin_first();
    for session in sessions {
        assert_eq!(look(first, session, world.here), Err(Code::Stale));
    }
    wait_for("guests are served", || service.guests_wait().is_none());
    for who in [BOB, CAROL] {
        assert!(admit(first, who, &world.credential(ROOT, who, world.here)).is_err());
    }
}

/// The other office, which would know what was taken back, cannot be reached: the first one works
/// alone, and is told later.
#[test]
fn a_first_office_that_reaches_no_other_one_serves_guests_by_what_it_knows() {
    let world = World::new();
    world.wait_for_root(ROOT);
    world.offices.cut(true);
    let sentence = world.revocation(ROOT, principal(BOB));
    assert_eq!(world.revoke(world.berlin(), sentence), Ok(vec!["first".to_owned()]));
    let world = world.start_first_again(|_| {});
    let first = &world.offices.first;
    first.begin_site_list(key(FIRST)).unwrap();
    let bob = guest(first, BOB, &world.credential(ROOT, BOB, world.here));
    assert_eq!(look(first, bob, world.here), Ok(()));
    world.offices.cut(false);
    wait_for("it is told", || look(first, bob, world.here) == Err(Code::Stale));
}

/// An office takes a key back that is a root of the first one, of which it has not heard yet.
#[test]
fn a_refused_revocation_is_told_from_an_unreached_office_and_repeated_seldom() {
    let world = World::new();
    world.wait_for_root(ROOT);
    let refused_to = (70..80).find(|number| {
        let roots = [principal(ROOT), principal(*number)];
        world.put("first/policy", &policy(&roots, &[]).unwrap());
        let sentence = world.revocation(ROOT, principal(*number));
        match world.revoke_or_not(world.berlin(), sentence) {
            Ok([away, refused]) => {
                assert_eq!((away, refused), (Vec::new(), vec!["first".to_owned()]));
                true
            }
            // It has heard of it already.
            Err(code) => {
                assert_eq!(code, Code::Invalid);
                false
            }
        }
    });
    let root = refused_to.expect("a root of which the second office has not heard");
    let here = world.credential(root, BOB, world.here);
    assert!(admit(&world.offices.first, BOB, &here).is_ok(), "it is in force there alone");
    let before = world.offices.sent.load(Ordering::Acquire);
    thread::sleep(7 * limits::CHARTER_PAUSE);
    // At once, after four seconds and after eight more: a comparison and the revocation.
    let sent = world.offices.sent.load(Ordering::Acquire) - before;
    assert!((2..=6).contains(&sent), "{sent}");
}

#[test]
fn the_roots_of_an_office_count_there_beside_those_of_the_first_one() {
    let world = World::new();
    world.wait_for_root(ROOT);
    world.put("berlin/policy", &policy(&[principal(ROOT_THERE)], &[]).unwrap());
    for root in [ROOT, ROOT_THERE] {
        let there = world.credential(root, BOB, world.there);
        wait_for("it counts", || admit(world.berlin(), BOB, &there).is_ok());
    }
    let here = world.credential(ROOT_THERE, BOB, world.here);
    assert!(admit(&world.offices.first, BOB, &here).is_err(), "not at the first one");
    // The first office takes its root away.
    world.put("first/policy", &policy(&[principal(CAROL)], &[]).unwrap());
    let there = world.credential(ROOT, BOB, world.there);
    wait_for("it counts no more", || admit(world.berlin(), BOB, &there).is_err());
    let own = world.credential(ROOT_THERE, BOB, world.there);
    assert!(admit(world.berlin(), BOB, &own).is_ok());
}

#[test]
fn the_users_of_keys_travel_and_an_unknown_one_has_no_guest() {
    let world = World::new();
    world.wait_for_root(ROOT);
    let line =
        |number: u8, user: &str| format!("{} key{number} user={user}\n", key(number).public());
    let there = world.credential(ROOT, BOB, world.there);
    // A name that only the first office could have cannot be used by either of them here: so the
    // charter has it by the hands of the test.
    let volume = world.volume;
    let policy = Some(policy(&[principal(ROOT)], &[]).unwrap());
    let keys = line(ROOT, "nobody-has-this-name");
    // Later than any that the first office makes now.
    let version = UNIX_EPOCH.elapsed().unwrap().as_secs() + 1_000_000;
    let charter = Charter { volume, version, policy, keys };
    let World { offices, volume, there: dir, here } = world;
    offices.is_cut.store(true, Ordering::Release);
    offices.berlin.stop().unwrap();
    let signed = charter.sign(&key(FIRST).signing_key());
    fs::write(berlin_dir(&offices.folder).join("charter"), signed).unwrap();
    let offices = offices.start_berlin_again(options());
    let world = World { offices, volume, there: dir, here };
    let GuestRefusal(why) = admit(world.berlin(), BOB, &there).unwrap_err();
    assert_eq!(why, "the server does not know as whom you would act");
    // The own list goes first.
    world.put("berlin/keys", &line(ROOT, "5001"));
    wait_for("it is read", || admit(world.berlin(), BOB, &there).is_ok());
    // The charter of the first office is older, and is not taken.
    world.offices.cut(false);
    wait_for("guests are served", || world.berlin().session_service().guests_wait().is_none());
    fs::remove_file(berlin_dir(&world.offices.folder).join("keys")).unwrap();
    wait_for("the newer one is in force", || admit(world.berlin(), BOB, &there).is_err());
    // Any change at the first office makes one that is newer than all.
    world.put("first/keys", &line(CAROL, "5002"));
    wait_for("it is in force", || admit(world.berlin(), BOB, &there).is_ok());
}

/// What comes from an office, and what does not.
#[test]
fn only_sites_ask_for_the_charter_and_only_the_first_one_is_asked() {
    let world = World::new();
    let World { offices, .. } = &world;
    let requests = || {
        [
            Request::Charter { known: 0 },
            Request::Revoked { parts: vec![0; limits::REVOKED_PARTS_BYTES], after: None },
            Request::PassRevocation { sentence: b"garbage".to_vec(), end: 0 },
            Request::CharterChanged,
            Request::Clock,
            Request::Hashes { open: OpenId(1), offset: 0, blocks: 1 },
            Request::RenewToken { token: SiteToken::NONE },
            Request::KeepToken { token: SiteToken::NONE },
        ]
    };
    for session in [client(&offices.first), SessionId::DIRECT] {
        for request in requests() {
            let asked = ask(&offices.first, session, request);
            assert_eq!(asked.err(), Some(Code::AccessDenied));
        }
    }
    let site = |server: &Server, number: u8, site: u16| {
        begin(&*server.session_service(), SitePeer { key: public(number), site })
    };
    let of_berlin = site(&offices.first, BERLIN, 1);
    let of_first = site(&offices.berlin, FIRST, 0);
    // The first one asks another one for its revocations, and for nothing else.
    for request in requests().into_iter().take(3) {
        let is_asked = matches!(request, Request::Revoked { .. });
        let asked = ask(&offices.berlin, of_first, request);
        assert_eq!(asked.err(), (!is_asked).then_some(Code::NotSupported));
    }
    let changed = ask(&offices.first, of_berlin, Request::CharterChanged);
    assert_eq!(changed.err(), Some(Code::AccessDenied), "only the first site says so");
    let short = Request::Revoked { parts: vec![0; 16], after: None };
    assert_eq!(ask(&offices.first, of_berlin, short).err(), Some(Code::Invalid));
    // Bad sentences.
    let good = world.revocation(ROOT, principal(BOB));
    let elsewhere = Revocation::sign([9; 16], principal(BOB), 7, &key(ROOT).signing_key());
    let mut changed = good.clone();
    let at = changed.len() - 20;
    changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
    let of_root = world.revocation(ROOT, principal(ROOT));
    let cut = good[..good.len() - 5].to_vec();
    let long = vec![b'x'; limits::REVOCATION_BYTES + 1];
    for wrong in [elsewhere.into_bytes(), changed, of_root, cut, long, Vec::new()] {
        let passed = Request::PassRevocation { sentence: wrong, end: 0 };
        assert_eq!(ask(&offices.first, of_berlin, passed).err(), Some(Code::Invalid));
    }
    let passed = Request::PassRevocation { sentence: good, end: 0 };
    assert!(matches!(ask(&offices.first, of_berlin, passed), Ok(Reply::Unreached { .. })));
    let here = world.credential(ROOT, BOB, world.here);
    assert!(admit(&offices.first, BOB, &here).is_err());
}

/// Many revocations are told page by page, and a page has no more than it may have.
#[test]
fn many_revocations_are_told_in_pages() {
    let world = World::new();
    world.wait_for_root(ROOT);
    world.offices.is_cut.store(true, Ordering::Release);
    let mut subjects = Vec::new();
    for number in 0..300_u64 {
        let mut id = [5; 32];
        id[24..].copy_from_slice(&number.to_le_bytes());
        // All in one part, and some elsewhere.
        id[0] = if number % 3 == 0 { number as u8 } else { 5 };
        subjects.push(id);
    }
    let peer = SitePeer { key: public(BERLIN), site: 1 };
    let session = begin(&*world.offices.first.session_service(), peer);
    for id in &subjects {
        let subject = pelago_keynote::CredentialId(*id);
        let sentence = world.revocation(ROOT, subject);
        let passed = Request::PassRevocation { sentence, end: 0 };
        ask(&world.offices.first, session, passed).unwrap();
    }
    world.offices.cut(false);
    let parts = vec![0; limits::REVOKED_PARTS_BYTES];
    let mut after = None;
    let mut told = Vec::new();
    loop {
        let request = Request::Revoked { parts: parts.clone(), after };
        let Ok(Reply::Revoked { revocations, more, .. }) =
            ask(&world.offices.first, session, request)
        else {
            panic!("no page");
        };
        assert!(revocations.len() <= limits::PASSED_REVOCATIONS);
        let id = |passed: &PassedRevocation| {
            Revocation::parse(&passed.sentence).unwrap().subject.bytes()
        };
        told.extend(revocations.iter().map(id));
        after = told.last().copied();
        if !more {
            break;
        }
    }
    subjects.sort_unstable();
    assert_eq!(told, subjects);
    // The office has all of them, too: it asks for nothing more.
    let service = world.berlin().session_service();
    wait_for("guests are served", || service.guests_wait().is_none());
    wait_for("it has all", || {
        let sent = world.offices.sent.load(Ordering::Acquire);
        thread::sleep(limits::CHARTER_PAUSE + Duration::from_millis(500));
        world.offices.sent.load(Ordering::Acquire) == sent
    });
}
