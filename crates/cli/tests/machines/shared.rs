//! A folder that is shared with a stranger on another machine, as README.md says, and then revoked.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::Pid;

use crate::harness::program::until;
use crate::machines::hands::Hands;
use crate::machines::lab::{Lab, kill, lock_holder, pid_of};
use crate::machines::network::{Machine, tried};
use crate::machines::world::typed;

/// README's commands.
const SHARE: &str = "pelago share ~/pelago/files/docs --to $(pelago key show) \
                     --at 127.0.0.1:7440 > ~/docs.cred";
const ATTACH: &str = "pelago attach ~/docs.cred ~/shared --detach";
const REVOKE: &str = "pelago revoke ~/docs.cred -V ~/pelago";

/// The longest time until all goes on after both ends and the line are back.
const BACK: Duration = Duration::from_secs(30);

/// Alice's machine with a volume, and Bob's machine, which is not in the volume's client list.
pub(super) struct Pair {
    pub(super) lab: Lab,
    pub(super) alice: Machine,
    pub(super) bob: Machine,
}

impl Pair {
    /// Returns two machines, with the folder `docs` of one shared with the other; `None` if this
    /// machine cannot have a network.
    fn shared() -> Option<Self> {
        let pair = Self::up_with_docs()?;
        pair.bob.types("pelago key new");
        pair.share();
        pair.attach();
        Some(pair)
    }

    /// As [`Pair::shared`], with these rights to the folder.
    pub(super) fn shared_for(rights: &str) -> Option<Self> {
        let pair = Self::up_with_docs()?;
        pair.bob.types("pelago key new");
        let key = pair.bob.types("pelago key show").out;
        let key = format!("{} --rights {rights}", key.trim());
        pair.share_with(&key);
        pair.attach();
        Some(pair)
    }

    /// As [`Pair::shared`], for a number of seconds from now on.
    pub(super) fn shared_until(seconds: u32) -> Option<Self> {
        let pair = Self::up_with_docs()?;
        pair.bob.types("pelago key new");
        let key = pair.bob.types("pelago key show").out;
        let until = pair.bob.types(&format!("date -u -d '{seconds} seconds' +%FT%TZ")).out;
        pair.share_with(&format!("{} --until {}", key.trim(), until.trim()));
        pair.attach();
        Some(pair)
    }

    /// Returns two machines. Nothing is shared, and Bob has no key.
    fn up_with_docs() -> Option<Self> {
        let lab = Lab::new()?;
        let alice = lab.machine(1, "alice");
        let bob = lab.machine(2, "bob");
        let pair = Self { lab, alice, bob };
        pair.alice.types("pelago key new");
        pair.up();
        let tree = "mkdir -p docs/sub secret && echo note > docs/note && echo deep > docs/sub/deep \
                    && echo secret > secret/file && chmod 600 docs/note && chmod 700 docs/sub";
        pair.alice.types(&format!("cd ~/pelago/files && {tree}"));
        pair.bob.types("mkdir ~/shared");
        Some(pair)
    }

    pub(super) fn up(&self) {
        self.alice.types("pelago up ~/pelago --detach");
        self.lab.ends(self.server_pid());
    }

    fn share(&self) {
        let key = self.bob.types("pelago key show").out;
        self.share_with(key.trim());
    }

    /// Shares the folder, and carries the credential over.
    fn share_with(&self, key: &str) {
        let line = typed(SHARE).replace("$(pelago key show)", key);
        self.alice.types(&line.replace("127.0.0.1", &self.alice.address));
        fs::copy(self.alice.home.join("docs.cred"), self.bob.home.join("docs.cred")).unwrap();
    }

    fn attach(&self) {
        self.bob.types(typed(ATTACH));
        let status = self.bob.types("pelago status ~/shared --json --timeout 100").json();
        self.lab.ends(pid_of(&status));
    }

    pub(super) fn server_pid(&self) -> Pid {
        lock_holder(&self.alice.home.join("pelago"))
    }

    pub(super) fn hands(&self) -> Hands {
        Hands::on(&self.bob.home.join("shared"))
    }

    pub(super) fn owner(&self) -> Hands {
        Hands::on(&self.alice.home.join("pelago/files"))
    }

    /// Unmounts everything, and checks the volume.
    pub(super) fn finish(self) {
        self.bob.types("pelago unmount ~/shared --timeout 100");
        self.alice.types("pelago unmount -V ~/pelago --timeout 100");
        let log = fs::read_to_string(self.alice.home.join("pelago/log")).unwrap();
        assert!(!log.contains("panicked"), "{log}");
        assert_eq!(self.alice.types("pelago check ~/pelago --json").json()["whole"], true);
    }
}

