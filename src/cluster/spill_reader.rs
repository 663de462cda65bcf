//! The reader of a spill: verifies it, and passes on the pairs of one part.

use crate::cluster::spill_receipt::{check_spill_len, lost_spill};
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crc32fast::Hasher;

use super::spill_format::{MAX_HEADER, ROW_LEN, RecordHeader, SectionRow, TRAILER_LEN, Trailer, digest_of};
use super::spill_receipt::SpillReceipt;
use crate::bytes::{BlockReader, open_regular, read_exact_at};
use crate::error::{Error, Result};
use crate::format::digest::Digester;
use crate::write::{Sorter, Source};

/// Block size for reading a spill.
const READ_BLOCK: usize = 1 << 20;

/// An open spill.
#[derive(Debug)]
pub struct Spill {
    file: Arc<File>,
    path: PathBuf,
    table_start: u64,
    trailer: Trailer,
}

/// The place of a section in its spill.
struct Section {
    start: u64,
    row: SectionRow,
}

impl Spill {
    /// Opens the spill of a receipt and verifies its trailer.
    ///
    /// Errors: `NotFound` if there is no such file; `Corrupt` if it is not the file of the receipt; `Unsupported`;
    /// `Io`.
    pub fn open(directory: &Path, receipt: &SpillReceipt) -> Result<Spill> {
        let path = directory.join(receipt.file_name());
        Spill::open_at(&path, receipt).map_err(|error| error.at_path(&path))
    }

    fn open_at(path: &Path, receipt: &SpillReceipt) -> Result<Spill> {
        let (file, len) = open_regular(path).map_err(|error| match error.io_kind() {
            Some(io::ErrorKind::NotFound) => lost_spill(receipt),
            _ => error,
        })?;
        check_spill_len(receipt, len)?;
        let mut trailer = [0; TRAILER_LEN];
        let trailer_start = len.checked_sub(TRAILER_LEN as u64).ok_or_else(cut)?;
        read_exact_at(&file, &mut trailer, trailer_start).map_err(|error| Error::io("read", path, error))?;
        let trailer = Trailer::from_bytes(&trailer)?;
        let Trailer { plan, task, digest, pairs, preambles, .. } = trailer;
        // the digest covers the random bytes
        if *receipt != (SpillReceipt { plan, task, digest, pairs, preambles, bytes: len, run: receipt.run }) {
            let message =
                format!("expected the spill of task {}, which its receipt states, found another", receipt.task);
            return Err(Error::corrupt(message));
        }
        let table_len = trailer.sections.checked_mul(ROW_LEN as u64);
        let table_start = table_len.and_then(|len| trailer_start.checked_sub(len)).ok_or_else(cut)?;
        Ok(Spill { file: Arc::new(file), path: path.to_path_buf(), table_start, trailer })
    }

    /// Adds all pairs of a part to a sorter, in the order of insertion, and verifies them.
    ///
    /// Errors: those of the sorter; `Corrupt` if the table or a section is damaged; `Io`.
    pub(super) fn read_part(&self, part: u64, sorter: &mut Sorter) -> Result<()> {
        let sections = self.sections(part).map_err(|error| error.at_path(&self.path))?;
        for section in sections {
            let mut reader = SectionReader::new(self, &section);
            reader.read(section.row, sorter).map_err(|error| error.at_path(&self.path).at_offset(section.start))?;
        }
        Ok(())
    }

    /// Returns the offset of the section table.
    pub fn table_start(&self) -> u64 {
        self.table_start
    }

    /// Reads and verifies the section table. Returns the places of the sections of a part, ascending.
    ///
    /// Errors: `Corrupt` if the table is damaged; `Io`.
    pub fn section_ranges(&self, part: u64) -> Result<Vec<Range<u64>>> {
        let sections = self.sections(part).map_err(|error| error.at_path(&self.path))?;
        Ok(sections.iter().map(|section| section.start..section.start + section.row.bytes).collect())
    }

