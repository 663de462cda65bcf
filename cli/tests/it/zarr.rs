//! Foreign arrays work with the same subcommands as databases, and are converted without changing a byte of the chunks.

use std::fs;
use std::path::Path;

use crate::common::{self, Place, sharddb, sharddb_with_input};
use serde_json::{Value as Json, json};

fn data(path: &str) -> String {
    common::data(&format!("zarr/{path}"))
}

/// Chunks 0 to 3 of 64 bytes in each of 4 shards.
fn plain() -> String {
    data("arrays/zp_1d_u8_raw_end.zarr")
}

fn expected(array: &str) -> Json {
    serde_json::from_slice(&fs::read(Path::new(array).join("expected.json")).unwrap()).unwrap()
}

#[test]
fn an_array_answers_the_verbs_of_a_database() {
    let array = data("arrays/zp_2d_u16_gzip_start.zarr");
    let chunks = expected(&array)["chunks"].as_array().unwrap().clone();
    let keys = sharddb(["keys", &array]).expect(0);
    assert_eq!(keys.text().lines().count(), chunks.len());
    for (flags, sha256) in [(&[][..], "encoded_sha256"), (&["--decoded"], "decoded_sha256")] {
        let args = [&["get-many", &array, "--keys", "-"], flags].concat();
        let mut lines = sharddb_with_input(args, keys.text().as_bytes()).expect(0).json_lines();
        lines.sort_by_key(|line| line["key"].as_str().unwrap().parse::<u64>().unwrap());
        for (line, chunk) in lines.iter().zip(&chunks) {
            assert_eq!((line["key"].as_str().unwrap(), &line["sha256"]), (&*chunk["key"].to_string(), &chunk[sha256]));
        }
    }
    let info: Json = serde_json::from_str(sharddb(["info", &array, "--json"]).expect(0).text()).unwrap();
    assert_eq!((&info["format"], &info["chunk_shape"]), (&json!("zarr_v3"), &json!([16, 16])));
    assert!(sharddb(["info", &array]).expect(0).text().contains("chunk_shape"));
    assert!(sharddb(["verify", &array]).expect(0).stderr.contains("42 chunks"));
}

#[test]
fn a_chunk_is_got_by_number_by_position_decoded_or_filled() {
    let array = data("arrays/zp_3d_u32_zstd_sparse_edge.zarr"); // 5 x 4 x 4 chunks, of which four are present
    let by_key = sharddb(["get", &array, "78"]).expect(0);
    let by_position = sharddb(["get", &array, "--at", "4,3,2"]).expect(0);
    assert_eq!(by_key.stdout, by_position.stdout);
    assert_eq!(sharddb(["get", &array, "78", "--decoded"]).expect(0).stdout.len(), 16 * 16 * 16 * 4);
    assert_eq!(sharddb(["get", &array, "1"]).expect(1).stdout, b"");
    let filled = sharddb(["get", &array, "1", "--decoded", "--fill"]).expect(0).stdout;
    assert_eq!(filled, vec![0; 16 * 16 * 16 * 4]);
    sharddb(["get", &array, "80", "--decoded", "--fill"]).expect(1);
    sharddb(["get", &array, "--at", "5,0,0"]).expect_error(2, &["5 x 4 x 4"]);
    sharddb(["get", &array, "1", "--fill"]).expect(2);
    sharddb(["get", &array]).expect(2);
    for storage in ["mmap", "pread", "heap"] {
        assert_eq!(sharddb(["get", &array, "78", "--storage", storage]).expect(0).stdout, by_key.stdout);
    }
    sharddb(["get", &array, "78", "--decoded", "--max-value", "1000"]).expect_error(3, &["raise the cap", "key 78"]);
}

