//! The measurements as a Markdown table for readers and as JSON for scripts.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::data::{DataSet, Values};
use crate::engines::{PEERS, REFERENCE};
use crate::machine::Machine;
use crate::measurement::{Measurement, Unit, median};

/// All measurements of one set.
pub struct SetReport {
    pub data: DataSet,
    pub measurements: Vec<Measurement>,
}

impl SetReport {
    /// A row per workload, a column per engine; "-" for an engine that was not measured.
    pub fn to_markdown(&self) -> String {
        let engines: Vec<_> = PEERS.iter().map(|peer| peer.name).filter(|name| self.has(name)).collect();
        let mut text = format!("## {}\n\n", describe(&self.data));
        // writing to a string does not fail
        let _ = writeln!(text, "| | {} |", engines.join(" | "));
        let _ = writeln!(text, "|---|{}", "---:|".repeat(engines.len()));
        for workload in self.workloads() {
            let cells: Vec<_> = engines.iter().map(|engine| self.cell(workload, engine)).collect();
            let _ = writeln!(text, "| {workload} | {} |", cells.join(" | "));
        }
        text
    }

    fn has(&self, engine: &str) -> bool {
        self.measurements.iter().any(|it| it.engine == engine)
    }

    /// The workloads in the order of their first measurement.
    fn workloads(&self) -> Vec<&str> {
        let mut workloads: Vec<&str> = Vec::new();
        for measurement in &self.measurements {
            if !workloads.contains(&measurement.workload.as_str()) {
                workloads.push(&measurement.workload);
            }
        }
        workloads
    }

    fn cell(&self, workload: &str, engine: &str) -> String {
        let found = self.measurements.iter().find(|it| it.engine == engine && it.workload == workload);
        found.map_or_else(|| "-".to_string(), cell)
    }

    fn to_json(&self) -> impl Iterator<Item = Value> {
        self.measurements.iter().map(|measurement| row(&self.data, measurement))
    }
}

/// The heading of the report.
pub fn heading(machine: &Machine) -> String {
    let versions: Vec<_> = machine.versions.iter().map(|(name, version)| format!("{name} {version}")).collect();
    format!(
        "# ShardDb and its peers\n\n{}, {} cores, {:.0} GiB, Linux {}, {}. {}.\n\n\
         Median (minimum) of the rounds, × median of the rounds' ratios to {REFERENCE}. Smaller is better, but for \
         threads and swaps.\n",
        machine.cpu,
        machine.cores,
        machine.memory_bytes as f64 / (1_u64 << 30) as f64,
        machine.kernel,
        machine.date,
        versions.join(", "),
    )
}

/// A JSON object with the machine and the rows, each row on its own line.
pub fn to_json(machine: &Machine, sets: &[SetReport]) -> String {
    let rows: Vec<_> = sets.iter().flat_map(SetReport::to_json).map(|row| row.to_string()).collect();
    format!("{{\"machine\": {},\n\"rows\": [\n{}\n]}}\n", machine.to_json(), rows.join(",\n"))
}

fn row(data: &DataSet, measurement: &Measurement) -> Value {
    let name = match measurement.unit {
        Unit::Nanoseconds => "ns",
        Unit::Bytes => "bytes",
        Unit::Count => "count",
        Unit::Ratio => "ratio",
    };
    let mut row = Map::new();
    let mut put = |name: &str, value: Value| drop(row.insert(name.to_string(), value));
    put("set", json!(data.to_string()));
    put("workload", json!(measurement.workload));
    put("engine", json!(measurement.engine));
    put(name, json!(significant(measurement.median())));
    put(&format!("min_{name}"), json!(significant(measurement.minimum())));
    put("rounds", json!(measurement.rounds.len()));
    if let Some(ratios) = measurement.ratios() {
        put("ratio_to_lmdb", json!(significant(median(&ratios))));
        put("min_ratio_to_lmdb", json!(significant(ratios.into_iter().fold(f64::INFINITY, f64::min))));
    }
    Value::Object(row)
}

