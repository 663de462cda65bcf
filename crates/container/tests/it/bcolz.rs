//! Every array and table that bcolz wrote, and the layout of its RFC, is read completely. Broken data is an error with
//! its file, its chunk and the reason.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::{self, TempDir, data, json, name, number, sha256, text};
use serde_json::Value as Json;
use sharddb::verify::VerifyReport;
use sharddb::{Error, ErrorKind, Result, VerifyLevel};
use sharddb_container::bcolz::{BcolzArray, BcolzTable, BcolzWriter, ByteOrder, Order, RootdirLayout};
use sharddb_container::bloscpack::Bloscpack;
use sharddb_container::{Container, ContainerOptions, Form, KeySpace};

/// The arrays that bcolz 1.2.1 (`b121`) and bcolz-zipline (`bz`) wrote, the columns of their table included.
fn arrays() -> Vec<(PathBuf, Json)> {
    let mut arrays: Vec<PathBuf> = common::sets("bcolz");
    arrays.extend(common::sets("bcolz/b121_ctable"));
    arrays.retain(|path| path.join("expected.json").exists() && !name(path).starts_with("rfc"));
    assert_eq!(arrays.len(), 50);
    arrays.into_iter().map(|path| (path.clone(), json(&path.join("expected.json")))).collect()
}

fn check_chunks(array: &BcolzArray, expected: &Json, what: &str) {
    for chunk in expected.as_array().unwrap() {
        let key = number(&chunk["key"]);
        let encoded = array.get(key, Form::Encoded).unwrap().unwrap();
        assert_eq!(sha256(&encoded), text(&chunk["encoded_sha256"]), "{what}, chunk {key}");
        let decoded = array.get(key, Form::Decoded).unwrap().unwrap();
        assert_eq!(decoded.len() as u64, number(&chunk["decoded_nbytes"]), "{what}, chunk {key}");
        assert_eq!(sha256(&decoded), text(&chunk["decoded_sha256"]), "{what}, chunk {key}");
        let location = array.locate(key).unwrap().unwrap();
        assert_eq!((location.range.start, location.stored_len()), (number(&chunk["offset"]), number(&chunk["nbytes"])));
        assert!(location.path.ends_with(text(&chunk["file"])));
    }
    let keys: Vec<u64> = array.keys().map(Result::unwrap).collect();
    assert_eq!(keys.len(), expected.as_array().unwrap().len(), "{what}");
    assert!(array.get(array.nchunks(), Form::Decoded).unwrap().is_none());
    assert!(array.get(u64::MAX, Form::Encoded).unwrap().is_none());
    assert!(array.locate(u64::MAX).unwrap().is_none());
    assert_eq!(array.key_space(), KeySpace::Linear { grid: vec![array.nchunks()] });
}

#[test]
fn every_array_reads_back_whole() {
    for (path, expected) in arrays() {
        for loaded in [false, true] {
            let mut options = ContainerOptions::new();
            if loaded {
                options.load();
            }
            let array = BcolzArray::open_with(&path, &options).unwrap();
            assert_eq!(array.layout(), RootdirLayout::Shipped);
            assert_eq!(array.dtype(), text(&expected["dtype"]));
            assert_eq!(array.shape(), expected["shape"].as_array().unwrap().iter().map(number).collect::<Vec<_>>());
            check_chunks(&array, &expected["chunks"], name(&path));
            if let Some(whole) = expected["concat_decoded_sha256"].as_str() {
                assert_eq!(sha256(&array.read_rows(0..array.rows()).unwrap()), whole, "{}", name(&path));
            }
            let report = array.verify(VerifyLevel::Data).unwrap();
            assert!(report.is_clean() && report.findings().is_empty(), "{}: {:?}", name(&path), report.findings());
            let described: Json = serde_json::from_str(&array.describe()).unwrap();
            assert_eq!((&described["format"], &described["layout"]), (&"bcolz".into(), &"shipped".into()));
            assert_eq!(described["storage"]["cparams"], expected["cparams"]);
        }
    }
}

