//! The state of a volume's mirror, which the primary reports.

use pelago_net::mirror::DatagramStatus;
use pelago_store::clock;
use pelago_wire::Level;
use serde_json::{Value, json};

use super::{DatagramLine, FromJson};
use crate::output;

/// The mirror of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MirrorLine {
    /// The address of the mirror, `KEY@HOST:PORT`.
    pub(crate) peer: String,
    /// The reign of this primary.
    pub(crate) reign: u64,
    /// The state of the mirror, for people.
    pub(crate) state: String,
    /// The mirror has a whole state of the volume, and receives each change.
    pub(crate) follows: bool,
    /// Bytes of the changes that the mirror does not have.
    pub(crate) bytes_at_risk: u64,
    /// The age of the oldest of these changes in milliseconds; 0 if the mirror has all changes.
    pub(crate) ms_at_risk: u64,
    /// The time of the cut whose state the mirror has, in seconds since 1970.
    pub(crate) as_of: Option<i64>,
    /// The level of the whole volume.
    pub(crate) level: String,
    /// The mirror has not followed, or not answered, for some seconds.
    pub(crate) is_cut_off: bool,
    /// Number of syncs that wait for the mirror.
    pub(crate) waiting: u64,
    /// The rate, round trip and loss of the line, for people; `None` if the mirror gets no
    /// datagrams.
    pub(crate) link: Option<String>,
    /// The same in numbers.
    pub(crate) datagrams: Option<DatagramLine>,
    /// The relay to the mirror; `None` if there is none.
    pub(crate) relay: Option<RelayLine>,
    /// The last comparison of all of the volume since the start of the process.
    pub(crate) verified: Option<VerifiedLine>,
}

/// The end of a comparison of a mirror with its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VerifiedLine {
    /// The time of its end, in seconds since 1970.
    pub(crate) at: i64,
    /// Number of rows and content files that the mirror had otherwise.
    pub(crate) differences: u64,
    /// What differed was sent again.
    pub(crate) repaired: bool,
}

impl VerifiedLine {
    fn to_json(self) -> Value {
        let Self { at, differences, repaired } = self;
        json!({ "at": at, "differences": differences, "repaired": repaired })
    }

    /// Returns the words for a person at this time, in seconds since 1970.
    fn words(self, now: i64) -> String {
        let ago = ago(now.saturating_sub(self.at).max(0));
        match (self.differences, self.repaired) {
            (0, _) => format!("; verified {ago} ago"),
            (count, true) => format!("; verified {ago} ago, {count} repaired"),
            (count, false) => {
                format!("; verified {ago} ago, {count} not equal: `pelago verify --apply`")
            }
        }
    }
}

impl FromJson for VerifiedLine {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            at: value["at"].as_i64()?,
            differences: u64::from_json(&value["differences"])?,
            repaired: bool::from_json(&value["repaired"])?,
        })
    }
}

/// Returns a time in its largest unit that fits.
fn ago(seconds: i64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// The relay to the mirror of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RelayLine {
    /// The address of the relay, `KEY@HOST:PORT`.
    pub(crate) address: String,
    /// Changes go through it now.
    pub(crate) used: bool,
    /// The number of groups that it has, and the mirror may not have.
    pub(crate) groups: u64,
    /// The bytes of these groups.
    pub(crate) bytes: u64,
    /// The reason why it is not used, or why the mirror takes nothing from it.
    pub(crate) problem: Option<String>,
}

impl RelayLine {
    fn to_json(&self) -> Value {
        json!({
            "address": self.address,
            "used": self.used,
            "groups": self.groups,
            "bytes": self.bytes,
            "problem": self.problem,
        })
    }

    fn line(&self) -> String {
        let place = place_of(&self.address);
        let state = match (self.used, &self.problem) {
            (true, None) => format!("{} groups on the way", self.groups),
            (true, Some(why)) => format!("{} groups wait there: {why}", self.groups),
            (false, None) => "not used now".to_owned(),
            (false, Some(why)) => format!("not used: {why}"),
        };
        format!("relay     {place}: {state}\n")
    }
}

impl FromJson for RelayLine {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            address: String::from_json(&value["address"])?,
            used: bool::from_json(&value["used"])?,
            groups: u64::from_json(&value["groups"])?,
            bytes: u64::from_json(&value["bytes"])?,
            problem: value["problem"].as_str().map(str::to_owned),
        })
    }
}