    /// Passes on the whole file in pieces, and compares it with its digest.
    ///
    /// Errors: `Corrupt` after the last piece if the file is damaged; those of `to`; `Io`.
    pub fn read_verified(&self, to: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let trailer_start = self.table_start + self.trailer.sections * ROW_LEN as u64; // `open` has computed both
        let len = trailer_start + TRAILER_LEN as u64;
        let mut reader = BlockReader::new(self.file.clone(), &self.path, 0, len, READ_BLOCK);
        let mut digester = Digester::default();
        reader.pieces(trailer_start, &mut |piece| {
            digester.update(piece);
            to(piece)
        })?;
        reader.pieces(TRAILER_LEN as u64, to)?;
        if digest_of(digester, &[], self.trailer.plan, self.trailer.task) == self.trailer.digest {
            Ok(())
        } else {
            let message = "this spill is damaged: remove the file and run its task again";
            Err(Error::corrupt(message).at_path(&self.path))
        }
    }

    /// Reads and verifies the section table. Returns the sections of a part.
    fn sections(&self, part: u64) -> Result<Vec<Section>> {
        let end = self.table_start + self.trailer.sections * ROW_LEN as u64; // `open` has computed both
        let mut reader = BlockReader::new(self.file.clone(), &self.path, self.table_start, end, READ_BLOCK);
        let (mut crc32, mut start, mut pairs) = (Hasher::new(), 0_u64, 0_u64);
        let mut sections = Vec::new();
        for _ in 0..self.trailer.sections {
            let bytes = reader.fill_at_least(ROW_LEN)?.first_chunk().ok_or_else(cut)?;
            crc32.update(bytes);
            let row = SectionRow::from_bytes(bytes).ok_or_else(cut)?;
            reader.consume(ROW_LEN);
            if u64::from(row.part) == part {
                sections.push(Section { start, row });
            }
            start = start.checked_add(row.bytes).ok_or_else(cut)?;
            pairs = pairs.checked_add(row.pairs).ok_or_else(cut)?;
        }
        let found = (crc32.finalize(), start, pairs);
        if found != (self.trailer.table_crc32, self.table_start, self.trailer.pairs) {
            let message = "the section table of this spill is damaged: remove the file and run its task again";
            return Err(Error::corrupt(message).at_offset(self.table_start));
        }
        Ok(sections)
    }
}

#[cold]
fn cut() -> Error {
    Error::corrupt("expected a complete spill, found a cut one: remove the file and run its task again")
}

/// Reads the bytes of a section once, and computes their checksum.
struct SectionReader {
    reader: BlockReader,
    left: u64,
    crc32: Hasher,
}

impl SectionReader {
    fn new(spill: &Spill, section: &Section) -> SectionReader {
        let end = section.start + section.row.bytes; // within the file, since the table was verified
        let reader = BlockReader::new(spill.file.clone(), &spill.path, section.start, end, READ_BLOCK);
        SectionReader { reader, left: section.row.bytes, crc32: Hasher::new() }
    }

    fn read(&mut self, row: SectionRow, sorter: &mut Sorter) -> Result<()> {
        for _ in 0..row.pairs {
            let (header, header_len) =
                RecordHeader::read(self.reader.fill_at_least(MAX_HEADER)?).ok_or_else(damaged)?;
            self.consume(header_len)?;
            if header.bytes().is_none_or(|bytes| bytes > self.left) {
                return Err(damaged());
            }
            sorter.add(header.key, (header.preamble_len, header.value_len), Source::Reader(self))?;
        }
        if self.left == 0 && self.crc32.clone().finalize() == row.crc32 { Ok(()) } else { Err(damaged()) }
    }

    /// Steps past buffered bytes.
    fn consume(&mut self, len: usize) -> Result<()> {
        let bytes = self.reader.fill_at_least(len)?.get(..len).ok_or_else(damaged)?;
        self.crc32.update(bytes);
        self.left = self.left.checked_sub(len as u64).ok_or_else(damaged)?;
        self.reader.consume(len);
        Ok(())
    }
}

#[cold]
fn damaged() -> Error {
    Error::corrupt("a section of this spill is damaged: remove the file and run its task again")
}

impl Read for SectionReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.fill()?;
        let len = bytes.len().min(into.len());
        if let (Some(into), Some(bytes)) = (into.get_mut(..len), bytes.get(..len)) {
            into.copy_from_slice(bytes);
        }
        self.consume(len)?;
        Ok(len)
    }
}
