//! Verification of an array against its meta files and the format.

use sharddb::Progress;
use sharddb::internal::add_finding;
use sharddb::progress::{Phase, Unit};
use sharddb::verify::{FindingKind, VerifyLevel, VerifyReport};
use sharddb_format::{Error, Result};

use crate::bcolz::array::BcolzArray;
use crate::bcolz::attributes::Attributes;
use crate::bcolz::chunks::Chunks;

impl BcolzArray {
    fn verify_files(&self, report: &mut VerifyReport) {
        match &self.chunks {
            Chunks::Shipped(files) => {
                for key in files.numbers().filter(|key| *key >= self.nchunks()) {
                    let message = format!("expected {} chunks, found the file of a further one", self.nchunks());
                    add_finding(report, FindingKind::UnlistedShard, Error::corrupt(message).at_path(&files.path(key)));
                }
                // bounded: the stated sizes may be far off
                for key in (0..self.nchunks()).filter(|key| !files.is_there(*key)).take(1000) {
                    let message = format!("expected {} chunks, found no file for this one", self.nchunks());
                    add_finding(
                        report,
                        FindingKind::MissingShard,
                        Error::corrupt(message).at_path(&files.path(key)).at_key(key),
                    );
                }
            }
            Chunks::Superchunks(superchunks) if !self.cuts_rows && superchunks.stored_rows() != self.sizes.rows() => {
                let (stated, found) = (self.sizes.rows(), superchunks.stored_rows());
                let message = format!("expected {stated} rows in superchunks, as the meta files state, found {found}");
                add_finding(report, FindingKind::WrongCount, Error::corrupt(message).at_path(&self.data));
            }
            Chunks::Superchunks(_) => {}
        }
    }

    pub(super) fn verify_into(&self, report: &mut VerifyReport, progress: &Progress) -> Result<()> {
        self.verify_files(report);
        verify_attributes(self.attributes(), report);
        let begin = |files| progress.begin_counting(Phase::Verify, Unit::Files, files);
        match &self.chunks {
            Chunks::Shipped(files) => {
                let keys = || files.numbers().take_while(|key| *key < self.nchunks());
                begin(keys().count() as u64);
                for key in keys() {
                    match self.find(key) {
                        Ok(Some(place)) => place.file.verify(key, self.options.max_chunk_bytes, report),
                        Ok(None) => {}
                        Err(error) => add_finding(report, FindingKind::UnreadableShard, error),
                    }
                    progress.add(1);
                    progress.check()?;
                }
            }
            Chunks::Superchunks(superchunks) => {
                begin(superchunks.parts().len() as u64);
                for part in superchunks.parts() {
                    part.file.verify(part.first_key, self.options.max_chunk_bytes, report);
                    progress.add(1);
                    progress.check()?;
                }
            }
        }
        if report.level > VerifyLevel::Structure {
            self.verify_lengths(report);
        }
        Ok(())
    }

    /// Checks that the header of each existing chunk states the bytes of its rows.
    fn verify_lengths(&self, report: &mut VerifyReport) {
        let Chunks::Shipped(files) = &self.chunks else { return };
        for key in files.numbers().take_while(|key| *key < self.nchunks() && self.row_len > 0) {
            let Ok(Some(header)) = self.chunk_header(key) else { continue };
            let (expected, found) = (self.rows_of(key) * self.row_len, u64::from(header.nbytes()));
            if expected != found {
                let message =
                    format!("expected a chunk of {expected} decoded bytes, as the meta files state, found {found}");
                add_finding(
                    report,
                    FindingKind::WrongCount,
                    Error::corrupt(message).at_path(&files.path(key)).at_key(key),
                );
            }
        }
    }
}

pub(super) fn verify_attributes(attributes: Result<Attributes>, report: &mut VerifyReport) {
    if let Err(error) = attributes {
        add_finding(report, FindingKind::UnreadableFile, error);
    }
}
