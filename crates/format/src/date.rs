//! Dates in UTC, as ISO 8601.

use std::time::{SystemTime, UNIX_EPOCH};

/// The last second of the year 9999, since 1970.
pub const LAST_SECOND: u64 = 253_402_300_799;

const SECONDS_PER_DAY: u64 = 86_400;

/// Days from 0000-03-01 to 1970-01-01 in the Gregorian calendar.
const DAYS_TO_1970: u64 = 719_468;

/// Days of 400 years, after which the calendar repeats.
const DAYS_PER_ERA: u64 = 146_097;

/// Returns the date of a number of seconds since 1970: `2026-11-23T10:00:00Z`.
pub fn iso_8601(seconds: u64) -> String {
    let (days, second) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
    let (year, month, day) = civil_from_days(days + DAYS_TO_1970);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns the date of a time; before 1970, the first second of that year.
pub fn time_as_iso_8601(time: SystemTime) -> String {
    iso_8601(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Parses exactly what [`iso_8601`] writes, up to the year 9999; `None` for anything else.
pub fn parse_iso_8601(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let is_plausible = (1970..=9999).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_plausible || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_from_civil(year, month, day).checked_sub(DAYS_TO_1970)?;
    let seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
    (iso_8601(seconds) == text).then_some(seconds) // refuses 30 February, signs and other separators
}

/// Returns the days from 0000-03-01. Years begin in March, so that the leap day is the last of a year.
fn days_from_civil(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let (era, year_of_era) = (year / 400, year % 400);
    era * DAYS_PER_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year
}

/// The inverse of [`days_from_civil`]: returns year, month and day.
fn civil_from_days(days: u64) -> (u64, u64, u64) {
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts are those of `date -u -d @N +%FT%TZ`.
    #[test]
    fn dates_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_210_096, "2024-02-29T12:34:56Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_392_563, "2026-11-23T00:09:23Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (253_402_300_799, "9999-12-31T23:59:59Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!((iso_8601(seconds).as_str(), parse_iso_8601(text)), (text, Some(seconds)));
        }
        for bad in
            ["", "2100-02-29T00:00:00Z", "2026-11-23T10:00:00", "2026-11-23 10:00:00Z", "2026-13-01T00:00:00Z", "é"]
        {
            assert_eq!(parse_iso_8601(bad), None, "{bad}");
        }
        for day in (0..3_000_000).step_by(97) {
            let (year, month, date) = civil_from_days(day + DAYS_TO_1970);
            assert_eq!(days_from_civil(year, month, date), day + DAYS_TO_1970);
        }
    }
}
