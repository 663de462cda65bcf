//! Writes the seeds: inputs from the repository's test data, in the form of each target.
//!
//! ```text
//! cargo run --example seeds -- work/data work/seeds        in fuzz/, after ./unpack.sh
//! ```

#[path = "seeds/containers.rs"]
mod containers;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use sharddb_fuzz::case::{HEADER, ShardCase};
use sharddb_fuzz::naive;

fn main() {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(data), Some(out)) = (args.next(), args.next()) else { panic!("usage: seeds TESTS_DATA OUT") };
    let shards = shards(&data);
    for (name, case) in &shards {
        for target in ["whole_shard", "shard_index"] {
            write(&out, target, name, &case.to_bytes());
        }
        minishard_indexes(&out, name, case);
    }
    jsons(&data, &out);
    inputs(&out);
    requests(&out);
    containers::blosc(&data, &out);
    containers::bcolz(&data, &out);
    containers::zarr(&data, &out);
}

fn write(out: &Path, target: &str, name: &str, bytes: &[u8]) {
    let directory = out.join(target);
    fs::create_dir_all(&directory).unwrap();
    fs::write(directory.join(name), bytes).unwrap();
}

/// Small shards with number 0: randomly damaged mutants, broken sets and foreign sets.
fn shards(data: &Path) -> Vec<(String, ShardCase)> {
    let mut shards = Vec::new();
    let results = fs::read_to_string(data.join("fuzz/results.jsonl")).unwrap();
    for line in results.lines().step_by(5) {
        let mutant: Json = serde_json::from_str(line).unwrap();
        let (file, base) = (mutant["file"].as_str().unwrap(), mutant["base"].as_str().unwrap());
        let bytes = fs::read(data.join("fuzz").join(file)).unwrap();
        shards.extend(case(&data.join(format!("fuzz/{base}.info")), bytes).map(|case| (file.to_string(), case)));
    }
    for sets in ["corrupt", "public"] {
        for entry in fs::read_dir(data.join(sets)).unwrap() {
            let set = entry.unwrap().path();
            let shard = ["0.shard", "00.shard"].iter().find_map(|name| fs::read(set.join(name)).ok());
            let name = set.file_name().unwrap().to_str().unwrap().to_string();
            shards.extend(shard.and_then(|bytes| case(&set.join("info"), bytes)).map(|case| (name, case)));
        }
    }
    shards
}

/// `None` for a large set, or one with a specification that the targets do not support.
fn case(info: &Path, bytes: Vec<u8>) -> Option<ShardCase> {
    let info: Json = serde_json::from_slice(&fs::read(info).ok()?).ok()?;
    let sharding = &info["sharding"];
    let bits = |name: &str| sharding[name].as_u64().and_then(|bits| u32::try_from(bits).ok());
    let gzip = |name: &str| sharding[name] == "gzip";
    let spec = naive::Spec {
        murmur: sharding["hash"] == "murmurhash3_x86_128",
        preshift_bits: bits("preshift_bits").filter(|bits| *bits <= 64)?,
        minishard_bits: bits("minishard_bits").filter(|bits| *bits <= 6)?,
        shard_bits: bits("shard_bits").filter(|bits| *bits <= 8)?,
        gzip_index: gzip("minishard_index_encoding"),
        gzip_data: gzip("data_encoding"),
    };
    let case = ShardCase::new(spec, bytes);
    let same = ShardCase::of_bytes(&case.to_bytes()).is_some_and(|other| other.spec == case.spec);
    assert!(same, "the header says what it should");
    (case.bytes.len() <= 4096 - HEADER).then_some(case)
}

