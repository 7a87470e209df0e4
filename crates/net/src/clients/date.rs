//! A day in the list of clients.

use std::fmt;
use std::str::FromStr;

use rustix::time::{ClockId, clock_gettime};

/// A day of the Gregorian calendar, in UTC; its text is `2026-02-03`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

/// A text is not a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a date is YYYY-MM-DD")]
pub struct DateError;

/// Seconds of a day of UTC.
const DAY_SECONDS: i64 = 86_400;

impl Date {
    /// Returns the day of the wall clock.
    #[must_use]
    pub fn today() -> Self {
        Self::of_seconds(clock_gettime(ClockId::Realtime).tv_sec)
    }

    /// Returns the day of this many seconds after the start of 1970. A clock that is set to another
    /// millennium gives the nearest day of the years 1970 to 9999.
    #[must_use]
    pub fn of_seconds(seconds: i64) -> Self {
        // Days since 1 March of year 0, so that a leap day is the last day of its year.
        let days = seconds.div_euclid(DAY_SECONDS).clamp(0, 2_932_896) + 719_468;
        let era = days / 146_097;
        let day_of_era = days % 146_097;
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + year_of_era + i64::from(month <= 2);
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        Self { year: year as u16, month: month as u8, day: day as u8 }
    }

    /// Returns whether a text is meant as a date.
    pub(super) fn is_meant(text: &str) -> bool {
        text.parse::<Self>().is_ok()
    }
}

impl FromStr for Date {
    type Err = DateError;

    fn from_str(text: &str) -> Result<Self, DateError> {
        let mut parts = text.split('-');
        let mut number = |digits: usize| {
            let part = parts.next().filter(|part| part.len() == digits)?;
            if part.bytes().all(|byte| byte.is_ascii_digit()) {
                part.parse::<u16>().ok()
            } else {
                None
            }
        };
        let parsed = (number(4), number(2), number(2));
        let (Some(year), Some(month @ 1..=12), Some(day @ 1..=31)) = parsed else {
            return Err(DateError);
        };
        if parts.next().is_some() {
            return Err(DateError);
        }
        Ok(Self { year, month: month as u8, day: day as u8 })
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:04}-{:02}-{:02}", self.year, self.month, self.day))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_767_225_599, "2025-12-31"),
            (4_107_542_400, "2100-03-01"),
            (-1, "1970-01-01"),
            (i64::MAX, "9999-12-31"),
        ];
        for (seconds, text) in cases {
            assert_eq!(Date::of_seconds(seconds).to_string(), text);
            assert_eq!(text.parse(), Ok(Date::of_seconds(seconds)));
        }
    }

    /// Counts the days of 400 years one by one.
    #[test]
    fn each_day_follows_the_last() {
        let mut seconds = 0;
        for year in 1970..2370_u16 {
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let february = if is_leap { 29 } else { 28 };
            let months = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
            for (month, days) in (1..).zip(months) {
                for day in 1..=days {
                    assert_eq!(Date::of_seconds(seconds), Date { year, month, day });
                    seconds += DAY_SECONDS;
                }
            }
        }
    }

    #[test]
    fn other_texts_are_no_dates() {
        for text in
            ["", "2026", "2026-1-02", "2026-13-01", "2026-00-01", "2026-01-32", "+026-01-01"]
        {
            assert_eq!(text.parse::<Date>(), Err(DateError), "{text}");
        }
        assert_eq!("2026-01-01-01".parse::<Date>(), Err(DateError));
    }
}
