//! The costs of leases between two clients of one server (`pelago bench leases`), as in the table
//! of Ringer's evaluation: getting one, using it, and its end.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use pelago_client::{At, Files};
use pelago_wire::{Context, Error, Handle, Name, NewMode, OpenFlags, OpenId, SetAttr};
use serde_json::{Value, json};

use crate::process::own_cpu;
use crate::report::write_line;
use crate::{BenchError, JSON_VERSION};

/// Two clients of one server, over one kind of connection.
#[derive(Debug)]
pub struct LeaseClients {
    /// The kind of connection: the files of its measurement are in a directory of this name.
    pub link: &'static str,
    /// The client that is granted leases.
    pub one: Files,
    /// The client whose requests end leases.
    pub other: Files,
}

/// The times of one kind of request.
#[derive(Debug, Clone, PartialEq)]
pub struct LeaseStep {
    /// The kind of connection; `-` for the floor.
    pub link: &'static str,
    /// The name of the request.
    pub name: &'static str,
    /// Microseconds of one request: the median, and the 99th of a hundred.
    pub median_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
    /// CPU microseconds of this process for each; server and clients are in it.
    pub cpu_us: f64,
}

/// The result of [`leases`].
#[derive(Debug, Clone, PartialEq)]
pub struct LeasesReport {
    /// Files, each for one request of each step.
    pub files: u64,
    /// The steps, each over all kinds of connections.
    pub steps: Vec<LeaseStep>,
}

/// A step, which is measured for one file.
struct Step {
    name: &'static str,
    run: fn(&LeaseClients, &mut File) -> Result<(), Error>,
}

/// A file of the measurement.
struct File {
    node: Handle,
    open: Option<OpenId>,
}

const CONTEXT: Context = Context::direct(0, 0);

const STEPS: &[Step] = &[
    Step {
        name: "round trip without a lease",
        run: |clients, _| clients.one.stat_fs(&CONTEXT).wait().map(drop),
    },
    Step {
        name: "get a read lease",
        run: |clients, file| clients.one.get_attr(&CONTEXT, file.node).wait().map(drop),
    },
    Step {
        name: "read under it",
        run: |clients, file| clients.one.get_attr(&CONTEXT, file.node).wait().map(drop),
    },
    Step { name: "change by another, ends it", run: |clients, file| change(&clients.other, file) },
    Step { name: "change again, no lease", run: |clients, file| change(&clients.other, file) },
    Step {
        name: "get a write lease",
        run: |clients, file| {
            let opened = clients.one.open(&CONTEXT, file.node, OpenFlags::READ_WRITE).wait()?;
            file.open = Some(opened.open);
            Ok(())
        },
    },
    Step {
        name: "read by another, ends it",
        run: |clients, file| clients.other.get_attr(&CONTEXT, file.node).wait().map(drop),
    },
    Step {
        name: "read again, no lease",
        run: |clients, file| clients.other.get_attr(&CONTEXT, file.node).wait().map(drop),
    },
    Step {
        name: "release",
        run: |clients, file| match file.open.take() {
            Some(open) => clients.one.release(&CONTEXT, open).wait(),
            None => Ok(()),
        },
    },
];

fn change(files: &Files, file: &File) -> Result<(), Error> {
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    files.set_attr(&CONTEXT, file.node, None, set).wait().map(drop)
}

/// Measures each step for this number of files, step by step, the kinds of connections in turn.
/// `server` makes the files.
///
/// # Errors
/// [`BenchError::Request`] with the first request that fails.
pub fn leases(
    server: &Files,
    clients: &[LeaseClients],
    files: u64,
) -> Result<LeasesReport, BenchError> {
    let made = clients.iter().map(|clients| make(server, clients.link, files));
    let mut all: Vec<Vec<File>> = made.collect::<Result<_, _>>()?;
    let mut steps = vec![floor(files)?];
    for step in STEPS {
        for (clients, files) in clients.iter().zip(&mut all) {
            steps.push(step.measure(clients, files)?);
        }
    }
    Ok(LeasesReport { files, steps })
}

