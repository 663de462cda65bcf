//! Families of hostile inputs. Each is a function of the input's size in bytes, which it matches up to a small factor.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use sharddb_fuzz::case::ShardCase;
use sharddb_fuzz::{container, naive};

/// Inputs of one kind, of any size, for one target.
pub struct Family {
    pub name: &'static str,
    pub target: &'static str,
    pub size: usize,
    pub make: fn(usize) -> Vec<u8>,
}

macro_rules! families {
    ($($name:ident: $target:ident, $size:expr, $make:expr;)+) => {
        /// All families, each with a size at which its cost shows and valgrind takes seconds.
        pub const FAMILIES: &[Family] = &[$(
            Family { name: stringify!($name), target: stringify!($target), size: $size << 10, make: $make },
        )+];
    };
}

families! {
    spec_members: spec_json, 64, |n| repeated("{", "\"hash\":0,", n, "\"hash\":0}");
    spec_long_name: spec_json, 256, |n| repeated("{\"", "a", n, "\":1}");
    spec_deep: spec_json, 256, |n| repeated("", "[", n, "");
    info_nested_objects: info_json, 64, |n| {
        let name = "a".repeat(n / 2);
        repeated(&format!("\n{{\"{name}\":["), "{\"sharding\":1},", n / 2, "0]}")
    };
    info_deep_names: info_json, 128, |n| deep(&"a".repeat(n / 100), 100);
    info_deep_escaped_names: info_json, 128, |n| deep(&"\\u007e/".repeat(n / 700), 100);
    info_members: info_json, 128, |n| repeated("\n{", "\"a\":1,", n, "\"sharding\":{}}");
    info_elements: info_json, 128, |n| repeated("\n{\"a\":[", "1,", n, "1]}");
    info_strings: info_json, 256, |n| repeated("\n{\"a\":\"", "\\\"\\u0041", n, "\"}");
    info_pointer: info_json, 128, |n| repeated("", "/a", n / 2, &repeated_text("\n{\"a\":[", "1,", n / 2, "1]}"));
    info_brackets: info_json, 256, |n| repeated("\n", "{\"a\":", n, "");
    entries_of_one_index: whole_shard, 16, |n| shard(6, false, |_| (0, rounded(n)), &vec![0; rounded(n) as usize]);
    entries_nested: whole_shard, 16, |n| shard(6, false, |at| (at * 24, rounded(n)), &vec![0; rounded(n) as usize]);
    entries_of_one_gzip: whole_shard, 16, |n| {
        let index = gzip(&[noise(n), vec![0; 2 * n]].concat());
        shard(6, true, |_| (0, index.len() as u64), &index)
    };
    entries_descending: shard_index, 32, |n| {
        let each = rounded(n / 64);
        shard(6, false, |at| ((63 - at) * each, (64 - at) * each), &vec![0; 64 * each as usize])
    };
    entries_of_nothing: shard_index, 64, |n| shard(6, false, |_| (u64::MAX - 7, n as u64), &noise(n));
    rows_of_zeros: minishard_index, 32, |n| [vec![0], vec![0; rounded(n) as usize]].concat();
    rows_of_noise: minishard_index, 32, |n| [vec![0], noise(rounded(n) as usize)].concat();
    rows_descending: minishard_index, 32, |n| [vec![0], index(1 << 40, u64::MAX, &vec![(0, 8); n / 24])].concat();
    rows_overlapping: minishard_index, 32, |n| {
        let ranges: Vec<_> = (0..n as u64 / 24).map(|at| (at % 300, 300)).collect();
        [vec![0], index(0, 1, &ranges)].concat()
    };
    rows_in_gzip: minishard_index, 32, |n| [vec![2], index(0, 1, &vec![(0, 0); n / 24])].concat();
    described: differential, 32, noise;
    damage: directory, 2, noise;
    set_entries_of_one_index: data_set, 32, |n| entries_of_one(n, false);
    set_entries_of_one_gzip: data_set, 8, |n| entries_of_one(n, true);
    set_entries_nested: data_set, 32, |n| {
        let bits = (n / 32).ilog2();
        data_set(bits, false, "", |at| (at * 24, 24 << bits), &vec![0; 24 << bits])
    };
    set_rows_of_one_value: data_set, 24, |n| {
        let half = rounded(n / 2);
        let rows = index(0, 1, &vec![(half, 2 * half); half as usize / 24]);
        data_set(0, false, "", |_| (0, half), &[rows, noise(half as usize)].concat())
    };
    set_rows_behind_one_gap: data_set, 24, |n| {
        let half = rounded(n / 2);
        let rows = index(0, 1, &vec![(2 * half, 2 * half + 8); half as usize / 24]);
        data_set(0, false, "", |_| (0, half), &[rows, noise(half as usize + 8)].concat())
    };
    set_rows_checked: data_set, 24, |n| {
        let half = rounded(n / 2);
        let rows = index(0, 1, &vec![(half, 2 * half); half as usize / 24]);
        data_set(0, false, CHECKS, |_| (0, half), &[rows, noise(half as usize)].concat())
    };
    set_keys_twice: data_set, 64, |n| {
        let rows = index(0, 0, &vec![(0, 0); n / 24]);
        data_set(0, false, "", |_| (0, rows.len() as u64), &rows)
    };
    set_gap_of_ids: data_set, 16, |n| data_set(0, false, CHECKS, |_| (0, 8), &words(std::iter::repeat_n(1, n / 8)));
    set_gap_of_gzip_heads: data_set, 16, |n| {
        // each begins a member whose first block must be inflated to its end
        let member = [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255][..], &[0, 6, 0, 0xf9, 0xff], b"stored"].concat();
        data_set(0, true, CHECKS, |_| (0, 8), &member.repeat(n / member.len()))
    };
    manifest_of_shards: data_set, 64, |n| container::join(0, &[repeated("{\"sharding\":[", "[0,120,2,1,1],", n, "0]}")]);
    bloscpack_of_one_chunk: bcolz, 64, bloscpack_of_one_chunk;
    bcolz_storage_members: bcolz, 64, |n| bcolz(&repeated("{", "\"a\":1,", n, "\"dtype\":\"int32\",\"chunklen\":1}"));
    bcolz_storage_columns: bcolz, 64, |n| {
        let columns: Vec<_> = (0..n / 16).map(|at| format!("\"c{at}\":\"int32\"")).collect();
        let text = format!("{{\"dtype\":{{\"a\":\"int32\",{}}},\"chunkshape\":[1]}}", columns.join(","));
        container::join(8 + 4, &[text.as_bytes(), b"{\"shape\":[1],\"nbytes\":4}"])
    };
    bcolz_yaml_lines: bcolz, 64, |n| bcolz(&lines(n, |at| format!("a{at}: {at}\n")));
    bcolz_yaml_items: bcolz, 64, |n| bcolz(&repeated("dtype: int32\na:\n", "- 1\n", n, ""));
    bcolz_yaml_deep: bcolz, 64, |n| bcolz(&lines(n, |at| format!("{}a:\n", " ".repeat(at % 200))));
    bcolz_yaml_flow: bcolz, 64, |n| bcolz(&repeated("a: ", "[", n, ""));
    bcolz_yaml_text: bcolz, 64, |n| bcolz(&repeated("a: \"", "\\\"", n, "\""));
    zarr_dimensions: zarr, 32, |n| {
        let shape = vec![1; n / 4];
        zarr(&shape, &shape, json!([{"name": "bytes"}]), json!({}), &[])
    };
    zarr_codecs: zarr, 32, |n| zarr(&[4], &[4], json!(vec![json!({"name": "crc32c"}); n / 17]), json!({}), &[]);
    zarr_sharding_in_sharding: zarr, 32, |n| {
        let mut codecs = json!([{"name": "bytes"}]);
        for _ in 0..n.ilog2() {
            codecs = json!([{"name": "sharding_indexed", "configuration": {
                "chunk_shape": [1], "codecs": codecs, "index_codecs": [{"name": "bytes"}], "padding": "a".repeat(n / 16)
            }}]);
        }
        zarr(&[4], &[4], codecs, json!({}), &[])
    };
    zarr_attributes: zarr, 64, |n| {
        let attributes = (0..n / 10).map(|at| (format!("a{at}"), json!(at))).collect();
        zarr(&[4], &[4], json!([{"name": "bytes"}]), serde_json::Value::Object(attributes), &[])
    };
    zarr_attribute_text: zarr, 64, |n| zarr(&[4], &[4], json!([{"name": "bytes"}]), json!({"a": "\"".repeat(n)}), &[]);
    zarr_chunks_of_one_place: zarr, 64, |n| {
        // all chunks of the shard are the bytes before the index
        let (chunks, len) = (n / 24, n as u64 / 3);
        let shard = [noise(len as usize), words((0..chunks).flat_map(|_| [0, len]))].concat();
        let sharding = json!({"name": "sharding_indexed", "configuration": {
            "chunk_shape": [1], "codecs": [{"name": "bytes"}], "index_codecs": [{"name": "bytes"}]
        }});
        zarr(&[chunks as u64], &[chunks as u64], json!([sharding]), json!({}), &[shard])
    };
    zarr_gzip_of_one_place: zarr, 64, |n| {
        let chunk = gzip(&noise(n / 3));
        let chunks = n / 24;
        let shard = [chunk.clone(), words((0..chunks).flat_map(|_| [0, chunk.len() as u64]))].concat();
        let codecs = json!([{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]);
        let sharding = json!({"name": "sharding_indexed", "configuration": {
            "chunk_shape": [1], "codecs": codecs, "index_codecs": [{"name": "bytes"}]
        }});
        zarr(&[chunks as u64], &[chunks as u64], json!([sharding]), json!({}), &[shard])
    };
    blosc_blocks: blosc, 16, |n| {
        // one byte per block: many block offsets, which all name the first block
        let blocks = n / 8;
        let mut chunk = vec![1, 2, 1, 1, 1];
        chunk.extend([blocks as u32, 1, 0].iter().flat_map(|word| word.to_le_bytes()));
        chunk.extend((0..blocks).flat_map(|_| (16 + 4 * blocks as u32).to_le_bytes()));
        chunk.extend([1, 0, 0, 0, 7]);
        chunk
    };
    ndjson_lines: inputs, 64, |n| [vec![0], lines(n, |at| format!("{{\"key\":{at},\"text\":\"\"}}\n"))].concat();
    ndjson_one_line: inputs, 256, |n| repeated("\0{\"key\":1,\"text\":\"", "\\n", n, "\"}");
    ndjson_deep: inputs, 256, |n| repeated("\0{\"key\":1,\"value\":", "[", n, "");
    ndjson_members: inputs, 64, |n| repeated("\0{", "\"a\":1,", n, "\"key\":1}");
    ndjson_bad_lines: inputs, 64, |n| repeated("\0", "{\"key\":1}\n", n, "");
    bin_records: inputs, 64, |n| [vec![2], words((0..n as u64 / 16).flat_map(|at| [at, 0]))].concat();
    bin_huge_lengths: inputs, 64, |n| [vec![2], words([1, u64::MAX]), noise(n)].concat();
}

