//! Sessions of several chains: a guest has the rights of all that it has attached.

use std::thread;
use std::time::Duration;

use pelago_keynote::{Assertion, Grant, Revocation, SharedObject};
use pelago_wire::{Code, Handle, Reply, Request, limits};

use super::world::{Guest, World, key};

/// Files in one directory, of which none is granted by its directory.
struct Files {
    world: World,
    dir: Handle,
    files: Vec<Handle>,
}

impl Files {
    fn new(count: usize) -> Self {
        let world = World::new();
        let dir = world.make_dir(Handle::ROOT, "dir");
        let files = (0..count).map(|number| world.put(dir, &number.to_string(), b"bytes"));
        let files = files.collect();
        Self { world, dir, files }
    }

    fn grant(&self, file: usize) -> Grant {
        let object = SharedObject::File(self.files[file].ino.raw());
        Grant { object, ..self.world.to_read(self.dir.ino) }
    }

    fn credential(&self, file: usize) -> String {
        self.world.signed(1, 2, &self.grant(file))
    }

    fn begin(&self, text: &str) -> Guest {
        self.world.begin(self.world.admit(2, &[text]).unwrap()).unwrap()
    }

    /// Attaches a chain. Returns the reason of a refusal, which is empty if it is attached.
    fn attach(&self, guest: &Guest, chain: &[&str]) -> Result<String, Code> {
        let chain = chain.iter().map(|text| text.as_bytes().to_vec()).collect();
        match self.world.ask(guest, Request::Attach { chain })? {
            Reply::Bytes(why) => Ok(String::from_utf8(why).unwrap()),
            other => panic!("{other:?}"),
        }
    }

    /// Returns the files that the guest can open and read.
    fn readable(&self, guest: &Guest) -> Vec<usize> {
        let can_read = |at: &usize| {
            let opened = self.world.open(guest, self.files[*at]);
            let read = opened.and_then(|open| self.world.read(guest, open));
            assert!(matches!(read, Ok(_) | Err(Code::Stale)), "{read:?}");
            read.is_ok()
        };
        (0..self.files.len()).filter(can_read).collect()
    }

    fn revoke(&self, text: &str) {
        let id = Assertion::credential(text.as_bytes()).unwrap().id();
        let sentence = Revocation::sign(self.world.volume, id, 1, &key(1).signing_key());
        let request = Request::Revoke { sentence: sentence.into_bytes(), chain: vec![] };
        self.world.call(request).unwrap();
    }
}

#[test]
fn a_session_has_the_rights_of_all_its_chains() {
    let files = Files::new(3);
    let guest = files.begin(&files.credential(0));
    assert_eq!(files.readable(&guest), [0]);
    for _ in 0..2 {
        assert_eq!(files.attach(&guest, &[&files.credential(1)]), Ok(String::new()));
        assert_eq!(files.readable(&guest), [0, 1], "what was denied before is decided anew");
    }
    assert_eq!(files.attach(&guest, &[&files.credential(0)]), Ok(String::new()));
    assert_eq!(files.world.attr(&guest, files.dir).err(), Some(Code::Stale));
    let other = files.begin(&files.credential(2));
    assert_eq!(files.readable(&other), [2], "chains are of one session");
    assert_eq!(files.readable(&guest), [0, 1]);
}

#[test]
fn a_chain_that_is_taken_back_ends_alone_unless_the_session_began_with_it() {
    let files = Files::new(2);
    let first = files.credential(0);
    let second = files.credential(1);
    let guest = files.begin(&first);
    files.attach(&guest, &[&second]).unwrap();
    let open = files.world.open(&guest, files.files[1]).unwrap();
    files.revoke(&second);
    assert_eq!(files.readable(&guest), [0]);
    assert_eq!(files.world.read(&guest, open), Err(Code::Stale));
    let again = files.attach(&guest, &[&second]).unwrap();
    assert_eq!(again, "the credential was taken back");
    files.revoke(&first);
    assert_eq!(files.readable(&guest), [0; 0]);
}

#[test]
fn a_chain_ends_at_its_time() {
    let files = Files::new(2);
    let guest = files.begin(&files.credential(0));
    let until = Some(files.world.digits_in(2));
    let second = files.world.signed(1, 2, &Grant { until, ..files.grant(1) });
    assert_eq!(files.attach(&guest, &[&second]), Ok(String::new()));
    assert_eq!(files.readable(&guest), [0, 1]);
    // Only the clock ends the share.
    thread::sleep(Duration::from_millis(2_100));
    assert_eq!(files.readable(&guest), [0]);
    let again = files.attach(&guest, &[&second]).unwrap();
    assert!(again.contains("it ended on "), "{again}");
}

#[test]
fn a_chain_that_would_open_no_session_is_not_attached() {
    let files = Files::new(2);
    let guest = files.begin(&files.credential(0));
    let good = files.credential(1);
    let of_another = files.world.signed(1, 3, &files.grant(1));
    let of_no_root = files.world.signed(2, 2, &files.grant(1));
    let changed = good.replacen("right == \"x\"", "right == \"w\"", 1);
    let chains: [&[&str]; 5] = [&[], &[&of_another], &[&of_no_root], &[&changed], &[&good, &good]];
    for chain in chains {
        assert_eq!(files.attach(&guest, chain), Err(Code::AccessDenied), "{chain:?}");
    }
    let volume = files.world.signed(1, 2, &Grant { volume: [7; 16], ..files.grant(1) });
    let why = files.attach(&guest, &[&volume]).unwrap();
    assert_eq!(why, "the credential is for another volume");
    assert_ne!(files.attach(&guest, &["garbage"]), Ok(String::new()));
    assert_eq!(files.readable(&guest), [0]);
    let told = files.world.call(Request::Attach { chain: vec![good.into_bytes()] });
    assert_eq!(told.err(), Some(Code::AccessDenied), "only a guest has chains");
}

#[test]
fn what_a_session_cannot_have_is_refused_with_the_reason() {
    let files = Files::new(2);
    let guest = files.begin(&files.credential(0));
    let rights = "rw".parse().unwrap();
    let writing = files.world.signed(1, 2, &Grant { rights, ..files.grant(1) });
    let why = files.attach(&guest, &[&writing]).unwrap();
    assert_eq!(why, "the credential grants changes: attach it first");
    let from = Some("192.0.2.0/24".parse().unwrap());
    let near = files.world.signed(1, 2, &Grant { from, ..files.grant(1) });
    let why = files.attach(&guest, &[&near]).unwrap();
    assert_eq!(why, "the credential holds for some addresses: attach it alone");
    assert_eq!(files.readable(&guest), [0]);
    let writer = files.begin(&writing);
    assert_eq!(files.attach(&writer, &[&files.credential(0)]), Ok(String::new()));
    assert_eq!(files.readable(&writer), [0, 1]);
}

#[test]
fn a_session_has_a_number_of_chains_only() {
    let files = Files::new(limits::ATTACHED_CHAINS + 1);
    let guest = files.begin(&files.credential(0));
    for file in 1..limits::ATTACHED_CHAINS {
        assert_eq!(files.attach(&guest, &[&files.credential(file)]), Ok(String::new()));
    }
    let why = files.attach(&guest, &[&files.credential(limits::ATTACHED_CHAINS)]).unwrap();
    assert_eq!(why, "the session has as many credentials as it can have");
    let all: Vec<usize> = (0..limits::ATTACHED_CHAINS).collect();
    assert_eq!(files.readable(&guest), all);
    assert_eq!(files.attach(&guest, &[&files.credential(1)]), Ok(String::new()), "it is there");
}
