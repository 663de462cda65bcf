//! The seeds of the targets for other formats: small foreign files, and small native arrays.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};
use sharddb_container::bcolz::{BcolzOptions, Order, RootdirLayout};
use sharddb_container::bloscpack::{BloscpackOptions, Checksum};
use sharddb_container::zarr::{ZarrMetadata, ZarrWriter};
use sharddb_fuzz::{container, scratch};

/// Longer inputs are left out.
const LONGEST: usize = 4096;

/// The flags in the first byte of an input of the target `bcolz`.
const BLOSCPACK: u8 = 2;
const SUPERCHUNKS: u8 = 4;
const COLUMN: u8 = 8;

fn write(out: &Path, target: &str, name: &str, input: &[u8]) {
    if input.len() <= LONGEST {
        super::write(out, target, name, input);
    }
}

fn directories(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

/// Chunks of C-Blosc: every codec, shuffle and width.
pub fn blosc(data: &Path, out: &Path) {
    let chunks = fs::read(data.join("blosc1/blosc1.bin")).unwrap();
    let list: Json = serde_json::from_slice(&fs::read(data.join("blosc1/expected.json")).unwrap()).unwrap();
    let number = |value: &Json| value.as_u64().unwrap() as usize;
    let short = list["chunks"].as_array().unwrap().iter().filter(|chunk| number(&chunk["nbytes"]) < 1024);
    for chunk in short.step_by(3) {
        let (offset, len) = (number(&chunk["offset"]), number(&chunk["nbytes"]));
        write(out, "blosc", &chunk["key"].to_string(), &[&[1], &chunks[offset..offset + len]].concat());
    }
}

pub fn bcolz(data: &Path, out: &Path) {
    for entry in fs::read_dir(data.join("bcolz/bloscpack")).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|extension| extension == "blp") {
            write(out, "bcolz", name(&entry), &container::join(BLOSCPACK, &[fs::read(&entry).unwrap()]));
        }
    }
    for set in directories(&data.join("bcolz")).iter().filter(|set| set.join("data/__0.blp").exists()) {
        write(out, "bcolz", name(set), &array(set, 0, 1));
    }
    our_bloscpack(out);
    for (layout, bits) in [(RootdirLayout::Shipped, 0), (RootdirLayout::Superchunks, SUPERCHUNKS)] {
        for (shape, order) in [(&[][..], Order::C), (&[2, 3], Order::C), (&[2, 3], Order::F)] {
            if (layout, order) == (RootdirLayout::Shipped, Order::F) {
                continue;
            }
            let name = format!("{}-{}-{}", layout.as_str(), shape.len(), order.as_str());
            let root = scratch::directory("seeds").join(&name);
            let mut options = BcolzOptions::new();
            options.layout(layout).chunk_rows(4).superchunk_chunks(2).order(order).checksum(Checksum::None);
            let mut writer = options.create_array(&root, "int32", shape).unwrap();
            let len = 4 * 14 * shape.iter().product::<u64>() as usize;
            writer.append(&(0..len).map(|byte| (byte / 7) as u8).collect::<Vec<_>>()).unwrap();
            write(out, "bcolz", &name, &array(&root, bits, 4));
        }
    }
    our_table(out);
}

/// The input for an array in a directory, with some of its chunks.
fn array(root: &Path, how: u8, chunks: usize) -> Vec<u8> {
    let data = if how & COLUMN != 0 { root.join("data/a") } else { root.join("data") };
    let read = |path: PathBuf| fs::read(path).ok();
    let mut files: Vec<Vec<u8>> =
        ["storage", "sizes"].iter().filter_map(|name| read(root.join("meta").join(name))).collect();
    for at in 0..chunks {
        let name = if how & SUPERCHUNKS != 0 { format!("__{}__.bin", at + 1) } else { format!("__{at}.blp") };
        files.extend(read(data.join(name)));
    }
    container::join(how, &files)
}

fn our_bloscpack(out: &Path) {
    for checksum in [Checksum::None, Checksum::Adler32] {
        let path = scratch::directory("seeds").join("file.blp");
        let mut options = BloscpackOptions::new();
        let mut writer =
            options.typesize(2).checksum(checksum).max_app_chunks(2).reserve_percent(20).create(&path, 3).unwrap();
        for chunk in [&[7; 64][..], &[1; 64], &[9; 10]] {
            writer.push(chunk).unwrap();
        }
        writer.finish().unwrap();
        let input = container::join(BLOSCPACK, &[fs::read(&path).unwrap()]);
        write(out, "bcolz", &format!("bloscpack-{}", checksum.as_str()), &input);
    }
}

