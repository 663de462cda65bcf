//! Verification on one thread and on several, whose reports are the same.

use std::num::NonZero;

use sharddb::verify::VerifyReport;
use sharddb::{Result, Snapshot, VerifyLevel};

pub(crate) trait VerifyBoth {
    /// Verifies on one thread; asserts that several threads report the same, and the progress of both.
    fn verify_both(&self, level: VerifyLevel) -> Result<VerifyReport>;
}

impl VerifyBoth for Snapshot {
    #[track_caller]
    fn verify_both(&self, level: VerifyLevel) -> Result<VerifyReport> {
        let one = self.verify(level);
        for threads in [2, 5] {
            let mut last = (0, None);
            let several = self.verify_parallel(level, NonZero::new(threads).unwrap(), |done, total| {
                assert!(done >= last.0 && done <= total && last.1.is_none_or(|before| before == total));
                last = (done, Some(total));
            });
            match (&one, &several) {
                (Ok(one), Ok(several)) => {
                    assert_eq!(lines(several), lines(one), "{threads} threads");
                    // each range reads some zeros of a sparse shard index before it looks for the end of the hole
                    let more = several.bytes_read - one.bytes_read;
                    assert!(more <= one.shards * 4 * threads as u64 * (64 << 10), "{more} more bytes read");
                    assert!(last.1.is_none_or(|total| last.0 == total), "{last:?}");
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
