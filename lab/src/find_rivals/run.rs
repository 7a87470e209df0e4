//! The files and indexes of the measurement, and the runs of all programs in turn.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pelago_testbed::account::Account;
use pelago_testbed::mounted::Mounted;
use pelago_testbed::{machine, process};
use serde_json::Value;

use super::Options;
use super::programs::{self, Goal, Places, Program};

/// The most runs of a program in a round, and the time for them.
const MOST: usize = 20;
const AT_MOST: Duration = Duration::from_millis(500);

/// A mount, and the user of all programs.
pub(super) struct Lab<'a> {
    pub(super) mounted: &'a Mounted,
    pub(super) account: Option<&'a Account>,
}

/// The results of the measurement.
pub(super) struct Measured {
    /// Seconds that each preparation took.
    pub(super) made: Vec<(String, f64)>,
    pub(super) tasks: Vec<Task>,
    /// The report of `pelago bench find`.
    pub(super) own: Value,
}

/// A question, and the answers of all programs.
pub(super) struct Task {
    /// The object of the question in the report of `pelago bench find`.
    pub(super) question: Value,
    /// `pelago find` first.
    pub(super) answers: Vec<Answers>,
}

/// The answers of one program.
pub(super) struct Answers {
    pub(super) name: &'static str,
    /// Files of each answer.
    pub(super) files: usize,
    /// Milliseconds of each run, by rounds; none if the program is not here.
    pub(super) rounds: Vec<Vec<f64>>,
    pub(super) goal: Option<Goal>,
}

impl Lab<'_> {
    /// Makes all that is searched, and measures; `print` gets each question after its answers.
    pub(super) fn measure(
        &self,
        options: &Options,
        print: impl Fn(&Task),
    ) -> Result<Measured, String> {
        let scratch = self.mounted.scratch();
        let places = Places {
            pelago: self.mounted.binary().to_owned(),
            mount: self.mounted.point(),
            copy: scratch.join("copy"),
            database: scratch.join("plocate.db"),
            recoll: scratch.join("recoll"),
        };
        let mut made = Vec::new();
        for folder in [&places.copy, &places.recoll] {
            self.step("folder", Command::new("mkdir").arg(folder))?;
        }
        for (what, folder) in [("files, mount", &places.mount), ("files, disk", &places.copy)] {
            let mut fill = self.bench(&places, options);
            made.push((what.to_owned(), self.step("fill", fill.arg("--fill").arg(folder))?));
        }
        let config = places.recoll.join("recoll.conf");
        let text = programs::recoll_configuration(&places);
        fs::write(&config, text).map_err(|why| format!("{}: {why}", config.display()))?;
        let began = Instant::now();
        // The benchmark waits for the index.
        let mut plain = self.bench(&places, options);
        plain.args(["--plain", "--json", "--rounds", &options.rounds.to_string()]);
        let said = self.mounted.step("bench", plain.arg(&places.mount))?;
        made.push(("index and questions, mount".to_owned(), began.elapsed().as_secs_f64()));
        let own: Value =
            serde_json::from_str(&said.stdout).map_err(|why| format!("bench find: {why}"))?;
        for (what, mut command) in programs::makers(&places) {
            if is_here(&command) {
                made.push((what.to_owned(), self.step(what, &mut command)?));
            } else {
                println!("not here: {what}");
            }
        }
        let questions = own["questions"].as_array().cloned().unwrap_or_default();
        let mut tasks = Vec::new();
        for question in questions {
            let asked = programs::programs(&places, &question);
            if !asked.is_empty() {
                let answers = self.rounds(asked, options.rounds)?;
                let task = Task { question, answers };
                print(&task);
                tasks.push(task);
            }
        }
        Ok(Measured { made, tasks, own })
    }

    /// Runs the programs in turn, and first once each, so that their files are in memory.
    fn rounds(&self, mut asked: Vec<Program>, rounds: u32) -> Result<Vec<Answers>, String> {
        let new = |program: &Program| Answers {
            name: program.name,
            files: 0,
            rounds: Vec::new(),
            goal: program.goal,
        };
        let mut answers: Vec<Answers> = asked.iter().map(new).collect();
        for (program, answers) in asked.iter_mut().zip(&mut answers) {
            if is_here(&program.command) {
                answers.files = self.answer(program)?.1;
            } else {
                println!("not here: {}", program.name);
            }
        }
        for round in 0..rounds as usize {
            for turn in 0..asked.len() {
                let at = (round + turn) % asked.len();
                if !is_here(&asked[at].command) {
                    continue;
                }
                let began = Instant::now();
                let mut times = Vec::new();
                while times.is_empty() || times.len() < MOST && began.elapsed() < AT_MOST {
                    times.push(self.answer(&mut asked[at])?.0);
                }
                answers[at].rounds.push(times);
            }
        }
        Ok(answers)
    }

    /// Runs a program, and returns its milliseconds, start and end included, and its files.
    fn answer(&self, program: &mut Program) -> Result<(f64, usize), String> {
        let command = &mut program.command;
        if let Some(account) = self.account {
            account.apply(command, &self.mounted.scratch());
        }
        command.env("LC_ALL", "C").current_dir("/");
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let began = Instant::now();
        let output = command.output().map_err(|why| format!("{}: {why}", program.name))?;
        let millis = began.elapsed().as_secs_f64() * 1e3;
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let files = lines.filter(|line| line.starts_with(program.line.as_bytes())).count();
        Ok((millis, files))
    }

    fn bench(&self, places: &Places, options: &Options) -> Command {
        let mut bench = Command::new(&places.pelago);
        let files = options.files.to_string();
        let seed = options.seed.to_string();
        bench.args(["bench", "find", "--files", &files, "--seed", &seed]);
        bench
    }

    /// Runs a preparation, and returns its seconds.
    fn step(&self, name: &str, command: &mut Command) -> Result<f64, String> {
        let seconds = self.mounted.step(name, command)?.duration.as_secs_f64();
        println!("{}: {seconds:.1} s", process::shown(command));
        Ok(seconds)
    }
}

fn is_here(command: &Command) -> bool {
    command.get_program().to_str().and_then(machine::find_program).is_some()
}
