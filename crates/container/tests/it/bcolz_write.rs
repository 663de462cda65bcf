//! Rows written to a bcolz array or table are read back, after every append, cut and replacement, in either layout. An
//! unfinished change is not visible.

use std::fs;
use std::path::Path;

use crate::common::{TempDir, data, directory_bytes, json, xorshift};
use serde_json::json;
use sharddb::spec::Encoding;
use sharddb::{BuildOptions, ErrorKind, Progress, Result, ShardDb, Snapshot, Updater, VerifyLevel};
use sharddb_container::bcolz::{
    BcolzArray, BcolzOptions, BcolzTable, BcolzTableWriter, BcolzWriter, ByteOrder, Order, RootdirLayout,
    ToZarrOptions, export,
};
use sharddb_container::blosc::Shuffle;
use sharddb_container::bloscpack::{Bloscpack, Checksum, Replaced};
use sharddb_container::{Container, Form};

const LAYOUTS: [RootdirLayout; 2] = [RootdirLayout::Shipped, RootdirLayout::Superchunks];

/// Rows that compress, and whose values depend on their numbers.
fn numbers(from: u32, count: u32) -> Vec<u8> {
    (from..from + count).flat_map(|row| (row / 3 * 7).to_le_bytes()).collect()
}

/// Opens the array again and compares the rows, the meta files and every file.
fn assert_holds(root: &Path, expected: &[u8]) {
    let array = BcolzArray::open(root).unwrap();
    assert_eq!(array.rows() * array.row_bytes(), expected.len() as u64);
    assert_eq!(array.read_rows(0..array.rows()).unwrap(), expected);
    let report = array.verify(VerifyLevel::Data).unwrap();
    assert!(report.findings().is_empty(), "{:?}", report.findings());
    let sizes = json(&root.join("meta/sizes"));
    assert_eq!(sizes["shape"][0], array.rows());
    assert_eq!(sizes["nbytes"], expected.len());
    let names: Vec<_> = directory_bytes(&root.join("data")).into_keys().collect();
    assert!(names.iter().all(|name| name.starts_with("__")), "{names:?}");
}

#[test]
fn appends_cuts_and_replacements_in_any_sequence() {
    let mut random = xorshift(7);
    for layout in LAYOUTS {
        for superchunk in [1, 3, 1000] {
            let scratch = TempDir::new();
            let root = scratch.path().join("array");
            let mut options = BcolzOptions::new();
            options.layout(layout).chunk_rows(100).superchunk_chunks(superchunk).checksum(Checksum::Crc32);
            let mut writer = options.create_array(&root, "int32", &[]).unwrap();
            let mut model: Vec<u8> = Vec::new();
            assert_holds(&root, &model);
            for step in 0..12 {
                match random() % 4 {
                    0 if !model.is_empty() => {
                        let rows = random() % (model.len() as u64 / 4 + 1);
                        writer.truncate(rows).unwrap();
                        model.truncate(rows as usize * 4);
                    }
                    1 if !model.is_empty() => {
                        let key = random() % writer.array().nchunks();
                        let start = key as usize * 400;
                        let end = model.len().min(start + 400);
                        let rows = numbers(step * 1_000_000, (end - start) as u32 / 4);
                        model[start..end].copy_from_slice(&rows);
                        writer.replace_chunk(key, &rows).unwrap();
                    }
                    _ => {
                        let rows = numbers(step * 10_000, [0, 1, 99, 100, 101, 750][random() as usize % 6]);
                        writer.append(&rows).unwrap();
                        model.extend(rows);
                    }
                }
                assert_holds(&root, &model);
            }
        }
    }
}

#[test]
fn superchunks_fill_up_before_new_ones_begin() {
    let scratch = TempDir::new();
    let root = scratch.path().join("array");
    let mut options = BcolzOptions::new();
    options.layout(RootdirLayout::Superchunks).chunk_rows(100).superchunk_chunks(4);
    let mut writer = options.create_array(&root, "int32", &[]).unwrap();
    let chunks = |root: &Path| {
        let files = directory_bytes(&root.join("data")).into_keys();
        files.map(|name| (Bloscpack::open(root.join("data").join(&name)).unwrap().nchunks(), name)).collect::<Vec<_>>()
    };
    writer.append(&numbers(0, 250)).unwrap();
    assert_eq!(chunks(&root), [(3, "__1__.bin".to_string())]);
    writer.append(&numbers(250, 700)).unwrap();
    assert_eq!(
        chunks(&root),
        [(4, "__1__.bin".to_string()), (4, "__2__.bin".to_string()), (2, "__3__.bin".to_string())]
    );
    writer.truncate(401).unwrap();
    assert_eq!(chunks(&root), [(4, "__1__.bin".to_string()), (1, "__2__.bin".to_string())]);
    assert_holds(&root, &numbers(0, 401));
}

