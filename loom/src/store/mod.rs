//! A store. Some of its files are the library's own, the others are stand-ins.

#[path = "../../../src/store/current.rs"]
pub(crate) mod current;
#[path = "../../../src/store/gc.rs"]
pub(crate) mod gc;
#[path = "../../../src/store/generation_id.rs"]
pub mod generation_id;
#[path = "../../../src/store/lease.rs"]
pub(crate) mod lease;

/// A stand-in for the history: no generation is rolled back in this model, so all count, by number.
pub(crate) mod history {
    use std::path::Path;

    use crate::error::Result;
    use crate::store::generation_id::GenerationId;

    pub(crate) fn read_with_older(store: &Path) -> Result<Vec<GenerationId>> {
        super::generations(store)
    }
}

/// A stand-in for the library's `src/store/intact.rs`: the content of a generation is a number here, which is never damaged.
pub(crate) mod intact {
    use std::path::Path;

    use crate::error::{Error, Result};
    use crate::store::generation_id::GenerationId;

    pub(crate) fn check(_: &Path, _: GenerationId) -> Result<()> {
        Ok(())
    }

    pub(crate) fn damage_of(_: &Path, _: GenerationId) -> Result<Option<Error>> {
        Ok(None)
    }

    pub(crate) fn is_damage(_: &Error) -> bool {
        false
    }

    pub(crate) fn sync(_: &Path, _: GenerationId) -> Result<()> {
        Ok(())
    }
}

/// A stand-in for the library's `src/store/moved.rs`: no directory is moved into this store.
pub(crate) mod moved {
    use std::path::Path;

    use crate::error::Result;
    use crate::store::generation_id::GenerationId;

    pub(crate) struct MovedIn {
        pub(crate) id: GenerationId,
    }

    pub(crate) fn read_all(_: &Path) -> Result<Vec<MovedIn>> {
        Ok(Vec::new())
    }
}

/// The part of the library's `src/store/scratch.rs` that gc and a swap need. This store has no foreign files.
pub(crate) mod scratch {
    use std::path::Path;

    use crate::error::Result;
    use crate::fs;

    pub(crate) const TEMPORARY_LINK: &str = "tmp-current";

    pub(crate) fn name_for_deletion(generation: &str) -> String {
        format!("tmp-gc-{generation}")
    }

    pub(crate) fn remove_own(temporary: &Path) -> Result<()> {
        fs::remove(temporary)
    }

    pub(crate) fn remove_doomed(temporary: &Path) -> Result<()> {
        fs::remove(temporary)
    }

    pub(crate) fn check_generation(_: &Path) -> Result<()> {
        Ok(())
    }
}

use std::path::Path;

use crate::error::{Error, Result};
use crate::format::manifest;
use crate::fs;
use crate::threads::progress::Progress;

pub use gc::GcReport;
pub use generation_id::GenerationId;

/// These names are those of the library.
pub(crate) const CURRENT: &str = "current";
pub(crate) const LEASE: &str = "lease";

/// The directory of the one store.
pub const STORE: &str = "/store";

/// A reader's hold on a generation.
pub struct Reader(lease::LeasedGeneration);

impl Reader {
    /// Opens the current generation as `ShardDb::open_mapped` and `refresh` do.
    pub fn open() -> Result<Reader> {
        lease::LeasedGeneration::acquire_current(Path::new(STORE)).map(Reader)
    }

    pub fn id(&self) -> u64 {
        self.0.id.get()
    }

    pub fn is_held(&self) -> bool {
        matches!(self.0.lease, lease::Lease::Held(_))
    }

    /// The number in a shard, which is opened by this call; `None` if there is no such file.
    pub fn get(&self) -> Option<u64> {
        fs::content(&self.0.path.join("0.shard"))
    }
}

/// Publishes as a writer with the lock of the store does at the end of a build: a complete generation gets its name by
/// one rename, then `current` points to it.
pub fn publish(number: u64) {
    let id = id(number);
    fs::place_generation(&Path::new(STORE).join(id.to_string()), number);
    current::swap(Path::new(STORE), id).unwrap();
}

pub fn roll_to(number: u64) {
    current::swap(Path::new(STORE), id(number)).unwrap();
}

pub fn collect(keep: usize) -> GcReport {
    gc::gc(Path::new(STORE), keep, &Progress::default()).unwrap()
}

pub fn id(number: u64) -> GenerationId {
    GenerationId::new(number).unwrap()
}

fn generations(store: &Path) -> Result<Vec<GenerationId>> {
    let names = fs::names(store)?;
    Ok(names.iter().filter_map(|name| GenerationId::from_name(name)).collect())
}

fn is_complete(store: &Path, id: GenerationId) -> Result<bool> {
    fs::is_file(&store.join(id.to_string()).join(manifest::FILE_NAME))
}

fn no_current(store: &Path) -> Error {
    Error::invalid_input("nothing was published").at_path(store)
}
