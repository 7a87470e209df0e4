//! The end of a share: a time as people write it and as credentials have it.

use std::fmt::{self, Display, Formatter};

use pelago_store::clock;

use calendar::{DAY_SECONDS, Date};
pub(crate) use zone::{Zone, ZoneError};

mod calendar;
mod rule;
mod zone;

/// A second of the years 1970 to 9999, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    /// Seconds since 1970.
    seconds: i64,
}

/// The reason why a text is no time.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MomentError {
    #[error("{0:?} is no time: give one such as 2026-12-31, 2026-12-31T18:00, or 14d from now")]
    Form(String),
    #[error("there is no time {0:?} in the calendar")]
    NotInCalendar(String),
    #[error("there is no {0:?} here: the clocks skip it")]
    Skipped(String),
    #[error(transparent)]
    Zone(#[from] ZoneError),
}

impl Moment {
    /// Returns the present time.
    pub(crate) fn now() -> Self {
        Self { seconds: clock::now().seconds }
    }

    /// Parses the end of a share: `2026-12-31`, which ends with that day, `2026-12-31T18:00` with
    /// seconds and `Z` or an offset if wanted, or the time from `now` on: `30s`, `90m`, `36h`,
    /// `14d`. A text without an offset is a local time.
    ///
    /// # Errors
    /// [`MomentError`].
    pub(crate) fn parse(
        text: &str,
        now: Self,
        zone: impl Fn() -> Result<Zone, ZoneError>,
    ) -> Result<Self, MomentError> {
        let no_time = || MomentError::Form(text.to_owned());
        let no_day = || MomentError::NotInCalendar(text.to_owned());
        if let Some(span) = span(text) {
            let seconds = span.and_then(|span| now.seconds.checked_add(span));
            return seconds.and_then(Self::of).ok_or_else(no_day);
        }
        let written = Written::parse(text).ok_or_else(no_time)?;
        let local = written.seconds().ok_or_else(no_day)?;
        let seconds = match written.offset {
            Some(offset) => local - offset,
            None => zone()?.time_of(local).ok_or_else(|| MomentError::Skipped(text.to_owned()))?,
        };
        Self::of(seconds).ok_or_else(no_day)
    }

    /// Returns the moment with this number of seconds since 1970; `None` outside the years.
    pub(crate) fn of(seconds: i64) -> Option<Self> {
        let year = Date::of(seconds.div_euclid(DAY_SECONDS)).year;
        (1970..=9999).contains(&year).then_some(Self { seconds })
    }

    /// Returns the moment as the attribute `now` of an action has it: 14 digits.
    pub(crate) fn digits(self) -> String {
        let Date { year, month, day } = self.date();
        let Clock { hour, minute, second } = self.clock();
        format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}")
    }

    /// Returns the moment of 14 digits; `None` if the calendar does not have it.
    pub(crate) fn of_digits(text: &str) -> Option<Self> {
        let mut from = text;
        let mut number = |digits| take_digits(&mut from, digits);
        let date = Date { year: number(4)?, month: number(2)?, day: number(2)? };
        let clock = Clock { hour: number(2)?, minute: number(2)?, second: number(2)? };
        let written = Written { date, clock: Some(clock), offset: None };
        written.seconds().filter(|_| from.is_empty()).and_then(Self::of)
    }

    fn date(self) -> Date {
        Date::of(self.seconds.div_euclid(DAY_SECONDS))
    }

    const fn clock(self) -> Clock {
        let seconds = self.seconds.rem_euclid(DAY_SECONDS);
        Clock { hour: seconds / 3600, minute: seconds / 60 % 60, second: seconds % 60 }
    }
}

impl Display for Moment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Date { year, month, day } = self.date();
        let Clock { hour, minute, second } = self.clock();
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")?;
        if second != 0 {
            write!(f, ":{second:02}")?;
        }
        f.write_str(" UTC")
    }
}

/// Parses a span of time into seconds; `None` if the text is none, and a `None` inside if it is too
/// long.
fn span(text: &str) -> Option<Option<i64>> {
    let unit = match text.bytes().last()? {
        b's' => 1,
        b'm' => 60,
        b'h' => 3600,
        b'd' => DAY_SECONDS,
        _ => return None,
    };
    let digits = text.get(..text.len() - 1)?;
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse::<i64>().ok()?.checked_mul(unit))
}

/// A time of day.
struct Clock {
    hour: i64,
    minute: i64,
    second: i64,
}

/// A date and a time of day as they were written.
struct Written {
    date: Date,
    /// The time of day; `None` for its end.
    clock: Option<Clock>,
    /// The offset from UTC in seconds; `None` for local time.
    offset: Option<i64>,
}

impl Written {
    fn parse(text: &str) -> Option<Self> {
        let mut from = text;
        let year = take_digits(&mut from, 4)?;
        let month = takes(&mut from, '-').then(|| take_digits(&mut from, 2)).flatten()?;
        let day = takes(&mut from, '-').then(|| take_digits(&mut from, 2)).flatten()?;
        let date = Date { year, month, day };
        if from.is_empty() {
            return Some(Self { date, clock: None, offset: None });
        }
        let hour = takes(&mut from, 'T').then(|| take_digits(&mut from, 2)).flatten()?;
        let minute = takes(&mut from, ':').then(|| take_digits(&mut from, 2)).flatten()?;
        let second = match takes(&mut from, ':') {
            true => take_digits(&mut from, 2)?,
            false => 0,
        };
        let offset = offset(&mut from)?;
        from.is_empty().then_some(Self {
            date,
            clock: Some(Clock { hour, minute, second }),
            offset,
        })
    }

