//! Two sites at the ends of a line, and the disaster.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use pelago_workload::ledger::{self, Fates};
use rustix::process::Pid;
use tempfile::TempDir;

use super::WRITERS;
use super::round::{LineCut, Relay, Round};
use crate::harness::program::{run, until, wait};
use crate::harness::volume::{detach_all, folder};
use crate::machines::lab::{kill, pid_of};
use crate::machines::line::Line;
use crate::machines::network::Machine;

/// A primary and its mirror. Its drop kills both.
pub(super) struct Sites {
    home: Machine,
    there: Machine,
    line: Line,
    /// The processes that its drop kills.
    servers: RefCell<Vec<Pid>>,
    root: PathBuf,
    _folder: TempDir,
}

impl Sites {
    /// Returns both, with a mirror that has all; `None` if this machine cannot have them.
    pub(super) fn new(round: &Round) -> Option<Self> {
        let (folder, root) = folder();
        let words = round.line();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let line = Line::seeded(&words, round.seed)?;
        let home = line.machine(0, &root.join("home"));
        let there = line.machine(1, &root.join("there"));
        let servers = RefCell::default();
        let sites = Self { home, there, line, servers, root, _folder: folder };
        let at = format!("{}:7442", sites.there.address);
        sites.there.types(&format!("pelago serve ~/mirrors --mirrors --listen {at} --detach"));
        sites.served(&sites.there, "~/mirrors");
        let options = round.options();
        sites.home.types(&format!("pelago up ~/pelago --detach --passthrough never{options}"));
        sites.served(&sites.home, "~/pelago");
        let key = sites.home.types("pelago key show -V ~/pelago").out;
        sites.there.types(&format!("pelago key allow {} -V ~/mirrors", key.trim()));
        let key = sites.there.types("pelago key show -V ~/mirrors").out;
        let peer = format!("{}@{at}", key.trim());
        let through = if round.relay == Relay::None { String::new() } else { sites.relay() };
        sites.home.types(&format!("pelago site mirror {peer}{through} -V ~/pelago"));
        sites.home.types("pelago wait ~/pelago/files --level remote --timeout 60");
        if round.relay != Relay::None {
            until("changes go through the relay", || {
                let status = sites.home.types("pelago status ~/pelago --json --timeout 100");
                status.json()["mirror"]["relay"]["used"] == true
            });
        }
        Some(sites)
    }

    /// Starts a relay at the primary's site. Returns the option that uses it.
    fn relay(&self) -> String {
        let at = format!("{}:7443", self.home.address);
        self.home.types(&format!("pelago relay ~/relay --listen {at} --detach"));
        self.served(&self.home, "~/relay");
        self.home.types("pelago key allow $(pelago key show -V ~/pelago) -V ~/relay");
        let key = self.home.types("pelago key show -V ~/relay").out;
        self.there.types(&format!("pelago key allow {} -V ~/mirrors", key.trim()));
        format!(" --relay {}@{at}", key.trim())
    }

    /// Notes the process that serves a folder of a machine.
    fn served(&self, machine: &Machine, folder: &str) {
        self.servers.borrow_mut().push(server_of(machine, folder));
    }

    /// Lets the writers work, destroys the primary, and promotes the mirror. Returns the fates of
    /// the steps, and whether the mirror was cut off while syncs go on then.
    pub(super) fn suffer(&self, round: &Round) -> Result<(Fates, bool), String> {
        let primary = server_of(&self.home, "~/pelago");
        let relay = (round.relay == Relay::Lost).then(|| server_of(&self.home, "~/relay"));
        let book = self.root.join("ledger");
        let mut writers = self.start(&book, round);
        until("the writers work", || {
            writers.try_wait().unwrap().is_some() || book.metadata().is_ok_and(|it| it.len() > 999)
        });
        // These sleeps wait for no condition: the moments are random.
        thread::sleep(round.work);
        match round.line_cut {
            LineCut::Closed => self.line.tell("cut=1"),
            LineCut::Severed => self.line.tell("sever=1"),
            LineCut::After => {}
        }
        thread::sleep(round.alone);
        kill(primary);
        if let Some(relay) = relay {
            kill(relay);
        }
        self.line.tell("cut=1");
        if wait(&mut writers) != Some(0) {
            let said = fs::read_to_string(said(&book)).unwrap_or_default();
            return Err(format!("the writers failed: {said}"));
        }
        let log = fs::read_to_string(self.home.home.join("pelago/log")).unwrap();
        let went_on = !round.waits && log.contains("the mirror is cut off");
        // Then what they were told was no more than that it is safe here.
        let surviving = if went_on { &[] } else { round.surviving() };
        if round.relay == Relay::Left {
            self.line.tell("cut=0");
            until("the relay has sent all", || {
                let status = self.home.types("pelago status ~/relay --json").json();
                status["volumes"][0]["groups"] == 0
            });
        }
        let image = self.promote()?;
        let fates = ledger::verify(&image.join("files"), &book, round.seed, surviving)
            .map_err(|error| format!("{error:?}"))?;
        if fates.problems.is_empty() {
            return Ok((fates, went_on));
        }
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("disaster-{}", round.seed));
        self.keep(&image, &book, &kept);
        Err(format!("{fates}\nthe ledger, the logs and the files are in {}", kept.display()))
    }

    fn start(&self, book: &Path, round: &Round) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "disaster::as_writers", "--nocapture"]);
        let root = self.home.home.join("pelago/files");
        let told =
            [&root.display().to_string(), &book.display().to_string(), &round.seed.to_string()];
        let levels = round.levels().join("\n");
        command.env(WRITERS, format!("{}\n{}\n{}\n{levels}", told[0], told[1], told[2]));
        let out = File::create(said(book)).unwrap();
        let err = out.try_clone().unwrap();
        command.stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap()
    }

    /// Promotes the mirror, checks it and brings it up. Returns its folder.
    fn promote(&self) -> Result<PathBuf, String> {
        let mut found = fs::read_dir(self.there.home.join("mirrors/mirrors")).unwrap();
        let image = found.next().unwrap().unwrap().path();
        self.there.types(&format!("pelago site promote {} --force", image.display()));
        let checked = self.there.types(&format!("pelago check {} --json", image.display()));
        if checked.json()["whole"] != true {
            return Err(format!("the mirror is damaged: {}", checked.out));
        }
        self.there.types(&format!("pelago up {} --detach", image.display()));
        self.served(&self.there, &image.display().to_string());
        for log in [self.home.home.join("pelago/log"), self.there.home.join("mirrors/log")] {
            let text = fs::read_to_string(log).unwrap();
            if text.contains("panicked") {
                return Err(text);
            }
        }
        Ok(image)
    }

    /// Copies what explains a failure.
    fn keep(&self, image: &Path, book: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        let of_home = self.home.home.join("pelago/log");
        let of_mirror = self.there.home.join("mirrors/log");
        for (path, name) in [(book, "ledger"), (&of_home, "home.log"), (&of_mirror, "mirror.log")] {
            fs::copy(path, to.join(name)).unwrap();
        }
        run(Command::new("cp").arg("-a").arg(image.join("files")).arg(to));
    }
}

/// Returns the process that serves a folder of a machine.
fn server_of(machine: &Machine, folder: &str) -> Pid {
    pid_of(&machine.types(&format!("pelago status {folder} --json")).json())
}

/// Returns the file with what the writers have printed.
fn said(book: &Path) -> PathBuf {
    book.with_extension("out")
}

impl Drop for Sites {
    fn drop(&mut self) {
        self.servers.borrow_mut().drain(..).for_each(kill);
        detach_all(&self.root);
    }
}
