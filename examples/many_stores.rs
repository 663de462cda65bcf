//! Many small stores in one process: opened, looked up, refreshed, watched by one thread, within the limits of descriptors and maps.
//!
//! ```sh
//! cargo run --release --example many_stores -- 500
//! ```

use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

use sharddb::read::WatchOptions;
use sharddb::{BuildOptions, OpenOptions, ShardDb};

fn main() -> Result<(), Box<dyn Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(500), |count| count.parse())?;
    let root = std::env::temp_dir().join(format!("sharddb-many-{}", std::process::id()));
    for store in 0..count {
        let mut loader = BuildOptions::new().durable(false).memory(16 << 20).create(root.join(store.to_string()))?;
        loader.extend((0..100u64).map(|key| (key, (store * 1000 + key).to_le_bytes())))?;
        loader.finish()?;
    }

    let start = Instant::now();
    let options = OpenOptions::new();
    let open = |store: u64| options.open(root.join(store.to_string()));
    let databases = (0..count).map(open).collect::<Result<Vec<ShardDb>, _>>()?;
    println!("opened {count} stores in {:?}", start.elapsed());

    let start = Instant::now();
    for (store, db) in (0..).zip(&databases) {
        let value = db.get(42)?.ok_or("no key 42")?;
        assert_eq!(*value, (store * 1000 + 42u64).to_le_bytes());
    }
    println!("looked up a key in each in {:?}", start.elapsed());

    let start = Instant::now();
    for db in &databases {
        assert_eq!(db.refresh()?, None);
    }
    println!("refreshed all in {:?}", start.elapsed());

    // one thread follows all of them
    let watch = WatchOptions::new().interval(Duration::from_millis(100)).start(databases.iter().cloned())?;
    let mut loader = BuildOptions::new().durable(false).memory(16 << 20).create(root.join("0"))?;
    loader.insert(42, b"new")?;
    loader.finish()?;
    if let Some(db) = databases.first() {
        while db.stats().swaps == 0 {
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(db.get(42)?.ok_or("no key 42")?, b"new");
    }
    drop(watch);
    std::fs::remove_dir_all(&root)?;
    Ok(())
}
