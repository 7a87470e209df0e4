//! Measures creating files through [`Files`], without kernel and mount (`pelago bench lib`).

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use pelago_client::{At, Files};
use pelago_wire::{Context, Error, Handle, Name, NewMode, OpenFlags};
use serde_json::{Value, json};

use crate::process::{own_cpu, peak_resident};
use crate::report::write_line;
use crate::{BenchError, JSON_VERSION};

/// Files in a window.
const WINDOW: u64 = 100_000;
/// Windows in a million files.
const MILLION: usize = 10;

/// The size of a measurement of [`direct`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectOptions {
    /// The name of the directory that is created in the root for the files; it must not exist.
    pub dir: Name,
    /// Threads that create concurrently.
    pub callers: u64,
    /// Files of all threads together.
    pub count: u64,
}

/// The result of a measurement of [`direct`].
#[derive(Debug, Clone, PartialEq)]
pub struct DirectReport {
    /// Threads that created concurrently.
    pub callers: u64,
    /// Files that were created.
    pub count: u64,
    /// Files per second.
    pub rate: f64,
    /// CPU microseconds of this process per file.
    pub cpu_us: f64,
    /// Each 100,000 files in order of creation, then the remaining ones.
    pub windows: Vec<Window>,
    /// The peak resident memory of this process, in bytes; 0 if unknown.
    pub peak_resident: u64,
}

/// A run of consecutive files.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    /// Files in the window.
    pub count: u64,
    /// Files per second.
    pub rate: f64,
    /// CPU microseconds of this process per file.
    pub cpu_us: f64,
}

/// Creates empty files in one directory, each by create, flush and release.
///
/// # Errors
/// [`BenchError::Request`] with the first request that fails.
pub fn direct(files: &Files, options: &DirectOptions) -> Result<DirectReport, BenchError> {
    let context = Context::direct(0, 0);
    let at = At::new(Handle::ROOT, options.dir.clone());
    let dir = files.make_dir(&context, at, NewMode::exactly(0o755)).wait()?.handle;
    let callers = options.callers.max(1);
    let expected = usize::try_from(options.count / WINDOW).unwrap_or(usize::MAX).saturating_add(1);
    let (sender, receiver) = sync_channel(expected.min(1 << 20));
    let next = AtomicU64::new(0);
    let start = Checkpoint::now(0);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..callers)
            .map(|_| {
                let caller = Caller { files, context, dir, next: &next, count: options.count };
                let sender = sender.clone();
                scope.spawn(move || caller.run(&sender))
            })
            .collect();
        let mut ends = workers.into_iter().map(|worker| worker.join());
        ends.try_for_each(|end| end.expect("a caller returns its errors"))
    })?;
    let end = Checkpoint::now(options.count);
    drop(sender);
    let mut checkpoints: Vec<Checkpoint> = receiver.into_iter().collect();
    checkpoints.sort_by_key(|checkpoint| checkpoint.done);
    checkpoints.insert(0, start);
    if checkpoints.last().is_some_and(|last| last.done < end.done) {
        checkpoints.push(end);
    }
    let windows =
        checkpoints.windows(2).filter_map(|pair| Some(pair.first()?.window_to(pair.get(1)?)));
    let whole = start.window_to(&end);
    Ok(DirectReport {
        callers,
        count: options.count,
        rate: whole.rate,
        cpu_us: whole.cpu_us,
        windows: windows.collect(),
        peak_resident: peak_resident().unwrap_or(0),
    })
}

impl DirectReport {
    /// Returns each million of files in order of creation, then the remaining ones.
    #[must_use]
    pub fn millions(&self) -> Vec<Window> {
        self.windows.chunks(MILLION).map(Window::join).collect()
    }

    /// Returns the rate of the last whole million over that of the second; `None` if there are
    /// fewer than three.
    #[must_use]
    pub fn last_over_second(&self) -> Option<f64> {
        let is_whole = |million: &Window| million.count == MILLION as u64 * WINDOW;
        let millions: Vec<Window> = self.millions().into_iter().filter(is_whole).collect();
        match millions.as_slice() {
            [_, second, .., last] => Some(last.rate / second.rate),
            _ => None,
        }
    }

    /// Returns a table for people.
    #[must_use]
    pub fn render_text(&self) -> String {
        let mut text = String::new();
        let Self { callers, count, rate, cpu_us, .. } = self;
        let line = format_args!("lib: {count} files, {callers} callers, {rate:.0} creates/s");
        write_line(&mut text, line);
        let mib = self.peak_resident as f64 / f64::from(1 << 20);
        write_line(&mut text, format_args!("cpu {cpu_us:.1} µs each, at most {mib:.0} MiB"));
        let millions = self.millions();
        if millions.len() > 1 {
            for (number, Window { count, rate, cpu_us }) in millions.iter().enumerate() {
                let line = format_args!(
                    "million {}: {count} files, {rate:.0}/s, cpu {cpu_us:.1} µs",
                    number + 1
                );
                write_line(&mut text, line);
            }
        }
        if let Some(ratio) = self.last_over_second() {
            write_line(&mut text, format_args!("the last million over the second: {ratio:.2}"));
        }
        for (number, window) in self.windows.iter().enumerate() {
            let Window { count, rate, cpu_us } = window;
            let from = number as u64 * WINDOW;
            let line = format_args!("  {from:>8} + {count}: {rate:.0}/s, cpu {cpu_us:.1} µs");
            write_line(&mut text, line);
        }
        text
    }

