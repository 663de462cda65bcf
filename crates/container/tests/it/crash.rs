//! After a crash during a change, a container of another format opens in the state before or after the change; an
//! acknowledged change survives; the next writer works. After an I/O error or on a full disk the same holds, and the
//! error is returned: an error before the change becomes visible leaves the old state.
//!
//! A crash is simulated after every operation on the file system, with every kind of loss of data that was not synced
//! ([`Loss`]).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::common::TempDir;
use sharddb::internal::fs::disk::{Disk, Fault, Loss, Tree, Watch};
use sharddb::{ErrorKind, Result, VerifyLevel};
use sharddb_container::bcolz::{BcolzArray, BcolzOptions, BcolzTable, BcolzTableWriter, BcolzWriter, RootdirLayout};
use sharddb_container::bloscpack::{Bloscpack, BloscpackOptions};
use sharddb_container::zarr::{ShardUpdate, UpdateStrategy, ZarrArray, ZarrMetadata, ZarrShardWriter, ZarrWriter};
use sharddb_container::{Container, Form};

/// The content of a data set; `None` if nothing exists. Reading it checks its consistency.
type State = Option<Vec<Vec<u8>>>;

type Change = dyn Fn(&Path) -> Result<()>;

/// A change to a data set at a path.
struct Case {
    name: String,
    /// Creates the state before the change, in an empty scene.
    prepare: Box<dyn Fn(&Path)>,
    change: Box<Change>,
    state: fn(&Path) -> State,
    /// The change of the next writer, which finds this state; checks the result.
    next: fn(&Path, State),
}

impl Case {
    fn state_before_and_after(&self) -> (State, State) {
        let scene = Scene::new();
        (self.prepare)(&scene.set());
        let before = (self.state)(&scene.set());
        (self.change)(&scene.set()).unwrap();
        let after = (self.state)(&scene.set());
        assert_ne!(before, after, "{}: is a change", self.name);
        (before, after)
    }
}

/// Uses a file system in memory if there is one: the tests check the requested operations, not the disk.
struct Scene(TempDir);

impl Scene {
    fn new() -> Scene {
        Scene(TempDir::in_memory())
    }

    fn set(&self) -> PathBuf {
        self.0.path().join("set")
    }
}

/// A path in missing directories.
fn below(path: &Path) -> PathBuf {
    path.join("new").join("set")
}

/// Rows of four bytes.
fn rows(from: u32, count: u32) -> Vec<u8> {
    (from..from + count).flat_map(|row| (row * 3).to_le_bytes()).collect()
}

// ---- bcolz ----

const LAYOUTS: [RootdirLayout; 2] = [RootdirLayout::Shipped, RootdirLayout::Superchunks];

/// 35 rows: the last chunk is partial, in a superchunk without room for another.
const ROWS: u32 = 35;

fn bcolz_options(layout: RootdirLayout) -> BcolzOptions {
    let mut options = BcolzOptions::new();
    options.layout(layout).chunk_rows(10).superchunk_chunks(2);
    options
}

fn make_array(path: &Path, layout: RootdirLayout) {
    let mut writer = bcolz_options(layout).create_array(path, "int32", &[]).unwrap();
    writer.append(&rows(0, ROWS)).unwrap();
}

fn array_state(path: &Path) -> State {
    path.exists().then(|| {
        let array = BcolzArray::open(path).unwrap();
        let whole = array.read_rows(0..array.rows()).unwrap();
        let chunks: Vec<u8> =
            array.keys().flat_map(|key| array.get(key.unwrap(), Form::Decoded).unwrap().unwrap().to_vec()).collect();
        assert!(chunks == whole, "the chunks are the rows");
        assert!(array.get(array.nchunks(), Form::Decoded).unwrap().is_none());
        vec![whole, array.attributes().unwrap().to_json().into_bytes()]
    })
}