#[test]
fn a_stranger_reads_what_is_shared_and_no_more() {
    let Some(pair) = Pair::shared() else { return };
    let mut bob = pair.hands();
    assert_eq!(bob.does("list ."), "note sub");
    assert_eq!(bob.does("get note"), "note|");
    assert_eq!(bob.does("get sub/deep"), "deep|");
    // He is root on his machine, which his kernel lets write: the server says no.
    for line in ["open note", "make new", "mkdir new", "remove note", "rename note other"] {
        bob.fails(line, Errno::ACCESS);
    }
    bob.fails("get ../secret/file", Errno::NOENT);
    let mut alice = pair.owner();
    assert_eq!(alice.does("list docs"), "note sub");
    assert_eq!(alice.does("get docs/note"), "note|");
    // What is changed is seen at once; what is moved out is out, and what is moved in is in.
    alice.does("open docs/note");
    alice.does("put-at docs/note 0 changed");
    assert_eq!(bob.does("get note"), "changed");
    alice.does("rename docs/sub secret/sub");
    bob.fails("get sub/deep", Errno::NOENT);
    alice.does("rename secret/file docs/file");
    assert_eq!(bob.does("get file"), "secret|");
    alice.does("rename docs shown");
    assert_eq!(bob.does("list ."), "file note", "it follows the folder");
    alice.does("rename shown docs");
    drop((alice, bob));
    pair.finish();
}

/// The key that Bob's ssh has is enough: he makes none, and sends the line that he has sent others.
#[test]
fn a_stranger_needs_no_key_but_that_of_openssh() {
    let Some(pair) = Pair::up_with_docs() else { return };
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/../keynote/src/key/openssh/vectors/");
    let ssh = pair.bob.home.join(".ssh");
    fs::create_dir(&ssh).unwrap();
    fs::copy(format!("{vectors}plain.key"), ssh.join("id_ed25519")).unwrap();
    pair.bob.types("chmod 600 ~/.ssh/id_ed25519");
    fs::copy(format!("{vectors}plain.pub"), pair.alice.home.join("bob.pub")).unwrap();
    pair.share_with("~/bob.pub");
    pair.attach();
    let mut bob = pair.hands();
    assert_eq!(bob.does("get note"), "note|");
    bob.fails("make new", Errno::ACCESS);
    drop(bob);
    assert!(!pair.bob.home.join(".config/pelago/key").exists());
    pair.finish();
}

#[test]
fn what_is_taken_back_is_read_no_more() {
    let Some(pair) = Pair::shared() else { return };
    let shared = pair.bob.home.join("shared");
    let open = fs::File::open(shared.join("note")).unwrap();
    let mut bob = pair.hands();
    assert_eq!(bob.does("get sub/deep"), "deep|");
    pair.alice.types(typed(REVOKE));
    // Only the clock ends this wait: the promise is that nothing can be read a second later.
    thread::sleep(Duration::from_secs(1));
    for line in ["get note", "get sub/deep", "list .", "size note"] {
        bob.fails(line, Errno::ACCESS);
    }
    let read = rustix::io::pread(&open, &mut [0; 8], 0);
    assert_eq!(read, Err(Errno::ACCESS), "by an open file");
    drop(open);
    // It stays so after a kill of the server, and for one who comes anew.
    kill(pair.server_pid());
    pair.up();
    bob.fails("get note", Errno::ACCESS);
    pair.bob.types("mkdir ~/again");
    let again = tried(&pair.bob, "pelago attach ~/docs.cred ~/again");
    assert_eq!(again.code, Some(4), "{again:?}");
    assert!(again.err.contains("the credential was taken back"), "{again:?}");
    // Another one for the same key is another credential.
    pair.bob.types("pelago unmount ~/shared --timeout 100");
    pair.alice.types("mkdir ~/pelago/files/more && echo more > ~/pelago/files/more/note");
    let key = pair.bob.types("pelago key show").out;
    let share = format!("pelago share ~/pelago/files/more --to {} > ~/more.cred", key.trim());
    pair.alice.types(&share);
    fs::copy(pair.alice.home.join("more.cred"), pair.bob.home.join("docs.cred")).unwrap();
    pair.attach();
    assert_eq!(pair.hands().does("get note"), "more|");
    pair.finish();
}

