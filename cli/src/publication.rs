//! What JSON says of a publication, in a store and at a URL.

use serde_json::{Value, json};
use sharddb::Content;

/// The members about a generation that was published.
pub(crate) fn json_of(generation: &str, keys_before: Option<u64>, content: &Content) -> Value {
    json!({
        "generation": generation,
        "keys": content.keys,
        "keys_before": keys_before,
        "duplicates_dropped": content.dropped,
        "value_bytes": content.value_bytes,
        "shards": content.shards,
        "file_bytes": content.file_bytes,
    })
}