fn next_of_array(path: &Path, found: State) {
    let mut expected = match found {
        Some(mut state) => state.remove(0),
        None => {
            bcolz_options(RootdirLayout::Shipped).create_array(path, "int32", &[]).unwrap();
            Vec::new()
        }
    };
    let mut writer = BcolzWriter::open(path).unwrap();
    writer.append(&rows(500, 13)).unwrap();
    expected.extend(rows(500, 13));
    assert_eq!(array_state(path).unwrap()[0], expected);
    writer.truncate(7).unwrap();
    writer.append(&rows(600, 90)).unwrap();
    assert_eq!(array_state(path).unwrap()[0], [&expected[..28], &rows(600, 90)].concat());
    check_clean(&BcolzArray::open(path).unwrap().verify(VerifyLevel::Data).unwrap());
    check_no_temporaries(path);
}

fn check_clean(report: &sharddb::verify::VerifyReport) {
    assert!(report.findings().is_empty(), "{report}: {:?}", report.findings());
}

fn check_no_temporaries(directory: &Path) {
    for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap()) {
        assert!(!entry.file_name().to_str().unwrap().contains(".tmp-"), "{}", entry.path().display());
        if entry.file_type().unwrap().is_dir() {
            check_no_temporaries(&entry.path());
        }
    }
}

fn make_table(path: &Path, layout: RootdirLayout) -> BcolzTableWriter {
    bcolz_options(layout).create_table(path, &[("id", "int32"), ("price", "float32")]).unwrap()
}

fn make_filled_table(path: &Path, layout: RootdirLayout) {
    make_table(path, layout).append(&[&rows(0, ROWS), &rows(1000, ROWS)]).unwrap();
}

fn table_state(path: &Path) -> State {
    path.exists().then(|| {
        let table = BcolzTable::open(path).unwrap();
        if table.layout() == RootdirLayout::Superchunks {
            table.columns().for_each(|(name, _)| assert!(path.join("data").join(name).is_dir(), "{name}"));
        }
        table.columns().map(|(_, column)| column.read_rows(0..table.rows()).unwrap()).collect()
    })
}

/// In the shipped layout the columns may differ in length; then the table must be truncated to its rows.
fn next_of_table(path: &Path, found: State) {
    let mut expected = found.unwrap_or_else(|| {
        make_table(path, RootdirLayout::Shipped);
        vec![Vec::new(), Vec::new()]
    });
    let mut writer = BcolzTableWriter::open(path).unwrap();
    let table = writer.table();
    if table.columns().any(|(_, column)| column.rows() != table.rows()) {
        assert_eq!(table.layout(), RootdirLayout::Shipped);
        assert!(!table.verify(VerifyLevel::Data).unwrap().is_clean(), "the difference is a finding");
        let error = writer.append(&[&rows(500, 13), &rows(700, 13)]).unwrap_err();
        assert!(error.message().contains("truncate"), "{error}");
        let rows = writer.table().rows();
        writer.truncate(rows).unwrap();
    }
    writer.append(&[&rows(500, 13), &rows(700, 13)]).unwrap();
    expected[0].extend(rows(500, 13));
    expected[1].extend(rows(700, 13));
    assert_eq!(table_state(path), Some(expected));
    check_clean(&BcolzTable::open(path).unwrap().verify(VerifyLevel::Data).unwrap());
    check_no_temporaries(path);
}

