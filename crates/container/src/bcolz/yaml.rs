//! A parser for the subset of YAML that meta files of bcolz use: nested mappings, lists, scalars and comments.
//!
//! ```yaml
//! dtype:
//!   col1: int8
//! shape: (5000000000,)      # a Python tuple is read as a list
//! filters: [shuffle, truncate]
//! ids:
//!   - 1
//!   - "two"
//! ```
//!
//! Anchors, tags, block scalars and flow collections that span several lines are refused with an error that names them.
//!
//! This is not a general YAML parser. Crates that are one (saphyr, yaml-rust2, serde-saphyr) do not fit: by YAML's
//! rules they read the RFC's tuples as strings, and inside `[..]` or `{..}` as broken elements; and they expand
//! anchors.

use serde_json::{Map, Number, Value};
use sharddb_format::{Error, Result};

/// Documents that are nested more deeply are refused.
const MAX_YAML_DEPTH: usize = 64;

/// Parses a document to the equivalent JSON value.
///
/// # Errors
///
/// `InvalidSpec` with the line number.
pub(super) fn parse(text: &str) -> Result<Value> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let content = without_comment(line).trim_end();
        let indent = content.len() - content.trim_start_matches(' ').len();
        let content = content.trim_start_matches(' ');
        if content.starts_with('\t') {
            return Err(refused(number, "spaces to indent", "a tab"));
        }
        if !(content.is_empty() || content == "---" && lines.is_empty()) {
            lines.push(YamlLine { number, indent, content });
        }
    }
    let mut document = Document { lines: &lines };
    let Some(first) = lines.first() else { return Ok(Value::Null) };
    let value = document.block(first.indent, 0)?;
    match document.lines.first() {
        None => Ok(value),
        Some(line) => Err(refused(line.number, "a line that continues the block before it", line.content)),
    }
}

#[derive(Clone, Copy)]
struct YamlLine<'a> {
    number: usize,
    indent: usize,
    content: &'a str,
}

/// The lines that are not parsed yet.
struct Document<'a> {
    lines: &'a [YamlLine<'a>],
}

impl<'a> Document<'a> {
    /// Takes the next line if its indentation is `indent`.
    fn next_at(&mut self, indent: usize) -> Option<YamlLine<'a>> {
        let (line, rest) = self.lines.split_first()?;
        (line.indent == indent).then(|| {
            self.lines = rest;
            *line
        })
    }

    fn block(&mut self, indent: usize, depth: usize) -> Result<Value> {
        let Some(first) = self.lines.first() else { return Ok(Value::Null) };
        if depth > MAX_YAML_DEPTH {
            return Err(refused(first.number, &format!("at most {MAX_YAML_DEPTH} levels"), "more"));
        }
        if item(first.content).is_some() {
            return self.list(indent, depth);
        }
        if split_key(first.content).is_none() {
            self.lines = self.lines.get(1..).unwrap_or_default();
            return Flow::parse(first);
        }
        self.mapping(indent, depth)
    }

    fn mapping(&mut self, indent: usize, depth: usize) -> Result<Value> {
        let mut members = Map::new();
        while let Some(line) = self.next_at(indent) {
            let Some((key, rest)) = split_key(line.content) else {
                return Err(refused(line.number, "key: value", line.content));
            };
            let value = match rest {
                "" => self.nested(indent, depth)?,
                text => Flow::parse(&YamlLine { content: text, ..line })?,
            };
            if members.insert(unquoted(key).to_string(), value).is_some() {
                return Err(refused(line.number, "every key once", key));
            }
        }
        Ok(Value::Object(members))
    }

    fn list(&mut self, indent: usize, depth: usize) -> Result<Value> {
        let mut items = Vec::new();
        // a list with the indentation of its key ends at the next key
        while self.lines.first().is_some_and(|line| item(line.content).is_some())
            && let Some(line) = self.next_at(indent)
        {
            match item(line.content).unwrap_or_default() {
                "" => items.push(self.nested(indent, depth)?),
                text => items.push(Flow::parse(&YamlLine { content: text, ..line })?),
            }
        }
        Ok(Value::Array(items))
    }

    /// Parses the block below a key or a dash: indented more, or for a list equally.
    fn nested(&mut self, indent: usize, depth: usize) -> Result<Value> {
        match self.lines.first() {
            Some(line) if line.indent > indent => self.block(line.indent, depth + 1),
            Some(line) if line.indent == indent && item(line.content).is_some() => self.list(indent, depth + 1),
            _ => Ok(Value::Null),
        }
    }
}

/// A value in flow style, on one line.
struct Flow<'a> {
    rest: &'a str,
    number: usize,
}

