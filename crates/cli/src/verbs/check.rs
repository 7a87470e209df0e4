//! `pelago check`.

use std::path::PathBuf;
use std::process::ExitCode;

use pelago_check::{self as check, CheckError, Finding, Plan};
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::retry::retry_while_exiting;
use crate::{json, locate, log, output};

const AFTER: &str = "\
It compares the rows of the table, the stored bytes and the content files. Without --apply it \
changes nothing. Leftovers of a crash only take space; they are not damage. The exit code is 7 \
if damage is left.";

/// Check an unmounted volume for damage (fsck), or repair it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The volume's folder
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Repair the damage that can be repaired, and free leftovers
    #[arg(long)]
    apply: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Checks the volume; the exit code is that of "damaged" if damage is left.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    log::to_terminal();
    let dir = match &args.dir {
        Some(dir) => locate::absolute(dir)?,
        None => locate::find(None, None)?.dir,
    };
    let (found, repaired, left) = if args.apply {
        let applied = retry_while_exiting(&dir, || check::apply(&dir)).map_err(check_failed)?;
        (applied.before, applied.repaired, Some(applied.after))
    } else {
        (retry_while_exiting(&dir, || check::plan(&dir)).map_err(check_failed)?, 0, None)
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
        let kind = if finding.damage.is_leftover() { "leftover" } else { "damage  " };
        let repair = finding.repair.as_ref().map_or("cannot be repaired", |repair| repair.says);
        text.push_str(&format!("{kind}  {finding}: {repair}\n"));
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
    text.push_str(&result_lines(found, repaired, left));
    text
}

fn result_lines(found: &Plan, repaired: u64, left: Option<&Plan>) -> String {
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
    let state = if left.is_whole() { "whole now" } else { "damage is left" };
    format!("result    {repaired} repaired, {state}: {}\n", count(left))
}

fn check_failed(error: CheckError) -> Failure {
    match error {
        CheckError::Volume(error) => {
            let in_use = matches!(error, pelago_store::volume::VolumeError::InUse { .. });
            let failure = Failure::from(error);
            if in_use { failure.hint("run `pelago unmount`, then check again") } else { failure }
        }
        error => Failure::new(Exit::Damaged, error)
            .at_risk("yes, the volume cannot be read as it is")
            .hint("copy the volume's folder before you change anything"),
    }
}
