//! Runs random programs on a directory, to try a mount by hand: `programs DIR SEED COUNT STEPS`
//! runs the programs of COUNT seeds from SEED on, each in a new folder of DIR, and prints the first
//! one that differs from the model, shrunk.

use std::path::Path;
use std::process::ExitCode;

use pelago_workload::compare::{run_ops, run_program, shrink};
use pelago_workload::generate::program;
use pelago_workload::target::LocalTarget;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<u64> = args.iter().skip(1).filter_map(|word| word.parse().ok()).collect();
    let ([dir, ..], [seed, count, steps]) = (args.as_slice(), numbers.as_slice()) else {
        eprintln!("usage: programs DIR SEED COUNT STEPS");
        return ExitCode::from(2);
    };
    let dir = Path::new(dir);
    let steps = usize::try_from(*steps).unwrap_or(usize::MAX);
    for seed in *seed..seed + count {
        let found = in_folder(dir, |target| run_program(seed, steps, target));
        if let Err(divergence) = found {
            eprintln!("{divergence}");
            let ops = program(seed, steps);
            let small = shrink(&ops, |ops| in_folder(dir, |target| run_ops(ops, target)).is_err());
            eprintln!("shrunk: {small:#?}");
            return ExitCode::FAILURE;
        }
    }
    println!("{count} programs of {steps} steps agree with the model");
    ExitCode::SUCCESS
}

fn in_folder<T>(dir: &Path, work: impl FnOnce(&mut LocalTarget) -> T) -> T {
    let folder = dir.join(format!("programs-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("DIR takes a folder");
    let mut target = LocalTarget::new(&folder).expect("the folder can be opened");
    let result = work(&mut target);
    drop(target);
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
    result
}
