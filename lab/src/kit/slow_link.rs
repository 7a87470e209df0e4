//! A link with delay, rate and loss between two network namespaces: the process `slowlink`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pelago_testbed::workspace;
use rustix::process::Pid;
use serde_json::Value;

use super::namespaces::{command_in, processes_in};
use super::process::output;
use super::report::text;

/// The device at each end.
const DEVICE: &str = "slow0";
/// How long the process may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// A link. On drop its namespaces go; processes in them must have ended.
pub(crate) struct SlowLink {
    child: Child,
    /// `None` after the link was told to end.
    commands: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
    ends: Value,
}

impl SlowLink {
    /// Builds the program.
    pub(crate) fn build() -> Result<PathBuf, String> {
        workspace::build(&["--bin", "slowlink"], "slowlink")
    }

    /// Makes a link by this program, with these settings.
    pub(crate) fn start(program: &Path, words: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A Ctrl-C ends us; it then sees the end of its input, and removes its namespaces.
        let mut child =
            command.process_group(0).spawn().map_err(|why| format!("slowlink: {why}"))?;
        let commands = child.stdin.take();
        let said = BufReader::new(child.stdout.take().expect("the output is a pipe"));
        let mut link = Self { child, commands, said, ends: Value::Null };
        link.ends = link.hear()?;
        Ok(link)
    }

    /// Changes the link, and returns the counts of both directions.
    pub(crate) fn tell(&mut self, words: &str) -> Result<Value, String> {
        let commands = self.commands.as_mut().expect("it is told to end on drop only");
        writeln!(commands, "{words}").map_err(|why| format!("slowlink: {why}"))?;
        let reply = self.hear()?;
        match reply["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(reply),
        }
    }

    /// Returns the address of an end, `a` or `b`.
    pub(crate) fn address(&self, end: &str) -> &str {
        text(&self.ends[end], "address")
    }

    /// Returns a command that runs at an end, `a` or `b`.
    pub(crate) fn command(&self, end: &str, program: &str) -> Command {
        command_in(text(&self.ends[end], "namespace"), program)
    }

    /// Has the connections of TCP from an end to an address that begin from now on use this
    /// congestion control. It is a property of the route, for which a namespace needs no leave of
    /// the machine.
    pub(crate) fn set_control(&self, end: &str, to: &str, name: &str) -> Result<(), String> {
        let mut route = self.command(end, "ip");
        output(route.args(["route", "replace", to, "dev", DEVICE, "congctl", name])).map(drop)
    }

    /// Returns the processes at both ends.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        let ends = ["a", "b"].into_iter();
        ends.flat_map(|end| processes_in(text(&self.ends[end], "namespace"))).collect()
    }

    fn hear(&mut self) -> Result<Value, String> {
        let mut line = String::new();
        self.said.read_line(&mut line).map_err(|why| format!("slowlink: {why}"))?;
        serde_json::from_str(&line).map_err(|why| format!("slowlink: {why}: {line}"))
    }
}

impl Drop for SlowLink {
    fn drop(&mut self) {
        drop(self.commands.take());
        let until = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(POLL);
        }
        println!("killed: slowlink did not end; its next run removes its namespaces");
        // It may have ended now.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}
