//! The message about a duplicate key: the key, both places if the inputs can be read again, and what to do.

use std::io::{self, Read};

use sharddb::{Error, ErrorKind};

use crate::failure::{Failure, Malformed, Result};
use crate::input::{Input, Reading, Sink};

/// Explains a failed build if two pairs had the same key. Reads files and directories again, up to the second pair.
pub(crate) fn explain(failure: Failure, inputs: &[Input], reading: &Reading) -> Failure {
    let Some(key) = duplicate_key(&failure) else { return failure };
    let places = if inputs.iter().all(Input::is_rereadable) {
        [1, 2].map(|occurrence| find(key, occurrence, inputs, reading))
    } else {
        [None, None]
    };
    let places = match places {
        [Some(first), Some(second)] => format!(" ({first}, and {second})"),
        _ => String::new(),
    };
    Failure::Unsound(format!(
        "expected each key once, found key {key} again{places}: nothing was published; --on-duplicate first or \
         --on-duplicate last keeps one of the pairs, --on-duplicate concat joins their values"
    ))
}

pub(crate) fn duplicate_key(failure: &Failure) -> Option<u64> {
    match failure {
        Failure::Library(error) if error.kind() == ErrorKind::DuplicateKey => Error::key(error),
        _ => None,
    }
}

/// The place of an occurrence of a key, counted from 1; `None` if the inputs have changed since.
fn find(key: u64, occurrence: u64, inputs: &[Input], reading: &Reading) -> Option<String> {
    let mut search = Search { key, left: occurrence };
    for input in inputs {
        match input.read(reading, &mut search) {
            Ok(_) => {}
            Err(Failure::Malformed(place)) if search.left == 0 => return Some(Malformed::located(&place)),
            Err(_) => return None,
        }
    }
    None
}

/// A sink that refuses a pair to learn its place.
struct Search {
    key: u64,
    /// The number of pairs with the key until the one to refuse.
    left: u64,
}

impl Sink for Search {
    fn insert(&mut self, key: u64, _preamble: &[u8], _value: &[u8]) -> Result<()> {
        if key != self.key {
            return Ok(());
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 { Err(Failure::Refused(format!("found key {key}"))) } else { Ok(()) }
    }

    fn insert_reader(&mut self, key: u64, _preamble_len: u64, _value_len: u64, reader: &mut dyn Read) -> Result<()> {
        // the input that made the reader reports its errors
        io::copy(reader, &mut io::sink()).map_err(|source| Failure::Io { what: "read".to_string(), source })?;
        self.insert(key, &[], &[])
    }
}