/// Returns what is known of the line to the mirror, for people.
pub(crate) fn link_text(status: &DatagramStatus) -> String {
    let DatagramStatus { rate, loss, trip, data, repair, again, .. } = *status;
    let rate = match rate {
        0 => "never full".to_owned(),
        rate => format!("{:.1} Mbit/s", rate as f64 * 8e-6),
    };
    let trip = trip.map(|trip| format!("{} ms, ", trip.as_millis())).unwrap_or_default();
    let loss = loss * 100.0;
    format!(
        "{rate}, {trip}loss below {loss:.2} %, {data} packets and {repair} of repair, {again} sent \
         again"
    )
}

/// Returns the address without the key.
fn place_of(address: &str) -> &str {
    address.split_once('@').map_or(address, |(_, place)| place)
}

impl MirrorLine {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "address": self.peer,
            "reign": self.reign,
            "state": self.state,
            "follows": self.follows,
            "bytes_at_risk": self.bytes_at_risk,
            "ms_at_risk": self.ms_at_risk,
            "as_of": self.as_of,
            "level": self.level,
            "cut_off": self.is_cut_off,
            "waiting": self.waiting,
            "link": self.link,
            "datagrams": self.datagrams.map(DatagramLine::to_json),
            "relay": self.relay.as_ref().map(RelayLine::to_json),
            "verified": self.verified.map(VerifiedLine::to_json),
        })
    }

    /// Returns the lines of `status`.
    pub(super) fn lines(&self) -> String {
        self.lines_at(clock::now().seconds)
    }

    fn lines_at(&self, now: i64) -> String {
        let place = place_of(&self.peer);
        let tenths = self.ms_at_risk / 100;
        let risk = match self.follows {
            true => format!(
                "{}.{} s, {} at risk",
                tenths / 10,
                tenths % 10,
                output::bytes(self.bytes_at_risk)
            ),
            false if self.as_of.is_none() => "all is at risk".to_owned(),
            false => format!(
                "{}.{} s, {} at risk; {}",
                tenths / 10,
                tenths % 10,
                output::bytes(self.bytes_at_risk),
                self.state
            ),
        };
        let verified = self.verified.map(|verified| verified.words(now)).unwrap_or_default();
        let mirror = match self.follows || self.as_of.is_some() {
            true => format!("mirror    {place}: {risk}{verified}\n"),
            false => format!("mirror    {place}: {risk}; {}{verified}\n", self.state),
        };
        let link = self.link.as_ref().map(|link| format!("link      {link}\n"));
        let relay = self.relay.as_ref().map(RelayLine::line);
        mirror + &link.unwrap_or_default() + &relay.unwrap_or_default() + &self.level_line()
    }

    /// Returns the line on the level of the volume; empty if it is *local* and all is well.
    fn level_line(&self) -> String {
        let level = &self.level;
        match (self.is_cut_off, self.waiting) {
            (true, 0) => format!(
                "level     {level}; the mirror is cut off, so fsync of level network or remote \
                 goes on once it is safe here\n"
            ),
            (true, 1..) => {
                format!(
                    "level     {level}; {} fsyncs wait until the mirror is back\n",
                    self.waiting
                )
            }
            (false, _) if level == Level::Local.name() => String::new(),
            (false, _) => format!("level     {level}\n"),
        }
    }

    #[cfg(test)]
    pub(crate) fn sample() -> Self {
        Self {
            peer: "key@mirror:7440".to_owned(),
            reign: 2,
            state: "follows".to_owned(),
            follows: true,
            bytes_at_risk: 3_100_000,
            ms_at_risk: 840,
            as_of: Some(1_700_000_000),
            level: "local".to_owned(),
            is_cut_off: false,
            waiting: 0,
            link: None,
            datagrams: Some(DatagramLine::sample()),
            relay: Some(RelayLine {
                address: "key@edge:7440".to_owned(),
                used: true,
                groups: 2,
                bytes: 4096,
                problem: None,
            }),
            verified: Some(VerifiedLine { at: 1_699_827_200, differences: 0, repaired: false }),
        }
    }
}

