//! `circus`: a crowd that downloads a large file from a slow disk, ours beside nginx.
//!
//! The disk is an ext4 on a loop device that reads 20 MB/s; the server has less memory than the
//! file is large. Contenders take turns within a round. The figures are the passes over the file on
//! the disk, and the times of downloads over the times that they would take alone.

mod contender;
mod disk;
mod far;
mod lab;
mod load;
mod report;
mod run;

use std::path::PathBuf;

use pelago_testbed::{VerbResult, arguments, machine, mounted, tools, verdict, workspace};
use serde_json::{Value, json};

use self::contender::{CONTENDERS, Contender};
use self::lab::Lab;
use self::load::Load;
use crate::kit::report::write_page;

/// Bytes that the disk reads in a second.
const DISK_RATE: u64 = 20_000_000;
/// The load that has one client at the end of a lossy link.
const FAR: &str = "far";
const PACKAGES: [&str; 3] = ["e2fsprogs", "iproute2", "nginx-light"];

/// The sizes of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scale {
    file_bytes: u64,
    /// Memory of a server with all its page cache.
    group_bytes: u64,
    /// The value of `--memory`.
    memory: &'static str,
    /// The time in which clients begin, in seconds.
    window: u32,
}

const FULL: Scale =
    Scale { file_bytes: 512 << 20, group_bytes: 160 << 20, memory: "48MiB", window: 60 };
/// The number of small files that are together as large as the large one.
const SMALL_FILES: u64 = 8;
/// The file is three times as large as the memory here too.
const QUICK: Scale =
    Scale { file_bytes: 192 << 20, group_bytes: 64 << 20, memory: "24MiB", window: 15 };

impl Scale {
    /// Returns the size of each small file.
    const fn small_bytes(&self) -> u64 {
        self.file_bytes / SMALL_FILES
    }
}

/// The options of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Options {
    scale: Scale,
    rounds: u32,
    /// The seed of the first round; each further one has the next.
    seed: usize,
    loads: Vec<String>,
    contenders: Vec<String>,
    json: bool,
    /// The file for charts.
    svg: Option<PathBuf>,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, String> {
        let list = |words: &str| words.split(',').map(str::to_owned).collect::<Vec<_>>();
        let contenders = CONTENDERS.map(|contender| contender.name.to_owned()).to_vec();
        let mut options = Self {
            scale: FULL,
            rounds: 3,
            seed: 1,
            loads: list("20,50,100,mixed,files,cached,far"),
            contenders,
            json: false,
            svg: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
            match word.as_str() {
                "--quick" => {
                    options.scale = QUICK;
                    options.rounds = 1;
                    options.loads = list("20,50,far");
                }
                "--rounds" => options.rounds = arguments::number(value()?, "rounds")?,
                "--seed" => options.seed = arguments::number(value()?, "seed")?,
                "--loads" => options.loads = list(value()?),
                "--contenders" => options.contenders = list(value()?),
                "--json" => options.json = true,
                "--svg" => options.svg = Some(value()?.into()),
                other => return Err(format!("no option `{other}`")),
            }
        }
        for name in &options.contenders {
            if !CONTENDERS.iter().any(|contender| contender.name == name) {
                let known = CONTENDERS.map(|contender| contender.name).join(", ");
                return Err(format!("`{name}` is none of {known}"));
            }
        }
        Ok(options)
    }

    fn contenders(&self, load: &Load) -> Vec<&'static Contender> {
        let is_chosen =
            |it: &&Contender| it.takes(load) && self.contenders.iter().any(|name| name == it.name);
        CONTENDERS.iter().filter(is_chosen).collect()
    }
}

/// Measures, prints a table for each load, and removes everything that it has made, also after an
/// error.
pub(crate) fn run(words: &[String]) -> VerbResult {
    let options = Options::parse(words)?;
    if !machine::is_root() {
        return Err("needs root, for a loop device and cgroups".to_owned());
    }
    let logs = mounted::log_folder("circus")?;
    tools::install_packages(&PACKAGES, &logs)?;
    let pelago = mounted::build()?;
    let crowd = workspace::build(&["--example", "crowd"], "examples/crowd")?;
    let loads = options.loads.iter().filter(|load| *load != FAR).map(|load| Load::parse(load));
    let loads: Vec<Load> = loads.collect::<Result<_, _>>()?;
    let small_files = loads.iter().map(Load::files).filter(|files| *files > 1).max().unwrap_or(0);
    let lab = run::prepare(pelago, crowd, options.scale, small_files)?;
    let mut tables = Vec::new();
    let mut good = true;
    for load in &loads {
        let table = measure(&lab, load, &options)?;
        good &= report::print(load, &table, &options.scale);
        tables.push(json!({ "load": load.name, "rows": table }));
    }
    let far = match options.loads.iter().any(|load| load == FAR) {
        true => far::measure(&lab)?,
        false => Value::Null,
    };
    if let Some(path) = &options.svg {
        write_page(path, &report::page(&tables, &options.scale))?;
    }
    if options.json {
        println!(
            "{}",
            json!({
                "version": 1,
                "bench": "circus",
                "time": "real",
                "file_bytes": options.scale.file_bytes,
                "memory_bytes": options.scale.group_bytes,
                "disk_mb_per_s": DISK_RATE / 1_000_000,
                "loads": tables,
                "far": far,
            })
        );
    }
    verdict(good)
}

/// Returns the rounds of each contender, which take turns; each is first equally often.
fn measure(lab: &Lab, load: &Load, options: &Options) -> Result<Vec<Value>, String> {
    let contenders = options.contenders(load);
    let mut rounds = vec![Vec::new(); contenders.len()];
    for round in 0..options.rounds as usize {
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            let seed = options.seed + round;
            println!("{}: seed {seed}, {} ...", load.name, contenders[at].name);
            rounds[at].push(run::measure(lab, contenders[at], load, seed)?);
        }
    }
    let row = |(contender, rounds): (&&Contender, Vec<Value>)| {
        let median = report::medians(&rounds);
        json!({ "contender": contender.name, "median": median, "rounds": rounds })
    };
    Ok(contenders.iter().zip(rounds).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Options, String> {
        Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn options_choose_scale_loads_and_contenders() {
        let quick = parse(&["--quick", "--loads", "5", "--contenders", "nginx", "--json"]).unwrap();
        assert_eq!((quick.scale, quick.rounds, quick.json), (QUICK, 1, true));
        assert_eq!(
            (quick.loads, quick.contenders),
            (vec!["5".to_owned()], vec!["nginx".to_owned()])
        );
        let all = parse(&[]).unwrap();
        let names = |load| all.contenders(&Load::parse(load).unwrap()).len();
        assert_eq!((names("20"), names("cached")), (CONTENDERS.len() - 1, CONTENDERS.len()));
        assert!(parse(&["--contenders", "apache"]).is_err() && parse(&["--rounds"]).is_err());
    }
}