impl<'a> Flow<'a> {
    fn parse(line: &YamlLine<'a>) -> Result<Value> {
        let text = line.content.trim();
        if !text.starts_with(['[', '{', '(', '"', '\'']) {
            return plain(text, line.number);
        }
        let mut flow = Flow { rest: text, number: line.number };
        let value = flow.value(0)?;
        match flow.rest.trim() {
            "" => Ok(value),
            rest => Err(refused(line.number, "the end of the line", rest)),
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value> {
        self.rest = self.rest.trim_start();
        if depth > MAX_YAML_DEPTH {
            return Err(refused(self.number, &format!("at most {MAX_YAML_DEPTH} levels"), "more"));
        }
        match self.rest.chars().next() {
            Some('[') => self.items(']', depth),
            Some('(') => self.items(')', depth),
            Some('{') => self.members(depth),
            Some(quote @ ('"' | '\'')) => self.quoted(quote).map(Value::String),
            _ => {
                let end = self.rest.find([',', ']', ')', '}']).unwrap_or(self.rest.len());
                let (text, rest) = self.rest.split_at(end);
                self.rest = rest;
                plain(text.trim(), self.number)
            }
        }
    }

    fn items(&mut self, close: char, depth: usize) -> Result<Value> {
        let mut items = Vec::new();
        self.skip(1);
        while !self.closes(close)? {
            items.push(self.value(depth + 1)?);
            self.comma(close)?;
        }
        Ok(Value::Array(items))
    }

    fn members(&mut self, depth: usize) -> Result<Value> {
        let mut members = Map::new();
        self.skip(1);
        while !self.closes('}')? {
            let Some((key, rest)) = self.rest.split_once(':') else {
                return Err(refused(self.number, "key: value", self.rest));
            };
            self.rest = rest;
            if members.insert(unquoted(key.trim()).to_string(), self.value(depth + 1)?).is_some() {
                return Err(refused(self.number, "every key once", key));
            }
            self.comma('}')?;
        }
        Ok(Value::Object(members))
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default().trim_start();
    }

    /// Takes the closing bracket if it is next.
    fn closes(&mut self, close: char) -> Result<bool> {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(close) {
            Some(rest) => {
                self.rest = rest;
                Ok(true)
            }
            None if self.rest.is_empty() => {
                Err(refused(self.number, &format!("'{close}' on the same line"), "its end"))
            }
            None => Ok(false),
        }
    }

    /// Takes a comma; leaves a closing bracket.
    fn comma(&mut self, close: char) -> Result<()> {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(',') {
            Some(rest) => self.rest = rest,
            None if self.rest.starts_with(close) => {}
            None => return Err(refused(self.number, &format!("',' or '{close}'"), self.rest)),
        }
        Ok(())
    }

    fn quoted(&mut self, quote: char) -> Result<String> {
        let body = self.rest.get(1..).unwrap_or_default();
        let mut text = String::new();
        let mut chars = body.char_indices().peekable();
        while let Some((at, char)) = chars.next() {
            match char {
                '\'' if quote == '\'' && chars.next_if(|(_, next)| *next == '\'').is_some() => text.push('\''),
                end if end == quote => {
                    self.rest = body.get(at + 1..).unwrap_or_default();
                    return Ok(text);
                }
                '\\' if quote == '"' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, escaped @ ('"' | '\\' | '/'))) => text.push(escaped),
                    _ => return Err(refused(self.number, "one of the escapes \\n \\t \\\" \\\\", "another")),
                },
                char => text.push(char),
            }
        }
        Err(refused(self.number, "a closing quote on the same line", "its end"))
    }
}

/// Returns the text after the dash of a list item.
fn item(content: &str) -> Option<&str> {
    match content {
        "-" => Some(""),
        _ => content.strip_prefix("- ").map(str::trim_start),
    }
}

/// Splits a line at the first colon that ends a key.
fn split_key(content: &str) -> Option<(&str, &str)> {
    if content.starts_with(['[', '{', '(']) {
        return None;
    }
    let from = match content.chars().next() {
        Some(quote @ ('"' | '\'')) => content.get(1..)?.find(quote)? + 2,
        _ => 0,
    };
    let rest = content.get(from..)?;
    let colon = rest.find(": ").or_else(|| rest.ends_with(':').then(|| rest.len() - 1))?;
    let (key, rest) = content.split_at_checked(from + colon)?;
    Some((key.trim(), rest.get(1..)?.trim()))
}

fn unquoted(key: &str) -> &str {
    let inner = |quote| key.strip_prefix(quote).and_then(|key| key.strip_suffix(quote));
    inner('"').or_else(|| inner('\'')).unwrap_or(key)
}

