//! `circus`: a crowd that downloads a large file from a slow disk, ours beside nginx.
//!
//! The disk is an ext4 on a loop device that reads 20 MB/s; the server has less memory than the
//! file is large. Contenders take turns within a round. What counts is how often the file is read
//! from the disk, and how long downloads take over what they would take alone.

mod contender;
mod disk;
mod far;
mod lab;
mod report;
mod run;

use serde_json::{Value, json};

use self::contender::{CONTENDERS, Contender};
use self::lab::Lab;
use crate::{VerbResult, arguments, machine, mounted, tools, verdict, workspace};

/// Bytes that the disk reads in a second.
const DISK_RATE: u64 = 20_000_000;
/// Bytes that a fast client takes in a second, and what the slow ones of a mixed crowd take.
const RATE: f64 = 5e6;
const SLOW_RATE: f64 = RATE / 4.5;
/// The load that has two rates, and the one that has one client behind a lossy link.
const MIXED: &str = "mixed";
const FAR: &str = "far";
/// Clients of the mixed load, half of each rate.
const MIXED_CLIENTS: usize = 50;
const PACKAGES: [&str; 3] = ["e2fsprogs", "iproute2", "nginx-light"];

/// The sizes of everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scale {
    file_bytes: u64,
    /// Memory of a server with all its page cache.
    group_bytes: u64,
    /// What `--memory` says.
    memory: &'static str,
    /// The time in which clients begin, in seconds.
    window: u32,
}

const FULL: Scale =
    Scale { file_bytes: 512 << 20, group_bytes: 160 << 20, memory: "48MiB", window: 60 };
/// The file is three times as large as the memory here too.
const QUICK: Scale =
    Scale { file_bytes: 192 << 20, group_bytes: 64 << 20, memory: "24MiB", window: 15 };

/// What to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Options {
    scale: Scale,
    rounds: u32,
    loads: Vec<String>,
    contenders: Vec<String>,
    json: bool,
}

impl Options {
    fn parse(words: &[String]) -> Result<Self, String> {
        let list = |words: &str| words.split(',').map(str::to_owned).collect::<Vec<_>>();
        let contenders = CONTENDERS.map(|contender| contender.name.to_owned()).to_vec();
        let mut options = Self {
            scale: FULL,
            rounds: 3,
            loads: list("20,50,100,mixed,far"),
            contenders,
            json: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("`{word}` needs a value"));
            match word.as_str() {
                "--quick" => {
                    (options.scale, options.rounds) = (QUICK, 1);
                    options.loads = list("20,50,far");
                }
                "--rounds" => options.rounds = arguments::number(value()?, "rounds")?,
                "--loads" => options.loads = list(value()?),
                "--contenders" => options.contenders = list(value()?),
                "--json" => options.json = true,
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

    fn contenders(&self) -> Vec<&'static Contender> {
        let is_chosen = |it: &&Contender| self.contenders.iter().any(|name| name == it.name);
        CONTENDERS.iter().filter(is_chosen).collect()
    }
}

/// Returns the clients of a load, as the crowd takes them; the unit is bytes a second.
fn clients(load: &str) -> Result<Vec<(f64, usize)>, String> {
    match load {
        MIXED => Ok(vec![(RATE, MIXED_CLIENTS / 2), (SLOW_RATE, MIXED_CLIENTS / 2)]),
        number => Ok(vec![(RATE, arguments::number(number, "clients")?)]),
    }
}

/// Measures, prints a table for each load, and removes all that it has made, also after an error.
pub(crate) fn run(words: &[String]) -> VerbResult {
    let options = Options::parse(words)?;
    if !machine::is_root() {
        return Err("needs root, for a loop device and cgroups".to_owned());
    }
    let logs = mounted::log_folder("circus")?;
    tools::install_packages(&PACKAGES, &logs)?;
    let pelago = mounted::build()?;
    let example = ["--package", "pelago-workload", "--example", "crowd"];
    let crowd = workspace::build(&example, "examples/crowd")?;
    let lab = run::prepare(pelago, crowd, options.scale)?;
    let mut tables = Vec::new();
    let mut good = true;
    for load in options.loads.iter().filter(|load| *load != FAR) {
        let table = measure(&lab, load, &options)?;
        good &= report::print(load, &table, &options.scale);
        tables.push(json!({ "load": load, "rows": table }));
    }
    let far = match options.loads.iter().any(|load| load == FAR) {
        true => far::measure(&lab)?,
        false => Value::Null,
    };
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
fn measure(lab: &Lab, load: &str, options: &Options) -> Result<Vec<Value>, String> {
    let (contenders, clients) = (options.contenders(), clients(load)?);
    let mut rounds = vec![Vec::new(); contenders.len()];
    for round in 0..options.rounds as usize {
        for turn in 0..contenders.len() {
            let at = (round + turn) % contenders.len();
            let seed = round + 1;
            println!("{load}: round {seed}, {} ...", contenders[at].name);
            rounds[at].push(run::measure(lab, contenders[at], &clients, seed)?);
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
        assert_eq!(parse(&[]).unwrap().contenders().len(), CONTENDERS.len());
        assert!(parse(&["--contenders", "apache"]).is_err() && parse(&["--rounds"]).is_err());
    }

    #[test]
    fn a_mixed_load_has_half_of_each_rate() {
        assert_eq!(clients("20"), Ok(vec![(RATE, 20)]));
        assert_eq!(clients(MIXED).unwrap().iter().map(|class| class.1).sum::<usize>(), 50);
        assert!(clients("many").is_err());
    }
}
