//! bcolz arrays, columns and bloscpack files work with the same subcommands as databases, and are copied byte for byte.

use std::fs;
use std::path::Path;

use crate::common::{self, Place, sharddb};
use serde_json::{Value as Json, json};
use sharddb_container::bcolz::{BcolzArray, BcolzOptions, BcolzWriter, RootdirLayout};

fn data(path: &str) -> String {
    common::data(&format!("bcolz/{path}"))
}

#[test]
fn they_answer_the_verbs_of_a_database() {
    for (path, format, keys) in [
        ("b121_i4_setitem", "bcolz", 12),
        ("b121_ctable/price", "bcolz", 1),
        ("rfc_flat_i4", "bcolz", 6),
        ("rfc_nested_cols/col2", "bcolz", 6),
        ("bloscpack/maxapp_20.blp", "bloscpack", 6),
    ] {
        let path = data(path);
        assert_eq!(sharddb(["keys", &path]).expect(0).text().lines().count(), keys, "{path}");
        let info: Json = serde_json::from_str(sharddb(["info", &path, "--json"]).expect(0).text()).unwrap();
        assert_eq!((&info["format"], &info["keys"]), (&json!(format), &json!(keys)), "{path}");
        let encoded = sharddb(["get", &path, "0"]).expect(0).stdout;
        let decoded = sharddb(["get", &path, "0", "--decoded"]).expect(0).stdout;
        assert!(encoded.len() < decoded.len(), "{path}");
        sharddb(["get", &path, "99"]).expect(1);
    }
    sharddb(["verify", &data("b121_i4_setitem")]).expect(0);
    sharddb(["verify", &data("bloscpack/cs_md5.blp")]).expect(0);
}

/// The keys number the chunks of a column; without a column, subcommands report about all columns.
#[test]
fn tables_answer_by_column() {
    let place = Place::new();
    for (table, column, chunks, others) in [("b121_ctable", "price", 1, "id"), ("rfc_nested_cols", "col2", 6, "col1")] {
        let (table, alone) = (data(table), data(&format!("{table}/{column}")));
        let same = |verb: &str, more: &[&str]| {
            let of_table = sharddb([&[verb, &table, "--column", column], more].concat()).expect(0).stdout;
            assert!(of_table == sharddb([&[verb, &alone], more].concat()).expect(0).stdout, "{verb} {table}");
            of_table
        };
        assert_eq!(String::from_utf8(same("keys", &[])).unwrap().lines().count(), chunks);
        assert!(!same("get", &["0"]).is_empty());
        same("get", &["0", "--decoded"]);
        same("info", &["--json"]);
        same("export", &["--format", "ndjson"]);
        let list = place.text("keys.txt");
        fs::write(&list, "0\n99\n").unwrap();
        assert!(same("get-many", &["--keys", &list]).ends_with(b"{\"key\":\"99\",\"absent\":true}\n"));
        let store = place.text(column);
        sharddb(["import", &table, &store, "--column", column]).expect(0);
        assert_eq!(sharddb(["keys", &store]).expect(0).text().lines().count(), chunks);

        for args in [&["keys", &table][..], &["get", &table, "0"], &["export", &table, "--format", "bin"]] {
            sharddb(args).expect_error(2, &["--column", column, others]);
        }
        sharddb(["keys", &table, "--column", "absent"]).expect_error(2, &[column, others, "\"absent\""]);
    }
    sharddb(["keys", &data("b121_i4_setitem"), "--column", "price"]).expect_error(2, &["bcolz tables"]);
}

/// Containers have no shards and minishards, so files and chunks are counted.
#[test]
fn verify_counts_chunks_and_files() {
    let totals = |args: &[&str]| -> Json {
        let json = sharddb([&["verify", "--json"], args].concat()).expect(0).stdout;
        let mut totals: Json = serde_json::from_slice(&json).unwrap();
        let kept = ["files", "chunks", "chunk_bytes", "shards", "minishards", "keys"];
        totals.as_object_mut().unwrap().retain(|name, _| kept.contains(&name.as_str()));
        totals
    };
    let stored = |path: &str| -> u64 {
        let lens = sharddb(["export", path, "--format", "bin"]).expect(0).stdout;
        let keys = sharddb(["keys", path]).expect(0).text().lines().count() as u64;
        lens.len() as u64 - 16 * keys // the keys and lengths
    };
    for (path, files, chunks) in [("b121_i4_setitem", 12, 12), ("rfc_flat_i4", 2, 6), ("bloscpack/cs_md5.blp", 1, 6)] {
        let path = data(path);
        assert_eq!(totals(&[&path]), json!({"files": files, "chunks": chunks, "chunk_bytes": stored(&path)}), "{path}");
        let words = sharddb(["verify", &path]).expect(0).stderr;
        let digits = words.replace(',', "");
        let plural = |number: u64| if number == 1 { "" } else { "s" };
        let expected = format!(
            "{files} file{} {chunks} chunk{} {} bytes of chunks: 0 errors",
            plural(files),
            plural(chunks),
            stored(&path)
        );
        assert!(digits.contains(&expected), "{words}");
    }
    let table = data("b121_ctable");
    let columns = ["id", "price", "name"].map(|name| totals(&[&table, "--column", name]));
    let sum = |count: &str| columns.iter().map(|column| column[count].as_u64().unwrap()).sum::<u64>();
    let expected = json!({"files": sum("files"), "chunks": sum("chunks"), "chunk_bytes": sum("chunk_bytes")});
    assert_eq!(totals(&[&table]), expected);
    assert_eq!(expected["files"], 3);
}

