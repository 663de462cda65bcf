//! Lookups and iteration in an object store take bounded memory, whatever the minishard indexes decode to and servers state.
//!
//! The allocator counts memory: the peak of this thread, on which all of it is allocated.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../../../tests/common/peak.rs"]
mod peak;

use std::io::Write;
use std::ops::Range;
use std::task::Poll;

use peak::{PeakAlloc, peak_of};
use sharddb::spec::{Encoding, HashFunction};
use sharddb::{ErrorKind, ShardingSpec};
use sharddb_remote::{Body, Failure, Operation, RemoteOptions, RemoteReader, Request, Response, Wanted};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const MIB: usize = 1 << 20;

/// One shard with the keys from 0 on: key `k` is in the minishard `k % minishards`. All values are empty.
struct OneShard {
    shard: Vec<u8>,
    spec: ShardingSpec,
    /// The most bytes of requests that were to be performed at a time.
    most_in_flight: u64,
}

impl OneShard {
    /// Each index is by the format's text: arrays of differences of keys and of offsets, and the sizes.
    fn new(minishard_bits: u8, rows: u64, index: Encoding) -> OneShard {
        let spec = ShardingSpec::new(HashFunction::Identity, 0, minishard_bits, 0).unwrap();
        let minishards = 1 << minishard_bits;
        let (mut entries, mut indexes) = (Vec::new(), Vec::new());
        for minishard in 0..minishards {
            let start = indexes.len() as u64;
            let keys = (0..rows).map(|row| if row == 0 { minishard } else { minishards });
            let raw: Vec<u8> = keys.chain((0..2 * rows).map(|_| 0)).flat_map(u64::to_le_bytes).collect();
            match index {
                Encoding::Gzip => {
                    let mut member = flate2::write::GzEncoder::new(&mut indexes, flate2::Compression::fast());
                    member.write_all(&raw).unwrap();
                    member.finish().unwrap();
                }
                _ => indexes.extend(raw),
            }
            entries.extend([start, indexes.len() as u64].into_iter().flat_map(u64::to_le_bytes));
        }
        let shard = [entries, indexes].concat();
        OneShard { shard, spec: spec.with_minishard_index_encoding(index), most_in_flight: 0 }
    }

    fn open(&mut self) -> RemoteReader {
        self.run(RemoteOptions::new().spec(self.spec).cache_bytes(0).open())
    }

    fn perform(&self, request: &Request) -> Result<Response, Failure> {
        let (Wanted::Bytes(Range { start, end }), "0.shard") = (&request.wanted, &*request.object) else {
            return Err(Failure::NotFound);
        };
        let offset = |at: u64| usize::try_from(at).unwrap().min(self.shard.len());
        let bytes = self.shard.get(offset(*start)..offset(*end)).unwrap();
        Ok(Response::new(Body::new(bytes.to_vec()), None, Some(self.shard.len() as u64)))
    }

    fn run<T>(&mut self, mut operation: Operation<'_, T>) -> T {
        loop {
            if let Poll::Ready(result) = operation.poll() {
                return result.unwrap();
            }
            let requests: Vec<_> = std::iter::from_fn(|| operation.next_request()).collect();
            assert!(!requests.is_empty(), "the operation waits for nothing");
            let lens = requests.iter().map(|(_, request)| match &request.wanted {
                Wanted::Bytes(range) => range.end - range.start,
                _ => 0,
            });
            self.most_in_flight = self.most_in_flight.max(lens.sum());
            for (id, request) in requests {
                let answer = self.perform(&request);
                operation.answer(id, answer);
            }
        }
    }
}

/// 256 keys are looked up together. Here they are in 64 minishards, whose indexes have 46 MB.
#[test]
fn a_range_has_at_most_32_mib_of_requests_in_flight() {
    let mut store = OneShard::new(6, 30_000, Encoding::Raw);
    let mut range = store.open().snapshot().range(..);
    let pairs = store.run(range.next_batch()).unwrap();
    assert!(pairs.iter().map(|(key, _)| *key).eq(0..256));
    assert!((20 << 20..=33 << 20).contains(&store.most_in_flight), "{} bytes", store.most_in_flight);
}

