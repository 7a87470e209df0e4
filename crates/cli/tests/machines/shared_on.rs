//! A folder that is shared with a stranger, who shares a part of it with another one.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;

use crate::harness::program::Ran;
use crate::machines::hands::Hands;
use crate::machines::lab::{Lab, kill, lock_holder, pid_of};
use crate::machines::network::{Machine, tried};

/// Alice's machine with a volume, and the machines of Bob and of Carol, who are strangers there.
struct Three {
    lab: Lab,
    alice: Machine,
    bob: Machine,
    carol: Machine,
}

impl Three {
    /// Alice has shared `docs` with Bob, until tomorrow, and Bob has attached it; `None` if this
    /// machine cannot have a network.
    fn new() -> Option<Self> {
        Self::with("--may-share", ["to be read, until ", " UTC; may be shared on\n"])
    }

    /// As [`Three::new`], shared on these terms, which the command says in these words.
    fn with(terms: &str, says: [&str; 2]) -> Option<Self> {
        let lab = Lab::new()?;
        let alice = lab.machine(1, "alice");
        let bob = lab.machine(2, "bob");
        let carol = lab.machine(3, "carol");
        let three = Self { lab, alice, bob, carol };
        for machine in [&three.alice, &three.bob, &three.carol] {
            machine.types("pelago key new && mkdir ~/shared");
        }
        three.alice.types("pelago up ~/pelago --detach");
        three.lab.ends(lock_holder(&three.alice.home.join("pelago")));
        let tree = "mkdir -p docs/sub/below && echo note > docs/note && echo deep > docs/sub/deep \
                    && echo lower > docs/sub/below/file && chmod 700 docs/sub";
        three.alice.types(&format!("cd ~/pelago/files && {tree}"));
        let line = format!(
            "pelago share ~/pelago/files/docs --to {} --at {}:7440 --until 1d {terms} \
             --out ~/docs.cred",
            key(&three.bob),
            three.alice.address
        );
        let shared = three.alice.types(&line);
        assert!(shared.out.is_empty(), "the credential is in the file: {shared:?}");
        for words in says {
            assert!(shared.err.contains(words), "{words}: {shared:?}");
        }
        carry(&three.alice, &three.bob, "docs.cred");
        three.attach(&three.bob, "docs.cred");
        Some(three)
    }

    /// Bob shares a folder below his mount with Carol, who attaches it.
    fn share_on(&self, path: &str) -> Ran {
        let to = key(&self.carol);
        let line = format!("pelago share ~/shared/{path} --to {to} --out ~/part.cred");
        let shared = self.bob.types(&line);
        assert!(shared.err.contains("to be read, until "), "it ends with Bob's: {shared:?}");
        carry(&self.bob, &self.carol, "part.cred");
        self.attach(&self.carol, "part.cred")
    }

    fn attach(&self, machine: &Machine, file: &str) -> Ran {
        let ran = machine.types(&format!("pelago attach ~/{file} ~/shared --detach"));
        let status = machine.types("pelago status ~/shared --json --timeout 100").json();
        self.lab.ends(pid_of(&status));
        ran
    }

    /// Kills Alice's server, and starts the next one.
    fn kill_and_start(&self) {
        let volume = self.alice.home.join("pelago");
        kill(lock_holder(&volume));
        self.alice.types("pelago up ~/pelago --detach");
        self.lab.ends(lock_holder(&volume));
    }

    /// Unmounts everything, and checks the volume.
    fn finish(self) {
        self.carol.types("pelago unmount ~/shared --timeout 100");
        self.finish_without_carol();
    }

    fn finish_without_carol(self) {
        self.bob.types("pelago unmount ~/shared --timeout 100");
        self.alice.types("pelago unmount -V ~/pelago --timeout 100");
        let log = fs::read_to_string(self.alice.home.join("pelago/log")).unwrap();
        assert!(!log.contains("panicked"), "{log}");
        assert_eq!(self.alice.types("pelago check ~/pelago --json").json()["whole"], true);
    }
}

