//! Credentials that cannot be used: one error with a hint, word for word.
//!
//! No test here mounts: a volume is made by the library.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use pelago_keynote::{Credential, Grant, Principal, armor};
use pelago_net::key::address::ServerAddress;
use pelago_net::key::{PrivateKey, PublicKey, file};
use pelago_store::volume::{Volume, VolumeOptions};
use tempfile::TempDir;

use crate::harness::program::{Ran, pelago, run};
use crate::harness::volume::folder;

/// A home folder with a volume that is down, and a key.
struct Home {
    root: PathBuf,
    _folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let (folder, root) = folder();
        drop(Volume::create(&root.join("vol"), VolumeOptions::default()).unwrap());
        fs::create_dir(root.join("point")).unwrap();
        let home = Self { root, _folder: folder };
        home.run(&["key", "new"]).expect_success();
        home
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut pelago(&self.root, args))
    }

    fn golden(&self, name: &str, args: &[&str]) {
        crate::harness::golden::expect_golden(name, &self.root, &self.run(args));
    }

    /// Returns the key of this user.
    fn key(&self) -> PrivateKey {
        file::read(&self.root.join(".config/pelago/key")).unwrap()
    }

    fn write(&self, text: &str) {
        fs::write(self.root.join("cred"), text).unwrap();
    }

    /// Writes this block as the credential, and attaches it.
    fn attach(&self, name: &str, block: &str) {
        self.write(block);
        self.golden(name, &["attach", "cred", "point"]);
    }
}

/// Returns a credential that is signed by the key of seed 1 for another key.
fn credential(comment: &[String], licensee: u8) -> String {
    signed(&seeded(1), &seeded(licensee), comment, None)
}

fn credential_for(comment: &[String], licensee: PublicKey) -> String {
    signed_for(&seeded(1), licensee, comment, None)
}

fn seeded(seed: u8) -> PrivateKey {
    PrivateKey::from_seed([seed; 32])
}

/// Returns a credential by a key for another one.
fn signed(by: &PrivateKey, to: &PrivateKey, comment: &[String], until: Option<&str>) -> String {
    signed_for(by, to.public(), comment, until)
}

fn signed_for(
    by: &PrivateKey,
    licensee: PublicKey,
    comment: &[String],
    until: Option<&str>,
) -> String {
    let until = until.map(str::to_owned);
    let share = Grant { until, ..Grant::to_read([5; 16], 0x2a) };
    let licensee = Principal(*licensee.as_bytes());
    let conditions = share.conditions();
    let credential = Credential { comment, licensee, conditions: &conditions };
    credential.sign(&by.signing_key()).unwrap()
}

/// Returns the address of a server that is never asked.
fn address() -> String {
    ServerAddress::new(seeded(9).public(), "192.0.2.1", 7440).unwrap().to_string()
}

fn block(text: &str) -> String {
    armor(&[text.to_owned()]).unwrap()
}

#[test]
fn a_text_that_is_no_credential_is_refused() {
    let home = Home::new();
    home.golden("attach-missing", &["attach", "cred", "point"]);
    home.attach("attach-no-block", "Dear Bob,\nhere it is.\n");
    let good = block(&credential(&[], 2));
    let lines: Vec<&str> = good.lines().collect();
    home.attach("attach-cut", &lines[..lines.len() - 1].join("\n"));
    home.attach("attach-damaged", &good.replacen(lines[1], &lines[1][1..], 1));
    home.attach("attach-twice", &format!("{good}{good}"));
}

#[test]
fn a_credential_that_this_version_does_not_take_is_refused_by_name() {
    let home = Home::new();
    let text = credential(&[], 2);
    let changed = |from: &str, to: &str| block(&text.replacen(from, to, 1));
    home.attach("attach-other-operator", &changed("volume ==", "volume !="));
    home.attach(
        "attach-constants",
        &changed("Authorizer:", "Local-Constants: A = \"b\"\nAuthorizer:"),
    );
    home.attach("attach-other-key", &changed("ed25519-hex:", "rsa-hex:"));
    home.attach("attach-changed", &changed("/2a/", "/1/"));
}

#[test]
fn a_chain_that_does_not_hold_together_is_refused_at_its_link() {
    let home = Home::new();
    let first = credential(&[], 2);
    let chain = |texts: &[&String]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).clone()).collect();
        armor(&texts).unwrap()
    };
    home.attach("attach-chain", &chain(&[&first, &first]));
    let second = signed(&seeded(2), &seeded(3), &[], None);
    let changed = second.replacen("/2a/", "/1/", 1);
    home.attach("attach-chain-changed", &chain(&[&first, &changed]));
    home.attach("attach-chain-not-yours", &chain(&[&first, &second]));
}

#[test]
fn what_has_ended_is_shown_and_refused() {
    let home = Home::new();
    let own = home.key();
    let name = ["at".to_owned() + " " + &address(), "name docs".to_owned()];
    let first = signed(&seeded(1), &seeded(2), &name, Some("20200102030405"));
    let second = signed(&seeded(2), &own, &name, None);
    home.attach("attach-ended", &armor(&[first, second]).unwrap());
}

#[test]
fn what_a_guest_has_shared_on_is_taken_back_at_its_address() {
    let home = Home::new();
    let own = home.key();
    let first = signed(&seeded(1), &own, &[], None);
    let second = signed(&own, &seeded(2), &[], None);
    home.write(&armor(&[first, second]).unwrap());
    home.golden("revoke-no-address", &["revoke", "cred"]);
}

