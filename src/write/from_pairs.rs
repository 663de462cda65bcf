//! `ShardDb::from_pairs`: a database in memory.

use crate::error::Result;
use crate::format::hash::HashFunction;
use crate::format::layout::{Layout, ValueAlignment};
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::read::database::ShardDb;
use crate::read::generation::Generation;
use crate::write::shard_writer::ShardWriter;

/// Average number of keys per minishard, as in the profile `local`.
const KEYS: usize = 8;

impl ShardDb {
    /// Creates a database in memory, for tests and small tables. Writes no files.
    ///
    /// The database has one shard and no generation; [`refresh`](ShardDb::refresh) finds nothing new. Sorts the pairs
    /// in O(n log n). While the database is created, the values are in memory twice.
    ///
    /// # Errors
    ///
    /// `DuplicateKey` if two pairs have the same key.
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
        let layout = Layout::new(true, false, ValueAlignment::One);
        pairs.sort_unstable_by_key(|(key, _)| (spec.route(*key).minishard, *key));
        let mut writer = ShardWriter::in_memory(spec, ShardNumber(0), layout)?;
        for (key, value) in pairs {
            writer.insert(key, value)?;
        }
        let (_, bytes) = writer.finish_in_memory()?;
        Ok(ShardDb::of_generation(Generation::of_shard(spec, layout, bytes)))
    }
}
