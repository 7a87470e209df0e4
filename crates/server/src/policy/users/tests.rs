use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use pelago_keynote::key::{PrivateKey, PublicKey};
use pelago_keynote::{Credential, Grant, policy};
use pelago_store::volume::VolumeId;
use pelago_wire::{Code, GuestGrant, GuestRefusal, SessionId};
use tempfile::TempDir;

use super::*;
use crate::policy::{Guest, Policy};

const VOLUME: VolumeId = VolumeId([3; 16]);

/// The policy of a folder whose root is key 1.
struct World {
    folder: TempDir,
    policy: Policy,
}

fn key(number: u8) -> PrivateKey {
    PrivateKey::from_seed([number; 32])
}

fn public(number: u8) -> PublicKey {
    key(number).public()
}

fn principal(number: u8) -> Principal {
    Principal(*public(number).as_bytes())
}

/// Returns the credential of one key for another.
fn link(by: u8, to: u8) -> Vec<u8> {
    let conditions = Grant::to_read(VOLUME.0, 7).conditions();
    let credential = Credential { comment: &[], licensee: principal(to), conditions: &conditions };
    credential.sign(&key(by).signing_key()).unwrap().into_bytes()
}

impl World {
    /// Returns a policy that has not read the file `keys` yet.
    fn new(keys: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy"), policy(&[principal(1)], &[]).unwrap()).unwrap();
        let opened = Folder::open(folder.path()).unwrap();
        let world = Self { policy: Policy::new(VOLUME, Some(opened), Vec::new(), None), folder };
        if let Some(keys) = keys {
            world.put(keys);
        }
        world
    }

    /// Replaces the file `keys`.
    fn put(&self, text: &str) {
        fs::write(self.path("keys.new"), text).unwrap();
        fs::rename(self.path("keys.new"), self.path("keys")).unwrap();
    }

    /// Replaces the file `keys`, which is noticed.
    fn change(&self, text: &str) {
        self.put(text);
        self.look();
    }

