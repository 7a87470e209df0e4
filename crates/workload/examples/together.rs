//! One file in several mounts: `together SEED OPERATIONS LONGEST LARGEST FOLDER...`. The folders
//! are one folder in several mounts of a volume.

use std::path::PathBuf;
use std::process::ExitCode;

use pelago_workload::together::{Bounds, run};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = args.iter().map_while(|word| word.parse().ok()).collect();
    let [seed, operations, longest, largest] = numbers[..] else {
        eprintln!("usage: together SEED OPERATIONS LONGEST LARGEST FOLDER...");
        return ExitCode::from(2);
    };
    let roots: Vec<PathBuf> = args.iter().skip(4).map(PathBuf::from).collect();
    let bounds = Bounds { longest: longest as usize, largest: largest as usize };
    match run(&roots, seed, operations, bounds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(divergence) => {
            eprintln!("{divergence}");
            ExitCode::FAILURE
        }
    }
}
