//! Machines that are joined by cables to a switch: network namespaces, which root can create.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::geteuid;

use crate::harness::program::{Ran, bare, run};

/// Returns the reason to skip a test of several machines, if there is one.
pub(crate) fn cannot_network() -> Option<String> {
    if !geteuid().is_root() {
        return Some("needs root to make network namespaces".to_owned());
    }
    let name = new_name();
    let made = ip(&["netns", "add", &name]);
    let linked = ip(&["-n", &name, "link", "add", "switch", "type", "bridge"]);
    let _gone = ip(&["netns", "del", &name]);
    let failed = [made, linked].into_iter().find(|ran| ran.code != Some(0))?;
    Some(format!("not here: no network in a namespace: {}", failed.err.trim()))
}

fn ip(arguments: &[&str]) -> Ran {
    run(Command::new("ip").args(arguments))
}

/// Returns a name of this process's own for a namespace.
fn new_name() -> String {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    format!("pelago-{}-{number}", std::process::id())
}

/// A switch. The network of the machine that the test runs on is not touched.
pub(crate) struct Network {
    name: String,
}

impl Network {
    pub(crate) fn new() -> Self {
        let network = Self { name: new_name() };
        ip(&["netns", "add", &network.name]).expect_success();
        network.link(&["add", "switch", "type", "bridge"]);
        network.link(&["set", "switch", "up"]);
        network
    }

    fn link(&self, arguments: &[&str]) {
        ip(&[&["-n", &self.name, "link"], arguments].concat()).expect_success();
    }

    /// Returns a machine with this number, whose users have their homes in `home`.
    pub(crate) fn machine(&self, number: u8, home: &Path) -> Machine {
        let name = new_name();
        let port = format!("port{number}");
        let address = format!("10.77.0.{number}");
        ip(&["netns", "add", &name]).expect_success();
        let to_port = ["type", "veth", "peer", "name", &port, "netns", &self.name];
        let own = ["-n", &name];
        ip(&[&own[..], &["link", "add", "cable"], &to_port].concat()).expect_success();
        ip(&[&own[..], &["addr", "add", &format!("{address}/24"), "dev", "cable"]].concat())
            .expect_success();
        for device in ["lo", "cable"] {
            ip(&[&own[..], &["link", "set", device, "up"]].concat()).expect_success();
        }
        self.link(&["set", &port, "master", "switch"]);
        self.link(&["set", &port, "up"]);
        std::fs::create_dir_all(home).unwrap();
        Machine { name, number, address, home: home.to_owned() }
    }

    /// Pulls the cable of a machine out: packets to it and from it are lost without a word.
    pub(crate) fn cut(&self, machine: &Machine) {
        self.link(&["set", &format!("port{}", machine.number), "nomaster"]);
    }

    pub(crate) fn join(&self, machine: &Machine) {
        self.link(&["set", &format!("port{}", machine.number), "master", "switch"]);
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _gone = ip(&["netns", "del", &self.name]);
    }
}

/// A machine of a network. It shares the files and the table of mounts of this one.
pub(crate) struct Machine {
    name: String,
    number: u8,
    /// Its address in the network.
    pub(crate) address: String,
    pub(crate) home: PathBuf,
}

impl Machine {
    /// Returns the machine of a namespace, at an end of a line.
    pub(crate) fn of_namespace(name: String, address: String, home: &Path) -> Self {
        std::fs::create_dir_all(home).unwrap();
        Self { name, number: 0, address, home: home.to_owned() }
    }

    /// Returns a command that runs there; `ip netns exec` would have a table of mounts of its own.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg(program);
        bare(&mut command, &self.home);
        let binary = Path::new(env!("CARGO_BIN_EXE_pelago"));
        let folder = binary.parent().unwrap().display();
        command.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap()));
        command
    }

    /// Types a line into a shell there.
    pub(crate) fn types(&self, line: &str) -> Ran {
        run(self.command("sh").args(["-c", line])).expect_success()
    }
}

/// Types a line into a shell on a machine, whatever comes of it.
pub(crate) fn tried(machine: &Machine, line: &str) -> Ran {
    run(machine.command("sh").args(["-c", line]))
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _gone = ip(&["netns", "del", &self.name]);
    }
}
