//! The Rust side of `keys.py`: collects all keys of a store, and prints their number, their sum and the median seconds.
//!
//! usage: keys STORE ROUNDS

use std::error::Error;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [store, rounds] = arguments.as_slice() else {
        return Err("expected STORE ROUNDS".into());
    };
    #[expect(unsafe_code, reason = "the store is a generation of a benchmark, which nobody changes")]
    // SAFETY: see above.
    let db = unsafe { sharddb::ShardDb::open_mapped(store) }?;
    let snapshot = db.snapshot();
    let (mut seconds, mut sums) = (Vec::new(), Vec::new());
    for _ in 0..=rounds.parse::<u64>()? {
        let begun = Instant::now();
        let keys = snapshot.keys().collect::<sharddb::Result<Vec<u64>>>()?;
        seconds.push(begun.elapsed().as_secs_f64());
        sums.push((keys.len(), keys.iter().fold(0u64, |sum, key| sum.wrapping_add(*key))));
    }
    let measured = seconds.get_mut(1..).unwrap_or_default(); // the first one warms
    measured.sort_by(f64::total_cmp);
    let (Some((count, sum)), Some(median)) = (sums.first(), measured.get(measured.len() / 2)) else {
        return Err("expected at least one round".into());
    };
    println!("{count} {sum} {median}");
    Ok(())
}
