//! The machine, the date and the versions, which every report of figures needs.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

const LOCK: &str = include_str!("../Cargo.lock");
const PACKAGES: [&str; 8] =
    ["sharddb", "heed", "lmdb-master-sys", "redb", "cdb64", "rusqlite", "libsqlite3-sys", "hashbrown"];

pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub date: String,
    pub versions: Vec<(&'static str, String)>,
}

impl Machine {
    pub fn this() -> Machine {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Machine {
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: first_number(&field(&read("/proc/meminfo"), "MemTotal")) << 10,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            date: date(seconds / 86_400),
            versions: versions(LOCK),
        }
    }

    pub fn to_json(&self) -> Value {
        json!({
            "cpu": self.cpu,
            "cores": self.cores,
            "memory_bytes": self.memory_bytes,
            "kernel": self.kernel,
            "date": self.date,
            "versions": self.versions.iter().map(|(name, version)| (name.to_string(), json!(version)))
                .collect::<serde_json::Map<_, _>>(),
        })
    }
}

/// The value of a line "name : value" of a file in /proc.
fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim()).to_string()
}

fn first_number(text: &str) -> u64 {
    text.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn versions(lock: &str) -> Vec<(&'static str, String)> {
    let version = |name: &str| {
        let rest = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?.1;
        Some(rest.split_once('"')?.0.to_string())
    };
    PACKAGES.into_iter().filter_map(|name| Some((name, version(name)?))).collect()
}

/// The date `days` days after 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(11_017), "2000-03-01");
        assert_eq!(date(20_818), "2026-12-31");
        assert_eq!(date(20_819), "2027-01-01");
    }

    #[test]
    fn every_engine_has_its_version() {
        assert_eq!(versions(LOCK).len(), PACKAGES.len());
    }
}
