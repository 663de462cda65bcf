//! The bytes of pairs in each format. Encoders are used by several threads, so they do not own the output.

use std::fs;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::ValueEnum;
use serde::de::IgnoredAny;

use crate::failure::{Failure, Result};
use crate::input::ndjson::compact;
use crate::output::failure;

/// How values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Values {
    /// All values as "value_b64"
    Base64,
    /// UTF-8 as "text", other values as "value_b64"
    Text,
    /// JSON as "value", other UTF-8 as "text", other values as "value_b64"
    Json,
}

/// Encodes pairs: appends them to a block, or writes them to files of their own.
#[derive(Clone, Debug)]
pub(crate) enum Encoder {
    /// `{"key":"..","preamble_b64":"..","value_b64":".."}`; the preamble only if there is one.
    Ndjson(Values),
    /// `key u64le | length u64le | bytes`, as in `input/binary.rs`.
    Bin,
    /// `key u64le | preamble length u64le | length u64le | preamble | bytes`.
    Bin2,
    /// One file per key in this directory, or two if it has a preamble: `7` with the preamble and `7.index` with the value.
    Dir(PathBuf),
}

impl Encoder {
    /// Appends a pair to `block`. With `Dir`, writes its files instead.
    ///
    /// Errors: `Usage` if the format cannot store a preamble; `Io`.
    pub(crate) fn encode(&self, key: u64, preamble: &[u8], value: &[u8], block: &mut Vec<u8>) -> Result<()> {
        match self {
            Encoder::Ndjson(values) => push_line(*values, key, preamble, value, block)?,
            Encoder::Bin if !preamble.is_empty() => {
                return Err(Failure::usage(format!(
                    "key {key} has {} bytes before its value, which bin cannot hold: use --format bin2, ndjson or dir",
                    preamble.len()
                )));
            }
            Encoder::Bin => {
                block.extend_from_slice(&key.to_le_bytes());
                block.extend_from_slice(&(value.len() as u64).to_le_bytes());
                block.extend_from_slice(value);
            }
            Encoder::Bin2 => {
                block.extend_from_slice(&key.to_le_bytes());
                block.extend_from_slice(&(preamble.len() as u64).to_le_bytes());
                block.extend_from_slice(&(value.len() as u64).to_le_bytes());
                block.extend_from_slice(preamble);
                block.extend_from_slice(value);
            }
            Encoder::Dir(directory) => {
                let file = |name: String, bytes: &[u8]| {
                    let path = directory.join(name);
                    fs::write(&path, bytes).map_err(|error| failure(&path, error))
                };
                if preamble.is_empty() {
                    return file(key.to_string(), value);
                }
                file(key.to_string(), preamble)?;
                file(format!("{key}.index"), value)?;
            }
        }
        Ok(())
    }
}

fn push_line(values: Values, key: u64, preamble: &[u8], value: &[u8], block: &mut Vec<u8>) -> Result<()> {
    block.extend_from_slice(format!("{{\"key\":\"{key}\",").as_bytes());
    values.push_members(preamble, value, block)?;
    block.extend_from_slice(b"}\n");
    Ok(())
}

impl Values {
    /// Appends the members of a pair, without braces. `build` reads each form as the same bytes.
    pub(crate) fn push_members(self, preamble: &[u8], value: &[u8], line: &mut Vec<u8>) -> Result<()> {
        if !preamble.is_empty() {
            push_base64("preamble_b64", preamble, line);
            line.push(b',');
        }
        match std::str::from_utf8(value) {
            Ok(json) if self == Values::Json && is_compact_json(json) => {
                line.extend_from_slice(b"\"value\":");
                line.extend_from_slice(value);
            }
            Ok(text) if self != Values::Base64 => {
                line.extend_from_slice(b"\"text\":");
                serde_json::to_writer(line, text).map_err(|error| Failure::stdout(error.into()))?;
            }
            _ => push_base64("value_b64", value, line),
        }
        Ok(())
    }
}

fn push_base64(member: &str, bytes: &[u8], block: &mut Vec<u8>) {
    block.extend_from_slice(format!("\"{member}\":\"{}\"", STANDARD.encode(bytes)).as_bytes());
}

/// Whether a text is JSON that `build` stores as it is: without white space outside of strings.
fn is_compact_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok() && compact(text) == text.as_bytes()
}
