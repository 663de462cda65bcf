//! Arrays and tables of other formats: what the options of `zarr`, `convert`, `info`, `verify` and `salvage` do.

use super::transcript;
use crate::common::{Place, SHARDING, foreign_shard, sharddb};

/// The shapes that `info` prints are those of the options.
#[test]
fn an_array_is_packed_resharded_and_unpacked() {
    let place = Place::new();
    place.copy("zarr/unsharded.zarr", "files.zarr");
    transcript(&place, "zarr-pack", &["zarr", "pack", "files.zarr", "packed.zarr", "--shard-shape", "32,64,64"]);
    transcript(&place, "zarr-pack-info", &["info", "packed.zarr"]);
    let smaller = ["zarr", "pack", "files.zarr", "small.zarr", "--chunk-shape", "4,16,16", "--index-location", "start"];
    transcript(&place, "zarr-pack-chunk-shape", &smaller);
    transcript(&place, "zarr-pack-chunk-shape-info", &["info", "small.zarr"]);
    let shape = ["--shard-shape", "16,32,64", "--index-location", "start"];
    transcript(&place, "zarr-reshard", &[&["zarr", "reshard", "packed.zarr", "again.zarr"], &shape[..]].concat());
    transcript(&place, "zarr-reshard-info", &["info", "again.zarr"]);
    let chunks = ["zarr", "reshard", "packed.zarr", "cut.zarr", "--chunk-shape", "8,32,32"];
    transcript(&place, "zarr-reshard-chunk-shape", &chunks);
    transcript(&place, "zarr-reshard-chunk-shape-info", &["info", "cut.zarr"]);
    transcript(&place, "zarr-unpack", &["zarr", "unpack", "packed.zarr", "unpacked.zarr"]);
    transcript(&place, "zarr-pack-of-shards", &["zarr", "pack", "packed.zarr", "twice.zarr"]);
    transcript(&place, "zarr-unfit-shape", &["zarr", "pack", "files.zarr", "unfit.zarr", "--shard-shape", "33,64,64"]);
}

const VOLUME_INFO: &str = r#"{
  "@type": "neuroglancer_multiscale_volume",
  "type": "segmentation",
  "data_type": "uint16",
  "num_channels": 1,
  "scales": [{"key": "s0", "size": [60, 70, 50], "resolution": [8, 8, 40], "voxel_offset": [0, 0, 0], "chunk_sizes": [[16, 16, 8]], "encoding": "raw", "sharding": {"@type": "neuroglancer_uint64_sharded_v1", "preshift_bits": 3, "hash": "identity", "minishard_bits": 5, "shard_bits": 0, "minishard_index_encoding": "raw", "data_encoding": "raw"}}]
}
"#;

/// The info of the volume has the resolution, the type and the sharding of the options.
#[test]
fn an_array_becomes_a_volume() {
    let place = Place::new();
    place.copy("zarr/unsharded.zarr", "array.zarr");
    let convert = ["convert", "zarr-precomputed", "array.zarr"];
    let options = ["--axes", "zyx", "--resolution", "8,8,40", "--segmentation"];
    transcript(&place, "convert-volume", &[&convert, &["volume"][..], &options].concat());
    let info = std::fs::read_to_string(place.path("volume/info")).unwrap();
    assert_eq!(info, VOLUME_INFO);
    let own = ["bare", "--axes", "xyz", "--sharding", SHARDING];
    transcript(&place, "convert-volume-sharding", &[&convert[..], &own].concat());
    transcript(&place, "convert-volume-sharding-info", &["info", "bare"]);
    transcript(&place, "convert-volume-wrong-axes", &[&convert[..], &["wrong", "--axes", "xy"]].concat());
    place.copy("zarr/arrays/rs_2d_f32_blosc.zarr", "float.zarr");
    let floats = ["convert", "zarr-precomputed", "float.zarr", "segments", "--axes", "xy", "--segmentation"];
    transcript(&place, "convert-volume-of-floats", &floats);
}

#[test]
fn a_table_is_opened_by_column() {
    let place = Place::new();
    place.copy("bcolz/b121_ctable", "trades");
    transcript(&place, "table-info", &["info", "trades"]);
    let info = sharddb(["info", &place.text("trades"), "--json"]).expect(0).json_lines().remove(0);
    let column = info["columns"][0]["name"].as_str().unwrap();
    transcript(&place, "table-info-column", &["info", "trades", "--column", column]);
    transcript(&place, "table-verify", &["verify", "trades"]);
    transcript(&place, "table-verify-column", &["verify", "trades", "--column", column]);
    transcript(&place, "table-keys-without-column", &["keys", "trades"]);
    let source = format!("trades/{column}");
    let convert = ["convert", "bcolz-zarr", &source, "column.zarr", "--shard-chunks", "2"];
    transcript(&place, "convert-column", &convert);
    transcript(&place, "convert-column-info", &["info", "column.zarr"]);
}

#[test]
fn a_salvage_opens_what_has_no_info() {
    let place = Place::new();
    place.write("bare/0.shard", foreign_shard());
    transcript(&place, "salvage-sharding", &["salvage", "bare", "saved", "--sharding", SHARDING]);
    place.write("nested/info", format!("{{\"scales\": [{{\"key\": \"s0\", \"sharding\": {SHARDING}}}]}}"));
    place.write("nested/s0/0.shard", foreign_shard());
    transcript(&place, "salvage-sharding-at", &["salvage", "nested", "saved2", "--sharding-at", "/scales/0"]);
    let capped = ["salvage", "bare", "saved3", "--sharding", SHARDING, "--max-value", "2", "--memory", "16MiB"];
    transcript(&place, "salvage-max-value", &capped);
}

#[test]
fn a_plan_reads_columns_of_csv() {
    let place = Place::new();
    place.write("rows.csv", "id,name\n1,one\n2,two\n3,three\n");
    let columns = ["plan", "--input", "rows.csv", "--key-column", "id", "--value-column", "name"];
    transcript(&place, "plan-csv", &columns);
    transcript(&place, "plan-csv-wrong-column", &["plan", "--input", "rows.csv", "--key-column", "number"]);
    place.write("plain.csv", "1,one\n2,two\n");
    transcript(&place, "plan-csv-no-header", &["plan", "--input", "plain.csv", "--no-header"]);
}

#[test]
fn a_build_is_printed_as_json() {
    let place = Place::new();
    place.write("in.ndjson", "{\"key\": 1, \"text\": \"one\"}\n");
    transcript(&place, "build-json", &["build", "numbers", "--input", "in.ndjson", "--json"]);
}
