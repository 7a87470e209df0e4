//! Credentials that the server issues to the makers of files and folders.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::thread;
use std::time::Duration;

use pelago_keynote::share::chain_ids;
use pelago_keynote::{
    Assertion, Credential, Grant, IssuedGrant, IssuingLicence, Revocation, RevocationSubject,
    Rights, SharedObject, policy,
};
use pelago_net::key::PrivateKey;
use pelago_wire::codec::{ReplyStamp, chain_bytes};
use pelago_wire::present::Present;
use pelago_wire::{
    Code, Context, FileKind, GuestRefusal, Handle, InodeId, NewMode, OpenFlags, RecordedPeer,
    RenameFlags, Replayed, Reply, Request, SessionId, SessionRecord, SetAttr, WriteFlags, limits,
};

use super::audit_pages::told;
use super::world::{Guest, POLICY_DELAY, World, conditioned, key, principal};
use crate::harness::requests::{lookup, next_open};
use crate::harness::rig::name;

/// The number of the server's key.
const SERVER: u8 = 90;

/// A shared folder of a volume whose server may issue credentials.
struct Desk {
    world: World,
    dir: Handle,
}

type Texts = Vec<String>;

impl Desk {
    fn new() -> Self {
        let desk = Self::without_licence();
        desk.set_licence(&conditioned(1, SERVER, &desk.licence().conditions()));
        desk
    }

    fn without_licence() -> Self {
        let world = World::new();
        set_key(&world, &key(SERVER));
        let dir = world.make_dir(Handle::ROOT, "shared");
        Self { world, dir }
    }

    const fn licence(&self) -> IssuingLicence {
        IssuingLicence { volume: self.world.volume }
    }

    fn set_licence(&self, text: &str) {
        write_private(&self.world, "issuer", text);
    }

    fn grant(&self, rights: &str) -> Grant {
        Grant { rights: rights.parse().unwrap(), ..self.world.to_read(self.dir.ino) }
    }

    /// Returns the credential by which the root shares the folder with the key 2.
    fn credential(&self, rights: &str) -> String {
        self.world.signed(1, 2, &self.grant(rights))
    }

    fn begin(&self, number: u8, chain: &[&str]) -> Guest {
        self.world.begin(self.world.admit(number, chain).unwrap()).unwrap()
    }

    fn guest(&self, rights: &str) -> Guest {
        self.begin(2, &[&self.credential(rights)])
    }

    fn create(&self, guest: &Guest, dir: Handle, text: &str) -> Handle {
        let open = next_open();
        let mode = NewMode { mode: 0o666, umask: 0o022 };
        let flags = OpenFlags::READ_WRITE;
        let create = Request::Create { dir, name: name(text), mode, flags, open };
        let Reply::Created { entry, .. } = self.world.ask(guest, create).unwrap() else {
            panic!("it is created")
        };
        self.world.ask(guest, Request::Release { open }).unwrap();
        entry.handle
    }

    fn make_dir(&self, guest: &Guest, text: &str) -> Handle {
        let mode = NewMode::exactly(0o755);
        let request = Request::MakeDir { dir: self.dir, name: name(text), mode };
        let Reply::Entry(entry) = self.world.ask(guest, request).unwrap() else {
            panic!("it is made")
        };
        entry.handle
    }

    fn issue(&self, guest: &Guest, node: Handle) -> Result<Texts, Code> {
        match self.world.ask(guest, Request::Issue { node })? {
            Reply::Issued(texts) => {
                Ok(texts.into_iter().map(|text| String::from_utf8(text).unwrap()).collect())
            }
            other => panic!("{other:?}"),
        }
    }

    /// Admits the holder of a chain, and begins a session.
    fn admit(&self, number: u8, chain: &[String]) -> Result<Guest, GuestRefusal> {
        let chain: Vec<&str> = chain.iter().map(String::as_str).collect();
        self.world.admit(number, &chain).and_then(|grant| self.world.begin(grant))
    }

    fn may_read(&self, guest: &Guest, node: Handle) -> Result<(), Code> {
        let open = self.world.open(guest, node)?;
        self.world.read(guest, open).map(drop)
    }

    fn may_write(&self, guest: &Guest, node: Handle) -> Result<(), Code> {
        let open = next_open();
        let flags = OpenFlags::READ_WRITE;
        self.world.ask(guest, Request::Open { node, flags, open }).map(drop)
    }

    /// Returns a chain with one link more: a file for another key.
    fn handed_on(&self, chain: &[String], by: u8, to: u8, node: Handle) -> Texts {
        let object = SharedObject::File(node.ino.raw());
        let grant = Grant { object, ..self.grant("r") };
        [chain, &[self.world.signed(by, to, &grant)]].concat()
    }

    fn chmod(&self, node: Handle, mode: u16) {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        self.world.call(Request::SetAttr { node, open: None, set }).unwrap();
    }

    fn revoke(&self, subject: impl Into<RevocationSubject>) {
        let sentence = Revocation::sign(self.world.volume, subject, 1, &key(1).signing_key());
        let request = Request::Revoke { sentence: sentence.into_bytes(), chain: vec![] };
        self.world.call(request).unwrap();
    }

    /// Replaces what the last link of a chain grants, signed by the key of this number.
    fn forged(chain: &[String], by: u8, change: impl FnOnce(&mut IssuedGrant)) -> Texts {
        let mut texts = chain.to_vec();
        let text = texts.pop().unwrap();
        let mut issued = IssuedGrant::of(&Assertion::parse(text.as_bytes()).unwrap()).unwrap();
        change(&mut issued);
        texts.push(conditioned(by, 2, &issued.conditions()));
        texts
    }
}

fn set_key(world: &World, key: &PrivateKey) {
    write_private(world, "key", &format!("# key\n{}\n", key.to_secret_text()));
}

