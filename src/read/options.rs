//! How to open a database.

use crate::format::spec::ShardingSpec;
use crate::read::shard::{ReadOptions, VerifyReads};
use crate::storage::{Access, StorageKind};

/// Linux lets a process have 65,530 maps; the rest is left to the application.
pub(crate) const DEFAULT_MAX_MAPS: usize = 60_000;

/// Options for opening a database; then [`open`](OpenOptions::open), [`open_pread`](OpenOptions::open_pread) or
/// [`load`](OpenOptions::load).
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let db = sharddb::OpenOptions::new().pointer("/scales/0").cache_bytes(256 << 20).open_pread("volume")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    spec: Option<ShardingSpec>,
    pointer: Option<String>,
    pub(super) cache_bytes: u64,
    read: ReadOptions,
    pub(super) access: Access,
    check_shards: bool,
    populate: bool,
    read_ahead_index: bool,
    pub(super) max_maps: usize,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            spec: None,
            pointer: None,
            cache_bytes: 64 << 20,
            read: ReadOptions::default(),
            access: Access::default(),
            check_shards: true,
            populate: false,
            read_ahead_index: false,
            max_maps: DEFAULT_MAX_MAPS,
        }
    }
}

impl OpenOptions {
    /// The defaults.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// The specification, for a directory of shards without an `info`, or instead of it. Default: that of `info`.
    pub fn spec(&mut self, spec: ShardingSpec) -> &mut OpenOptions {
        self.spec = Some(spec);
        self
    }

    /// The JSON pointer (RFC 6901) of the object in `info` that has the member "sharding", such as `/scales/0`.
    /// Default: the top, else the only nested one.
    pub fn pointer(&mut self, pointer: &str) -> &mut OpenOptions {
        self.pointer = Some(pointer.to_string());
        self
    }

    /// The most bytes that decoded minishard indexes may take. Default: 64 MiB.
    pub fn cache_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.cache_bytes = bytes;
        self
    }

    /// The most bytes that a gzip value may decode to, and that are read for a value or prefix that is not in memory;
    /// beyond it is `TooLarge`. Default: 1 GiB.
    pub fn max_value_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.read.max_value_bytes = bytes;
        self
    }

    /// The most bytes that a minishard index may take when decoded or read. Default: 256 MiB.
    pub fn max_index_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.read.max_index_bytes = bytes;
        self
    }

    /// When reads compare bytes with their checks. Default: [`VerifyReads::Once`], when this process first uses them.
    pub fn verify_reads(&mut self, verify: VerifyReads) -> &mut OpenOptions {
        self.read.verify_reads = verify;
        self
    }

    /// The advice for mapped shards that lookups read; iteration always advises sequential. Default: random.
    ///
    /// Random reads single pages: the least for small values from a disk. For large ones ask for all of them with
    /// [`Snapshot::read_ahead`](crate::Snapshot::read_ahead), or take normal advice.
    pub fn access(&mut self, access: Access) -> &mut OpenOptions {
        self.access = access;
        self
    }

    /// Whether opening and [`refresh`](crate::ShardDb::refresh) fail if a shard file of the manifest is missing or has another
    /// length. Default: true.
    ///
    /// Without, a generation opens as long as `info` and the manifest are sound, and lookups in such a shard return the error.
    /// Cost: one call to the system for each shard; a refresh opens the shards. Data sets without a manifest have
    /// the shards that have a file. Damage inside a file is what [`Snapshot::verify`](crate::Snapshot::verify) finds.
    pub fn check_shards(&mut self, check: bool) -> &mut OpenOptions {
        self.check_shards = check;
        self
    }

    /// Whether a mapped shard's pages are read when it is first touched (Linux; elsewhere they are asked for).
    /// Default: false.
    ///
    /// For data that fits into memory: the pages are read front to back, when the shard is opened and not as lookups
    /// happen to need them; in huge pages, where Linux and the file system have them and the pages are not in memory yet. A
    /// refresh takes it before the swap. [`Snapshot::warm`](crate::Snapshot::warm) does the same in the background.
    pub fn populate(&mut self, populate: bool) -> &mut OpenOptions {
        self.populate = populate;
        self
    }

    /// Whether all shards are opened, and the shard indexes of mapped ones asked for, when a generation is opened.
    /// Default: false.
    ///
    /// For data that does not fit into memory and has no minishard table, such as that of others: 16 bytes a minishard, which
    /// are 2 to 4 bytes a key where a minishard holds 4 to 8. Once they have come, a lookup finds its minishard without the
    /// disk. Opening does not wait for them. With a table nothing is asked for.
    pub fn read_ahead_index(&mut self, read_ahead: bool) -> &mut OpenOptions {
        self.read_ahead_index = read_ahead;
        self
    }

    /// The most maps that this process may have through this library; shards beyond it are read by positioned
    /// reads. Default: 60,000.
    pub fn max_maps(&mut self, maps: usize) -> &mut OpenOptions {
        self.max_maps = maps;
        self
    }

    pub(crate) fn generation(&self, storage: StorageKind) -> GenerationOptions {
        GenerationOptions {
            storage,
            read: self.read,
            spec: self.spec,
            pointer: self.pointer.clone(),
            check_shards: self.check_shards,
            populate: self.populate,
            read_ahead_index: self.read_ahead_index,
        }
    }
}

/// How to open a generation.
#[derive(Clone, Debug)]
pub(crate) struct GenerationOptions {
    pub(crate) storage: StorageKind,
    pub(crate) read: ReadOptions,
    pub(crate) spec: Option<ShardingSpec>,
    pub(crate) pointer: Option<String>,
    pub(crate) check_shards: bool,
    pub(crate) populate: bool,
    pub(crate) read_ahead_index: bool,
}