#[test]
fn the_size_of_chunks_and_superchunks_can_be_left_open() {
    for layout in LAYOUTS {
        let scratch = TempDir::new();
        let root = scratch.path().join("array");
        let mut writer = BcolzOptions::new().layout(layout).create_array(&root, "float64", &[]).unwrap();
        writer.append(&vec![1; 3 << 20]).unwrap();
        assert_eq!((writer.array().chunk_rows(), writer.array().nchunks()), (65_536, 6));
        assert_holds(&root, &vec![1; 3 << 20]);
    }
    let storage = |bytes: u64| {
        let scratch = TempDir::new();
        let root = scratch.path().join("array");
        BcolzOptions::new()
            .layout(RootdirLayout::Superchunks)
            .chunk_rows(bytes)
            .create_array(&root, "uint8", &[])
            .unwrap();
        json(&root.join("meta/storage"))["superchunksize"].clone()
    };
    assert_eq!((storage(1 << 20), storage(1 << 30)), (json!(64), json!(1)));
}

#[test]
fn a_chunk_that_fits_into_the_reserve_moves_nothing() {
    let scratch = TempDir::new();
    let root = scratch.path().join("array");
    let mut options = BcolzOptions::new();
    options.layout(RootdirLayout::Superchunks).chunk_rows(1000).superchunk_chunks(8).reserve_percent(100);
    let mut writer = options.create_array(&root, "int32", &[]).unwrap();
    let mut model = numbers(0, 5000);
    writer.append(&model).unwrap();
    let offsets = |writer: &BcolzWriter| -> Vec<u64> {
        (0..5).map(|key| writer.array().locate(key).unwrap().unwrap().range.start).collect()
    };
    let before = offsets(&writer);

    let mut random = xorshift(3);
    let mut larger = numbers(90_000, 1000);
    larger[..200].iter_mut().for_each(|byte| *byte = random() as u8);
    let grown = writer.array().locate(2).unwrap().unwrap().stored_len();
    assert_eq!(writer.replace_chunk(2, &larger).unwrap(), Replaced::InPlace);
    model[8000..12_000].copy_from_slice(&larger);
    assert!(writer.array().locate(2).unwrap().unwrap().stored_len() > grown, "longer than the chunk that was there");
    assert_eq!(offsets(&writer), before);
    assert_holds(&root, &model);

    let noise: Vec<u8> = (0..4000).map(|_| random() as u8).collect();
    assert_eq!(writer.replace_chunk(2, &noise).unwrap(), Replaced::Rewritten);
    model[8000..12_000].copy_from_slice(&noise);
    assert_ne!(offsets(&writer), before);
    assert_holds(&root, &model);
    assert_eq!(writer.replace_chunk(2, &noise[..3996]).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(writer.replace_chunk(5, &noise).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn types_orders_and_shuffles() {
    for (dtype, width) in
        [("bool", 1), ("<i2", 2), (">f8", 8), ("|S5", 5), ("<U3", 12), ("complex128", 16), ("M8[s]", 8)]
    {
        for layout in LAYOUTS {
            for shuffle in [Shuffle::None, Shuffle::Bytes, Shuffle::Bits] {
                let scratch = TempDir::new();
                let root = scratch.path().join("array");
                let mut options = BcolzOptions::new();
                options.layout(layout).chunk_rows(64).shuffle(shuffle);
                let mut writer = options.create_array(&root, dtype, &[2]).unwrap();
                let rows: Vec<u8> = (0..150u32 * 2 * width).map(|at| (at / width) as u8).collect();
                writer.append(&rows).unwrap();
                assert_holds(&root, &rows);
                assert_eq!(writer.array().shape(), [150, 2]);
            }
        }
    }
}

/// Rows of 2 x 3 elements. The first dimension of a chunk, its rows, varies fastest.
#[test]
fn chunks_in_fortran_order_give_rows_in_c_order() {
    let scratch = TempDir::new();
    let root = scratch.path().join("array");
    let mut options = BcolzOptions::new();
    options.layout(RootdirLayout::Superchunks).order(Order::F).byte_order(ByteOrder::Big).chunk_rows(4).compress(false);
    let mut writer = options.create_array(&root, "uint8", &[2, 3]).unwrap();
    let rows: Vec<u8> = (0..6 * 6).collect();
    writer.append(&rows[..30]).unwrap();
    writer.append(&rows[30..]).unwrap();
    assert_holds(&root, &rows);
    let array = BcolzArray::open(&root).unwrap();
    assert_eq!((array.order(), array.byte_order()), (Order::F, ByteOrder::Big));
    let chunk = array.get(0, sharddb_container::Form::Decoded).unwrap().unwrap();
    assert_eq!(chunk[..8], [0, 6, 12, 18, 3, 9, 15, 21], "element 0,0 of the rows, then element 1,0");
    assert_eq!(array.read_rows(3..5).unwrap(), &rows[18..30]);
}

#[test]
fn what_bcolz_wrote_can_be_changed() {
    for (set, rows) in
        [("b121_i4_setitem", 3000), ("bz_i8_empty", 0), ("b121_f4_bigendian", 3000), ("rfc_flat_i4", 12_000)]
    {
        let scratch = copy_of(set);
        let before = BcolzArray::open(scratch.path()).unwrap();
        let mut model = before.read_rows(0..rows).unwrap();
        let storage = fs::read(scratch.path().join("meta/storage")).unwrap();
        fs::write(scratch.path().join("meta/mask"), "a foreign file").unwrap();
        let width = before.row_bytes();
        let more = numbers(5, 700 * width as u32 / 4);
        let mut writer = BcolzWriter::open(scratch.path()).unwrap();
        writer.append(&more).unwrap();
        model.extend(&more);
        let last = writer.array().nchunks() - 1;
        assert!(last >= before.nchunks() || rows % before.chunk_rows() != 0);
        writer.truncate(rows + 650).unwrap();
        model.truncate((rows + 650) as usize * width as usize);
        let array = BcolzArray::open(scratch.path()).unwrap();
        assert_eq!(array.read_rows(0..array.rows()).unwrap(), model, "{set}");
        assert!(array.verify(VerifyLevel::Data).unwrap().findings().is_empty());
        assert_eq!(fs::read(scratch.path().join("meta/storage")).unwrap(), storage, "{set}: unchanged");
        assert_eq!(fs::read(scratch.path().join("meta/mask")).unwrap(), b"a foreign file");
    }
    for set in ["b121_object", "b121_struct"] {
        let error = BcolzWriter::open(data("bcolz").join(set)).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    }
}

#[test]
fn attributes_and_unknown_members_stay() {
    for (set, file) in [("b121_i4_setitem", "__attrs__"), ("rfc_flat_i4", "meta/attributes")] {
        let scratch = copy_of(set);
        let before = BcolzArray::open(scratch.path()).unwrap().attributes().unwrap();
        let sizes = scratch.path().join("meta/sizes");
        let text = fs::read_to_string(&sizes).unwrap();
        fs::write(
            &sizes,
            text.replacen("{", "{\"whose\": \"theirs\", ", 1).replacen("shape:", "whose: theirs\nshape:", 1),
        )
        .unwrap();
        let mut writer = BcolzWriter::open(scratch.path()).unwrap();
        writer.append(&numbers(0, 1)).unwrap();
        assert_eq!(json(&sizes)["whose"], "theirs");
        writer.set_attribute("answer", "{\"value\": 42}").unwrap();
        writer.set_attribute("text", "\"t\\u00e9xt\"").unwrap();
        writer.set_attribute("answer", "42").unwrap();
        assert_eq!(writer.set_attribute("bad", "{").unwrap_err().kind(), ErrorKind::InvalidSpec);
        let attributes = writer.array().attributes().unwrap();
        assert_eq!(attributes.get("answer").unwrap(), "42");
        assert_eq!(json(&scratch.path().join(file))["text"], "t\u{e9}xt");
        for name in before.names() {
            assert_eq!(attributes.get(name), before.get(name));
        }
        assert!(writer.remove_attribute("answer").unwrap() && !writer.remove_attribute("answer").unwrap());
        assert_eq!(writer.array().attributes().unwrap().get("answer"), None);
    }
}

/// What Python's `json` writes into attributes, and JSON has not, stays: it is copied as text, or nothing is written.
#[test]
fn attributes_that_are_no_json_stay_as_they_are() {
    const TEXT: &str =
        r#"{"mean": NaN, "sha": 1180591620717411303425, "x": 123456789012345678901.5, "max": -Infinity}"#;
    let scratch = copy_of("b121_i4_setitem");
    fs::write(scratch.path().join("__attrs__"), TEXT).unwrap();
    let array = BcolzArray::open(scratch.path()).unwrap();
    let exported = TempDir::new();
    let store = imported(&array, &exported.path().join("store"));
    export(&store, exported.path().join("array"), &Progress::new()).unwrap();
    assert_eq!(fs::read_to_string(exported.path().join("array/__attrs__")).unwrap(), TEXT);

    let error = ToZarrOptions::new().convert(&array, exported.path().join("zarr")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
    let mut writer = BcolzWriter::open(scratch.path()).unwrap();
    for error in [writer.set_attribute("unit", "\"m\"").unwrap_err(), writer.remove_attribute("mean").unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::InvalidSpec, "{error}");
    }
    assert_eq!(fs::read_to_string(scratch.path().join("__attrs__")).unwrap(), TEXT);
}

/// A store that lost or gained a chunk, or has one of other bytes, is not exported as the array that it was.
#[test]
fn a_changed_store_is_not_exported() {
    let array = BcolzArray::open(data("bcolz/b121_i4_setitem")).unwrap();
    let last = array.nchunks() - 1;
    let change = |change: &dyn Fn(&mut Updater) -> Result<()>| {
        let scratch = TempDir::new();
        imported(&array, &scratch.path().join("store"));
        let mut updater = Updater::open(scratch.path().join("store")).unwrap();
        change(&mut updater).unwrap();
        updater.finish().unwrap();
        let store = ShardDb::open(scratch.path().join("store")).unwrap().snapshot();
        let error = export(&store, scratch.path().join("array"), &Progress::new()).unwrap_err();
        assert!(!scratch.path().join("array").exists());
        error
    };
    let chunk = array.get(0, Form::Encoded).unwrap().unwrap();
    let errors = [
        change(&|updater| updater.delete(last)),
        change(&|updater| updater.put(last + 1, &*chunk)),
        change(&|updater| updater.put(1, [&chunk[..16], &[0xFF; 40]].concat())),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

fn imported(array: &BcolzArray, path: &Path) -> Snapshot {
    let (member, metadata) = array.preserved().unwrap().unwrap();
    let mut options = BuildOptions::new();
    options.data_encoding(Encoding::Raw).info(format!("{{\"{member}\": {metadata}}}"));
    let mut loader = options.create(path).unwrap();
    for key in 0..array.nchunks() {
        loader.insert(key, array.get(key, Form::Encoded).unwrap().unwrap()).unwrap();
    }
    loader.finish().unwrap();
    ShardDb::open(path).unwrap().snapshot()
}

#[test]
fn tables_grow_and_shrink_as_one() {
    for layout in LAYOUTS {
        let scratch = TempDir::new();
        let root = scratch.path().join("table");
        let mut options = BcolzOptions::new();
        options.layout(layout).chunk_rows(100).superchunk_chunks(2);
        let mut writer = options.create_table(&root, &[("a", "int32"), ("b", "uint8")]).unwrap();
        let (a, b) = (numbers(0, 550), (0..550u32).map(|row| row as u8).collect::<Vec<_>>());
        writer.append(&[&a[..1200], &b[..300]]).unwrap();
        writer.append(&[&a[1200..], &b[300..]]).unwrap();
        writer.set_attribute("unit", "\"mm\"").unwrap();
        let holds = |rows: usize| {
            let table = BcolzTable::open(&root).unwrap();
            assert_eq!((table.rows(), table.layout()), (rows as u64, layout));
            for (name, expected) in [("a", &a[..4 * rows]), ("b", &b[..rows])] {
                let column = table.column(name).unwrap();
                assert_eq!(column.read_rows(0..rows as u64).unwrap(), expected);
                assert!(column.verify(VerifyLevel::Data).unwrap().findings().is_empty());
            }
            assert_eq!(table.attributes().unwrap().get("unit").unwrap(), "\"mm\"");
        };
        holds(550);
        writer.truncate(333).unwrap();
        holds(333);
        writer.append(&[&a[4 * 333..4 * 340], &b[333..340]]).unwrap();
        holds(340);
        for (columns, words) in [
            (&[&a[..4]][..], "expected 2 columns"),
            (&[&a[..4], &b[..2]], "[1, 2] rows"),
            (&[&a[..3], &b[..1]], "rows of 4 bytes"),
        ] {
            let error = writer.append(columns).unwrap_err();
            assert!(error.message().contains(words), "{error}");
        }
        holds(340);
        assert_eq!(writer.truncate(341).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(BcolzTableWriter::open(&root).unwrap().table().rows(), 340);
    }
}

/// The sizes commit an append: rows that a killed writer left are not visible, and the next append overwrites them.
#[test]
fn an_append_that_was_not_finished_does_not_show() {
    for layout in LAYOUTS {
        let scratch = TempDir::new();
        let root = scratch.path().join("array");
        let mut options = BcolzOptions::new();
        options.layout(layout).chunk_rows(100).superchunk_chunks(4);
        let mut writer = options.create_array(&root, "int32", &[]).unwrap();
        writer.append(&numbers(0, 250)).unwrap();
        let sizes = fs::read(root.join("meta/sizes")).unwrap();
        writer.append(&numbers(250, 300)).unwrap();
        fs::write(root.join("meta/sizes"), sizes).unwrap();

        let array = BcolzArray::open(&root).unwrap();
        assert_eq!((array.rows(), array.nchunks()), (250, 3));
        assert_eq!(array.read_rows(0..250).unwrap(), numbers(0, 250));
        assert!(array.read_rows(0..251).is_err());
        let decoded = |key| array.get(key, Form::Decoded).unwrap().map(|chunk| chunk.len());
        assert_eq!((decoded(2), decoded(3)), (Some(200), None));
        assert_eq!(array.keys().map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(!array.verify(VerifyLevel::Data).unwrap().findings().is_empty(), "verification reports it");

        let mut writer = BcolzWriter::open(&root).unwrap();
        writer.replace_chunk(2, &numbers(900, 50)).unwrap();
        assert_holds(&root, &[numbers(0, 200), numbers(900, 50)].concat());
        writer.append(&numbers(250, 300)).unwrap();
        assert_holds(&root, &[numbers(0, 200), numbers(900, 50), numbers(250, 300)].concat());
    }
}

#[test]
fn what_cannot_be_made_is_refused_before_anything_is() {
    let scratch = TempDir::new();
    let root = scratch.path().join("array");
    let new = BcolzOptions::new;
    for (made, kind) in [
        (new().create_array(&root, "object", &[]).map(drop), ErrorKind::InvalidSpec),
        (new().create_array(&root, "int33", &[]).map(drop), ErrorKind::InvalidSpec),
        (new().create_array(&root, "int32", &[0]).map(drop), ErrorKind::InvalidSpec),
        (new().create_array(&root, "int32", &[u64::MAX, 2]).map(drop), ErrorKind::InvalidSpec),
        (new().chunk_rows(1 << 30).create_array(&root, "int32", &[]).map(drop), ErrorKind::InvalidInput),
        (new().chunk_rows(0).create_array(&root, "int32", &[]).map(drop), ErrorKind::InvalidInput),
        (new().order(Order::F).create_array(&root, "int32", &[]).map(drop), ErrorKind::InvalidInput),
        (new().create_table(&root, &[]).map(drop), ErrorKind::InvalidInput),
        (new().create_table(&root, &[("../a", "int32")]).map(drop), ErrorKind::InvalidInput),
    ] {
        assert_eq!(made.unwrap_err().kind(), kind);
        assert!(!root.exists());
    }
    fs::create_dir(&root).unwrap();
    assert_eq!(
        new().create_array(&root, "int32", &[]).map(drop).unwrap_err().kind(),
        ErrorKind::InvalidInput,
        "there already"
    );
}

/// A copy of a data set that a test may change.
fn copy_of(set: &str) -> TempDir {
    TempDir::copy_of(&data("bcolz").join(set))
}
