//! A measurement over a line of its own: a receiver at one end, senders at the other.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::kit::process::output;
use crate::kit::report::failed;
use crate::kit::slow_link::SlowLink;

use super::PORT;

/// The buffers of TCP at both ends: the least, the usual and the greatest, in bytes.
const TCP_BUFFERS: &str = "4096 131072 67108864";

/// A line with a receiver. A drop ends both.
pub(super) struct Line {
    receiver: Receiver,
    link: SlowLink,
    folder: PathBuf,
}

/// The process at the end of the line.
struct Receiver {
    child: Child,
    questions: Option<ChildStdin>,
    said: BufReader<ChildStdout>,
}

/// What one sender does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender<'a> {
    /// `cubic` or `bbr` of the kernel's TCP, `plain`, or the repair of datagrams.
    pub(super) how: &'a str,
    /// A number by which its bytes are counted.
    pub(super) volume: u8,
    /// `bulk`, or messages a second.
    pub(super) work: &'a str,
    pub(super) seconds: u32,
}

/// What the receiver got from one sender, and what that said.
#[derive(Debug)]
pub(super) struct Got {
    /// Bytes of each tenth of a second since the first one.
    pub(super) tenths: Vec<f64>,
    /// Milliseconds of each message that arrived.
    pub(super) millis: Vec<f64>,
    /// Messages or bytes that were sent.
    pub(super) sent: f64,
    /// Repair packets for each data packet.
    pub(super) repair: Option<f64>,
    /// What the sender knows of its datagrams; null without any.
    pub(super) status: Value,
}

impl Line {
    /// Starts a line with these words and this seed.
    pub(super) fn start(
        slowlink: &Path,
        logs: &Path,
        words: &[String],
        seed: u32,
    ) -> Result<Self, String> {
        let seed = format!("seed={seed}");
        let words: Vec<&str> = words.iter().map(String::as_str).chain([seed.as_str()]).collect();
        let link = SlowLink::start(slowlink, &words)?;
        for end in ["a", "b"] {
            for buffers in ["tcp_rmem", "tcp_wmem"] {
                set(&link, end, buffers, TCP_BUFFERS)?;
            }
        }
        let folder = logs.join("receiver");
        fs::create_dir_all(&folder).map_err(|why| failed(&folder, &why))?;
        let at = format!("{}:{PORT}", link.address("b"));
        let mut command = own(&link, "b")?;
        command.args(["receive", &at]).arg(&folder);
        Ok(Self { receiver: Receiver::start(command)?, link, folder })
    }

    /// Has these senders send at the same time; returns what the receiver got from each.
    pub(super) fn measure(&mut self, senders: &[Sender<'_>]) -> Result<Vec<Got>, String> {
        let at = format!("{}:{PORT}", self.link.address("b"));
        let mut running = Vec::new();
        for sender in senders {
            let how = match sender.how {
                "cubic" | "bbr" => {
                    self.link.set_control("a", self.link.address("b"), sender.how)?;
                    "tcp"
                }
                how => how,
            };
            let mut command = own(&self.link, "a")?;
            command.args(["send", how, &at, &sender.volume.to_string(), sender.work]);
            command.arg(sender.seconds.to_string());
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            running.push(command.spawn().map_err(|why| format!("a sender: {why}"))?);
            if how == "tcp" {
                // The socket of the next one may have another control.
                std::thread::sleep(std::time::Duration::from_millis(500));
            }
        }
        let said = running.into_iter().map(finish).collect::<Result<Vec<Value>, String>>()?;
        let got = self.receiver.ask()?;
        let all = senders.iter().zip(said);
        Ok(all.map(|(sender, said)| Got::new(&got[sender.volume.to_string()], said)).collect())
    }

    /// Returns the packets that the queue in front of the line had no room for, and all that came.
    pub(super) fn overflowed(&mut self) -> Result<[f64; 2], String> {
        let counts = self.link.tell("counts")?;
        Ok(["overflowed", "came"].map(|of| counts["ab"][of]["packets"].as_f64().unwrap_or(0.0)))
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // Its input ends, and so does it, before the namespaces go.
        drop(self.receiver.questions.take());
        let _gone = self.receiver.child.kill();
        let _reaped = self.receiver.child.wait();
        // The next line makes it again.
        let _gone = fs::remove_dir_all(&self.folder);
    }
}

impl Receiver {
    fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|why| format!("the receiver: {why}"))?;
        let questions = child.stdin.take();
        let said = BufReader::new(child.stdout.take().expect("the output is a pipe"));
        let mut receiver = Self { child, questions, said };
        match receiver.hear()?.trim() {
            "ready" => Ok(receiver),
            other => Err(format!("the receiver says `{other}`")),
        }
    }

    fn ask(&mut self) -> Result<Value, String> {
        let questions = self.questions.as_mut().expect("it ends on drop only");
        writeln!(questions, "report").map_err(|why| format!("the receiver: {why}"))?;
        let said = self.hear()?;
        serde_json::from_str(&said).map_err(|why| format!("the receiver: {why}: {said}"))
    }

    fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.said.read_line(&mut line).map_err(|why| format!("the receiver: {why}"))?;
        Ok(line)
    }
}

