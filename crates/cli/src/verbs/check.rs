//! `pelago check`: checks, repairs or salvages a volume that is not mounted, and prints the result.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_check::{self as check, CheckError, Finding, Plan, SalvageError, Salvaged};
use pelago_store::volume::VolumeError;
use serde_json::{Value, json};

use crate::failure::{Exit, Failure, Outcome};
use crate::retry::retry_while_exiting;
use crate::{json, locate, log, output};

const AFTER: &str = "\
It compares the rows of the table, the stored bytes and the content files. Without --apply it \
changes nothing. Leftovers of a crash only take space, and what the next start corrects is listed \
as pending; they are not damage. The exit code is 7 if damage is left.

With --salvage it copies what can be read into TO/files, what has no name any more into \
TO/lost+found, and says in TO/report what is lost; DIR is not changed. The exit code is 7 if \
something is lost.";

/// Check an unmounted volume for damage (fsck), or repair it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The volume's folder
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// With --salvage: the folder to copy to, empty or missing
    #[arg(value_name = "TO", requires = "salvage")]
    to: Option<PathBuf>,
    /// Repair the damage that can be repaired, and free leftovers
    #[arg(long)]
    apply: bool,
    /// Copy what can be read of DIR into TO, also if nothing else can open it
    #[arg(long, conflicts_with = "apply", requires = "to")]
    salvage: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Checks the volume. The exit code is that of "damaged" if damage is left.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    log::to_terminal();
    let dir = match &args.dir {
        Some(dir) => locate::absolute(dir)?,
        None => locate::find(None, None)?.dir,
    };
    // A server of a shared store has no volume of its own.
    let dir = locate::store_of(&dir).unwrap_or(dir);
    if let Some(to) = args.to.as_deref().filter(|_| args.salvage) {
        return salvage(&dir, &locate::absolute(to)?, args.json);
    }
    let (found, repaired, left) = if args.apply {
        let applied = retry_while_exiting(&dir, || check::apply(&dir));
        let applied = applied.map_err(|error| check_failed(error, &dir))?;
        (applied.before, applied.repaired, Some(applied.after))
    } else {
        let found = retry_while_exiting(&dir, || check::plan(&dir));
        (found.map_err(|error| check_failed(error, &dir))?, 0, None)
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
                "named_elsewhere": found.checked.named_elsewhere,
                "stays": found.checked.stays,
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

/// Copies all readable files. The exit code is that of "damaged" if something is lost.
fn salvage(dir: &Path, to: &Path, json: bool) -> Outcome<ExitCode> {
    let done = retry_while_exiting(dir, || check::salvage(dir, to));
    let done = done.map_err(|error| salvage_failed(error, dir, to))?;
    if json {
        output::print_json(&json!({
            "version": json::VERSION,
            "volume": { "dir": dir.to_string_lossy() },
            "to": to.to_string_lossy(),
            "files": done.files,
            "directories": done.directories,
            "bytes": done.bytes,
            "found": done.found,
            "lost": done.lost,
            "report": done.lines,
            "whole": done.is_whole(),
        }))?;
    } else {
        output::print(&salvage_lines(&done, to))?;
    }
    Ok(if done.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(Exit::Damaged as u8) })
}

/// The number of lines of the report that are printed.
const PRINTED_LINES: usize = 20;

fn salvage_lines(done: &Salvaged, to: &Path) -> String {
    let mut text = String::new();
    for line in done.lines.iter().take(PRINTED_LINES) {
        text.push_str(&line.replacen("  ", "      ", 1));
        text.push('\n');
    }
    if done.lines.len() > PRINTED_LINES {
        text.push_str(&format!("          and more, in {}\n", to.join("report").display()));
    }
    let Salvaged { files, directories, bytes, found, lost, .. } = done;
    let bytes = output::bytes(*bytes);
    text.push_str(&format!(
        "copied    {files} files, {directories} directories, {bytes} to {}\n",
        to.join("files").display()
    ));
    if *found > 0 {
        let place = to.join("lost+found");
        text.push_str(&format!("found     {found} without their names, in {}\n", place.display()));
    }
    text.push_str(&match lost {
        0 => "result    whole\n".to_owned(),
        lost => format!("result    {lost} losses, in {}\n", to.join("report").display()),
    });
    text
}

