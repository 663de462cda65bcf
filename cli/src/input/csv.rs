//! `csv`: one row per pair, as RFC 4180 describes it.
//!
//! ```text
//! id,name,population        the names of the columns
//! 1,Oslo,709037             key column "id"; value column "name" makes Oslo,
//!                           no value column makes {"name":"Oslo","population":"709037"}
//! ```

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use csv::{ByteRecord, ReaderBuilder};
use sharddb::internal::key;

use crate::failure::{Failure, Place, Result};
use crate::input::{Columns, Sink, Stream, mark};

/// Reads all rows and passes their pairs to `sink`.
///
/// Memory is bounded by the longest row.
///
/// Errors: `Malformed` with the line on which the row begins; `Io`; those of the sink.
pub(crate) fn read(stream: &mut Stream, longest: u64, columns: &Columns, sink: &mut dyn Sink) -> Result<()> {
    let name = stream.name().to_string();
    let malformed = |line: u64, message: String| Failure::malformed(&name, Place::Line(line), message);
    let mark = stream.fill_buf().map(mark::describe_unless_utf_8);
    if let Some(mark) = mark.map_err(|error| stream.failure(error))? {
        return Err(malformed(1, format!("expected rows of text in UTF-8, found {mark}")));
    }
    let watch = Watch::default();
    let reader = Watched { stream, watch: watch.clone(), state: Quotes::FieldStart, line: 1, columns: 1, opened: 1 };
    let mut rows = ReaderBuilder::new().has_headers(false).buffer_capacity(BUFFER).from_reader(reader);
    let mut table: Option<Table> = None;
    let mut row = ByteRecord::new();
    loop {
        watch.budget.set(longest.saturating_add(BUFFER as u64));
        let line = rows.position().line();
        match rows.read_byte_record(&mut row) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => return Err(explain(error, line, longest, rows.get_ref(), &name)),
        }
        let line = row.position().map_or(line, csv::Position::line);
        if let Some(unclosed) = watch.unclosed.get() {
            return Err(malformed(unclosed, "expected the closing quote of a field, found the end of the file".into()));
        }
        let table = match &mut table {
            Some(table) => table,
            none => {
                let table = none.insert(Table::of_first(&row, columns).map_err(|message| malformed(line, message))?);
                if !columns.no_header {
                    continue;
                }
                table
            }
        };
        let (key, value) = table.pair(&row).map_err(|message| malformed(line, message))?;
        sink.insert(key, &[], &value).map_err(|failure| failure.at(&name, Place::Line(line)))?;
    }
}

const BUFFER: usize = 64 << 10;

/// The most columns of a row: the parser keeps the end of each in memory.
const MOST_COLUMNS: u64 = 65_536;

/// The columns of a file.
struct Table {
    names: Vec<String>,
    key: usize,
    value: Option<usize>,
}

impl Table {
    /// The columns that the first row names; without a header, their numbers are their names.
    fn of_first(row: &ByteRecord, columns: &Columns) -> Result<Table, String> {
        if columns.no_header {
            return Table::named((1..=row.len()).map(|number| number.to_string()).collect(), columns);
        }
        let text = |name: &[u8]| match std::str::from_utf8(name) {
            Ok(name) => Ok(name.to_string()),
            Err(_) => Err("expected the names of the columns in UTF-8, found other bytes".to_string()),
        };
        let table = Table::named(row.iter().map(text).collect::<Result<_, _>>()?, columns)?;
        match table.names.get(table.key).filter(|name| is_number(name)) {
            Some(name) => {
                Err(format!("expected the names of the columns, found the number \"{name}\": add --no-header"))
            }
            None => Ok(table),
        }
    }

