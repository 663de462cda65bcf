//! Generations of a store: what the verbs that change them say.

use super::{transcript, transcript_with_input};
use crate::common::Place;

#[test]
fn generations_are_published_rolled_back_and_removed() {
    let place = Place::new();
    for number in ["one", "two", "three"] {
        place.write("in.ndjson", format!("{{\"key\": 1, \"text\": \"{number}\"}}\n"));
        transcript(&place, &format!("build-{number}"), &["build", "numbers", "--input", "in.ndjson"]);
    }
    transcript(&place, "rollback", &["rollback", "numbers"]);
    transcript(&place, "generations-rolled-back", &["generations", "numbers"]);
    transcript(&place, "discard", &["discard", "numbers", "3"]);
    transcript(&place, "discard-current", &["discard", "numbers", "2"]);
    transcript(&place, "gc-keep", &["gc", "numbers", "--keep", "1"]);
    transcript(&place, "generations-after-gc", &["generations", "numbers"]);
}

#[test]
fn a_build_reads_standard_input() {
    let place = Place::new();
    let args = ["build", "numbers", "--input", "-", "--format", "ndjson"];
    transcript_with_input(&place, "build-from-standard-input", &args, "{\"key\": 1, \"text\": \"one\"}\n");
}