#[test]
fn a_guest_goes_on_after_a_kill_of_the_server_and_a_cut_of_the_line() {
    let Some(pair) = Pair::shared() else { return };
    let shared = pair.bob.home.join("shared");
    let open = fs::File::open(shared.join("note")).unwrap();
    let reads = || {
        let mut bytes = [0; 8];
        rustix::io::pread(&open, &mut bytes, 0).map(|count| bytes[..count].to_vec())
    };
    kill(pair.server_pid());
    pair.up();
    let begun = Instant::now();
    assert_eq!(reads(), Ok(b"note\n".to_vec()), "by the open file");
    assert_eq!(pair.hands().does("get sub/deep"), "deep|");
    assert!(begun.elapsed() < BACK, "{:?}", begun.elapsed());
    pair.lab.network.cut(&pair.bob);
    // Only the clock ends this wait: it is longer than a session lives in silence.
    thread::sleep(Duration::from_secs(20));
    pair.lab.network.join(&pair.bob);
    let begun = Instant::now();
    assert_eq!(reads(), Ok(b"note\n".to_vec()), "after the session has ended");
    assert_eq!(pair.hands().does("get sub/deep"), "deep|");
    assert!(begun.elapsed() < BACK, "{:?}", begun.elapsed());
    drop(open);
    pair.finish();
}

#[test]
fn a_stranger_delays_no_start() {
    let Some(pair) = Pair::shared() else { return };
    let mut bob = pair.hands();
    assert_eq!(bob.does("get note"), "note|");
    pair.lab.network.cut(&pair.bob);
    kill(pair.server_pid());
    let begun = Instant::now();
    pair.up();
    let mut alice = pair.owner();
    assert_eq!(alice.does("get docs/note"), "note|");
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
    pair.lab.network.join(&pair.bob);
    until("back", || {
        pair.alice.types("pelago status ~/pelago --json").json()["sessions"]
            .as_array()
            .is_some_and(|sessions| !sessions.is_empty())
    });
    pair.finish();
}

/// A name stands for a key, and the key is taken back with all that it has.
#[test]
fn a_guest_is_shared_with_and_shut_out_by_name() {
    let Some(pair) = Pair::up_with_docs() else { return };
    pair.bob.types("pelago key new");
    let key = pair.bob.types("pelago key show").out.trim().to_owned();
    pair.alice.types(&format!("pelago key name bob {key} --user root -V ~/pelago"));
    pair.share_with("bob");
    pair.attach();
    let mut bob = pair.hands();
    assert_eq!(bob.does("get note"), "note|");
    let status = pair.alice.types("pelago status ~/pelago --json").json();
    assert_eq!(status["sessions"][0]["name"], "bob", "{status}");
    let says = pair.alice.types("pelago status ~/pelago").out;
    assert!(says.contains(&format!("session   guest {key} (bob): connected")), "{says}");
    let root = pair.alice.types("pelago key show").out.trim().to_owned();
    let refused = tried(&pair.alice, &format!("pelago revoke {root} -V ~/pelago"));
    assert!(refused.err.contains("a root is taken out of the file `policy`"), "{refused:?}");
    let revoked = pair.alice.types("pelago revoke bob -V ~/pelago");
    let wanted = format!("revoked   {key} (bob): it is no guest any more, ");
    assert!(revoked.out.starts_with(&wanted), "{revoked:?}");
    bob.fails("get note", Errno::ACCESS);
    drop(bob);
    pair.bob.types("pelago unmount ~/shared --timeout 100");
    pair.alice.types("rm ~/docs.cred");
    pair.share_with(&key);
    let again = tried(&pair.bob, "pelago attach ~/docs.cred ~/shared");
    assert!(again.err.contains("the credential was taken back"), "{again:?}");
    pair.alice.types("pelago unmount -V ~/pelago --timeout 100");
}

#[test]
fn a_credential_is_of_use_to_its_key_alone() {
    let Some(pair) = Pair::shared() else { return };
    let eve = pair.lab.machine(3, "eve");
    eve.types("pelago key new && mkdir ~/shared");
    fs::copy(pair.alice.home.join("docs.cred"), eve.home.join("docs.cred")).unwrap();
    let other = tried(&eve, "pelago attach ~/docs.cred ~/shared");
    assert_eq!(other.code, Some(4), "{other:?}");
    assert!(other.err.contains("the credential is for pelago1"), "{other:?}");
    // She may not take it back either, and the volume's socket is not hers.
    let revoked = tried(&eve, &format!("pelago revoke ~/docs.cred -V {}", pair.volume()));
    assert_eq!(revoked.code, Some(4), "{revoked:?}");
    assert!(revoked.err.contains("only a root takes it back"), "{revoked:?}");
    assert_eq!(pair.hands().does("get note"), "note|");
    pair.finish();
}

