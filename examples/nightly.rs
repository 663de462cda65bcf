//! A nightly build: load, validate, publish; keep three generations; roll a bad one back.
//!
//! ```sh
//! cargo run --release --example nightly -- STORE
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sharddb::{BuildOptions, Progress, ShardDb, Store, VerifyLevel};

const KEYS: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("sharddb-nightly"), Into::into);
    let progress = Progress::new();
    let is_done = Arc::new(AtomicBool::new(false));
    let reporter = std::thread::spawn({
        let (progress, is_done) = (progress.clone(), is_done.clone());
        move || {
            while !is_done.load(Ordering::Relaxed) {
                eprintln!("{:?}: {} of {}", progress.phase(), progress.done(), progress.total());
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    });

    let mut loader = BuildOptions::new().progress(&progress).create(&store)?;
    loader.extend((0..KEYS).map(|key| (key, format!("value {key}"))))?;
    let candidate = loader.finish_unpublished()?;
    is_done.store(true, Ordering::Relaxed);
    reporter.join().map_err(|_| "the reporter panicked")?;

    // whatever the program knows of its data: here that nothing is damaged or missing, and one value
    let report = candidate.verify(VerifyLevel::Data)?;
    let sample = ShardDb::open(candidate.path())?.get(7)?;
    if !report.is_clean() || candidate.content().keys != KEYS || sample.is_none_or(|value| value != b"value 7") {
        return Err("the new generation is not what it should be; it is removed".into());
    }
    let published = candidate.publish()?;
    println!("published {} with {} keys", published.generation, published.content.keys);

    let writer = Store::open(&store)?.writer()?;
    let report = writer.gc(3)?;
    println!("removed {:?}", report.removed);

    // had it been bad: the one before becomes current, and the bad one is removed
    if let Ok(before) = writer.rollback(None) {
        println!("rolled back to {before}");
        writer.rollback(Some(published.generation))?;
    }
    println!("serving {:?}", ShardDb::open(&store)?.snapshot().generation());
    Ok(())
}