fn write_private(world: &World, name: &str, text: &str) {
    fs::write(world.file(name), text).unwrap();
    fs::set_permissions(world.file(name), fs::Permissions::from_mode(0o600)).unwrap();
}

fn id(text: &str) -> RevocationSubject {
    Assertion::parse(text.as_bytes()).unwrap().id().into()
}

fn taken_back() -> GuestRefusal {
    GuestRefusal("the credential was taken back".to_owned())
}

fn no_reason() -> GuestRefusal {
    GuestRefusal(String::new())
}

#[test]
fn the_maker_of_a_file_gets_all_rights_to_it_and_hands_them_on() {
    let desk = Desk::new();
    let world = &desk.world;
    let guest = desk.guest("c");
    let file = desk.create(&guest, desk.dir, "made");
    assert_eq!(desk.may_read(&guest, file), Err(Code::AccessDenied), "by the share alone");
    let chain = desk.issue(&guest, file).unwrap();
    assert_eq!(chain.len(), 3);
    assert_eq!(chain[0], desk.credential("c"), "the chain of the moment is its beginning");
    let read = Assertion::credential(chain[2].as_bytes()).unwrap();
    let issued = IssuedGrant::of(&read).unwrap();
    assert_eq!(issued.grant.object, SharedObject::File(file.ino.raw()));
    assert_eq!(issued.grant.rights, Rights::OF_MAKER);
    assert_eq!(read.licensees().only_key(), Some(principal(2)));
    let line = format!("file {:x} in {:x}", file.ino.raw(), desk.dir.ino.raw());
    assert!(read.comment().contains(&line), "{:?}", read.comment());
    assert!(read.comment().contains(&"name made".to_owned()), "{:?}", read.comment());
    let maker = desk.admit(2, &chain).unwrap();
    assert_eq!(desk.may_read(&maker, file), Ok(()));
    let other = world.put(desk.dir, "other", b"of another one");
    assert_eq!(desk.may_read(&maker, other), Err(Code::AccessDenied), "as by the share");
    let carol = desk.admit(3, &desk.handed_on(&chain, 2, 3, file)).unwrap();
    assert_eq!(desk.may_read(&carol, file), Ok(()), "the share of the folder had no g");
    assert_eq!(desk.may_read(&carol, other), Err(Code::Stale));
    assert_eq!(desk.may_write(&carol, file), Err(Code::AccessDenied));
    assert_eq!(desk.may_write(&maker, file), Ok(()));
    assert_eq!(desk.may_write(&guest, file), Err(Code::AccessDenied));
}

#[test]
fn the_maker_of_a_folder_keeps_its_rights_to_it_where_it_moves() {
    let desk = Desk::new();
    let guest = desk.guest("rxc");
    let made = desk.make_dir(&guest, "made");
    let chain = desk.issue(&guest, made).unwrap();
    let read = Assertion::credential(chain[2].as_bytes()).unwrap();
    let granted = IssuedGrant::of(&read).unwrap().grant.rights;
    assert_eq!(granted.to_string(), "rxc", "no more than by the share");
    let comment = read.comment().join("\n");
    let line = format!("directory {:x} in {:x}\nname made", made.ino.raw(), desk.dir.ino.raw());
    assert!(comment.ends_with(&line), "{comment}");
    let below = desk.world.put(made, "of-alice", b"bytes");
    let maker = desk.admit(2, &chain).unwrap();
    assert_eq!(desk.may_read(&maker, below), Ok(()));
    let unlink = Request::Unlink { dir: made, name: name("of-alice") };
    assert_eq!(desk.world.ask(&maker, unlink).map(drop), Err(Code::AccessDenied));
    let carol = desk.admit(3, &desk.handed_on(&chain, 2, 3, below)).unwrap();
    assert_eq!(desk.may_read(&carol, below), Err(Code::Stale), "the share had no g");
    let elsewhere = desk.world.make_dir(Handle::ROOT, "elsewhere");
    desk.world.rename(desk.dir, elsewhere, "made");
    assert!(desk.world.attr(&maker, made).is_ok(), "it follows the folder");
    assert_eq!(desk.world.attr(&guest, made).map(drop), Err(Code::Stale));
    assert_eq!(desk.issue(&guest, made), Err(Code::Stale), "out of what is shared");
}

/// A folder is no way to rights to files of others: they could be linked into it.
#[test]
fn a_folder_credential_gives_no_right_to_what_is_linked_into_the_folder() {
    for rights in ["c", "rxc", "rxcd"] {
        let desk = Desk::new();
        let world = &desk.world;
        let secret = world.put(desk.dir, "secret", b"of alice");
        let tree = world.make_dir(desk.dir, "tree");
        let below = world.put(tree, "below", b"of alice");
        let guest = desk.guest(rights);
        let made = desk.make_dir(&guest, "made");
        let chain = desk.issue(&guest, made).unwrap();
        let link = Request::Link { node: secret, dir: made, name: name("s") };
        assert_eq!(world.ask(&guest, link).map(drop), Err(Code::CrossHome), "{rights}");
        let flags = RenameFlags::NoReplace;
        let from_dir = desk.dir;
        let from = name("tree");
        let rename = Request::Rename { from_dir, from, to_dir: made, to: name("t"), flags };
        let told = world.ask(&guest, rename).map(drop);
        let refused = if rights.contains('d') { Code::CrossHome } else { Code::AccessDenied };
        assert_eq!(told, Err(refused), "{rights}");
        // As if an owner had put both there: it grants what the share grants.
        world.link(secret, made, "s");
        world.rename(desk.dir, made, "tree");
        let maker = desk.admit(2, &chain).unwrap();
        let reads = if rights.contains('r') { Ok(()) } else { Err(Code::AccessDenied) };
        for file in [secret, below] {
            assert_eq!(desk.may_read(&maker, file), reads, "{rights}");
            assert_eq!(desk.may_write(&maker, file), Err(Code::AccessDenied), "{rights}");
        }
    }
}

