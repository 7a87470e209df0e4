//! The run of one program with one failing call, and the check of the volume that it leaves.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use parking_lot::Mutex;
use pelago_check::{Damage, Finding};
use pelago_lossfs::{Call, Model, Names, Random, Survival};
use pelago_server::Step;
use pelago_wire::{Code, Handle, Request};

use super::belief::{Belief, Kept};
use super::case::{Case, Phase};
use super::program::Program;
use super::stage::{FaultyDisk, Stage, named, old_volume};

/// Operations of a program.
const STEPS: usize = 200;
/// The power fails so many operations after the failure: soon, and later.
const CUTS: [usize; 2] = [1, 24];
/// How often a server may fail on a healed disk before it works again.
const PATIENCE: usize = 4;

/// How many calls of each kind there were.
pub(crate) type Counts = BTreeMap<Call, u64>;

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Everything that was promised was kept.
    Kept,
    /// There are not so many calls of the kind.
    NotReached,
    /// This rule was broken.
    Broken(String),
}

/// The power failed here.
#[derive(Clone)]
struct Cut {
    model: Model,
    belief: Belief,
    when: String,
}

/// Counts the calls of a program, or of a start, in which nothing fails.
pub(crate) fn count(phase: Phase, seed: u64) -> Kept<Counts> {
    match phase {
        Phase::Program => run_program(seed, None, false).map(|(counts, _)| counts),
        Phase::Start => run_start(seed, None).map(|(counts, _)| counts),
        Phase::New => run_new(None).map(|(counts, _)| counts),
    }
}

/// Runs a case; with `is_told`, prints what happens.
pub(crate) fn run(case: &Case, is_told: bool) -> Outcome {
    let ran = catch_unwind(AssertUnwindSafe(|| match case.phase {
        Phase::Program => run_program(case.seed, Some(case), is_told),
        Phase::Start => run_start(case.seed, Some(case)),
        Phase::New => run_new(Some(case)),
    }));
    match ran {
        Ok(Ok((_, true))) => Outcome::Kept,
        Ok(Ok((_, false))) => Outcome::NotReached,
        Ok(Err(rule)) => Outcome::Broken(rule),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Outcome::Broken(format!("a panic: {}", text.unwrap_or("of no words")))
        }
    }
}

/// Answers the calls counted, and whether one failed.
fn run_program(seed: u64, case: Option<&Case>, is_told: bool) -> Kept<(Counts, bool)> {
    let (model, tree) = old_volume().ok_or("nothing can be mounted")?;
    let mut stage = serve(mount(model.clone())?)?;
    stage.is_told = is_told;
    stage.count();
    let control = stage.lossfs.control().clone();
    control.inject(case.map(|case| case.injection));
    let mut program = Program::new(seed, tree, case.is_some_and(Case::may_lose));
    let mut cuts = Vec::new();
    let mut failed_at = None;
    for step in 0..STEPS {
        let when = format!("operation {step}");
        if is_told {
            println!("{when}");
        }
        program.step(&stage).map_err(|why| format!("{when}: {why}"))?;
        if failed_at.is_none() && stage.has_failed() {
            failed_at = Some(step);
        }
        let Some(failed_at) = failed_at else { continue };
        if CUTS.contains(&(step - failed_at)) {
            let survival = match cuts.len() {
                0 => Survival::Nothing,
                _ => Survival::Some { seed: step as u64, names: Names::PerFolder },
            };
            let model = control.model().after_crash(survival);
            let when = format!("power failed after {when}, {survival:?}");
            cuts.push(Cut { model, belief: program.belief.clone(), when });
        }
        if step - failed_at >= CUTS[1] {
            break;
        }
    }
    let counts = control.counts();
    control.inject(None);
    if failed_at.is_some() {
        expect_alive(&stage)?;
    }
    stage.abandon();
    for cut in &cuts {
        prove(cut).map_err(|why| format!("{}: {why}", cut.when))?;
    }
    Ok((counts, failed_at.is_some()))
}

/// A server goes on once calls fail no more.
fn expect_alive(stage: &Stage) -> Kept {
    let mut last = Ok(());
    for _ in 0..PATIENCE {
        stage.step(Step::Commit);
        stage.work();
        last = use_it(stage);
        if last.is_ok() {
            return Ok(());
        }
    }
    last.map_err(|code| format!("it does not go on when nothing fails any more: {code:?}"))
}

fn use_it(stage: &Stage) -> Result<(), Code> {
    if stage.lookup(Handle::ROOT, "new")?.is_some() {
        stage.call(Request::Unlink { dir: Handle::ROOT, name: named("new") }, &[])?;
    }
    let (_, open) = stage.create(Handle::ROOT, "new")?;
    let written = stage
        .write(open, 0, &[7; 9_000])
        .and_then(|()| stage.call(Request::Fsync { open, data_only: false }, &[]).map(drop));
    let closed = stage.close(open);
    written.and(closed)
}

