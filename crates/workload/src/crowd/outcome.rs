//! The times and the results of the downloads of a crowd.

use std::collections::BTreeSet;
use std::time::Duration;

use pelago_wire::blocks::ExtentHash;
use serde_json::{Value, json};

use super::failure::DownloadFailure;
use super::root::hex;

/// One download.
#[derive(Debug)]
pub struct TimedDownload {
    /// The time at which it began, counted from the beginning of the crowd.
    pub begins: Duration,
    /// The most that the client takes, in bytes a second.
    pub rate: Option<f64>,
    /// The index of its path in the plan.
    pub path: usize,
    /// Bytes of the file that came.
    pub bytes: u64,
    /// The time from its beginning to its end.
    pub took: Duration,
    /// The failure, if it has not all bytes; the root, if it is one of the samples.
    pub result: Result<Option<ExtentHash>, DownloadFailure>,
}

/// The downloads of a crowd.
#[derive(Debug)]
pub struct CrowdOutcome {
    /// All of them.
    pub downloads: Vec<TimedDownload>,
    /// The time in which they began.
    pub window: Duration,
}

impl TimedDownload {
    /// Returns its time over that of a download alone at its rate; `None` without a rate, and if it
    /// failed.
    fn slowdown(&self) -> Option<f64> {
        let alone = self.bytes as f64 / self.rate?;
        self.result.is_ok().then(|| self.took.as_secs_f64() / alone)
    }
}

impl CrowdOutcome {
    /// Returns the downloads that have all bytes.
    pub fn finished(&self) -> impl Iterator<Item = &TimedDownload> {
        self.downloads.iter().filter(|download| download.result.is_ok())
    }

    /// Returns the bytes that a server without a cache must read at least, for all files together:
    /// at each time those of the fastest client present, if no client waited for the server.
    #[must_use]
    pub fn pass_bytes(&self) -> f64 {
        let paths: BTreeSet<usize> = self.downloads.iter().map(|download| download.path).collect();
        paths.into_iter().map(|path| self.pass_bytes_of(path)).sum()
    }

    fn pass_bytes_of(&self, path: usize) -> f64 {
        let size = self.finished().map(|download| download.bytes).max().unwrap_or(0) as f64;
        struct Span {
            begins: f64,
            ends: f64,
            rate: f64,
        }
        let span = |it: &TimedDownload| {
            let begins = it.begins.as_secs_f64();
            let rate = it.rate?;
            Some(Span { begins, ends: begins + size / rate, rate })
        };
        let of_path = self.downloads.iter().filter(|it| it.path == path);
        let spans: Vec<Span> = of_path.filter_map(span).collect();
        let mut times: Vec<f64> = spans.iter().flat_map(|it| [it.begins, it.ends]).collect();
        times.sort_by(f64::total_cmp);
        let part = |pair: &[f64]| {
            let present = spans.iter().filter(|it| it.begins <= pair[0] && pair[1] <= it.ends);
            present.map(|it| it.rate).fold(0.0, f64::max) * (pair[1] - pair[0])
        };
        times.windows(2).map(part).sum()
    }

    /// Returns the object for programs: times in seconds, rates in MB (10⁶ bytes) a second.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let bytes: u64 = self.downloads.iter().map(|download| download.bytes).sum();
        let ends = self.downloads.iter().map(|download| download.begins + download.took);
        let seconds = ends.max().unwrap_or_default().as_secs_f64();
        let took = sorted(self.finished().map(|download| download.took.as_secs_f64()));
        let slowdown = sorted(self.finished().filter_map(TimedDownload::slowdown));
        let mut roots: Vec<String> =
            self.finished().filter_map(|it| it.result.as_ref().ok()?.as_ref().map(hex)).collect();
        let samples = roots.len();
        roots.sort_unstable();
        roots.dedup();
        let failures: Vec<String> = self
            .downloads
            .iter()
            .filter_map(|download| download.result.as_ref().err().map(ToString::to_string))
            .collect();
        let each = self.downloads.iter().map(|download| {
            json!({
                "begins": download.begins.as_secs_f64(),
                "rate": download.rate,
                "path": download.path,
                "bytes": download.bytes,
                "seconds": download.took.as_secs_f64(),
                "is_whole": download.result.is_ok(),
            })
        });
        let each: Vec<Value> = each.collect();
        json!({
            "clients": self.downloads.len(),
            "finished": took.len(),
            "bytes": bytes,
            "seconds": seconds,
            "mb_per_s": bytes as f64 / 1e6 / seconds.max(f64::MIN_POSITIVE),
            "pass_bytes": self.pass_bytes(),
            "download_seconds": figures(&took),
            "slowdown": figures(&slowdown),
            "samples": samples,
            "roots": roots,
            "failures": failures,
            "downloads": each,
        })
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Returns mean, median, 95th percentile and maximum of sorted values; nulls if there are none.
fn figures(values: &[f64]) -> Value {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let at = |percent: usize| values.get((values.len() * percent / 100).min(values.len() - 1));
    match values {
        [] => json!({ "mean": null, "median": null, "p95": null, "most": null }),
        _ => json!({ "mean": mean, "median": at(50), "p95": at(95), "most": at(100) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn download(begins: u64, rate: f64, took: u64) -> TimedDownload {
        let [begins, took] = [begins, took].map(Duration::from_secs);
        TimedDownload { begins, rate: Some(rate), path: 0, bytes: 1000, took, result: Ok(None) }
    }

    /// The fast one is there from 0 to 10 s and from 50 to 60 s, the slow one from 0 to 40 s.
    #[test]
    fn a_pass_is_what_the_fastest_client_present_takes() {
        let downloads =
            vec![download(0, 100.0, 10), download(50, 100.0, 30), download(0, 25.0, 40)];
        let mut outcome = CrowdOutcome { downloads, window: Duration::from_secs(60) };
        assert!((outcome.pass_bytes() - (1000.0 + 30.0 * 25.0 + 1000.0)).abs() < 1e-6);
        outcome.downloads[2].path = 1;
        assert!((outcome.pass_bytes() - 3000.0).abs() < 1e-6);
        let json = outcome.to_json();
        assert_eq!(json["slowdown"]["most"], 3.0);
        assert_eq!(json["download_seconds"]["median"], 30.0);
        assert_eq!((&json["finished"], &json["seconds"]), (&json!(3), &json!(80.0)));
    }

    #[test]
    fn a_crowd_of_nobody_has_no_figures() {
        let outcome = CrowdOutcome { downloads: Vec::new(), window: Duration::ZERO };
        assert_eq!(outcome.to_json()["slowdown"]["mean"], Value::Null);
    }
}