impl FromJson for MirrorLine {
    fn from_json(value: &Value) -> Option<Self> {
        Some(Self {
            peer: String::from_json(&value["address"])?,
            reign: u64::from_json(&value["reign"])?,
            state: String::from_json(&value["state"])?,
            follows: bool::from_json(&value["follows"])?,
            bytes_at_risk: u64::from_json(&value["bytes_at_risk"])?,
            ms_at_risk: u64::from_json(&value["ms_at_risk"])?,
            as_of: Option::from_json(&value["as_of"])?,
            // A process of an older version has none of these.
            level: value["level"].as_str().unwrap_or(Level::Local.name()).to_owned(),
            is_cut_off: value["cut_off"] == true,
            waiting: value["waiting"].as_u64().unwrap_or(0),
            link: value["link"].as_str().map(str::to_owned),
            datagrams: DatagramLine::from_json(&value["datagrams"]),
            relay: RelayLine::from_json(&value["relay"]),
            verified: VerifiedLine::from_json(&value["verified"]),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_is_at_risk() {
        let follows = MirrorLine { relay: None, verified: None, ..MirrorLine::sample() };
        assert_eq!(follows.lines(), "mirror    mirror:7440: 0.8 s, 3.0 MiB at risk\n");
        let state = "not connected: the network is unreachable".to_owned();
        let lost = MirrorLine { follows: false, state: state.clone(), ..follows.clone() };
        let expected = "mirror    mirror:7440: 0.8 s, 3.0 MiB at risk; not connected: the network \
                        is unreachable\n";
        assert_eq!(lost.lines(), expected);
        let never = MirrorLine { as_of: None, ..lost };
        let expected = "mirror    mirror:7440: all is at risk; not connected: the network is \
                        unreachable\n";
        assert_eq!(never.lines(), expected);
    }

    #[test]
    fn a_line_says_when_the_mirror_was_verified() {
        let line = |seconds: i64, differences, repaired| {
            let verified = Some(VerifiedLine { at: 1000, differences, repaired });
            let line = MirrorLine { relay: None, verified, ..MirrorLine::sample() };
            line.lines_at(1000 + seconds)
        };
        let begin = "mirror    mirror:7440: 0.8 s, 3.0 MiB at risk; ";
        assert_eq!(line(200_000, 0, true), format!("{begin}verified 2 d ago\n"));
        let times = [(-5, "0 s"), (119, "119 s"), (120, "2 min"), (7_200, "2 h")];
        for (seconds, ago) in times {
            assert_eq!(line(seconds, 0, false), format!("{begin}verified {ago} ago\n"));
        }
        let repaired = format!("{begin}verified 5 s ago, 3 repaired\n");
        assert_eq!(line(5, 3, true), repaired);
        let left = format!("{begin}verified 5 s ago, 3 not equal: `pelago verify --apply`\n");
        assert_eq!(line(5, 3, false), left);
    }

    #[test]
    fn a_line_says_what_the_relay_does() {
        let relay = MirrorLine::sample().relay.unwrap();
        let line = |used, problem: Option<&str>| {
            RelayLine { used, problem: problem.map(str::to_owned), ..relay.clone() }.line()
        };
        assert_eq!(line(true, None), "relay     edge:7440: 2 groups on the way\n");
        let full = line(true, Some("the mirror is full"));
        assert_eq!(full, "relay     edge:7440: 2 groups wait there: the mirror is full\n");
        assert_eq!(line(false, None), "relay     edge:7440: not used now\n");
        assert_eq!(line(false, Some("it is gone")), "relay     edge:7440: not used: it is gone\n");
    }

    #[test]
    fn a_line_says_what_fsync_means_now() {
        let line = |level: &str, is_cut_off, waiting| {
            let level = level.to_owned();
            MirrorLine { level, is_cut_off, waiting, ..MirrorLine::sample() }.level_line()
        };
        assert_eq!(line("local", false, 0), "");
        assert_eq!(line("remote", false, 3), "level     remote\n");
        let cut_off = "level     local; the mirror is cut off, so fsync of level network or remote \
                       goes on once it is safe here\n";
        assert_eq!(line("local", true, 0), cut_off);
        let waits = "level     remote; 2 fsyncs wait until the mirror is back\n";
        assert_eq!(line("remote", true, 2), waits);
    }
}