#[test]
fn only_what_this_session_has_made_gets_a_credential() {
    let desk = Desk::new();
    let world = &desk.world;
    let before = world.put(desk.dir, "before", b"of alice");
    let outside = world.put(Handle::ROOT, "outside", b"of alice");
    let guest = desk.guest("rwxcdg");
    let second = desk.guest("rwxcdg");
    let made = desk.create(&guest, desk.dir, "made");
    assert_eq!(desk.issue(&second, made), Err(Code::AccessDenied), "another session");
    assert_eq!(desk.issue(&guest, before), Err(Code::AccessDenied), "made before");
    assert_eq!(desk.issue(&guest, outside), Err(Code::Stale), "not granted");
    assert_eq!(desk.issue(&guest, desk.dir), Err(Code::AccessDenied), "the folder itself");
    let none = Handle::own(InodeId::from_raw(made.ino.raw() + 1000));
    assert_eq!(desk.issue(&guest, none), Err(Code::Stale), "a number of nothing");
    assert_eq!(world.call(Request::Issue { node: made }).map(drop), Err(Code::AccessDenied));
    let open = next_open();
    world.ask(&guest, Request::Open { node: before, flags: OpenFlags::READ_WRITE, open }).unwrap();
    world.ask(&guest, Request::Link { node: before, dir: desk.dir, name: name("link") }).unwrap();
    let flags = RenameFlags::Replace;
    let from_dir = desk.dir;
    let to_dir = desk.dir;
    let from = name("before");
    let to = name("renamed");
    world.ask(&guest, Request::Rename { from_dir, from, to_dir, to, flags }).unwrap();
    assert_eq!(desk.issue(&guest, before), Err(Code::AccessDenied), "neither opened nor named");
    let symlink = Request::Symlink { dir: desk.dir, name: name("s"), target: b"made".to_vec() };
    let Reply::Entry(link) = world.ask(&guest, symlink).unwrap() else { panic!("it is made") };
    assert_eq!(desk.issue(&guest, link.handle), Err(Code::Invalid), "a symbolic link");
    let mode = NewMode::exactly(0o600);
    let kind = FileKind::Fifo;
    let fifo = Request::MakeNode { dir: desk.dir, name: name("f"), kind, mode, rdev: 0 };
    let Reply::Entry(fifo) = world.ask(&guest, fifo).unwrap() else { panic!("it is made") };
    assert_eq!(desk.issue(&guest, fifo.handle), Err(Code::Invalid), "a FIFO");
    assert!(desk.issue(&guest, made).is_ok());
}

/// The id of a credential must be one for ever, so that it can be taken back.
#[test]
fn a_second_request_gets_the_same_credential_until_it_is_taken_back() {
    let desk = Desk::new();
    let guest = desk.guest("rwxcd");
    let file = desk.create(&guest, desk.dir, "made");
    let chain = desk.issue(&guest, file).unwrap();
    let flags = RenameFlags::Replace;
    let from_dir = desk.dir;
    let to_dir = desk.dir;
    let from = name("made");
    let to = name("renamed");
    desk.world.ask(&guest, Request::Rename { from_dir, from, to_dir, to, flags }).unwrap();
    let file = lookup(&desk.world.server, desk.dir, "renamed").unwrap().handle;
    assert_eq!(desk.issue(&guest, file), Ok(chain.clone()), "although it was renamed");
    let maker = desk.admit(2, &chain).unwrap();
    desk.revoke(id(&chain[2]));
    assert_eq!(desk.issue(&guest, file), Err(Code::AccessDenied));
    assert_eq!(desk.may_read(&maker, file), Err(Code::Stale));
    assert_eq!(desk.admit(2, &chain).map(drop), Err(taken_back()));
    assert_eq!(desk.may_read(&guest, file), Ok(()), "the share goes on");
}

#[test]
fn an_auditor_is_told_what_makers_were_issued() {
    let desk = Desk::new();
    let guest = desk.guest("rwxcd");
    let file = desk.create(&guest, desk.dir, "made");
    let chain = desk.issue(&guest, file).unwrap();
    let auditor = desk.begin(3, &[&desk.world.signed(1, 3, &desk.grant("a"))]);
    let lines = told(&desk.world, &auditor, desk.dir).unwrap();
    let issued: Vec<_> = lines.iter().filter(|line| line["what"] == "issue").collect();
    let [line] = *issued else { panic!("{lines:?}") };
    assert_eq!(line["node"], file.ino.raw());
    let last = Assertion::parse(chain[2].as_bytes()).unwrap().id();
    assert_eq!(line["issued"], last.to_string());
}

/// The credential by another chain has another id.
#[test]
fn what_was_taken_back_is_not_issued_by_another_chain() {
    let desk = Desk::new();
    let sub = desk.world.make_dir(desk.dir, "sub");
    let object = SharedObject::Folder(sub.ino.raw());
    let of_sub = desk.world.signed(1, 2, &Grant { object, ..desk.grant("xc") });
    let guest = desk.begin(2, &[&of_sub]);
    let attach = Request::Attach { chain: vec![desk.credential("xc").into_bytes()] };
    assert!(matches!(desk.world.ask(&guest, attach), Ok(Reply::Bytes(why)) if why.is_empty()));
    let taken = desk.create(&guest, sub, "taken");
    let kept = desk.create(&guest, sub, "kept");
    let by_sub = desk.issue(&guest, taken).unwrap();
    let kept_by_sub = desk.issue(&guest, kept).unwrap();
    desk.revoke(id(&by_sub[2]));
    desk.world.rename(sub, desk.dir, "taken");
    desk.world.rename(sub, desk.dir, "kept");
    assert_eq!(desk.issue(&guest, taken), Err(Code::AccessDenied));
    let by_dir = desk.issue(&guest, kept).unwrap();
    assert_eq!(by_dir[0], desk.credential("xc"));
    assert_ne!(by_dir[2], kept_by_sub[2], "another one, for another chain");
    desk.revoke(id(&by_dir[2]));
    desk.world.rename(desk.dir, sub, "kept");
    assert_eq!(desk.issue(&guest, kept), Err(Code::AccessDenied), "nor the first one");
}