/// Rounds to five digits, which is more than a measurement is accurate to. NaN and infinity (ratios to 0) become null.
fn significant(number: f64) -> f64 {
    format!("{number:.4e}").parse().unwrap_or(f64::NAN)
}

fn cell(measurement: &Measurement) -> String {
    let mut text = number(measurement.median(), measurement.unit);
    if measurement.rounds.len() > 1 && measurement.unit == Unit::Nanoseconds {
        let _ = write!(text, " ({})", number(measurement.minimum(), measurement.unit));
    }
    if let Some(ratio) = measurement.ratios().map(|ratios| median(&ratios)).filter(|ratio| ratio.is_finite()) {
        let _ = write!(text, " ×{}", digits(ratio));
    }
    text
}

fn number(number: f64, unit: Unit) -> String {
    let scaled = |units: &[&str]| {
        let (mut number, mut units) = (number, units.iter());
        let mut unit = units.next();
        while number.abs() >= 999.5
            && let Some(larger) = units.next()
        {
            (number, unit) = (number / 1000.0, Some(larger));
        }
        format!("{} {}", digits(number), unit.copied().unwrap_or_default())
    };
    match unit {
        Unit::Nanoseconds => scaled(&["ns", "µs", "ms", "s"]),
        Unit::Bytes => scaled(&["B", "kB", "MB", "GB"]),
        Unit::Count | Unit::Ratio => digits(number),
    }
}

/// A number with three significant digits.
fn digits(number: f64) -> String {
    match number.abs() {
        size if size >= 99.95 => format!("{number:.0}"),
        size if size >= 9.995 => format!("{number:.1}"),
        size if size >= 0.1 || size == 0.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

fn describe(data: &DataSet) -> String {
    match data.values {
        Values::Fixed(len) => format!("{data}: {} keys, values of {len} bytes", data.keys),
        Values::LogNormal => {
            format!("{data}: {} keys, values of 330 bytes on average (log-normal, median 200)", data.keys)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(engine: &'static str, rounds: &[f64]) -> Measurement {
        let reference = Some(vec![1000.0; rounds.len()]);
        Measurement { workload: "hit".into(), engine, unit: Unit::Nanoseconds, rounds: rounds.to_vec(), reference }
    }

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        for (ns, text) in
            [(0.0, "0.00 ns"), (7.0, "7.00 ns"), (193.4, "193 ns"), (999.6, "1.00 µs"), (1.34e9, "1.34 s")]
        {
            assert_eq!(number(ns, Unit::Nanoseconds), text);
        }
        assert_eq!(number(1.33e12, Unit::Bytes), "1330 GB");
        assert_eq!(number(0.0421, Unit::Ratio), "0.042");
    }

    #[test]
    fn table_has_a_row_a_workload_and_a_column_an_engine() {
        let data = "1Mx100".parse().unwrap();
        let measurements = vec![measurement("lmdb", &[1000.0]), measurement("sharddb", &[190.0, 210.0])];
        let text = SetReport { data, measurements }.to_markdown();
        assert!(text.contains("| | sharddb | lmdb |\n|---|---:|---:|\n"), "{text}");
        assert!(text.contains("| hit | 200 ns (190 ns) ×0.20 | 1.00 µs ×1.00 |"), "{text}");
    }

    #[test]
    fn json_reads_back_with_a_row_a_measurement() {
        let data = "1Mx100".parse().unwrap();
        let set = SetReport { data, measurements: vec![measurement("sharddb", &[190.0, 210.0])] };
        let json: Value = serde_json::from_str(&to_json(&Machine::this(), &[set])).unwrap();
        let row = &json["rows"][0];
        assert_eq!((row["set"].as_str(), row["engine"].as_str()), (Some("1Mx100"), Some("sharddb")));
        assert_eq!((row["ns"].as_f64(), row["min_ns"].as_f64()), (Some(200.0), Some(190.0)));
        assert_eq!(row["ratio_to_lmdb"].as_f64(), Some(0.2));
    }
}
