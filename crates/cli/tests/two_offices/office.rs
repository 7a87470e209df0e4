//! Two offices with one tree, as README.md says: each works in the other's folders, and goes on in
//! its own while the other one is away.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::harness::program::until;
use crate::machines::hands::Hands;
use crate::machines::lab::{Lab, kill, lock_holder, pid_of};
use crate::machines::network::{Machine, tried};
use crate::machines::world::typed;

/// README's commands.
const UP: &str = "pelago up ~/pelago --detach --listen 127.0.0.1:7440";
const INVITE: &str = "pelago site invite berlin -V ~/pelago > ~/ticket";
const JOIN: &str = "pelago join \"$(cat ~/ticket)\" ~/berlin --listen 127.0.0.1:7441 --detach";

/// The longest time until all goes on after both ends and the line are back.
pub(crate) const BACK: Duration = Duration::from_secs(30);

/// The office that has founded the volume, and the one that has joined it.
pub(crate) struct Offices {
    pub(crate) lab: Lab,
    pub(crate) first: Machine,
    pub(crate) berlin: Machine,
}

impl Offices {
    /// Returns two offices; `None` if this machine cannot have them.
    pub(crate) fn new() -> Option<Self> {
        Self::lasting(Duration::ZERO)
    }

    /// Returns the same for a test that works for this time and more.
    pub(crate) fn lasting(time: Duration) -> Option<Self> {
        let lab = Lab::lasting(time)?;
        let first = lab.machine(1, "first");
        let berlin = lab.machine(2, "there");
        Some(Self::of(lab, first, berlin))
    }

    /// Returns the offices of these two machines.
    pub(crate) fn of(lab: Lab, first: Machine, berlin: Machine) -> Self {
        let offices = Self { lab, first, berlin };
        offices.up();
        offices.invite();
        offices.join();
        offices
    }

    pub(crate) fn up(&self) {
        let up = typed(UP).replace("127.0.0.1", &self.first.address);
        self.first.types(&format!("{up} --http 127.0.0.1:8080"));
        self.lab.ends(lock_holder(&self.first.home.join("pelago")));
    }

    /// Invites the second office, and carries the ticket over.
    fn invite(&self) {
        self.first.types(typed(INVITE));
        fs::copy(self.first.home.join("ticket"), self.berlin.home.join("ticket")).unwrap();
    }

    fn join(&self) {
        self.berlin.types(&typed(JOIN).replace("127.0.0.1", &self.berlin.address));
        self.lab.ends(lock_holder(&self.berlin.home.join("berlin")));
        until("the first office knows where the other one is", || {
            let sites = self.first.types("pelago site list -V ~/pelago --json").json();
            sites["sites"][0]["address"] == format!("{}:7441", self.berlin.address)
        });
    }

    /// Starts the second office again.
    pub(crate) fn up_there(&self) {
        self.berlin.types("pelago up ~/berlin --detach");
        self.lab.ends(lock_holder(&self.berlin.home.join("berlin")));
    }

    pub(crate) fn tree(&self) -> PathBuf {
        self.first.home.join("pelago/files")
    }

    pub(crate) fn tree_there(&self) -> PathBuf {
        self.berlin.home.join("berlin/files")
    }

    pub(crate) fn hands(&self) -> [Hands; 2] {
        [Hands::on(&self.tree()), Hands::on(&self.tree_there())]
    }

    /// Returns how many requests the second office has sent to the first one.
    pub(crate) fn asked_from_there(&self) -> u64 {
        let sites = self.berlin.types("pelago site list -V ~/berlin --json").json();
        sites["sites"][0]["requests"].as_u64().unwrap()
    }

    /// Unmounts both, and checks both.
    pub(crate) fn finish(self) {
        self.berlin.types("pelago unmount -V ~/berlin --timeout 100");
        self.first.types("pelago unmount -V ~/pelago --timeout 100");
        for (machine, dir) in [(&self.first, "pelago"), (&self.berlin, "berlin")] {
            let log = fs::read_to_string(machine.home.join(dir).join("log")).unwrap();
            assert!(!log.contains("panicked"), "{log}");
            let found = machine.types(&format!("pelago check ~/{dir} --json")).json();
            assert_eq!(found["whole"], true, "{found}");
            // A repair of a whole volume of several offices changes nothing.
            machine.types(&format!("pelago check ~/{dir} --apply"));
        }
    }
}

