//! Generations from their files.

use crate::ids::shard_number;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::bytes::{StorageKind, explain_missing, read_whole, regular_len};
use crate::error::Result;
use crate::format::description::Texts;
use crate::format::info::{self, Info};
use crate::format::layout::Layout;
use crate::format::manifest::{self, Manifest};
use crate::format::spec::ShardingSpec;
use crate::fs::entry;
use crate::read::generation::slots::{check_file_len, list_shards, slots_of};
use crate::read::generation::{Generation, Leased, ShardSlot};
use crate::read::options::OpenOptions;
use crate::read::shard::{KnownShard, MinishardCache, Shard, ShardFiles, ShardReader, TableFile};
use crate::read::sorted_keys::key_file::KeyFile;

impl Generation {
    /// Opens a directory. Shards are opened at first use, unless they are loaded or `read_ahead_index` is set.
    ///
    /// Open shards of `previous` whose files this generation has too are not opened again; see
    /// [`take_shards`](Generation::take_shards).
    ///
    /// Cost: reads `info` and the manifest, or lists the directory if there is no manifest; with `check_shards` one
    /// system call per shard.
    pub(crate) fn open(
        directory: &Path,
        options: OpenOptions,
        cache: Arc<MinishardCache>,
        leased: Option<Leased>,
        previous: Option<&Generation>,
    ) -> Result<Generation> {
        let (info, manifest) = match options.spec {
            Some(spec) => (with_spec(directory, spec), None),
            None => {
                let in_store = leased.as_ref().is_some_and(|leased| leased.follows);
                let read = read_info(directory, options.pointer.as_deref(), in_store);
                read.map_err(|error| explain_missing(error, directory))?
            }
        };
        let slots = match &manifest {
            Some(manifest) => slots_of(manifest),
            None => list_shards(&directory.join(&info.shards), &info.spec)?,
        };
        let table = manifest.as_ref().and_then(|manifest| {
            let stated = manifest.auxiliary(manifest::MINISHARDS)?;
            TableFile::open(directory, stated, manifest.shards.len(), options.storage)
        });
        let key_file = manifest.as_ref().and_then(|manifest| KeyFile::open(directory, manifest, options.storage));
        let key_file = key_file.and_then(Result::ok); // without it, ordered reads use the indexes
        // the manifest has a checksum, so its layout takes precedence
        let layout = manifest.as_ref().map(|manifest| manifest.layout).or(info.layout);
        let mut generation = Generation {
            table: table.map(Arc::new),
            key_file: key_file.map(Arc::new),
            layout,
            manifest,
            ..Generation::without_manifest(directory, info, slots, options, cache, leased)
        };
        if generation.options.check_shards {
            generation.check_shards()?;
        }
        if let Some(previous) = previous {
            generation.take_shards(previous);
        }
        if matches!(generation.options.storage, StorageKind::Heap) || generation.options.read_ahead_index {
            // a shard that cannot be opened now returns its error when it is used
            generation.slots.iter().for_each(|slot| drop(generation.open_at_first_use(slot)));
        }
        Ok(generation)
    }

    /// Creates a generation of one shard in memory, without a directory.
    pub(crate) fn of_shard(spec: ShardingSpec, layout: Layout, bytes: Vec<u8>) -> Generation {
        let options = OpenOptions::new().with_storage(StorageKind::Heap);
        let cache = Arc::new(MinishardCache::new(0));
        let number = shard_number(0);
        let (files, known) = (ShardFiles::from_bytes(bytes), KnownShard::default());
        let reader = ShardReader::new(number, spec, Some(layout), files, options.read, cache.clone(), known);
        let slot = ShardSlot { shard: OnceLock::from(Shard::new(reader)), ..ShardSlot::new(number) };
        let info = Info { spec, layout: Some(layout), pointer: String::new(), shards: PathBuf::new() };
        Generation::without_manifest(Path::new(""), info, Box::new([slot]), options, cache, None)
    }