fn key(machine: &Machine) -> String {
    machine.types("pelago key show").out.trim().to_owned()
}

fn carry(from: &Machine, to: &Machine, file: &str) {
    fs::copy(from.home.join(file), to.home.join(file)).unwrap();
}

fn hands(machine: &Machine) -> Hands {
    Hands::on(&machine.home.join("shared"))
}

/// Waits as long as a revocation may take.
fn wait_for_revocation() {
    // Only the clock ends this wait: the promise is that nothing can be read a second later.
    thread::sleep(Duration::from_secs(1));
}

#[test]
fn a_stranger_shares_a_part_on_and_it_ends_with_his_own() {
    let Some(three) = Three::new() else { return };
    let attached = three.share_on("sub");
    let lines: Vec<&str> =
        attached.out.lines().filter(|line| line.starts_with("shared ")).collect();
    let [alices, bobs] = lines.as_slice() else { panic!("{attached:?}") };
    let by = |machine: &Machine| format!("by {} with ", key(machine));
    assert!(alices.contains(&by(&three.alice)) && alices.ends_with("may be shared on"), "{alices}");
    assert!(bobs.contains(&by(&three.bob)) && bobs.contains(&key(&three.carol)), "{bobs}");
    let mut carol = hands(&three.carol);
    assert_eq!(carol.does("list ."), "below deep", "nothing above it");
    assert_eq!(carol.does("get deep"), "deep|");
    assert_eq!(carol.does("get below/file"), "lower|");
    for line in ["open deep", "make new", "mkdir new", "remove deep", "rename deep other"] {
        carol.fails(line, Errno::ACCESS);
    }
    let open = fs::File::open(three.carol.home.join("shared/deep")).unwrap();
    let mut bob = hands(&three.bob);
    assert_eq!(bob.does("get note"), "note|");
    three.alice.types("pelago revoke ~/docs.cred -V ~/pelago");
    wait_for_revocation();
    for line in ["get deep", "get below/file", "list .", "size deep"] {
        carol.fails(line, Errno::ACCESS);
    }
    let read = rustix::io::pread(&open, &mut [0; 8], 0);
    assert_eq!(read, Err(Errno::ACCESS), "by an open file");
    bob.fails("get note", Errno::ACCESS);
    drop((open, carol, bob));
    three.finish();
}

#[test]
fn a_stranger_takes_back_what_he_has_shared_on_and_no_more() {
    let Some(three) = Three::new() else { return };
    three.share_on(".");
    let mut carol = hands(&three.carol);
    assert_eq!(carol.does("get sub/deep"), "deep|", "the root of a mount is shared on too");
    // Carol has signed nothing of it.
    let hers = tried(&three.carol, "pelago revoke ~/part.cred");
    assert!(hers.code == Some(4) && hers.err.contains("only a root takes it back"), "{hers:?}");
    let revoked = three.bob.types("pelago revoke ~/part.cred");
    assert!(revoked.out.contains("it grants nothing any more\nwas "), "{revoked:?}");
    wait_for_revocation();
    carol.fails("get sub/deep", Errno::ACCESS);
    let mut bob = hands(&three.bob);
    assert_eq!(bob.does("get sub/deep"), "deep|");
    drop((carol, bob));
    three.finish();
}

