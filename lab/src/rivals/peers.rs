//! The file systems that are compared, each with its server at one end and its mount at the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use pelago_testbed::mounted;
use serde_json::Value;

use crate::kit::group::Group;
use crate::kit::namespaces::{Namespaces, Side};
use crate::kit::process::{output, wait_until};
use crate::kit::report::failed;

/// How long a server may take to answer, and a mount to appear.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
const SSH_PORT: &str = "2222";
/// It starts itself again for each connection, so it wants its whole path.
pub(super) const SSHD: &str = "/usr/sbin/sshd";
const PELAGO_PORT: &str = "7440";

/// The binary, the cable and the disk on which file systems start.
pub(super) struct Lab<'a> {
    pub(super) pelago: &'a Path,
    pub(super) namespaces: &'a Namespaces,
    /// An empty folder, on the disk that all servers use.
    pub(super) folder: &'a Path,
    /// The groups in which processes start at each end; without them nothing is limited.
    pub(super) ends: Option<&'a Ends>,
}

/// The groups of a file system's processes.
pub(super) struct Ends {
    pub(super) server: Group,
    pub(super) client: Group,
}

impl Lab<'_> {
    /// Returns a command that runs at an end, in its group.
    pub(super) fn command(&self, side: Side, program: &str) -> Command {
        let command = self.namespaces.command(side, program);
        match (self.ends, side) {
            (None, _) => command,
            (Some(ends), Side::Server) => ends.server.wrap(&command),
            (Some(ends), Side::Client) => ends.client.wrap(&command),
        }
    }

    /// Runs Pelago at an end, with a home of its own, and returns what it printed.
    pub(super) fn pelago(
        &self,
        side: Side,
        step: &str,
        home: &Path,
        arguments: &[&str],
    ) -> Result<String, String> {
        let mut command = self.command(side, &self.pelago.to_string_lossy());
        command.args(arguments).env("HOME", home).env_remove("XDG_CONFIG_HOME");
        command.env_remove("PELAGO_KEY").current_dir(home);
        self.namespaces.run(step, &mut command)
    }
}

/// A file system that is mounted. On drop its mount goes; its processes end with the namespaces.
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) point: PathBuf,
    /// All its processes, at both ends.
    pub(super) processes: Vec<String>,
    /// Daemons that are our children: nothing else reaps them.
    children: Vec<Child>,
}

/// A kind of file system.
pub(super) struct Kind {
    pub(super) name: &'static str,
    /// Debian's packages that it needs.
    pub(super) packages: &'static [&'static str],
    /// Serves a folder, the first, and mounts it on the second.
    pub(super) start: fn(&Lab<'_>, &Path, &Path) -> Result<Vec<Child>, String>,
}

/// Pelago first: ratios are those of the first to each other one.
pub(super) const KINDS: [Kind; 3] = [
    Kind { name: "pelago", packages: &["fuse3"], start: pelago },
    Kind { name: "sshfs", packages: &["sshfs", "openssh-server"], start: sshfs },
    Kind { name: "gluster", packages: &["glusterfs-server", "glusterfs-client"], start: gluster },
];

impl Kind {
    /// Starts the server and mounts it.
    pub(super) fn start(&self, lab: &Lab<'_>) -> Result<Peer, String> {
        let [home, point] = ["data", "mount"].map(|part| lab.folder.join(self.name).join(part));
        for folder in [&home, &point] {
            fs::create_dir_all(folder).map_err(|why| failed(folder, &why))?;
        }
        let before = lab.namespaces.processes();
        let mut peer = Peer { name: self.name, point, processes: Vec::new(), children: Vec::new() };
        peer.children = (self.start)(lab, &home, &peer.point)?;
        until(self.name, || mounted::is_mount(&peer.point))?;
        let now = lab.namespaces.processes();
        let own = now.iter().filter(|pid| !before.contains(pid));
        peer.processes = own.map(|pid| pid.as_raw_nonzero().to_string()).collect();
        Ok(peer)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let mut unmount = Command::new("umount");
        let unmount = unmount.arg("-l").arg(&self.point);
        // A file system that did not start is not mounted.
        let ended = if mounted::is_mount(&self.point) { unmount.status().err() } else { None };
        if let Some(why) = ended {
            println!("{} stays mounted: {why}", self.point.display());
        }
        for child in &mut self.children {
            // It may have ended; the namespaces end what it has started.
            let _gone = child.kill();
            let _reaped = child.wait();
        }
    }
}

/// Unmounts the mounts below a folder, which a killed run has left.
pub(super) fn unmount_below(folder: &Path) {
    for point in mounted::mounts_below(folder) {
        if let Err(why) = Command::new("umount").arg("-l").arg(&point).status() {
            println!("{} stays mounted: {why}", point.display());
        }
    }
}

fn pelago(lab: &Lab<'_>, home: &Path, point: &Path) -> Result<Vec<Child>, String> {
    let run = |side, step: &str, arguments: &[&str]| lab.pelago(side, step, home, arguments);
    let listen = format!("{}:{PELAGO_PORT}", Side::Server.address());
    let serve = ["serve", "volume", "--listen", &listen, "--detach", "--json"];
    let said = run(Side::Server, "pelago-serve", &serve)?;
    let address = listening(&said)?;
    run(Side::Client, "pelago-key", &["key", "new"])?;
    let key = run(Side::Client, "pelago-key", &["key", "show"])?;
    run(Side::Server, "pelago-allow", &["key", "allow", key.trim(), "-V", "volume"])?;
    let mount = ["mount", &address, &point.to_string_lossy(), "--detach"];
    run(Side::Client, "pelago-mount", &mount)?;
    Ok(Vec::new())
}

