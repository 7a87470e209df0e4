//! `pelago check`.

use std::path::PathBuf;
use std::process::ExitCode;

use pelago_check::{self as check, CheckError, Finding, Plan};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::json;
use crate::patience::wait_for_the_dying;
use crate::{log, output, place};

/// Look a volume over while it is down: whether its rows, bytes and files say the same. Changes
/// nothing unless told to.
///
/// Leftovers are what a crash may leave: they take space and are no damage.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The volume's folder
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Repair what can be repaired
    #[arg(long)]
    apply: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Looks it over; with the code of "damaged" where damage is left.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    log::to_terminal();
    let dir = match &args.dir {
        Some(dir) => place::absolute(dir)?,
        None => place::find(None, None)?.dir,
    };
    let failed = |error| check_failed(error);
    let (found, repaired, left) = if args.apply {
        let applied = wait_for_the_dying(&dir, || check::apply(&dir)).map_err(failed)?;
        (applied.before, applied.repaired, Some(applied.after))
    } else {
        (wait_for_the_dying(&dir, || check::plan(&dir)).map_err(failed)?, 0, None)
    };
    let now = left.as_ref().unwrap_or(&found);
    if args.json {
        output::print_json(&json!({
            "version": json::VERSION,
            "volume": { "dir": dir.to_string_lossy() },
            "checked": {
                "rows": found.checked.rows,
                "nodes": found.checked.nodes,
                "directories": found.checked.directories,
                "content_files": found.checked.content_files,
            },
            "found": plan_json(&found),
            "repaired": repaired,
            "left": left.as_ref().map(plan_json),
            "whole": now.is_whole(),
        }))?;
    } else {
        output::print(&lines(&found, repaired, left.as_ref()))?;
    }
    Ok(if now.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(Exit::Damaged as u8) })
}

fn plan_json(plan: &Plan) -> Value {
    let findings: Vec<Value> = plan.findings.iter().map(finding_json).collect();
    json!({
        "damage": plan.damage,
        "leftovers": plan.leftovers,
        "repairable": plan.repairable,
        "findings": findings,
    })
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "damage": finding.damage.name(),
        "leftover": finding.damage.is_leftover(),
        "says": finding.to_string(),
        "inode": finding.ino.map(|ino| ino.to_string()),
        "repair": finding.repair.as_ref().map(|repair| repair.says),
    })
}

fn lines(found: &Plan, repaired: u64, left: Option<&Plan>) -> String {
    let mut text = String::new();
    for finding in &found.findings {
        let what = if finding.damage.is_leftover() { "leftover" } else { "damage  " };
        let repair = finding.repair.as_ref().map_or("no repair", |repair| repair.says);
        text.push_str(&format!("{what}  {finding}: {repair}\n"));
    }
    let all = found.damage + found.leftovers;
    let unlisted = all.saturating_sub(found.findings.len() as u64);
    if unlisted > 0 {
        text.push_str(&format!("          and {unlisted} more\n"));
    }
    let checked = &found.checked;
    text.push_str(&format!(
        "checked   {} rows: {} files and directories, {} content files\n",
        checked.rows, checked.nodes, checked.content_files
    ));
    text.push_str(&verdict(found, repaired, left));
    text
}

fn verdict(found: &Plan, repaired: u64, left: Option<&Plan>) -> String {
    let count = |plan: &Plan| format!("{} damaged, {} leftovers", plan.damage, plan.leftovers);
    let Some(left) = left else {
        return match (found.is_whole(), found.repairable) {
            (true, 0) => "result    whole\n".to_owned(),
            (true, _) => format!(
                "result    whole, {} leftovers\n\
                 next      `pelago check --apply` frees their space\n",
                found.leftovers
            ),
            (false, 0) => format!("result    {}, nothing can be repaired\n", count(found)),
            (false, repairable) => format!(
                "result    {}\nnext      `pelago check --apply` repairs {repairable} of them\n",
                count(found)
            ),
        };
    };
    let whole = if left.is_whole() { "whole now" } else { "damage is left" };
    format!("result    {repaired} repaired, {whole}: {}\n", count(left))
}

fn check_failed(error: CheckError) -> Failure {
    match error {
        CheckError::Volume(error) => {
            let in_use = matches!(error, pelago_store::volume::VolumeError::InUse { .. });
            let failure = Failure::from(error);
            if in_use { failure.hint("`pelago unmount`, then check again") } else { failure }
        }
        error => Failure::new(Exit::Damaged, error)
            .at_risk("yes, the volume cannot be read as it is")
            .hint("keep a copy of the volume's folder before anything else"),
    }
}
