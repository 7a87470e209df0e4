//! `find-rivals`: searches of `pelago find` beside `find`, `getfattr`, `plocate` and `recoll`.
//!
//! The same files are in a mount and in a folder on the disk. All programs run as one ordinary
//! user, one after the other within a round, with warm caches; the start of a process counts for
//! each of them. The answers of the control file, which need no process, are measured beside.

mod programs;
mod report;
mod run;

use std::path::PathBuf;

use pelago_testbed::account::{self, Account};
use pelago_testbed::mounted::{self, Mounted};
use pelago_testbed::run_as::RunAs;
use pelago_testbed::{VerbResult, arguments, machine, tools, verdict};
use serde_json::json;

use crate::kit::report::write_page;

/// Packages of the other programs.
const PACKAGES: [&str; 4] = ["attr", "findutils", "plocate", "recollcmd"];
/// The user, if root runs the verb and names none.
const USER: &str = "daemon";

/// The options of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Options {
    files: u64,
    rounds: u32,
    seed: u64,
    /// True if missing programs are left out, and not installed.
    quick: bool,
    user: Option<String>,
    json: bool,
    /// The file for charts.
    svg: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self {
            files: 1_000_000,
            rounds: 5,
            seed: 1,
            quick: false,
            user: None,
            json: false,
            svg: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
            match word.as_str() {
                "--quick" => (options.quick, options.files, options.rounds) = (true, 5000, 1),
                "--files" => options.files = arguments::number(value()?, "files")?,
                "--rounds" => options.rounds = arguments::number(value()?, "rounds")?,
                "--seed" => options.seed = arguments::number(value()?, "seed")?,
                "--user" => options.user = Some(value()?.clone()),
                "--json" => options.json = true,
                "--svg" => options.svg = Some(value()?.into()),
                other => return Err(format!("no option `{other}`")),
            }
        }
        Ok(options)
    }

    /// Returns the user; root is none, because it may read everything.
    fn account(&self) -> Result<Option<Account>, String> {
        match (&self.user, machine::is_root()) {
            (None, false) => Ok(None),
            (name, _) => Account::find(name.as_deref().unwrap_or(USER)).map(Some),
        }
    }
}

/// Measures, prints a table, and removes everything that it has made, also after an error.
pub(crate) fn run(words: &[String]) -> VerbResult {
    let options = Options::parse(words)?;
    let account = options.account()?;
    let logs = mounted::log_folder("find-rivals")?;
    if !options.quick {
        tools::install_packages(&PACKAGES, &logs)?;
    }
    if account.is_some()
        && let Some(code) = account::enter_namespace("find-rivals", words)?
    {
        return Ok(code);
    }
    let pelago = mounted::build()?;
    let run_as = RunAs { account, ..RunAs::default() };
    let mounted = Mounted::start(&pelago, &logs, "find-rivals", &run_as)?;
    let lab = run::Lab { mounted: &mounted, account: run_as.account.as_ref() };
    let measured = lab.measure(&options, report::print)?;
    let good = measured.tasks.iter().all(report::agrees);
    if let Some(path) = &options.svg {
        write_page(path, &report::page(&measured))?;
    }
    if options.json {
        let tasks: Vec<_> = measured.tasks.iter().map(report::to_json).collect();
        println!(
            "{}",
            json!({
                "version": 1,
                "bench": "find-rivals",
                "files": options.files,
                "rounds": options.rounds,
                "seed": options.seed,
                "made_s": measured.made.iter().map(|made| json!(made)).collect::<Vec<_>>(),
                "tasks": tasks,
                "own": measured.own,
            })
        );
    }
    verdict(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_unknown_words_refused() {
        let parse = |words: &[&str]| {
            Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
        };
        let quick = parse(&["--quick", "--rounds", "2"]).unwrap();
        assert_eq!((quick.files, quick.rounds, quick.quick), (5000, 2, true));
        assert_eq!(parse(&["--files", "7", "--user", "games"]).unwrap().files, 7);
        assert!(parse(&["--files"]).is_err() && parse(&["--fast"]).is_err());
    }
}
