//! `bin` and `bin2`: records as laid out in `input/binary.rs`.

use crate::failure::{Failure, Result};
use crate::output::{Output, Target};

/// `key u64le | length u64le | bytes`.
pub(crate) struct Bin(Target);

impl Bin {
    pub(crate) fn new(target: Target) -> Bin {
        Bin(target)
    }
}

impl Output for Bin {
    fn write(&mut self, key: u64, prefix: &[u8], value: &[u8]) -> Result<()> {
        if !prefix.is_empty() {
            return Err(Failure::usage(format!(
                "key {key} has {} bytes before its value, which bin cannot hold: use --format bin2, ndjson or dir",
                prefix.len()
            )));
        }
        self.0.write_all(&key.to_le_bytes())?;
        self.0.write_all(&(value.len() as u64).to_le_bytes())?;
        self.0.write_all(value)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.finish()
    }
}

/// `key u64le | prefix length u64le | length u64le | prefix | bytes`.
pub(crate) struct Bin2(Target);

impl Bin2 {
    pub(crate) fn new(target: Target) -> Bin2 {
        Bin2(target)
    }
}

impl Output for Bin2 {
    fn write(&mut self, key: u64, prefix: &[u8], value: &[u8]) -> Result<()> {
        self.0.write_all(&key.to_le_bytes())?;
        self.0.write_all(&(prefix.len() as u64).to_le_bytes())?;
        self.0.write_all(&(value.len() as u64).to_le_bytes())?;
        self.0.write_all(prefix)?;
        self.0.write_all(value)
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.0.finish()
    }
}
