//! The servers that are compared, and the way in which each starts.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::lab::Lab;
use super::load::{Load, LoadKind};
use crate::kit::process::wait_until;
use crate::kit::report::failed;

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A server, and the form in which the crowd asks for the file.
pub(super) struct Contender {
    pub(super) name: &'static str,
    kind: Kind,
    /// The crowd takes the blocks in any order.
    pub(super) is_any_order: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ours,
    /// nginx that gives pages of the page cache to the sockets.
    Sendfile,
    /// nginx that copies them, as every server must that changes or checks what it sends. It is
    /// there for its processor time.
    Copying,
}

/// All of them, in the order of tables.
pub(super) const CONTENDERS: [Contender; 4] = [
    Contender { name: "nginx", kind: Kind::Sendfile, is_any_order: false },
    Contender { name: "copying", kind: Kind::Copying, is_any_order: false },
    Contender { name: "plain", kind: Kind::Ours, is_any_order: false },
    Contender { name: "blocks", kind: Kind::Ours, is_any_order: true },
];

/// A server that listens. On drop it gets `SIGTERM`, and is killed if it does not stop.
pub(super) struct Server {
    child: Child,
    /// `ADDRESS:PORT`.
    address: String,
}

impl Server {
    /// Returns `ADDRESS:PORT/PATH` of a file.
    pub(super) fn url_of(&self, file: &str) -> String {
        format!("{}/{file}", self.address)
    }
}

impl Contender {
    /// Starts the server; `wrap` returns a command that runs a program in its group or namespace.
    pub(super) fn start(
        &self,
        lab: &Lab,
        wrap: impl Fn(&Path) -> Command,
    ) -> Result<Server, String> {
        match self.kind {
            Kind::Ours => ours(lab, wrap, &["--http", "127.0.0.1:0"]),
            Kind::Sendfile => nginx(lab, wrap, "on"),
            Kind::Copying => nginx(lab, wrap, "off"),
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        self.kind == Kind::Ours
    }

    /// Returns whether a load is of use with it.
    pub(super) fn takes(&self, load: &Load) -> bool {
        self.kind != Kind::Copying || load.kind == LoadKind::Cached
    }
}

/// Starts our server with these further options.
pub(super) fn ours(
    lab: &Lab,
    wrap: impl Fn(&Path) -> Command,
    options: &[&str],
) -> Result<Server, String> {
    let mut command = wrap(&lab.pelago);
    command.arg("up").arg(lab.volume()).args(["--json", "--memory", lab.scale.memory]);
    command.args(options).env("HOME", &lab.disk.point).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(lab.log("pelago")?);
    let child = command.spawn().map_err(|why| format!("pelago up: {why}"))?;
    let mut server = Server { child, address: String::new() };
    let mut line = String::new();
    let out = server.child.stdout.take().expect("the output is a pipe");
    BufReader::new(out).read_line(&mut line).map_err(|why| format!("pelago up: {why}"))?;
    let up: Value = serde_json::from_str(&line).map_err(|why| format!("pelago up: {why}"))?;
    let url = up["http"].as_str().unwrap_or_default();
    server.address = url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    Ok(server)
}

/// Starts nginx as one would for large files: threads wait for the disk, and none sends for long.
fn nginx(lab: &Lab, wrap: impl Fn(&Path) -> Command, sendfile: &str) -> Result<Server, String> {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.map_err(|why| format!("no free port: {why}"))?;
    let home = lab.disk.point.join("nginx");
    fs::create_dir_all(&home).map_err(|why| failed(&home, &why))?;
    let shown = home.display();
    let paths: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("  {kind}_temp_path {shown}/{kind};\n"))
        .concat();
    let text = format!(
        "worker_processes 2;\ndaemon off;\nuser root;\npid {shown}/pid;\nerror_log {shown}/log;\n\
         events {{ worker_connections 2048; }}\nhttp {{\n  access_log off;\n  \
         sendfile {sendfile};\n  aio threads;\n  sendfile_max_chunk 512k;\n{paths}  \
         server {{ listen {address}; root {}; }}\n}}\n",
        lab.plain().display()
    );
    let config = home.join("config");
    fs::write(&config, text).map_err(|why| failed(&config, &why))?;
    let mut command = wrap(Path::new("/usr/sbin/nginx"));
    command.arg("-c").arg(&config).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(lab.log("nginx")?);
    let child = command.spawn().map_err(|why| format!("nginx: {why}"))?;
    let server = Server { child, address: address.to_string() };
    match wait_until(PATIENCE, POLL, || TcpStream::connect(address).is_ok()) {
        true => Ok(server),
        false => Err("nginx does not listen".to_owned()),
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended.
            let _gone = kill_process(pid, Signal::TERM);
        }
        if !wait_until(PATIENCE, POLL, || !matches!(self.child.try_wait(), Ok(None))) {
            println!("killed: a server that did not stop");
            let _gone = self.child.kill();
            let _reaped = self.child.wait();
        }
    }
}
