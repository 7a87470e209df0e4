use std::fs;
use std::thread;
use std::time::Duration;

use pelago_keynote::key::PrivateKey;
use pelago_keynote::share::{SharedName, SharedObject, attribute};
use pelago_keynote::{Conditions, Credential, Grant, Principal, Test, policy};
use pelago_random::Random;
use pelago_store::folder::Folder;
use pelago_store::volume::VolumeId;
use tempfile::TempDir;

use super::*;
use crate::policy::Policy;

const VOLUME: VolumeId = VolumeId([3; 16]);
const ROOT: u8 = 1;
const BETWEEN: u8 = 2;
const GUEST: u8 = 3;
/// The folders that the credentials name.
const FOLDERS: u64 = 8;
const SESSIONS: u32 = 6;

/// The policy of a volume without a server.
struct World {
    policy: Policy,
    _folder: TempDir,
}

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

fn principal(number: u8) -> Principal {
    Principal(*key(number).public().as_bytes())
}

fn folder(number: u64) -> u64 {
    100 + number
}

fn dirs(numbers: &[u64]) -> Vec<InodeId> {
    numbers.iter().map(|number| InodeId::from_raw(folder(*number))).collect()
}

fn session(number: u32) -> SessionId {
    SessionId::new(1, number)
}

fn link(by: u8, to: u8, conditions: &Conditions) -> Vec<u8> {
    let credential = Credential { comment: &[], licensee: principal(to), conditions };
    credential.sign(&key(by).signing_key()).unwrap().into_bytes()
}

/// Returns the conditions of a share to change something, as those in another form may grant: these
/// can be attached to no other.
fn grants(object: SharedObject) -> Conditions {
    let rights = "rw".parse().unwrap();
    Grant { object, rights, ..Grant::to_read(VOLUME.0, 0) }.conditions()
}

/// Returns a chain of one link to a folder.
fn to_folder(number: u64) -> Vec<Vec<u8>> {
    vec![link(ROOT, GUEST, &grants(SharedObject::Folder(folder(number))))]
}

/// Returns a chain of one link in another form than Pelago's.
fn to_anything() -> Vec<Vec<u8>> {
    let conditions = Conditions::new(vec![Test::matches(attribute::ANCESTORS, "/")]);
    vec![link(ROOT, GUEST, &conditions)]
}

/// Returns a chain of one or two links.
fn any_chain(random: &mut Random) -> Vec<Vec<u8>> {
    let ino = folder(random.below(FOLDERS));
    let object = match random.below(10) {
        0 => SharedObject::File(ino),
        1 => SharedObject::Name { directory: ino, name: SharedName::new(b"name").unwrap() },
        2 => return to_anything(),
        _ => SharedObject::Folder(ino),
    };
    let last = grants(object);
    if random.chance(50) {
        return vec![link(ROOT, GUEST, &last)];
    }
    let first = grants(SharedObject::Folder(folder(random.below(FOLDERS))));
    vec![link(ROOT, BETWEEN, &first), link(BETWEEN, GUEST, &last)]
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy"), policy(&[principal(ROOT)], &[]).unwrap()).unwrap();
        let opened = Folder::open(folder.path()).unwrap();
        Self { policy: Policy::new(VOLUME, Some(opened), Vec::new(), None), _folder: folder }
    }

    fn begin(&self, number: u32, chain: &[Vec<u8>]) -> Arc<Guest> {
        let grant = self.policy.admit(&principal(GUEST).0, chain, None).unwrap();
        self.policy.begin(session(number), &grant).unwrap();
        self.policy.guest(session(number)).unwrap()
    }

    fn concerned(&self, dirs: Option<&[InodeId]>) -> Vec<SessionId> {
        self.policy.guests.read().concerned(dirs)
    }

    /// As [`World::concerned`], by the links of all guests.
    fn scan(&self, dirs: Option<&[InodeId]>) -> Vec<SessionId> {
        let is_concerned = |guest: &Guest| {
            let chains = guest.chains();
            let mut links = chains.iter().flat_map(|chain| &chain.links);
            links.any(|link| match link.share.as_ref().map(|share| &share.object) {
                Some(SharedObject::Folder(ino)) => {
                    dirs.is_none_or(|dirs| dirs.iter().any(|dir| dir.raw() == *ino))
                }
                Some(SharedObject::File(_) | SharedObject::Name { .. }) => false,
                None => true,
            })
        };
        let guests = self.policy.guests.read();
        let guests = guests.values().flatten().filter(|guest| is_concerned(guest));
        guests.map(|guest| guest.session).collect()
    }

    /// Returns whether the index has nothing.
    fn is_forgotten(&self) -> bool {
        let guests = self.policy.guests.read();
        let FolderIndex { of_folders, of_sessions, any } = &guests.folders;
        of_folders.is_empty() && of_sessions.is_empty() && any.is_empty()
    }
}

