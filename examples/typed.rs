//! Typed values: a table of points, viewed in place without a copy, however the database was opened.

use std::error::Error;

use sharddb::spec::ValueAlignment;
use sharddb::{BuildOptions, ShardDb, Snapshot};
use zerocopy::{FromBytes, IntoBytes};

type Point = [f64; 3];

/// A table of points.
struct Points(Snapshot);

impl Points {
    /// Hands the points of a key to `f`. A closure, since a value may be read or decoded for this lookup alone.
    fn with<T>(&self, key: u64, f: impl FnOnce(&[Point]) -> T) -> Result<Option<T>, Box<dyn Error>> {
        let Some(value) = self.0.get(key)? else { return Ok(None) };
        let points = <[Point]>::ref_from_bytes(&value).map_err(|_| format!("key {key} holds no points"))?;
        Ok(Some(f(points)))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let store = std::env::temp_dir().join(format!("sharddb-typed-{}", std::process::id()));
    let mut loader = BuildOptions::new().value_alignment(ValueAlignment::Eight).create(&store)?;
    for key in 0..1000u32 {
        let points: Vec<Point> = (0..key % 7).map(|at| [f64::from(key), f64::from(at), 0.5]).collect();
        loader.insert(u64::from(key), points.as_slice().as_bytes())?;
    }
    loader.finish()?;

    for db in [ShardDb::open(&store)?, ShardDb::load(&store)?] {
        let points = Points(db.snapshot());
        let sum = points.with(13, |points| points.iter().map(|point| point[0]).sum::<f64>())?;
        assert_eq!(sum, Some(13.0 * 6.0));
        assert_eq!(points.with(5000, <[Point]>::len)?, None);
    }
    println!("the points of key 13 add up");
    std::fs::remove_dir_all(&store)?;
    Ok(())
}
