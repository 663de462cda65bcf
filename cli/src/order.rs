//! The options `--range`, `--sorted` and `--reverse`: keys in their order.

use std::ops::Bound;
use std::path::PathBuf;

use sharddb::Snapshot;
use sharddb::internal::key_range::ParsedKeyRange;
use sharddb::read::{self, Range, RangeOptions};

use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::progress::Display;
use crate::size::Size;

/// Which keys, and in which order.
#[derive(Debug, clap::Args)]
pub(crate) struct Order {
    /// Only the keys of this range, ascending: A..B ends before B, A..=B with it; A.. and ..B are open. Keys are decimal or
    /// 0x hex
    #[arg(long, value_name = "A..B")]
    range: Option<ParsedKeyRange>,
    /// In ascending order of keys
    #[arg(long)]
    sorted: bool,
    /// In descending order of keys
    #[arg(long)]
    reverse: bool,
    /// With one of these: the memory for keys, 8 bytes each; more are sorted in files. Default: 1GiB
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// With one of these: where to sort keys that do not fit into memory. Default: the directory for temporary files
    #[arg(long, value_name = "DIR")]
    temp_dir: Option<PathBuf>,
}

impl Order {
    /// Whether keys are wanted in their order.
    pub(crate) fn is_given(&self) -> bool {
        self.range.is_some() || self.sorted || self.reverse
    }

    /// Refuses options that have no effect.
    ///
    /// Errors: `Usage`.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_given() && (self.memory.is_some() || self.temp_dir.is_some()) {
            return Err(Failure::usage(
                "--memory and --temp-dir are for --range, --sorted or --reverse: leave them out",
            ));
        }
        Ok(())
    }

    /// Refuses keys in order from what is not a database.
    ///
    /// Errors: `Usage`.
    pub(crate) fn refuse_container(&self) -> Result<()> {
        if self.is_given() {
            Err(Failure::usage(
                "--range, --sorted and --reverse are for databases, found a container of another format",
            ))
        } else {
            Ok(())
        }
    }

    /// Counts the keys of the range. It may be that of all keys.
    pub(crate) fn count(&self, snapshot: &Snapshot) -> Result<u64> {
        Ok(snapshot.count_range(self.bounds())?)
    }

    /// The keys of the range. Sorts them, if the database has no key file, and shows that.
    pub(crate) fn keys(&self, snapshot: &Snapshot, context: &Context) -> read::KeyRange {
        self.sort(context, |options| snapshot.key_range_with(self.bounds(), options))
    }

    /// The pairs of the range, like [`keys`](Order::keys).
    pub(crate) fn pairs(&self, snapshot: &Snapshot, context: &Context) -> Range {
        self.sort(context, |options| snapshot.range_with(self.bounds(), options))
    }

    fn sort<T>(&self, context: &Context, sort: impl FnOnce(&RangeOptions) -> T) -> T {
        let progress = context.interrupt.progress();
        let mut options = RangeOptions::new();
        options.progress(&progress);
        if let Some(Size(memory)) = self.memory {
            options.memory(memory);
        }
        if let Some(directory) = &self.temp_dir {
            options.temp_dir(directory);
        }
        let _shown = Display::count(context.quiet, "sort", &progress);
        sort(&options)
    }

    /// The range of a data set at a URL; `None` if no order is wanted.
    ///
    /// Errors: `Usage` for an option that has no effect there.
    pub(crate) fn bounds_at_url(&self) -> Result<Option<(Bound<u64>, Bound<u64>)>> {
        self.check()?;
        let without_effect =
            [("--reverse", self.reverse), ("--memory", self.memory.is_some()), ("--temp-dir", self.temp_dir.is_some())];
        match without_effect.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => {
                Err(Failure::usage(format!("{option} is for local databases, found a URL: leave it out")))
            }
            None => Ok(self.is_given().then(|| self.bounds())),
        }
    }

    fn bounds(&self) -> (Bound<u64>, Bound<u64>) {
        self.range.map_or((Bound::Unbounded, Bound::Unbounded), ParsedKeyRange::bounds)
    }

    /// The items from the end that comes first.
    pub(crate) fn directed<'a, T>(
        &self,
        items: impl DoubleEndedIterator<Item = T> + 'a,
    ) -> Box<dyn Iterator<Item = T> + 'a> {
        if self.reverse { Box::new(items.rev()) } else { Box::new(items) }
    }
}
