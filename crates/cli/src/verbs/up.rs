//! `pelago up`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use pelago_mount::{Atime, Trusts};
use pelago_store::volume;
use pelago_wire::limits;
use rustix::process::geteuid;

use super::level_args::LevelArgs;
use super::serving::{Printing, ServingArgs, parse_seconds};
use crate::daemon::{Daemon, HttpPlan, Plan, PointPlan};
use crate::data_path::{Passthrough, RequestArgs};
use crate::failure::{Exit, Failure, Outcome};
use crate::indexing::Indexing;
use crate::status_report::UpReport;
use crate::{detach, locate, output, size};

const AFTER: &str = "\
A volume is a folder with its data, log and control socket. It is mounted on the folder `files` \
in it, or on POINT. Ctrl-C, SIGTERM, SIGHUP and `pelago unmount` stop it cleanly; after a crash, \
the same command recovers it.";

/// Mount a volume and serve it until it is unmounted; create it if it does not exist.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER)]
pub(crate) struct Args {
    /// The volume's folder; created if it does not exist [default: ~/pelago]
    dir: Option<PathBuf>,
    /// Mount on this empty folder instead of DIR/files
    #[arg(long, value_name = "POINT")]
    mount: Option<PathBuf>,
    /// Let listed machines connect to this address of this machine, HOST:PORT; the port is 7440
    /// unless given. `pelago key allow` lists a machine
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Serve the tree over HTTP, read-only, at this address of this machine, HOST:PORT; the port is
    /// 8080 unless given
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Serve over HTTP what this user may read
    #[arg(long, value_name = "USER", default_value = "nobody", requires = "http")]
    http_as: String,
    /// Let every machine that reaches the HTTP address read
    #[arg(long, requires = "http")]
    http_public: bool,
    /// Continue in the background; the log is DIR/log
    #[arg(long)]
    detach: bool,
    /// Mount read-only
    #[arg(long)]
    read_only: bool,
    /// Do not update access times when files are read
    #[arg(long)]
    noatime: bool,
    /// Update the access time at each read; file data is then copied through this process
    #[arg(long, conflicts_with = "noatime")]
    strictatime: bool,
    /// Allow setuid programs on the mount; root only
    #[arg(long)]
    suid: bool,
    /// Allow device files on the mount; root only
    #[arg(long)]
    dev: bool,
    /// Let the kernel read and write the disk directly (FUSE passthrough): for large files (auto),
    /// for all (always) or for none (never); needs root
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Passthrough::Auto)]
    #[arg(hide_possible_values = true)]
    passthrough: Passthrough,
    #[command(flatten)]
    requests: RequestArgs,
    /// Store files up to this size, at most 64KiB, beside their names; for a new volume only
    /// [default: 4KiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_inline)]
    inline: Option<u32>,
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    indexing: Indexing,
    /// How long a program waits for another office if that is silent
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds, default_value = "10")]
    remote_timeout: u64,
    /// Bytes of this disk that copies of other offices' files may take; 0 removes them
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "8GiB")]
    cache: u64,
    #[command(flatten)]
    levels: LevelArgs,
    /// Print one JSON object when the volume is mounted
    #[arg(long)]
    pub(crate) json: bool,
}

/// Starts and mounts the volume, and serves it until it is unmounted.
pub(crate) fn run(args: Args) -> Outcome<ExitCode> {
    if args.detach {
        // A bad folder is an error of this process, not of the process in the background.
        volume_dir(&args)?;
    }
    if let Some(code) = args.serving.begin(args.detach)? {
        return Ok(code);
    }
    serve(&plan(&args)?, args.serving.printing(args.json))
}

