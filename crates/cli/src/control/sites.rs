//! The reply about the sites of the volume.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::output;

/// The sites of the volume, as one of them knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SitesReport {
    /// The number of the site that answers.
    pub(crate) own: u16,
    /// The warning that the own folder is a copy, or an older one; `None` if it is not known to be
    /// one.
    pub(crate) outdated: Option<String>,
    /// The other sites.
    pub(crate) others: Vec<SiteLine>,
    /// The number of files of other sites of which copies are on this disk.
    pub(crate) copied_files: u64,
    /// Their bytes that are here.
    pub(crate) copied_bytes: u64,
    /// The bytes that they may take.
    pub(crate) cache_bytes: u64,
    /// The number of files of other sites whose bytes are on this disk, and nowhere else.
    pub(crate) staying_files: u64,
    /// Of those, files of which the home does not know all that was written.
    pub(crate) untold_files: u64,
    /// The number of versions that are kept because the file has got other bytes.
    pub(crate) kept_versions: u64,
}

/// Another site of the volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SiteLine {
    /// The number of the site.
    pub(crate) site: u16,
    /// The name of the site.
    pub(crate) name: String,
    /// The site has joined; otherwise it is invited.
    pub(crate) has_joined: bool,
    /// The key of its server; empty if it has not joined.
    pub(crate) key: String,
    /// The address of its server, `HOST:PORT`; empty if it is unknown.
    pub(crate) address: String,
    /// There is a connection to its server.
    pub(crate) connected: bool,
    /// The time of a round trip, smoothed; `None` if none was measured yet.
    pub(crate) round_trip: Option<Duration>,
    /// The version of the protocol that both speak; `None` before the first session.
    pub(crate) wire: Option<u16>,
    /// The version of its program; `None` if it has not told it.
    pub(crate) pelago: Option<String>,
    /// Milliseconds by which its clock is ahead of the one here; negative if it is behind.
    pub(crate) clock_ms: Option<i64>,
    /// Milliseconds since its server last sent something; `None` if no request was sent yet.
    pub(crate) silent_ms: Option<u64>,
    /// The number of requests that were sent to the site.
    pub(crate) requests: u64,
    /// The number of requests that were answered while it was silent, from what was known before.
    pub(crate) stale_answers: u64,
    /// The number of own directories whose names the site is to add or to remove.
    pub(crate) unfinished: u64,
    /// Milliseconds since a folder of it was refused that is a copy or an older one; `None` if none
    /// was lately.
    pub(crate) older_ms: Option<u64>,
    /// The number of the last token that it has given to this site.
    pub(crate) token: u64,
}

impl SitesReport {
    pub(crate) fn to_json(&self) -> Value {
        let Self { own, outdated, others, copied_files, copied_bytes, cache_bytes, .. } = self;
        let Self { staying_files, untold_files, kept_versions, .. } = self;
        json!({
            "site": own,
            "outdated": outdated,
            "sites": others.iter().map(SiteLine::to_json).collect::<Vec<_>>(),
            "copied_files": copied_files,
            "copied_bytes": copied_bytes,
            "cache_bytes": cache_bytes,
            "staying_files": staying_files,
            "untold_files": untold_files,
            "kept_versions": kept_versions,
        })
    }

    pub(super) fn from_json(object: &Value) -> Option<Self> {
        let sites = object["sites"].as_array()?;
        Some(Self {
            own: u16::try_from(object["site"].as_u64()?).ok()?,
            outdated: object["outdated"].as_str().map(str::to_owned),
            others: sites.iter().map(SiteLine::from_json).collect::<Option<_>>()?,
            copied_files: object["copied_files"].as_u64()?,
            copied_bytes: object["copied_bytes"].as_u64()?,
            cache_bytes: object["cache_bytes"].as_u64()?,
            staying_files: object["staying_files"].as_u64()?,
            untold_files: object["untold_files"].as_u64()?,
            kept_versions: object["kept_versions"].as_u64()?,
        })
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        let others = vec![SiteLine::sample()];
        Self {
            own: 0,
            outdated: Some("this folder is a copy".to_owned()),
            others,
            copied_files: 3,
            copied_bytes: 5000,
            cache_bytes: 8 << 30,
            staying_files: 4,
            untold_files: 1,
            kept_versions: 2,
        }
    }
}