#[test]
fn packing_and_unpacking_give_the_files_of_before() {
    let place = Place::new();
    let (packed, resharded, unpacked) = (place.text("packed"), place.text("resharded"), place.text("unpacked"));
    let source = common::data("zarr/unsharded.zarr");
    sharddb(["zarr", "pack", &source, &packed, "--shard-shape", "32,64,64"]).expect(0);
    sharddb(["zarr", "reshard", &packed, &resharded, "--shard-shape", "16,32,64", "--index-location", "start"])
        .expect(0);
    sharddb(["zarr", "unpack", &resharded, &unpacked]).expect(0);
    let pairs = [
        (&packed, "zarr_pack/packed.zarr"),
        (&resharded, "zarr_pack/resharded.zarr"),
        (&unpacked, "zarr/unsharded.zarr"),
    ];
    for (ours, theirs) in pairs {
        let [ours, theirs] = [ours, &common::data(theirs)].map(|array| fs::read(format!("{array}/c/0/0/0")).unwrap());
        assert_eq!(ours, theirs);
    }
    // the default is eight chunks along each axis
    let default = place.text("default");
    sharddb(["zarr", "pack", &source, &default]).expect(0);
    let info: Json = serde_json::from_str(sharddb(["info", &default, "--json"]).expect(0).text()).unwrap();
    assert_eq!(info["shard_shape"], json!([64, 128, 128]));

    sharddb(["zarr", "pack", &packed, &place.text("x")]).expect_error(2, &["use reshard"]);
    sharddb(["zarr", "reshard", &source, &place.text("x")]).expect_error(2, &["use pack"]);
    sharddb(["zarr", "pack", &source, &packed]).expect_error(2, &["found something there"]);
    sharddb(["zarr", "pack", &source, &place.text("x"), "--shard-shape", "7,7,7"]).expect_error(2, &["divide"]);
    sharddb(["zarr", "pack", &source, &place.text("x"), "--chunk-shape", "1,1"]).expect_error(2, &["3 axes", "[1, 1]"]);
    assert!(!place.path("x").exists());
}

/// Chunks of another shape are decoded and encoded again; a round trip returns the same elements.
#[test]
fn chunks_are_cut_anew() {
    let place = Place::new();
    let (source, cut, back) = (common::data("zarr/unsharded.zarr"), place.text("cut"), place.text("back"));
    let shapes = |path: &str| -> Json {
        let info: Json = serde_json::from_str(sharddb(["info", path, "--json"]).expect(0).text()).unwrap();
        json!([info["chunk_shape"], info["shard_shape"]])
    };
    sharddb(["zarr", "pack", &source, &cut, "--chunk-shape", "5,9,40"]).expect(0);
    assert_eq!(shapes(&cut), json!([[5, 9, 40], [40, 72, 320]]));
    let again = ["zarr", "reshard", &cut, &back, "--chunk-shape", "8,16,16", "--shard-shape", "32,32,32"];
    sharddb(again).expect(0);
    assert_eq!(shapes(&back), json!([[8, 16, 16], [32, 32, 32]]));
    let keys = sharddb(["keys", &source]).expect(0);
    for key in keys.text().lines() {
        let decoded = |path: &str| sharddb(["get", path, key, "--decoded"]).expect(0).stdout;
        assert!(decoded(&source) == decoded(&back), "chunk {key}");
    }
    sharddb(["zarr", "reshard", &cut, &place.text("x"), "--chunk-shape", "7,7,7"]).expect_error(2, &["divide"]);
    sharddb(["zarr", "pack", &data("arrays/zp_2d_u16_nested.zarr"), &place.text("x")]).expect(2);
}

#[test]
fn what_is_imported_is_exported_as_it_was() {
    let place = Place::new();
    let (store, back) = (place.text("store"), place.text("back.zarr"));
    sharddb(["import", &plain(), &store]).expect(0);
    assert_eq!(sharddb(["keys", &store]).expect(0).text().lines().count(), 16);
    assert_eq!(sharddb(["get", &store, "3"]).expect(0).stdout, sharddb(["get", &plain(), "3"]).expect(0).stdout);
    sharddb(["verify", &store]).expect(0);
    sharddb(["export", &store, "--format", "zarr", "--output", &back]).expect(0);
    for file in ["zarr.json", "c/0", "c/1", "c/2", "c/3"] {
        let read = |array: &str| fs::read(Path::new(array).join(file)).unwrap();
        assert_eq!(read(&back), read(&plain()), "{file}");
    }
    sharddb(["import", &store, &place.text("again")]).expect(0);
    assert!(place.files("again/gen-0000000001") == place.files("store/gen-0000000001"));
    sharddb(["export", &store, "--format", "zarr"]).expect_error(2, &["--output"]);
}

