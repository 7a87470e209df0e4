//! The rule of a time zone as POSIX writes it in `TZ`, for example `CET-1CEST,M3.5.0,M10.5.0/3`.

use super::calendar::{DAY_SECONDS, Date};

/// The longest offset in hours, and the latest hour of a change (RFC 8536, 3.3.1).
const HOURS: u32 = 167;

/// The offsets of a zone in each year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// The offset in seconds east of Greenwich.
    standard: i64,
    summer: Option<Summer>,
}

/// The summer time of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Summer {
    /// The offset in seconds east of Greenwich.
    offset: i64,
    /// The beginning, in standard time.
    begin: Change,
    /// The end, in summer time.
    end: Change,
}

/// A local time in each year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Change {
    day: YearDay,
    /// Seconds since the beginning of the day.
    seconds: i64,
}

/// A day in each year.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum YearDay {
    /// `Jn`: the day with this number, from 1, without counting February 29.
    Julian(i64),
    /// `n`: the day with this number, from 0.
    Number(i64),
    /// `Mm.w.d`: a day of the week, 0 for Sunday, in a week of a month; week 5 is the last.
    Weekday { month: i64, week: i64, day: i64 },
}

impl Rule {
    /// Parses a rule; `None` if the text is none. A summer time must have its two changes.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut from = Cursor(text);
        from.name()?;
        let standard = -from.signed_time()?;
        if from.0.is_empty() {
            return Some(Self { standard, summer: None });
        }
        from.name()?;
        let offset = if from.0.starts_with(',') { standard + 3600 } else { -from.signed_time()? };
        let begin = from.change()?;
        let end = from.change()?;
        let summer = Some(Summer { offset, begin, end });
        from.0.is_empty().then_some(Self { standard, summer })
    }

    /// Returns the offset at a time in seconds since 1970.
    pub(super) fn offset_at(&self, time: i64) -> i64 {
        let Some(Summer { offset, begin, end }) = self.summer else { return self.standard };
        let year = Date::of(time.saturating_add(self.standard).div_euclid(DAY_SECONDS)).year;
        let begin = begin.in_year(year).map(|local| local - self.standard);
        let end = end.in_year(year).map(|local| local - offset);
        let (Some(begin), Some(end)) = (begin, end) else { return self.standard };
        let is_summer = match begin < end {
            true => (begin..end).contains(&time),
            // South of the equator.
            false => !(end..begin).contains(&time),
        };
        if is_summer { offset } else { self.standard }
    }
}

impl Change {
    /// Returns the local time of the change in seconds since 1970; `None` after the year 9999.
    fn in_year(self, year: i64) -> Option<i64> {
        let first = |month| Date { year, month, day: 1 }.number();
        let day = match self.day {
            YearDay::Number(number) => first(1)? + number,
            YearDay::Julian(number) => {
                let is_leap = first(3)? - first(2)? == 29;
                first(1)? + number - 1 + i64::from(is_leap && number >= 60)
            }
            YearDay::Weekday { month, week, day } => {
                let begin = first(month)?;
                // 1970-01-01 was a Thursday.
                let weekday = (begin + 4).rem_euclid(7);
                let found = begin + (day - weekday).rem_euclid(7) + (week - 1) * 7;
                // The fifth week may be in the next month.
                if Date::of(found).month == month { found } else { found - 7 }
            }
        };
        Some(day * DAY_SECONDS + self.seconds)
    }
}

/// The rest of the text.
struct Cursor<'a>(&'a str);