/// Whatever ends the chain by which a file was made ends its credential, and what was handed on.
#[test]
fn a_credential_ends_with_any_link_or_key_of_the_chain_that_made_it() {
    type Ends = fn(&Desk, &Texts);
    let ends: [(&str, Ends); 6] = [
        ("the root's credential", |desk, chain| desk.revoke(id(&chain[0]))),
        ("the second credential", |desk, chain| desk.revoke(id(&chain[1]))),
        ("the licence", |desk, chain| desk.revoke(id(&chain[2]))),
        ("the key of who shared it on", |desk, _| desk.revoke(principal(5))),
        ("the maker's key", |desk, _| desk.revoke(principal(2))),
        ("the server's key", |desk, _| desk.revoke(principal(SERVER))),
    ];
    for (what, end) in ends {
        let desk = Desk::new();
        let first = desk.world.signed(1, 5, &desk.grant("rxcg"));
        let second = desk.world.signed(5, 2, &desk.grant("rxc"));
        let guest = desk.begin(2, &[&first, &second]);
        let file = desk.create(&guest, desk.dir, "made");
        let chain = desk.issue(&guest, file).unwrap();
        assert_eq!(chain.len(), 4);
        let handed_on = desk.handed_on(&chain, 2, 3, file);
        let maker = desk.admit(2, &chain).unwrap();
        let carol = desk.admit(3, &handed_on).unwrap();
        assert_eq!(desk.may_read(&carol, file), Ok(()), "{what}");
        let open = desk.world.open(&carol, file).unwrap();
        end(&desk, &chain);
        assert_eq!(desk.may_read(&maker, file), Err(Code::Stale), "{what}");
        assert_eq!(desk.may_read(&carol, file), Err(Code::Stale), "{what}");
        assert_eq!(desk.world.read(&carol, open), Err(Code::Stale), "{what}: an open file");
        assert_eq!(desk.admit(3, &handed_on).map(drop), Err(taken_back()), "{what}");
        assert!(desk.admit(2, &chain).is_err(), "{what}");
        let world = desk.world.restarted();
        let chain: Vec<&str> = handed_on.iter().map(String::as_str).collect();
        assert_eq!(world.admit(3, &chain).map(drop), Err(taken_back()), "{what}: after a restart");
    }
}

#[test]
fn a_credential_ends_with_the_root_of_the_chain_that_made_it() {
    let desk = Desk::new();
    desk.world.set_policy(&policy(&[principal(1), principal(7)], &[]).unwrap());
    let by_other = desk.world.signed(7, 2, &desk.grant("rxc"));
    // The file is looked at twice a second.
    thread::sleep(POLICY_DELAY);
    let guest = desk.begin(2, &[&by_other]);
    let file = desk.create(&guest, desk.dir, "made");
    let chain = desk.issue(&guest, file).unwrap();
    let maker = desk.admit(2, &chain).unwrap();
    assert_eq!(desk.may_read(&maker, file), Ok(()));
    desk.world.set_policy(&policy(&[principal(1)], &[]).unwrap());
    // The file is looked at twice a second.
    thread::sleep(POLICY_DELAY);
    assert_eq!(desk.may_read(&maker, file), Err(Code::Stale));
    assert_eq!(desk.admit(2, &chain).map(drop), Err(no_reason()));
}

/// A chain may have credentials of several roots.
#[test]
fn a_chain_ends_with_each_root_that_has_signed_a_part_of_it() {
    let desk = Desk::new();
    let world = &desk.world;
    world.set_policy(&policy(&[principal(1), principal(7)], &[]).unwrap());
    // The file is looked at twice a second.
    thread::sleep(POLICY_DELAY);
    let file = world.put(desk.dir, "f", b"of alice");
    let by_other = world.signed(7, 2, &desk.grant("r"));
    let guest = desk.begin(2, &[&desk.credential("rx"), &by_other]);
    assert_eq!(desk.may_read(&guest, file), Ok(()));
    world.set_policy(&policy(&[principal(1)], &[]).unwrap());
    // The file is looked at twice a second.
    thread::sleep(POLICY_DELAY);
    assert_eq!(desk.may_read(&guest, file), Err(Code::Stale));
}

