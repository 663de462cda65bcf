//! Writes arrays, tables and files to be read by bcolz, bloscpack and a script that follows the RFC.
//! `scripts/interop.sh` runs this module, and `scripts/check_bcolz.py` compares.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use sharddb_container::bcolz::{BcolzOptions, RootdirLayout};
use sharddb_container::blosc::Shuffle;
use sharddb_container::bloscpack::{BloscpackOptions, Checksum, Metadata};

use crate::common::new_directory;

/// The directory of the data sets for other readers, newly created.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        Place(new_directory("bcolz"))
    }

    /// The directory of a set; `what` says how it is checked, and `rows` what it must contain.
    fn set(&self, name: &str, what: serde_json::Value, rows: &[(&str, &[u8])]) -> PathBuf {
        let directory = self.0.join(name);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("check.json"), what.to_string()).unwrap();
        for (column, rows) in rows {
            fs::write(directory.join(format!("rows{column}")), rows).unwrap();
        }
        directory
    }
}

/// Rows that compress, with some noise.
fn rows(count: usize, width: usize) -> Vec<u8> {
    let number =
        |row: usize| (row as u64 / 5).wrapping_mul(if row.is_multiple_of(97) { 0x9e37_79b9_7f4a_7c15 } else { 3 });
    (0..count).flat_map(|row| number(row).to_le_bytes().into_iter().cycle().take(width).collect::<Vec<_>>()).collect()
}

fn arrays(place: &Place, layout: RootdirLayout, kind: &str, reserve: u32) {
    let shuffles = [Shuffle::None, Shuffle::Bytes, Shuffle::Bits];
    for (at, (dtype, width)) in
        [("uint8", 1), ("<i2", 2), ("int32", 4), ("float64", 8), (">i8", 8), ("|S5", 5)].iter().enumerate()
    {
        for (of, shuffle) in shuffles.iter().enumerate() {
            let count = [1, 999, 1000, 1001, 4321][(at + of) % 5];
            let mut rows = rows(count, *width);
            if *dtype == "|S5" {
                rows.iter_mut().for_each(|byte| *byte |= 1); // NumPy strips zeros from the end of a string
            }
            let name = format!("{kind}-{}-{}", at, shuffle.as_str());
            let directory = place.set(&name, json!({"kind": kind}), &[("", &rows)]);
            let mut options = BcolzOptions::new();
            options.layout(layout).chunk_rows(500).superchunk_chunks(3).shuffle(*shuffle).reserve_percent(reserve);
            options.checksum([Checksum::Adler32, Checksum::Crc32][of % 2]);
            let mut writer = options.create_array(directory.join("set"), dtype, &[]).unwrap();
            // in several appends, with rows that are cut off again and a chunk that is replaced by itself
            let half = count / 2 * width;
            writer.append(&rows[..half]).unwrap();
            writer.append(&rows).unwrap();
            writer.truncate(count as u64 / 2).unwrap();
            writer.append(&rows[half..]).unwrap();
            writer.replace_chunk(0, &rows[..rows.len().min(500 * width)]).unwrap();
            writer.set_attribute("writer", "\"sharddb\"").unwrap();
        }
    }
}

#[test]
#[ignore = "for scripts/interop.sh"]
fn writes_data_sets_for_other_readers() {
    let place = Place::new();
    arrays(&place, RootdirLayout::Shipped, "carray", 0);
    arrays(&place, RootdirLayout::Superchunks, "superchunks", 0);
    arrays(&place, RootdirLayout::Superchunks, "superchunks-reserve", 30);
    for (layout, kind) in [(RootdirLayout::Shipped, "ctable"), (RootdirLayout::Superchunks, "superchunks-table")] {
        let (id, price) = (rows(2500, 4), rows(2500, 8));
        let directory = place.set(kind, json!({"kind": kind}), &[(".id", &id), (".price", &price)]);
        let mut options = BcolzOptions::new();
        options.layout(layout).chunk_rows(1000).superchunk_chunks(2);
        let mut writer = options.create_table(directory.join("set"), &[("id", "int32"), ("price", "float64")]).unwrap();
        writer.append(&[&id[..4 * 700], &price[..8 * 700]]).unwrap();
        writer.append(&[&id[4 * 700..], &price[8 * 700..]]).unwrap();
    }
    for checksum in Checksum::ALL {
        for (more, with_metadata) in [(0, false), (5, true)] {
            let whole = rows(2345, 4);
            let name = format!("bloscpack-{checksum}-{more}");
            let directory = place.set(&name, json!({"kind": "bloscpack", "metadata": with_metadata}), &[("", &whole)]);
            let mut options = BloscpackOptions::new();
            options.typesize(4).checksum(checksum).max_app_chunks(more);
            if with_metadata {
                let text = "{\"dtype\": \"'<i4'\", \"shape\": [2345], \"order\": \"C\", \"container\": \"numpy\"}";
                options.metadata(Metadata { format: "JSON".to_string(), bytes: text.into() });
            }
            let mut writer = options.create(directory.join("set.blp"), 3).unwrap();
            for chunk in whole.chunks(4000) {
                writer.push(chunk).unwrap();
            }
            writer.finish().unwrap();
        }
    }
}
