//! `pelago key`: the output word for word, as golden files, and the files that it writes.
//!
//! No test here mounts: a volume is made by the library.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use pelago_keynote::Principal;
use pelago_net::key::file::read_or_create;
use pelago_net::key::{PrivateKey, PublicKey};
use pelago_net::own_file::OwnFile;
use pelago_store::volume::{self, VolumeOptions};
use rustix::process::geteuid;
use tempfile::TempDir;

use crate::harness::program::{Ran, pelago, run};
use crate::harness::volume::folder;

/// A home folder with a volume that is down.
struct Home {
    root: PathBuf,
    _folder: TempDir,
}

impl Home {
    fn new() -> Self {
        let (folder, root) = folder();
        drop(volume::Volume::create(&root.join("vol"), VolumeOptions::default()).unwrap());
        Self { root, _folder: folder }
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut pelago(&self.root, args))
    }

    /// Runs `pelago key` on the volume.
    fn on_volume(&self, args: &[&str]) -> Ran {
        self.run(&[&["key"], args, &["-V", "vol"]].concat())
    }

    fn golden(&self, name: &str, args: &[&str]) {
        self.expect(name, &self.run(args));
    }

    fn golden_on_volume(&self, name: &str, args: &[&str]) {
        self.expect(name, &self.on_volume(args));
    }

    fn expect(&self, name: &str, ran: &Ran) {
        crate::harness::golden::expect_golden(name, &self.root, ran);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn clients(&self) -> String {
        fs::read_to_string(self.path("vol/clients")).unwrap()
    }
}

fn key(number: u8) -> String {
    PrivateKey::from_seed([number; 32]).public().to_string()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_key_is_created_once() {
    let home = Home::new();
    home.golden("key-show-missing", &["key", "show"]);
    home.golden("key-new", &["key", "new"]);
    let path = home.path(".config/pelago/key");
    let text = fs::read(&path).unwrap();
    assert_eq!(mode(&path), 0o600);
    home.golden("key-new-again", &["key", "new"]);
    assert_eq!(fs::read(&path).unwrap(), text);
    home.golden("key-show", &["key", "show"]);
    home.golden("key-show-json", &["key", "show", "--json"]);
    home.golden("key-new-json", &["key", "new", "--path", "other/key", "--json"]);
    let shown = home.run(&["key", "show", "--path", "other/key"]).expect_success();
    assert_ne!(shown.out, home.run(&["key", "show"]).out);
}

/// The environment names the file, or its folder.
#[test]
fn the_environment_says_where_the_key_is() {
    let home = Home::new();
    for (variable, value, path) in
        [("XDG_CONFIG_HOME", "c", "c/pelago/key"), ("PELAGO_KEY", "k", "k")]
    {
        let value = home.path(value);
        let made = run(pelago(&home.root, ["key", "new"]).env(variable, &value)).expect_success();
        let shown = run(pelago(&home.root, ["key", "show"]).env(variable, &value));
        assert!(made.out.contains(shown.expect_success().out.trim()));
        assert_eq!(mode(&home.path(path)), 0o600);
    }
    let ran = run(pelago(&home.root, ["key", "new"]).env_remove("HOME"));
    home.expect("key-no-home", &ran);
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let home = Home::new();
    home.run(&["key", "new"]).expect_success();
    set_mode(&home.path(".config/pelago/key"), 0o644);
    home.golden("key-open-to-others", &["key", "show"]);
}

#[test]
fn a_damaged_key_is_refused_and_not_printed() {
    let home = Home::new();
    home.run(&["key", "new"]).expect_success();
    let path = home.path(".config/pelago/key");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.trim_end().strip_suffix(|_: char| true).unwrap()).unwrap();
    home.golden("key-damaged", &["key", "show"]);
}

#[test]
fn the_key_of_a_volume_is_its_servers() {
    let home = Home::new();
    let made = home.on_volume(&["show"]).expect_success().out;
    assert_eq!(home.on_volume(&["show"]).expect_success().out, made, "it is made once");
    let file = OwnFile::of(&home.path("vol/key")).unwrap();
    let key = read_or_create(&file).unwrap().public();
    let shown = home.on_volume(&["show"]).expect_success();
    assert_eq!(shown.out, format!("{key}\n"));
}