fn make(server: &Files, link: &str, files: u64) -> Result<Vec<File>, Error> {
    let name = |text: &str| Name::new(text.as_bytes()).expect("letters and digits");
    let at = At::new(Handle::ROOT, name(link));
    let dir = server.make_dir(&CONTEXT, at, NewMode::exactly(0o755)).wait()?.handle;
    let make = |number| {
        let at = At::new(dir, name(&format!("f{number}")));
        let mode = NewMode::exactly(0o644);
        let created = server.create(&CONTEXT, at, mode, OpenFlags::WRITE).wait()?;
        server.release(&CONTEXT, created.open).wait()?;
        Ok(File { node: created.entry.handle, open: None })
    };
    (0..files).map(make).collect()
}

/// Measures a byte to another thread and back, over a pair of sockets: the time of two wakes on
/// this machine.
fn floor(count: u64) -> Result<LeaseStep, BenchError> {
    let failed = |source: io::Error| BenchError::Socket { source };
    let (mut here, mut there) = UnixStream::pair().map_err(failed)?;
    let mut byte = [0];
    let mut echoed = [0];
    let mut times = Vec::new();
    let cpu = own_cpu();
    thread::scope(|scope| {
        scope.spawn(move || {
            while there.read_exact(&mut echoed).is_ok() && there.write_all(&echoed).is_ok() {}
        });
        let passed = (0..count).try_for_each(|_| {
            let began = Instant::now();
            here.write_all(&byte)?;
            here.read_exact(&mut byte)?;
            times.push(began.elapsed());
            Ok(())
        });
        drop(here);
        passed
    })
    .map_err(failed)?;
    Ok(LeaseStep::new("-", "floor: a byte and back", times, own_cpu().saturating_sub(cpu)))
}

impl LeaseStep {
    fn new(
        link: &'static str,
        name: &'static str,
        mut times: Vec<Duration>,
        cpu: Duration,
    ) -> Self {
        times.sort();
        let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or_default();
        let median_us = micros(at(50));
        let p99_us = micros(at(99));
        let cpu_us = micros(cpu) / times.len().max(1) as f64;
        Self { link, name, median_us, p99_us, cpu_us }
    }
}

impl Step {
    fn measure(&self, clients: &LeaseClients, files: &mut [File]) -> Result<LeaseStep, Error> {
        let mut times = Vec::with_capacity(files.len());
        let cpu = own_cpu();
        for file in files.iter_mut() {
            let began = Instant::now();
            (self.run)(clients, file)?;
            times.push(began.elapsed());
        }
        let cpu = own_cpu().saturating_sub(cpu);
        Ok(LeaseStep::new(clients.link, self.name, times, cpu))
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl LeasesReport {
    /// Returns a table for people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = String::new();
        write_line(&mut text, format_args!("leases: {} files, µs each", self.files));
        let head = ["", "median", "p99", "cpu"];
        let [empty, median, p99, cpu] = head;
        write_line(&mut text, format_args!("{empty:35}{median:>9}{p99:>9}{cpu:>9}"));
        for LeaseStep { link, name, median_us, p99_us, cpu_us } in &self.steps {
            let line = format_args!("{name:30}{link:5}{median_us:9.1}{p99_us:9.1}{cpu_us:9.1}");
            write_line(&mut text, line);
        }
        text
    }

    /// Returns the object of `--json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let step = |step: &LeaseStep| {
            let LeaseStep { link, name, median_us, p99_us, cpu_us } = step;
            json!({
                "link": link,
                "step": name,
                "median_us": median_us,
                "p99_us": p99_us,
                "cpu_us": cpu_us,
            })
        };
        let steps: Vec<Value> = self.steps.iter().map(step).collect();
        json!({ "version": JSON_VERSION, "bench": "leases", "files": self.files, "steps": steps })
    }
}
