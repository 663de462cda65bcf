//! A plan in words for a person, and as JSON for a program.

use std::fmt;

use super::Plan;
use super::prediction::Prediction;

/// One figure: its name, and how it is written.
struct Row {
    name: &'static str,
    write: fn(&Prediction) -> String,
}

const ROWS: [Row; 14] = [
    Row { name: "preshift bits", write: |p| p.spec().preshift_bits().to_string() },
    Row { name: "minishard bits", write: |p| p.spec().minishard_bits().to_string() },
    Row { name: "shard bits", write: |p| p.spec().shard_bits().to_string() },
    Row { name: "shard files", write: |p| p.shard_files().to_string() },
    Row { name: "skew (largest / mean)", write: |p| format!("{:.2}", p.skew()) },
    Row { name: "keys a minishard, mean", write: |p| format!("{:.1}", p.mean_keys_per_minishard()) },
    Row { name: "keys a minishard, median", write: |p| p.median_keys_per_minishard().to_string() },
    Row { name: "keys a minishard, largest", write: |p| p.largest_keys_per_minishard().to_string() },
    Row { name: "index bytes a key", write: |p| format!("{:.1}", p.index_bytes_per_key()) },
    Row { name: "local get, cache misses", write: |p| p.local_get().cache_misses.to_string() },
    Row { name: "local get, cold pages", write: |p| format!("{:.1}", p.local_get().pages) },
    Row { name: "local get, bytes", write: |p| format!("{:.0}", p.local_get().bytes) },
    Row { name: "HTTP get, requests", write: |p| p.http_get().requests.to_string() },
    Row { name: "HTTP get, bytes", write: |p| format!("{:.0}", p.http_get().bytes) },
];

/// The explanation: the specification, why, and the figures beside those of one minishard bit less and more.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.spec())?;
        writeln!(f, "{}", self.reason())?;
        writeln!(f, "{} keys, {} bytes of values\n", self.keys(), self.value_bytes())?;
        let columns =
            [("plan", Some(self.prediction())), ("1 bit less", self.fewer_bits()), ("1 bit more", self.more_bits())];
        let columns: Vec<_> = columns.into_iter().filter_map(|(name, column)| Some((name, column?))).collect();
        write!(f, "{:26}", "")?;
        columns.iter().try_for_each(|(name, _)| write!(f, "{name:>12}"))?;
        for row in &ROWS {
            write!(f, "\n{:26}", row.name)?;
            columns.iter().try_for_each(|(_, column)| write!(f, "{:>12}", (row.write)(column)))?;
        }
        Ok(())
    }
}

impl Plan {
    /// The plan as one JSON object on one line: "sharding" is the specification as `info` has it; "predicted",
    /// "fewer_minishard_bits" and "more_minishard_bits" hold the figures (the last two null where the format
    /// allows no such specification).
    pub fn to_json(&self) -> String {
        let or_null = |prediction: Option<&Prediction>| prediction.map_or("null".to_string(), figures);
        let profile = self.profile().map_or("null".to_string(), |profile| format!("\"{profile}\""));
        format!(
            "{{\"sharding\": {}, \"profile\": {profile}, \"reason\": \"{}\", \"keys\": {}, \"value_bytes\": {}, \
             \"predicted\": {}, \"fewer_minishard_bits\": {}, \"more_minishard_bits\": {}}}",
            self.spec().to_json(),
            self.reason(),
            self.keys(),
            self.value_bytes(),
            figures(self.prediction()),
            or_null(self.fewer_bits()),
            or_null(self.more_bits()),
        )
    }
}

fn figures(prediction: &Prediction) -> String {
    let (local, http) = (prediction.local_get(), prediction.http_get());
    format!(
        "{{\"minishard_bits\": {}, \"shard_bits\": {}, \"shard_files\": {}, \"skew\": {:.4}, \
         \"minishards_with_keys\": {}, \"mean_keys_per_minishard\": {:.3}, \"median_keys_per_minishard\": {}, \
         \"largest_keys_per_minishard\": {}, \"index_bytes_per_key\": {:.3}, \"local_get_cache_misses\": {}, \
         \"local_get_pages\": {:.3}, \"local_get_bytes\": {:.1}, \"http_get_requests\": {}, \
         \"http_get_bytes\": {:.1}}}",
        prediction.spec().minishard_bits(),
        prediction.spec().shard_bits(),
        prediction.shard_files(),
        prediction.skew(),
        prediction.minishards_with_keys(),
        prediction.mean_keys_per_minishard(),
        prediction.median_keys_per_minishard(),
        prediction.largest_keys_per_minishard(),
        prediction.index_bytes_per_key(),
        local.cache_misses,
        local.pages,
        local.bytes,
        http.requests,
        http.bytes,
    )
}
