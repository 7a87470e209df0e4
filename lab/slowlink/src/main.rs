//! `slowlink [seed=N] [WORD...]`: joins two new network namespaces until its standard input ends.
//!
//! Words set the properties of the link, as `delay=37500 rate=5625000 ab.loss=100000`. `loss` is
//! the share of packets that are lost, of a million; `burst=4` loses four in a row each time, and
//! `gilbert=4` a random number with this mean. `cut=1` takes no packets any more, and `sever=1`
//! also drops those under way; 0 mends both. The first line of the output has namespaces and
//! addresses; then each line of the input gets one with the counts.

use std::io;
use std::os::fd::AsFd as _;
use std::process::ExitCode;

use pelago_slowlink::{LinkError, SettingError, Shapes, SlowLink};

/// The seed, unless one is given.
const SEED: u64 = 1;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), LinkError> {
    let mut shapes = Shapes::default();
    let mut seed = SEED;
    for word in std::env::args().skip(1) {
        match word.strip_prefix("seed=") {
            Some(number) => seed = number.parse().map_err(|_| SettingError(word.clone()))?,
            None => shapes.set(&word)?,
        }
    }
    let mut link = SlowLink::open(shapes, seed)?;
    println!("{}", link.describe());
    let commands = io::stdin().as_fd().try_clone_to_owned()?;
    link.run(commands, io::stdout())
}