fn bcolz_cases() -> Vec<Case> {
    type ArrayChange = fn(&mut BcolzWriter) -> Result<()>;
    type TableChange = fn(&mut BcolzTableWriter) -> Result<()>;
    let changes: [(&str, ArrayChange); 7] = [
        ("an append to the last chunk", |writer| writer.append(&rows(90, 3))),
        ("an append to many chunks", |writer| writer.append(&rows(90, 58))),
        ("a cut within a chunk", |writer| writer.truncate(12)),
        ("a cut between chunks", |writer| writer.truncate(20)),
        ("a cut of all rows", |writer| writer.truncate(0)),
        ("another chunk", |writer| writer.replace_chunk(1, &rows(90, 10)).map(drop)),
        ("an attribute", |writer| writer.set_attribute("unit", "\"nm\"")),
    ];
    let table_changes: [(&str, TableChange); 2] = [
        ("an append to all columns", |writer| writer.append(&[&rows(90, 33), &rows(2000, 33)])),
        ("a cut of all columns", |writer| writer.truncate(12)),
    ];
    let mut cases = Vec::new();
    for layout in LAYOUTS {
        let name = |what: &str| format!("bcolz, {}: {what}", layout.as_str());
        cases.extend(changes.map(|(what, change)| Case {
            name: name(what),
            prepare: Box::new(move |path| make_array(path, layout)),
            change: Box::new(move |path| change(&mut BcolzWriter::open(path)?)),
            state: array_state,
            next: next_of_array,
        }));
        cases.extend(table_changes.map(|(what, change)| Case {
            name: name(what),
            prepare: Box::new(move |path| make_filled_table(path, layout)),
            change: Box::new(move |path| change(&mut BcolzTableWriter::open(path)?)),
            state: table_state,
            next: next_of_table,
        }));
        cases.push(Case {
            name: name("a new array"),
            prepare: Box::new(|_| {}),
            change: Box::new(move |path| bcolz_options(layout).create_array(path, "int32", &[]).map(drop)),
            state: array_state,
            next: next_of_array,
        });
        cases.push(Case {
            name: name("a new array in new directories"),
            prepare: Box::new(|_| {}),
            change: Box::new(move |path| bcolz_options(layout).create_array(below(path), "int32", &[]).map(drop)),
            state: |path| array_state(&below(path)),
            next: |path, found| next_of_array(&below(path), found),
        });
        cases.push(Case {
            name: name("a new table"),
            prepare: Box::new(|_| {}),
            change: Box::new(move |path| {
                bcolz_options(layout).create_table(path, &[("id", "int32"), ("price", "float32")]).map(drop)
            }),
            state: table_state,
            next: next_of_table,
        });
    }
    cases
}

// ---- bloscpack ----

fn write_file(path: &Path, from: u32) -> Result<()> {
    let mut writer = BloscpackOptions::new().typesize(4).create(path, 3)?;
    (0..3).try_for_each(|chunk| writer.push(&rows(from + 100 * chunk, 100)))?;
    writer.finish()
}

fn file_state(path: &Path) -> State {
    path.exists().then(|| {
        let file = Bloscpack::open(path).unwrap();
        check_clean(&file.verify(VerifyLevel::Data).unwrap());
        (0..file.nchunks()).map(|key| file.get(key, Form::Decoded).unwrap().unwrap().to_vec()).collect()
    })
}

fn next_of_file(path: &Path, _: State) {
    write_file(path, 7).unwrap();
    assert_eq!(file_state(path).unwrap()[0], rows(7, 100));
}

fn bloscpack_cases() -> Vec<Case> {
    let case = |name: &str, prepare: fn(&Path)| Case {
        name: format!("bloscpack: {name}"),
        prepare: Box::new(prepare),
        change: Box::new(|path| write_file(path, 5000)),
        state: file_state,
        next: next_of_file,
    };
    let in_new_directories = Case {
        name: "bloscpack: a new file in new directories".into(),
        prepare: Box::new(|_| {}),
        change: Box::new(|path| write_file(&below(path), 5000)),
        state: |path| file_state(&below(path)),
        next: |path, found| next_of_file(&below(path), found),
    };
    vec![
        case("a new file", |_| {}),
        case("a file in the place of another", |path| write_file(path, 0).unwrap()),
        in_new_directories,
    ]
}

// ---- Zarr ----

const CHUNKS: u64 = 8;

/// Eight chunks of eight bytes, four per shard or one per file.
fn metadata(codecs: &str, shard: u64) -> ZarrMetadata {
    ZarrMetadata::from_json(&format!(
        r#"{{"zarr_format": 3, "node_type": "array", "shape": [64], "data_type": "uint8", "fill_value": 0,
            "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": [{shard}]}}}},
            "chunk_key_encoding": {{"name": "default"}}, "codecs": [{codecs}]}}"#
    ))
    .unwrap()
}

fn sharded(location: &str) -> ZarrMetadata {
    let codecs = format!(
        r#"{{"name": "sharding_indexed", "configuration": {{"chunk_shape": [8], "codecs": ["bytes", "crc32c"],
            "index_codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}, "crc32c"],
            "index_location": "{location}"}}}}"#
    );
    metadata(&codecs, 32)
}

fn chunk(metadata: &ZarrMetadata, byte: u8) -> Vec<u8> {
    metadata.encode_chunk(&[byte; 8]).unwrap()
}

