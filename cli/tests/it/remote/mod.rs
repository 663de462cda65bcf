//! The command on URLs: a web server on loopback serves what the command built, and fails in every way.
//!
//! Nothing is sent to another address.

mod bucket_server;
mod buckets;
mod caches;
mod faults;
mod listings;
mod reads;
mod redirects;
mod secrets;
mod server;
mod urls;

use std::process::Command;

use crate::common::{self, Place, Run, Start};

/// The number of keys of the store of these tests: 0, 3, 6, ..
const KEYS: u64 = 300;

/// Runs the command with few retries, without proxies and without the credentials of whoever runs the tests.
fn sharddb(args: &[&str]) -> Run {
    command(args, 1).run()
}

fn command(args: &[&str], retries: u32) -> Command {
    let mut command = common::command(args);
    let variables = std::env::vars_os().filter(|(name, _)| {
        let name = name.to_string_lossy().to_ascii_uppercase();
        ["AWS_", "AZURE_", "GOOGLE_"].iter().any(|prefix| name.starts_with(prefix)) || name.ends_with("_PROXY")
    });
    variables.for_each(|(name, _)| {
        command.env_remove(name);
    });
    command.env("HOME", "/nonexistent").env("NO_PROXY", "127.0.0.1,localhost");
    // no request is late because this program stalls; where a request must be late, a test sets another time
    command.env("SHARDDB_REMOTE_RETRIES", retries.to_string()).env("SHARDDB_REMOTE_TIMEOUT", "60");
    command
}

/// The value of a key, by this model; long enough for several pieces of a body.
fn value_of(key: u64) -> String {
    format!("value {key} ").repeat(usize::try_from(1 + key % 50).unwrap())
}

/// A store of `KEYS` keys, `store`; returns the name of its generation.
fn store(place: &Place) -> String {
    let lines = (0..KEYS).map(|at| format!("{{\"key\": {}, \"text\": \"{}\"}}\n", 3 * at, value_of(3 * at)));
    let input = place.write("store.ndjson", lines.collect::<String>());
    common::sharddb(["build", &place.text("store"), "--input", &input]).expect(0);
    "gen-0000000001".to_string()
}

/// A value of this length that compresses little.
fn large_value(len: usize) -> String {
    let mut state = 1_u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"[(state >> 58) as usize])
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// A store with the key 7 and a large value.
fn large_store(place: &Place, name: &str, len: usize) {
    let input = place.write("large.ndjson", format!("{{\"key\": 7, \"text\": \"{}\"}}\n", large_value(len)));
    common::sharddb(["build", &place.text(name), "--input", &input]).expect(0);
}