    /// Returns the object of `--json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let windows: Vec<Value> = self.windows.iter().copied().map(Window::to_json).collect();
        let millions: Vec<Value> = self.millions().into_iter().map(Window::to_json).collect();
        json!({
            "version": JSON_VERSION,
            "bench": "lib",
            "callers": self.callers,
            "count": self.count,
            "rate": self.rate,
            "cpu_us": self.cpu_us,
            "windows": windows,
            "millions": millions,
            "last_over_second": self.last_over_second(),
            "peak_resident": self.peak_resident,
        })
    }
}

impl Window {
    /// Joins consecutive windows.
    fn join(parts: &[Self]) -> Self {
        let count = parts.iter().map(|part| part.count).sum();
        let sum = |each: fn(&Self) -> f64| parts.iter().map(each).sum::<f64>();
        let seconds = sum(|part| part.count as f64 / part.rate);
        let cpu_us = sum(|part| part.count as f64 * part.cpu_us) / count as f64;
        Self { count, rate: count as f64 / seconds, cpu_us }
    }

    fn to_json(self) -> Value {
        json!({ "count": self.count, "rate": self.rate, "cpu_us": self.cpu_us })
    }
}

/// The progress at one time.
#[derive(Debug, Clone, Copy)]
struct Checkpoint {
    done: u64,
    at: Instant,
    cpu: Duration,
}

impl Checkpoint {
    fn now(done: u64) -> Self {
        Self { done, at: Instant::now(), cpu: own_cpu() }
    }

    fn window_to(&self, later: &Self) -> Window {
        let count = later.done - self.done;
        let seconds = later.at.saturating_duration_since(self.at).as_secs_f64();
        let cpu = later.cpu.saturating_sub(self.cpu).as_secs_f64();
        Window {
            count,
            rate: if seconds > 0.0 { count as f64 / seconds } else { 0.0 },
            cpu_us: cpu * 1e6 / count.max(1) as f64,
        }
    }
}

/// One of the threads.
struct Caller<'a> {
    files: &'a Files,
    context: Context,
    dir: Handle,
    next: &'a AtomicU64,
    count: u64,
}

impl Caller<'_> {
    fn run(&self, sender: &SyncSender<Checkpoint>) -> Result<(), Error> {
        let flags = OpenFlags::WRITE;
        // Reused, so that allocating is not measured.
        let mut text = String::new();
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= self.count {
                return Ok(());
            }
            text.clear();
            write!(text, "f{number:08}").expect("writing to a string cannot fail");
            let name = Name::new(text.as_bytes()).expect("letters and digits");
            let at = At::new(self.dir, name);
            let open =
                self.files.create(&self.context, at, NewMode::exactly(0o644), flags).wait()?.open;
            self.files.flush(&self.context, open, None).wait()?;
            self.files.release(&self.context, open).wait()?;
            if (number + 1).is_multiple_of(WINDOW) {
                // Fails only if another caller has failed, whose error is returned.
                let _sent = sender.send(Checkpoint::now(number + 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_its_windows() {
        let window = Window { count: 50, rate: 10.0, cpu_us: 3.0 };
        let report = DirectReport {
            callers: 1,
            count: 50,
            rate: 10.0,
            cpu_us: 3.0,
            windows: vec![window],
            peak_resident: 1 << 20,
        };
        assert!(report.render_text().contains("50 files, 1 callers, 10 creates/s"));
        let json = report.to_json();
        assert_eq!(json["version"], 1);
        assert_eq!(json["windows"][0]["count"], 50);
        assert_eq!(report.last_over_second(), None);
    }

    /// The rate of a million follows from its total time, not from the mean of its windows' rates.
    #[test]
    fn the_last_million_is_compared_with_the_second() {
        let fast = Window { count: WINDOW, rate: 100_000.0, cpu_us: 6.0 };
        let slow = Window { rate: 50_000.0, cpu_us: 12.0, ..fast };
        let rest = Window { count: 7, ..slow };
        let windows: Vec<Window> = std::iter::repeat_n(fast, 2 * MILLION)
            .chain([fast, slow].repeat(MILLION / 2))
            .chain([rest])
            .collect();
        let count = windows.iter().map(|window| window.count).sum();
        let report =
            DirectReport { callers: 2, count, rate: 1.0, cpu_us: 1.0, windows, peak_resident: 0 };
        let third = report.millions()[2];
        assert_eq!((third.count, third.cpu_us), (10 * WINDOW, 9.0));
        let ratio = report.last_over_second().unwrap();
        assert!((0.66..0.67).contains(&ratio), "{ratio}");
        assert!(report.render_text().contains("the last million over the second: 0.67"));
        assert_eq!(report.to_json()["millions"][3]["count"], 7);
    }
}
