//! The iterator over the keys of a range.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::{self, RangeBounds};
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::key_bounds::{KeyBounds, Unread};
use crate::format::key_file::KeyRun;
use crate::read::ordered::options::RangeOptions;
use crate::read::ordered::scan::scan_generation;
use crate::read::snapshot::Snapshot;
use crate::read::sorted_keys::key_file::KeyFile;
use crate::read::sorted_keys::sorter::{KeySorter, SortedKeys};
use crate::threads::progress::Phase;

/// An iterator over the keys of a range in ascending order, from both ends; see [`Snapshot::key_range`].
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-key-range-doc-{}", std::process::id()));
/// # let mut loader = sharddb::BulkLoader::create(&store)?;
/// # for key in [40, 10, 30, 20] { loader.insert(key, b"value")?; }
/// # loader.finish()?;
/// let snapshot = sharddb::ShardDb::open(&store)?.snapshot();
/// let mut keys = snapshot.key_range(..=40);
/// assert_eq!(keys.next().transpose()?, Some(10));
/// assert_eq!(keys.next_back().transpose()?, Some(40));
/// keys.seek(25);
/// assert_eq!(keys.next().transpose()?, Some(30));
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
pub struct KeyRange {
    pub(super) snapshot: Snapshot,
    options: RangeOptions,
    /// The range; `None` if it has no keys.
    bounds: Option<KeyBounds>,
    /// The part of the range that has the keys that are left.
    left: Unread,
    source: Source,
    /// The numbers in the source of the keys that are left.
    numbers: ops::Range<u64>,
    /// The blocks of the last key from each end.
    front: KeyRun,
    back: KeyRun,
    errors: std::vec::IntoIter<Error>,
}

/// Where the sorted keys are.
enum Source {
    /// The key file of the generation. If it is damaged, the range is read from the indexes instead.
    KeyFile(Arc<KeyFile>),
    /// The keys of the range, sorted, in memory.
    Memory(Vec<u64>),
    /// The keys of the range, sorted, in a temporary file.
    Spilled(Arc<KeyFile>),
}

/// The two ends of a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Front,
    Back,
}

impl KeyRange {
    pub(super) fn new(snapshot: &Snapshot, range: &impl RangeBounds<u64>, options: &RangeOptions) -> KeyRange {
        let bounds = KeyBounds::new(range);
        let mut keys = KeyRange {
            snapshot: snapshot.clone(),
            options: options.clone(),
            bounds,
            left: Unread::whole(bounds),
            source: Source::Memory(Vec::new()),
            numbers: 0..0,
            front: KeyRun::default(),
            back: KeyRun::default(),
            errors: Vec::new().into_iter(),
        };
        if let Some(file) = snapshot.generation.key_file() {
            keys.source = Source::KeyFile(Arc::clone(file));
            if keys.try_find_numbers().is_ok() {
                return keys;
            }
        }
        keys.sort_again();
        keys
    }

    /// Reads the keys of the range from the indexes and sorts them. Those that were returned are not left.
    fn sort_again(&mut self) {
        (self.front, self.back) = (KeyRun::default(), KeyRun::default());
        if let Err(error) = self.try_sort_again() {
            self.end_with(error);
        }
    }

    fn try_sort_again(&mut self) -> Result<()> {
        let Some(bounds) = self.bounds else { return Ok(()) };
        let (generation, options) = (&self.snapshot.generation, &self.options);
        options.progress.begin(Phase::Scan, self.snapshot.key_count().unwrap_or(0));
        let sorter = KeySorter::new(options.budget());
        let errors = scan_generation(generation, bounds, options.threads, &|keys, read| {
            options.progress.add(read);
            options.progress.check()?;
            sorter.add(keys)
        })?;
        self.source = match sorter.finish()? {
            SortedKeys::InMemory(keys) => Source::Memory(keys),
            SortedKeys::Spilled(merge) => {
                Source::Spilled(Arc::new(KeyFile::of_merge(merge, options.budget().temp_dir)?))
            }
        };
        self.errors = errors.into_iter();
        self.try_find_numbers()
    }

    /// Finds the numbers of the keys that are left.
    fn try_find_numbers(&mut self) -> Result<()> {
        self.numbers = match (self.left.bounds(), &self.source) {
            (None, _) => 0..0,
            (Some(bounds), Source::KeyFile(file) | Source::Spilled(file)) => file.numbers(bounds)?,
            (Some(bounds), Source::Memory(keys)) => {
                let start = keys.partition_point(|key| *key < bounds.first());
                let end = keys.partition_point(|key| *key <= bounds.last());
                start as u64..end as u64
            }
        };
        Ok(())
    }

