//! The target [`differential`](sharddb_fuzz::targets::differential).

#![no_main]

use libfuzzer_sys::fuzz_target;
use sharddb_fuzz::targets::differential;

fuzz_target!(|input: &[u8]| differential::run(input));