    fn named(names: Vec<String>, columns: &Columns) -> Result<Table, String> {
        let key = match &columns.key {
            Some(column) => find(&names, column, "--key-column")?,
            None => names.iter().position(|name| name == "key").unwrap_or(0),
        };
        let value = columns.value.as_ref().map(|column| find(&names, column, "--value-column")).transpose()?;
        if value.is_none() {
            let twice = names.iter().enumerate().find(|(at, name)| names.iter().take(*at).any(|other| other == *name));
            if let Some((_, name)) = twice {
                return Err(format!(
                    "expected columns of different names, found \"{name}\" twice: choose one by number with --value-column"
                ));
            }
        }
        Ok(Table { names, key, value })
    }

    fn pair<'a>(&self, row: &'a ByteRecord) -> Result<(u64, std::borrow::Cow<'a, [u8]>), String> {
        let text = row.get(self.key).unwrap_or_default();
        let key = std::str::from_utf8(text).ok().and_then(key::canonical).ok_or_else(|| {
            let found: String = String::from_utf8_lossy(text).chars().take(40).collect();
            let column = self.names.get(self.key).map_or("", String::as_str);
            format!(
                "expected a key from 0 to 2^64-1 in decimal digits, without spaces, a sign, 0x or leading zeros, in column \
                 \"{column}\", found \"{found}\" ({})",
                match self.names.len() {
                    1 => "there is one column: are the separators commas?",
                    _ => "--key-column chooses another column",
                }
            )
        })?;
        match self.value {
            Some(value) => Ok((key, row.get(value).unwrap_or_default().into())),
            None => Ok((key, self.rest(row)?.into())),
        }
    }

    /// The columns except the key, as a JSON object of strings.
    fn rest(&self, row: &ByteRecord) -> Result<Vec<u8>, String> {
        let mut object = vec![b'{'];
        for (at, (name, field)) in self.names.iter().zip(row).enumerate().filter(|(at, _)| *at != self.key) {
            let field = std::str::from_utf8(field).map_err(|_| {
                format!(
                    "expected UTF-8 in column {} (\"{name}\"), found other bytes: --value-column stores the bytes of one \
                     column",
                    at + 1
                )
            })?;
            if object.len() > 1 {
                object.push(b',');
            }
            let member = serde_json::to_string(name).and_then(|name| Ok((name, serde_json::to_string(field)?)));
            let (name, field) = member.map_err(|error| error.to_string())?;
            object.extend_from_slice(name.as_bytes());
            object.push(b':');
            object.extend_from_slice(field.as_bytes());
        }
        object.push(b'}');
        Ok(object)
    }
}

/// Whether a text is a number as programs and people write it, which the first row of a file with a header does not have as a
/// name: ` 1`, `-1`, `#1`, `'1`, `0x1f`, `1_000`, `1,000`, `1.0`.
fn is_number(text: &str) -> bool {
    let text = text.trim().trim_start_matches(['\'', '#', '+', '-']).replace('_', "");
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or_default();
    let is_hex = !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let has_digits = text.contains(|char: char| char.is_ascii_digit());
    is_hex || has_digits && (text.parse::<f64>().is_ok() || !text.contains(char::is_alphabetic))
}

/// Finds a column by its name, or else by its number from 1.
fn find(names: &[String], column: &str, option: &str) -> Result<usize, String> {
    let mut named = names.iter().enumerate().filter(|(_, name)| *name == column).map(|(at, _)| at);
    match (named.next(), named.next()) {
        (Some(at), None) => return Ok(at),
        (Some(_), Some(_)) => {
            return Err(format!("expected one column \"{column}\" for {option}, found two: give its number"));
        }
        (None, _) => {}
    }
    let number = column.parse::<usize>().ok().filter(|number| (1..=names.len()).contains(number));
    number.map(|number| number - 1).ok_or_else(|| {
        let names: Vec<String> = names.iter().take(20).map(|name| format!("\"{name}\"")).collect();
        format!("expected the column \"{column}\" of {option} by its name or number, found {}", names.join(", "))
    })
}

