//! Single files that are shared with a stranger: by inode, by name, and several together.

use std::fs;

use rustix::io::Errno;

use crate::harness::program::until;
use crate::machines::hands::Hands;
use crate::machines::lab::{Lab, lock_holder, pid_of};
use crate::machines::network::{Machine, tried};

/// Alice's machine with a volume, and Bob's, who is a stranger there.
struct Pair {
    lab: Lab,
    alice: Machine,
    bob: Machine,
}

impl Pair {
    /// `None` if this machine cannot have a network.
    fn new() -> Option<Self> {
        let lab = Lab::new()?;
        let alice = lab.machine(1, "alice");
        let bob = lab.machine(2, "bob");
        let pair = Self { lab, alice, bob };
        for machine in [&pair.alice, &pair.bob] {
            machine.types("pelago key new && mkdir ~/shared ~/named");
        }
        pair.up();
        let tree = "mkdir docs && echo first > docs/report && echo plan > docs/plan \
                    && echo secret > docs/secret";
        pair.alice.types(&format!("cd ~/pelago/files && {tree}"));
        Some(pair)
    }

    fn up(&self) {
        self.alice.types("pelago up ~/pelago --detach");
        self.lab.ends(lock_holder(&self.alice.home.join("pelago")));
    }

    /// Alice shares a file of `docs`; the credential is in Bob's home.
    fn share(&self, name: &str, with: &str, file: &str) -> String {
        let line = format!(
            "pelago share ~/pelago/files/docs/{name} --to {} --at {}:7440 {with} --out ~/{file}",
            self.bob.types("pelago key show").out.trim(),
            self.alice.address
        );
        let shared = self.alice.types(&line);
        fs::copy(self.alice.home.join(file), self.bob.home.join(file)).unwrap();
        shared.err
    }

    fn attach(&self, files: &str, point: &str) -> Hands {
        self.bob.types(&format!("cd && pelago attach {files} {point} --detach"));
        let status = self.bob.types(&format!("pelago status ~/{point} --json --timeout 100"));
        self.lab.ends(pid_of(&status.json()));
        Hands::on(&self.bob.home.join(point))
    }

    /// Alice saves a file as programs do: by a new one that takes its name.
    fn replace(&self, name: &str, text: &str) {
        let line = format!("cd ~/pelago/files/docs && echo {text} > new && mv new {name}");
        self.alice.types(&line);
    }

    /// Unmounts everything, and checks the volume.
    fn finish(self) {
        for point in ["shared", "named"] {
            tried(&self.bob, &format!("pelago unmount ~/{point} --timeout 100"));
        }
        self.alice.types("pelago unmount -V ~/pelago --timeout 100");
        let log = fs::read_to_string(self.alice.home.join("pelago/log")).unwrap();
        assert!(!log.contains("panicked"), "{log}");
        assert_eq!(self.alice.types("pelago check ~/pelago --json").json()["whole"], true);
    }
}

#[test]
fn a_file_is_shared_and_a_name_outlives_its_file() {
    let Some(pair) = Pair::new() else { return };
    let said = pair.share("report", "", "file.cred");
    assert!(said.contains("`--by-name` goes on"), "{said}");
    let said = pair.share("report", "--by-name", "name.cred");
    assert!(said.contains("to be read, by its name\n"), "{said}");
    assert!(!said.contains("\nnote "), "{said}");
    let mut file = pair.attach("file.cred", "shared");
    let mut name = pair.attach("name.cred", "named");
    for hands in [&mut file, &mut name] {
        assert_eq!(hands.does("list ."), "report");
        assert_eq!(hands.does("get report"), "first|");
        hands.fails("get secret", Errno::NOENT);
        hands.fails("get ../docs/secret", Errno::NOENT);
        for line in ["make new", "mkdir new", "remove report", "rename report other"] {
            hands.fails(line, Errno::ACCESS);
        }
    }
    let open = fs::File::open(pair.bob.home.join("shared/report")).unwrap();
    pair.alice.types("cd ~/pelago/files/docs && mv report renamed");
    assert_eq!(file.does("get report"), "first|", "it follows the file");
    name.fails("get report", Errno::NOENT);
    pair.alice.types("cd ~/pelago/files/docs && mv renamed report");
    pair.replace("report", "second");
    // Bob's last close may be on its way: until it has come, he has the file open.
    until("the file is gone", || fs::metadata(pair.bob.home.join("shared/report")).is_err());
    file.fails("get report", Errno::NOENT);
    assert_eq!(file.does("list ."), "");
    assert_eq!(name.does("get report"), "second|");
    assert_eq!(name.does("list ."), "report");
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::pread(&open, &mut bytes, 0), Ok(6), "who has it open reads on");
    assert_eq!(&bytes[..6], b"first\n");
    drop((open, file, name));
    pair.finish();
}