#[test]
fn a_credential_of_another_is_refused() {
    let home = Home::new();
    home.attach("attach-not-yours", &block(&credential(&[], 2)));
    home.golden("revoke-not-up", &["revoke", "cred"]);
    home.golden("revoke-down", &["revoke", "cred", "-V", "vol"]);
}

/// Each file that was tried is named.
#[test]
fn the_key_of_openssh_is_tried_after_the_own_one() {
    let home = Home::new();
    fs::create_dir(home.root.join(".ssh")).unwrap();
    let write = |text: &str| {
        let path = home.root.join(".ssh/id_ed25519");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    };
    write(include_str!("../../keynote/src/key/openssh/vectors/plain.key"));
    home.attach("attach-not-yours-openssh", &block(&credential(&[], 2)));
    write(include_str!("../../keynote/src/key/openssh/vectors/passphrase.key"));
    home.golden("attach-not-yours-passphrase", &["attach", "cred", "point"]);
    let public = include_str!("../../keynote/src/key/openssh/vectors/passphrase.pub").parse();
    home.attach("attach-yours-passphrase", &block(&credential_for(&[], public.unwrap())));
    // A key that fits is taken: the next fault is that no address is in the credential.
    write(include_str!("../../keynote/src/key/openssh/vectors/plain.key"));
    let public = include_str!("../../keynote/src/key/openssh/vectors/plain.pub").parse();
    let own = block(&credential_for(&[], public.unwrap()));
    home.attach("attach-yours-openssh", &own);
    fs::remove_file(home.root.join(".config/pelago/key")).unwrap();
    home.attach("attach-yours-openssh", &own);
    home.attach("attach-not-yours-no-key", &block(&credential(&[], 2)));
}

/// A file of OpenSSH as the own key, by the environment.
#[test]
fn a_file_of_openssh_is_shown_as_a_key() {
    let home = Home::new();
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../keynote/src/key/openssh/vectors/");
    let shown = |name: &str| {
        let path = home.root.join("id");
        fs::copy(format!("{vectors}{name}.key"), &path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        run(pelago(&home.root, ["key", "show"]).env("PELAGO_KEY", &path))
    };
    let public = fs::read_to_string(format!("{vectors}plain.pub")).unwrap();
    let key: PublicKey = public.parse().unwrap();
    assert_eq!(shown("plain").expect_success().out, format!("{key}\n"));
    for name in ["passphrase", "rsa", "ecdsa"] {
        let golden = format!("key-show-openssh-{name}");
        crate::harness::golden::expect_golden(&golden, &home.root, &shown(name));
    }
}

#[test]
fn what_cannot_be_shared_is_refused_and_nothing_is_made() {
    let home = Home::new();
    let to = PrivateKey::from_seed([2; 32]).public().to_string();
    home.golden("share-down", &["share", "vol", "--to", &to]);
    home.golden("share-elsewhere", &["share", "point", "--to", &to]);
    home.golden("share-key", &["share", "vol", "--to", "bob"]);
    home.run(&["key", "name", "bob", &to, "-V", "vol"]).expect_success();
    home.golden("share-name-down", &["share", "vol", "--to", "bob"]);
    home.golden("revoke-name-down", &["revoke", "bob", "-V", "vol"]);
    home.golden("revoke-name", &["revoke", "carol", "-V", "vol"]);
    home.golden("revoke-key-cut", &["revoke", &to[..60]]);
    fs::write(home.root.join("bob"), "").unwrap();
    home.golden("share-name-and-file", &["share", "vol", "--to", "bob"]);
    home.golden("revoke-name-and-file", &["revoke", "bob", "-V", "vol"]);
    fs::remove_file(home.root.join("bob")).unwrap();
    let refused = |name: &str, with: &[&str]| {
        home.golden(name, &[&["share", "vol", "--to", &to], with].concat());
    };
    refused("share-until-past", &["--until", "2020-01-02T03:04:05Z"]);
    refused("share-until-calendar", &["--until", "2030-02-30"]);
    refused("share-until-word", &["--until", "tomorrow"]);
    refused("share-until-far", &["--until", "9999999999d"]);
    refused("share-rights-letters", &["--rights", "rq"]);
    refused("share-from", &["--from", "192.0.2.1/24"]);
    fs::write(home.root.join("there"), "mine").unwrap();
    refused("share-out-exists", &["--out", "there"]);
    assert_eq!(fs::read_to_string(home.root.join("there")).unwrap(), "mine");
    refused("share-down", &["--out", "new", "--until", "14d", "--may-share"]);
    assert!(!home.root.join("new").exists());
    for name in ["policy", "listen", "key"] {
        assert!(!home.root.join("vol").join(name).exists(), "{name}");
    }
}

/// The log and the rights of guests, of a volume that is down and of which nothing was shared.
#[test]
fn what_is_asked_about_guests_of_a_volume_that_is_down_is_one_clear_answer() {
    let home = Home::new();
    home.golden("log-nothing", &["log", "--audit", "-V", "vol"]);
    home.golden("log-which", &["log", "-V", "vol"]);
    home.golden("log-no-volume", &["log", "--audit", "-V", "point"]);
    home.golden("log-both", &["log", "--audit", "-V", "vol", "vol/files"]);
    home.golden("log-down", &["log", "--audit", "vol/files"]);
    home.golden("log-nowhere", &["log", "--audit", "point"]);
    home.golden("access-down", &["access", "vol/files"]);
    home.golden("access-nowhere", &["access", "point"]);
    home.golden("access-missing", &["access", "missing"]);
}
