//! Runs xfstests' `check` in namespaces, so that its processes, mounts and loop devices end with
//! it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pelago_testbed::process;

use super::conformance;
use super::verdicts::{Progress, Verdicts};

/// Most time of one test.
const TEST_LIMIT: Duration = Duration::from_secs(300);
/// Bytes of each of the two devices, which are sparse files.
const DEVICE_BYTES: u64 = 4 << 30;
/// Pause between two reads of the output.
const POLL: Duration = Duration::from_millis(200);
/// Most time until the kernel has released the devices of a run.
const END_LIMIT: Duration = Duration::from_secs(60);
/// Exit code of `enter.sh` if `pelago check` finds damage.
const NOT_WHOLE: i32 = 7;

/// A run of xfstests on one system.
pub(super) struct Run<'a> {
    /// `pelago` or `ext4`.
    pub(super) system: &'static str,
    pub(super) path: &'a str,
    pub(super) tree: &'a Path,
    pub(super) logs: &'a Path,
    pub(super) pelago: &'a Path,
}

impl Run<'_> {
    /// Returns the name of the run, in words.
    pub(super) fn title(&self) -> String {
        match self.system {
            "pelago" => format!("pelago (passthrough {})", self.path),
            other => other.to_owned(),
        }
    }

    /// Runs the tests. After a test that ends the run, or that exceeds its time, the others
    /// continue in a new run on new devices.
    pub(super) fn run(&self, tests: &[String]) -> Result<Verdicts, String> {
        let results = self.logs.join(self.system);
        if results.exists() {
            fs::remove_dir_all(&results).map_err(|why| format!("{}: {why}", results.display()))?;
        }
        fs::create_dir(&results).map_err(|why| format!("{}: {why}", results.display()))?;
        let mut all = Verdicts::default();
        let mut rest = tests.to_vec();
        for run in 1_u32.. {
            let log = self.logs.join(format!("{}-{run}", self.system));
            let (mut progress, ended) = self.run_once(&results, &log, &rest)?;
            if ended == Ended::NotWhole {
                return Err(format!("`pelago check` finds damage: see {}.out", log.display()));
            }
            if let Some(test) = &progress.running {
                let why = if ended == Ended::Late { "ran past its limit" } else { "ended the run" };
                println!("{test}: {why}");
                progress.verdicts.fail(test, format!("{why}\n"));
            }
            let left = rest.len();
            rest.retain(|test| progress.verdicts.of(test).is_none());
            all.extend(progress.verdicts);
            if rest.is_empty() {
                break;
            }
            if rest.len() == left {
                return Err(format!("no test could be run: see {}.out", log.display()));
            }
        }
        Ok(all)
    }

    /// Runs the tests in one namespace, until one ends the run.
    fn run_once(
        &self,
        results: &Path,
        log: &Path,
        tests: &[String],
    ) -> Result<(Progress, Ended), String> {
        let devices = Devices::make()?;
        let mut command = Command::new("setpriv");
        // If xtask is killed, `unshare` is killed too, and with it the first process of the
        // namespace.
        command.args(["--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child"]);
        command.args(["--mount", "--mount-proc", "--propagation", "private"]);
        command.arg(conformance().join("enter.sh")).arg(self.system).arg(&devices.folder);
        command.arg(self.tree).arg(results).arg(self.pelago).args(tests);
        command.env("PELAGO_PASSTHROUGH", self.path).env_remove("TMPDIR");
        let output = log.with_extension("out");
        let watched = watch(&mut command, &output);
        let removed = devices.remove();
        let ran =
            watched.map_err(|why| format!("cannot run {}: {why}", process::shown(&command)))?;
        removed.map(|()| ran)
    }
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    ByItself,
    /// The run was killed, because a test exceeded its time.
    Late,
    /// `pelago check` found damage.
    NotWhole,
}

/// Runs a command until it ends or one test exceeds its time.
fn watch(command: &mut Command, output: &Path) -> io::Result<(Progress, Ended)> {
    let out = File::create(output)?;
    command.stdin(Stdio::null()).stderr(out.try_clone()?).stdout(out);
    let mut child = command.spawn()?;
    let mut running = None;
    let mut since = Instant::now();
    loop {
        let status = child.try_wait()?;
        let progress = Progress::parse(&String::from_utf8_lossy(&fs::read(output)?));
        if let Some(status) = status {
            return Ok((progress, ended(status)));
        }
        if progress.running != running {
            running.clone_from(&progress.running);
            since = Instant::now();
        }
        if since.elapsed() > TEST_LIMIT {
            end(&mut child)?;
            return Ok((progress, Ended::Late));
        }
        thread::sleep(POLL);
    }
}

fn ended(status: ExitStatus) -> Ended {
    if status.code() == Some(NOT_WHOLE) { Ended::NotWhole } else { Ended::ByItself }
}

/// Kills the namespace with all processes in it.
fn end(child: &mut Child) -> io::Result<()> {
    child.kill()?;
    child.wait().map(|_| ())
}

/// Two sparse files in a temporary folder, for loop devices.
struct Devices {
    folder: PathBuf,
}

impl Devices {
    fn make() -> Result<Self, String> {
        let name = format!("pelago-xfstests-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let make = || {
            fs::create_dir(&folder)?;
            for image in ["test.img", "scratch.img"] {
                File::create_new(folder.join(image))?.set_len(DEVICE_BYTES)?;
            }
            Ok(())
        };
        make().map_err(|why: io::Error| format!("{}: {why}", folder.display()))?;
        Ok(Self { folder })
    }

    /// Waits until no loop device uses the files, and removes them.
    fn remove(self) -> Result<(), String> {
        let start = Instant::now();
        while let Some(device) = self.loop_device()? {
            if start.elapsed() > END_LIMIT {
                return Err(format!("{device} still has a file of {}", self.folder.display()));
            }
            thread::sleep(POLL);
        }
        fs::remove_dir_all(&self.folder)
            .map_err(|why| format!("left behind: {}: {why}", self.folder.display()))
    }

    /// Returns a loop device that uses one of the files.
    fn loop_device(&self) -> Result<Option<String>, String> {
        let listed =
            process::output_of("losetup", &["--list", "--noheadings", "-O", "NAME,BACK-FILE"]);
        let listed = listed.ok_or("losetup --list failed")?;
        let folder = format!("{}/", self.folder.display());
        let line = listed.lines().find(|line| line.contains(&folder));
        Ok(line.and_then(|line| line.split_whitespace().next()).map(str::to_owned))
    }
}