#[test]
fn chunks_are_exported_like_pairs() {
    let place = Place::new();
    let chunks = place.text("chunks");
    sharddb(["export", &plain(), "--format", "dir", "--output", &chunks, "--decoded"]).expect(0);
    assert_eq!(fs::read(place.path("chunks/5")).unwrap(), sharddb(["get", &plain(), "5"]).expect(0).stdout);
    let keys = place.write("keys.txt", "5\n99\n");
    let some = sharddb(["export", &plain(), "--format", "ndjson", "--keys", &keys]).expect(1);
    assert_eq!(some.json_lines().len(), 1);
    assert!(some.stderr.contains("1 of the keys is absent: "));
}

#[test]
fn an_array_becomes_a_volume() {
    let place = Place::new();
    let (array, volume) = (data("arrays/ts_3d_u8_raw_end.zarr"), place.text("volume"));
    sharddb(["convert", "zarr-precomputed", &array, &volume, "--axes", "zyx", "--resolution", "8,8,40"]).expect(0);
    let chunks: Json =
        serde_json::from_slice(&fs::read(data("precomputed/ts_3d_u8_raw_end/expected.json")).unwrap()).unwrap();
    for chunk in chunks["chunks"].as_array().unwrap() {
        let at: Vec<_> = chunk["xyz"].as_array().unwrap().iter().map(Json::to_string).collect();
        let by_position = sharddb(["get", &volume, "--at", &at.join(",")]).expect(0).stdout;
        let by_key = sharddb(["get", &volume, &chunk["morton"].to_string()]).expect(0).stdout;
        assert_eq!(by_position, by_key);
        assert_eq!(by_key.len().to_string(), chunk["nbytes"].to_string());
    }
    let info: Json = serde_json::from_slice(&fs::read(place.path("volume/info")).unwrap()).unwrap();
    assert_eq!(info["scales"][0]["resolution"], json!([8, 8, 40]));
    let again = ["convert", "zarr-precomputed", &array, &place.text("x"), "--axes", "zyx", "--resolution"];
    sharddb([&again[..], &["8,8"]].concat()).expect_error(2, &["three numbers"]);
    sharddb([&again[..], &["8,8,-1"]].concat()).expect_error(2, &["above 0"]);
}

#[test]
fn what_is_broken_is_told_with_its_place() {
    let array = data("negative/neg_index_bit_flipped.zarr");
    sharddb(["get", &array, "0"]).expect_error(3, &["CRC-32C", "c/0", "key 0"]);
    let keys = sharddb(["keys", &array]).expect(3);
    assert!(!keys.stderr.is_empty());
    assert!(sharddb(["verify", &array]).expect(3).text().contains("[bad-shard-index]"));
    sharddb(["import", &array, &Place::new().text("store")]).expect_error(3, &["CRC-32C"]);
}

#[test]
fn verbs_that_want_a_database_say_so() {
    for args in [&["contains", &plain(), "1"][..], &["locate", &plain(), "1"], &["plan", &plain()]] {
        sharddb(args).expect_error(2, &["expected a database", "import"]);
    }
    sharddb(["get", &plain(), "1", "--preamble", "4"]).expect_error(2, &["--preamble is for databases"]);
    sharddb(["keys", &plain(), "--shard", "0"]).expect_error(2, &["--shard is for databases"]);
}

/// A copy of an array, with the metadata changed by `edit`.
fn copy_of(place: &Place, array: &str, edit: impl Fn(&mut Json)) -> String {
    let copy = place.text("copy.zarr");
    for entry in walk(Path::new(array)) {
        let name = entry.strip_prefix(array).unwrap();
        place.write(&format!("copy.zarr/{}", name.display()), fs::read(&entry).unwrap());
    }
    let mut metadata = serde_json::from_slice(&fs::read(place.path("copy.zarr/zarr.json")).unwrap()).unwrap();
    edit(&mut metadata);
    place.write("copy.zarr/zarr.json", metadata.to_string());
    copy
}