#[test]
fn two_offices_have_one_tree() {
    let Some(offices) = Offices::new() else { return };
    let [mut first, mut there] = offices.hands();
    // A file of the first office, from both.
    first.does("log notes");
    first.does("add notes one");
    there.does("log notes");
    there.does("add notes two");
    assert_eq!(first.does("get notes"), "one|two|");
    there.does("rename notes renamed");
    assert_eq!(first.does("list ."), "renamed");
    // A folder of the second office, and a file in it, from both.
    there.does("mkdir berlin");
    there.does("log berlin/notes");
    there.does("add berlin/notes drei");
    first.does("log berlin/notes");
    first.does("add berlin/notes vier");
    assert_eq!(there.does("get berlin/notes"), "drei|vier|");
    first.does("rename berlin/notes berlin/renamed");
    assert_eq!(there.does("list berlin"), "renamed");
    assert_eq!(first.does("list ."), "berlin renamed");
    // A folder of the first one in that of the second one.
    first.does("mkdir berlin/rome");
    there.does("log berlin/rome/file");
    assert_eq!(first.does("list berlin"), "renamed rome");
    assert_eq!(there.does("list berlin/rome"), "file");
    // What would change both at once.
    there.fails("rename renamed berlin/moved", Errno::XDEV);
    there.fails("mkdir berlin", Errno::EXIST);
    for hands in [&mut first, &mut there] {
        hands.fails("rmdir berlin", Errno::NOTEMPTY);
        hands.fails("remove berlin", Errno::ISDIR);
    }
    // The name of the folder moves, and nothing else.
    first.does("mkdir below");
    there.does("rename berlin below/bonn");
    assert_eq!(first.does("get below/bonn/renamed"), "drei|vier|");
    first.fails("rename below below/bonn/below", Errno::INVAL);
    let up = tried(&offices.berlin, "ls ~/berlin/files/below/bonn/rome/..");
    assert_eq!(up.expect_success().out, "renamed\nrome\n");
    offices.berlin.types("flock -n ~/berlin/files/renamed true");
    let found = offices.first.types("find ~/pelago/files | wc -l").out;
    assert_eq!(found.trim(), offices.berlin.types("find ~/berlin/files | wc -l").out.trim());
    for (machine, dir) in [(&offices.first, "pelago"), (&offices.berlin, "berlin")] {
        let list = format!("pelago site list -V ~/{dir} --json");
        until("the round trip is measured", || {
            machine.types(&list).json()["sites"][0]["round_trip_ms"].is_f64()
        });
        let site = machine.types(&list).json()["sites"][0].clone();
        assert_eq!(site["connected"], true, "{site}");
        assert_eq!(site["pelago"], env!("CARGO_PKG_VERSION"), "{site}");
        assert!(site["wire"].is_u64() && site["clock_ms"].as_i64().unwrap().abs() < 1000, "{site}");
    }
    drop((first, there));
    offices.finish();
}

#[test]
fn what_is_made_in_an_own_folder_asks_nobody() {
    let Some(offices) = Offices::new() else { return };
    offices.berlin.types("mkdir ~/berlin/files/berlin");
    // Its shell enters the folder, which asks the first office, and then only works in it.
    let line = "cd ~/berlin/files/berlin && touch ready && while [ ! -e go ]; do sleep 0.1; done; \
                i=0; while [ $i -lt 5000 ]; do echo $i > f$i; i=$((i+1)); done; \
                mkdir sub && mv f4999 sub/ && rm f1 && cat sub/f4999 && touch done && sleep 3";
    let mut working = offices.berlin.command("sh").args(["-c", line]).spawn().unwrap();
    until("the shell is in the folder", || {
        tried(&offices.first, "test -e ~/pelago/files/berlin/ready").code == Some(0)
    });
    let before = offices.asked_from_there();
    // By the other office: this machine would look its own way up.
    offices.first.types("touch ~/pelago/files/berlin/go");
    until("it is done", || {
        tried(&offices.first, "test -e ~/pelago/files/berlin/done").code == Some(0)
    });
    assert_eq!(offices.asked_from_there(), before);
    assert!(working.wait().unwrap().success());
    assert_eq!(offices.first.types("ls ~/pelago/files/berlin | wc -l").out.trim(), "5002");
    offices.finish();
}