    /// Returns the seconds since 1970, without the offset; `None` if the calendar or the clock does
    /// not have it.
    fn seconds(&self) -> Option<i64> {
        let day = self.date.number()? * DAY_SECONDS;
        match self.clock {
            None => Some(day + DAY_SECONDS),
            Some(Clock { hour, minute, second }) if hour < 24 && minute < 60 && second < 60 => {
                Some(day + hour * 3600 + minute * 60 + second)
            }
            Some(_) => None,
        }
    }
}

/// Takes `Z`, `+HH:MM`, `-HH:MM` or nothing; `None` if it is another text.
fn offset(from: &mut &str) -> Option<Option<i64>> {
    if takes(from, 'Z') {
        return Some(Some(0));
    }
    let is_east = takes(from, '+');
    if !is_east && !takes(from, '-') {
        return Some(None);
    }
    let sign = if is_east { 1 } else { -1 };
    let hours = take_digits(from, 2).filter(|hours| *hours < 24)?;
    let minutes = takes(from, ':').then(|| take_digits(from, 2)).flatten();
    let minutes = minutes.filter(|minutes| *minutes < 60)?;
    Some(Some(sign * (hours * 3600 + minutes * 60)))
}

fn takes(from: &mut &str, sign: char) -> bool {
    let rest = from.strip_prefix(sign);
    *from = rest.unwrap_or(from);
    rest.is_some()
}

/// Takes a number of so many digits.
fn take_digits(from: &mut &str, digits: usize) -> Option<i64> {
    let (head, rest) = from.split_at_checked(digits)?;
    let is_number = head.bytes().all(|byte| byte.is_ascii_digit());
    let number = is_number.then(|| head.parse().ok()).flatten()?;
    *from = rest;
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a text at noon of 2026-10-24, in Berlin, where the clocks go back the next night.
    fn parse(text: &str) -> Result<String, String> {
        let now = Moment::of_digits("20261024120000").unwrap();
        let berlin = || Ok(Zone::of_rule(rule::Rule::parse("CET-1CEST,M3.5.0,M10.5.0/3").unwrap()));
        let parsed = Moment::parse(text, now, berlin);
        parsed.map(|moment| moment.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_time_is_stored_in_utc() {
        for (text, moment) in [
            ("2026-12-31T18:00Z", "2026-12-31 18:00 UTC"),
            ("2026-12-31T18:00:05Z", "2026-12-31 18:00:05 UTC"),
            ("2026-12-31T18:00", "2026-12-31 17:00 UTC"),
            ("2026-07-31T18:00:00", "2026-07-31 16:00 UTC"),
            ("2026-12-31T18:00+05:30", "2026-12-31 12:30 UTC"),
            ("2026-12-31T18:00:01-08:00", "2027-01-01 02:00:01 UTC"),
            ("2028-02-29T00:00Z", "2028-02-29 00:00 UTC"),
        ] {
            assert_eq!(parse(text), Ok(moment.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_day_ends_with_its_last_hour_here() {
        assert_eq!(parse("2026-12-31"), Ok("2026-12-31 23:00 UTC".to_owned()));
        assert_eq!(parse("2026-07-31"), Ok("2026-07-31 22:00 UTC".to_owned()));
    }

    #[test]
    fn a_span_begins_now() {
        for (text, moment) in [
            ("90m", "2026-10-24 13:30 UTC"),
            ("36h", "2026-10-26 00:00 UTC"),
            ("14d", "2026-11-07 12:00 UTC"),
        ] {
            assert_eq!(parse(text), Ok(moment.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_the_calendar_does_not_have_is_refused() {
        for text in [
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-01-32T10:00Z",
            "2026-12-31T24:00",
            "2026-12-31T23:60Z",
            "2026-12-31T23:59:60Z",
            "9999-12-31T23:59-01:00",
            "1969-12-31T23:59Z",
            "99999999999d",
            "99999999999999999999d",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.ends_with("in the calendar"), "{text}: {error}");
        }
        assert!(parse("2027-03-28T02:30").unwrap_err().contains("the clocks skip it"));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "tomorrow",
            "d",
            "14",
            "14w",
            "-1d",
            "1.5h",
            "+1h",
            "é",
            "2026-1-31",
            "2026-12-31 18:00",
            "2026-12-31T",
            "2026-12-31T18",
            "2026-12-31T18:0",
            "2026-12-31T18:00:",
            "2026-12-31T18:00z",
            "2026-12-31T18:00+0100",
            "2026-12-31T18:00+24:00",
            "2026-12-31T18:00+01:60",
            "2026-12-31T18:00Z ",
            "2026-12-31Z",
            "+026-12-31",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("is no time"), "{text}: {error}");
        }
    }

    #[test]
    fn the_digits_of_a_credential_are_the_moment() {
        for digits in ["19700101000000", "20261231180005", "99991231235959"] {
            assert_eq!(Moment::of_digits(digits).unwrap().digits(), digits);
        }
        for wrong in ["20261331000000", "2026123118000", "202612311800051", "2026123118000x", ""] {
            assert_eq!(Moment::of_digits(wrong), None, "{wrong}");
        }
    }
}
