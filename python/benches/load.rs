//! The Rust side of `load.py`: builds a store from arrays in memory, and prints the seconds of insertion and of the whole.
//!
//! usage: load STORE KEYS VALUE_BYTES

use std::error::Error;
use std::time::Instant;

/// The key of a number: SplitMix64, which `load.py` computes too.
fn key(number: u64) -> u64 {
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [store, keys, value_bytes] = arguments.as_slice() else {
        return Err("expected STORE KEYS VALUE_BYTES".into());
    };
    let (count, value_bytes): (u64, usize) = (keys.parse()?, value_bytes.parse()?);
    let keys: Vec<u64> = (0..count).map(key).collect();
    let data: Vec<u8> = keys.iter().flat_map(|key| key.to_le_bytes().into_iter().cycle().take(value_bytes)).collect();

    let begun = Instant::now();
    let mut loader = sharddb::BuildOptions::new().memory(1 << 30).durable(false).create(store)?;
    for (key, value) in keys.iter().zip(data.chunks_exact(value_bytes)) {
        loader.insert(*key, value)?;
    }
    let inserted = begun.elapsed();
    let published = loader.finish()?;
    println!("{} {} {}", inserted.as_secs_f64(), begun.elapsed().as_secs_f64(), published.content.keys);
    Ok(())
}
