//! What the verifications of ranges of the minishards of one shard share, and what each leaves to that of the shard.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::read::shard::{IndexBudget, ValueBudget, most_rows};
use crate::verify::extents::{Extents, Unnamed};
use crate::verify::misplaced::Misplaced;

/// What the verification of a range leaves to that of the shard.
#[derive(Default)]
pub(super) struct RangeState {
    pub(super) extents: Extents,
    /// The gaps of a foreign shard between the extents that were compared.
    pub(super) unnamed: Unnamed,
    /// Whether all extents are needed: the ranges of the shard do not follow each other, or something is between them.
    pub(super) needs_all_extents: bool,
    /// Whether an index was not read or a range in one is not valid. Then the gaps are not known.
    pub(super) lost_extents: bool,
    /// Number of keys in the minishard indexes that could be read.
    pub(super) keys: u64,
    pub(super) misplaced: Misplaced,
    pub(super) index_budget: IndexBudget,
    pub(super) value_budget: ValueBudget,
    /// Whether something was not read because a budget did not allow it.
    pub(super) is_over_budget: bool,
}

impl RangeState {
    /// Notes that some byte ranges are unknown. Which gaps are known then shows when the shard has been walked through.
    pub(super) fn lose_extents(&mut self) {
        self.lost_extents = true;
        self.needs_all_extents |= matches!(self.extents, Extents::Chains(_));
    }
}

/// What concurrent verifications of ranges of one shard may keep and read together: as much as that of the whole shard.
pub(super) struct SharedBudget {
    index_bytes: AtomicU64,
    rows: AtomicU64,
    value_bytes: AtomicU64,
    file_len: u64,
}

impl SharedBudget {
    pub(super) fn new(file_len: u64) -> SharedBudget {
        SharedBudget { index_bytes: 0.into(), rows: 0.into(), value_bytes: 0.into(), file_len }
    }

    /// Charges a minishard index of this length. Returns false if that exceeds the budget.
    pub(super) fn take_index(&self, bytes: u64) -> bool {
        add(&self.index_bytes, bytes) <= IndexBudget::most(self.file_len)
    }

    /// Charges the rows of a minishard. Returns false if that exceeds the budget.
    pub(super) fn take_rows(&self, rows: u64) -> bool {
        add(&self.rows, rows.saturating_add(1)) <= most_rows(self.file_len)
    }

    /// Charges a value and its preamble. Returns false if that exceeds the budget.
    pub(super) fn take_value(&self, bytes: u64) -> bool {
        add(&self.value_bytes, bytes) <= ValueBudget::most(self.file_len)
    }
}

/// Adds to a counter, which stays at its greatest number. Returns the sum.
fn add(counter: &AtomicU64, more: u64) -> u64 {
    let sum = |before: u64| before.saturating_add(more);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |before| Some(sum(before))).map_or(u64::MAX, sum)
}