#[test]
fn a_credential_ends_when_the_chain_ends_and_is_of_its_addresses() {
    let desk = Desk::new();
    let until = Some(desk.world.digits_in(3));
    let from = Some("192.0.2.0/24".parse().unwrap());
    let wide = Grant { until: Some("29990101000000".to_owned()), ..desk.grant("rxcg") };
    let first = desk.world.signed(1, 5, &wide);
    let second = desk.world.signed(5, 2, &Grant { until: until.clone(), from, ..desk.grant("c") });
    let here = Some("192.0.2.7".parse().unwrap());
    let grant = desk.world.admit_at(2, &[&first, &second], here).unwrap();
    let guest = desk.world.begin(grant).unwrap();
    let file = desk.create(&guest, desk.dir, "made");
    let chain = desk.issue(&guest, file).unwrap();
    let read = Assertion::credential(chain[3].as_bytes()).unwrap();
    let issued = IssuedGrant::of(&read).unwrap().grant;
    assert_eq!((issued.until, issued.from), (until, from), "the nearest end and the narrowest");
    let texts: Vec<&str> = chain.iter().map(String::as_str).collect();
    let elsewhere = Some("198.51.100.7".parse().unwrap());
    let from_elsewhere = desk.world.admit_at(2, &texts, elsewhere).unwrap();
    let from_elsewhere = desk.world.begin(from_elsewhere).unwrap();
    assert_eq!(desk.may_read(&from_elsewhere, file), Err(Code::Stale));
    let maker = desk.world.begin(desk.world.admit_at(2, &texts, here).unwrap()).unwrap();
    assert_eq!(desk.may_read(&maker, file), Ok(()));
    // Only the clock ends it.
    thread::sleep(Duration::from_millis(3500));
    assert_eq!(desk.may_read(&maker, file), Err(Code::Stale));
    let refused = desk.world.admit_at(2, &texts, here).unwrap_err();
    assert!(refused.0.contains("expired"), "{refused:?}");
}

#[test]
fn a_removed_file_takes_its_credential_with_it() {
    let desk = Desk::new();
    let guest = desk.guest("c");
    let file = desk.create(&guest, desk.dir, "made");
    let chain = desk.issue(&guest, file).unwrap();
    let maker = desk.admit(2, &chain).unwrap();
    desk.world.unlink(desk.dir, "made");
    assert_eq!(desk.may_read(&maker, file), Err(Code::Stale));
    let again = desk.world.put(desk.dir, "made", b"of alice");
    assert_ne!(again.ino, file.ino);
    assert_eq!(desk.may_read(&maker, again), Err(Code::AccessDenied), "another one of its name");
    assert_eq!(desk.issue(&guest, again), Err(Code::AccessDenied));
    assert_eq!(desk.issue(&guest, file), Err(Code::Stale));
    let again = desk.create(&guest, desk.dir, "third");
    assert_ne!(desk.issue(&guest, again).unwrap()[2], chain[2]);
}

/// A credential without the chain to which it is bound, or bound to another one, grants nothing.
#[test]
fn a_forged_binding_is_refused() {
    let desk = Desk::new();
    let guest = desk.guest("rxc");
    let file = desk.create(&guest, desk.dir, "made");
    let chain = desk.issue(&guest, file).unwrap();
    let other = desk.world.credential(2, desk.dir.ino);
    let [parent, licence, issued] = <[String; 3]>::try_from(chain.clone()).unwrap();
    let grants = |what: &str, chain: &[String]| {
        let wrote = desk.admit(2, chain).map(|guest| desk.may_write(&guest, file));
        let is_refused = matches!(wrote, Err(_) | Ok(Err(Code::Stale | Code::AccessDenied)));
        assert!(is_refused, "{what}: {wrote:?}");
    };
    grants("no chain", &[licence.clone(), issued.clone()]);
    let swapped = [other, licence.clone(), issued.clone()];
    let wrote = desk.admit(2, &swapped).map(|guest| desk.may_write(&guest, file));
    assert_eq!(wrote, Ok(Err(Code::AccessDenied)), "another chain gives what it gave alone");
    grants("the chain behind it", &[licence.clone(), parent.clone(), issued.clone()]);
    grants("without the licence", &[parent.clone(), issued.clone()]);
    grants("signed by the maker", &Desk::forged(&chain, 2, |_| {}));
    grants("an own binding", &Desk::forged(&chain, 2, |issued| issued.chain = [7; 32]));
    // The key of the server is the holder's alone; still it makes no guest of nothing.
    grants("no binding", &Desk::forged(&chain, SERVER, |issued| issued.chain = [7; 32]));
    let plain = IssuedGrant::of(&Assertion::parse(issued.as_bytes()).unwrap()).unwrap().grant;
    let unbound = desk.world.signed(SERVER, 2, &plain);
    grants("no binding at all", &[licence.clone(), unbound.clone()]);
    let beside = [parent.clone(), licence.clone(), unbound];
    let only = desk.admit(2, &beside).unwrap();
    assert_eq!(desk.may_read(&only, file), Ok(()), "by the share itself");
    assert_eq!(desk.may_write(&only, file), Err(Code::AccessDenied), "and no more");
    let wrong = Desk::forged(&chain, SERVER, |issued| issued.grant.volume[0] ^= 1);
    assert!(desk.admit(2, &wrong).is_err(), "another volume");
    let stolen = desk.admit(3, &chain).map(drop);
    assert_eq!(stolen, Err(no_reason()), "another key");
    let maker = desk.admit(2, &chain).unwrap();
    assert_eq!(desk.may_write(&maker, file), Ok(()));
}

/// The key of a server opens no session of a guest: a beginning of licences grants nothing.
#[test]
fn a_binding_to_licences_alone_is_none() {
    let desk = Desk::new();
    let file = desk.world.put(desk.dir, "f", b"of alice");
    let licence = conditioned(1, SERVER, &desk.licence().conditions());
    let comment = ["another one".to_owned()];
    let conditions = desk.licence().conditions();
    let second =
        Credential { comment: &comment, licensee: principal(SERVER), conditions: &conditions };
    let second = second.sign(&key(1).signing_key()).unwrap();
    for licences in [vec![licence.clone()], vec![licence, second]] {
        let ids = licences.iter().map(|text| Assertion::parse(text.as_bytes()).unwrap().id().0);
        let chain = *chain_ids(ids).last().unwrap();
        let object = SharedObject::File(file.ino.raw());
        let grant = Grant { object, ..desk.grant("rwxcdg") };
        let issued = conditioned(SERVER, 2, &IssuedGrant { grant, chain }.conditions());
        let read = desk.admit(2, &[licences, vec![issued]].concat());
        let read = read.map(|guest| desk.may_read(&guest, file));
        assert!(matches!(read, Err(_) | Ok(Err(Code::Stale))), "{read:?}");
    }
}