impl fmt::Display for SitesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { outdated, others, copied_files, copied_bytes, cache_bytes, .. } = self;
        if let Some(why) = outdated {
            writeln!(f, "cut off: {why}")?;
        }
        if others.is_empty() {
            return writeln!(f, "no other site");
        }
        others.iter().try_for_each(|site| writeln!(f, "{site}"))?;
        if *copied_files > 0 {
            let [bytes, most] = [*copied_bytes, *cache_bytes].map(output::bytes);
            writeln!(f, "copies of {copied_files} files of others: {bytes} of at most {most}")?;
        }
        let Self { staying_files, untold_files, kept_versions, .. } = self;
        if *staying_files > 0 {
            let files = "files of others have their bytes only here";
            writeln!(f, "{staying_files} {files}; {untold_files} are not told yet")?;
        }
        if *kept_versions > 0 {
            writeln!(f, "{kept_versions} versions are kept that others have passed over")?;
        }
        Ok(())
    }
}

impl SiteLine {
    fn to_json(&self) -> Value {
        let Self {
            site,
            name,
            has_joined,
            key,
            address,
            connected,
            round_trip,
            wire,
            pelago,
            clock_ms,
            silent_ms,
            requests,
            stale_answers,
            unfinished,
            older_ms,
            token,
        } = self;
        json!({
            "site": site,
            "name": name,
            "joined": has_joined,
            "key": key,
            "address": address,
            "connected": connected,
            "round_trip_ms": round_trip.map(|time| time.as_micros() as f64 / 1000.0),
            "wire": wire,
            "pelago": pelago,
            "clock_ms": clock_ms,
            "silent_ms": silent_ms,
            "requests": requests,
            "stale_answers": stale_answers,
            "unfinished": unfinished,
            "older_ms": older_ms,
            "token": token,
        })
    }

    fn from_json(object: &Value) -> Option<Self> {
        Some(Self {
            site: u16::try_from(object["site"].as_u64()?).ok()?,
            name: object["name"].as_str()?.to_owned(),
            has_joined: object["joined"].as_bool()?,
            key: object["key"].as_str()?.to_owned(),
            address: object["address"].as_str()?.to_owned(),
            connected: object["connected"].as_bool()?,
            round_trip: object["round_trip_ms"].as_f64().and_then(milliseconds),
            wire: object["wire"].as_u64().and_then(|wire| u16::try_from(wire).ok()),
            pelago: object["pelago"].as_str().map(str::to_owned),
            clock_ms: object["clock_ms"].as_i64(),
            silent_ms: object["silent_ms"].as_u64(),
            requests: object["requests"].as_u64()?,
            stale_answers: object["stale_answers"].as_u64()?,
            unfinished: object["unfinished"].as_u64()?,
            older_ms: object["older_ms"].as_u64(),
            token: object["token"].as_u64()?,
        })
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            site: 1,
            name: "berlin".to_owned(),
            has_joined: true,
            key: "pelago1key".to_owned(),
            address: "10.0.0.2:7440".to_owned(),
            connected: true,
            round_trip: Some(Duration::from_micros(81_400)),
            wire: Some(2),
            pelago: Some("0.1.0".to_owned()),
            clock_ms: Some(-30),
            silent_ms: Some(40),
            requests: 7,
            stale_answers: 3,
            unfinished: 2,
            older_ms: Some(900),
            token: 12,
        }
    }
}

impl fmt::Display for SiteLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { site, name, has_joined, address, silent_ms, .. } = self;
        let address = if address.is_empty() { "no address yet" } else { address };
        match (has_joined, silent_ms) {
            (false, _) => write!(f, "{site}  {name}  invited")?,
            (true, Some(ms)) if *ms >= SILENT_MS => {
                let says = "if its mirror was promoted: an office does not move over by itself yet";
                write!(f, "{site}  {name}  {address}  silent for {} s; {says}", ms / 1000)?;
            }
            (true, _) => {
                write!(f, "{site}  {name}  {address}")?;
                self.fmt_line(f)?;
            }
        }
        self.fmt_clock(f)?;
        let Self { stale_answers, unfinished, older_ms, .. } = self;
        match stale_answers {
            0 => {}
            1 => f.write_str("  a call was answered from before its silence")?,
            more => write!(f, "  {more} calls were answered from before its silence")?,
        }
        match unfinished {
            0 => {}
            1 => f.write_str("  a mkdir or rmdir waits for it")?,
            more => write!(f, "  {more} mkdirs and rmdirs wait for it")?,
        }
        if let Some(ms) = older_ms {
            let says = "a copy of its folder, or an older one, was refused";
            write!(f, "  {says} {} s ago", ms / 1000)?;
        }
        Ok(())
    }
}

