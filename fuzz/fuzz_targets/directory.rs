//! The target [`directory`](sharddb_fuzz::targets::directory).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::directory;

fuzz_target!(|input: &[u8]| directory::run(input));