fn explain(error: csv::Error, line: u64, longest: u64, reader: &Watched<'_>, name: &str) -> Failure {
    let line = error.position().map_or(line, csv::Position::line);
    let malformed = |message: String| Failure::malformed(name, Place::Line(line), message);
    match error.into_kind() {
        csv::ErrorKind::Io(error) if Broken::of(&error).is_some() => match Broken::of(&error) {
            Some(Broken::ManyColumns(line)) => Failure::malformed(
                name,
                Place::Line(line),
                format!("expected at most {MOST_COLUMNS} columns, found more"),
            ),
            Some(Broken::AfterQuote(line)) => Failure::malformed(
                name,
                Place::Line(line),
                "expected a comma or the end of the line after a closing quote, found other text: a quote in a field is \
                 written twice",
            ),
            _ => malformed(format!(
                "expected a row of at most {longest} bytes, found a longer one: is a quote not closed? otherwise give four \
                 times its length as --memory"
            )),
        },
        csv::ErrorKind::Io(error) => reader.stream.failure(error),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            malformed(format!("expected a row of {expected_len} columns like the first one, found {len}"))
        }
        other => malformed(format!("expected a row of CSV: {other:?}")),
    }
}

/// What the parser above shares with the bytes below it.
#[derive(Clone, Default)]
struct Watch {
    /// The number of bytes that the current row may still take.
    budget: Rc<Cell<u64>>,
    /// The line of the quote that is open at the end of the stream.
    unclosed: Rc<Cell<Option<u64>>>,
}

/// A stream that follows the quotes of its fields: the parser takes the end of the stream for a closing quote.
struct Watched<'a> {
    stream: &'a mut Stream,
    watch: Watch,
    state: Quotes,
    line: u64,
    /// The columns of the current row so far.
    columns: u64,
    /// The line of the last quote that opened a field.
    opened: u64,
}

/// Where in a field the stream is.
#[derive(Clone, Copy)]
enum Quotes {
    FieldStart,
    /// In a field, or after its closing quote.
    Unquoted,
    Quoted,
    /// After a quote in a quoted field, which closes it or is the first of two.
    QuoteInQuoted,
}

impl Quotes {
    fn next(self, byte: u8) -> Quotes {
        match (self, byte) {
            (Quotes::FieldStart | Quotes::QuoteInQuoted, b'"') => Quotes::Quoted,
            (Quotes::Quoted, b'"') => Quotes::QuoteInQuoted,
            (Quotes::Quoted, _) => Quotes::Quoted,
            (_, b',' | b'\n' | b'\r') => Quotes::FieldStart,
            _ => Quotes::Unquoted,
        }
    }
}

impl Read for Watched<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let budget = self.watch.budget.get();
        if budget == 0 {
            return Err(io::Error::other(Broken::TooLong));
        }
        let most = usize::try_from(budget).unwrap_or(usize::MAX).min(buf.len());
        let read = self.stream.read(buf.get_mut(..most).unwrap_or_default())?;
        self.watch.budget.set(budget - read as u64);
        buf.iter().take(read).try_for_each(|byte| self.follow(*byte)).map_err(io::Error::other)?;
        if read == 0 && matches!(self.state, Quotes::Quoted) {
            self.watch.unclosed.set(Some(self.opened));
        }
        Ok(read)
    }
}

impl Watched<'_> {
    /// Follows a byte. Errors: the row is not one.
    fn follow(&mut self, byte: u8) -> Result<(), Broken> {
        if matches!(self.state, Quotes::FieldStart) {
            self.opened = self.line;
        }
        match (self.state, byte) {
            (Quotes::Quoted, b'\n') => self.line += 1,
            (Quotes::Quoted, _) => {}
            (_, b'\n') => {
                self.line += 1;
                self.columns = 1;
            }
            (_, b',') => {
                self.columns += 1;
                if self.columns > MOST_COLUMNS {
                    return Err(Broken::ManyColumns(self.line));
                }
            }
            (_, b'\r') => self.columns = 1,
            (Quotes::QuoteInQuoted, b'"') => {}
            (Quotes::QuoteInQuoted, _) => return Err(Broken::AfterQuote(self.line)),
            _ => {}
        }
        self.state = self.state.next(byte);
        Ok(())
    }
}

