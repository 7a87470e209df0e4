//! The attributes of an action that tell the time, in UTC.

use pelago_store::clock;
use time::{Date, Month, OffsetDateTime};

/// A moment, as the attributes have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moment {
    /// Year, month, day, hour, minute, second: 14 digits.
    pub(super) now: String,
    /// Hour and minute: 4 digits.
    pub(super) time: String,
    /// The day of the week: a digit, 0 for Sunday.
    pub(super) weekday: String,
}

/// Returns the seconds since 1970.
pub(super) fn seconds() -> u64 {
    u64::try_from(clock::now().seconds).unwrap_or_default()
}

impl Moment {
    /// Returns the moment that is this number of seconds after 1970.
    pub(super) fn at(seconds: u64) -> Self {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let date = OffsetDateTime::from_unix_timestamp(seconds);
        let date = date.unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let time = format!("{:02}{:02}", date.hour(), date.minute());
        let day = format!("{:04}{:02}{:02}", date.year(), u8::from(date.month()), date.day());
        let weekday = date.weekday().number_days_from_sunday().to_string();
        Self { now: format!("{day}{time}{:02}", date.second()), time, weekday }
    }

    /// Returns the day, as ISO 8601 writes it.
    pub(super) fn day(&self) -> String {
        let part = |from: usize, to: usize| self.now.get(from..to).unwrap_or_default();
        [part(0, 4), part(4, 6), part(6, 8)].join("-")
    }

    /// Returns the moment as ISO 8601 writes it, in UTC.
    pub(super) fn written(&self) -> String {
        let part = |from: usize, to: usize| self.now.get(from..to).unwrap_or_default();
        let time = [part(8, 10), part(10, 12), part(12, 14)].join(":");
        format!("{}T{time}Z", self.day())
    }
}

/// Returns the seconds since 1970 of a text as [`Moment::now`] has it. A text with more bytes after
/// the digits is a second later at most; any other text is no time.
pub(super) fn seconds_of(now: &[u8]) -> Option<u64> {
    // A number may have a sign, which is no digit and sorts before all.
    let digits = now.get(..14).filter(|digits| digits.iter().all(u8::is_ascii_digit))?;
    let digits = str::from_utf8(digits).ok()?;
    let part = |from: usize, to: usize| digits.get(from..to)?.parse::<u8>().ok();
    let year = digits.get(..4)?.parse().ok()?;
    let month = Month::try_from(part(4, 6)?).ok()?;
    let date = Date::from_calendar_date(year, month, part(6, 8)?).ok()?;
    let time = date.with_hms(part(8, 10)?, part(10, 12)?, part(12, 14)?).ok()?;
    let seconds = u64::try_from(time.assume_utc().unix_timestamp()).ok()?;
    Some(seconds)
}

/// Returns the time of a text of 14 digits, for people.
pub(super) fn print(now: &str) -> String {
    let part = |from: usize, to: usize| now.get(from..to).unwrap_or_default();
    let date = [part(0, 4), part(4, 6), part(6, 8)].join("-");
    let time = [part(8, 10), part(10, 12)].join(":");
    format!("on {date} at {time} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_the_digits_of_its_date() {
        let moment = Moment::at(1_798_761_599);
        assert_eq!(moment.now, "20261231235959");
        assert_eq!((moment.time.as_str(), moment.weekday.as_str()), ("2359", "4"));
        assert_eq!(Moment::at(0).now, "19700101000000");
        assert_eq!(seconds_of(moment.now.as_bytes()), Some(1_798_761_599));
        assert_eq!(seconds_of(b"20261331235959"), None, "no month");
        assert_eq!(seconds_of(b"2026"), None, "too short");
        assert_eq!(seconds_of(b"202603+9000000"), None, "a sign");
        assert_eq!(print(&moment.now), "on 2026-12-31 at 23:59 UTC");
        assert_eq!(moment.written(), "2026-12-31T23:59:59Z");
    }
}
