//! The keys of a shard that are where their hash does not lead. If one cause explains most of them, it is one finding.

use crate::error::Error;
use crate::format::hash::HashFunction;
use crate::format::spec::ShardingSpec;
use crate::ids::{Location, MinishardNumber, ShardNumber};
use crate::verify::finding::FindingKind;

/// From this number of misplaced keys on, one finding about the specification replaces those about the keys.
const MANY: u64 = 8;

/// From this number of keys on, one finding about the file's name replaces those about the keys.
const SEVERAL: u64 = 2;

/// Number of keys that are kept: as many findings as a report keeps.
const KEPT: usize = 10_000;

/// The misplaced keys of one shard.
#[derive(Default)]
pub(super) struct Misplaced {
    /// The first ones, with the minishard that they are in.
    pub(super) first: Vec<(MinishardNumber, u64)>,
    pub(super) count: u64,
    target: Target,
    /// The first minishards whose keys all hash to another one of the shard.
    pub(super) wrong_slots: Vec<WrongSlot>,
    pub(super) wrong_slot_count: u64,
    /// The number of keys in those minishards.
    wrong_slot_keys: u64,
}

/// A minishard whose keys all hash to another one of the shard.
pub(super) struct WrongSlot {
    pub(super) here: MinishardNumber,
    pub(super) other: MinishardNumber,
    pub(super) first_id: u64,
    pub(super) keys: u64,
}

/// The shard to which all misplaced keys hash.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Target {
    #[default]
    Unknown,
    One(ShardNumber),
    Several,
}

impl Misplaced {
    /// Adds a key of minishard `here` that hashes to shard `target`.
    pub(super) fn add(&mut self, here: MinishardNumber, id: u64, target: ShardNumber) {
        self.count += 1;
        if self.first.len() < KEPT {
            self.first.push((here, id));
        }
        self.target = match self.target {
            Target::Unknown => Target::One(target),
            Target::One(shard) if shard == target => self.target,
            _ => Target::Several,
        };
    }

    /// Adds a minishard whose keys, of which there are some, all hash to minishard `other` of the shard.
    pub(super) fn add_wrong_slot(&mut self, here: MinishardNumber, other: MinishardNumber, first_id: u64, keys: u64) {
        self.wrong_slot_count += 1;
        self.wrong_slot_keys += keys;
        if self.wrong_slots.len() < KEPT {
            self.wrong_slots.push(WrongSlot { here, other, first_id, keys });
        }
    }

    /// Adds those of the next minishards.
    pub(super) fn append(&mut self, next: Misplaced) {
        self.first.extend(next.first.into_iter().take(KEPT - self.first.len()));
        self.wrong_slots.extend(next.wrong_slots.into_iter().take(KEPT - self.wrong_slots.len()));
        self.count += next.count;
        self.wrong_slot_count += next.wrong_slot_count;
        self.wrong_slot_keys += next.wrong_slot_keys;
        self.target = match (self.target, next.target) {
            (Target::Unknown, target) | (target, Target::Unknown) => target,
            (target, other) if target == other => target,
            _ => Target::Several,
        };
    }

    /// Returns the finding that explains the misplaced keys of a shard with `keys` keys, if there is one.
    pub(super) fn cause(&self, spec: &ShardingSpec, shard: ShardNumber, keys: u64) -> Option<(FindingKind, Error)> {
        let count = self.count + self.wrong_slot_keys;
        if let Target::One(target) = self.target
            && target != shard
            && self.count == keys
            && keys >= SEVERAL
        {
            let (expected, found) = (spec.shard_file_name(shard), spec.shard_file_name(target));
            let message = format!(
                "expected keys of {expected}, found that all {keys} keys belong to {found}: the file has the name of \
                 another shard"
            );
            return Some((FindingKind::MisplacedShard, Error::corrupt(message)));
        }
        if count < MANY {
            return None;
        }
        let other = match spec.hash_function() {
            HashFunction::Identity => HashFunction::MurmurHash3X86_128,
            HashFunction::MurmurHash3X86_128 => HashFunction::Identity,
        };
        let with_other = ShardingSpec::new(other, spec.preshift_bits(), spec.minishard_bits(), spec.shard_bits()).ok();
        let guess = match with_other.is_some_and(|spec| self.all_match(&spec, shard)) {
            true => format!("they match the hash \"{}\"", other.as_str()),
            // minishards in wrong slots have another cause
            false if self.count <= keys / 2 => return None,
            false => "`info` may state another specification than the one that the shard was written with".to_string(),
        };
        let message = format!(
            "expected keys whose hash leads to their minishard, found {count} of {keys} elsewhere, which lookups do not \
             find: {guess}"
        );
        Some((FindingKind::WrongSpecification, Error::corrupt(message)))
    }

    /// Returns whether the kept keys are where another specification expects them.
    fn all_match(&self, spec: &ShardingSpec, shard: ShardNumber) -> bool {
        let slots = self.wrong_slots.iter().map(|slot| (slot.here, slot.first_id));
        let mut keys = self.first.iter().copied().chain(slots);
        keys.all(|(minishard, id)| spec.route(id) == Location { shard, minishard })
    }
}
