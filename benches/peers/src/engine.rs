//! An engine: how it is loaded, opened and read.

use std::path::Path;

use crate::data::DataSet;
use crate::input::Input;
use crate::reader::Result;
use crate::slices::AnyReader;

/// An opened database that any thread may read.
pub trait Engine: Send + Sync {
    /// Calls `work` with a reader of this thread. In engines with transactions, all of `work` is one transaction.
    fn read(&self, work: &mut dyn FnMut(&mut dyn AnyReader) -> Result<()>) -> Result<()>;

    /// The head of one value, for a service that keeps nothing but the opened database between requests: in engines
    /// with transactions, one per request.
    fn request(&self, key: u64) -> Result<Option<u64>>;
}

/// Loads all pairs into an empty directory and syncs them.
pub type Load = fn(&Path, &Input) -> Result<()>;

/// Opens what was loaded into a directory.
pub type Open = fn(&Path) -> Result<Box<dyn Engine>>;

/// An engine by name.
pub struct Peer {
    pub name: &'static str,
    pub load: Load,
    /// `None` if only the files are measured.
    pub open: Option<Open>,
    /// Opens files that are not in memory and warms them, if the engine has a function for it; otherwise they are read
    /// sequentially before they are opened.
    pub open_and_warm: Option<Open>,
    /// Whether this engine is measured with a set.
    pub can_hold: fn(&DataSet) -> bool,
    /// The approximate bytes of memory per pair of this value length, with its files, when everything was read. Engines
    /// that are measured together must fit into memory.
    pub memory: fn(u64) -> u64,
    /// Loads only once, because a load takes minutes.
    pub loads_once: bool,
}

impl Peer {
    /// A peer with the usual settings. Each peer states what differs.
    pub const fn new(name: &'static str, load: Load, open: Open) -> Peer {
        Peer {
            name,
            load,
            open: Some(open),
            open_and_warm: None,
            can_hold: |_| true,
            memory: compact,
            loads_once: false,
        }
    }
}

/// The memory per pair if values are stored one after another.
pub fn compact(value_len: u64) -> u64 {
    value_len + 40
}

/// The memory per pair in pages: small values share a page with some free space, large ones take entire pages.
pub fn paged(value_len: u64) -> u64 {
    const PAGE: u64 = 4096;
    if value_len < PAGE / 2 { value_len * 5 / 4 + 40 } else { (value_len + 16).next_multiple_of(PAGE) }
}
