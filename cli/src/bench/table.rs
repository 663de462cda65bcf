//! Rows and columns, as Markdown that is also legible as plain text.

use std::fmt;

use serde_json::json;

use crate::histogram::grouped;
use crate::size::Size;

/// The content of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell {
    /// Not measured.
    Nothing,
    Nanoseconds(f64),
    Bytes(u64),
    Count(u64),
    /// The mean of a count.
    Mean(f64),
}

impl Cell {
    fn unit(self) -> Option<&'static str> {
        match self {
            Cell::Nothing => None,
            Cell::Nanoseconds(_) => Some("ns"),
            Cell::Bytes(_) => Some("bytes"),
            Cell::Count(_) | Cell::Mean(_) => Some("count"),
        }
    }

    fn to_json(self) -> serde_json::Value {
        match self {
            Cell::Nothing => serde_json::Value::Null,
            Cell::Nanoseconds(number) | Cell::Mean(number) => json!(number),
            Cell::Bytes(number) | Cell::Count(number) => json!(number),
        }
    }

    fn number(self) -> Option<f64> {
        match self {
            Cell::Nothing => None,
            Cell::Nanoseconds(number) | Cell::Mean(number) => Some(number),
            Cell::Bytes(number) | Cell::Count(number) => Some(number as f64),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Cell::Nothing => f.write_str("-"),
            Cell::Nanoseconds(ns) => f.write_str(&time(ns)),
            Cell::Bytes(bytes) => Size(bytes).fmt(f),
            Cell::Count(count) => f.write_str(&grouped(count)),
            Cell::Mean(mean) => f.write_str(&three_digits(mean)),
        }
    }
}

/// A table of one or two columns. With two, a third column shows the first divided by the second.
pub(crate) struct Table {
    columns: Vec<&'static str>,
    rows: Vec<(&'static str, Vec<Cell>)>,
}

impl Table {
    pub(crate) fn new(columns: Vec<&'static str>) -> Table {
        Table { columns, rows: Vec::new() }
    }

    /// Adds a row, unless all its cells are empty.
    pub(crate) fn row(&mut self, name: &'static str, cells: Vec<Cell>) {
        if cells.iter().any(|cell| *cell != Cell::Nothing) {
            self.rows.push((name, cells));
        }
    }

    /// The columns, and the rows with their units and values.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let row = |(name, cells): &(&str, Vec<Cell>)| {
            let unit = cells.iter().find_map(|cell| cell.unit());
            json!({"name": name, "unit": unit, "values": cells.iter().map(|cell| cell.to_json()).collect::<Vec<_>>()})
        };
        json!({"columns": self.columns, "rows": self.rows.iter().map(row).collect::<Vec<_>>()})
    }

    fn lines(&self) -> Vec<Vec<String>> {
        let head = self.columns.iter().map(|name| name.to_string());
        let mut lines = vec![line("", head, (self.columns.len() == 2).then(|| "times".to_string()))];
        for (name, cells) in &self.rows {
            lines.push(line(name, cells.iter().map(Cell::to_string), ratio(cells)));
        }
        lines
    }
}

fn line(name: &str, cells: impl Iterator<Item = String>, ratio: Option<String>) -> Vec<String> {
    std::iter::once(name.to_string()).chain(cells).chain(ratio).collect()
}

fn ratio(cells: &[Cell]) -> Option<String> {
    let [first, second] = cells else { return None };
    Some(match (first.number(), second.number()) {
        (Some(first), Some(second)) if second > 0.0 => three_digits(first / second),
        _ => "-".to_string(),
    })
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|it| it.chars().count()).max();
        let widths: Vec<usize> = (0..).map_while(width).collect();
        for (number, line) in lines.iter().enumerate() {
            write_line(f, line, &widths)?;
            if number == 0 {
                write_rule(f, &widths)?;
            }
        }
        Ok(())
    }
}

fn write_line(f: &mut fmt::Formatter<'_>, line: &[String], widths: &[usize]) -> fmt::Result {
    for (column, (cell, &width)) in line.iter().zip(widths).enumerate() {
        match column {
            0 => write!(f, "| {cell:<width$} |")?,
            _ => write!(f, " {cell:>width$} |")?,
        }
    }
    writeln!(f)
}

fn write_rule(f: &mut fmt::Formatter<'_>, widths: &[usize]) -> fmt::Result {
    for (column, width) in widths.iter().enumerate() {
        match column {
            0 => write!(f, "|{}|", "-".repeat(width + 2))?,
            _ => write!(f, "{}:|", "-".repeat(width + 1))?,
        }
    }
    writeln!(f)
}

/// A time with three significant digits.
pub(crate) fn time(ns: f64) -> String {
    let (scale, unit) = match ns {
        ns if ns < 999.5 => (1.0, "ns"),
        ns if ns < 999.5e3 => (1e3, "us"),
        ns if ns < 999.5e6 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    format!("{} {unit}", three_digits(ns / scale))
}

fn three_digits(number: f64) -> String {
    match number {
        number if number < 9.995 => format!("{number:.2}"),
        number if number < 99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_columns_have_a_third_with_their_ratio() {
        let mut table = Table::new(vec!["files", "store"]);
        table.row("lookup", vec![Cell::Nanoseconds(5000.0), Cell::Nanoseconds(250.0)]);
        table.row("batch", vec![Cell::Nothing, Cell::Nanoseconds(80.0)]);
        table.row("cold", vec![Cell::Nothing, Cell::Nothing]);
        table.row("files", vec![Cell::Count(1_000_000), Cell::Count(20)]);
        let expected = "\
|        |     files |   store | times |
|--------|----------:|--------:|------:|
| lookup |   5.00 us |  250 ns |  20.0 |
| batch  |         - | 80.0 ns |     - |
| files  | 1,000,000 |      20 | 50000 |
";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn one_column_has_no_ratio() {
        let mut table = Table::new(vec!["store"]);
        table.row("on disk", vec![Cell::Bytes(3 << 20)]);
        assert_eq!(table.to_string().lines().last(), Some("| on disk | 3.0 MiB |"));
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        let times = [0.0, 7.25, 99.94, 100.0, 999.4, 999.6, 1e6, 2.5e9].map(time);
        assert_eq!(times, ["0.00 ns", "7.25 ns", "99.9 ns", "100 ns", "999 ns", "1.00 us", "1.00 ms", "2.50 s"]);
    }

    #[test]
    fn nothing_is_divided_by_nothing() {
        assert_eq!(ratio(&[Cell::Count(5), Cell::Count(0)]).as_deref(), Some("-"));
        assert_eq!(ratio(&[Cell::Nothing, Cell::Count(1)]).as_deref(), Some("-"));
    }
}