#[test]
fn a_stranger_grants_no_more_than_he_has() {
    let Some(three) = Three::new() else { return };
    three.share_on("sub");
    let share = |machine: &Machine, with: &str| {
        let line = format!("pelago share ~/shared {with} --to {}", key(&three.alice));
        tried(machine, &line)
    };
    for (with, says) in [
        ("--rights rxa", "you do not have the right `a` here: it would grant nothing"),
        ("--until 30d", "what you have ends at "),
    ] {
        let ran = share(&three.bob, with);
        assert!(ran.code != Some(0) && ran.err.contains(says), "{with}: {ran:?}");
        assert!(ran.out.is_empty(), "{with}: {ran:?}");
    }
    let on = share(&three.carol, "");
    assert_eq!(on.code, Some(4), "{on:?}");
    assert!(on.err.contains("did not let you share it on: it would grant nothing"), "{on:?}");
    // A machine that is root there has the mount, and not the key.
    let other = tried(
        &three.bob,
        &format!(
            "PELAGO_KEY={} pelago share ~/shared/sub --to {}",
            three.carol.home.join(".config/pelago/key").display(),
            key(&three.alice)
        ),
    );
    assert!(
        other.code == Some(4) && other.err.contains("none of your files can be used as that key"),
        "{other:?}"
    );
    three.finish();
}

/// At its end a share gives nothing more, also by an open file, and programs are told why.
#[test]
fn a_share_ends_at_its_time() {
    let Some(three) = Three::new() else { return };
    let line = format!(
        "pelago share ~/shared/sub --to {} --until $(date -u -d '+6 seconds' +%FT%TZ) \
         --out ~/part.cred",
        key(&three.carol)
    );
    three.bob.types(&line);
    carry(&three.bob, &three.carol, "part.cred");
    three.attach(&three.carol, "part.cred");
    let mut carol = hands(&three.carol);
    let open = fs::File::open(three.carol.home.join("shared/deep")).unwrap();
    assert_eq!(carol.does("get deep"), "deep|");
    // Only the clock ends this wait: the end is six seconds after the share.
    thread::sleep(Duration::from_secs(7));
    for line in ["get deep", "list .", "size deep"] {
        carol.fails(line, Errno::ACCESS);
    }
    let read = rustix::io::pread(&open, &mut [0; 8], 0);
    assert_eq!(read, Err(Errno::ACCESS), "by an open file");
    let again = tried(&three.carol, "mkdir ~/again && pelago attach ~/part.cred ~/again --detach");
    assert!(again.code != Some(0) && again.err.contains("ended at"), "{again:?}");
    let mut bob = hands(&three.bob);
    assert_eq!(bob.does("get sub/deep"), "deep|", "his own share goes on");
    drop((open, carol, bob));
    three.finish();
}

