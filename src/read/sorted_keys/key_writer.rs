//! Writes a key file front to back. The module `format::key_file` describes the bytes.

use crate::bytes::Cursor;
use crate::error::{Error, Result};
use crate::format::checksum::Checksum;
use crate::format::key_file::{self, BLOCK_KEYS, DirectoryBuilder, GROUP_BLOCKS, Group, Shape, Tag, Tail};

/// A key file being written. Memory: one block, and 16 bytes per 262,144 keys.
pub(crate) struct KeyFileWriter {
    to: Cursor,
    tag: Tag,
    keys: u64,
    block: Vec<u64>,
    blocks: u64,
    directory: DirectoryBuilder,
    groups: Vec<Group>,
}

impl KeyFileWriter {
    /// Creates a writer to an empty file.
    pub(crate) fn new(to: Cursor, tag: Tag) -> KeyFileWriter {
        KeyFileWriter {
            to,
            tag,
            keys: 0,
            block: Vec::new(),
            blocks: 0,
            directory: DirectoryBuilder::default(),
            groups: Vec::new(),
        }
    }

    /// Adds a key, which is larger than all before.
    ///
    /// Errors: `Io`; `Internal` if the key is not larger than the previous one.
    pub(crate) fn push(&mut self, key: u64) -> Result<()> {
        if let Some(last) = self.block.last().filter(|last| **last >= key) {
            let message = format!("expected ascending keys for the key file, found {key} after {last}");
            return Err(Error::internal(message));
        }
        if self.block.len() as u64 == BLOCK_KEYS {
            self.end_block()?;
        }
        self.block.push(key);
        self.keys += 1;
        Ok(())
    }

    fn end_block(&mut self) -> Result<()> {
        let Some(first_key) = self.block.first().copied() else { return Ok(()) };
        let bytes = key_file::encode_block(self.tag, self.blocks, &self.block);
        self.to.write(&bytes)?;
        self.directory.push(first_key, bytes.len())?;
        self.block.clear();
        self.blocks += 1;
        if self.directory.len() == GROUP_BLOCKS { self.end_group() } else { Ok(()) }
    }

    fn end_group(&mut self) -> Result<()> {
        if let Some((first_key, bytes)) = self.directory.take(self.tag, self.groups.len() as u64) {
            self.groups.push(Group { first_key, directory: self.to.position() });
            self.to.write(&bytes)?;
        }
        Ok(())
    }

    /// Writes the end of the file. Returns what a manifest states about it.
    pub(crate) fn finish(mut self) -> Result<Checksum> {
        self.end_block()?;
        self.end_group()?;
        let tail = Tail { shape: Shape { keys: self.keys }, tag: self.tag, groups: self.groups.into() };
        self.to.write(&tail.to_bytes())?;
        self.to.finish_file()
    }

    /// Returns the number of keys so far.
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }
}
