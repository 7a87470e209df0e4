//! Tickets and invitations that cannot be used: one error with a hint, word for word, and nothing
//! is created.
//!
//! No test here mounts.

use std::fs;
use std::path::PathBuf;

use pelago_net::key::PrivateKey;
use pelago_store::volume::{Volume, VolumeOptions};
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
        drop(Volume::create(&root.join("vol"), VolumeOptions::default()).unwrap());
        Self { root, _folder: folder }
    }

    fn run(&self, args: &[&str]) -> Ran {
        run(&mut pelago(&self.root, args))
    }

    fn golden(&self, name: &str, args: &[&str]) {
        crate::harness::golden::expect_golden(name, &self.root, &self.run(args));
    }

    /// Joins by this ticket, and finds that nothing was made.
    fn join(&self, name: &str, ticket: &str) {
        self.golden(name, &["join", ticket, "office"]);
        assert!(!self.root.join("office").exists());
    }
}

/// Returns a ticket as `pelago site invite` prints it.
fn ticket(until: u64, place: &str) -> String {
    let key = PrivateKey::from_seed([7; 32]);
    let server = PrivateKey::from_seed([3; 32]).public();
    let volume = "ab".repeat(16);
    let secret = key.to_secret_text();
    let fields = format!("pelago-ticket:1:1:{until}:{volume}:berlin:{secret}:{server}@{place}");
    let signature = key.signing_key().sign(fields.as_bytes());
    let sum: String = signature.as_ref()[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{fields}:{sum}")
}

/// The year 2100.
const FAR: u64 = 4_102_444_800;

#[test]
fn a_ticket_that_cannot_be_used_is_refused() {
    let home = Home::new();
    let good = ticket(FAR, "127.0.0.1:1");
    home.join("join-no-ticket", "hello");
    home.join("join-cut", &good[..good.len() - 1]);
    home.join("join-changed", &good.replace("berlin", "bonn"));
    home.join("join-expired", &ticket(1_700_000_000, "127.0.0.1:1"));
    home.join("join-nobody", &good);
}

#[test]
fn a_folder_that_has_something_else_is_not_taken() {
    let home = Home::new();
    let good = ticket(FAR, "127.0.0.1:1");
    home.golden("join-other-volume", &["join", &good, "vol"]);
    assert!(home.root.join("vol/format").exists());
    fs::create_dir(home.root.join("full")).unwrap();
    fs::write(home.root.join("full/mine"), "mine").unwrap();
    let joined = home.run(&["join", &good, "full"]);
    assert_ne!(joined.code, Some(0));
    assert_eq!(fs::read_to_string(home.root.join("full/mine")).unwrap(), "mine");
}

#[test]
fn what_is_not_built_or_not_up_says_so() {
    let home = Home::new();
    home.golden("site-invite-down", &["site", "invite", "berlin", "-V", "vol"]);
    home.golden("site-invite-path", &["site", "invite", "berlin", "docs", "-V", "vol"]);
    home.golden("site-list-down", &["site", "list", "-V", "vol"]);
    home.golden("conflicts-down", &["conflicts", "-V", "vol"]);
}