/// Chunk 6 is the only one of its shard.
fn write_zarr(path: &Path, metadata: &ZarrMetadata) -> Result<()> {
    let writer = ZarrWriter::create(path, metadata)?;
    let number = |key: u64| metadata.shard_of(key).unwrap();
    for keys in [0, 1, 2, 6].chunk_by(|left, right| number(*left) == number(*right)) {
        let mut shard = writer.shard(number(keys[0]))?;
        keys.iter().try_for_each(|key| shard.put(*key, &chunk(metadata, u8::try_from(*key).unwrap())))?;
        shard.finish()?;
    }
    writer.finish()
}

fn zarr_state(path: &Path) -> State {
    path.exists().then(|| {
        let array = ZarrArray::open(path).unwrap();
        let report = array.verify(VerifyLevel::Data).unwrap();
        assert!(report.is_clean(), "{report}: {:?}", report.findings());
        (0..CHUNKS).map(|key| array.get(key, Form::Decoded).unwrap().map_or(Vec::new(), |it| it.to_vec())).collect()
    })
}

fn next_of_zarr(path: &Path, found: State) {
    let mut expected = found.unwrap_or_else(|| {
        write_zarr(path, &sharded("end")).unwrap();
        zarr_state(path).unwrap()
    });
    for (key, strategy) in [2, 5, 2, 6].into_iter().zip(UpdateStrategy::ALL.into_iter().cycle()) {
        let array = ZarrArray::open(path).unwrap();
        let mut update = ShardUpdate::new(&array, array.metadata().shard_of(key).unwrap());
        update.put(key, &chunk(array.metadata(), 99)).unwrap();
        update.finish(strategy).unwrap();
        expected[usize::try_from(key).unwrap()] = vec![99; 8];
        assert_eq!(zarr_state(path).as_ref(), Some(&expected));
    }
}

fn zarr_cases() -> Vec<Case> {
    fn case(name: String, of: &ZarrMetadata, change: impl Fn(&Path) -> Result<()> + 'static) -> Case {
        let of = of.clone();
        let prepare = Box::new(move |path: &Path| write_zarr(path, &of).unwrap());
        Case { name, prepare, change: Box::new(change), state: zarr_state, next: next_of_zarr }
    }
    let mut cases = Vec::new();
    for of in [sharded("start"), sharded("end"), metadata("\"bytes\"", 8)] {
        let files = format!("Zarr, shards of {:?}", of.shard_shape());
        let new = of.clone();
        let prepare = Box::new(|_: &Path| {});
        let change = Box::new(move |path: &Path| write_zarr(path, &new));
        let name = format!("{files}: a new array");
        cases.push(Case { name, prepare, change, state: zarr_state, next: next_of_zarr });
        cases.push(case(format!("{files}: another shard"), &of, |path| {
            let array = ZarrArray::open(path)?;
            let number = array.metadata().shard_of(0).unwrap();
            let mut shard = ZarrShardWriter::create(path, array.metadata(), number)?;
            shard.put(0, &chunk(array.metadata(), 77))?;
            shard.finish()
        }));
        let (empty, filled) = (of.clone(), of.clone());
        cases.push(Case {
            name: format!("{files}: the first shard"),
            prepare: Box::new(move |path| ZarrWriter::create(path, &empty).unwrap().finish().unwrap()),
            change: Box::new(move |path| {
                let mut shard = ZarrShardWriter::create(path, &filled, 0)?;
                shard.put(0, &chunk(&filled, 77))?;
                shard.finish()
            }),
            state: zarr_state,
            next: next_of_zarr,
        });
        cases.push(case(format!("{files}: a shard without chunks"), &of, |path| {
            let array = ZarrArray::open(path)?;
            let mut update = ShardUpdate::new(&array, array.metadata().shard_of(6).unwrap());
            update.remove(6)?;
            update.finish(UpdateStrategy::Rewritten)
        }));
        for strategy in UpdateStrategy::ALL {
            cases.push(case(format!("{files}: chunks {}", strategy.as_str()), &of, move |path| {
                let array = ZarrArray::open(path)?;
                let mut update = ShardUpdate::new(&array, array.metadata().shard_of(1).unwrap());
                update.put(1, &chunk(array.metadata(), 88))?;
                if array.metadata().is_sharded() {
                    update.remove(0)?.put(3, &chunk(array.metadata(), 89))?;
                }
                update.finish(strategy)
            }));
        }
    }
    cases
}

