//! Arbitrary bytes as an input of `build`, in each format of a single file, plain or compressed, or as the changes of
//! `apply`: pairs, or an error with its place; in the plain binary formats exactly the pairs that a naive parser finds.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::failure::{self, Failure};
use crate::input::{Columns, Compression, Encoded, Format, Input, NameOptions, Reading, Sink, patch};
use crate::scratch;

/// Key, preamble, value.
type Pair = (u64, Vec<u8>, Vec<u8>);

#[derive(Default)]
struct Pairs(Vec<Pair>);

impl Sink for Pairs {
    fn insert(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> failure::Result<()> {
        self.0.push((key, preamble.to_vec(), value.to_vec()));
        Ok(())
    }

    fn insert_reader(
        &mut self,
        key: u64,
        preamble_len: u64,
        value_len: u64,
        from: &mut dyn Read,
    ) -> failure::Result<()> {
        let (mut preamble, mut value) = (Vec::new(), Vec::new());
        from.take(preamble_len).read_to_end(&mut preamble).expect("a file reads");
        from.take(value_len).read_to_end(&mut value).expect("a file reads");
        self.0.push((key, preamble, value));
        Ok(())
    }
}

fn path() -> &'static PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| scratch::directory("inputs").join("input"))
}

/// The records of a binary format; `None` if the last one is truncated.
fn naive(mut bytes: &[u8], has_preambles: bool) -> Option<Vec<Pair>> {
    let mut pairs = Vec::new();
    let mut take = |len: u64| {
        let (taken, rest) = bytes.split_at_checked(usize::try_from(len).ok()?)?;
        bytes = rest;
        Some((taken.to_vec(), rest.is_empty()))
    };
    let word = |bytes: Vec<u8>| u64::from_le_bytes(bytes.try_into().unwrap());
    let mut is_empty = take(0)?.1;
    while !is_empty {
        let key = word(take(8)?.0);
        let preamble_len = if has_preambles { word(take(8)?.0) } else { 0 };
        let value_len = word(take(8)?.0);
        let preamble = take(preamble_len)?.0;
        let (value, at_end) = take(value_len)?;
        pairs.push((key, preamble, value));
        is_empty = at_end;
    }
    Some(pairs)
}

/// Reads the input as changes: each has a pair, and at most one comes from a line.
fn changes(reading: &Reading, bytes: &[u8]) {
    let input = Input::of_patch(path()).expect("there is such a file");
    let mut stream = input.open(reading).expect("a file opens");
    let mut edits = 0;
    let read = patch::read(&mut stream, reading.longest_line, &mut |edit| {
        assert!(edit.old.is_some() || edit.new.is_some());
        edits += 1;
        Ok(())
    });
    if let Err(error) = read {
        assert!(matches!(error, Failure::Malformed(_)), "{error}");
        assert!(error.to_string().contains("input"), "a malformed input says which: {error}");
    }
    assert!(edits <= bytes.split(|byte| *byte == b'\n').count());
}

/// Runs the target on an input.
pub fn run(input: &[u8]) {
    let Some((how, bytes)) = input.split_first() else { return };
    let (format, key_field) = match how % 4 {
        _ if *how >= 0x80 => (Format::Csv, None),
        0 => (Format::Ndjson, None),
        1 => (Format::Ndjson, Some("id".to_string())),
        2 => (Format::Bin, None),
        _ => (Format::Bin2, None),
    };
    let compression = match how >> 2 & 3 {
        1 => Compression::Gzip,
        2 => Compression::Zstd,
        _ => Compression::None,
    };
    fs::write(path(), bytes).unwrap();
    let reading = Reading {
        longest_line: 1 << 10,
        key_field,
        names: NameOptions::default(),
        columns: Columns::default(),
        progress: Arc::default(),
        cancel: Arc::default(),
    };
    let encoded = Encoded { format, compression };
    if *how >= 0xc0 {
        return changes(&reading, bytes);
    }
    let inputs = Input::resolve_all(&[path().clone()], Some(encoded)).expect("there is such a file");
    let mut pairs = Pairs::default();
    let read = inputs[0].read(&reading, &mut pairs);
    if let Err(error) = &read {
        assert!(matches!(error, Failure::Malformed(_)), "{error}");
        assert!(error.to_string().contains("input"), "a malformed input says which: {error}");
    }
    match format {
        _ if compression != Compression::None => {} // decompressed, it may be anything
        Format::Bin | Format::Bin2 => {
            let expected = naive(bytes, format == Format::Bin2);
            assert_eq!(read.is_ok(), expected.is_some());
            assert!(expected.is_none_or(|expected| expected == pairs.0));
        }
        _ => assert!(pairs.0.len() <= bytes.split(|byte| b"\n\r".contains(byte)).count()),
    }
}