/// Writes the minishard indexes of a shard, as stored and decoded.
fn minishard_indexes(out: &Path, name: &str, case: &ShardCase) {
    for minishard in 0..1usize << case.naive.minishard_bits {
        let word = |at: usize| case.bytes.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()));
        let (Some(start), Some(end)) = (word(minishard * 16), word(minishard * 16 + 8)) else { continue };
        let Ok(stored) = case.naive.stored(&case.bytes, start, end) else { continue };
        let how = [u8::from(case.naive.gzip_index)];
        write(out, "minishard_index", &format!("{name}-{minishard}"), &[&how, stored].concat());
        if case.naive.gzip_index
            && let Ok(decoded) = naive::decode(stored, true)
        {
            write(out, "minishard_index", &format!("{name}-{minishard}-in"), &[&[2], &decoded[..]].concat());
        }
    }
}

fn jsons(data: &Path, out: &Path) {
    for sets in ["corrupt", "public"] {
        for entry in fs::read_dir(data.join(sets)).unwrap() {
            let set = entry.unwrap().path();
            let Ok(info) = fs::read(set.join("info")) else { continue };
            let name = set.file_name().unwrap().to_str().unwrap();
            if info.len() > 2000 {
                continue;
            }
            write(out, "info_json", name, &[b"\n", &info[..]].concat());
            write(
                out,
                "info_json",
                &format!("{name}-pointer"),
                &[b"/scales/0\n{\"scales\": [", &info[..], b"]}"].concat(),
            );
            if let Ok(info) = serde_json::from_slice::<Json>(&info) {
                // a path out of the directory, which must be refused
                let scale = serde_json::json!({"scales": [{"key": "..", "sharding": info["sharding"]}]});
                let input = [b"/scales/0\n", scale.to_string().as_bytes()].concat();
                write(out, "info_json", &format!("{name}-key"), &input);
                write(out, "spec_json", name, info["sharding"].to_string().as_bytes());
            }
        }
    }
}

fn inputs(out: &Path) {
    let record = |words: &[u64], bytes: &[u8]| {
        let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        record.extend_from_slice(bytes);
        record
    };
    let lines = "{\"key\": 7, \"value_b64\": \"aGVsbG8=\", \"preamble_b64\": \"cA==\"}\n\
                 {\"key\": \"18446744073709551615\", \"text\": \"x\\u00e9\\n\"}\n\
                 {\"value\": {\"a\": [1.0, null, \"}\"]}, \"key\": 0}\n";
    write(out, "inputs", "lines", &[&[0], lines.as_bytes()].concat());
    write(out, "inputs", "fields", b"\x01{\"id\": 5, \"name\": \"five\"}\n{\"name\": \"six\", \"id\": \"6\"}");
    let changes = "{\"key\": \"7\", \"old\": null, \"new\": {\"value_b64\": \"aGVsbG8=\", \"preamble_b64\": \"cA==\"}}\n\
                   {\"key\": 8, \"old\": {\"text\": \"x\\u00e9\"}, \"new\": {\"value\": {\"a\": [1.0, null]}}}\n\
                   {\"new\": null, \"old\": {\"value\": 0}, \"key\": 0}\n";
    write(out, "inputs", "changes", &[&[0xc0], changes.as_bytes()].concat());
    let bin = [record(&[1, 3], b"abc"), record(&[2, 0], b""), record(&[u64::MAX, 1], b"z")].concat();
    write(out, "inputs", "bin", &[&[2], &bin[..]].concat());
    let bin2 = [record(&[1, 2, 3], b"ppabc"), record(&[2, 0, 0], b"")].concat();
    write(out, "inputs", "bin2", &[&[3], &bin2[..]].concat());
}

fn requests(out: &Path) {
    let request = |name: &str, len: u64, text: &str| {
        write(out, "requests", name, &[&len.to_le_bytes(), text.as_bytes()].concat());
    };
    request("file", 1000, "/raw/image/s0/0.shard\nbytes=0-15");
    request("object", 7, "/objects/seg/s0/0-32_0-32_0-32\nbytes=3-");
    request("key", 0, "/api/a%20b/get/18446744073709551615\nbytes=-1");
    request("parent", u64::MAX, "/%2e%2e/..%5c/.\nbytes=18446744073709551615-99999999999999999999");
    request("device", 1, "/con/NUL.txt/a:b/c.\nBytes=0-0,2-3");
}
