//! The options for opening a database. The opening itself is in `database`.

use crate::bytes::{Access, StorageKind};
use crate::format::spec::ShardingSpec;
use crate::read::shard::{ReadOptions, VerifyReads};

/// Linux allows 65,530 maps per process by default. The rest is left to the application.
pub const DEFAULT_MAX_MAPS: usize = 60_000;

/// Options for opening a database with [`open_mapped`](OpenOptions::open_mapped), [`open`](OpenOptions::open) or
/// [`load`](OpenOptions::load).
///
/// ```no_run
/// # fn main() -> sharddb::Result<()> {
/// let db = sharddb::OpenOptions::new().sharding_at("/scales/0").cache_bytes(256 << 20).open("volume")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// How the files are read: not an option, but what `open`, `open_mapped` or `load` stands for.
    pub(crate) storage: StorageKind,
    pub(super) spec: Option<ShardingSpec>,
    pub(super) pointer: Option<String>,
    pub(super) cache_bytes: u64,
    pub(crate) read: ReadOptions,
    pub(crate) access: Access,
    pub(super) check_shards: bool,
    pub(super) verify_files: bool,
    pub(super) populate: bool,
    pub(super) read_ahead_index: bool,
    pub(super) max_maps: usize,
    pub(crate) io_depth: usize,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions {
            storage: StorageKind::Positioned,
            spec: None,
            pointer: None,
            cache_bytes: 64 << 20,
            read: ReadOptions::default(),
            access: Access::default(),
            check_shards: true,
            verify_files: false,
            populate: false,
            read_ahead_index: false,
            max_maps: DEFAULT_MAX_MAPS,
            io_depth: 32,
        }
    }
}

impl OpenOptions {
    /// Creates the default options.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Sets the sharding specification, for a directory of shards without an `info`, or to override it.
    /// Default: that of `info`.
    pub fn spec(&mut self, spec: ShardingSpec) -> &mut OpenOptions {
        self.spec = Some(spec);
        self
    }

    /// Sets the JSON pointer (RFC 6901) to the object in `info` that has the member "sharding", such as `/scales/0`.
    /// Default: the one that the manifest of the generation states; without a manifest, the top-level object, or else the
    /// only nested object with that member. Opening fails with `InvalidInput` if the manifest states another nested one.
    pub fn sharding_at(&mut self, pointer: &str) -> &mut OpenOptions {
        self.pointer = Some(pointer.to_string());
        self
    }

    /// Sets the capacity in bytes of the cache of decoded minishard indexes, which all open generations share.
    /// Default: 64 MiB.
    pub fn cache_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.cache_bytes = bytes;
        self
    }

    /// Sets the cap in bytes on a decoded gzip value, and on a value or preamble that is not mapped or loaded. A larger
    /// one is an error of kind `TooLarge`. Default: 1 GiB.
    pub fn max_value_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.read.max_value_bytes = bytes;
        self
    }

    /// Sets the cap in bytes on a minishard index that has to be read or decoded. A larger one is an error of kind
    /// `TooLarge`. Default: 256 MiB.
    pub fn max_index_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.read.max_index_bytes = bytes;
        self
    }

    /// Sets when reads verify checksums. Default: [`VerifyReads::Once`], at the first use of most bytes.
    pub fn verify_reads(&mut self, verify: VerifyReads) -> &mut OpenOptions {
        self.read.verify_reads = verify;
        self
    }

    /// Sets the access advice for the shards that lookups map or read, except those that are loaded, and for a mapped
    /// minishard table. Iteration over mapped shards always uses `Sequential`. Default: `Random`.
    ///
    /// With `Random`, a page fault reads a single page, and a positioned read only the pages of its range, which is best for
    /// small values on a disk. For large values in mapped shards, prefetch with
    /// [`Snapshot::read_ahead`](crate::Snapshot::read_ahead), or use `Normal`.
    pub fn access(&mut self, access: Access) -> &mut OpenOptions {
        self.access = access;
        self
    }

    /// Sets whether opening and [`refresh`](crate::ShardDb::refresh) fail if a shard file of the manifest is missing or
    /// has the wrong length. Default: true.
    ///
    /// If false, a generation opens if `info` and the manifest are intact, and lookups in such a shard return the
    /// error. Cost: one system call per shard; a refresh opens the shards. Has no effect on data sets without a
    /// manifest, which consist of the shards that have a file. To find damage inside a file, use
    /// [`Snapshot::verify`](crate::Snapshot::verify).
    pub fn check_shards(&mut self, check: bool) -> &mut OpenOptions {
        self.check_shards = check;
        self
    }

    /// Sets whether each shard file is compared with the manifest, by CRC-32 and digest, before the first walk over it:
    /// by [`iter`](crate::Snapshot::iter), for example. Default: false.
    ///
    /// Checks find damage, but not an intact shard of another generation with the same length, which a mixed restore may
    /// leave. With this option a walk over such a shard is an error of kind `Corrupt`. Lookups do not compare. Has no
    /// effect on data sets without a manifest. Cost: reads each file once more.
    pub fn verify_files(&mut self, verify: bool) -> &mut OpenOptions {
        self.verify_files = verify;
        self
    }

    /// Sets whether all pages of a shard are read when the shard is opened. Opening waits for them, except for maps on
    /// other systems than Linux, whose pages are only prefetched. Default: false.
    ///
    /// For data that fits into memory: pages are read front to back when the shard is opened, and not one by one as
    /// lookups need them. Linux uses huge pages for maps if the file system supports them and the pages are not in memory
    /// yet. If a refresh opens the shards, it does so before the swap. [`Snapshot::warm`](crate::Snapshot::warm) reads the
    /// pages in the background.
    pub fn populate(&mut self, populate: bool) -> &mut OpenOptions {
        self.populate = populate;
        self
    }

    /// Sets whether all shards are opened with the generation, and the shard indexes of mapped shards prefetched.
    /// Default: false.
    ///
    /// For data that does not fit into memory and has no minishard table, such as foreign data sets. A shard index
    /// takes 16 bytes per minishard, which is 2 to 4 bytes per key with 4 to 8 keys per minishard. With the shard
    /// indexes in memory, a lookup finds its minishard without a disk read. Opening does not wait for them. With a
    /// minishard table, shards are opened but nothing is prefetched.
    pub fn read_ahead_index(&mut self, read_ahead: bool) -> &mut OpenOptions {
        self.read_ahead_index = read_ahead;
        self
    }

    /// Sets the upper bound on maps that this library creates in this process. Further shards use positioned reads.
    /// Default: 60,000.
    pub fn max_maps(&mut self, maps: usize) -> &mut OpenOptions {
        self.max_maps = maps;
        self
    }

    /// Sets how many positioned reads a batch ([`Snapshot::get_many`](crate::Snapshot::get_many) and its kin) keeps in
    /// flight where reads are slow. Default: 32.
    ///
    /// A disk or a network file system serves many reads in about the time of one. Each read in flight takes a thread, which
    /// the batch starts once two of its reads in a row took more than 40 microseconds, and which ends with the batch: reads
    /// from memory take a few. 1 starts none ever, and 0 is 1. Has an effect on databases that are opened by
    /// [`open`](OpenOptions::open); for mapped ones there is [`Snapshot::read_ahead`](crate::Snapshot::read_ahead).
    pub fn io_depth(&mut self, reads: usize) -> &mut OpenOptions {
        self.io_depth = reads;
        self
    }

    /// Returns these options for files that are read in this way.
    pub(crate) fn with_storage(&self, storage: StorageKind) -> OpenOptions {
        OpenOptions { storage, ..self.clone() }
    }
}
