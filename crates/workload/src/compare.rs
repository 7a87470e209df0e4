//! Runs a program on a file system and on the model, and reports the first difference.

use std::fmt;

use pelago_client::errno;

use crate::generate::program;
use crate::model::{Expected, Model};
use crate::op::Op;
use crate::target::{Outcome, Target};

/// Steps between two comparisons of the whole tree; it is also compared after the last step.
const INSPECT_EVERY: usize = 20;
/// Operations that a report prints.
const PRINTED: usize = 20;

/// The first difference between a file system and the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// The seed of the program; `None` if the program was given as operations.
    pub seed: Option<u64>,
    /// The index of the operation in the program, from 0.
    pub step: usize,
    /// The operations up to this one.
    pub ops: Vec<Op>,
    /// The operation whose outcome differs: that of the step, or an operation that read the tree
    /// after it.
    pub failed: Op,
    /// A description of the difference.
    pub difference: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.seed.map_or_else(|| "none".to_owned(), |seed| seed.to_string());
        writeln!(f, "seed {seed}, step {}: {}", self.step, self.difference)?;
        writeln!(f, "failed: {:?}", self.failed)?;
        let skipped = self.ops.len().saturating_sub(PRINTED);
        writeln!(f, "after {skipped} operations and these:")?;
        let mut shown = self.ops.iter().skip(skipped);
        shown.try_for_each(|op| writeln!(f, "  {op:?}"))
    }
}

impl std::error::Error for Divergence {}

/// Runs the program of a seed on `target`, which must be empty.
///
/// # Errors
/// The first difference, with the seed.
pub fn run_program(
    seed: u64,
    steps: usize,
    target: &mut dyn Target,
) -> Result<(), Box<Divergence>> {
    run_ops(&program(seed, steps), target).map_err(|mut divergence| {
        divergence.seed = Some(seed);
        divergence
    })
}

/// Runs a program on `target`, which must be empty. After each step its outcome and the attributes
/// of its files are compared with the model, and after each 20 steps the whole tree.
///
/// # Errors
/// The first difference.
pub fn run_ops(ops: &[Op], target: &mut dyn Target) -> Result<(), Box<Divergence>> {
    let mut model = Model::new(target.traits());
    for (step, op) in ops.iter().enumerate() {
        let done = ops.get(..=step).unwrap_or(ops);
        let found = compare(&mut model, target, op).map_err(|difference| (op.clone(), difference));
        found.and_then(|()| inspect(&mut model, target, op, is_inspected(step, ops))).map_err(
            |(failed, difference)| {
                let ops = done.to_vec();
                Box::new(Divergence { seed: None, step, ops, failed, difference })
            },
        )?;
    }
    Ok(())
}

/// Drops operations from a program until it fails no longer with any single one dropped. `fails`
/// runs a program on a new target. A program of 60 steps seldom keeps 10.
pub fn shrink(ops: &[Op], mut fails: impl FnMut(&[Op]) -> bool) -> Vec<Op> {
    let mut kept = ops.to_vec();
    let mut chunk = kept.len().div_ceil(2);
    while chunk > 0 {
        let mut from = 0;
        let mut dropped = false;
        while from < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(from..(from + chunk).min(kept.len()));
            if fails(&fewer) {
                kept = fewer;
                dropped = true;
            } else {
                from += chunk;
            }
        }
        if !dropped || chunk > 1 {
            chunk /= 2;
        }
    }
    kept
}

const fn is_inspected(step: usize, ops: &[Op]) -> bool {
    step % INSPECT_EVERY == INSPECT_EVERY - 1 || step + 1 == ops.len()
}

fn inspect(
    model: &mut Model,
    target: &mut dyn Target,
    op: &Op,
    whole_tree: bool,
) -> Result<(), (Op, String)> {
    let mut checks: Vec<Op> = op.subjects().into_iter().map(|node| Op::GetAttr { node }).collect();
    if whole_tree {
        checks.extend(model.inspection());
    }
    for check in checks {
        compare(model, target, &check).map_err(|difference| (check, difference))?;
    }
    Ok(())
}

fn compare(model: &mut Model, target: &mut dyn Target, op: &Op) -> Result<(), String> {
    let expected = model.apply(op);
    if expected == Expected::Skip {
        return Ok(());
    }
    let found = target.apply(op);
    match (&expected, &found) {
        (Expected::Done, Outcome::Done) => Ok(()),
        (Expected::Attr(node), Outcome::Attr(attr)) => model.observe_attr(*node, attr),
        (
            Expected::Written { bytes, size },
            Outcome::Written { bytes: found_bytes, size: found_size },
        ) if (bytes, size) == (found_bytes, found_size) => Ok(()),
        (Expected::Bytes(bytes), Outcome::Bytes(found)) => compare_bytes(bytes, found),
        (Expected::Names(names), Outcome::Names(found)) if names == found => Ok(()),
        (Expected::XattrNames(names), Outcome::XattrNames(found)) if names == found => Ok(()),
        (Expected::Found(node, from), Outcome::Offset(found)) => {
            model.check_offset(*node, *from, *found)
        }
        (Expected::Page(scan), Outcome::Page { names, end }) => {
            model.observe_page(*scan, names, *end)
        }
        (Expected::Fails(codes), Outcome::Failed(number))
            if codes.iter().any(|code| errno::of(*code).raw_os_error() == *number) =>
        {
            Ok(())
        }
        _ => Err(format!("expected {}, found {}", brief(&expected), brief(&found))),
    }
}

fn compare_bytes(expected: &[u8], found: &[u8]) -> Result<(), String> {
    if expected == found {
        return Ok(());
    }
    let same = expected.iter().zip(found).take_while(|(a, b)| a == b).count();
    let differ = (expected.get(same), found.get(same));
    Err(format!(
        "bytes: expected {} found {}, they differ from {same}: {differ:?}",
        expected.len(),
        found.len()
    ))
}

/// Formats a value, shortened: the bytes of a file would fill the screen.
fn brief(value: &impl fmt::Debug) -> String {
    const LONG: usize = 400;
    let mut text = format!("{value:?}");
    if text.len() > LONG {
        let end = (0..=LONG).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Path;

    #[test]
    fn a_program_shrinks_to_the_operations_that_fail() {
        let mut ops = program(1, 100);
        ops.retain(|op| !matches!(op, Op::StatFs | Op::FsyncDir { .. }));
        ops.insert(17, Op::StatFs);
        ops.insert(60, Op::FsyncDir { dir: Path::root() });
        let small = shrink(&ops, |ops| {
            ops.contains(&Op::StatFs) && ops.iter().any(|op| matches!(op, Op::FsyncDir { .. }))
        });
        assert_eq!(small, [Op::StatFs, Op::FsyncDir { dir: Path::root() }]);
    }
}
