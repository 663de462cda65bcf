//! `stats`: the requests of a database, and how its keys and bytes are distributed.

use serde_json::{Value, json};

use super::info::store;
use crate::app::App;
use crate::database::{Database, Source};
use crate::problem::Result;

pub(super) fn json(app: &App, database: &Database) -> Result<Value> {
    let mut stats = database.counters.json();
    let distribution = match &database.source {
        Source::Sharded(_) => database.pinned()?.survey()?.json(),
        Source::Container(_) => {
            let none = json!({"edges": [], "counts": []});
            json!({"minishard_fill": none, "value_size": none, "sampled": false, "damaged": false})
        }
    };
    let current = store(database)?.map(|store| store.current()).transpose()?.flatten();
    if let (Value::Object(stats), Value::Object(distribution)) = (&mut stats, distribution) {
        stats.extend(distribution);
        stats.insert("lost_log_lines".to_string(), json!(app.log.lost()));
        stats.insert("current".to_string(), json!(current.map(|id| id.to_string())));
    }
    Ok(stats)
}
