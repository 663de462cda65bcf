//! Tasks that share a database behind a trait object, with an implementation in memory for tests.
//!
//! ```sh
//! cargo run --bin tasks
//! ```

use std::error::Error;
use std::sync::Arc;

use sharddb::{BulkLoader, ShardDb, Snapshot};

/// What the tasks need: names by number.
trait Names: Send + Sync {
    fn name(&self, number: u64) -> sharddb::Result<Option<String>>;
}

impl Names for Snapshot {
    fn name(&self, number: u64) -> sharddb::Result<Option<String>> {
        Ok(self.get(number)?.map(|name| String::from_utf8_lossy(&name).into_owned()))
    }
}

/// Looks up the names of some numbers, each range in a task of its own.
async fn greet(names: Arc<dyn Names>) -> Result<Vec<String>, Box<dyn Error>> {
    let tasks = [0..3, 3..6].map(|range| {
        let names = Arc::clone(&names);
        // a lookup may wait for the disk
        tokio::task::spawn_blocking(move || range.map(|number| names.name(number)).collect::<sharddb::Result<Vec<_>>>())
    });
    let mut found = Vec::new();
    for task in tasks {
        found.extend(task.await??.into_iter().flatten());
    }
    Ok(found)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let pairs = [(1, "one"), (2, "two"), (4, "four")];

    // a test needs no files
    let in_memory = Arc::new(ShardDb::from_pairs(pairs)?.snapshot());
    assert_eq!(greet(in_memory).await?, ["one", "two", "four"]);

    let store = std::env::temp_dir().join(format!("sharddb-tasks-{}", std::process::id()));
    let mut loader = BulkLoader::create(&store)?;
    loader.extend(pairs)?;
    loader.finish()?;
    let on_disk = Arc::new(ShardDb::open(&store)?.snapshot());
    println!("{:?}", greet(on_disk).await?);
    std::fs::remove_dir_all(&store)?;
    Ok(())
}