/// Begins, attaches, ends and moves at random. Each answer is that of a scan of all guests. A chain
/// is also attached to guests whose session has ended, or is another guest's by now.
#[test]
fn the_index_answers_as_a_scan_of_all_guests() {
    let mut attached = 0;
    let mut partly = 0;
    for seed in 0..16 {
        let world = World::new();
        let mut random = Random::new(seed);
        let mut begun: Vec<Arc<Guest>> = Vec::new();
        for step in 0..200 {
            let number = u32::try_from(random.below(SESSIONS.into())).unwrap();
            match random.below(10) {
                0..4 => begun.push(world.begin(number, &any_chain(&mut random))),
                4..7 => {
                    if let Some(guest) = random.pick(&begun) {
                        let chain = any_chain(&mut random);
                        // The session may have as many as it can have.
                        attached += u64::from(world.policy.attach(guest, &chain).is_ok());
                    }
                }
                7 => world.policy.expect(session(number)),
                _ => world.policy.end(session(number)),
            }
            let moved: Vec<u64> = (0..FOLDERS).filter(|_| random.chance(20)).collect();
            let moved = dirs(&moved);
            for dirs in [Some(&*moved), Some(&[]), None] {
                let found = world.concerned(dirs);
                assert_eq!(found, world.scan(dirs), "seed {seed}, step {step}, {dirs:?}");
                partly += u64::from(!found.is_empty() && found.len() < SESSIONS as usize);
            }
        }
        (0..SESSIONS).for_each(|number| world.policy.end(session(number)));
        assert!(world.is_forgotten(), "seed {seed}");
    }
    assert!(attached > 100 && partly > 1000, "{attached} {partly}");
}

#[test]
fn each_folder_of_each_chain_of_a_guest_is_found() {
    let world = World::new();
    let first = grants(SharedObject::Folder(folder(0)));
    let last = grants(SharedObject::Folder(folder(1)));
    let chain = [link(ROOT, BETWEEN, &first), link(BETWEEN, GUEST, &last)];
    let guest = world.begin(0, &chain);
    world.begin(1, &to_folder(2));
    world.policy.attach(&guest, &to_folder(3)).unwrap();
    for (numbers, found) in [
        (&[0][..], &[0][..]),
        (&[1], &[0]),
        (&[2], &[1]),
        (&[3], &[0]),
        (&[4], &[]),
        (&[3, 2], &[0, 1]),
    ] {
        let sessions: Vec<SessionId> = found.iter().map(|number| session(*number)).collect();
        assert_eq!(world.concerned(Some(&dirs(numbers))), sessions, "{numbers:?}");
    }
    world.policy.attach(&guest, &to_anything()).unwrap();
    assert_eq!(world.concerned(Some(&dirs(&[4]))), [session(0)]);
    assert_eq!(world.concerned(None), [session(0), session(1)]);
}

/// A guest has no right by a chain that it attaches before a move finds it.
#[test]
fn a_chain_is_found_from_its_first_moment() {
    let world = World::new();
    let guest = world.begin(0, &to_folder(0));
    let guests = world.policy.guests.read();
    thread::scope(|scope| {
        let attaching = scope.spawn(|| world.policy.attach(&guest, &to_folder(1)));
        // Without the lock above it is done in less than a millisecond.
        thread::sleep(Duration::from_millis(50));
        assert_eq!(guest.attached.count(), 0);
        drop(guests);
        attaching.join().unwrap().unwrap();
    });
    assert_eq!((guest.attached.count(), world.concerned(Some(&dirs(&[1])))), (1, vec![session(0)]));
}

#[test]
fn nothing_is_known_of_a_guest_that_ends_while_it_attaches() {
    let world = World::new();
    for _ in 0..256 {
        let guest = world.begin(0, &to_folder(0));
        thread::scope(|scope| {
            scope.spawn(|| world.policy.attach(&guest, &to_anything()).unwrap());
            scope.spawn(|| world.policy.attach(&guest, &to_folder(1)).unwrap());
            world.policy.end(session(0));
        });
        assert!(world.is_forgotten());
    }
}