#[test]
fn a_machine_is_allowed_and_removed() {
    let home = Home::new();
    home.golden_on_volume("key-list-empty", &["list"]);
    home.golden_on_volume("key-allow", &["allow", &key(1), "--name", "laptop"]);
    assert_eq!(mode(&home.path("vol/clients")), 0o600);
    home.golden_on_volume("key-allow-again", &["allow", &key(1)]);
    read_or_create(&OwnFile::of(&home.path("vol/key")).unwrap()).unwrap();
    home.golden_on_volume("key-allow-address", &["allow", &key(2)]);
    home.golden_on_volume("key-allow-renamed", &["allow", &key(2), "--name", "ann@desk"]);
    home.golden_on_volume("key-list", &["list"]);
    home.golden_on_volume("key-list-json", &["list", "--json"]);
    home.golden_on_volume("key-allow-json", &["allow", &key(3), "--json"]);
    let listed = home.clients();
    assert!(listed.contains(&format!("{} laptop 2", key(1))), "{listed}");
    home.golden_on_volume("key-remove", &["remove", "laptop"]);
    home.golden_on_volume("key-remove-json", &["remove", &key(2), "--json"]);
    let left = home.clients();
    assert!(!left.contains(&key(1)) && !left.contains(&key(2)) && left.contains(&key(3)));
    assert!(!home.path("vol/clients.new").exists());
}

#[test]
fn a_key_or_name_that_is_wrong_changes_nothing() {
    let home = Home::new();
    home.on_volume(&["allow", &key(1), "--name", "laptop"]).expect_success();
    let before = home.clients();
    home.golden_on_volume("key-allow-cut", &["allow", &key(2)[..60]]);
    home.golden_on_volume("key-allow-word", &["allow", "laptop"]);
    let private = {
        home.run(&["key", "new", "--path", "k"]).expect_success();
        let text = fs::read_to_string(home.path("k")).unwrap();
        text.lines().last().unwrap().to_owned()
    };
    let ran = home.on_volume(&["allow", &private]);
    assert!(!ran.err.contains(&private[20..]), "{ran:?}");
    home.expect("key-allow-private", &ran);
    home.golden_on_volume("key-allow-name", &["allow", &key(2), "--name", "a b"]);
    home.golden_on_volume("key-allow-taken", &["allow", &key(2), "--name", "laptop"]);
    home.golden_on_volume("key-remove-missing", &["remove", &key(2)]);
    home.golden_on_volume("key-remove-name", &["remove", "desk"]);
    home.golden_on_volume("key-remove-missing-json", &["remove", "desk", "--json"]);
    home.golden_on_volume("key-remove-wrong", &["remove", &key(1)[..60]]);
    assert_eq!(home.clients(), before);
}

/// The same key is listed once, as text or by a file.
#[test]
fn a_key_of_openssh_is_allowed() {
    let home = Home::new();
    let line = include_str!("../../keynote/src/key/openssh/vectors/plain.pub");
    fs::write(home.path("id.pub"), line).unwrap();
    home.golden_on_volume("key-allow-openssh", &["allow", line, "--name", "desk"]);
    let again = home.on_volume(&["allow", "id.pub", "--json"]).expect_success().json();
    assert_eq!(again["state"], "was-allowed");
    let key = line.parse::<PublicKey>().unwrap().to_string();
    assert_eq!(again["client"]["key"], key.as_str());
    assert!(home.clients().contains(&format!("{key} desk 2")), "{}", home.clients());
    home.on_volume(&["remove", line]).expect_success();
    assert!(!home.clients().contains(&key));
}

#[test]
fn a_key_of_openssh_that_is_of_no_use_is_refused() {
    let home = Home::new();
    let rsa = include_str!("../../keynote/src/key/openssh/vectors/rsa.pub");
    fs::write(home.path("rsa.pub"), rsa).unwrap();
    home.golden_on_volume("key-allow-rsa", &["allow", rsa]);
    home.golden_on_volume("key-allow-rsa-file", &["allow", "rsa.pub"]);
    home.golden_on_volume("key-allow-cut-openssh", &["allow", "ssh-ed25519"]);
    let private = include_str!("../../keynote/src/key/openssh/vectors/plain.key");
    fs::write(home.path("id"), private).unwrap();
    home.golden_on_volume("key-allow-private-file", &["allow", "id"]);
    assert!(!home.path("vol/clients").exists());
}

