//! One open generation, or directory of foreign data, in an object store: its metadata, and how its blocks are stored.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sharddb_format::internal::checks::ChecksPlace;
use sharddb_format::internal::description::Texts;
use sharddb_format::internal::ids::{Location, ShardNumber};
use sharddb_format::internal::info::{self, Info};
use sharddb_format::internal::layout::Layout;
use sharddb_format::internal::manifest::{self, Manifest, ShardRecord};
use sharddb_format::internal::spec::{Encoding, ShardingSpec};
use sharddb_format::{Error, ErrorKind, Result};

use crate::block::Cache;
use crate::block_store::BlockStore;
use crate::minishard::MinishardFormat;
use crate::objects::{Objects, Span, Totals, Unread};
use crate::operation::Exchange;
use crate::request::{Body, RemoteValue};
use crate::request_cost::RequestCost;
use crate::table::Table;

/// The shard indexes of a store without a minishard table are read at open if they have at most this many bytes in all.
/// Stores with fewer than 512 minishards have no table.
const SMALL_INDEXES: u64 = 8 << 10;

/// More keys than shards can have, few enough to calculate with.
const MOST_KEYS: u64 = 1 << 60;

/// Upper bound on the first bytes of the minishard table that are read before its length is known.
const MOST_FIRST_BYTES: u64 = 16 << 20;

/// And if there are at most this many shards, each of which takes a request.
const MOST_SMALL_SHARDS: usize = 64;

/// What is read of a generation at the same time as its manifest, before it is known what there is.
#[derive(Default)]
pub(crate) struct FirstBytes {
    /// Of the minishard table.
    table: Option<Body>,
    /// Of a shard: the only one of a small store.
    shard: Option<Body>,
}

impl FirstBytes {
    /// Returns what to read in a directory.
    pub(crate) fn spans(shared: &Shared, directory: &str) -> Vec<Span> {
        let table = (format!("{directory}{}", manifest::MINISHARDS), shared.whole_table_bytes.min(MOST_FIRST_BYTES));
        let spans = [table, (FirstBytes::shard_object(directory), SMALL_INDEXES)].into_iter();
        let spans = spans.filter(|(_, bytes)| *bytes > 0);
        spans.map(|(object, bytes)| Span { object, range: 0..bytes, needed: 1 }).collect()
    }

    /// Keeps what was read.
    pub(crate) fn keep(&mut self, span: &Span, bytes: Body) {
        let is_table = span.object.ends_with(manifest::MINISHARDS);
        *if is_table { &mut self.table } else { &mut self.shard } = Some(bytes);
    }

    fn shard_object(directory: &str) -> String {
        format!("{directory}0.shard")
    }
}

/// What all generations of a reader share.
pub(crate) struct Shared {
    /// The name of the data set for errors; may be empty.
    pub(crate) root: Arc<str>,
    /// The generation of the history that is served instead of the current one.
    pub(crate) chosen: Option<String>,
    pub(crate) spec: Option<ShardingSpec>,
    pub(crate) pointer: Option<String>,
    pub(crate) max_value_bytes: u64,
    pub(crate) max_index_bytes: u64,
    pub(crate) whole_table_bytes: u64,
    pub(crate) request_cost: RequestCost,
    pub(crate) cache: Cache,
    pub(crate) block_store: Option<Arc<dyn BlockStore>>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) generations: AtomicU64,
}

/// An open generation. Immutable, except for what is known of its objects.
pub(crate) struct RemoteGeneration {
    pub(crate) shared: Arc<Shared>,
    /// Distinguishes the generations of a reader in the cache.
    pub(crate) serial: u64,
    /// The name in `current`; `None` if the root is the directory of the shards.
    pub(crate) name: Option<String>,
    /// The directory of the generation, empty or with a `/` at its end.
    directory: String,
    /// The directory of the shards, likewise.
    shards_directory: String,
    pub(crate) objects: Objects,
    pub(crate) info: String,
    pub(crate) spec: ShardingSpec,
    pub(crate) layout: Option<Layout>,
    pub(crate) manifest: Option<Manifest>,
    /// The bytes of all minishard indexes, padding and preambles.
    pub(crate) index_bytes: u64,
    pub(crate) table: Option<Table>,
    /// The verified shard indexes of a small store without a table.
    pub(crate) small_indexes: HashMap<ShardNumber, Body>,
    /// Names the content for a [`BlockStore`]; `None` if it has no name that is unique.
    pub(crate) content_name: Option<String>,
}

impl Shared {
    /// Returns objects of the data set about which nothing is known.
    pub(crate) fn objects(&self) -> Objects {
        Objects::new(self.root.clone(), self.totals.clone())
    }
}

impl RemoteGeneration {
    /// What a request costs now.
    pub(crate) fn request_cost(&self) -> RequestCost {
        self.shared.totals.request_cost().unwrap_or(self.shared.request_cost)
    }