impl SiteLine {
    /// Writes the state of the connection, and the versions at its ends.
    fn fmt_line(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.connected, self.round_trip) {
            (false, _) => return f.write_str("  not connected"),
            (true, None) => f.write_str("  connected")?,
            (true, Some(time)) if time < Duration::from_millis(10) => {
                write!(f, "  {:.1} ms", time.as_secs_f64() * 1000.0)?;
            }
            (true, Some(time)) => write!(f, "  {} ms", time.as_millis())?,
        }
        match (&self.pelago, self.wire) {
            (Some(pelago), Some(wire)) => {
                write!(f, "  pelago {}, wire {wire}", output::name(pelago))
            }
            (None, Some(wire)) => write!(f, "  wire {wire}"),
            (_, None) => Ok(()),
        }
    }

    /// Warns of a clock that differs from the one here.
    fn fmt_clock(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ahead_ms) = self.clock_ms.filter(|ms| ms.unsigned_abs() > CLOCK_MS) else {
            return Ok(());
        };
        let seconds = ahead_ms.unsigned_abs() as f64 / 1000.0;
        let way = if ahead_ms > 0 { "ahead of" } else { "behind" };
        write!(f, "  its clock is {seconds:.1} s {way} the one here")
    }
}

/// The difference of clocks, in milliseconds, beyond which it is told.
const CLOCK_MS: u64 = 1_000;

/// Returns a time of milliseconds; `None` if it is none.
fn milliseconds(ms: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(ms / 1000.0).ok().map(|time| {
        // As it was before it was printed.
        Duration::from_micros(time.as_secs_f64().mul_add(1e6, 0.5) as u64)
    })
}

/// The silence after which a site may be down: a live site sends something more often.
const SILENT_MS: u64 = 8_000;

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "1  berlin  10.0.0.2:7440  81 ms  pelago 0.1.0, wire 2";

    #[test]
    fn a_site_says_what_waits_for_it() {
        let of = |stale_answers, unfinished| {
            SiteLine { stale_answers, unfinished, ..quiet() }.to_string()
        };
        let says = |unfinished| of(0, unfinished);
        assert_eq!(says(0), LINE);
        assert_eq!(says(1), format!("{LINE}  a mkdir or rmdir waits for it"));
        assert!(says(2).ends_with("  2 mkdirs and rmdirs wait for it"), "{}", says(2));
        let stale = of(3, 0);
        assert!(stale.ends_with("  3 calls were answered from before its silence"), "{stale}");
    }

    fn quiet() -> SiteLine {
        SiteLine { stale_answers: 0, unfinished: 0, older_ms: None, ..SiteLine::sample() }
    }

    #[test]
    fn an_older_folder_is_told_at_both_ends() {
        let there = SiteLine { older_ms: Some(3_400), ..quiet() }.to_string();
        let says = "a copy of its folder, or an older one, was refused 3 s ago";
        assert_eq!(there, format!("{LINE}  {says}"));
        let here = SitesReport { others: vec![quiet()], ..SitesReport::sample() }.to_string();
        assert!(here.starts_with("cut off: this folder is a copy\n1  berlin"), "{here}");
    }

    #[test]
    fn a_line_has_the_state_of_the_connection() {
        let near = SiteLine { round_trip: Some(Duration::from_micros(240)), ..quiet() };
        assert!(near.to_string().contains("  0.2 ms  pelago"), "{near}");
        let new = SiteLine { round_trip: None, pelago: None, ..quiet() };
        assert!(new.to_string().ends_with("10.0.0.2:7440  connected  wire 2"), "{new}");
        let lost = SiteLine { connected: false, ..quiet() };
        assert!(lost.to_string().ends_with("10.0.0.2:7440  not connected"), "{lost}");
        let silent = SiteLine { silent_ms: Some(9_000), ..quiet() };
        assert!(silent.to_string().contains("10.0.0.2:7440  silent for 9 s"), "{silent}");
        let invited = SiteLine { has_joined: false, ..quiet() };
        assert_eq!(invited.to_string(), "1  berlin  invited");
    }

    #[test]
    fn a_clock_that_differs_by_more_than_a_second_is_told() {
        let of = |ms| SiteLine { clock_ms: Some(ms), ..quiet() }.to_string();
        assert_eq!([of(1_000), of(-1_000)], [LINE, LINE]);
        assert_eq!(of(3_240), format!("{LINE}  its clock is 3.2 s ahead of the one here"));
        assert_eq!(of(-1_040), format!("{LINE}  its clock is 1.0 s behind the one here"));
        assert!(of(i64::MIN).contains("s behind"));
    }

    #[test]
    fn a_round_trip_survives_the_socket() {
        for micros in [0, 1, 240, 81_400, 81_401, 1_234_567] {
            let line = SiteLine { round_trip: Some(Duration::from_micros(micros)), ..quiet() };
            let text = line.to_json().to_string();
            assert_eq!(SiteLine::from_json(&serde_json::from_str(&text).unwrap()), Some(line));
        }
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(milliseconds(wrong), None);
        }
    }
}