impl Cursor<'_> {
    fn takes(&mut self, sign: char) -> bool {
        let rest = self.0.strip_prefix(sign);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// Takes a name: letters, or letters, digits and signs between `<` and `>`.
    fn name(&mut self) -> Option<()> {
        let is_quoted = self.takes('<');
        let is_of_name = |sign: char| {
            sign.is_ascii_alphabetic()
                || is_quoted && (sign.is_ascii_digit() || matches!(sign, '+' | '-'))
        };
        let rest = self.0.trim_start_matches(is_of_name);
        let length = self.0.len() - rest.len();
        self.0 = rest;
        (length >= 3 && (!is_quoted || self.takes('>'))).then_some(())
    }

    fn number(&mut self, limit: u32) -> Option<i64> {
        let rest = self.0.trim_start_matches(|sign: char| sign.is_ascii_digit());
        let digits = self.0.get(..self.0.len() - rest.len())?;
        let number: u32 = digits.parse().ok().filter(|number| *number <= limit)?;
        self.0 = rest;
        Some(i64::from(number))
    }

    /// Takes `[+-]hh[:mm[:ss]]`, and returns the seconds.
    fn signed_time(&mut self) -> Option<i64> {
        let sign = if self.takes('-') { -1 } else { 1 };
        if sign == 1 {
            self.takes('+');
        }
        let mut seconds = self.number(HOURS)? * 3600;
        for unit in [60, 1] {
            if !self.takes(':') {
                break;
            }
            seconds += self.number(59)? * unit;
        }
        Some(sign * seconds)
    }

    /// Takes `,DAY[/TIME]`.
    fn change(&mut self) -> Option<Change> {
        if !self.takes(',') {
            return None;
        }
        let day = if self.takes('J') {
            YearDay::Julian(self.number(365).filter(|number| *number >= 1)?)
        } else if self.takes('M') {
            let month = self.number(12).filter(|number| *number >= 1)?;
            let week = self.takes('.').then(|| self.number(5)).flatten()?;
            let day = self.takes('.').then(|| self.number(6)).flatten()?;
            YearDay::Weekday { month, week: (week >= 1).then_some(week)?, day }
        } else {
            YearDay::Number(self.number(365)?)
        };
        let seconds = if self.takes('/') { self.signed_time()? } else { 2 * 3600 };
        Some(Change { day, seconds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summer_begins_and_ends_at_the_second() {
        // 2026-03-29 01:00 UTC to 2026-10-25 01:00 UTC.
        let rule = Rule::parse("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let begin = 1_774_746_000;
        let end = 1_792_890_000;
        for (time, hours) in [(begin - 1, 1), (begin, 2), (end - 1, 2), (end, 1)] {
            assert_eq!(rule.offset_at(time), hours * 3600, "{time}");
        }
        // 2026-04-05 and 2026-10-04, 16:00 UTC the day before.
        let rule = Rule::parse("AEST-10AEDT,M10.1.0,M4.1.0/3").unwrap();
        for (time, hours) in [(1_775_318_399, 11), (1_775_318_400, 10), (1_791_043_200, 11)] {
            assert_eq!(rule.offset_at(time), hours * 3600, "{time}");
        }
    }

    #[test]
    fn each_form_of_a_day_is_read() {
        let days = |day: &str, year: i64| {
            let rule = Rule::parse(&format!("ABC0DEF,{day}/0,J365/0")).unwrap();
            let Summer { begin, .. } = rule.summer?;
            begin.in_year(year).map(|seconds| Date::of(seconds / DAY_SECONDS))
        };
        let date = |month, day| Some(Date { year: 2028, month, day });
        assert_eq!(days("J60", 2028), date(3, 1));
        assert_eq!(days("J59", 2028), date(2, 28));
        assert_eq!(days("59", 2028), date(2, 29));
        assert_eq!(days("0", 2028), date(1, 1));
        assert_eq!(days("M2.5.2", 2028), date(2, 29));
        assert_eq!(days("M2.5.3", 2028), date(2, 23));
        assert_eq!(days("M2.1.2", 2028), date(2, 1));
    }

    #[test]
    fn offsets_are_west_of_greenwich_and_may_have_minutes() {
        for (text, offset) in [
            ("UTC0", 0),
            ("IST-5:30", 19_800),
            ("<-03>3", -10_800),
            ("<+1245>-12:45", 45_900),
            ("ABC+1:02:03", -3723),
        ] {
            assert_eq!(Rule::parse(text).map(|rule| rule.offset_at(0)), Some(offset), "{text}");
        }
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for text in [
            "",
            "Europe/Berlin",
            "UTC",
            "AB0",
            "<-03",
            "CET-1CEST",
            "CET-1CEST,M3.5.0",
            "CET-1CEST,M13.5.0,M10.5.0",
            "CET-1CEST,M3.0.0,M10.5.0",
            "CET-1CEST,M3.5.7,M10.5.0",
            "CET-1CEST,J0,J10",
            "CET-1CEST,366,1",
            "CET-200",
            "CET-1x",
            "CET-1CEST,M3.5.0,M10.5.0/3 ",
        ] {
            assert_eq!(Rule::parse(text), None, "{text}");
        }
    }
}
