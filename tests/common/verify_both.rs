//! Verification on one thread and on several, whose reports are the same.

use sharddb::verify::{VerifyOptions, VerifyReport};
use sharddb::{Progress, Result, Snapshot, VerifyLevel};

pub(crate) trait VerifyBoth {
    /// Verifies on one thread; asserts that several threads report the same, and the progress of both.
    fn verify_both(&self, level: VerifyLevel) -> Result<VerifyReport>;
}

impl VerifyBoth for Snapshot {
    #[track_caller]
    fn verify_both(&self, level: VerifyLevel) -> Result<VerifyReport> {
        let one = self.verify_with(level, VerifyOptions::new().threads(1));
        for threads in [2, 5] {
            let progress = Progress::new();
            let several = self.verify_with(level, VerifyOptions::new().threads(threads).progress(&progress));
            match (&one, &several) {
                (Ok(one), Ok(several)) => {
                    assert_eq!(lines(several), lines(one), "{threads} threads");
                    // each range reads some zeros of a sparse shard index before it looks for the end of the hole
                    let more = several.bytes_read - one.bytes_read;
                    assert!(more <= one.shards * 4 * threads as u64 * (64 << 10), "{more} more bytes read");
                    assert_eq!(progress.done(), progress.total());
                }
                _ => assert_eq!(several.map_err(text).err(), one.as_ref().map_err(text).err()),
            }
        }
        one
    }
}

fn text(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

/// The findings in order, and all counts.
fn lines(report: &VerifyReport) -> Vec<String> {
    let counts = format!("{report}, {} dropped", report.dropped());
    report.findings().iter().map(ToString::to_string).chain([counts]).collect()
}