fn our_table(out: &Path) {
    let root = scratch::directory("seeds").join("table");
    let mut options = BcolzOptions::new();
    options.layout(RootdirLayout::Superchunks).chunk_rows(4).superchunk_chunks(2).checksum(Checksum::None);
    let mut writer = options.create_table(&root, &[("a", "int16")]).unwrap();
    writer.append(&[&[5; 2 * 14]]).unwrap();
    write(out, "bcolz", "table", &array(&root, SUPERCHUNKS | COLUMN, 2));
}

pub fn zarr(data: &Path, out: &Path) {
    let sets = [directories(&data.join("zarr/arrays")), directories(&data.join("zarr/negative"))].concat();
    for set in sets {
        let Ok(text) = fs::read(set.join("zarr.json")) else { continue };
        // the names of the first shards, in the two styles and up to four dimensions
        let names = ["c", "c/0", "c/0/0", "c/0/0/0", "c/0/0/0/0", "c.0.0", "0", "0.0", "0.0.0", "0/0"];
        let first = names.iter().filter_map(|name| fs::read(set.join(name)).ok());
        let files: Vec<_> = std::iter::once(text).chain(first).collect();
        write(out, "zarr", name(&set), &container::join(0, &files));
    }
    let bytes = json!({"name": "bytes", "configuration": {"endian": "little"}});
    let crc32c = json!({"name": "crc32c"});
    let transpose = json!({"name": "transpose", "configuration": {"order": [1, 0]}});
    let blosc = json!({"name": "blosc", "configuration": {
        "typesize": 2, "cname": "lz4", "clevel": 5, "shuffle": "shuffle", "blocksize": 0
    }});
    let zstd = json!({"name": "zstd", "configuration": {"level": 3, "checksum": false}});
    let gzip = json!({"name": "gzip", "configuration": {"level": 5}});
    for (name, codecs) in [
        ("raw", json!([bytes])),
        ("crc32c", json!([bytes, crc32c])),
        ("transpose", json!([transpose, bytes, gzip])),
        ("blosc", json!([bytes, blosc])),
        ("zstd", json!([bytes, zstd])),
    ] {
        for (location, index) in [("start", json!([bytes])), ("end", json!([bytes])), ("end", json!([bytes, crc32c]))] {
            let sharding = json!({"name": "sharding_indexed", "configuration": {
                "chunk_shape": [2, 2], "codecs": codecs, "index_codecs": index, "index_location": location
            }});
            let name = format!("{name}-{location}-{}", index.as_array().unwrap().len());
            write(out, "zarr", &name, &our_array(json!([sharding])));
        }
        write(out, "zarr", &format!("{name}-alone"), &our_array(codecs));
    }
}

fn our_array(codecs: Json) -> Vec<u8> {
    let text = json!({
        "zarr_format": 3, "node_type": "array", "shape": [5, 4], "data_type": "uint16", "fill_value": 1,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 4]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "codecs": codecs,
    });
    let metadata = ZarrMetadata::from_json(&text.to_string()).unwrap();
    let root = scratch::directory("seeds").join("array");
    let writer = ZarrWriter::create(&root, &metadata).unwrap();
    let chunk: Vec<u8> = (0..metadata.chunk_shape().iter().product::<u64>() as u8 * 2).collect();
    for shard in 0..2 {
        let mut file = writer.shard(shard).unwrap();
        let keys = (0..metadata.chunk_grid().iter().product()).filter(|key| metadata.shard_of(*key) == Some(shard));
        for key in keys.filter(|key| *key != 2) {
            file.put(key, &metadata.encode_chunk(&chunk).unwrap()).unwrap();
        }
        file.finish().unwrap();
    }
    writer.finish().unwrap();
    let shards = ["c/0/0", "c/1/0"].map(|name| fs::read(root.join(name)).unwrap());
    container::join(0, &[text.to_string().as_bytes(), &shards[0], &shards[1]])
}