const CHECKS: &str = r#", "sharddb": {"checks": true, "prefixes": true, "value_alignment": 1}"#;

fn repeated(head: &str, piece: &str, bytes: usize, tail: &str) -> Vec<u8> {
    repeated_text(head, piece, bytes, tail).into_bytes()
}

fn repeated_text(head: &str, piece: &str, bytes: usize, tail: &str) -> String {
    format!("{head}{}{tail}", piece.repeat(bytes / piece.len()))
}

fn lines(bytes: usize, line: impl Fn(usize) -> String) -> Vec<u8> {
    let mut text = String::new();
    (0..).take_while(|_| true).map_while(|at| (text.len() < bytes).then(|| text.push_str(&line(at)))).for_each(drop);
    text.into_bytes()
}

fn deep(name: &str, depth: usize) -> Vec<u8> {
    let open = format!("{{\"{name}\":").repeat(depth);
    format!("\n{open}[{{\"sharding\":1}},{{\"sharding\":2}}]{}", "}".repeat(depth)).into_bytes()
}

fn words(words: impl IntoIterator<Item = u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Incompressible bytes.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let word = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    words(std::iter::repeat_with(word).take(len.div_ceil(8)))[..len].to_vec()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Rounds down to a possible length of a minishard index.
fn rounded(len: usize) -> u64 {
    (len / 24 * 24) as u64
}

/// The rows of a minishard index: ids that are `step` apart, and ranges.
fn index(first: u64, step: u64, ranges: &[(u64, u64)]) -> Vec<u8> {
    let ids = (0..ranges.len()).map(|row| if row == 0 { first } else { step });
    let ends = std::iter::once(0).chain(ranges.iter().map(|(_, end)| *end));
    let starts = ranges.iter().zip(ends).map(|((start, _), end)| start.wrapping_sub(end));
    let sizes = ranges.iter().map(|(start, end)| end - start);
    words(ids.chain(starts).chain(sizes))
}

/// An input of the targets that take one shard.
fn shard(bits: u32, gzip_index: bool, entry: impl Fn(u64) -> (u64, u64), body: &[u8]) -> Vec<u8> {
    let naive = naive::Spec {
        murmur: false,
        preshift_bits: 0,
        minishard_bits: bits,
        shard_bits: 0,
        gzip_index,
        gzip_data: false,
    };
    ShardCase::new(naive, [&shard_index(bits, entry), body].concat()).to_bytes()
}

fn shard_index(bits: u32, entry: impl Fn(u64) -> (u64, u64)) -> Vec<u8> {
    words((0..1 << bits).flat_map(|minishard| <[u64; 2]>::from(entry(minishard))))
}

/// An input of the target that takes a data set.
fn data_set(bits: u32, gzip: bool, members: &str, entry: impl Fn(u64) -> (u64, u64), body: &[u8]) -> Vec<u8> {
    let encoding = if gzip { "gzip" } else { "raw" };
    let info = format!(
        "{{\"sharding\": {{\"@type\": \"neuroglancer_uint64_sharded_v1\", \"hash\": \"identity\", \"preshift_bits\": 0, \
         \"minishard_bits\": {bits}, \"shard_bits\": 0, \"minishard_index_encoding\": \"{encoding}\"}}{members}}}"
    );
    container::join(0, &[info.into_bytes(), [&shard_index(bits, entry), body].concat()])
}

/// Half of the bytes are entries, and all of them name one index in the other half.
fn entries_of_one(n: usize, is_gzip: bool) -> Vec<u8> {
    let bits = (n / 32).ilog2();
    let rows = index(0, 1 << bits, &vec![(0, 0); if is_gzip { 1000 } else { n / 48 }]);
    let rows = if is_gzip { gzip(&rows) } else { rows };
    data_set(
        bits,
        is_gzip,
        "",
        |_| (0, rows.len() as u64),
        &[&rows[..], &noise((n / 2).saturating_sub(rows.len()))].concat(),
    )
}

fn bcolz(storage: &[u8]) -> Vec<u8> {
    container::join(0, &[storage, b"{\"shape\":[1],\"nbytes\":4}"])
}

/// Chunk offsets that all name the first chunk.
fn bloscpack_of_one_chunk(n: usize) -> Vec<u8> {
    let chunks = n / 12;
    let mut file = b"blpk".to_vec();
    file.extend([3, 1, 0, 1]); // version, has offsets, no checksum, typesize
    file.extend(((n / 3) as i32).to_le_bytes());
    file.extend(((n / 3) as i32).to_le_bytes());
    file.extend(words([chunks as u64, 0]));
    let start = 32 + 8 * chunks as u64;
    file.extend(words((0..chunks).map(|_| start)));
    file.extend([2, 1, 2, 1]); // a Blosc chunk that is stored uncompressed
    file.extend([n as u32 / 3, n as u32 / 3, n as u32 / 3 + 16].iter().flat_map(|word| word.to_le_bytes()));
    file.extend(noise(n / 3));
    container::join(2, &[file])
}

fn zarr(
    shape: &[u64],
    chunks: &[u64],
    codecs: serde_json::Value,
    attributes: serde_json::Value,
    shards: &[Vec<u8>],
) -> Vec<u8> {
    let text = json!({
        "zarr_format": 3, "node_type": "array", "shape": shape, "data_type": "uint8", "fill_value": 0,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunks}},
        "chunk_key_encoding": {"name": "default"}, "codecs": codecs, "attributes": attributes,
    });
    let files: Vec<_> = std::iter::once(text.to_string().into_bytes()).chain(shards.iter().cloned()).collect();
    container::join(0, &files)
}