fn walk(directory: &Path) -> Vec<std::path::PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// The chunks of a gzip array are protected by the CRC-32 of gzip.
#[test]
fn import_and_export_decode_what_they_copy() {
    let place = Place::new();
    let array = copy_of(&place, &data("arrays/zp_2d_u16_gzip_start.zarr"), |_| {});
    let key = sharddb(["keys", &array]).expect(0).text().lines().next().unwrap().to_string();
    let located = sharddb(["get", &array, &key]).expect(0).stdout;
    let shard = walk(&place.path("copy.zarr/c")).into_iter().find_map(|path| {
        let bytes = fs::read(&path).unwrap();
        let at = bytes.windows(located.len()).position(|window| window == located)?;
        Some((path, bytes, at))
    });
    let (path, mut bytes, at) = shard.unwrap();
    bytes[at + located.len() - 8] ^= 1; // RFC 1952: the CRC-32 is the first half of the last eight bytes
    fs::write(path, bytes).unwrap();

    let store = place.text("store");
    sharddb(["import", &array, &store]).expect_error(3, &[&format!("key {key}")]);
    sharddb(["import", &array, &store, "--no-verify"]).expect(0);
    let all = sharddb(["keys", &array]).expect(0).text().lines().count();
    let run = sharddb(["export", &array, "--format", "ndjson"]).expect(3);
    assert_eq!(run.json_lines().len(), all - 1);
    assert!(run.stderr.contains(&format!("key {key}")), "{}", run.stderr);
    let run = sharddb(["export", &array, "--format", "ndjson", "--no-verify"]).expect(0);
    assert_eq!(run.json_lines().len(), all);
}

#[test]
fn an_array_may_have_an_attribute_of_any_name() {
    let place = Place::new();
    let spec = serde_json::from_str::<Json>(common::SHARDING).unwrap();
    let array =
        copy_of(&place, &plain(), |metadata| metadata["attributes"] = json!({"sharding": spec, "x": {"sharding": 1}}));
    let (store, again) = (place.text("store"), place.text("again.zarr"));
    sharddb(["import", &array, &store]).expect(0);
    let keys = |path: &str| sharddb(["keys", path]).expect(0).text().lines().count();
    assert_eq!(keys(&store), keys(&array));
    sharddb(["export", &store, "--format", "zarr", "--output", &again]).expect(0);
    let read = |path: &str| serde_json::from_slice::<Json>(&fs::read(place.path(path)).unwrap()).unwrap();
    assert_eq!(read("again.zarr/zarr.json")["attributes"], read("copy.zarr/zarr.json")["attributes"]);
}

#[test]
fn an_array_without_chunks_does_not_replace_one_with_chunks() {
    let place = Place::new();
    let store = place.text("store");
    sharddb(["import", &plain(), &store]).expect(0);
    fs::create_dir(place.path("empty.zarr")).unwrap();
    fs::copy(Path::new(&plain()).join("zarr.json"), place.path("empty.zarr/zarr.json")).unwrap();
    let empty = place.text("empty.zarr");
    sharddb(["import", &empty, &store]).expect_error(3, &["gen-0000000001 has", "--allow-empty"]);
    assert_ne!(sharddb(["keys", &store]).expect(0).text(), "");
    sharddb(["import", &empty, &store, "--allow-empty"]).expect(0);
    assert_eq!(sharddb(["keys", &store]).expect(0).text(), "");
    sharddb(["import", &empty, &store]).expect(0);
}

#[test]
fn an_array_is_not_imported_into_itself() {
    let place = Place::new();
    let array = copy_of(&place, &plain(), |_| {});
    let before = place.files("copy.zarr");
    for store in ["copy.zarr", "copy.zarr/store", "copy.zarr/c/x/y"] {
        sharddb(["import", &array, &place.text(store)]).expect_error(2, &["outside"]);
    }
    assert!(place.files("copy.zarr") == before);
}
