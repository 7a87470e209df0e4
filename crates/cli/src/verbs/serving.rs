//! Options, start and end that the verbs share which serve until they are stopped.

use std::process::ExitCode;

use pelago_store::folder::Folder;
use pelago_store::volume;
use pelago_wire::limits;
use serde_json::Value;

use crate::daemon::Events;
use crate::failure::Outcome;
use crate::{detach, log, output, size};

/// The options of these verbs that have one help text.
#[derive(Debug, clap::Args)]
pub(super) struct ServingArgs {
    /// Memory for caches and tables, at least 20MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, default_value = "160MiB")]
    pub(super) memory: u64,
    #[command(flatten)]
    process: ProcessArgs,
}

/// The options of each process that serves, with or without a volume.
#[derive(Debug, clap::Args)]
pub(super) struct ProcessArgs {
    #[command(flatten)]
    log: log::LogArgs,
    /// Be the background process of `--detach`
    #[arg(long, hide = true)]
    in_background: bool,
}

/// The format and the destination of what a process prints.
#[derive(Clone, Copy)]
pub(crate) struct Printing {
    pub(crate) json: bool,
    pub(crate) in_background: bool,
}

impl ServingArgs {
    /// Begins the log, as [`ProcessArgs::begin`] does.
    pub(super) fn begin(&self, detach: bool) -> Outcome<Option<ExitCode>> {
        self.process.begin(detach)
    }

    pub(super) const fn printing(&self, json: bool) -> Printing {
        self.process.printing(json)
    }
}

impl ProcessArgs {
    /// Begins the log, as the process in the foreground or as that in the background. If `detach`
    /// asks for the latter, starts it and returns its exit code: this process is to end then.
    pub(super) fn begin(&self, detach: bool) -> Outcome<Option<ExitCode>> {
        if detach && !self.in_background {
            return detach::restart_in_background().map(Some);
        }
        if self.in_background {
            detach::leave_terminal();
        }
        log::begin(self.log, self.in_background);
        Ok(None)
    }

    pub(super) const fn printing(&self, json: bool) -> Printing {
        Printing { json, in_background: self.in_background }
    }
}

impl Printing {
    /// Prints that a process has started which serves no volume, as one of both, and waits until it
    /// is to stop. Its log is in `folder`.
    pub(crate) fn until_stopped(
        self,
        folder: &Folder,
        events: Events,
        json: &Value,
        text: &str,
    ) -> Outcome<()> {
        match self.json {
            true => output::print_json(json)?,
            false => output::print(text)?,
        }
        if !self.in_background {
            return events.wait(None, false, output::print_error);
        }
        detach::report_ready(volume::open_log(folder)?)?;
        events.wait(None, false, |text| tracing::info!("{text}"))
    }

    /// Prints a last line to a person who waits for it.
    pub(crate) fn last_line(self, line: &str) -> Outcome<()> {
        match self.json || self.in_background {
            true => Ok(()),
            false => output::print(line),
        }
    }
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = size::parse(text).map_err(|error| error.to_string())?;
    if bytes < limits::LEAST_MEMORY_BYTES {
        return Err(format!("at least {}", output::bytes(limits::LEAST_MEMORY_BYTES)));
    }
    Ok(bytes)
}

/// Parses a time in seconds, from 1 second to an hour.
pub(super) fn parse_seconds(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(seconds @ 1..=3600) => Ok(seconds),
        _ => Err("a number of seconds, from 1 to 3600".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_size_below_the_limit_is_refused() {
        assert_eq!(parse_memory("20MiB"), Ok(20 << 20));
        assert_eq!(parse_memory("20971519"), Err("at least 20 MiB".to_owned()));
        assert!(parse_memory("much").is_err());
    }

    #[test]
    fn the_default_memory_size_is_the_servers() {
        assert_eq!(parse_memory("160MiB"), Ok(pelago_server::MEMORY_BYTES));
    }
}