/// 16 indexes of some 150 KB each, which take 20 MB each in memory.
#[test]
fn indexes_that_decode_to_many_times_their_length_are_decoded_in_bounded_memory() {
    const ROWS: u64 = 500_000;
    let mut store = OneShard::new(4, ROWS, Encoding::Gzip);
    assert!(store.shard.len() < 3 * MIB, "{}", store.shard.len());
    let reader = store.open();
    let keys: Vec<u64> = (0..16).map(|minishard| minishard + 16 * 1000).collect();
    let (values, peak) = peak_of(|| store.run(reader.get_many(&keys)));
    assert!(values.into_iter().all(|value| value.unwrap().unwrap().is_empty()));
    assert!(peak < 200 * MIB, "get_many: {peak} bytes");

    let mut scan = reader.snapshot().scan();
    let (pairs, peak) = peak_of(|| store.run(scan.next_batch()).unwrap());
    assert!(pairs.iter().map(|(key, _)| *key).eq((0..65_536).map(|row| 16 * row)));
    assert!(peak < 200 * MIB, "scan: {peak} bytes");

    let mut all = reader.snapshot().keys();
    let (count, peak) = peak_of(|| {
        let mut count = 0;
        while let Some(keys) = store.run(all.next_batch()) {
            count += keys.len() as u64;
        }
        count
    });
    assert_eq!(count, 16 * ROWS);
    assert!(peak < 200 * MIB, "keys: {peak} bytes");
}

/// Besides its values and the requests in flight.
#[test]
fn a_batch_of_a_million_keys_takes_150_bytes_per_key() {
    const KEYS: u64 = 1 << 20;
    let mut store = OneShard::new(10, KEYS >> 10, Encoding::Raw);
    let reader = store.open();
    let keys: Vec<u64> = (0..KEYS).collect();
    let (values, peak) = peak_of(|| store.run(reader.get_many(&keys)));
    assert!(values.into_iter().all(|value| value.unwrap().unwrap().is_empty()));
    assert!(peak < keys.len() * 150 + 32 * MIB, "{peak} bytes");
}

/// 46 MB of indexes, each of which is read once; the cache keeps 64 MiB.
#[test]
fn callers_at_the_same_time_share_what_they_read() {
    let mut store = OneShard::new(6, 30_000, Encoding::Raw);
    let reader = store.run(RemoteOptions::new().spec(store.spec).open());
    let keys: Vec<u64> = (0..64).collect();
    let ((), peak) = peak_of(|| {
        let mut callers: Vec<_> = (0..64).map(|_| reader.get_many(&keys)).collect();
        while !callers.is_empty() {
            callers.retain_mut(|caller| match caller.poll() {
                Poll::Ready(values) => {
                    assert!(values.unwrap().into_iter().all(|value| value.unwrap().unwrap().is_empty()));
                    false
                }
                Poll::Pending => true,
            });
            for caller in &mut callers {
                let requests: Vec<_> = std::iter::from_fn(|| caller.next_request()).collect();
                assert!(!requests.is_empty(), "it waits for nothing");
                for (id, request) in requests {
                    let answer = id.shared(|| store.perform(&request));
                    caller.answer(id, answer);
                }
            }
        }
    });
    assert!(peak < (64 + 48) * MIB, "{peak} bytes");
    let read = reader.stats().bytes;
    assert!(read <= store.shard.len() as u64 + (1 << 20), "{read} bytes of {}", store.shard.len());
}

/// Indexes of 200 MiB, objects of 2^60 bytes, and a few bytes of them.
#[test]
fn what_a_server_states_takes_no_memory() {
    const LEN: u64 = (200 << 20) / 24 * 24;
    let mut store = OneShard::new(6, 1, Encoding::Raw);
    let entries = (0..64_u64).flat_map(|minishard| [minishard * 24, minishard * 24 + LEN]);
    let entries: Vec<u8> = entries.flat_map(u64::to_le_bytes).collect();
    store.shard[..entries.len()].copy_from_slice(&entries);
    let reader = store.open();
    let keys: Vec<u64> = (0..64).collect();
    for stated in [None, Some(1 << 60)] {
        let mut longest = 0;
        let (values, peak) = peak_of(|| {
            let mut operation = reader.get_many(&keys);
            loop {
                if let Poll::Ready(values) = operation.poll() {
                    return values.unwrap();
                }
                let (id, request) = operation.next_request().expect("it waits for nothing");
                if let Wanted::Bytes(range) = &request.wanted {
                    longest = longest.max(range.end - range.start);
                }
                let answer = store.perform(&request).map(|short| Response::new(short.body, None, stated));
                operation.answer(id, answer);
            }
        });
        assert!(longest >= LEN, "{longest} bytes");
        assert!(
            values.iter().all(|value| value.as_ref().is_err_and(|error| error.kind() == ErrorKind::Io)),
            "{values:?}"
        );
        assert!(peak < MIB, "{peak} bytes");
    }
}