/// The folder may have gone to a place of which the guest must not learn.
#[test]
fn a_credential_does_not_tell_a_place_outside_of_what_is_granted() {
    let desk = Desk::new();
    let guest = desk.guest("rxc");
    let made = desk.make_dir(&guest, "made");
    let object = SharedObject::Folder(made.ino.raw());
    let of_made = desk.world.signed(1, 2, &Grant { object, ..desk.grant("xc") });
    let attach = Request::Attach { chain: vec![of_made.clone().into_bytes()] };
    assert!(matches!(desk.world.ask(&guest, attach), Ok(Reply::Bytes(why)) if why.is_empty()));
    let outside = desk.world.make_dir(Handle::ROOT, "outside");
    desk.world.rename(desk.dir, outside, "made");
    let chain = desk.issue(&guest, made).unwrap();
    assert_eq!(chain[0], of_made);
    let read = Assertion::credential(chain[2].as_bytes()).unwrap();
    assert_eq!(read.comment().len(), 1, "{:?}", read.comment());
    let maker = desk.admit(2, &chain).unwrap();
    assert!(desk.world.attr(&maker, made).is_ok());
}

#[test]
fn a_file_without_a_name_gets_a_credential_once_it_has_one() {
    let desk = Desk::new();
    let guest = desk.guest("rc");
    let open = next_open();
    let mode = NewMode::exactly(0o600);
    let flags = OpenFlags::READ_WRITE;
    let made = desk.world.ask(&guest, Request::CreateUnnamed { dir: desk.dir, mode, flags, open });
    let Ok(Reply::Created { entry, .. }) = made else { panic!("{made:?}") };
    assert_eq!(desk.issue(&guest, entry.handle), Err(Code::Invalid));
    let link = Request::Link { node: entry.handle, dir: desk.dir, name: name("named") };
    desk.world.ask(&guest, link).unwrap();
    assert!(desk.issue(&guest, entry.handle).is_ok());
}

/// A volume of an earlier version has no licence.
#[test]
fn without_a_licence_of_a_root_for_this_server_nothing_is_issued() {
    let desk = Desk::without_licence();
    let guest = desk.guest("rxc");
    let file = desk.create(&guest, desk.dir, "made");
    let licence = desk.licence().conditions();
    let mut elsewhere = desk.licence();
    elsewhere.volume[0] ^= 1;
    let all = Grant { rights: Rights::OF_MAKER, ..desk.world.to_read(InodeId::ROOT) };
    let not_signed = conditioned(1, SERVER, &licence).replace("\"true\" ->", "\"yes\" ->");
    let wrong = [
        ("nothing", None),
        ("garbage", Some("garbage".to_owned())),
        ("by no root", Some(conditioned(5, SERVER, &licence))),
        ("for another key", Some(conditioned(1, 5, &licence))),
        ("for another volume", Some(conditioned(1, SERVER, &elsewhere.conditions()))),
        ("a share", Some(desk.world.signed(1, SERVER, &all))),
        ("changed", Some(not_signed)),
    ];
    for (what, text) in wrong {
        text.iter().for_each(|text| desk.set_licence(text));
        assert_eq!(desk.issue(&guest, file), Err(Code::NotSupported), "{what}");
    }
    let good = conditioned(1, SERVER, &licence);
    desk.set_licence(&good);
    let issued = desk.issue(&guest, file).unwrap();
    set_key(&desk.world, &key(91));
    assert_eq!(desk.issue(&guest, file), Err(Code::NotSupported), "the server has another key");
    assert!(desk.admit(2, &issued).is_ok(), "what was issued before is valid");
    set_key(&desk.world, &key(SERVER));
    desk.revoke(id(&good));
    assert_eq!(desk.issue(&guest, file), Err(Code::NotSupported), "the licence was taken back");
    assert_eq!(desk.admit(2, &issued).map(drop), Err(taken_back()));
}

#[test]
fn a_chain_of_other_conditions_or_without_room_gets_no_credential() {
    let desk = Desk::new();
    let ancestors = format!("ancestors ~= \"/{:x}/\"", desk.dir.ino.raw());
    let by_day = desk.world.written(1, 2, &format!("{ancestors} && weekday <= \"6\" -> \"true\";"));
    let guest = desk.begin(2, &[&by_day]);
    let file = desk.create(&guest, desk.dir, "made");
    assert_eq!(desk.issue(&guest, file), Err(Code::Invalid), "another form");
    let last = u8::try_from(limits::CHAIN_LINKS).unwrap() + 10;
    let mut chain = vec![desk.world.signed(1, 11, &desk.grant("rcg"))];
    chain.extend((11..last - 1).map(|by| desk.world.signed(by, by + 1, &desk.grant("rcg"))));
    assert_eq!(chain.len(), limits::CHAIN_LINKS - 1);
    let long = desk.admit(last - 1, &chain).unwrap();
    let file = desk.create(&long, desk.dir, "second");
    assert_eq!(desk.issue(&long, file), Err(Code::Invalid), "no room");
    chain.pop();
    let shorter = desk.admit(last - 2, &chain).unwrap();
    let file = desk.create(&shorter, desk.dir, "third");
    assert_eq!(desk.issue(&shorter, file).map(|chain| chain.len()), Ok(limits::CHAIN_LINKS));
}

