//! Dates in UTC, as ISO 8601.

use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-11-23T00:09:23Z`. A time before 1970 is shown as the first second of that year.
pub(crate) fn iso_8601(time: SystemTime) -> String {
    sharddb::internal::iso_8601(time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}
