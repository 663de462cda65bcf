//! Arbitrary bytes as the files of a bcolz array, of a table of one column, or as a bloscpack file: every call returns,
//! rows equal the content of the chunks, and what verifies is readable.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use crate::{container, scratch};
use sharddb_container::bcolz::{BcolzArray, BcolzTable, Order};
use sharddb_container::bloscpack::Bloscpack;
use sharddb_container::{Container, ContainerOptions, Form};

/// The bits of an input's first byte.
const IN_MEMORY: u8 = 1;
const BLOSCPACK: u8 = 2;
const SUPERCHUNKS: u8 = 4;
const COLUMN: u8 = 8;

fn root() -> &'static Path {
    static ROOT: OnceLock<std::path::PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| scratch::directory("bcolz"))
}

/// Writes `storage` and `sizes`, then chunks or superchunks.
fn write_array(how: u8, files: &[&[u8]]) {
    let _ = fs::remove_dir_all(root());
    let data = if how & COLUMN != 0 { root().join("data/a") } else { root().join("data") };
    for directory in [&root().join("meta"), &data] {
        fs::create_dir_all(directory).unwrap();
    }
    for (name, bytes) in ["storage", "sizes"].iter().zip(files) {
        fs::write(root().join("meta").join(name), bytes).unwrap();
    }
    for (at, bytes) in files.iter().skip(2).enumerate() {
        let name = if how & SUPERCHUNKS != 0 { format!("__{}__.bin", at + 1) } else { format!("__{at}.blp") };
        fs::write(data.join(name), bytes).unwrap();
    }
}

fn array_agrees(array: &BcolzArray) {
    container::agrees(array);
    let _ = array.attributes();
    let rows = array.read_rows(0..array.rows());
    assert!(array.read_rows(0..array.rows().saturating_add(1)).is_err() || array.rows() == u64::MAX);
    let Ok(rows) = rows else { return };
    assert_eq!(rows.len() as u64, array.rows() * array.row_bytes());
    let (from, to) = (array.rows() / 3, array.rows() - array.rows() / 3);
    let part = array.read_rows(from..to).expect("a part of rows that are there");
    assert_eq!(part, rows[(from * array.row_bytes()) as usize..(to * array.row_bytes()) as usize]);
    if array.order() == Order::C {
        let chunks = (0..array.nchunks()).map(|key| array.get(key, Form::Decoded).expect("read").expect("there"));
        assert_eq!(rows, chunks.map(|chunk| chunk.to_vec()).collect::<Vec<_>>().concat());
    }
}

fn bloscpack_agrees(bytes: &[u8], options: &ContainerOptions) {
    let path = root().join("file.blp");
    fs::create_dir_all(root()).unwrap();
    fs::write(&path, bytes).unwrap();
    let Ok(file) = Bloscpack::open_with(&path, options) else { return };
    container::agrees(&file);
    for key in 0..file.nchunks().min(64) {
        let (header, chunk) = (file.chunk_header(key), file.get(key, Form::Decoded));
        if let Ok(Some(chunk)) = chunk {
            assert_eq!(header.expect("read").expect("there").nbytes() as usize, chunk.len());
        }
    }
}

/// Runs the target on an input.
pub fn run(input: &[u8]) {
    let Some((how, bytes)) = input.split_first() else { return };
    let options = container::options(how & IN_MEMORY != 0);
    if how & BLOSCPACK != 0 {
        return bloscpack_agrees(bytes, &options);
    }
    write_array(*how, &container::split(bytes));
    if let Ok(array) = BcolzArray::open_with(root(), &options) {
        array_agrees(&array);
    }
    if let Ok(table) = BcolzTable::open_with(root(), &options) {
        table.columns().for_each(|(_, column)| array_agrees(column));
    }
}