    /// Makes `error` the last item.
    fn end_with(&mut self, error: Error) {
        (self.bounds, self.left, self.numbers) = (None, Unread::whole(None), 0..0);
        self.errors = vec![error].into_iter();
    }

    /// Returns the number of keys that are left, in O(1). Errors do not count.
    pub fn remaining(&self) -> u64 {
        self.numbers.end.saturating_sub(self.numbers.start)
    }

    /// Moves the front: [`next`](Iterator::next) then returns the first key of the range that is at least `key`. That may
    /// be a key that it has returned before, but not one that [`next_back`](DoubleEndedIterator::next_back) has returned.
    ///
    /// Cost: O(log n).
    pub fn seek(&mut self, key: u64) {
        self.left.seek(Unread::whole(self.bounds), key);
        self.find_numbers();
    }

    /// Moves the back: [`next_back`](DoubleEndedIterator::next_back) then returns the last key of the range that is at
    /// most `key`. That may be a key that it has returned before, but not one that [`next`](Iterator::next) has returned.
    ///
    /// Cost: O(log n).
    pub fn seek_back(&mut self, key: u64) {
        self.left.seek_back(Unread::whole(self.bounds), key);
        self.find_numbers();
    }

    /// Finds the numbers of the keys that are left.
    fn find_numbers(&mut self) {
        if let Err(error) = self.try_find_numbers() {
            self.recover(error);
        }
    }

    /// Continues after the source failed: with the indexes instead of the key file of the generation. A temporary file has
    /// no replacement.
    #[cold]
    fn recover(&mut self, error: Error) {
        match self.source {
            Source::KeyFile(_) => self.sort_again(),
            Source::Memory(_) | Source::Spilled(_) => self.end_with(error),
        }
    }

    /// Returns the key after the next `skipped` keys from one end.
    #[inline]
    fn next_from(&mut self, end: End, skipped: usize) -> Option<Result<u64>> {
        loop {
            if let Some(error) = self.errors.next() {
                return Some(Err(error));
            }
            let skipped = skipped as u64;
            if skipped >= self.remaining() {
                self.numbers.start = self.numbers.end;
                return None;
            }
            let number = match end {
                End::Front => self.numbers.start + skipped,
                End::Back => self.numbers.end - 1 - skipped,
            };
            match self.key_of(number, end) {
                Ok(key) => {
                    match end {
                        End::Front => {
                            self.left.take_front(key);
                            self.numbers.start = number + 1;
                        }
                        End::Back => {
                            self.left.take_back(key);
                            self.numbers.end = number;
                        }
                    }
                    return Some(Ok(key));
                }
                Err(error) => self.recover(error),
            }
        }
    }

    /// Returns the key with this number in the source.
    #[inline]
    fn key_of(&mut self, number: u64, end: End) -> Result<u64> {
        let block = match end {
            End::Front => &mut self.front,
            End::Back => &mut self.back,
        };
        let key = match (&self.source, block.get(number)) {
            (Source::Memory(keys), _) => usize::try_from(number).ok().and_then(|number| keys.get(number)).copied(),
            (_, Some(key)) => Some(key),
            (Source::KeyFile(file) | Source::Spilled(file), None) => {
                *block = file.block(number)?;
                block.get(number)
            }
        };
        // the order of blocks is checked here: no key is returned twice or out of order
        key.filter(|key| self.left.contains(*key)).ok_or_else(|| {
            let error =
                Error::corrupt(format!("expected ascending keys in the key file, found {key:?} as key {number}"));
            match &self.source {
                Source::KeyFile(file) => error.at_path(file.path()),
                Source::Spilled(_) | Source::Memory(_) => error,
            }
        })
    }
}

impl Iterator for KeyRange {
    type Item = Result<u64>;

    #[inline]
    fn next(&mut self) -> Option<Result<u64>> {
        self.next_from(End::Front, 0)
    }

    /// Like the default, in O(log n). An error is returned, and nothing is skipped.
    fn nth(&mut self, skipped: usize) -> Option<Result<u64>> {
        self.next_from(End::Front, skipped)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let least = usize::try_from(self.remaining()).unwrap_or(usize::MAX);
        match self.source {
            Source::KeyFile(_) => (0, None), // of another length if the file is damaged
            _ => (least, least.checked_add(self.errors.len())),
        }
    }
}

impl DoubleEndedIterator for KeyRange {
    #[inline]
    fn next_back(&mut self) -> Option<Result<u64>> {
        self.next_from(End::Back, 0)
    }

    /// Like the default, in O(log n). An error is returned, and nothing is skipped.
    fn nth_back(&mut self, skipped: usize) -> Option<Result<u64>> {
        self.next_from(End::Back, skipped)
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRange").field("remaining", &self.remaining()).finish_non_exhaustive()
    }
}

impl FusedIterator for KeyRange {}