    /// Creates a generation of these shards, with nothing that a manifest states.
    fn without_manifest(
        directory: &Path,
        info: Info,
        slots: Box<[ShardSlot]>,
        options: OpenOptions,
        cache: Arc<MinishardCache>,
        leased: Option<Leased>,
    ) -> Generation {
        Generation {
            directory: directory.to_path_buf(),
            shards_directory: directory.join(&info.shards),
            pointer: info.pointer,
            spec: info.spec,
            layout: info.layout,
            manifest: None,
            slots,
            table: None,
            key_file: None,
            options,
            cache,
            leased,
        }
    }

    /// Checks that each shard of the manifest has a file of the stated length.
    ///
    /// Cost: one system call per shard.
    fn check_shards(&self) -> Result<()> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        for record in &manifest.shards {
            let path = self.shards_directory.join(self.spec.shard_file_name(record.number));
            let checked = regular_len(&path).and_then(|len| check_file_len(record, len, &path));
            checked.map_err(|error| explain_missing(error, &self.directory).at_shard(record.number))?;
        }
        Ok(())
    }

    /// Opens a damaged directory: all shards that have a file, with the specification of the manifest or else of
    /// `info`, whichever is intact. Also returns the manifest if it is intact; nothing was verified against it.
    ///
    /// Errors: those of `info` (`InvalidSpec`, for example) if neither is intact.
    pub(crate) fn open_damaged(
        directory: &Path,
        options: OpenOptions,
        cache: Arc<MinishardCache>,
        leased: Option<Leased>,
    ) -> Result<(Generation, Option<Manifest>)> {
        let manifest = read_manifest(directory).ok().filter(|manifest| match options.pointer.as_deref() {
            Some(pointer) => pointer == manifest.pointer(),
            None => true,
        });
        let here = |spec, layout, manifest: Option<&Manifest>| Info {
            spec,
            layout,
            pointer: manifest.map(Manifest::pointer).unwrap_or_default().to_string(),
            shards: manifest.map(Manifest::shards_directory).unwrap_or_default(),
        };
        let info = match (options.spec, &manifest) {
            (Some(spec), Some(manifest)) if spec == manifest.sharding => {
                here(spec, Some(manifest.layout), Some(manifest))
            }
            (Some(spec), manifest) => here(spec, None, manifest.as_ref()),
            (None, Some(manifest)) => here(manifest.sharding, Some(manifest.layout), Some(manifest)),
            (None, None) => {
                let path = directory.join(info::FILE_NAME);
                let info =
                    read_whole(&path, info::MAX_BYTES).and_then(|text| Info::parse(&text, options.pointer.as_deref()));
                info.map_err(|error| error.at_path(&path))?
            }
        };
        let slots = list_shards(&directory.join(&info.shards), &info.spec)?;
        let generation = Generation::without_manifest(directory, info, slots, options, cache, leased);
        Ok((generation, manifest))
    }
}

/// Reads `info` and, for a native generation, its manifest, which states where the shards are described. Checks that the
/// two agree.
fn read_info(directory: &Path, pointer: Option<&str>, in_store: bool) -> Result<(Info, Option<Manifest>)> {
    let texts = Texts {
        info_path: &directory.join(info::FILE_NAME),
        manifest_path: &directory.join(manifest::FILE_NAME),
        info: &read_whole(&directory.join(info::FILE_NAME), info::MAX_BYTES)?,
    };
    texts.describe(read_manifest(directory), pointer, |info| !in_store && is_without_manifest(directory, info))
}

/// Returns whether a directory whose manifest cannot be read is foreign, or a native one that lost its manifest.
fn is_without_manifest(directory: &Path, info: &Info) -> bool {
    info.layout.is_none() || matches!(entry::exists(&directory.join(manifest::FILE_NAME)), Ok(false))
}

fn read_manifest(directory: &Path) -> Result<Manifest> {
    read_whole(&directory.join(manifest::FILE_NAME), manifest::MAX_BYTES).and_then(|text| Manifest::parse(&text))
}

/// Returns the description of the shards in a directory by a specification of the caller. They are in the directory
/// itself, or in that of its manifest.
fn with_spec(directory: &Path, spec: ShardingSpec) -> Info {
    let manifest = read_manifest(directory).ok();
    let shards = manifest.map(|manifest| manifest.shards_directory()).unwrap_or_default();
    Info { spec, layout: None, pointer: String::new(), shards }
}