/// Serves a volume until it is stopped.
pub(super) fn serve(plan: &Plan, how: Printing) -> Outcome<ExitCode> {
    let daemon = Daemon::start(plan)?;
    let report = daemon.report();
    if how.json {
        output::print_json(&report.to_json())?;
    } else {
        output::print(&lines(&report, &plan.dir, daemon.is_new))?;
    }
    if how.in_background {
        detach::report_ready(volume::open_log(&daemon.folder)?)?;
        daemon.run(|text| tracing::info!("{text}"))?;
        tracing::info!("stopped cleanly");
    } else {
        daemon.run(output::print_error)?;
        if !how.json {
            output::print("stopped   everything is safe\n")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn volume_dir(args: &Args) -> Outcome<PathBuf> {
    let dir = args.dir.clone().map_or_else(locate::default_dir, Ok)?;
    locate::absolute(&dir)
}

/// Turns the arguments into a plan, with absolute paths.
fn plan(args: &Args) -> Outcome<Plan> {
    let trusts = Trusts { suid: args.suid, dev: args.dev };
    if trusts != Trusts::default() && !geteuid().is_root() {
        return Err(Failure::new(Exit::Denied, "only root can mount with --suid or --dev")
            .hint("omit them, or run as root"));
    }
    let atime = match (args.noatime, args.strictatime) {
        (true, _) => Atime::Never,
        (false, true) => Atime::Always,
        (false, false) => Atime::Relative,
    };
    Ok(Plan {
        dir: volume_dir(args)?,
        point: match args.mount.as_deref().map(locate::absolute).transpose()? {
            Some(point) => PointPlan::At(point),
            None => PointPlan::Default,
        },
        listen: args.listen.clone(),
        http: args.http.clone().map(|address| HttpPlan {
            address,
            public: args.http_public,
            reader: args.http_as.clone(),
        }),
        read_only: args.read_only,
        atime,
        trusts,
        passthrough: args.passthrough,
        lag: args.levels.lag(),
        when_cut: args.levels.when_cut(),
        repair: args.levels.repair(),
        io_uring: args.requests.io_uring,
        inline_bytes: args.inline,
        memory_bytes: args.serving.memory,
        indexing: args.indexing.into(),
        remote_seconds: args.remote_timeout,
        copy_bytes: args.cache,
        joining: None,
        listens_never: false,
        site_address: None,
    })
}

/// Returns the lines that are printed when the volume is mounted.
fn lines(report: &UpReport, dir: &Path, is_new: bool) -> String {
    let how = match () {
        () if is_new => "new".to_owned(),
        () if report.started_clean => "stopped cleanly before".to_owned(),
        () => format!("recovered after a crash, {} open files checked", report.recovered.files),
    };
    format!(
        "volume    {} ({how})\n\
         {}{}\
         safe      what is closed survives a crash of pelago; what is fsynced, a loss of power\n\
         {}next      `pelago status` prints its state, `pelago unmount` stops it\n",
        dir.display(),
        report.recovered.lines(),
        where_it_is(report),
        report.speed_line(),
    )
}

/// Returns the lines with the mount point and the addresses of the volume.
fn where_it_is(report: &UpReport) -> String {
    let pid = report.pid;
    let mode = report.mode();
    let mut lines = match &report.mounted {
        Some(point) => format!("mounted   {} (process {pid}{mode})\n", point.display()),
        None => format!("served    without a mount (process {pid}{mode})\n"),
    };
    if let Some(address) = &report.listening {
        lines.push_str(&format!("listening {address}\n"));
    }
    if let Some(address) = &report.http {
        lines.push_str(&format!("http      {address}\n"));
    }
    lines
}

fn parse_inline(text: &str) -> Result<u32, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    match u32::try_from(bytes) {
        Ok(bytes) if bytes as usize <= limits::INLINE_BYTES => Ok(bytes),
        _ => Err(format!("at most {}", output::bytes(limits::INLINE_BYTES as u64))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status_report::RecoveredReport;

    fn lines_of(is_new: bool) -> String {
        lines(&UpReport::sample(), Path::new("/v"), is_new)
    }

    #[test]
    fn five_lines_are_printed_and_one_for_each_address_and_loss() {
        assert_eq!(lines_of(false).lines().count(), 10);
        let recovered = RecoveredReport { files: 3, ..RecoveredReport::default() };
        let alone = UpReport { listening: None, http: None, recovered, ..UpReport::sample() };
        assert_eq!(lines(&alone, Path::new("/v"), false).lines().count(), 5);
    }

    #[test]
    fn a_server_without_a_mount_says_nothing_of_the_mount() {
        let served = UpReport { mounted: None, listening: None, ..UpReport::sample() };
        let text = lines(&served, Path::new("/v"), false);
        assert!(text.contains("served    without a mount") && !text.contains("speed"), "{text}");
    }

    #[test]
    fn a_recovery_names_the_files_it_checked() {
        assert!(lines_of(false).contains("after a crash, 3 open files"));
    }

    #[test]
    fn a_recovery_says_which_bytes_it_has_lost() {
        let text = lines_of(false);
        assert!(text.contains("lost      4 files empty, 5 files shorter than before"), "{text}");
        assert!(text.contains("damaged   1 file: "), "{text}");
    }

    #[test]
    fn a_new_volume_was_not_recovered() {
        assert!(lines_of(true).contains("volume    /v (new)\n"));
    }

    #[test]
    fn a_read_only_mount_is_marked() {
        assert!(lines_of(false).contains("(process 7, read-only)"));
    }

    #[test]
    fn an_inline_size_above_the_limit_is_refused() {
        assert_eq!(parse_inline("64KiB"), Ok(65_536));
        assert!(parse_inline("65537").is_err());
        assert!(parse_inline("x").is_err());
    }
}
