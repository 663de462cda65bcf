//! The shard to which the keys of a file belong, which may be another one than the file's name says.

use crate::format::hash::HashFunction;
use crate::format::minishard_index::IndexView;
use crate::format::spec::ShardingSpec;
use crate::ids::ShardNumber;
use crate::read::shard::Shard;

/// The shard to which all keys of a file hash.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owner {
    /// The shard of the first key.
    shard: Option<ShardNumber>,
    is_mixed: bool,
    keys: u64,
    minishards: u64,
}

impl Owner {
    /// Number of keys that a murmur hash leads to one shard only if they belong to it. Damage moves each key elsewhere.
    const ENOUGH_KEYS: u64 = 8;

    /// Number of minishards that agree only if their keys belong to the shard. With the identity hash, one changed bit
    /// may move all keys of a minishard, because ids are stored as differences.
    const ENOUGH_MINISHARDS: u64 = 2;

    /// Returns the shard to which all keys of a file hash; `None` if they hash to several, or a key cannot be read.
    pub(super) fn of_file(file: &Shard) -> Option<ShardNumber> {
        let mut owner = Owner::default();
        for key in file.keys() {
            owner.add_key(file.reader().spec.route(key.ok()?).shard);
        }
        owner.shard()
    }

    /// Adds the keys of a minishard.
    pub(super) fn add(&mut self, spec: &ShardingSpec, index: IndexView<'_>) {
        self.minishards += u64::from(index.len() > 0);
        index.rows().for_each(|row| self.add_key(spec.route(row.id).shard));
    }

    fn add_key(&mut self, shard: ShardNumber) {
        self.is_mixed |= *self.shard.get_or_insert(shard) != shard;
        self.keys += 1;
    }

    /// Returns the shard to which all keys hash; `None` if they hash to several, or there are none.
    pub(super) fn shard(&self) -> Option<ShardNumber> {
        self.shard.filter(|_| !self.is_mixed)
    }

    /// Returns whether enough keys agree to rule out one damaged place as the reason.
    pub(super) fn is_certain(&self, hash: HashFunction) -> bool {
        match hash {
            HashFunction::Identity => self.minishards >= Owner::ENOUGH_MINISHARDS,
            HashFunction::MurmurHash3X86_128 => self.keys >= Owner::ENOUGH_KEYS,
        }
    }
}
