//! `pelago up`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_mount::{Atime, Trusts};
use pelago_store::volume;
use pelago_wire::limits;
use rustix::process::geteuid;
use serde_json::Value;

use crate::daemon::{Daemon, Passthrough, Plan, way};
use crate::detach;
use crate::failure::{Exit, Failure, Outcome};
use crate::{log, output, place, size};

/// Bring a volume up: make it if there is none, mount it, and serve it until it is unmounted.
///
/// The volume is a folder: data, log and control socket lie in it, and it is mounted on its folder
/// `files` unless told otherwise. Ctrl-C, SIGTERM, SIGHUP and `pelago unmount` stop it cleanly;
/// after a crash, the same command brings it up again.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The volume's folder; made if it is missing [default: ~/pelago]
    dir: Option<PathBuf>,
    /// Mount on this empty folder instead of DIR/files
    #[arg(long, value_name = "POINT")]
    mount: Option<PathBuf>,
    /// Go on in the background; the log is DIR/log
    #[arg(long)]
    detach: bool,
    /// Take no changes
    #[arg(long)]
    read_only: bool,
    /// Leave times alone when files are read
    #[arg(long)]
    noatime: bool,
    /// Note the time of each read; bytes go through this process then
    #[arg(long, conflicts_with = "noatime")]
    strictatime: bool,
    /// Let setuid programs of the volume count; root only
    #[arg(long)]
    suid: bool,
    /// Let devices of the volume count; root only
    #[arg(long)]
    dev: bool,
    /// Let the kernel read and write files itself, past this process: where they are large (auto),
    /// always or never; needs root
    #[arg(long, value_enum, value_name = "WHERE", default_value_t = Passthrough::Auto)]
    #[arg(hide_possible_values = true)]
    passthrough: Passthrough,
    /// Keep files up to this size, at most 64KiB, beside their names; counts when the volume is
    /// made [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_inline)]
    inline: Option<u32>,
    /// Take this much memory for caches and tables, at least 20MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, default_value = "160MiB")]
    memory: u64,
    /// Print one JSON object when it is up
    #[arg(long)]
    pub(crate) json: bool,
    /// How `--detach` starts itself again
    #[arg(long, hide = true)]
    in_background: bool,
}

/// Brings it up.
pub(crate) fn run(args: Args) -> Outcome<ExitCode> {
    let dir = args.dir.clone().map_or_else(place::default_dir, Ok)?;
    let dir = place::absolute(&dir)?;
    if args.detach && !args.in_background {
        return detach::start_again();
    }
    if args.in_background {
        detach::leave_terminal()?;
        log::hold();
    } else {
        log::to_terminal();
    }
    let trusts = Trusts { suid: args.suid, dev: args.dev };
    if trusts != Trusts::default() && !geteuid().is_root() {
        return Err(Failure::new(Exit::Denied, "only root can mount with --suid or --dev")
            .hint("bring it up without them, or as root"));
    }
    let atime = match (args.noatime, args.strictatime) {
        (true, _) => Atime::Never,
        (false, true) => Atime::Always,
        (false, false) => Atime::Relative,
    };
    let point = args.mount.as_deref().map(place::absolute).transpose()?;
    let plan = Plan {
        dir,
        point,
        read_only: args.read_only,
        atime,
        trusts,
        passthrough: args.passthrough,
        inline_bytes: args.inline,
        memory_bytes: args.memory,
    };
    let daemon = Daemon::start(&plan)?;
    let object = daemon.describe();
    if args.json {
        output::print_json(&object)?;
    } else {
        output::print(&lines(&object, &plan.dir, daemon.is_new))?;
    }
    if args.in_background {
        detach::let_go(volume::open_log(&daemon.folder)?)?;
        daemon.run(|text| tracing::info!("{text}"))?;
        tracing::info!("stopped cleanly");
    } else {
        daemon.run(output::tell)?;
        if !args.json {
            output::print("stopped   everything is safe\n")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What a person is told when a volume is up.
fn lines(object: &Value, dir: &Path, is_new: bool) -> String {
    let recovered = &object["volume"]["recovered"];
    let how = match () {
        () if is_new => "new".to_owned(),
        () if object["volume"]["started_clean"] == true => "stopped cleanly before".to_owned(),
        () => format!("recovered after a crash, {} open files looked at", recovered["files"]),
    };
    let mode = if object["read_only"] == true { ", read-only" } else { "" };
    format!(
        "volume    {} ({how})\n\
         mounted   {} (process {}{mode})\n\
         safe      what is closed survives a crash of pelago; what is fsynced, a loss of power\n\
         {}next      `pelago status` says how it is, `pelago unmount` ends it\n",
        dir.display(),
        object["mounted"].as_str().unwrap_or_default(),
        object["pid"],
        way::line(object),
    )
}

fn parse_inline(text: &str) -> Result<u32, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    match u32::try_from(bytes) {
        Ok(bytes) if bytes as usize <= limits::INLINE_BYTES => Ok(bytes),
        _ => Err(format!("at most {}", output::bytes(limits::INLINE_BYTES as u64))),
    }
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    if bytes < limits::LEAST_MEMORY_BYTES {
        return Err(format!("at least {}", output::bytes(limits::LEAST_MEMORY_BYTES)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn five_lines_at_most() {
        let object = json!({
            "volume": { "started_clean": false, "recovered": { "files": 3 } },
            "mounted": "/v/files",
            "pid": 7,
            "read_only": true,
            "passthrough": { "wanted": "auto", "why_not": null },
        });
        let text = lines(&object, Path::new("/v"), false);
        assert_eq!(text.lines().count(), 5);
        assert!(text.contains("after a crash, 3 open files"), "{text}");
        assert!(text.contains("(process 7, read-only)"), "{text}");
    }

    #[test]
    fn inline_sizes_have_a_limit() {
        assert_eq!(parse_inline("64KiB"), Ok(65_536));
        assert!(parse_inline("65537").is_err());
        assert!(parse_inline("x").is_err());
    }

    #[test]
    fn memory_has_a_least_and_the_default_is_the_servers() {
        assert_eq!(parse_memory("20MiB"), Ok(20 << 20));
        assert_eq!(parse_memory("20971519"), Err("at least 20 MiB".to_owned()));
        assert!(parse_memory("much").is_err());
        assert_eq!(parse_memory("160MiB"), Ok(pelago_server::MEMORY_BYTES));
    }
}