/// Parses a scalar without quotes.
fn plain(text: &str, number: usize) -> Result<Value> {
    if text.starts_with(['&', '*', '!', '|', '>', '%', '@', '`']) && text.len() > 1 || text == "|" || text == ">" {
        return Err(refused(
            number,
            "a plain scalar, a list or a mapping; quote text that starts with another character",
            text,
        ));
    }
    let float =
        || text.parse::<f64>().ok().filter(|_| text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)));
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" | "None" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => match (text.parse::<u64>(), text.parse::<i64>(), float().and_then(Number::from_f64)) {
            (Ok(natural), ..) => Value::from(natural),
            (_, Ok(integer), _) => Value::from(integer),
            (_, _, Some(float)) => Value::Number(float),
            _ => Value::String(text.to_string()),
        },
    })
}

/// Returns the line up to a `#` that starts it or follows a space, outside quotes.
fn without_comment(line: &str) -> &str {
    let (mut quote, mut before) = (None, ' ');
    for (at, char) in line.char_indices() {
        match (quote, char) {
            (None, '#') if before.is_whitespace() => return line.get(..at).unwrap_or(line),
            (None, '"' | '\'') if !before.is_alphanumeric() => quote = Some(char),
            (Some(open), char) if open == char && before != '\\' => quote = None,
            _ => {}
        }
        before = char;
    }
    line
}

fn refused(number: usize, expected: &str, found: &str) -> Error {
    Error::invalid_spec(format!("expected {expected}, found {found} (line {number})"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        assert_eq!(
            parse("shape: (5000000000,)\nnbytes: 5000000000\ncbytes: 24328038\n").unwrap(),
            json!({"shape": [5_000_000_000u64], "nbytes": 5_000_000_000u64, "cbytes": 24_328_038})
        );
        let storage = "dtype:\n    col1: int8\n    col2: float32\nchunkshape: (30, 20)\nsuperchunksize: 10 # max. number\n\
                       endianness: big # default: little\norder: C # default: C\ncompression:\n    library: blosclz # or others\n\
                       \x20   level: 5\n    filters: [shuffle, truncate] # order matters\n";
        assert_eq!(
            parse(storage).unwrap(),
            json!({
                "dtype": {"col1": "int8", "col2": "float32"}, "chunkshape": [30, 20], "superchunksize": 10,
                "endianness": "big", "order": "C",
                "compression": {"library": "blosclz", "level": 5, "filters": ["shuffle", "truncate"]},
            })
        );
        assert_eq!(
            parse("temperature:\n  value: 23.5\n  type: scalar\nids:\n  value: [1,3,6,10]\n").unwrap(),
            json!({"temperature": {"value": 23.5, "type": "scalar"}, "ids": {"value": [1, 3, 6, 10]}})
        );
    }

    #[test]
    fn scalars_lists_and_quotes() {
        for (text, value) in [
            ("", json!(null)),
            ("---\na: 1", json!({"a": 1})),
            ("a:\n- 1\n- two\nb: ~", json!({"a": [1, "two"], "b": null})),
            ("a:\n  -\n    b: 1\n  - {c: -2, d: [e, 'f']}", json!({"a": [{"b": 1}, {"c": -2, "d": ["e", "f"]}]})),
            ("'a b': \"x: # y\"", json!({"a b": "x: # y"})),
            ("a: 'it''s' # so", json!({"a": "it's"})),
            ("a: \"b\\n\\\"c\\\"\"", json!({"a": "b\n\"c\""})),
            ("a: b#c", json!({"a": "b#c"})),
            (
                "a: 1e3\nb: -0.5\nc: 1.2.3\nd: nan\ne: <f4",
                json!({"a": 1000.0, "b": -0.5, "c": "1.2.3", "d": "nan", "e": "<f4"}),
            ),
            ("[1, {}, [], (2,)]", json!([1, {}, [], [2]])),
            ("a: http://x", json!({"a": "http://x"})),
        ] {
            assert_eq!(parse(text).unwrap(), value, "{text}");
        }
    }

    #[test]
    fn says_what_it_does_not_read_and_where() {
        for (text, words) in [
            ("a: 1\na: 2", "every key once, found a (line 2)"),
            ("a: &b 1", "found &b 1 (line 1)"),
            ("a: |\n  text", "found | (line 1)"),
            ("a: [1,", "']' on the same line"),
            ("a: \"b", "closing quote"),
            ("a: [1 2) 3]", "',' or ']'"),
            ("a: [1] 2", "the end of the line, found 2"),
            ("\ta: 1", "a tab (line 1)"),
            ("a: 1\n  b: 2", "continues the block before it"),
            ("a: 1\nb", "key: value, found b (line 2)"),
            ("a: \"\\x41\"", "escapes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message().contains(words), "{text:?}: {error}");
        }
        assert!(parse(&format!("a: {}", "[".repeat(10_000))).is_err());
        let deep: String = (0..200).map(|level| format!("{}a:\n", " ".repeat(level))).collect();
        assert!(parse(&deep).unwrap_err().message().contains("64 levels"));
    }
}
