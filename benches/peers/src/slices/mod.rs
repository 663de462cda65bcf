//! Slices: the work of one engine between two readings of the clock. One kind per file.
//!
//! A slice is drawn once and run by every engine, so that all do the same work. A run returns a sum of what was read,
//! which must be equal for all. Engine and kind are dispatched once per slice, and inside of a slice nothing is.

pub mod batch;
pub mod dependent;
pub mod hit;
pub mod miss;
pub mod scan;
pub mod whole;
pub mod zipf;

use crate::data::{DataSet, Sampler};
use crate::reader::{Reader, Result};

/// A unit of work.
pub enum Slice {
    Hit(Vec<u64>),
    Dependent(dependent::Chain),
    Miss(Vec<u64>),
    Batch(Vec<u64>),
    ColdBatch(Vec<u64>),
    Whole(Vec<u64>),
    Scan(DataSet),
}

impl Slice {
    /// The number of gets or pairs.
    pub fn operations(&self) -> u64 {
        match self {
            Slice::Hit(keys) | Slice::Miss(keys) | Slice::Whole(keys) => keys.len() as u64,
            Slice::Batch(keys) | Slice::ColdBatch(keys) => keys.len() as u64,
            Slice::Dependent(chain) => chain.steps,
            Slice::Scan(data) => data.keys,
        }
    }
}

/// A reader of any engine.
pub trait AnyReader {
    /// Runs a slice; returns the sum of what was read.
    fn run(&mut self, slice: &Slice) -> Result<u64>;
}

impl<R: Reader> AnyReader for R {
    fn run(&mut self, slice: &Slice) -> Result<u64> {
        match slice {
            Slice::Hit(keys) => hit::run(self, keys),
            Slice::Dependent(chain) => dependent::run(self, chain),
            Slice::Miss(keys) => miss::run(self, keys),
            Slice::Batch(keys) => batch::run(self, keys),
            Slice::ColdBatch(keys) => batch::run_cold(self, keys),
            Slice::Whole(keys) => whole::run(self, keys),
            Slice::Scan(_) => scan::run(self),
        }
    }
}

/// A kind of slice: its name, and the function that draws one with a number of operations.
pub type Kind = (&'static str, fn(&mut Sampler, usize) -> Slice);

/// All kinds that are run in rounds, in the order of the report.
pub const KINDS: [Kind; 7] = [
    ("hit", hit::draw),
    ("dependent", dependent::draw),
    ("miss", miss::draw),
    ("zipf", zipf::draw),
    ("batch", batch::draw),
    ("whole", whole::draw),
    ("scan", scan::draw),
];