/// Counted at the connection between the offices: what is kept of the other office's, and how what
/// is written there is sent.
#[test]
fn what_was_seen_of_the_other_office_is_not_asked_again() {
    let Some(offices) = Offices::new() else { return };
    let fill = "mkdir ~/pelago/files/docs && cd ~/pelago/files/docs && \
                for i in $(seq 50); do echo $i > f$i; done";
    offices.first.types(fill);
    let counted = |line: &str| {
        let before = offices.asked_from_there();
        let ran = offices.berlin.types(line);
        (ran.out, offices.asked_from_there() - before)
    };
    // The first look may come before the home leases what was just written.
    offices.berlin.types("ls -l ~/berlin/files/docs");
    let (listed, asked) = counted("ls -l ~/berlin/files/docs | wc -l");
    assert_eq!(listed.trim(), "51");
    assert!(asked <= 3, "{asked}");
    let read = "cat ~/berlin/files/docs/* | wc -l";
    // An open and a read, which go together, and a close that waits for nothing.
    let (lines, asked) = counted(read);
    assert_eq!(lines.trim(), "50");
    assert!(asked <= 3 * 50 + 3, "{asked}");
    let (_, asked) = counted(read);
    assert!(asked <= 3, "{asked}");
    // A change is seen by the next call.
    for text in ["one", "two"] {
        offices.first.types(&format!("echo {text} > ~/pelago/files/docs/f7"));
        let seen = offices.berlin.types("cat ~/berlin/files/docs/f7").out;
        assert_eq!(seen.trim(), text);
    }
    // Writes are sent together, and are at the home when the file is closed.
    let (_, asked) =
        counted("dd bs=4k count=512 < /dev/zero > ~/berlin/files/docs/new 2> /dev/null");
    assert!(asked <= 12, "{asked}");
    let size = offices.first.types("stat -c %s ~/pelago/files/docs/new").out;
    assert_eq!(size.trim(), (512 * 4096).to_string());
    // A large file is fetched in blocks of 256 KiB.
    let (sum, asked) = counted("cat ~/berlin/files/docs/new | sha256sum");
    assert_eq!(sum, offices.first.types("cat ~/pelago/files/docs/new | sha256sum").out);
    assert!(asked <= 8 + 4, "{asked}");
    offices.finish();
}

