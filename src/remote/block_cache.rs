//! A cache of blocks with a budget in bytes, and one load at a time of each block.
//!
//! A caller claims a block and gets it, the duty to load it, or the load of another caller to wait for. A leader that is
//! dropped hands over to a waiter, and so does the first one that fails. The error of the second goes to all waiters, so
//! that a server that is down costs each of them two requests at most.
//!
//! A caller ends its own loads before it waits for others, so that no two callers wait for each other. This requires that
//! each caller is polled until it ends its loads, or is dropped: the cache has no timer.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::error::Error;

/// Bytes of memory that an entry takes besides its block.
const ENTRY_BYTES: u64 = 256;

/// The cache. A clone shares it.
pub(crate) struct BlockCache<K, V>(Arc<Shared<K, V>>);

struct Shared<K, V> {
    budget: u64,
    state: Mutex<State<K, V>>,
}

struct State<K, V> {
    entries: HashMap<K, Entry<V>>,
    /// The keys of `entries` by their last use, oldest first.
    by_use: BTreeMap<u64, K>,
    uses: u64,
    bytes: u64,
    loads: HashMap<K, Arc<Flight<V>>>,
}

struct Entry<V> {
    block: V,
    bytes: u64,
    last_use: u64,
}

/// The answer to a claim.
pub(crate) enum Claim<K: Eq + Hash + Copy, V: Clone> {
    /// The block is in the cache.
    Ready(V),
    /// The caller has to load the block.
    Lead(Lead<K, V>),
    /// Another caller loads it.
    Wait(Wait<V>),
}

/// The duty to load a block. Dropping it hands over to a waiter.
pub(crate) struct Lead<K: Eq + Hash + Copy, V: Clone> {
    cache: BlockCache<K, V>,
    key: K,
    flight: Arc<Flight<V>>,
}

/// The load of another caller.
pub(crate) struct Wait<V>(Arc<Flight<V>>);

/// How the load of another caller ended.
pub(crate) enum Waited<V> {
    Done(V),
    Failed(Error),
    /// Claim again, with this attempt.
    Again(Attempt),
}

/// Whether a leader of the block failed before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Attempt {
    #[default]
    First,
    Second,
}

/// One load of a block: who waits for it, and how it ended.
struct Flight<V> {
    attempt: Attempt,
    state: Mutex<FlightState<V>>,
}

struct FlightState<V> {
    outcome: Option<Outcome<V>>,
    waiters: Vec<Waker>,
}

enum Outcome<V> {
    Done(V),
    Failed(Error),
    Again(Attempt),
}

impl<K, V> Clone for BlockCache<K, V> {
    fn clone(&self) -> Self {
        BlockCache(self.0.clone())
    }
}

impl<K: Eq + Hash + Copy, V: Clone> BlockCache<K, V> {
    pub(crate) fn new(budget: u64) -> BlockCache<K, V> {
        let state =
            State { entries: HashMap::new(), by_use: BTreeMap::new(), uses: 0, bytes: 0, loads: HashMap::new() };
        BlockCache(Arc::new(Shared { budget, state: Mutex::new(state) }))
    }

    /// Returns a block that is in the cache.
    pub(crate) fn get(&self, key: K) -> Option<V> {
        self.state().get(key)
    }

    /// Returns the block, the duty to load it, or the load of another caller.
    pub(crate) fn claim(&self, key: K, attempt: Attempt) -> Claim<K, V> {
        let mut state = self.state();
        if let Some(block) = state.get(key) {
            return Claim::Ready(block);
        }
        if let Some(flight) = state.loads.get(&key) {
            return Claim::Wait(Wait(flight.clone()));
        }
        let flight =
            Arc::new(Flight { attempt, state: Mutex::new(FlightState { outcome: None, waiters: Vec::new() }) });
        state.loads.insert(key, flight.clone());
        Claim::Lead(Lead { cache: self.clone(), key, flight })
    }

    /// Removes a block that was found to be damaged.
    pub(crate) fn remove(&self, key: K) {
        self.state().remove(key);
    }

    /// Returns the bytes that the blocks in the cache take.
    pub(crate) fn bytes(&self) -> u64 {
        self.state().bytes
    }

    fn state(&self) -> MutexGuard<'_, State<K, V>> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Copy, V: Clone> State<K, V> {
    fn get(&mut self, key: K) -> Option<V> {
        let entry = self.entries.get_mut(&key)?;
        self.by_use.remove(&entry.last_use);
        self.uses += 1;
        entry.last_use = self.uses;
        self.by_use.insert(self.uses, key);
        Some(entry.block.clone())
    }

