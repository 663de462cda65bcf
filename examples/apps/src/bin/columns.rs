//! The values of many keys as an Arrow column, looked up by a pool of threads.
//!
//! ```sh
//! cargo run --release --bin columns -- STORE 1000000
//! ```
//!
//! Each task of the pool takes some thousand keys, so that their lookups overlap (`get_each`), and builds a piece of the
//! column; absent keys are nulls.

use std::error::Error;
use std::time::Instant;

use arrow::array::{Array, BinaryArray, BinaryBuilder};
use arrow::compute::concat;
use rayon::prelude::*;
use sharddb::{ShardDb, Snapshot};

/// Keys of one task.
const KEYS: usize = 4096;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(store), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("usage: columns STORE COUNT".into());
    };
    let snapshot = ShardDb::open(store)?.snapshot();
    let keys: Vec<u64> = snapshot.keys().take(count.parse()?).collect::<Result<_, _>>()?;

    let start = Instant::now();
    let pieces = keys.par_chunks(KEYS).map(|keys| column(&snapshot, keys)).collect::<Result<Vec<_>, _>>()?;
    let pieces: Vec<&dyn Array> = pieces.iter().map(|piece| piece as &dyn Array).collect();
    let column = if pieces.is_empty() { None } else { Some(concat(&pieces)?) };
    let rows = column.map_or(0, |column| column.len());
    println!("{rows} rows in {:?}", start.elapsed());
    Ok(())
}

/// The values of some keys, in their order.
fn column(snapshot: &Snapshot, keys: &[u64]) -> sharddb::Result<BinaryArray> {
    let mut builder = BinaryBuilder::new();
    for value in snapshot.get_many(keys) {
        builder.append_option(value?);
    }
    Ok(builder.finish())
}
