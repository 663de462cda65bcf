//! The main use from end to end: build a store, look up keys, walk through it, replace the data while a reader is
//! active.
//!
//! ```text
//! cargo run --release --example quickstart
//! ```

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::value::RawValue;
use sharddb::{BulkLoader, Published, ShardDb, Snapshot};

const CITIES: &str = include_str!("geonames-cities.ndjson");
const MOGADISHU: u64 = 53_654;

fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::temp_dir().join(format!("sharddb-quickstart-{}", std::process::id()));
    let result = run(&store);
    std::fs::remove_dir_all(&store)?;
    result
}

fn run(store: &Path) -> Result<(), Box<dyn Error>> {
    // Build: pairs in any order. The loader sorts, writes, syncs and publishes a generation.
    let published = build(store, |city| city.to_string())?;
    println!(
        "built {} with {} keys in {} bytes",
        published.generation, published.content.keys, published.content.file_bytes
    );

    // Open: the files are mapped, and nothing is copied.
    // SAFETY: only this program knows the store, and it does not edit published files.
    #[expect(unsafe_code, reason = "mapping is the caller's promise to leave the files alone")]
    let db = unsafe { ShardDb::open_mapped(store)? };

    // Look up.
    let snapshot = db.snapshot();
    let city = snapshot.get(MOGADISHU)?.ok_or("the key is not there")?;
    println!("key {MOGADISHU} is {}", String::from_utf8_lossy(&city));
    println!("key 1 is there: {}", snapshot.contains(1)?);

    // Walk through all pairs, in storage order.
    let mut population = 0;
    for entry in snapshot.iter() {
        population += population_of(&entry?.value()?)?;
    }
    println!("{population} people live in {} cities", snapshot.key_count().unwrap_or(0));

    // Replace the data while a thread reads: it sees the old or the new data, never a mixture, and never waits.
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| read_until(&db, &stop));
        let published = build(store, |city| city.to_uppercase());
        let followed = published.map_err(|error| error.to_string()).and_then(|published| {
            let generation = db.refresh().map_err(|error| error.to_string())?;
            Ok((published.generation, generation))
        });
        stop.store(true, Ordering::Relaxed);
        let (published, followed) = followed?;
        println!("published {published} and followed it: {}", followed == Some(published));
        let reads = reader.join().map_err(|_| "the reader panicked")??;
        println!("meanwhile another thread made {reads} lookups");
        Ok::<_, Box<dyn Error>>(())
    })?;
    println!("now key {MOGADISHU} begins with {}", beginning(&db.snapshot())?);
    println!("the old snapshot still begins with {}", beginning(&snapshot)?);
    Ok(())
}

/// Loads every city; `edit` makes its value.
fn build(store: &Path, edit: impl Fn(&str) -> String) -> Result<Published, Box<dyn Error>> {
    #[derive(serde::Deserialize)]
    struct Line<'a> {
        key: u64,
        #[serde(borrow)]
        value: &'a RawValue,
    }
    let mut loader = BulkLoader::create(store)?;
    for line in CITIES.lines() {
        let line: Line<'_> = serde_json::from_str(line)?;
        loader.insert(line.key, edit(line.value.get()).as_bytes())?;
    }
    Ok(loader.finish()?)
}

fn population_of(city: &[u8]) -> Result<u64, Box<dyn Error>> {
    let city: serde_json::Value = serde_json::from_slice(city)?;
    Ok(city["population"].as_u64().unwrap_or(0))
}

fn beginning(snapshot: &Snapshot) -> Result<String, Box<dyn Error>> {
    let value = snapshot.get(MOGADISHU)?.ok_or("the key is not there")?;
    Ok(String::from_utf8_lossy(&value).chars().take(19).collect())
}

fn read_until(db: &ShardDb, stop: &AtomicBool) -> Result<u64, String> {
    let mut reader = db.reader();
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        reader.get(MOGADISHU).map_err(|error| error.to_string())?.ok_or("the key vanished")?;
        reads += 1;
    }
    Ok(reads)
}