impl Got {
    fn new(got: &Value, said: Value) -> Self {
        let numbers = |of: &Value| -> Vec<f64> {
            of.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
        };
        let status = said["status"].clone();
        let packets = status["data"].as_f64().zip(status["repair"].as_f64());
        Self {
            tenths: numbers(&got["tenths"]),
            millis: numbers(&got["millis"]),
            sent: said["sent"].as_f64().unwrap_or(f64::NAN),
            repair: packets.map(|(data, repair)| repair / data),
            status,
        }
    }

    /// Returns the Mbit/s that arrived in these seconds, counted from the first byte.
    pub(super) fn mbit(&self, from: u32, until: u32) -> f64 {
        let [from, until] = [from, until].map(|second| second as usize * 10);
        let bytes: f64 = self.tenths.iter().take(until).skip(from).sum();
        bytes * 8.0 / 1e6 / ((until - from) as f64 / 10.0)
    }

    /// Returns the Mbit/s that arrived in each whole second.
    pub(super) fn series(&self) -> Vec<f64> {
        (0..self.tenths.len() as u32 / 10).map(|second| self.mbit(second, second + 1)).collect()
    }

    /// Returns the milliseconds within which this part of all messages arrived; infinite if so many
    /// did not.
    pub(super) fn within(&self, part: f64) -> f64 {
        let mut millis = self.millis.clone();
        millis.sort_by(f64::total_cmp);
        let at = (self.sent * part).ceil() as usize;
        millis.get(at.saturating_sub(1)).copied().unwrap_or(f64::INFINITY)
    }
}

/// Returns a command that runs this program at an end.
fn own(link: &SlowLink, end: &str) -> Result<Command, String> {
    let program = std::env::current_exe().map_err(|why| format!("this program: {why}"))?;
    let mut command = link.command(end, &program.display().to_string());
    command.arg("mirror");
    Ok(command)
}

/// Sets a property of TCP at an end.
fn set(link: &SlowLink, end: &str, name: &str, value: &str) -> Result<(), String> {
    let line = format!("echo {value} > /proc/sys/net/ipv4/{name}");
    output(link.command(end, "sh").args(["-c", &line])).map(drop)
}

fn finish(child: Child) -> Result<Value, String> {
    let ended = child.wait_with_output().map_err(|why| format!("a sender: {why}"))?;
    let said = String::from_utf8_lossy(&ended.stdout);
    match ended.status.success() {
        true => serde_json::from_str(said.trim()).map_err(|why| format!("a sender: {why}: {said}")),
        false => Err(format!("a sender: {}", String::from_utf8_lossy(&ended.stderr).trim())),
    }
}