/// Returns the address that a server has printed as JSON.
pub(super) fn listening(said: &str) -> Result<String, String> {
    let up: Value = serde_json::from_str(said).map_err(|why| format!("pelago serve: {why}"))?;
    let address = up["listening"].as_str().ok_or("pelago serve names no address")?;
    Ok(address.to_owned())
}

/// Serves a folder by an `sshd` of its own, with its defaults, and mounts it with those of `sshfs`.
pub(super) fn sshfs(lab: &Lab<'_>, home: &Path, point: &Path) -> Result<Vec<Child>, String> {
    let address = Side::Server.address();
    let config = prepare_sshd(home, address)?;
    let mut sshd = lab.command(Side::Server, SSHD);
    let sshd = lab.namespaces.spawn("sshfs-sshd", sshd.arg("-D").arg("-f").arg(&config))?;
    let files = home.join("files");
    fs::create_dir(&files).map_err(|why| failed(&files, &why))?;
    let mount = || {
        let mut mount = lab.command(Side::Client, "sshfs");
        mount.args(sshfs_words(home, address, &files)).arg(point);
        lab.namespaces.run("sshfs-mount", &mut mount).is_ok()
    };
    // The daemon listens a moment after its start.
    until("sshfs", mount)?;
    Ok(vec![sshd])
}

/// Makes the keys of an `sshd` at an address and of its client, and returns the configuration.
pub(super) fn prepare_sshd(home: &Path, address: &str) -> Result<PathBuf, String> {
    let config = home.join("config");
    let [key, host] = ["key", "host"].map(|name| home.join(name));
    for key in [&key, &host] {
        output(Command::new("ssh-keygen").args(["-qt", "ed25519", "-N", "", "-f"]).arg(key))?;
    }
    let lines = [
        format!("Port {SSH_PORT}"),
        format!("ListenAddress {address}"),
        format!("HostKey {}", host.display()),
        format!("AuthorizedKeysFile {}.pub", key.display()),
        format!("PidFile {}", home.join("pid").display()),
        "StrictModes no\nUsePAM no\nPasswordAuthentication no".to_owned(),
        "PermitRootLogin yes\nSubsystem sftp internal-sftp\n".to_owned(),
    ];
    fs::write(&config, lines.join("\n")).map_err(|why| failed(&config, &why))?;
    fs::create_dir_all("/run/sshd").map_err(|why| failed(Path::new("/run/sshd"), &why))?;
    Ok(config)
}

/// Returns the arguments of `sshfs` for a folder of an `sshd` that was prepared in `home`.
pub(super) fn sshfs_words(home: &Path, address: &str, folder: &Path) -> Vec<String> {
    vec![
        "-oStrictHostKeyChecking=no".to_owned(),
        "-oUserKnownHostsFile=/dev/null".to_owned(),
        format!("-oIdentityFile={}", home.join("key").display()),
        format!("-oPort={SSH_PORT}"),
        format!("root@{address}:{}", folder.display()),
    ]
}

/// Serves a volume of one brick by a `glusterd` of its own, and mounts it by FUSE, with defaults.
fn gluster(lab: &Lab<'_>, home: &Path, point: &Path) -> Result<Vec<Child>, String> {
    let [volfile, socket] = ["glusterd.vol", "socket"].map(|name| home.join(name));
    let lines = [
        "volume management\ntype mgmt/glusterd".to_owned(),
        format!("option working-directory {}", home.join("state").display()),
        format!("option glusterd-sockfile {}", socket.display()),
        "option transport-type socket\noption transport.socket.listen-port 24007".to_owned(),
        "option transport.address-family inet\nend-volume\n".to_owned(),
    ];
    fs::write(&volfile, lines.join("\n")).map_err(|why| failed(&volfile, &why))?;
    let mut daemon = lab.command(Side::Server, "glusterd");
    daemon.arg("-N").arg("-f").arg(&volfile);
    daemon.arg("-p").arg(home.join("pid")).arg("-l").arg(home.join("log"));
    let daemon = lab.namespaces.spawn("gluster-daemon", &mut daemon)?;
    let ask = |step: &str, arguments: &[&str]| {
        let mut gluster = lab.command(Side::Server, "gluster");
        gluster.arg("--mode=script").arg(format!("--glusterd-sock={}", socket.display()));
        lab.namespaces.run(step, gluster.args(arguments))
    };
    until("glusterd", || ask("gluster-list", &["volume", "list"]).is_ok())?;
    let brick = format!("{}:{}", Side::Server.address(), home.join("brick").display());
    ask("gluster-create", &["volume", "create", "rival", &brick, "force"])?;
    ask("gluster-start", &["volume", "start", "rival"])?;
    let mut mount = lab.command(Side::Client, "glusterfs");
    mount.arg(format!("--volfile-server={}", Side::Server.address()));
    mount.arg("--volfile-id=rival").arg(format!("--log-file={}", home.join("client").display()));
    lab.namespaces.run("gluster-mount", mount.arg(point))?;
    Ok(vec![daemon])
}

/// Waits until a file system has started.
pub(super) fn until(what: &str, is_so: impl FnMut() -> bool) -> Result<(), String> {
    match wait_until(PATIENCE, POLL, is_so) {
        true => Ok(()),
        false => Err(format!("{what} does not start; its logs are in the log folder")),
    }
}