#[test]
fn info_of_a_table_lists_its_columns() {
    let table = |name: &str| -> Json {
        let mut table: Json = serde_json::from_str(sharddb(["info", &data(name), "--json"]).expect(0).text()).unwrap();
        assert_eq!(table.as_object_mut().unwrap().remove("path"), Some(json!(data(name))));
        table
    };
    let column = |name: &str, dtype: &str, rows: u64, chunk_rows: u64, keys: u64| json!({"name": name, "dtype": dtype, "shape": [rows], "rows": rows, "chunk_rows": chunk_rows, "keys": keys});
    let columns = [
        column("id", "int32", 5000, 32768, 1),
        column("price", "float64", 5000, 16384, 1),
        column("name", "|S4", 5000, 32768, 1),
    ];
    let shipped = json!({"format": "bcolz", "kind": "table", "layout": "shipped", "rows": 5000, "columns": columns});
    assert_eq!(table("b121_ctable"), shipped);
    let columns = [column("col1", "int32", 4096, 1024, 4), column("col2", "int32", 5904, 1024, 6)];
    let nested = json!({"format": "bcolz", "kind": "table", "layout": "superchunks", "rows": 4096, "columns": columns});
    assert_eq!(table("rfc_nested_cols"), nested);

    let text = sharddb(["info", &data("b121_ctable")]).expect(0);
    for words in [["kind", "table"], ["price", "float64"]] {
        let has = |line: &str| line.split_whitespace().take(2).eq(words);
        assert!(text.text().lines().any(has), "{words:?} in {}", text.text());
    }
    let plot = Place::new().text("plot.svg");
    sharddb(["info", &data("b121_ctable"), "--plot", &plot]).expect_error(2, &["--plot"]);
}

#[test]
fn what_needs_a_database_says_how_to_make_one() {
    let array = data("b121_i4_setitem");
    let import = format!("sharddb import {array} STORE");
    for args in [vec!["contains", &array, "0"], vec!["locate", &array, "0"], vec!["plan", &array]] {
        sharddb(args).expect_error(2, &[&import]);
    }
}

#[test]
fn an_import_is_given_back_byte_for_byte() {
    let place = Place::new();
    for path in ["b121_i4_setitem", "rfc_flat_i4"] {
        let (source, store, again) = (data(path), place.text(&format!("{path}-store")), place.text(path));
        sharddb(["import", &source, &store]).expect(0);
        sharddb(["export", &store, "--format", "bcolz", "--output", &again]).expect(0);
        for entry in fs::read_dir(Path::new(&source).join("data")).unwrap().map(|entry| entry.unwrap().path()) {
            let same = Path::new(&again).join("data").join(entry.file_name().unwrap());
            assert!(fs::read(&entry).unwrap() == fs::read(same).unwrap(), "{}", entry.display());
        }
        let shape = |path: &str| -> Json {
            let text = sharddb(["info", path, "--json"]).expect(0).stdout;
            serde_json::from_slice::<Json>(&text).unwrap()["shape"].clone()
        };
        assert_eq!(shape(&source), shape(&again));
        sharddb(["export", &store, "--format", "bcolz", "--output", &again]).expect_error(2, &["nothing here yet"]);
        sharddb(["export", &store, "--format", "zarr", "--output", &place.text("zarr")]).expect(2);
    }
    let (store, again) = (place.text("file-store"), place.text("again.blp"));
    sharddb(["import", &data("bloscpack/maxapp_20.blp"), &store]).expect(0);
    sharddb(["export", &store, "--format", "bcolz", "--output", &again]).expect(0);
    assert!(fs::read(data("bloscpack/maxapp_20.blp")).unwrap() == fs::read(&again).unwrap());
}

/// Rows that an unfinished append left after the committed rows are not imported.
#[test]
fn an_array_with_an_unfinished_append_is_imported_as_it_shows() {
    let place = Place::new();
    let numbers = |count: u32| -> Vec<u8> { (0..count).flat_map(u32::to_le_bytes).collect() };
    for layout in [RootdirLayout::Shipped, RootdirLayout::Superchunks] {
        let root = |name: &str| place.path(&format!("{}-{name}", layout.as_str()));
        let source = root("source");
        let mut options = BcolzOptions::new();
        options.layout(layout).chunk_rows(100).superchunk_chunks(4);
        let mut writer = options.create_array(&source, "int32", &[]).unwrap();
        writer.append(&numbers(250)).unwrap();
        let sizes = fs::read(source.join("meta/sizes")).unwrap();
        writer.append(&numbers(500)).unwrap();
        fs::write(source.join("meta/sizes"), sizes).unwrap();

        let text = |path: &Path| path.to_str().unwrap().to_string();
        let (store, again) = (root("store"), root("again"));
        sharddb(["import", &text(&source), &text(&store)]).expect(0);
        sharddb(["export", &text(&store), "--format", "bcolz", "--output", &text(&again)]).expect(0);
        let array = BcolzArray::open(&again).unwrap();
        assert_eq!((array.rows(), array.nchunks()), (250, 3));
        assert_eq!(array.read_rows(0..250).unwrap(), numbers(250));
        BcolzWriter::open(&again).unwrap().append(&numbers(500)).unwrap();
        sharddb(["verify", &text(&again)]).expect(0);
    }
}

#[test]
fn a_column_becomes_a_zarr_array() {
    let place = Place::new();
    let out = place.text("price.zarr");
    let args = ["convert", "bcolz-zarr", &data("rfc_flat_i4"), &out, "--shard-chunks", "2"];
    assert!(sharddb(args).expect(0).stderr.contains("6 chunks"));
    assert_eq!(sharddb(["keys", &out]).expect(0).text().lines().count(), 6);
    sharddb(args).expect(2);
}