/// The owner sees who has what and why not more, a guest sees what he has himself, and the log says
/// what has happened.
#[test]
fn the_owner_sees_who_has_which_rights_and_what_has_happened() {
    let Some(three) = Three::new() else { return };
    let line = format!(
        "pelago share ~/shared/sub --to {} --until $(date -u -d '+8 seconds' +%FT%TZ) \
         --out ~/part.cred",
        key(&three.carol)
    );
    three.bob.types(&line);
    carry(&three.bob, &three.carol, "part.cred");
    carry(&three.bob, &three.alice, "part.cred");
    three.attach(&three.carol, "part.cred");
    let mut carol = hands(&three.carol);
    assert_eq!(carol.does("get deep"), "deep|");
    carol.fails("make new", Errno::ACCESS);
    let access = |with: &str| three.alice.types(&format!("pelago access {with}")).out;
    let deep = "~/pelago/files/docs/sub/deep";
    let [alices, bobs, carols] = [&three.alice, &three.bob, &three.carol].map(key);
    let said = access(&format!("{deep} --why"));
    assert!(said.contains(&format!("rx       {carols}, by the credential ")), "{said}");
    assert!(said.contains(&format!("rxg      {bobs}, by the credential ")), "{said}");
    let why = format!("    no wcda: credential 1 of 2, by {alices}, does not have these rights\n");
    assert!(said.contains(&why), "{said}");
    let on = format!("    no g: credential 2 of 2, by {bobs}, does not have this right\n");
    assert!(said.contains(&on), "{said}");
    assert!(said.ends_with("a credential is unknown before it is used\n"), "{said}");
    let note = access("~/pelago/files/docs/note");
    assert!(note.contains(&bobs) && !note.contains(&carols), "outside of the part: {note}");
    // Guests are told of themselves.
    let own = three.carol.types("pelago access ~/shared/deep --why").out;
    let path = three.carol.home.join("shared/deep");
    assert!(own.starts_with(&format!("rx       {}\n    no wcda: ", path.display())), "{own}");
    let root = three.carol.types("pelago access ~/shared --json").json();
    assert_eq!(root["guests"][0]["rights"], "rx");
    let other = tried(&three.carol, "pelago access ~/shared --for ~/part.cred");
    assert!(other.code == Some(4) && other.err.contains("needs the right `a`"), "{other:?}");
    // Only the clock ends this wait: the end is eight seconds after the share.
    thread::sleep(Duration::from_secs(9));
    carol.fails("get deep", Errno::ACCESS);
    let ended = access(&format!("{deep} --for ~/part.cred --why"));
    assert!(ended.starts_with(&format!("-        {carols}, by the credential ")), "{ended}");
    let end = format!("    no rxg: credential 2 of 2, by {bobs}, ended at ");
    assert!(ended.contains(&end), "{ended}");
    three.alice.types("pelago revoke ~/docs.cred -V ~/pelago");
    wait_for_revocation();
    let taken = access(&format!("{deep} --for ~/docs.cred --why"));
    let back = format!("    no rwxcdga: credential 1 of 1, by {alices}, was taken back\n");
    assert!(taken.contains(&back), "{taken}");
    let again = tried(&three.bob, "mkdir ~/again && pelago attach ~/docs.cred ~/again --detach");
    assert_eq!(again.code, Some(4), "{again:?}");
    drop(carol);
    three.bob.types("pelago unmount ~/shared --timeout 100");
    three.carol.types("pelago unmount ~/shared --timeout 100");
    three.alice.types("pelago unmount -V ~/pelago --timeout 100");
    let log = three.alice.types("pelago log --audit -V ~/pelago").out;
    let has = |says: &[&str]| {
        let found = log.lines().any(|line| says.iter().all(|words| line.contains(words)));
        assert!(found, "{says:?}: {log}");
    };
    has(&[&carols, "came for the first time, with the credential "]);
    has(&[&bobs, "to be read, until "]);
    has(&[&carols, "used the right `r` for the first time: "]);
    has(&[&carols, "was denied create of inode "]);
    has(&[&carols, "was cut off: the credential ", " has ended"]);
    has(&[&alices, "took back the credential "]);
    has(&[&bobs, "was cut off: the credential ", " was taken back"]);
    has(&[&bobs, "was not let in: the credential ", " was taken back"]);
    has(&["the roots are ", &alices]);
    let lines = three.alice.types("pelago log --audit -V ~/pelago --json").out;
    assert_eq!(lines.lines().count(), log.lines().filter(|line| !line.starts_with(' ')).count());
    assert_eq!(three.alice.types("pelago check ~/pelago --json").json()["whole"], true);
}

