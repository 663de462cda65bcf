//! An engine: how it is loaded, opened and asked.

use std::path::Path;

use crate::input::Input;
use crate::reader::Result;
use crate::slices::AnyReader;

/// An opened database that any thread may read.
pub trait Engine: Send + Sync {
    /// Gives a reader of this thread to `work`; with transactions, all of `work` is in one.
    fn read(&self, work: &mut dyn FnMut(&mut dyn AnyReader) -> Result<()>) -> Result<()>;

    /// The head of one value, as a service would get it that keeps nothing from one request to the next but the
    /// opened database: with transactions, one a request.
    fn request(&self, key: u64) -> Result<Option<u64>>;
}

/// Loads all pairs into an empty directory; when it returns, they have reached the disk.
pub type Load = fn(&Path, &Input) -> Result<()>;

/// Opens what was loaded into a directory.
pub type Open = fn(&Path) -> Result<Box<dyn Engine>>;

/// An engine by name.
pub struct Peer {
    pub name: &'static str,
    pub load: Load,
    /// `None` if only the files matter.
    pub open: Option<Open>,
    /// Opens files that are not in memory and warms them, where the engine has a way of its own; else they are read front to
    /// back before they are opened.
    pub open_and_warm: Option<Open>,
    /// Sets with more keys are left out.
    pub max_keys: u64,
    /// Bytes of memory that it and its files take for a pair with a value of this length when all has been read, about:
    /// what is measured together must fit.
    pub memory: fn(u64) -> u64,
    /// Loading takes minutes: once is enough.
    pub loads_once: bool,
}

impl Peer {
    /// One as most are; what is different is written out where the peer is.
    pub const fn new(name: &'static str, load: Load, open: Open) -> Peer {
        Peer {
            name,
            load,
            open: Some(open),
            open_and_warm: None,
            max_keys: u64::MAX,
            memory: compact,
            loads_once: false,
        }
    }
}

/// The memory of a pair where values lie one after another.
pub fn compact(value_len: u64) -> u64 {
    value_len + 40
}

/// The memory of a pair in pages: small ones share them and leave room, large ones take whole ones.
pub fn paged(value_len: u64) -> u64 {
    const PAGE: u64 = 4096;
    match value_len < PAGE / 2 {
        true => value_len * 5 / 4 + 40,
        false => (value_len + 16).next_multiple_of(PAGE),
    }
}