/// Why the bytes below the parser cannot be rows. The number is a line.
#[derive(Clone, Copy, Debug)]
enum Broken {
    /// A row takes more bytes than it may.
    TooLong,
    ManyColumns(u64),
    /// Text follows a closing quote, which the parser would add to the field.
    AfterQuote(u64),
}

impl Broken {
    fn of(error: &io::Error) -> Option<Broken> {
        error.get_ref().and_then(|cause| cause.downcast_ref::<Broken>()).copied()
    }
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the row is too long or broken")
    }
}

impl std::error::Error for Broken {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::testing::{Pair, Pairs, pair};

    fn read_with(text: impl AsRef<[u8]>, key: Option<&str>, value: Option<&str>) -> Result<Vec<Pair>> {
        let mut pairs = Pairs::default();
        let columns = Columns { key: key.map(str::to_string), value: value.map(str::to_string), no_header: false };
        read(&mut Stream::of_pipe("in.csv", text.as_ref()), 1000, &columns, &mut pairs).map(|()| pairs.0)
    }

    fn message(text: impl AsRef<[u8]>, key: Option<&str>, value: Option<&str>) -> String {
        match read_with(text, key, value) {
            Err(Failure::Malformed(malformed)) => malformed.to_string(),
            other => panic!("expected a malformed row, found {other:?}"),
        }
    }

    /// The parser would take `"x"y` for the field xy.
    #[test]
    fn text_after_a_closing_quote_is_refused() {
        for text in ["key,v\n1,\"x\"y\n", "key,v\n1,\"a\" \"b\"\n"] {
            assert!(message(text, None, None).contains("closing quote"), "{text}");
        }
        let quoted = "key,v\r\n1,\"x\"\r\n\"2\",\"y\"\"z\"";
        let expected = [pair(1, b"", b"x"), pair(2, b"", b"y\"z")];
        assert_eq!(read_with(quoted, None, Some("v")).unwrap(), expected);
    }

    #[test]
    fn a_row_has_a_limited_number_of_columns() {
        let most = usize::try_from(MOST_COLUMNS).unwrap();
        let text = |columns: usize| format!("key{}\n", ",v".repeat(columns - 1));
        let read = |text: String| {
            let columns = Columns { key: None, value: Some("2".to_string()), no_header: false };
            let mut pairs = Pairs::default();
            read(&mut Stream::of_pipe("in.csv", text.as_bytes()), 1 << 20, &columns, &mut pairs)
        };
        read(text(most)).unwrap();
        let error = read(text(most + 1)).unwrap_err().to_string();
        assert!(error.contains("65536 columns") && error.contains("line 1"), "{error}");
    }