/// Bob may add files to a folder and neither change nor hand on what is there; what he adds is his.
#[test]
fn what_a_stranger_has_made_he_hands_on_until_his_own_share_ends() {
    let says = ["to be read, added to, until ", " UTC\n"];
    let Some(three) = Three::with("--rights rxc", says) else { return };
    let refused = |line: &str, says: &str| {
        let ran = tried(&three.bob, line);
        assert!(ran.code != Some(0) && ran.err.contains(says), "{line}: {ran:?}");
    };
    three.bob.types("echo bobs > ~/shared/made && mkdir ~/shared/sub/folder");
    refused("echo more >> ~/shared/made", "Permission denied");
    let to = key(&three.carol);
    refused(&format!("pelago share ~/shared/made --to {to}"), "did not let you share it on");
    refused("pelago credential ~/shared/note", "it was not made in this mount");
    let own = tried(&three.alice, "pelago credential ~/pelago/files/docs/note");
    assert!(
        own.code == Some(3) && own.err.contains("is in no mount of `pelago attach`"),
        "{own:?}"
    );
    let folder = three.bob.types("pelago credential ~/shared/sub/folder --json").json();
    // The files of others may be in it.
    assert_eq!((&folder["rights"], &folder["links"]), (&"rxc".into(), &3.into()));
    let issued = three.bob.types("pelago credential ~/shared/made --out ~/made.cred");
    let words = format!(
        "made made by {}, to be read, written, added to, removed from, until ",
        key(&three.bob)
    );
    assert!(issued.out.is_empty() && issued.err.contains(&words), "{issued:?}");
    let again = three.bob.types("pelago credential ~/shared/made").out;
    assert_eq!(fs::read_to_string(three.bob.home.join("made.cred")).unwrap(), again);
    three.bob.types("mkdir ~/own");
    let attached = three.bob.types("pelago attach ~/made.cred ~/own --detach");
    let status = three.bob.types("pelago status ~/own --json --timeout 100").json();
    three.lab.ends(pid_of(&status));
    assert!(attached.out.contains(&words), "{attached:?}");
    three.bob.types("echo more >> ~/own/made");
    let shared = three.bob.types(&format!("pelago share ~/own/made --to {to} --out ~/part.cred"));
    assert!(shared.err.contains("to be read, until "), "it ends with Bob's: {shared:?}");
    carry(&three.bob, &three.carol, "part.cred");
    three.attach(&three.carol, "part.cred");
    let mut carol = hands(&three.carol);
    assert_eq!(carol.does("list ."), "made");
    assert_eq!(carol.does("get made"), "bobs|more|");
    let log = three.alice.types("pelago log --audit -V ~/pelago").out;
    assert!(log.contains(&format!("{} got the credential ", key(&three.bob))), "{log}");
    three.alice.types("pelago revoke ~/docs.cred -V ~/pelago");
    wait_for_revocation();
    carol.fails("get made", Errno::ACCESS);
    refused("cat ~/own/made", "Permission denied");
    assert_eq!(three.alice.types("cat ~/pelago/files/docs/made").out, "bobs\nmore\n");
    drop(carol);
    three.bob.types("pelago unmount ~/own --timeout 100");
    three.finish();
}

/// The answer is a promise: the next run takes the credential, and takes it back with the share.
#[test]
fn an_issued_credential_holds_after_kills_of_the_server() {
    let says = ["to be read, added to, until ", " UTC\n"];
    let Some(three) = Three::with("--rights rxc", says) else { return };
    let issue = "pelago credential ~/shared/made --out";
    three.bob.types(&format!("echo bobs > ~/shared/made && {issue} ~/made.cred"));
    three.kill_and_start();
    let again = tried(&three.bob, &format!("{issue} ~/again.cred"));
    assert!(again.code != Some(0), "this run has not seen who made it: {again:?}");
    three.bob.types("mkdir ~/own && pelago attach ~/made.cred ~/own --detach");
    let status = three.bob.types("pelago status ~/own --json --timeout 100").json();
    three.lab.ends(pid_of(&status));
    three.bob.types("echo more >> ~/own/made");
    three.kill_and_start();
    assert_eq!(three.bob.types("cat ~/own/made").out, "bobs\nmore\n");
    three.alice.types("pelago revoke ~/docs.cred -V ~/pelago");
    three.kill_and_start();
    wait_for_revocation();
    let refused = tried(&three.bob, "cat ~/own/made");
    assert!(refused.err.contains("Permission denied"), "{refused:?}");
    assert_eq!(three.alice.types("cat ~/pelago/files/docs/made").out, "bobs\nmore\n");
    three.bob.types("pelago unmount ~/own --timeout 100");
    three.finish_without_carol();
}