// ---- tests ----

#[test]
fn any_crash_of_bcolz_leaves_the_old_state_or_the_new() {
    bcolz_cases().iter().for_each(crash_everywhere);
}

#[test]
fn any_crash_of_bloscpack_leaves_the_old_state_or_the_new() {
    bloscpack_cases().iter().for_each(crash_everywhere);
}

#[test]
fn any_crash_of_zarr_leaves_the_old_state_or_the_new() {
    zarr_cases().iter().for_each(crash_everywhere);
}

#[test]
fn a_fault_in_bcolz_is_returned_and_changes_nothing() {
    bcolz_cases().iter().for_each(fail_everywhere);
}

#[test]
fn a_fault_in_bloscpack_is_returned_and_changes_nothing() {
    bloscpack_cases().iter().for_each(fail_everywhere);
}

#[test]
fn a_fault_in_zarr_is_returned_and_changes_nothing() {
    zarr_cases().iter().for_each(fail_everywhere);
}

/// Crashes after each step of a change, and after all of them.
fn crash_everywhere(case: &Case) {
    let scene = Scene::new();
    (case.prepare)(&scene.set());
    let before = (case.state)(&scene.set());
    let watch = Watch::on(scene.0.path());
    let mut disk = Disk::of(&Tree::read(scene.0.path()));
    (case.change)(&scene.set()).unwrap();
    let after = (case.state)(&scene.set());
    let steps = watch.take_steps();
    let mut tried = BTreeSet::new();
    for at in 0..=steps.len() {
        for loss in Loss::all() {
            let (tree, acknowledged) = (disk.after(loss), at == steps.len());
            if !tried.insert((acknowledged, tree.clone())) {
                continue;
            }
            println!("{}: crash after step {at} of {}, {loss:?}", case.name, steps.len()); // printed if the test fails
            let found = Scene::new();
            tree.write_to(found.0.path());
            let state = (case.state)(&found.set());
            assert!(state == after || state == before && !acknowledged, "{state:?}");
            (case.next)(&found.set(), state);
        }
        if let Some(step) = steps.get(at) {
            disk.apply(step);
        }
    }
    assert!(tried.len() > 2, "{}: {} different states", case.name, tried.len());
    println!("{}: {} different states", case.name, tried.len());
}

/// Returns the number of the operation that makes a change visible.
fn showing_step(case: &Case, after: &State) -> usize {
    let scene = Scene::new();
    (case.prepare)(&scene.set());
    let watch = Watch::on(scene.0.path());
    let mut disk = Disk::of(&Tree::read(scene.0.path()));
    (case.change)(&scene.set()).unwrap();
    let shows = watch.take_steps().iter().position(|step| {
        disk.apply(step);
        let found = Scene::new();
        disk.after(Loss::None).write_to(found.0.path());
        (case.state)(&found.set()) == *after
    });
    shows.unwrap()
}

/// Injects a fault at each operation of a change.
fn fail_everywhere(case: &Case) {
    let (before, after) = case.state_before_and_after();
    let shown_by = showing_step(case, &after);
    for fault in [Fault::Once, Fault::Full, Fault::Broken] {
        for nth in 0.. {
            println!("{}: {fault:?} at operation {nth}, shown by {shown_by}", case.name); // printed if the test fails
            let scene = Scene::new();
            (case.prepare)(&scene.set());
            let watch = Watch::on(scene.0.path());
            watch.fail(fault, nth);
            let result = (case.change)(&scene.set());
            let faults = watch.heal();
            let state = (case.state)(&scene.set());
            match result {
                Ok(()) => assert!(state == after, "{state:?}"),
                Err(error) => {
                    assert!(faults > 0 && error.kind() == ErrorKind::Io, "{error}");
                    assert!(error.path().is_some_and(|path| path.starts_with(scene.0.path())), "{error}");
                    let may_be_shown = nth > shown_by || fault != Fault::Once;
                    assert!(state == before || may_be_shown && state == after, "{error}: {state:?}");
                }
            }
            (case.next)(&scene.set(), state);
            if faults == 0 {
                assert!(nth > 0 || fault == Fault::Full, "{}: {fault:?} never comes", case.name);
                break;
            }
        }
    }
}