    #[test]
    fn the_rest_of_a_row_is_an_object() {
        let text = "name,key,note\r\nOslo,7,\"a \"\"b\"\", c\nd\"\r\n\r\n\"\",18446744073709551615,5\" disk";
        let expected = [
            pair(7, b"", br#"{"name":"Oslo","note":"a \"b\", c\nd"}"#),
            pair(u64::MAX, b"", br#"{"name":"","note":"5\" disk"}"#),
        ];
        assert_eq!(read_with(text, None, None).unwrap(), expected);
        assert_eq!(read_with("", None, None).unwrap(), []);
        assert_eq!(read_with("id\n3", None, None).unwrap(), [pair(3, b"", b"{}")], "the first column without a key");
    }

    #[test]
    fn columns_have_names_or_numbers() {
        let text = b"id,value,2\n1,a\xff\0,c\n";
        let value = |key, value| read_with(text, key, Some(value)).unwrap();
        assert_eq!(value(Some("id"), "value"), [pair(1, b"", b"a\xff\0")], "any bytes");
        assert_eq!(value(Some("1"), "3"), [pair(1, b"", b"c")]);
        assert_eq!(value(None, "2"), [pair(1, b"", b"c")], "the name before the number");
    }

    /// Otherwise the first row would be lost.
    #[test]
    fn a_header_that_is_a_row_of_data_is_refused() {
        for key in
            ["1", " 1", "01", "0x1F", "+1", "-1", "1.0", "1e3", "1_000", "'1", "#1", "1,000", "18446744073709551616"]
        {
            let found = message(format!("\"{key}\",x\n2,y\n"), None, None);
            assert!(found.contains(&format!("found the number \"{key}\": add --no-header")), "{found}");
        }
        for name in ["", "id", "1a", "1st", "-", "0x", "inf"] {
            assert_eq!(read_with(format!("{name},v\n2,y\n"), None, Some("v")).unwrap(), [pair(2, b"", b"y")], "{name}");
        }
        let mut pairs = Pairs::default();
        let columns = Columns { no_header: true, ..Columns::default() };
        read(&mut Stream::of_pipe("in.csv", b"1,x\n2,y\n"), 1000, &columns, &mut pairs).unwrap();
        assert_eq!(pairs.0, [pair(1, b"", b"{\"2\":\"x\"}"), pair(2, b"", b"{\"2\":\"y\"}")]);
        assert!(message("key;v\n1;x\n", None, None).contains("are the separators commas?"));
        assert!(message(b"\x1f\x8b\x08", None, None).contains("gzip"));
    }

    #[test]
    fn a_byte_order_mark_of_utf_8_is_skipped() {
        assert_eq!(read_with("\u{feff}key,v\n1,x\n", Some("key"), Some("v")).unwrap(), [pair(1, b"", b"x")]);
        assert!(message(b"\xff\xfek\0e\0y\0", None, None).contains("UTF-16"));
    }

    /// One case for each way to be wrong, with its line.
    #[test]
    fn names_the_row_that_is_wrong() {
        let long = format!("key,v\n1,x\n2,{}\n", "y".repeat(200_000));
        let open = format!("key,v\n1,x\n2,\"{}", "y\n".repeat(100_000));
        type Case<'a> = (&'a str, &'a [u8], Option<&'a str>, Option<&'a str>, &'a [&'a str]);
        let cases: [Case<'_>; 10] = [
            ("no key", b"key,v\n1,x\nseven,y\n", None, None, &["column \"key\"", "found \"seven\"", "line 3)"]),
            ("a key that is not exact", b"key,v\n1e3,x\n", None, None, &["found \"1e3\"", "line 2)"]),
            ("too few columns", b"key,v\n1,x\n2\n", None, None, &["2 columns", "found 1", "line 3)"]),
            (
                "no such key",
                b"id,v\n1,x\n",
                Some("key"),
                None,
                &["\"key\" of --key-column", "\"id\", \"v\"", "line 1)"],
            ),
            ("no such number", b"id,v\n1,x\n", None, Some("3"), &["\"3\" of --value-column", "line 1)"]),
            ("same names", b"id,v,v\n1,x,y\n", None, None, &["\"v\" twice", "line 1)"]),
            ("same names, chosen", b"id,v,v\n1,x,y\n", None, Some("v"), &["found two", "line 1)"]),
            ("other bytes", b"id,v\n1,\xff\n", None, None, &["UTF-8 in column 2 (\"v\")", "line 2)"]),
            ("open quote", b"id,v\n1,x\n2,\"y\n3,z\n", None, None, &["closing quote", "line 3)"]),
            ("zeros", b"\0\0\0\n\0\n", None, None, &["found \"\0\"", "line 2)"]),
        ];
        for (case, text, key, value, parts) in cases {
            let message = message(text, key, value);
            assert!(parts.iter().all(|part| message.contains(part)), "{case}: {message}");
        }
        for text in [&long, &open] {
            let message = message(text, None, None);
            assert!(message.contains("at most 1000 bytes") && message.contains("line 3)"), "{message}");
        }
    }

    #[test]
    fn rows_of_many_buffers_are_read() {
        let text: String = (0..50_000).map(|key| format!("{key},value\n")).collect();
        let pairs = read_with(format!("key,v\n{text}"), None, Some("v")).unwrap();
        assert_eq!((pairs.len(), pairs[49_999].key), (50_000, 49_999));
    }
}