    /// Makes the generation of this name, or of the directory at the root, from its two texts. `read_places` completes
    /// it.
    ///
    /// Errors: those of `info` and of the manifest.
    pub(crate) fn describe(
        shared: Arc<Shared>,
        name: Option<String>,
        info: Body,
        manifest: Result<Option<Manifest>>,
        objects: Objects,
    ) -> Result<RemoteGeneration> {
        let directory = name.as_ref().map(|name| format!("{name}/")).unwrap_or_default();
        let has_manifest = !matches!(manifest, Ok(None));
        let manifest = manifest.and_then(|manifest| manifest.ok_or_else(no_manifest));
        let (description, manifest) = match shared.spec {
            Some(spec) => (with_spec(spec, manifest.ok().as_ref()), None),
            None => {
                let texts = Texts {
                    info: info.as_slice(),
                    info_path: &objects.path(&format!("{directory}{}", info::FILE_NAME)),
                    manifest_path: &objects.path(&format!("{directory}{}", manifest::FILE_NAME)),
                };
                let is_generation = name.is_some();
                let may_lack = |info: &Info| !is_generation && (info.layout.is_none() || !has_manifest);
                texts.describe(manifest, shared.pointer.as_deref(), may_lack)?
            }
        };
        let text = String::from_utf8_lossy(info.as_slice()).into_owned();
        let content_name = manifest.as_ref().map(|manifest| {
            let crc32 = crc32fast::hash(manifest.to_json().as_bytes());
            let name = name.as_deref().unwrap_or_default();
            format!("{}|{name}|{crc32:08x}|{}|{}", shared.root, manifest.keys, manifest.value_bytes)
        });
        Ok(RemoteGeneration {
            serial: shared.generations.fetch_add(1, Ordering::Relaxed),
            shards_directory: format!("{directory}{}", object_directory(&description.shards)?),
            directory,
            name,
            objects,
            info: text,
            spec: description.spec,
            layout: manifest.as_ref().map(|manifest| manifest.layout).or(description.layout),
            index_bytes: manifest.as_ref().map_or(0, index_bytes),
            manifest,
            table: None,
            small_indexes: HashMap::new(),
            content_name,
            shared,
        })
    }

    /// Reads the beginning of the minishard table, or the shard indexes of a small store, as far as they were not read with
    /// the manifest. Without them, lookups read shard indexes.
    pub(crate) async fn read_places(&mut self, exchange: &Exchange, first: FirstBytes) -> Result<()> {
        self.table = self.read_table(exchange, first.table).await;
        if self.table.is_none() {
            self.read_small_indexes(exchange, first.shard).await?;
        }
        Ok(())
    }

    async fn read_table(&self, exchange: &Exchange, first: Option<Body>) -> Option<Table> {
        let manifest = self.manifest.as_ref()?;
        let (shards, len) = (manifest.shards.len(), manifest.auxiliary(manifest::MINISHARDS)?.checksum.bytes);
        let wanted = Table::first_read(len, self.shared.whole_table_bytes, shards);
        let first = match first.filter(|first| first.as_slice().len() as u64 >= wanted) {
            Some(first) => first,
            None if wanted == 0 => return None,
            None => self.objects.read(exchange, &Span::exact(self.table_object(), 0..wanted)).await.ok()?,
        };
        Table::read(first, len, shards)
    }

    async fn read_small_indexes(&mut self, exchange: &Exchange, first: Option<Body>) -> Result<()> {
        let Some(manifest) = &self.manifest else { return Ok(()) };
        let len = self.spec.shard_index_len();
        let count = manifest.shards.len();
        if count > MOST_SMALL_SHARDS || len.saturating_mul(count as u64) > SMALL_INDEXES {
            return Ok(());
        }
        let mut indexes = HashMap::new();
        let (mut shards, mut spans) = (Vec::new(), Vec::new());
        for shard in &manifest.shards {
            let span = Span::exact(self.shard_object(shard.number), 0..len);
            let first = first.as_ref().filter(|_| span.object == FirstBytes::shard_object(&self.directory));
            let index = first.and_then(|first| span.value_of(&span, first));
            match index.and_then(|index| self.check_shard_index(shard, index.into_body()).ok()) {
                Some(index) => drop(indexes.insert(shard.number, index)),
                None => {
                    shards.push(shard);
                    spans.push(span);
                }
            }
        }
        let mut failed = None;
        let answered = |at: usize, answer: Result<RemoteValue, Unread>| {
            let (Some(shard), Some(span)) = (shards.get(at), spans.get(at)) else { return };
            let read = answer.map_err(|unread| self.explain(span, &unread));
            match read.and_then(|index| self.check_shard_index(shard, index.into_body())) {
                Ok(index) => drop(indexes.insert(shard.number, index)),
                // a damaged shard index is reported by lookups in its shard
                Err(error) if error.kind() == ErrorKind::Corrupt => {}
                Err(error) => failed = Some(error),
            }
        };
        self.objects.read_planned(exchange, self.request_cost(), &spans, answered).await;
        self.small_indexes = indexes;
        failed.map_or(Ok(()), Err)
    }