fn salvage_failed(error: SalvageError, dir: &Path, to: &Path) -> Failure {
    match error {
        SalvageError::Volume(error) => volume_failed(error, dir),
        // Their texts say what to do.
        SalvageError::NotEmpty { .. } | SalvageError::Inside { .. } => {
            Failure::new(Exit::Failed, error)
        }
        error => Failure::new(Exit::Failed, error).hint(format!(
            "empty {}, then salvage again, or name another folder for the copy",
            to.display()
        )),
    }
}

fn plan_json(plan: &Plan) -> Value {
    let findings: Vec<Value> = plan.findings.iter().map(finding_json).collect();
    json!({
        "damage": plan.damage,
        "leftovers": plan.leftovers,
        "pending": plan.pending,
        "repairable": plan.repairable,
        "findings": findings,
    })
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "damage": finding.damage.name(),
        "leftover": finding.damage.is_leftover(),
        "next_start": finding.damage.next_start(),
        "says": finding.to_string(),
        "inode": finding.ino.map(|ino| ino.to_string()),
        "repair": finding.repair.as_ref().map(|repair| repair.says),
    })
}

fn lines(found: &Plan, repaired: u64, left: Option<&Plan>) -> String {
    let mut text = String::new();
    for finding in &found.findings {
        let damage = finding.damage;
        let kind = match () {
            () if damage.is_leftover() => "leftover",
            () if damage.is_pending() => "pending ",
            () => "damage  ",
        };
        let repair = finding.repair.as_ref().map(|repair| repair.says);
        let repair = repair.or_else(|| damage.next_start()).unwrap_or("cannot be repaired");
        text.push_str(&format!("{kind}  {finding}: {repair}\n"));
    }
    let all = found.damage + found.leftovers + found.pending;
    let unlisted = all.saturating_sub(found.findings.len() as u64);
    if unlisted > 0 {
        text.push_str(&format!("          and {unlisted} more\n"));
    }
    let checked = &found.checked;
    text.push_str(&format!(
        "checked   {} rows: {} files and directories, {} content files\n",
        checked.rows, checked.nodes, checked.content_files
    ));
    if checked.named_elsewhere > 0 {
        text.push_str(&format!(
            "elsewhere {} directories have their name at another site, or none\n",
            checked.named_elsewhere
        ));
    }
    if checked.stays > 0 {
        text.push_str(&format!(
            "staying   {} files of other sites have their bytes here\n",
            checked.stays
        ));
    }
    text.push_str(&result_lines(found, repaired, left));
    text
}

fn result_lines(found: &Plan, repaired: u64, left: Option<&Plan>) -> String {
    let count = |plan: &Plan| format!("{} damaged, {} leftovers", plan.damage, plan.leftovers);
    let Some(left) = left else {
        return match (found.is_whole(), found.repairable) {
            (true, 0) if found.pending > 0 => format!(
                "result    whole, {} files to be corrected\n\
                 next      `pelago up` corrects them, as after each crash\n",
                found.pending
            ),
            (true, 0) => "result    whole\n".to_owned(),
            (true, _) => format!(
                "result    whole, {} leftovers{}\n\
                 next      `pelago check --apply` frees their space\n",
                found.leftovers,
                match found.pending {
                    0 => String::new(),
                    pending => format!(", {pending} files to be corrected by the next start"),
                }
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

fn check_failed(error: CheckError, dir: &Path) -> Failure {
    match error {
        CheckError::Volume(error) => volume_failed(error, dir),
        error @ CheckError::Shared => Failure::new(Exit::Failed, error)
            .hint("`pelago check` without --apply lists what it finds"),
        error @ CheckError::Owned { .. } => Failure::new(Exit::Unreachable, error)
            .hint("`pelago unmount -V DIR` stops the server of DIR"),
        CheckError::Store(error) => Failure::new(Exit::from(error.kind()), error),
        error => Failure::new(Exit::Damaged, error)
            .at_risk("yes, the volume cannot be read as it is")
            .hint(salvage_hint(dir)),
    }
}

/// Returns the hint for a volume that cannot be opened.
pub(crate) fn salvage_hint(dir: &Path) -> String {
    let dir = dir.display();
    format!("`pelago check --salvage {dir} TO` copies what can be read into the folder TO")
}

fn volume_failed(error: VolumeError, dir: &Path) -> Failure {
    let hint = match &error {
        VolumeError::InUse { .. } => "run `pelago unmount`, then check again".to_owned(),
        VolumeError::Corrupt { .. } => salvage_hint(dir),
        _ => return Failure::from(error),
    };
    Failure::from(error).hint(hint)
}
