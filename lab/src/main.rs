//! `lab VERB`: the laboratories, which measure Pelago beside other programs or search it for races
//! for minutes. `cargo xtask VERB` builds and runs them.
//!
//! One file per laboratory; they share the modules of [`kit`]. Each prints its own report. Its exit
//! code is 0 if what it checks is right and its limits are kept. Nothing here is shipped.

mod bystander;
mod circus;
mod contend;
mod find_rivals;
mod kit;
mod link;
mod memory;
mod mirror;
mod rivals;
mod small;

use std::process::ExitCode;

use pelago_testbed::VerbResult;

/// A function that carries out a verb with its arguments.
type Laboratory = fn(&[String]) -> VerbResult;

/// The verbs. `cargo xtask` lists their arguments.
const VERBS: [(&str, Laboratory); 9] = [
    ("bystander", bystander::run),
    ("circus", circus::run),
    ("contend", contend::run),
    ("find-rivals", find_rivals::run),
    ("link", link::run),
    ("memory", memory::run),
    ("mirror", mirror::run),
    ("rivals", rivals::run),
    ("small", small::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("", String::as_str);
    let Some((verb, run)) = VERBS.iter().find(|(verb, _)| *verb == name) else {
        eprintln!("error: no laboratory `{name}`; `cargo xtask` lists them");
        return ExitCode::from(2);
    };
    match run(&arguments[1..]) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("error: {verb}: {why}");
            ExitCode::FAILURE
        }
    }
}