/// The answer must fit a message, and so must the frame by which its holder presents it.
#[test]
fn a_credential_is_issued_up_to_the_bytes_that_a_chain_may_have() {
    let desk = Desk::new();
    let links = u8::try_from(limits::CHAIN_LINKS).unwrap() - 2;
    let conditions = desk.grant("rxcg").conditions();
    // A chain from the root to the last key, whose first links have so many bytes more.
    let chain = |more: usize| -> Texts {
        let signers: Vec<u8> = [1].into_iter().chain(11..10 + links).collect();
        let link = |at: usize| {
            let of_this = more / 4 + if at == 0 { more % 4 } else { 0 };
            let comment = ["x".repeat(1 + if at < 4 { of_this } else { 0 })];
            let licensee = principal(11 + u8::try_from(at).unwrap());
            let credential = Credential { comment: &comment, licensee, conditions: &conditions };
            credential.sign(&key(signers[at]).signing_key()).unwrap()
        };
        (0..signers.len()).map(link).collect()
    };
    let issue = |more: usize, text: &str| {
        let guest = desk.admit(10 + links, &chain(more)).unwrap();
        let file = desk.create(&guest, desk.dir, text);
        (desk.issue(&guest, file), file)
    };
    let bytes =
        |texts: &Texts| chain_bytes(&texts.iter().map(|it| it.clone().into()).collect::<Vec<_>>());
    let (short, _) = issue(0, "a");
    let room = limits::CHAIN_BYTES - bytes(&short.unwrap());
    let (longest, file) = issue(room, "b");
    let longest = longest.unwrap();
    assert_eq!((longest.len(), bytes(&longest)), (limits::CHAIN_LINKS, limits::CHAIN_BYTES));
    let present = Present { chain: longest.iter().map(|it| it.clone().into()).collect() };
    assert_eq!(present.encode().map(|body| body.len()), Ok(limits::CHAIN_BYTES));
    let maker = desk.admit(10 + links, &longest).unwrap();
    assert_eq!(desk.may_read(&maker, file), Ok(()));
    let access = Request::Access { node: file, chain: present.chain, after: SessionId(0) };
    assert!(matches!(desk.world.call(access), Ok(Reply::Access(page)) if page.guests.len() == 1));
    // With the lengths before the texts it would not fit.
    for (more, text) in [(1, "c"), (34, "d")] {
        let (issued, _) = issue(room + more, text);
        assert_eq!(issued.map(|texts| bytes(&texts)), Err(Code::Invalid), "{more} bytes more");
    }
}

/// The server remembers what a session has made as long as it runs.
#[test]
fn a_session_of_an_earlier_run_has_made_nothing() {
    let desk = Desk::new();
    let guest = desk.guest("rxc");
    let open = next_open();
    let mode = NewMode { mode: 0o666, umask: 0o022 };
    let flags = OpenFlags::READ_WRITE;
    let create = Request::Create { dir: desk.dir, name: name("made"), mode, flags, open };
    let context = guest.context(&create);
    let Reply::Created { entry, .. } = desk.world.ask_as(&context, create.clone()).unwrap() else {
        panic!("it is created")
    };
    let file = entry.handle;
    let chain = desk.issue(&guest, file).unwrap();
    let again = desk.world.begin(guest.grant).unwrap();
    assert_eq!(desk.issue(&again, file), Err(Code::AccessDenied), "another session of the key");
    let record = SessionRecord::new([0; 16], RecordedPeer::Guest(principal(2).0));
    let service = desk.world.server.session_service();
    service.begin_guest(guest.session, &guest.grant, &record).unwrap();
    assert_eq!(desk.issue(&guest, file), Ok(chain.clone()), "a new connection of the session");
    let Desk { world, dir } = desk;
    let desk = Desk { world: world.restarted(), dir };
    let grant = desk.world.admit(2, &[&desk.credential("rxc")]).unwrap();
    let service = desk.world.server.session_service();
    service.begin_guest(guest.session, &grant, &record).unwrap();
    assert_eq!(desk.issue(&guest, file), Err(Code::AccessDenied), "the next run");
    let stamp = ReplyStamp::default();
    let replayed = Replayed { stamp, node: Some(file), time: None };
    let replay = Context { replayed: Some(replayed), ..context };
    let _answer = desk.world.ask_as(&replay, create);
    assert_eq!(desk.issue(&guest, file), Err(Code::AccessDenied), "a repeated request");
    let maker = desk.admit(2, &chain).unwrap();
    assert_eq!(desk.may_read(&maker, file), Ok(()), "what was issued is valid");
}

/// A client may give the number of an earlier request to another one, and gets its stored reply.
#[test]
fn the_reply_to_another_request_is_nothing_that_was_made() {
    let desk = Desk::new();
    let secret = desk.world.put(desk.dir, "secret", b"of alice");
    let guest = desk.guest("rxc");
    let link = Request::Link { node: secret, dir: desk.dir, name: name("s") };
    let linked = guest.context(&link);
    desk.world.ask_as(&linked, link).unwrap();
    let mode = NewMode::exactly(0o644);
    let flags = OpenFlags::READ_WRITE;
    let create = |open| Request::Create { dir: desk.dir, name: name("made"), mode, flags, open };
    let first = next_open();
    let created = guest.context(&create(first));
    desk.world.ask_as(&created, create(first)).unwrap();
    desk.world.ask(&guest, Request::Release { open: first }).unwrap();
    let Desk { world, dir } = desk;
    let desk = Desk { world: world.restarted(), dir };
    let grant = desk.world.admit(2, &[&desk.credential("rxc")]).unwrap();
    let record = SessionRecord::new([0; 16], RecordedPeer::Guest(principal(2).0));
    let service = desk.world.server.session_service();
    service.begin_guest(guest.session, &grant, &record).unwrap();
    let make_dir = Request::MakeDir { dir, name: name("d"), mode };
    let Ok(Reply::Entry(entry)) = desk.world.ask_as(&linked, make_dir) else {
        panic!("the stored reply")
    };
    assert_eq!(entry.attr.ino, secret.ino);
    assert_eq!(desk.issue(&guest, secret), Err(Code::AccessDenied));
    assert_eq!(desk.may_write(&guest, secret), Err(Code::AccessDenied));
    // Opened again is not made again: others may have changed the file since.
    let open = next_open();
    let Ok(Reply::Created { entry, .. }) = desk.world.ask_as(&created, create(open)) else {
        panic!("the stored reply")
    };
    assert_eq!(desk.issue(&guest, entry.handle), Err(Code::AccessDenied));
    let write = Request::Write { open, offset: 0, flags: WriteFlags::NONE };
    assert_eq!(desk.world.ask(&guest, write).map(drop), Err(Code::AccessDenied));
    // Neither is what a reply tells of an open that is there.
    let open = desk.world.open(&guest, secret).unwrap();
    let told = desk.world.ask_as(&linked, create(open));
    assert!(matches!(told, Ok(Reply::Entry(_))), "{told:?}");
    let write = Request::Write { open, offset: 0, flags: WriteFlags::NONE };
    assert_eq!(desk.world.ask(&guest, write).map(drop), Err(Code::AccessDenied));
    let made = desk.make_dir(&guest, "new");
    assert!(desk.issue(&guest, made).is_ok(), "what it makes in this run");
}