#[test]
fn files_are_attached_together_and_end_one_by_one() {
    let Some(pair) = Pair::new() else { return };
    pair.share("report", "", "report.cred");
    pair.share("plan", "--by-name", "plan.cred");
    pair.share("plan", "", "again.cred");
    let twice = tried(&pair.bob, "cd && pelago attach plan.cred again.cred shared --detach");
    assert!(twice.code == Some(2) && twice.err.contains("are both shown as plan"), "{twice:?}");
    let mut bob = pair.attach("report.cred plan.cred", "shared");
    assert_eq!(bob.does("list ."), "plan report");
    assert_eq!(bob.does("get report"), "first|");
    assert_eq!(bob.does("get plan"), "plan|");
    let found = tried(&pair.bob, "pelago find 'name=plan' ~/shared");
    assert!(found.code == Some(2) && found.err.contains("by itself"), "{found:?}");
    // A new server knows no session of a reader.
    let open = fs::File::open(pair.bob.home.join("shared/plan")).unwrap();
    pair.alice.types("pelago unmount -V ~/pelago --timeout 100");
    pair.up();
    assert_eq!(bob.does("get report"), "first|");
    assert_eq!(bob.does("get plan"), "plan|");
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::pread(&open, &mut bytes, 0), Ok(5), "an open file came back too");
    // The one that was presented: the session goes on by the other.
    pair.alice.types("pelago revoke ~/report.cred -V ~/pelago");
    // The mount learns of the end within a second, also without a request.
    std::thread::sleep(std::time::Duration::from_secs(1));
    bob.fails("get report", Errno::NOENT);
    assert_eq!(bob.does("list ."), "plan");
    assert_eq!(bob.does("get plan"), "plan|");
    pair.alice.types("pelago revoke ~/plan.cred -V ~/pelago");
    // The mount learns of the end within a second, also without a request.
    std::thread::sleep(std::time::Duration::from_secs(1));
    for line in ["get plan", "get report"] {
        bob.fails(line, Errno::ACCESS);
    }
    let listed: Result<Vec<_>, _> = fs::read_dir(pair.bob.home.join("shared")).unwrap().collect();
    assert_eq!(listed.unwrap_err().raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
    drop((open, bob));
    pair.finish();
}

#[test]
fn a_file_is_shared_on() {
    let Some(pair) = Pair::new() else { return };
    pair.share("report", "--may-share", "report.cred");
    pair.share("plan", "--may-share --by-name", "plan.cred");
    let bob = pair.attach("report.cred plan.cred", "shared");
    let to = pair.alice.types("pelago key show").out;
    let root = tried(&pair.bob, &format!("pelago share ~/shared --to {to}"));
    assert!(root.code == Some(2) && root.err.contains("attached one by one"), "{root:?}");
    for name in ["report", "plan"] {
        let line = format!("pelago share ~/shared/{name} --to {} --out ~/on.{name}", to.trim());
        pair.bob.types(&line);
    }
    drop(bob);
    for file in ["on.report", "on.plan"] {
        fs::copy(pair.bob.home.join(file), pair.alice.home.join(file)).unwrap();
    }
    pair.alice.types("cd && pelago attach on.report on.plan shared --detach");
    let status = pair.alice.types("pelago status ~/shared --json --timeout 100");
    pair.lab.ends(pid_of(&status.json()));
    pair.replace("plan", "newer");
    let mut hands = Hands::on(&pair.alice.home.join("shared"));
    assert_eq!(hands.does("get plan"), "newer|");
    assert_eq!(hands.does("get report"), "first|");
    drop(hands);
    pair.alice.types("pelago unmount ~/shared --timeout 100");
    pair.finish();
}
