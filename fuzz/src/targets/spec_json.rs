//! Arbitrary text as a sharding object: refused, or a valid specification that places every key and survives its own
//! JSON.

use serde_json::Value as Json;
use sharddb::{ErrorKind, ShardingSpec};

/// Runs the target on an input.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let spec = match ShardingSpec::from_json(text) {
        Ok(spec) => spec,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::InvalidSpec),
    };
    assert!(spec.preshift_bits() <= 64 && spec.minishard_bits() <= 32);
    assert!(spec.minishard_bits() + spec.shard_bits() <= 64);
    let json: Json = serde_json::from_str(text).expect("what is taken is JSON");
    for (name, bits) in [
        ("preshift_bits", spec.preshift_bits()),
        ("minishard_bits", spec.minishard_bits()),
        ("shard_bits", spec.shard_bits()),
    ] {
        assert_eq!(json[name].as_f64(), Some(f64::from(bits)), "{name}");
    }
    assert_eq!(json.as_object().map(|members| members.len() <= 7), Some(true));
    assert_eq!(ShardingSpec::from_json(&spec.to_json()).unwrap(), spec);
    for key in [0, 1, 42, 1 << 40, u64::MAX] {
        let location = spec.route(key);
        assert!(location.shard <= spec.max_shard() && location.minishard.get() < spec.minishards());
    }
    for shard in [spec.shard(0).unwrap(), spec.max_shard()] {
        assert!(spec.shard_file_name(shard).ends_with(".shard"));
    }
}