    /// Checks the file, without waiting for half a second to pass.
    fn look(&self) {
        let file = &self.policy.users.as_ref().unwrap().file;
        let mut state = file.checked();
        file.look(&mut state);
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn admit(&self, guest: u8, links: &[(u8, u8)]) -> Result<GuestGrant, GuestRefusal> {
        let texts: Vec<Vec<u8>> = links.iter().map(|(by, to)| link(*by, *to)).collect();
        self.policy.admit(&principal(guest).0, &texts, None)
    }

    /// Begins the session of the guest with this key and chain.
    fn guest(&self, guest: u8, links: &[(u8, u8)]) -> Arc<Guest> {
        let grant = self.admit(guest, links).unwrap();
        let session = SessionId::new(1, u32::from(guest));
        self.policy.begin(session, &grant).unwrap();
        self.policy.guest(session).unwrap()
    }

    fn uid(&self, guest: &Guest) -> Result<u32, Code> {
        self.policy.acting_user(guest).map(|user| user.uid).map_err(|error| error.code)
    }

    /// Returns the uid as which a guest with this chain acts.
    fn uid_by(&self, guest: u8, links: &[(u8, u8)]) -> u32 {
        self.uid(&self.guest(guest, links)).unwrap()
    }

    fn owner(&self) -> u32 {
        fs::metadata(self.folder.path()).unwrap().uid()
    }
}

/// Returns the line that binds a key to a number.
fn line(number: u8, user: &str) -> String {
    format!("{} key{number} user={user}\n", public(number))
}

#[test]
fn without_a_list_a_guest_acts_as_the_owner_of_the_volume() {
    let world = World::new(None);
    let guest = world.guest(2, &[(1, 2)]);
    let user = world.policy.acting_user(&guest).unwrap();
    let folder = fs::metadata(world.folder.path()).unwrap();
    assert_eq!((user.uid, user.gid), (folder.uid(), folder.gid()));
}

#[test]
fn a_guest_acts_as_the_user_of_the_nearest_bound_key_above_it() {
    let lines = [line(2, "5002"), line(3, "5003"), format!("{} five\n", public(5))];
    let world = World::new(Some(&lines.concat()));
    let owner = world.owner();
    // A key that is bound itself acts as the one whom it has its rights from.
    assert_eq!(world.uid_by(2, &[(1, 2)]), owner);
    assert_eq!(world.uid_by(3, &[(1, 2), (2, 3)]), 5002);
    assert_eq!(world.uid_by(4, &[(1, 2), (2, 3), (3, 4)]), 5003);
    assert_eq!(world.uid_by(6, &[(1, 2), (2, 5), (5, 6)]), 5002, "a name binds to no user");
    assert_eq!(world.uid_by(6, &[(1, 5), (5, 6)]), owner);
    world.change(&line(1, "5001"));
    assert_eq!(world.uid_by(6, &[(1, 5), (5, 6)]), 5001, "a root can be bound");
}

#[test]
fn a_user_comes_with_its_groups_and_a_number_needs_no_account() {
    let root = Account::from_uid(Uid::from_raw(0)).unwrap().unwrap();
    let world = World::new(Some(&line(1, &root.name)));
    let guest = world.guest(2, &[(1, 2)]);
    let user = world.policy.acting_user(&guest).unwrap();
    assert_eq!((user.uid, user.gid), (0, root.gid.as_raw()));
    assert!(user.groups.contains(&root.gid.as_raw()), "{user:?}");
    world.change(&line(1, "0"));
    assert_eq!(world.policy.acting_user(&guest).unwrap(), user);
    world.change(&line(1, "4000000000"));
    let nobody = User { uid: 4_000_000_000, gid: NO_GROUP, groups: Vec::new() };
    assert_eq!(*world.policy.acting_user(&guest).unwrap(), nobody);
}

#[test]
fn a_change_of_the_list_changes_the_user_and_moves_the_rights_number() {
    let world = World::new(Some(&line(2, "5002")));
    let guest = world.guest(3, &[(1, 2), (2, 3)]);
    assert_eq!(world.uid(&guest), Ok(5002));
    let before = world.policy.terms().rights_number;
    world.change(&line(2, "5003"));
    assert_eq!(world.uid(&guest), Ok(5003));
    assert!(world.policy.terms().rights_number > before);
    fs::remove_file(world.path("keys")).unwrap();
    world.look();
    assert_eq!(world.uid(&guest), Ok(world.owner()), "a removed list binds nobody");
}

#[test]
fn a_wrong_list_changes_nothing() {
    let good = line(2, "5002");
    let world = World::new(Some(&good));
    let guest = world.guest(3, &[(1, 2), (2, 3)]);
    let long = format!("{good}{}", "#".repeat(KEYS_BYTES));
    let wrong = [
        line(2, "nobody-has-this-name"),
        line(2, "4294967295"),
        line(2, ""),
        line(2, "a:b"),
        format!("{} bad\u{7}name user=5003\n", public(2)),
        format!("{} bad\u{202e}name user=5003\n", public(2)),
        format!("{} \n", public(2)),
        format!("{}{}", line(2, "5003"), line(2, "5003")),
        format!("{0} two user=5003\n{0} other user=5004\n", public(2)),
        format!("{} same user=5003\n{} same user=5004\n", public(2), public(3)),
        "pelago1 broken user=5003\n".to_owned(),
        key(2).to_secret_text(),
        long,
    ];
    for wrong in wrong {
        world.change(&wrong);
        assert_eq!(world.uid(&guest), Ok(5002), "{:.200}", wrong.escape_debug().to_string());
    }
    fs::write(world.path("keys"), [0xff, 0xfe]).unwrap();
    world.look();
    assert_eq!(world.uid(&guest), Ok(5002), "no text");
    fs::write(world.path("other"), line(2, "5003")).unwrap();
    fs::remove_file(world.path("keys")).unwrap();
    symlink("other", world.path("keys")).unwrap();
    world.look();
    assert_eq!(world.uid(&guest), Ok(5002), "a symbolic link");
    fs::remove_file(world.path("keys")).unwrap();
    fs::create_dir(world.path("keys")).unwrap();
    world.look();
    assert_eq!(world.uid(&guest), Ok(5002), "a folder");
    fs::remove_dir(world.path("keys")).unwrap();
    fs::rename(world.path("other"), world.path("keys")).unwrap();
    fs::set_permissions(world.path("keys"), fs::Permissions::from_mode(0o666)).unwrap();
    world.look();
    assert_eq!(world.uid(&guest), Ok(5002), "a file that others can write");
    fs::set_permissions(world.path("keys"), fs::Permissions::from_mode(0o644)).unwrap();
    world.look();
    assert_eq!(world.uid(&guest), Ok(5003), "a good one again");
}

/// The list may bind keys to users who may do less than that of the volume.
#[test]
fn no_guest_is_admitted_before_there_is_a_list_that_can_be_used() {
    let world = World::new(Some(&line(2, "nobody-has-this-name")));
    let GuestRefusal(reason) = world.admit(2, &[(1, 2)]).unwrap_err();
    assert_eq!(reason, "the server does not know as whom you would act");
    world.change(&line(2, "5002"));
    assert_eq!(world.uid_by(3, &[(1, 2), (2, 3)]), 5002);
}

#[test]
fn a_chain_that_leads_to_two_users_is_refused() {
    let lines = [line(2, "5002"), line(3, "5003"), line(4, "5002")];
    let world = World::new(Some(&lines.concat()));
    let two = [(1, 2), (1, 3), (2, 9), (3, 9)];
    assert!(world.admit(9, &two).is_err());
    let far = [(1, 2), (1, 3), (2, 8), (3, 8), (8, 9)];
    assert!(world.admit(9, &far).is_err(), "above a key that is bound to nobody");
    assert!(world.admit(9, &[(1, 2), (2, 9), (1, 9)]).is_err(), "one of them the volume's");
    let same = [(1, 2), (1, 4), (2, 9), (4, 9)];
    let guest = world.guest(9, &same);
    assert_eq!(world.uid(&guest), Ok(5002), "two keys of one user");
    // A list that divides them ends the session.
    world.change(&[line(2, "5002"), line(4, "5004")].concat());
    assert_eq!(world.uid(&guest), Err(Code::Stale));
    assert!(!world.policy.admits(&guest));
}

#[test]
fn the_user_is_found_once_for_each_change() {
    let world = World::new(Some(&line(1, "5001")));
    let guest = world.guest(2, &[(1, 2)]);
    let user = world.policy.acting_user(&guest).unwrap();
    assert!(Arc::ptr_eq(&user, &world.policy.acting_user(&guest).unwrap()));
    world.change(&line(1, "5001"));
    let again = world.policy.acting_user(&guest).unwrap();
    assert!(again == user && !Arc::ptr_eq(&again, &user));
}