/// A key has two texts, of machines and of guests.
#[test]
fn keys_for_which_everybody_can_sign_are_the_same_for_machines_and_guests() {
    let mut point = [0; 32];
    let mut refused = 0;
    for first in 0..=255 {
        for (middle, last) in [(0, 0), (0, 0x80), (0xff, 0x7f), (0xff, 0xff)] {
            point.fill(middle);
            point[0] = first;
            point[31] = last;
            let machine = PublicKey::new(point).to_string().parse::<PublicKey>();
            let guest = Principal(point).to_string().parse::<Principal>();
            assert_eq!(machine.is_err(), guest.is_err(), "{point:?}");
            refused += usize::from(guest.is_err());
        }
    }
    assert_eq!(refused, 10);
}

/// A name stands for one key in both lists.
#[test]
fn a_key_is_named_and_its_name_taken_back() {
    let home = Home::new();
    let line = include_str!("../../keynote/src/key/openssh/vectors/plain.pub");
    fs::write(home.path("id.pub"), line).unwrap();
    home.golden_on_volume("key-name", &["name", "bob", &key(1)]);
    assert_eq!(mode(&home.path("vol/keys")), 0o600);
    home.golden_on_volume("key-name-user", &["name", "bob", &key(1), "--user", "root"]);
    home.golden_on_volume("key-name-again", &["name", "bob", &key(1)]);
    home.golden_on_volume("key-name-json", &["name", "ann@desk", "id.pub", "--json"]);
    home.on_volume(&["name", "carol", &key(2), "--user", "4000000000"]).expect_success();
    home.golden_on_volume("key-name-taken", &["name", "bob", &key(3)]);
    home.golden_on_volume("key-list-names", &["list"]);
    home.golden_on_volume("key-list-names-json", &["list", "--json"]);
    home.golden_on_volume("key-unname", &["unname", "bob"]);
    home.golden_on_volume("key-unname-json", &["unname", "carol", "--json"]);
    home.golden_on_volume("key-unname-missing", &["unname", "bob"]);
    let left = fs::read_to_string(home.path("vol/keys")).unwrap();
    assert!(left.ends_with(&format!("{} ann@desk\n", line.parse::<PublicKey>().unwrap())));
    assert!(!home.path("vol/keys.new").exists() && !home.path("vol/clients.new").exists());
    assert!(!home.path("vol/clients").exists(), "no machine may connect by a name");
}

#[test]
fn a_machine_and_a_person_have_one_name_if_they_have_one_key() {
    let home = Home::new();
    home.on_volume(&["allow", &key(1), "--name", "laptop"]).expect_success();
    home.golden_on_volume("key-name-of-machine", &["name", "laptop", &key(2)]);
    home.on_volume(&["name", "laptop", &key(1)]).expect_success();
    home.golden_on_volume("key-allow-other-name", &["allow", &key(1), "--name", "desk"]);
    home.on_volume(&["name", "desk", &key(1)]).expect_success();
    assert!(home.clients().contains(&format!("{} desk 2", key(1))), "{}", home.clients());
    home.on_volume(&["name", "bob", &key(2)]).expect_success();
    home.golden_on_volume("key-allow-name-of-key", &["allow", &key(3), "--name", "bob"]);
    let allowed = home.on_volume(&["allow", &key(2), "--json"]).expect_success().json();
    assert_eq!(allowed["client"]["name"], "bob", "the name that its key has");
}

