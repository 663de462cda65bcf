//! A database in memory, of pairs at hand.

use crate::build::shard_writer::ShardWriter;
use crate::error::Result;
use crate::format::hash::HashFunction;
use crate::format::layout::Layout;
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::read::database::ShardDb;
use crate::read::generation::Generation;

/// Keys of a minishard on average, as in the profile `local`.
const KEYS: usize = 8;

impl ShardDb {
    /// A database in memory, for tests and small tables: no file is written.
    ///
    /// It has one shard and no generation; [`refresh`](ShardDb::refresh) finds nothing new. Cost: sorts the pairs; the
    /// values are in memory twice while it is made.
    ///
    /// # Errors
    ///
    /// `DuplicateKey`.
    ///
    /// ```
    /// let db = sharddb::ShardDb::from_pairs([(7, "seven"), (3, "three")])?;
    /// assert_eq!(db.get(7)?.unwrap(), b"seven");
    /// assert!(db.get(8)?.is_none());
    /// # Ok::<(), sharddb::Error>(())
    /// ```
    pub fn from_pairs<V: AsRef<[u8]>>(pairs: impl IntoIterator<Item = (u64, V)>) -> Result<ShardDb> {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        let minishard_bits = (pairs.len() / KEYS).checked_ilog2().unwrap_or(0).try_into().unwrap_or(u8::MAX);
        let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, 0)?;
        let layout = Layout { checks: true, ..Layout::default() };
        pairs.sort_unstable_by_key(|(key, _)| (spec.locate(*key).minishard, *key));
        let mut writer = ShardWriter::in_memory(spec, ShardNumber(0), layout)?;
        for (key, value) in pairs {
            writer.insert(key, value)?;
        }
        let (_, bytes) = writer.finish_in_memory()?;
        Ok(ShardDb::of_generation(Generation::of_shard(spec, layout, bytes)))
    }
}
