//! Broken stores: what a program sees of each, and what it can do about it.

use std::error::Error;
use std::fs;

use sharddb::{BulkLoader, ErrorKind, Salvage, ShardDb, Store, VerifyLevel};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("sharddb-broken-{}", std::process::id()));
    let store = directory.join("store");
    let mut loader = BulkLoader::create(&store)?;
    loader.extend((0..1000u64).map(|key| (key, format!("value {key}"))))?;
    let generation = loader.finish()?.generation;

    // no store at all, or a store without a published generation: not an I/O error
    println!("{}", expect(ErrorKind::NotFound, ShardDb::open(directory.join("absent")))?);
    fs::remove_file(store.join("current"))?;
    println!("{}", expect(ErrorKind::NotFound, ShardDb::open(&store))?);
    Store::open(&store)?.writer()?.rollback(Some(generation))?; // writes `current` again

    // one changed byte: the first read of a value that contains it is an error, and other keys are still served
    let shard = store.join(generation.to_string()).join("0.shard");
    let bytes = fs::read(&shard)?;
    let at = bytes.windows(9).position(|window| window == b"value 500").ok_or("value 500 is stored as it is")?;
    fs::write(&shard, [&bytes[..at], b"VALUE", &bytes[at + 5..]].concat())?;
    let db = ShardDb::open(&store)?;
    let error = expect(ErrorKind::Corrupt, db.get(500))?;
    println!("{error}");
    assert_eq!(error.key(), Some(500));
    assert_eq!(db.get(501)?.ok_or("key 501 is there")?, b"value 501");

    // `verify` names everything that is wrong, `Salvage` copies everything that is not
    let report = db.snapshot().verify(VerifyLevel::Data)?;
    report.findings().iter().for_each(|finding| println!("{finding}"));
    assert!(!report.is_clean());
    let salvage = Salvage::open(&store)?;
    let mut loader = salvage.build_options().create(directory.join("salvaged"))?;
    let counts = salvage.write(&mut loader, |loss| println!("lost: {loss}"))?;
    loader.finish()?;
    assert_eq!((counts.kept, counts.losses), (999, 1));

    fs::remove_dir_all(&directory)?;
    Ok(())
}

/// The error of an operation that must fail with this kind.
fn expect<T>(kind: ErrorKind, outcome: sharddb::Result<T>) -> Result<sharddb::Error, Box<dyn Error>> {
    match outcome {
        Err(error) if error.kind() == kind => Ok(error),
        Err(error) => Err(error.into()),
        Ok(_) => Err(format!("expected an error of kind {kind}").into()),
    }
}
