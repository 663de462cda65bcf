//! Arbitrary pairs, specification and options: the built store equals the model, and its bytes do not depend on memory
//! and threads. The cases are those of the unit test `write::model_tests`.

#![no_main]

#[path = "../../tests/model/mod.rs"]
mod model;

use std::fs;

use libfuzzer_sys::fuzz_target;
use model::case::{Case, Input, SMALL, Size};
use sharddb_fuzz::scratch;

/// Enough for several runs. More is slow under AddressSanitizer.
const SIZE: Size = Size { most_bytes: 384 << 10, ..SMALL };

fuzz_target!(|input: &[u8]| {
    let case = Case::draw(&mut Input(input), &SIZE);
    let directory = scratch::directory("built");
    if let Err(difference) = model::check(&case, &directory) {
        panic!("{difference}\n{case}");
    }
    fs::remove_dir_all(directory).unwrap();
});
