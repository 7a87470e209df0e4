//! Days as numbers, and as dates of the Gregorian calendar.

use pelago_find::Day;

pub(super) const DAY_SECONDS: i64 = 86_400;

/// A date of the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i64,
    /// 1 for January.
    pub(super) month: i64,
    /// 1 for the first day of the month.
    pub(super) day: i64,
}

impl Date {
    /// Returns the date of a day: the number of days since 1970-01-01.
    pub(super) const fn of(number: i64) -> Self {
        // Years begin in March, so that the day of a leap year is the last one; 400 years have
        // 146 097 days.
        let days = number + 719_468;
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // From March on, each five months have 153 days.
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = era * 400 + year_of_era + if month <= 2 { 1 } else { 0 };
        Self { year, month, day }
    }

    /// Returns the number of days since 1970-01-01; `None` if the calendar has no such date, or the
    /// year is after 9999.
    pub(super) fn number(self) -> Option<i64> {
        let year = u16::try_from(self.year).ok()?;
        let day = Day::new(year, self.month.try_into().ok()?, self.day.try_into().ok()?)?;
        Some(day.start().seconds / DAY_SECONDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_one_number_and_one_date() {
        let mut number = Date { year: 1969, month: 1, day: 1 }.number().unwrap();
        for year in 1969..2405 {
            for (month, day) in (1..=12).flat_map(|month| (1..=31).map(move |day| (month, day))) {
                let date = Date { year, month, day };
                if date.number().is_some() {
                    assert_eq!(date.number(), Some(number));
                    assert_eq!(Date::of(number), date);
                    number += 1;
                }
            }
        }
        assert_eq!(Date::of(0), Date { year: 1970, month: 1, day: 1 });
    }
}