    /// Compares a whole shard index with the checksum that the manifest states.
    pub(crate) fn check_shard_index(&self, shard: &ShardRecord, index: Body) -> Result<Body> {
        let (stated, found) = (shard.shard_index_crc32, crc32fast::hash(index.as_slice()));
        if stated == found {
            return Ok(index);
        }
        let message = format!("expected a shard index with CRC-32 {stated:08x}, found {found:08x}");
        let path = self.objects.path(&self.shard_object(shard.number));
        Err(Error::corrupt(message).at_offset(0).at_shard(shard.number).at_path(&path))
    }

    /// Returns the error for a span that was not read.
    pub(crate) fn explain(&self, span: &Span, unread: &Unread) -> Error {
        match unread {
            Unread::Missing => self.objects.gone(&span.object),
            Unread::Unchanged => Error::internal("expected an answer without a condition, found \"unchanged\"")
                .at_path(&self.objects.path(&span.object)),
            Unread::Failed(error) => error.clone(),
        }
    }

    /// Returns how the minishards are stored.
    pub(crate) fn minishard_format(&self) -> MinishardFormat {
        MinishardFormat {
            index_encoding: self.spec.minishard_index_encoding(),
            layout: self.layout.unwrap_or_default(),
            max_index_bytes: self.shared.max_index_bytes,
        }
    }

    /// Returns the record of a shard; `None` if there is no manifest, or it does not list the shard.
    pub(crate) fn record(&self, shard: ShardNumber) -> Option<&ShardRecord> {
        self.manifest.as_ref().and_then(|manifest| manifest.shard(shard))
    }

    /// Whether it is known without a request that a shard has no keys.
    pub(crate) fn lacks_shard(&self, shard: ShardNumber) -> bool {
        self.manifest.as_ref().is_some_and(|manifest| manifest.shard(shard).is_none())
    }

    /// Returns the first shard from `shard` on that the generation may have; `None` if there is none.
    pub(crate) fn next_shard(&self, shard: ShardNumber) -> Option<ShardNumber> {
        let Some(manifest) = &self.manifest else { return (shard <= self.spec.max_shard()).then_some(shard) };
        let at = manifest.shards.partition_point(|record| record.number < shard);
        manifest.shards.get(at).map(|record| record.number)
    }

    /// Returns the length of a shard, if it is known: that of the manifest, or of a response.
    pub(crate) fn shard_len(&self, shard: ShardNumber) -> Option<u64> {
        match self.record(shard) {
            Some(record) => Some(record.bytes),
            None => self.objects.identity(&self.shard_object(shard)).and_then(|identity| identity.len),
        }
    }

    /// Returns the object of a shard.
    pub(crate) fn shard_object(&self, shard: ShardNumber) -> String {
        format!("{}{}", self.shards_directory, self.spec.shard_file_name(shard))
    }

    /// Returns the object of the minishard table.
    pub(crate) fn table_object(&self) -> String {
        self.auxiliary_object(manifest::MINISHARDS)
    }

    /// Returns the object of an auxiliary file.
    pub(crate) fn auxiliary_object(&self, name: &str) -> String {
        format!("{}{name}", self.directory)
    }

    /// Adds the place of a minishard to an error.
    pub(crate) fn at(&self, location: Location, error: Error) -> Error {
        let path = self.objects.path(&self.shard_object(location.shard));
        error.at_shard(location.shard).at_minishard(location.minishard).at_path(&path)
    }

    /// Whether the minishard indexes are raw, so that they precede their values.
    pub(crate) fn has_raw_indexes(&self) -> bool {
        self.spec.minishard_index_encoding() == Encoding::Raw
    }
}

/// Returns the bytes of all minishard indexes, padding and preambles: what the shards have besides shard indexes, values and
/// checks.
fn index_bytes(manifest: &Manifest) -> u64 {
    let bytes = manifest.shards.iter().map(|shard| shard.bytes.saturating_sub(manifest.sharding.shard_index_len()));
    let bytes = bytes.fold(0, u64::saturating_add).saturating_sub(manifest.value_bytes);
    bytes.saturating_sub(ChecksPlace::total_len(manifest.keys.min(MOST_KEYS), manifest.layout))
}

fn no_manifest() -> Error {
    Error::corrupt("expected the manifest of a generation, found none")
}

/// The description of the shards by a specification of the caller.
fn with_spec(spec: ShardingSpec, manifest: Option<&Manifest>) -> Info {
    let shards = manifest.map(Manifest::shards_directory).unwrap_or_default();
    Info { spec, layout: None, pointer: String::new(), shards }
}

/// Returns a directory as the beginning of the names of objects.
fn object_directory(directory: &Path) -> Result<String> {
    let mut prefix = String::new();
    for name in directory {
        let name =
            name.to_str().ok_or_else(|| Error::internal("a directory of shards has a name that is not UTF-8"))?;
        prefix.push_str(name);
        prefix.push('/');
    }
    Ok(prefix)
}