    /// Inserts a block, and evicts those whose last use is longest ago. A block above the budget is not kept.
    fn insert(&mut self, key: K, block: V, bytes: u64, budget: u64) {
        let bytes = bytes.saturating_add(ENTRY_BYTES);
        if bytes > budget {
            return;
        }
        self.remove(key);
        while self.bytes > budget - bytes
            && let Some((_, oldest)) = self.by_use.first_key_value()
        {
            let oldest = *oldest;
            self.remove(oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key);
        self.entries.insert(key, Entry { block, bytes, last_use: self.uses });
        self.bytes += bytes;
    }

    fn remove(&mut self, key: K) {
        if let Some(entry) = self.entries.remove(&key) {
            self.by_use.remove(&entry.last_use);
            self.bytes -= entry.bytes;
        }
    }
}

impl<K: Eq + Hash + Copy, V: Clone> Lead<K, V> {
    /// Ends the load with a block of `bytes` bytes, which is kept.
    pub(crate) fn finish(self, block: V, bytes: u64) {
        let budget = self.cache.0.budget;
        self.cache.state().insert(self.key, block.clone(), bytes, budget);
        self.end(Outcome::Done(block));
    }

    /// Ends the load with a block that only the callers that wait for it get.
    pub(crate) fn finish_without_keeping(self, block: V) {
        self.end(Outcome::Done(block));
    }

    /// Ends the load with an error. Another caller tries once more.
    pub(crate) fn fail(self, error: &Error) {
        self.end(match self.flight.attempt {
            Attempt::First => Outcome::Again(Attempt::Second),
            Attempt::Second => Outcome::Failed(error.copy()),
        });
    }

    /// Ends the load; the drop that follows changes nothing.
    fn end(&self, outcome: Outcome<V>) {
        let mut state = self.cache.state();
        if state.loads.get(&self.key).is_some_and(|flight| Arc::ptr_eq(flight, &self.flight)) {
            state.loads.remove(&self.key);
        }
        drop(state);
        self.flight.end(outcome);
    }
}

impl<K: Eq + Hash + Copy, V: Clone> Drop for Lead<K, V> {
    fn drop(&mut self) {
        self.end(Outcome::Again(self.flight.attempt));
    }
}

impl<V> Flight<V> {
    /// The first outcome holds.
    fn end(&self, outcome: Outcome<V>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.outcome.is_none() {
            state.outcome = Some(outcome);
        }
        let waiters = std::mem::take(&mut state.waiters);
        drop(state); // a waker may poll at once
        waiters.into_iter().for_each(Waker::wake);
    }
}

impl<V: Clone> Wait<V> {
    /// Waits until the load ends.
    pub(crate) async fn end(self) -> Waited<V> {
        poll_fn(|context| {
            let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            match &state.outcome {
                Some(Outcome::Done(block)) => Poll::Ready(Waited::Done(block.clone())),
                Some(Outcome::Failed(error)) => Poll::Ready(Waited::Failed(error.copy())),
                Some(Outcome::Again(attempt)) => Poll::Ready(Waited::Again(*attempt)),
                None => {
                    if !state.waiters.iter().any(|waiter| waiter.will_wake(context.waker())) {
                        state.waiters.push(context.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1000;

    fn cache(blocks: u64) -> BlockCache<u32, &'static str> {
        BlockCache::new(blocks * (BLOCK + ENTRY_BYTES))
    }

    fn load(cache: &BlockCache<u32, &'static str>, key: u32, block: &'static str) {
        match cache.claim(key, Attempt::First) {
            Claim::Lead(lead) => lead.finish(block, BLOCK),
            Claim::Ready(_) | Claim::Wait(_) => panic!("{key} is there"),
        }
    }

    #[test]
    fn evicts_the_block_whose_last_use_is_longest_ago() {
        let cache = cache(2);
        load(&cache, 1, "one");
        load(&cache, 2, "two");
        assert_eq!(cache.get(1), Some("one"));
        load(&cache, 3, "three");
        assert_eq!([cache.get(1), cache.get(2), cache.get(3)], [Some("one"), None, Some("three")]);
        assert_eq!(cache.bytes(), 2 * (BLOCK + ENTRY_BYTES));
        cache.remove(1);
        assert_eq!((cache.get(1), cache.bytes()), (None, BLOCK + ENTRY_BYTES));
    }

    #[test]
    fn a_block_above_the_budget_is_not_kept_and_evicts_nothing() {
        let cache = cache(2);
        load(&cache, 1, "one");
        let Claim::Lead(lead) = cache.claim(2, Attempt::First) else { panic!("it is there") };
        lead.finish("large", 3 * BLOCK);
        assert_eq!([cache.get(1), cache.get(2)], [Some("one"), None]);
        load(&cache, 2, "two");
        assert_eq!(cache.get(2), Some("two"));
    }

    #[test]
    fn a_second_claim_waits_until_the_first_one_ends() {
        let cache = cache(1);
        let Claim::Lead(lead) = cache.claim(1, Attempt::First) else { panic!("it is there") };
        assert!(matches!(cache.claim(1, Attempt::First), Claim::Wait(_)));
        lead.finish_without_keeping("one");
        assert!(matches!(cache.claim(1, Attempt::First), Claim::Lead(_)), "and the dropped lead ends, too");
        assert!(matches!(cache.claim(1, Attempt::First), Claim::Lead(_)));
        assert_eq!(cache.bytes(), 0);
    }
}
