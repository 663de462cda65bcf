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
    /// Sets with more keys are left out.
    pub max_keys: u64,
    /// The memory that it and its files take when all has been read, as a multiple of the data. Rather too much:
    /// what is measured together must fit.
    pub memory: f64,
    /// Loading takes minutes: once is enough.
    pub loads_once: bool,
}

impl Peer {
    /// One as most are; what is different is written out where the peer is.
    pub const fn new(name: &'static str, load: Load, open: Open) -> Peer {
        Peer { name, load, open: Some(open), max_keys: u64::MAX, memory: 1.0, loads_once: false }
    }
}