#[test]
fn what_is_no_folder_or_file_of_the_volume_is_not_shared() {
    let Some(pair) = Pair::shared() else { return };
    let key = pair.bob.types("pelago key show").out;
    pair.alice.types("cd ~/pelago/files && ln -s /tmp away && ln -s docs here && mkfifo pipe");
    let share = |path: &str| {
        let line = format!("pelago share ~/pelago/files/{path} --to {}", key.trim());
        tried(&pair.alice, &line)
    };
    for (path, code, says) in [
        ("pipe", 2, "is neither a folder nor a regular file"),
        ("docs --by-name", 2, "only a file is shared by its name"),
        ("away", 3, "is not in the mount"),
        (".find/name=note", 2, "is neither a folder nor a regular file"),
        ("none", 3, "cannot be examined"),
    ] {
        let ran = share(path);
        assert!(ran.code == Some(code) && ran.err.contains(says), "{path}: {ran:?}");
    }
    let linked = share("here");
    assert!(linked.code == Some(0) && !linked.err.contains("spare"), "{linked:?}");
    // A guest shares nothing on unless he was let.
    let on = tried(&pair.bob, &format!("pelago share ~/shared/sub --to {}", key.trim()));
    assert!(on.code == Some(4) && on.err.contains("did not let you share it on"), "{on:?}");
    pair.finish();
}

impl Pair {
    fn volume(&self) -> String {
        self.alice.home.join("pelago").display().to_string()
    }
}

/// A desktop opens the file of a credential by the command of the entry, in the home folder.
#[test]
fn a_credential_is_opened_by_its_desktop_entry() {
    let Some(pair) = Pair::up_with_docs() else { return };
    pair.bob.types("pelago key new");
    pair.share();
    let desktop = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../desktop");
    let entry = fs::read_to_string(desktop.join("pelago-attach.desktop")).unwrap();
    let exec = entry.lines().find_map(|line| line.strip_prefix("Exec=")).unwrap();
    let types = fs::read_to_string(desktop.join("pelago-credential.xml")).unwrap();
    let of_type = "application/x-pelago-credential";
    assert!(entry.contains(&format!("\nMimeType={of_type};\n")), "{entry}");
    assert!(types.contains(&format!("type=\"{of_type}\"")), "{types}");
    assert!(types.contains("<glob pattern=\"*.cred\"/>"), "{types}");
    let file = pair.bob.home.join("docs.cred").display().to_string();
    // The first escape is that of the entry (Desktop Entry Specification, 4), the second a shell's.
    let opened = exec.replace("\\\\", "\\").replace("%f", &file);
    let opened = opened.replace("pelago attach", "pelago attach --detach");
    // A folder that is there may be in use by programs, also an empty one.
    pair.bob.types("mkdir -p ~/Pelago/docs");
    let refused = tried(&pair.bob, &opened);
    assert!(refused.code == Some(1) && refused.err.contains("cannot be made"), "{refused:?}");
    pair.bob.types("rmdir ~/Pelago/docs");
    pair.bob.types(&opened);
    let status = pair.bob.types("pelago status ~/Pelago/docs --json --timeout 100").json();
    pair.lab.ends(pid_of(&status));
    assert_eq!(Hands::on(&pair.bob.home.join("Pelago/docs")).does("get note"), "note|");
    pair.bob.types("pelago unmount ~/Pelago/docs --timeout 100");
    // The process removes it once the mount is gone.
    until("the folder of the mount goes", || !pair.bob.home.join("Pelago/docs").exists());
    // A folder that was made for a mount which fails does not stay.
    pair.alice.types("pelago revoke ~/docs.cred -V ~/pelago");
    let failed = tried(&pair.bob, &opened);
    assert!(failed.err.contains("the credential was taken back"), "{failed:?}");
    pair.bob.types("test ! -e ~/Pelago/docs");
    // The name is that of the sender, who must not choose a hidden one.
    let key = pair.bob.types("pelago key show").out;
    pair.alice.types(&format!(
        "mkdir ~/pelago/files/.ssh && pelago share ~/pelago/files/.ssh --to {} --out ~/ssh.cred",
        key.trim()
    ));
    fs::copy(pair.alice.home.join("ssh.cred"), pair.bob.home.join("ssh.cred")).unwrap();
    let hidden = tried(&pair.bob, "cd && pelago attach ~/ssh.cred --detach");
    assert!(
        hidden.code == Some(2) && hidden.err.contains("name a folder to mount on"),
        "{hidden:?}"
    );
    pair.bob.types("test ! -e ~/.ssh");
    pair.alice.types("pelago unmount -V ~/pelago --timeout 100");
}