#[test]
fn a_silent_office_stops_only_what_is_its_own() {
    let Some(offices) = Offices::new() else { return };
    offices.berlin.types("mkdir ~/berlin/files/berlin && echo old > ~/berlin/files/file");
    let line = "cd ~/berlin/files/berlin && touch ready; while [ ! -e ~/go ]; do sleep 0.1; done; \
                i=0; while [ $i -lt 200 ]; do echo $i > f$i || exit 1; i=$((i+1)); done; \
                mkdir sub && mv f199 sub/ && cat sub/f199 && touch ~/done";
    let mut working = offices.berlin.command("sh").args(["-c", line]).spawn().unwrap();
    until("the shell is in the folder", || {
        tried(&offices.first, "test -e ~/pelago/files/berlin/ready").code == Some(0)
    });
    offices.lab.network.cut(&offices.first);
    fs::write(offices.berlin.home.join("go"), "").unwrap();
    until("the own folder is worked in", || offices.berlin.home.join("done").exists());
    assert!(working.wait().unwrap().success());
    // What is the first office's ends by the deadline, and then at once.
    let began = Instant::now();
    let read = tried(&offices.berlin, "cat ~/berlin/files/file");
    assert!(read.err.contains("timed out") || read.err.contains("Host is down"), "{read:?}");
    assert!(began.elapsed() < Duration::from_secs(16), "{:?}", began.elapsed());
    until("the first office counts as silent", || {
        tried(&offices.berlin, "cat ~/berlin/files/file").err.contains("Host is down")
    });
    let began = Instant::now();
    for _ in 0..20 {
        let read = tried(&offices.berlin, "cat ~/berlin/files/file");
        assert!(read.err.contains("Host is down"), "{read:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    offices.lab.network.join(&offices.first);
    let began = Instant::now();
    until("both work in one tree again", || {
        tried(&offices.berlin, "cat ~/berlin/files/file").out == "old\n"
            && tried(&offices.first, "cat ~/pelago/files/berlin/f7").out == "7\n"
    });
    assert!(began.elapsed() < BACK, "{:?}", began.elapsed());
    offices.finish();
}

#[test]
fn a_killed_office_comes_back_with_all_that_was_answered() {
    let Some(offices) = Offices::new() else { return };
    offices.berlin.types("mkdir ~/berlin/files/berlin");
    for round in 0..2 {
        let [mut first, mut there] = offices.hands();
        first.does(&format!("log berlin/of-first-{round}"));
        there.does(&format!("log of-there-{round}"));
        for line in 0..50 {
            first.does(&format!("add berlin/of-first-{round} {line}"));
            there.does(&format!("add of-there-{round} {line}"));
        }
        there.does(&format!("mkdir dir-{round}"));
        there.does(&format!("log dir-{round}/file"));
        drop((first, there));
        // Each end in turn.
        match round {
            0 => {
                kill(lock_holder(&offices.berlin.home.join("berlin")));
                offices.up_there();
            }
            _ => {
                kill(lock_holder(&offices.first.home.join("pelago")));
                offices.up();
            }
        }
        let began = Instant::now();
        let lines: String = (0..50).map(|line| format!("{line}|")).collect();
        let path = |root: &Path| root.to_owned();
        until("both work in one tree again", || {
            tried(&offices.berlin, "ls ~/berlin/files").code == Some(0)
                && tried(&offices.first, "ls ~/pelago/files/berlin").code == Some(0)
        });
        assert!(began.elapsed() < BACK, "{:?}", began.elapsed());
        let [mut first, mut there] =
            [path(&offices.tree()), path(&offices.tree_there())].map(|root| Hands::on(&root));
        assert_eq!(there.does(&format!("get berlin/of-first-{round}")), lines);
        assert_eq!(first.does(&format!("get of-there-{round}")), lines);
        assert_eq!(first.does(&format!("list dir-{round}")), "file");
        drop((first, there));
    }
    offices.finish();
}

#[test]
fn an_office_starts_while_the_other_one_is_away() {
    let Some(offices) = Offices::new() else { return };
    offices.berlin.types("mkdir ~/berlin/files/berlin && echo note > ~/berlin/files/berlin/note");
    offices.berlin.types("pelago unmount -V ~/berlin --timeout 100");
    offices.lab.network.cut(&offices.first);
    offices.up_there();
    assert_eq!(offices.berlin.types("cat ~/berlin/files/berlin/note").out, "note\n");
    let read = tried(&offices.berlin, "cat ~/berlin/files/other");
    assert!(read.err.contains("timed out") || read.err.contains("Host is down"), "{read:?}");
    offices.lab.network.join(&offices.first);
    until("the tree is there", || {
        tried(&offices.berlin, "cat ~/berlin/files/berlin/note").out == "note\n"
    });
    // It listens where it was told to when it joined.
    let listening = fs::read_to_string(offices.berlin.home.join("berlin/listen")).unwrap();
    assert_eq!(listening.trim(), format!("{}:7441", offices.berlin.address));
    until("the first office reads it, too", || {
        tried(&offices.first, "cat ~/pelago/files/berlin/note").out == "note\n"
    });
    offices.finish();
}

#[test]
fn a_ticket_works_once_and_only_as_it_was_written() {
    let Some(offices) = Offices::new() else { return };
    let ticket = fs::read_to_string(offices.first.home.join("ticket")).unwrap();
    let ticket = ticket.trim();
    let join = |ticket: &str| tried(&offices.berlin, &format!("pelago join '{ticket}' ~/other"));
    let nothing_made = || assert!(!offices.berlin.home.join("other").exists());
    for (wrong, says) in [
        (ticket, "the invitation was used already"),
        (&ticket[..ticket.len() - 3], "the ticket is cut, or was changed"),
        (&ticket[..40], "the ticket is cut, or was changed"),
        ("hello", "this is no ticket"),
    ] {
        let joined = join(wrong);
        assert!(joined.err.contains(says), "{joined:?}");
        assert!(joined.err.contains("next"), "{joined:?}");
        nothing_made();
    }
    let invited = tried(&offices.first, "pelago site invite berlin -V ~/pelago");
    assert!(invited.err.contains("a site with this name, 1"), "{invited:?}");
    let invited = tried(&offices.berlin, "pelago site invite rome -V ~/berlin");
    assert!(invited.err.contains("only its first site invites"), "{invited:?}");
    // No server answers.
    kill(lock_holder(&offices.first.home.join("pelago")));
    let joined = join(ticket);
    assert!(joined.err.contains("nobody answered at 10.77.0.1:7440"), "{joined:?}");
    assert!(joined.err.contains("nothing was made here"), "{joined:?}");
    nothing_made();
    offices.up();
    offices.finish();
}

/// A guest of a folder of the first office reads what the second one writes there.
#[test]
fn a_guest_reads_what_the_other_office_writes() {
    let Some(offices) = Offices::new() else { return };
    for machine in [&offices.first, &offices.berlin] {
        machine.types("pelago key new");
    }
    let guest = offices.lab.machine(3, "guest");
    guest.types("pelago key new && mkdir ~/shared");
    let key = guest.types("pelago key show").out;
    let key = key.trim();
    offices.first.types("mkdir ~/pelago/files/docs && echo one > ~/pelago/files/docs/note");
    offices.berlin.types("mkdir ~/berlin/files/docs/berlin ~/berlin/files/own");
    offices.first.types(&format!("pelago share ~/pelago/files/docs --to {key} > ~/docs.cred"));
    fs::copy(offices.first.home.join("docs.cred"), guest.home.join("docs.cred")).unwrap();
    guest.types("pelago attach ~/docs.cred ~/shared --detach");
    let status = guest.types("pelago status ~/shared --json --timeout 100").json();
    offices.lab.ends(pid_of(&status));
    assert_eq!(guest.types("cat ~/shared/note").out, "one\n");
    offices.berlin.types("echo two >> ~/berlin/files/docs/note");
    assert_eq!(guest.types("cat ~/shared/note").out, "one\ntwo\n");
    // Its bytes stay in the other office.
    offices.berlin.types("yes | head -c 300000 > ~/berlin/files/docs/large");
    let sum = "yes | head -c 300000 | sha256sum";
    assert_eq!(guest.types("sha256sum < ~/shared/large").out, guest.types(sum).out);
    // A folder of the other office in it is not granted by this one.
    let entered = tried(&guest, "ls ~/shared/berlin");
    assert!(entered.err.contains("not supported"), "{entered:?}");
    // Only a root of the first office shares what another office has.
    let wrong = tried(&offices.berlin, &format!("pelago share ~/berlin/files/docs --to {key}"));
    assert!(wrong.err.contains("is no root of the first office"), "{wrong:?}");
    assert!(wrong.err.contains("share it in the office first"), "{wrong:?}");
    let own = format!("pelago share ~/berlin/files/own --to {key} > ~/own.cred");
    offices.berlin.types(&own);
    offices.first.types("pelago revoke ~/docs.cred -V ~/pelago");
    let read = tried(&guest, "cat ~/shared/note");
    assert_ne!(read.code, Some(0), "{read:?}");
    guest.types("pelago unmount ~/shared --timeout 100");
    offices.finish();
}

/// Searches answer for the home of the folder that they are asked in.
#[test]
fn a_search_answers_for_one_office() {
    let Some(offices) = Offices::new() else { return };
    offices.berlin.types("mkdir ~/berlin/files/berlin && echo b > ~/berlin/files/berlin/there");
    offices.first.types("echo a > ~/pelago/files/here");
    for (machine, tree) in [(&offices.first, "pelago"), (&offices.berlin, "berlin")] {
        let find = |dir: &str| {
            let found = machine.types(&format!("pelago find 'size<1K' ~/{tree}/files{dir}")).out;
            ["here", "there"].map(|name| found.contains(&format!("/{name}\n")))
        };
        assert_eq!(find(""), [true, false]);
        assert_eq!(find("/berlin"), [false, true]);
    }
    offices.finish();
}

/// HTTP sends what has its home in the office of the server, and lists both.
#[test]
fn http_says_whose_a_file_is() {
    let Some(offices) = Offices::new() else { return };
    offices.berlin.types("mkdir ~/berlin/files/berlin && echo b > ~/berlin/files/berlin/there");
    offices.berlin.types("echo a > ~/berlin/files/here");
    offices.first.types("pelago get http://127.0.0.1:8080/here ~/here");
    assert_eq!(offices.first.types("cat ~/here").out, "a\n");
    let got = tried(&offices.first, "pelago get http://127.0.0.1:8080/berlin/there ~/there");
    assert!(got.err.contains("has its home in another office"), "{got:?}");
    assert!(!offices.first.home.join("there").exists());
    offices.finish();
}
