//! `serve`: every answer over loopback, as clients of the format, of the API and hostile ones see it.

mod api;
mod catalog;
mod client;
mod hostile;
#[cfg(unix)]
mod log;
#[cfg(target_os = "linux")]
mod memory;
mod objects;
mod raw;
mod robust;
mod start;

use crate::common::{Place, data, sharddb};
use client::{Client, Server};

/// The data set that Neuroglancer draws.
fn neuroglancer() -> String {
    data("neuroglancer")
}

/// Adds a generation to the store `served/numbers`, whose values have one text.
fn build(place: &Place, text: &str) {
    let lines: String = (0..200).map(|key| format!("{{\"key\": {key}, \"text\": \"{text} {key}\"}}\n")).collect();
    let input = place.write(&format!("input-{text}.ndjson"), lines);
    std::fs::create_dir_all(place.path("served")).unwrap();
    sharddb(["build", &place.text("served/numbers"), "--input", &input]).expect(0);
}

/// The value of a key that `build` has written.
fn value(text: &str, key: u64) -> Vec<u8> {
    format!("{text} {key}").into_bytes()
}
