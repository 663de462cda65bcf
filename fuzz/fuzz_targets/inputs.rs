//! The target [`inputs`](sharddb_fuzz::targets::inputs).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::inputs;

fuzz_target!(|input: &[u8]| inputs::run(input));
