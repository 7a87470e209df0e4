//! `pelago reached`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_mount::mountinfo;
use pelago_wire::{Reached, SentGroup, xattr};
use rustix::fs::{FileType, getxattr, stat};
use rustix::io::Errno;
use serde_json::json;

use crate::failure::{Exit, Failure, Outcome};
use crate::{json, output};

const AFTER: &str = "\
For each PATH it prints one word: done (a loss of power may take it), local (on the server's disk; \
the volume has no mirror), queued (on the server's disk, waits for its group), link (its group is \
on its way), edge (the relay has it), sent (the relay has sent it, with repair packets), or \
mirrored. Of a folder that is the last change of its own names and attributes, and not of what is \
in the files below. It works on any mount, that of a guest too, and is the extended attribute \
`user.pelago.reached`. What a program has not closed or synced may be in its own mount alone.";

/// The most bytes of the answer.
const ANSWER_BYTES: usize = 256;

/// Print how far the last changes of files have come on the way to the mirror.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// Files or folders in a mount of a volume
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints a line for each path, in their order. The first one that cannot be asked for ends it.
pub(crate) fn run(args: &Args) -> Outcome<ExitCode> {
    let mut files = Vec::new();
    for path in &args.paths {
        let reached = reached(path)?;
        match args.json {
            true => files.push(json!({
                "path": path.to_string_lossy(),
                "reached": reached.stage.name(),
                "group": reached.group.map(|group| group.number),
                "ms": reached.group.map(|group| group.age.as_millis() as u64),
            })),
            false => output::print(&line(path, &reached))?,
        }
    }
    if args.json {
        output::print_json(&json!({ "version": json::VERSION, "files": files }))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn line(path: &Path, reached: &Reached) -> String {
    let text = path.to_string_lossy();
    let path = output::name(&text);
    let group = reached.group.map_or_else(String::new, |SentGroup { number, age }| {
        let tenths = age.as_millis() / 100;
        format!(" (group {number}, {}.{} s)", tenths / 10, tenths % 10)
    });
    format!("{:<9} {path}{group}\n", reached.stage.name())
}

/// Asks the server of a file.
fn reached(path: &Path) -> Outcome<Reached> {
    let mut value = vec![0; ANSWER_BYTES];
    let count = getxattr(path, xattr::REACHED, &mut value[..]);
    let count = count.map_err(|errno| failed(path, errno))?;
    Reached::decode(&value[..count]).ok_or_else(|| {
        let path = path.display();
        Failure::new(Exit::Failed, format!("the server of {path} gives another answer"))
            .hint("use the version of pelago that serves the volume")
    })
}

fn failed(path: &Path, errno: Errno) -> Failure {
    let name = output::name(&path.to_string_lossy()).into_owned();
    let is_unknown = matches!(errno, Errno::NODATA | Errno::OPNOTSUPP);
    if is_unknown && !is_in_volume(path) {
        return Failure::new(Exit::NotFound, format!("{name} is not in a volume"))
            .hint("name a file or folder in a mount of a volume");
    }
    let kind = stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if is_unknown && !matches!(kind, Ok(FileType::RegularFile | FileType::Directory)) {
        return Failure::new(Exit::Usage, format!("{name} is neither a file nor a folder"))
            .hint("name the folder that it is in");
    }
    if is_unknown {
        return Failure::new(Exit::Failed, format!("the server of {name} does not say"))
            .hint("it may be an older version; `pelago wait --level remote` waits for all");
    }
    let exit = match errno {
        Errno::NOENT | Errno::NOTDIR => Exit::NotFound,
        Errno::ACCESS | Errno::PERM => Exit::Denied,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("cannot ask for {name}: {}", std::io::Error::from(errno)))
}

fn is_in_volume(path: &Path) -> bool {
    let mount = stat(path).ok().and_then(|stat| mountinfo::of_device(stat.st_dev).ok()?);
    mount.is_none_or(|mount| mount.fs_type == mountinfo::FS_TYPE)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use pelago_wire::MirrorStage;

    use super::*;

    #[test]
    fn a_line_says_the_stage_and_the_group() {
        let group = SentGroup { number: 12, age: Duration::from_millis(830) };
        let sent = Reached { stage: MirrorStage::Sent, group: Some(group) };
        assert_eq!(line(Path::new("a/b"), &sent), "sent      a/b (group 12, 0.8 s)\n");
        assert_eq!(line(Path::new("a"), &Reached::at(MirrorStage::Mirrored)), "mirrored  a\n");
    }
}
