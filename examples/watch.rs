//! A server that follows its store: each new generation is validated and read before it is served, and the age of the
//! data is known.
//!
//! ```sh
//! cargo run --release --example watch -- STORE
//! ```

use std::error::Error;
use std::thread;
use std::time::Duration;

use sharddb::read::WatchOptions;
use sharddb::{BuildOptions, ShardDb, Snapshot};

const KEYS: u64 = 100_000;

fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::args().nth(1).map_or_else(|| std::env::temp_dir().join("sharddb-watch"), Into::into);
    let publish = |generation: u64| {
        let mut loader = BuildOptions::new().create(&store)?;
        loader.extend((0..KEYS).map(|key| (key, format!("{generation}: {key}"))))?;
        loader.finish()
    };
    publish(1)?;
    let db = ShardDb::open(&store)?;
    let watch = WatchOptions::new()
        .interval(Duration::from_millis(100))
        .before_swap(validate)
        .after_swap(|old, new| println!("{:?} replaces {:?}", new.generation(), old.generation()))
        .start([db.clone()])?;

    let requests = thread::spawn({
        let db = db.clone();
        move || -> sharddb::Result<usize> {
            let mut answers = 0;
            while db.stats().swaps < 2 {
                answers += usize::from(db.get(42)?.is_some());
            }
            Ok(answers)
        }
    });
    for generation in [2, 3] {
        publish(generation)?;
        while db.stats().swaps + 1 < generation {
            thread::sleep(Duration::from_millis(10));
        }
    }
    println!("{} answers meanwhile", requests.join().map_err(|_| "a request panicked")??);

    let stats = db.stats();
    println!("generation {:?}, {:?} old; last error: {:?}", stats.generation, stats.age, stats.last_error);
    drop(watch); // ends the thread
    Ok(())
}

/// Whatever the program knows of its data. An error keeps the old generation; the reads warm the new one.
fn validate(new: &Snapshot) -> Result<(), Box<dyn Error + Send + Sync>> {
    if new.key_count() != Some(KEYS) {
        return Err(format!("expected {KEYS} keys, found {:?}", new.key_count()).into());
    }
    for entry in new {
        entry?.value()?;
    }
    Ok(())
}
