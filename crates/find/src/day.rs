//! Days of the calendar, in UTC.

use std::cmp::Ordering;
use std::fmt;

use pelago_wire::Time;

const DAY_SECONDS: i64 = 86_400;

/// A day of the Gregorian calendar in UTC, of the years 0 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day {
    year: u16,
    month: u8,
    day: u8,
}

impl Day {
    /// Returns the day with these numbers, or `None` if the calendar has no such day.
    #[must_use]
    pub fn new(year: u16, month: u8, day: u8) -> Option<Self> {
        let is_day = year <= 9999 && day >= 1 && day <= days_of(year, month)?;
        is_day.then_some(Self { year, month, day })
    }

    /// Parses `YYYY-MM-DD`; returns `None` if the text is not a day.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let mut part = |digits| parts.next().filter(|part| part.len() == digits).and_then(number);
        let year = part(4)?;
        let month = part(2)?;
        let day = part(2)?;
        if parts.next().is_some() {
            return None;
        }
        Self::new(year, u8::try_from(month).ok()?, u8::try_from(day).ok()?)
    }

    /// Returns the order of a time to this day: before it, on it, or after it.
    #[must_use]
    pub fn order(self, time: Time) -> Ordering {
        time.seconds.div_euclid(DAY_SECONDS).cmp(&self.number())
    }

    /// Returns the first moment of the day.
    #[must_use]
    pub fn start(self) -> Time {
        Time { seconds: self.number() * DAY_SECONDS, nanos: 0 }
    }

    /// Returns the days since 1970-01-01.
    fn number(self) -> i64 {
        // Years begin in March, so that the day of a leap year is the last one.
        let month = i64::from(self.month);
        let year = i64::from(self.year);
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        // From March on, each five months have 153 days; the rounding gives each month its length.
        let day_of_year = (153 * month + 2) / 5 + i64::from(self.day) - 1;
        // 1970-01-01 is 719 468 days after 0000-03-01.
        365 * year + leap_days + day_of_year - 719_468
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

/// Returns the number of days of a month, or `None` if there is no such month.
const fn days_of(year: u16, month: u8) -> Option<u8> {
    let is_leap = year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    Some(match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        _ => return None,
    })
}

/// Parses digits. Unlike the standard library it takes no sign.
fn number(digits: &str) -> Option<u16> {
    let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_that_the_calendar_has_are_parsed_and_written_the_same() {
        for text in ["2026-01-31", "2024-02-29", "2000-02-29", "0000-01-01", "9999-12-31"] {
            assert_eq!(Day::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn days_that_the_calendar_does_not_have_are_refused() {
        for text in [
            "2026-02-29",
            "1900-02-29",
            "2026-04-31",
            "2026-00-10",
            "2026-13-01",
            "2026-01-00",
            "2026-1-31",
            "26-01-31",
            "2026-01-31-",
            "2026-01",
            "+026-01-31",
            "2026-01-3x",
            "",
            "20260131",
            "2026/01/31",
            "2026-01-31T00:00",
        ] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }

    #[test]
    fn days_are_counted_one_after_the_other() {
        let mut number = Day::new(0, 1, 1).unwrap().number();
        let date = |year, month, day| Day::new(year, month, day);
        for year in 0..=9999 {
            for (month, day) in (1..=12).flat_map(|month| (1..=31).map(move |day| (month, day))) {
                let Some(date) = date(year, month, day) else { continue };
                assert_eq!(date.number(), number, "{date}");
                number += 1;
            }
        }
        assert_eq!(date(1970, 1, 1).unwrap().number(), 0);
        assert_eq!(date(2026, 1, 31).unwrap().start().seconds, 1_769_817_600);
    }

    #[test]
    fn a_time_is_before_a_day_on_it_or_after_it() {
        let day = Day::parse("1969-12-31").unwrap();
        let order = |seconds, nanos| day.order(Time { seconds, nanos });
        assert_eq!(order(-86_401, 999_999_999), Ordering::Less);
        assert_eq!(order(-86_400, 0), Ordering::Equal);
        assert_eq!(order(-1, 999_999_999), Ordering::Equal);
        assert_eq!(order(0, 0), Ordering::Greater);
        assert_eq!(order(i64::MIN, 0), Ordering::Less);
        assert_eq!(order(i64::MAX, 0), Ordering::Greater);
    }
}
