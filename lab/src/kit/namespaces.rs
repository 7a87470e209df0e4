//! Two network namespaces joined by a cable, and the processes in them.
//!
//! A process and its descendants are found by their namespace. So daemons that leave their parents
//! end with the measurement too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use pelago_testbed::process;
use rustix::process::Pid;

use super::process::{end_all, run_step, spawn_step};

/// The beginning of each name; the process that made it follows.
const PREFIX: &str = "pelago-rivals-";

/// An end of the cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Client,
}

impl Side {
    /// Returns its address.
    pub(crate) const fn address(self) -> &'static str {
        match self {
            Self::Server => "10.77.3.1",
            Self::Client => "10.77.3.2",
        }
    }

    const fn letter(self) -> char {
        match self {
            Self::Server => 's',
            Self::Client => 'c',
        }
    }

    fn namespace(self, maker: u32) -> String {
        format!("{PREFIX}{maker}-{}", self.letter())
    }

    /// Returns the network device; a name of the kernel has 15 bytes at most.
    const fn device(self) -> &'static str {
        match self {
            Self::Server => "rival-s",
            Self::Client => "rival-c",
        }
    }
}

const SIDES: [Side; 2] = [Side::Server, Side::Client];

/// Two namespaces. On drop the processes in them are ended, and the namespaces removed.
pub(crate) struct Namespaces {
    maker: u32,
    logs: PathBuf,
}

impl Namespaces {
    /// Joins two new namespaces. Those that a killed run has left are removed before.
    pub(crate) fn join(logs: &Path) -> Result<Self, String> {
        for maker in makers().into_iter().filter(|maker| !is_alive(*maker)) {
            drop(Self { maker, logs: logs.to_owned() });
        }
        let made = Self { maker: std::process::id(), logs: logs.to_owned() };
        for side in SIDES {
            made.ip(&["netns", "add", &side.namespace(made.maker)])?;
        }
        let [server, client] = SIDES.map(|side| side.namespace(made.maker));
        let [one, other] = SIDES.map(Side::device);
        let pair = ["link", "add", one, "netns", &server, "type", "veth"];
        made.ip(&[&pair[..], &["peer", "name", other, "netns", &client]].concat())?;
        for side in SIDES {
            let namespace = side.namespace(made.maker);
            let address = side.address();
            let address = format!("{address}/30");
            made.ip(&["-n", &namespace, "addr", "add", &address, "dev", side.device()])?;
            for device in ["lo", side.device()] {
                made.ip(&["-n", &namespace, "link", "set", device, "up"])?;
            }
        }
        Ok(made)
    }

    /// Limits the sending of each end to this rate, as `tc` writes it.
    pub(crate) fn limit_rate(&self, rate: &str) -> Result<(), String> {
        for side in SIDES {
            let mut tc = self.command(side, "tc");
            tc.args(["qdisc", "replace", "dev", side.device(), "root", "tbf", "rate", rate]);
            self.run("tc", tc.args(["burst", "256kb", "latency", "20ms"]))?;
        }
        Ok(())
    }

    /// Returns a command that runs at an end.
    pub(crate) fn command(&self, side: Side, program: &str) -> Command {
        command_in(&side.namespace(self.maker), program)
    }

    /// Runs a command to its end and returns its output; a failure is an error.
    pub(crate) fn run(&self, step: &str, command: &mut Command) -> Result<String, String> {
        run_step(&self.logs, step, command)
    }

    /// Starts a daemon that stays in the foreground; its output goes to a log.
    pub(crate) fn spawn(&self, step: &str, command: &mut Command) -> Result<Child, String> {
        spawn_step(&self.logs, step, command)
    }

    /// Returns the processes at both ends.
    pub(crate) fn processes(&self) -> Vec<Pid> {
        SIDES.into_iter().flat_map(|side| processes_in(&side.namespace(self.maker))).collect()
    }

    fn ip(&self, arguments: &[&str]) -> Result<String, String> {
        self.run("ip", Command::new("ip").args(arguments))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        end_all(|| self.processes());
        for side in SIDES {
            if let Err(why) = self.ip(&["netns", "del", &side.namespace(self.maker)]) {
                println!("left behind: {why}");
            }
        }
    }
}

/// Returns the processes in a network namespace.
pub(super) fn processes_in(namespace: &str) -> Vec<Pid> {
    let said = process::output_of("ip", &["netns", "pids", namespace]).unwrap_or_default();
    said.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}

/// Returns a command that runs in a network namespace. `ip netns exec` would enter a mount
/// namespace too, and a mount made there is seen nowhere else.
pub(super) fn command_in(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}")).arg(program).env("LC_ALL", "C");
    command
}

/// Returns the processes whose namespaces exist.
fn makers() -> Vec<u32> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut makers: Vec<u32> = names.filter_map(|name| maker_of(&name)).collect();
    makers.sort_unstable();
    makers.dedup();
    makers
}

/// Returns the process that made a namespace of this name.
fn maker_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

fn is_alive(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_names_the_process_that_made_it() {
        for side in SIDES {
            assert_eq!(maker_of(&side.namespace(4711)), Some(4711));
        }
        assert_eq!(maker_of("lab-gluster"), None);
        assert!(is_alive(std::process::id()) && !is_alive(u32::MAX));
    }

    #[test]
    fn a_network_device_has_a_name_that_the_kernel_takes() {
        assert!(SIDES.iter().all(|side| side.device().len() <= 15));
    }
}