/// The power comes back: what is left is served, is whole, and is what was promised.
fn prove(cut: &Cut) -> Kept {
    let stage = serve(mount(cut.model.clone())?)?;
    let found = stage.see().map_err(|code| format!("not everything can be read: {code:?}"))?;
    cut.belief.expect(&found)?;
    let new = stage.create(Handle::ROOT, "new").map_err(|code| format!("no create: {code:?}"))?;
    if cut.belief.knows(new.0.attr.ino.raw()) {
        return Err(format!("the number {:x} is given twice", new.0.attr.ino.raw()));
    }
    stage.close(new.1).map_err(|code| format!("no close: {code:?}"))?;
    expect_whole(&stage.stop()?)
}

fn expect_whole(disk: &FaultyDisk) -> Kept {
    let plan = disk.check().map_err(|error| format!("it cannot be checked: {error:?}"))?;
    if plan.is_whole() { Ok(()) } else { Err(format!("a check finds {:?}", plan.findings)) }
}

/// A volume whose power failed, and what may be in it; made once for each seed.
fn after_failure(seed: u64) -> Kept<Cut> {
    static MADE: Mutex<BTreeMap<u64, Cut>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock();
    if let Some(cut) = made.get(&seed) {
        return Ok(cut.clone());
    }
    let (model, tree) = old_volume().ok_or("nothing can be mounted")?;
    let stage = serve(mount(model.clone())?)?;
    stage.count();
    let mut program = Program::new(seed, tree, false);
    let mut random = Random(seed);
    for step in 0..40 + random.below(80) {
        program.step(&stage).map_err(|why| format!("operation {step}: {why}"))?;
    }
    let survival = Survival::Some { seed, names: Names::PerFolder };
    let model = stage.lossfs.control().model().after_crash(survival);
    let cut = Cut { model, belief: program.belief.clone(), when: format!("program {seed}") };
    stage.abandon();
    made.insert(seed, cut.clone());
    Ok(cut)
}

/// Starts a volume whose power failed, reads and checks it, while a call fails.
fn run_start(seed: u64, case: Option<&Case>) -> Kept<(Counts, bool)> {
    let cut = after_failure(seed)?;
    let disk = mount(cut.model.clone())?;
    disk.count();
    let control = disk.lossfs.control().clone();
    control.inject(case.map(|case| case.injection));
    let disk = match disk.serve() {
        Ok(stage) => look_around(stage, &cut.belief)?,
        Err(failed) if control.injected() > 0 => failed.1,
        Err(failed) => return Err(format!("it does not start: {:?}", failed.0)),
    };
    let counts = control.counts();
    let failed = control.injected() > 0;
    control.inject(None);
    if failed {
        let stage = serve(disk)?;
        let found = stage.see().map_err(|code| format!("not everything can be read: {code:?}"))?;
        cut.belief.expect(&found).map_err(|why| format!("after all: {why}"))?;
        expect_whole(&stage.stop()?)?;
    }
    Ok((counts, failed))
}

/// Makes a volume while a call fails, with power and then without, and makes it again.
fn run_new(case: Option<&Case>) -> Kept<(Counts, bool)> {
    let disk = mount(Model::new())?;
    disk.count();
    let control = disk.lossfs.control().clone();
    control.inject(case.map(|case| case.injection));
    let disk = match disk.serve() {
        Ok(stage) => {
            let used = use_it(&stage);
            if let (Err(code), 0) = (used, control.injected()) {
                return Err(format!("it cannot be used: {code:?}"));
            }
            stage.end()?.0
        }
        Err(failed) if control.injected() > 0 => failed.1,
        Err(failed) => return Err(format!("it does not start: {:?}", failed.0)),
    };
    let counts = control.counts();
    let failed = control.injected() > 0;
    control.inject(None);
    let left = failed.then(|| control.model().after_crash(Survival::Nothing));
    for disk in [Ok(disk)].into_iter().chain(left.map(mount)) {
        let stage = serve(disk?)?;
        use_it(&stage).map_err(|code| format!("it cannot be used: {code:?}"))?;
        expect_whole(&stage.stop()?)?;
    }
    Ok((counts, failed))
}

/// What can be read is right; what cannot says so.
fn look_around(stage: Stage, belief: &Belief) -> Kept<FaultyDisk> {
    match stage.see() {
        Ok(found) => belief.expect(&found)?,
        Err(code) => stage.failed("a look at all files", code)?,
    }
    stage.work();
    stage.step(Step::Commit);
    let (disk, is_clean) = stage.end()?;
    let checked = disk.check();
    let has_failed = disk.lossfs.control().injected() > 0;
    // Only a start and a clean stop make whole what a power failure has left.
    match checked {
        Ok(plan) if plan.is_whole() || !is_clean => Ok(disk),
        // The check itself could not read one of two files; the next start must be whole.
        Ok(plan) if has_failed && plan.findings.iter().all(is_second_file) => Ok(disk),
        Ok(plan) => Err(format!("a check finds {:?}", plan.findings)),
        Err(_) if has_failed => Ok(disk),
        Err(error) => Err(format!("it cannot be checked: {error:?}")),
    }
}

fn is_second_file(finding: &Finding) -> bool {
    finding.damage == Damage::SecondFile
}

fn mount(model: Model) -> Kept<FaultyDisk> {
    FaultyDisk::mount(model).ok_or_else(|| "nothing can be mounted".to_owned())
}

fn serve(disk: FaultyDisk) -> Kept<Stage> {
    disk.serve().map_err(|failed| format!("it does not start: {:?}", failed.0))
}