#[test]
fn a_name_a_key_or_a_user_that_is_wrong_names_nothing() {
    let home = Home::new();
    home.golden_on_volume("key-name-date", &["name", "2026-02-03", &key(1)]);
    home.golden_on_volume("key-name-control", &["name", "b\u{7}ob", &key(1)]);
    home.golden_on_volume("key-name-no-key", &["name", "bob", "laptop"]);
    home.golden_on_volume("key-name-no-user", &["name", "bob", &key(1), "--user", "no-such-user"]);
    home.golden_on_volume("key-name-bad-user", &["name", "bob", &key(1), "--user", "a:b"]);
    assert!(!home.path("vol/keys").exists());
    fs::write(home.path("vol/keys"), format!("# ours\n{} bob user=\n", key(1))).unwrap();
    home.golden_on_volume("key-name-wrong-line", &["name", "carol", &key(2)]);
    fs::write(home.path("vol/keys"), "#".repeat((256 << 10) + 1)).unwrap();
    home.golden_on_volume("key-name-long", &["name", "carol", &key(2)]);
    fs::rename(home.path("vol/keys"), home.path("vol/log")).unwrap();
    std::os::unix::fs::symlink("log", home.path("vol/keys")).unwrap();
    home.golden_on_volume("key-name-link", &["name", "carol", &key(2)]);
}

/// Commands for both lists at once give one name to one key.
#[test]
fn no_name_is_given_twice() {
    let home = Home::new();
    std::thread::scope(|scope| {
        for number in 0..3 {
            let home = &home;
            scope.spawn(move || home.on_volume(&["allow", &key(number), "--name", "one"]));
            scope.spawn(move || home.on_volume(&["name", "one", &key(number + 3)]));
        }
    });
    let listed = home.on_volume(&["list"]).expect_success().out;
    assert_eq!(listed.lines().count(), 1, "{listed}");
}

/// A list with a wrong line is not changed, and not shown in part.
#[test]
fn a_wrong_line_is_named() {
    let home = Home::new();
    let text = format!("# ours\n{} laptop\n\nlaptop {}\n", key(1), key(2));
    fs::write(home.path("vol/clients"), &text).unwrap();
    set_mode(&home.path("vol/clients"), 0o644);
    home.golden_on_volume("key-list-wrong-line", &["list"]);
    let ran = home.on_volume(&["allow", &key(3)]).expect_code(1);
    assert!(ran.err.contains("line 4"), "{ran:?}");
    assert_eq!(home.clients(), text);
}

/// Lines that a person has written into the list stay.
#[test]
fn comments_stay() {
    let home = Home::new();
    let text = format!("# ours\n\n{}   laptop   # Ann's\n", key(1));
    fs::write(home.path("vol/clients"), &text).unwrap();
    set_mode(&home.path("vol/clients"), 0o644);
    home.on_volume(&["allow", &key(2)]).expect_success();
    assert!(home.clients().starts_with(&text));
    home.on_volume(&["remove", &key(2)]).expect_success();
    assert_eq!(home.clients(), text);
}

#[test]
fn a_list_that_others_can_write_is_refused() {
    let home = Home::new();
    home.on_volume(&["allow", &key(1)]).expect_success();
    set_mode(&home.path("vol/clients"), 0o666);
    for args in [&["list"][..], &["allow", &key(2)], &["remove", &key(1)]] {
        let ran = home.on_volume(args).expect_code(4);
        assert!(ran.err.contains("chmod 644"), "{ran:?}");
    }
}

/// A list that root made could not be read by the server of another user.
#[test]
fn the_volume_of_another_user_is_left_alone() {
    if !geteuid().is_root() {
        println!("skipped: only root has files of several users");
        return;
    }
    let home = Home::new();
    for entry in fs::read_dir(home.path("vol")).unwrap() {
        chown(entry.unwrap().path(), Some(65_534), Some(65_534)).unwrap();
    }
    home.on_volume(&["allow", &key(1)]).expect_code(4);
    assert!(!home.path("vol/clients").exists());
}

#[test]
fn a_folder_without_a_volume_has_no_list() {
    let home = Home::new();
    let ran = home.run(&["key", "list", "-V", "none"]).expect_code(3);
    assert!(ran.err.contains("is not a volume"), "{ran:?}");
}

/// Several processes change the list at once.
#[test]
fn no_change_is_lost() {
    let home = Home::new();
    std::thread::scope(|scope| {
        for number in 0..6 {
            let home = &home;
            scope.spawn(move || home.on_volume(&["allow", &key(number)]).expect_success());
        }
    });
    let listed = home.on_volume(&["list", "--json"]).expect_success().json();
    assert_eq!(listed["clients"].as_array().unwrap().len(), 6);
}