/// A file that is made by an issued credential gets one too, which ends with both.
#[test]
fn a_credential_can_be_issued_under_an_issued_one() {
    let desk = Desk::new();
    let guest = desk.guest("xcg");
    let made = desk.make_dir(&guest, "made");
    let chain = desk.issue(&guest, made).unwrap();
    let object = SharedObject::Folder(made.ino.raw());
    let part = Grant { object, ..desk.grant("xc") };
    let chain = [chain.as_slice(), &[desk.world.signed(2, 3, &part)]].concat();
    let carol = desk.admit(3, &chain).unwrap();
    let file = desk.create(&carol, made, "of-carol");
    let second = desk.issue(&carol, file).unwrap();
    assert_eq!(second.len(), chain.len() + 1, "the licence is there once");
    let reader = desk.admit(3, &second).unwrap();
    assert_eq!(desk.may_read(&reader, file), Ok(()));
    assert_eq!(desk.may_read(&carol, file), Err(Code::AccessDenied));
    desk.revoke(id(&chain[0]));
    assert_eq!(desk.may_read(&reader, file), Err(Code::Stale));
}

/// Of several chains it is the one that lets the guest create there.
#[test]
fn the_credential_is_bound_to_the_chain_that_grants_c() {
    let desk = Desk::new();
    let sub = desk.world.make_dir(desk.dir, "sub");
    let object = SharedObject::Folder(sub.ino.raw());
    let of_sub = desk.world.signed(1, 2, &Grant { object, ..desk.grant("xc") });
    let of_all = desk.credential("rw");
    let guest = desk.begin(2, &[&of_all]);
    let attach = Request::Attach { chain: vec![of_sub.clone().into_bytes()] };
    assert!(matches!(desk.world.ask(&guest, attach), Ok(Reply::Bytes(why)) if why.is_empty()));
    let file = desk.create(&guest, sub, "made");
    let chain = desk.issue(&guest, file).unwrap();
    assert_eq!(chain[0], of_sub);
    desk.world.rename(sub, desk.dir, "made");
    assert_eq!(desk.issue(&guest, file), Err(Code::AccessDenied), "it may not create there");
    desk.world.rename(desk.dir, sub, "made");
    desk.revoke(id(&of_sub));
    assert_eq!(desk.issue(&guest, file), Err(Code::AccessDenied));
    assert_eq!(desk.may_read(&guest, file), Ok(()), "by the first chain");
    assert!(desk.admit(2, &chain).is_err());
}

#[test]
fn the_credential_of_a_maker_can_be_attached_to_the_session_itself() {
    let desk = Desk::new();
    let guest = desk.guest("c");
    let file = desk.create(&guest, desk.dir, "made");
    assert_eq!(desk.may_read(&guest, file), Err(Code::AccessDenied));
    let chain = desk.issue(&guest, file).unwrap();
    let chain = chain.into_iter().map(String::into_bytes).collect();
    let attached = desk.world.ask(&guest, Request::Attach { chain });
    assert!(matches!(attached, Ok(Reply::Bytes(why)) if why.is_empty()));
    assert_eq!(desk.may_read(&guest, file), Ok(()));
}

/// An issued credential is that of the user as whom its holder has made the node.
#[test]
fn a_maker_goes_on_as_the_user_of_its_chain() {
    let desk = Desk::new();
    let list = format!("{} dave user=5005\n", key(5).public());
    write_private(&desk.world, "keys", &list);
    desk.chmod(desk.dir, 0o777);
    let first = desk.world.signed(1, 5, &desk.grant("rwxcdg"));
    let second = desk.world.signed(5, 2, &desk.grant("rwxcdg"));
    let guest = desk.begin(2, &[&first, &second]);
    let made = desk.make_dir(&guest, "made");
    let file = desk.create(&guest, made, "file");
    let owner = lookup(&desk.world.server, made, "file").unwrap().attr.uid;
    assert_eq!(owner, 5005);
    let secret = desk.world.put(made, "secret", b"of alice");
    desk.chmod(secret, 0o600);
    let chain = desk.issue(&guest, made).unwrap();
    let handed_on = desk.handed_on(&chain, 2, 3, file);
    let maker = desk.admit(2, &chain).unwrap();
    assert_eq!(desk.may_read(&maker, file), Ok(()));
    assert_eq!(desk.may_read(&maker, secret), Err(Code::AccessDenied), "by its mode");
    let carol = desk.admit(3, &handed_on).unwrap();
    assert_eq!(desk.may_read(&carol, file), Ok(()));
}
