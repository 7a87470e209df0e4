//! Runs a program on a file system and on the model, and tells where they part.

use std::fmt;

use pelago_client::errno;

use crate::generate::program;
use crate::model::{Expected, Model};
use crate::op::Op;
use crate::target::{Outcome, Target};

/// After so many steps the whole tree is compared, and after the last one.
const INSPECT_EVERY: usize = 20;
/// Operations that a report shows.
const SHOWN: usize = 20;

/// Where a file system and the model parted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// What gave the program; `None` where it was given as such.
    pub seed: Option<u64>,
    /// Which operation of the program, counted from 0.
    pub step: usize,
    /// The operations that were carried out, the last of them last.
    pub ops: Vec<Op>,
    /// The operation whose answer differs: that of the step, or one that looked at the tree then.
    pub asked: Op,
    /// What differs.
    pub difference: String,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seed = self.seed.map_or_else(|| "none".to_owned(), |seed| seed.to_string());
        writeln!(f, "seed {seed}, step {}: {}", self.step, self.difference)?;
        writeln!(f, "asked: {:?}", self.asked)?;
        let skipped = self.ops.len().saturating_sub(SHOWN);
        writeln!(f, "after (without {skipped} before):")?;
        let mut shown = self.ops.iter().skip(skipped);
        shown.try_for_each(|op| writeln!(f, "  {op:?}"))
    }
}

impl std::error::Error for Divergence {}

/// Runs the program of a seed on `target`, which must be empty.
///
/// # Errors
/// The first difference.
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

/// Runs a program on `target`, which must be empty: after each step its answer is compared, and the
/// attributes of all that it named; from time to time the whole tree.
///
/// # Errors
/// The first difference.
pub fn run_ops(ops: &[Op], target: &mut dyn Target) -> Result<(), Box<Divergence>> {
    let mut model = Model::new(target.traits());
    for (step, op) in ops.iter().enumerate() {
        let done = ops.get(..=step).unwrap_or(ops);
        let found = compare(&mut model, target, op).map_err(|difference| (op.clone(), difference));
        found.and_then(|()| look_around(&mut model, target, op, is_inspected(step, ops))).map_err(
            |(asked, difference)| {
                let ops = done.to_vec();
                Box::new(Divergence { seed: None, step, ops, asked, difference })
            },
        )?;
    }
    Ok(())
}

/// Drops operations from a program as long as it still fails, each time on a new target, until no
/// single one can be dropped. For reports: a program of 60 steps seldom keeps 10.
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

fn look_around(
    model: &mut Model,
    target: &mut dyn Target,
    op: &Op,
    everywhere: bool,
) -> Result<(), (Op, String)> {
    let mut looks: Vec<Op> = op.subjects().into_iter().map(|node| Op::GetAttr { node }).collect();
    if everywhere {
        looks.extend(model.inspection());
    }
    for look in looks {
        compare(model, target, &look).map_err(|difference| (look, difference))?;
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
        (Expected::Attr(node), Outcome::Attr(seen)) => model.see(*node, seen),
        (
            Expected::Written { bytes, size },
            Outcome::Written { bytes: found_bytes, size: found_size },
        ) if (bytes, size) == (found_bytes, found_size) => Ok(()),
        (Expected::Bytes(bytes), Outcome::Bytes(found)) => compare_bytes(bytes, found),
        (Expected::Names(names), Outcome::Names(found)) if names == found => Ok(()),
        (Expected::XattrNames(names), Outcome::XattrNames(found)) if names == found => Ok(()),
        (Expected::Found(node, from), Outcome::Offset(found)) => {
            model.see_offset(*node, *from, *found)
        }
        (Expected::Page(scan), Outcome::Page { names, end }) => model.see_page(*scan, names, *end),
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
    let (lengths, differ) = ((expected.len(), found.len()), (expected.get(same), found.get(same)));
    Err(format!(
        "bytes: expected {} found {}, they differ from {same}: {differ:?}",
        lengths.0, lengths.1
    ))
}

/// Bytes of a file would fill the screen.
fn brief(what: &impl fmt::Debug) -> String {
    const LONG: usize = 400;
    let mut text = format!("{what:?}");
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

    /// The shrinker keeps exactly what a failure needs.
    #[test]
    fn a_program_shrinks_to_what_fails() {
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