#[test]
fn types_tell_width_and_byte_order() {
    for (of, row_bytes, byte_order) in [
        ("b121_f4_bigendian", 4, ByteOrder::Big),
        ("b121_S5", 5, ByteOrder::Little),
        ("b121_U4", 16, ByteOrder::Little),
        ("b121_bool", 1, ByteOrder::Little),
        ("b121_struct", 12, ByteOrder::Little), // bcolz itself does not know its width
        ("b121_object", 0, ByteOrder::Little),
    ] {
        let array = BcolzArray::open(data("bcolz").join(of)).unwrap();
        assert_eq!((array.row_bytes(), array.byte_order()), (row_bytes, byte_order), "{of}");
    }
}

#[test]
fn ranges_of_rows_are_parts_of_the_whole() {
    for of in ["b121_i4_setitem", "b121_f8_zstd_shuffle2", "bz_i8_trimmed", "rfc_flat_i4"] {
        let array = BcolzArray::open(data("bcolz").join(of)).unwrap();
        let (rows, width) = (array.rows(), array.row_bytes() as usize);
        let whole = array.read_rows(0..rows).unwrap();
        assert_eq!(whole.len(), rows as usize * width);
        let chunk = array.chunk_rows();
        let edges = [0, 1, chunk - 1, chunk, chunk + 1, 2 * chunk, rows - 1, rows];
        for start in edges {
            for end in edges.into_iter().filter(|end| *end >= start) {
                let expected = &whole[start as usize * width..end as usize * width];
                assert_eq!(array.read_rows(start..end).unwrap(), expected, "{of}, {start}..{end}");
            }
        }
        for (start, end) in [(0, rows + 1), (5, 4), (u64::MAX - 1, u64::MAX)] {
            assert_eq!(array.read_rows(start..end).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
    let objects = BcolzArray::open(data("bcolz/b121_object")).unwrap();
    assert_eq!(objects.read_rows(0..1).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(objects.nchunks(), 3, "one chunk an object");
}

#[test]
fn a_table_has_its_columns_and_attributes() {
    let table = BcolzTable::open(data("bcolz/b121_ctable")).unwrap();
    assert_eq!(table.columns().map(|(name, _)| name).collect::<Vec<_>>(), ["id", "price", "name"]);
    assert_eq!((table.layout(), table.rows()), (RootdirLayout::Shipped, 5000));
    assert_eq!(table.attributes().unwrap().get("src").unwrap(), "\"bcolz 1.2.1\"");
    assert_eq!(table.column("price").unwrap().dtype(), "float64");
    assert!(table.column("none").is_none());
    let error = table.into_column("none").map(drop).unwrap_err();
    assert!(error.message().contains("id, price, name"), "{error}");
    for (opened, words) in [
        (BcolzArray::open(data("bcolz/b121_ctable")).map(drop), "found a table"),
        (BcolzArray::open(data("bcolz/rfc_nested_cols")).map(drop), "found a table"),
        (BcolzTable::open(data("bcolz/b121_S5")).map(drop), "found an array"),
    ] {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains(words), "{error}");
    }
}

#[test]
fn a_column_is_an_array_by_the_path_of_its_table() {
    for (path, dtype) in [("b121_ctable/name", "|S4"), ("rfc_nested_cols/col2", "int32")] {
        let path = data("bcolz").join(path);
        assert!(BcolzArray::is_at(&path).unwrap() && !BcolzTable::is_at(&path).unwrap());
        assert_eq!(BcolzArray::open(&path).unwrap().dtype(), dtype);
    }
    for table in ["b121_ctable", "rfc_nested_cols"] {
        assert!(BcolzTable::is_at(data("bcolz").join(table)).unwrap());
    }
    assert!(BcolzArray::open(data("bcolz/rfc_nested_cols/col3")).is_err());
    assert!(!BcolzArray::is_at(data("bcolz")).unwrap() && !BcolzTable::is_at(data("bcolz/rfc_flat_i4")).unwrap());
    assert!(Bloscpack::is_at(data("bcolz/bloscpack/tiny.blp")).unwrap() && !Bloscpack::is_at(data("bcolz")).unwrap());
}

#[test]
fn the_layout_of_the_rfc_reads_back_whole() {
    let root = data("bcolz/rfc_flat_i4");
    let array = BcolzArray::open(&root).unwrap();
    assert_eq!((array.layout(), array.rows(), array.chunk_rows()), (RootdirLayout::Superchunks, 12_000, 2048));
    assert_eq!((array.byte_order(), array.order()), (ByteOrder::Little, Order::C));
    check_chunks(&array, &json(&root.join("expected.json"))["columns"][""], "rfc_flat_i4");
    assert!(array.verify(VerifyLevel::Data).unwrap().findings().is_empty());
    let attributes = array.attributes().unwrap();
    assert_eq!(attributes.names().collect::<Vec<_>>(), ["ids", "temperature"]);
    assert_eq!(attributes.get("ids").unwrap(), r#"{"dtype":"int32","type":"array","value":[1,3,6,10]}"#);

    let root = data("bcolz/rfc_nested_cols");
    let table = BcolzTable::open(&root).unwrap();
    let expected = json(&root.join("expected.json"));
    assert_eq!((table.layout(), table.columns().count()), (RootdirLayout::Superchunks, 2));
    for (name, column) in table.columns() {
        check_chunks(column, &expected["columns"][name], name);
        assert_eq!(column.read_rows(0..column.rows()).unwrap().len() as u64, column.rows() * 4);
    }
    assert_eq!(table.attributes().unwrap().names().count(), 2);
}

/// An array whose attributes cannot be read is not imported without them.
#[test]
fn damaged_attributes_are_an_error() {
    for (set, file) in [("b121_i4_setitem", "__attrs__"), ("rfc_flat_i4", "meta/attributes")] {
        let scratch = copy_of(set);
        let array = BcolzArray::open(scratch.path()).unwrap();
        fs::write(scratch.path().join(file), "{\"answer\": ").unwrap();
        check_attributes(
            array.preserved().unwrap_err(),
            ErrorKind::InvalidSpec,
            &array.verify(VerifyLevel::Data).unwrap(),
        );
        fs::remove_file(scratch.path().join(file)).unwrap();
        fs::create_dir(scratch.path().join(file)).unwrap();
        check_attributes(array.preserved().unwrap_err(), ErrorKind::Io, &array.verify(VerifyLevel::Structure).unwrap());
    }
    let scratch = copy_of("b121_ctable");
    fs::write(scratch.path().join("__attrs__"), "[1]").unwrap();
    let table = BcolzTable::open(scratch.path()).unwrap();
    check_attributes(
        table.attributes().unwrap_err(),
        ErrorKind::InvalidSpec,
        &table.verify(VerifyLevel::Data).unwrap(),
    );
}

fn check_attributes(error: Error, kind: ErrorKind, report: &VerifyReport) {
    assert_eq!(error.kind(), kind, "{error}");
    let [finding] = report.findings() else { panic!("expected one finding, found {:?}", report.findings()) };
    assert_eq!(finding.kind().as_str(), "unreadable-file");
    assert_eq!(finding.error().path(), error.path());
}

#[test]
fn chunks_that_cut_rows_are_read_as_chunks_only() {
    // 12,000 numbers as rows of eight, which stay whole if the chunk shape has one dimension, or two of which the last
    // is 8
    for (chunk_shape, is_cut) in [("256", false), ("256, 8", false), ("512, 4", true), ("256, 8, 1", true)] {
        let scratch = copy_of("rfc_flat_i4");
        edit(&scratch.path().join("meta/sizes"), "(12000,)", "(1500, 8)");
        edit(&scratch.path().join("meta/storage"), "(2048,)", &format!("({chunk_shape})"));
        let array = BcolzArray::open(scratch.path()).unwrap();
        assert_eq!((array.shape(), array.row_bytes()), (vec![1500, 8], 32), "{chunk_shape}");
        let expected = json(&data("bcolz/rfc_flat_i4/expected.json"));
        check_chunks(&array, &expected["columns"][""], chunk_shape);
        assert!(array.verify(VerifyLevel::Data).unwrap().findings().is_empty(), "{chunk_shape}");
        let (rows, writer) = (array.read_rows(0..1500), BcolzWriter::open(scratch.path()));
        if !is_cut {
            assert_eq!((rows.unwrap().len(), writer.is_ok()), (48_000, true), "{chunk_shape}");
            continue;
        }
        for error in [rows.unwrap_err(), array.read_rows(0..0).unwrap_err(), writer.map(drop).unwrap_err()] {
            assert_eq!(error.kind(), ErrorKind::Unsupported, "{chunk_shape}: {error}");
            assert!(error.message().contains("\"chunkshape\""), "{error}");
            assert!(error.path().unwrap().ends_with("meta/storage"), "{error}");
        }
    }
}

/// A copy of a data set that a test may break.
fn copy_of(set: &str) -> TempDir {
    TempDir::copy_of(&data("bcolz").join(set))
}

fn edit(path: &Path, from: &str, to: &str) {
    let before = fs::read_to_string(path).unwrap();
    assert!(before.contains(from), "{before}");
    fs::write(path, before.replacen(from, to, 1)).unwrap();
}

#[test]
fn meta_files_that_do_not_say_what_they_must_are_refused() {
    for (file, from, to, words) in [
        ("sizes", "[3000]", "[3001]", "the bytes of 3001 rows of 4 bytes"),
        ("sizes", "[3000]", "[-3000]", "natural numbers for \"shape\""),
        ("sizes", "[3000]", "[]", "one or more dimensions"),
        ("sizes", "[3000]", "[3000, 99999999999]", "rows below 2 GiB"),
        ("sizes", "[3000]", "\"3000\"", "natural numbers"),
        ("sizes", "12000", "12001", "for \"nbytes\""),
        ("sizes", "{", "[", "',' or ']'"),
        ("storage", "int32", "int33", "a type of NumPy"),
        ("storage", "int32", "int64", "the bytes of 3000 rows of 8 bytes"),
        ("storage", "\"int32\"", "5", "the name of a type"),
        ("storage", "256", "0", "from 1 to 2^31 - 1 rows"),
        ("storage", "256", "2.5", "a natural number for \"chunklen\""),
        ("storage", "chunklen", "chunklem", "either \"chunklen\" or \"chunkshape\""),
        ("storage", "}", "", "expected JSON"),
    ] {
        let scratch = copy_of("b121_i4_setitem");
        edit(&scratch.path().join("meta").join(file), from, to);
        let error = BcolzArray::open(scratch.path()).map(drop).unwrap_err();
        assert!(error.message().contains(words), "{from} -> {to}: {error}");
        assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
        assert!(error.path().unwrap().starts_with(scratch.path().join("meta")), "{error}");
    }
    for (from, to, words) in [
        ("little", "middle", "\"little\" or \"big\""),
        ("order: C", "order: D", "\"C\" or \"F\""),
        ("(2048,)", "(0,)", "from 1 to 2^31 - 1 rows"),
        ("int32", "object", "a known width"),
        ("int32", "[1, 2]", "the name of a type"),
    ] {
        let scratch = copy_of("rfc_flat_i4");
        edit(&scratch.path().join("meta/storage"), from, to);
        let error = BcolzArray::open(scratch.path()).map(drop).unwrap_err();
        assert!(error.message().contains(words), "{from} -> {to}: {error}");
    }
}

#[test]
fn names_of_columns_do_not_lead_out_of_the_table() {
    for to in ["..", "../b121_S5", "/etc", "a/b", ""] {
        let scratch = copy_of("b121_ctable");
        edit(&scratch.path().join("__rootdirs__"), "\"price\"", &format!("\"{to}\""));
        let error = BcolzTable::open(scratch.path()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{to}: {error}");
        assert!(error.message().contains("within the table"), "{error}");
        let scratch = copy_of("rfc_nested_cols");
        edit(&scratch.path().join("meta/storage"), "  col1:", &format!("  '{to}':"));
        let error = BcolzTable::open(scratch.path()).map(drop).unwrap_err();
        assert!(error.message().contains("within the table"), "{to}: {error}");
    }
}

#[test]
fn a_column_named_more_than_once_is_an_error() {
    let scratch = copy_of("b121_ctable");
    edit(&scratch.path().join("__rootdirs__"), "\"price\"", "\"id\"");
    let error = BcolzTable::open(scratch.path()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.message().contains("found \"id\" more than once"), "{error}");
    assert!(error.path().unwrap().ends_with("__rootdirs__"), "{error}");
}

#[test]
fn a_missing_or_broken_chunk_is_an_error_for_itself_alone() {
    let scratch = copy_of("b121_i4_setitem");
    fs::remove_file(scratch.path().join("data/__3.blp")).unwrap();
    fs::write(scratch.path().join("data/__5.blp"), "blpk").unwrap();
    let mut flipped = fs::read(scratch.path().join("data/__7.blp")).unwrap();
    flipped[16 + 4] ^= 8; // nbytes of the Blosc header
    fs::write(scratch.path().join("data/__7.blp"), flipped).unwrap();
    fs::copy(scratch.path().join("data/__11.blp"), scratch.path().join("data/__8.blp")).unwrap();
    fs::copy(scratch.path().join("data/__2.blp"), scratch.path().join("data/__12.blp")).unwrap();

    let array = BcolzArray::open(scratch.path()).unwrap();
    for (key, words) in [(3, "no file"), (5, "bloscpack header"), (7, "Blosc"), (8, "1024 decoded bytes")] {
        let error = array.get(key, Form::Decoded).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::Corrupt, Some(key)), "{error}");
        assert!(error.message().contains(words), "{error}");
        assert_eq!(name(error.path().unwrap()), format!("__{key}.blp"));
    }
    for key in [0, 1, 2, 4, 6, 9, 10, 11] {
        assert!(array.get(key, Form::Decoded).is_ok(), "chunk {key}");
    }
    assert!(array.get(12, Form::Decoded).unwrap().is_none(), "a file beyond the sizes");
    assert!(array.read_rows(0..1000).is_err());
    assert_eq!(array.read_rows(0..256).unwrap().len(), 1024);
    let keys: Vec<_> = array.keys().collect();
    assert_eq!(
        (keys.iter().filter(|key| key.is_ok()).count(), keys.iter().filter(|key| key.is_err()).count()),
        (11, 1)
    );
    let report = array.verify(VerifyLevel::Data).unwrap();
    let mut found: Vec<_> = report.findings().iter().map(|finding| (finding.kind().as_str(), finding.key())).collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            ("bad-value", Some(7)),
            ("missing-shard", Some(3)),
            ("unlisted-shard", None),
            ("unreadable-shard", Some(5)),
            ("wrong-count", Some(7)),
            ("wrong-count", Some(8)),
        ]
    );
}

#[test]
fn a_superchunk_that_is_missing_is_an_error_at_open() {
    let scratch = copy_of("rfc_flat_i4");
    fs::remove_file(scratch.path().join("data/__1__.bin")).unwrap();
    let error = BcolzArray::open(scratch.path()).map(drop).unwrap_err();
    assert!(error.message().contains("found number 2 next"), "{error}");
    assert_eq!(name(error.path().unwrap()), "__1__.bin");
}

#[test]
fn sizes_that_no_disk_could_hold_cost_nothing() {
    let scratch = copy_of("b121_u1_random_incompressible");
    let sizes = format!("{{\"shape\": [{0}], \"nbytes\": {0}, \"cbytes\": 0}}", u64::MAX / 2);
    fs::write(scratch.path().join("meta/sizes"), sizes).unwrap();
    let array = BcolzArray::open(scratch.path()).unwrap();
    assert_eq!(array.keys().filter(|key| key.is_err()).count(), 1);
    assert_eq!(array.read_rows(0..array.rows()).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(array.get(array.nchunks() - 1, Form::Encoded).unwrap_err().kind(), ErrorKind::Corrupt);
    assert!(!array.verify(VerifyLevel::Data).unwrap().is_clean());
}

#[test]
fn nothing_is_decoded_past_the_cap() {
    let mut options = ContainerOptions::new();
    options.max_chunk_bytes(1000);
    for of in ["b121_i4_setitem", "rfc_flat_i4"] {
        let array = BcolzArray::open_with(data("bcolz").join(of), &options).unwrap();
        let error = array.get(0, Form::Decoded).unwrap_err();
        assert_eq!((error.kind(), error.key()), (ErrorKind::TooLarge, Some(0)), "{error}");
        assert!(array.get(0, Form::Encoded).is_ok());
    }
}
