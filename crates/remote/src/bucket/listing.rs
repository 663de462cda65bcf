//! The objects that a bucket has.

use std::collections::{BTreeMap, HashMap};

use futures_util::StreamExt;
use object_store::ObjectMeta;
use sharddb_format::internal::manifest;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::probe::is_probe;
use crate::bucket::root::Root;
use crate::bucket_current::{GenerationName, ServerTime};

/// Maximum number of generations that are listed: bounds the memory.
const MOST_GENERATIONS: usize = 100_000;

/// The totals of the objects of a generation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Totals {
    pub(super) objects: u64,
    pub(super) bytes: u64,
    /// When the newest object was written.
    pub(super) newest: ServerTime,
    /// Whether it has a manifest, which is written last.
    pub(super) is_complete: bool,
}

/// An object of a generation.
#[derive(Clone, Debug)]
pub(super) struct ListedObject {
    pub(super) bytes: u64,
    /// Some stores list it in another form than they return it for an upload.
    pub(super) etag: Option<String>,
}

/// What a store in a bucket has.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) generations: BTreeMap<GenerationName, Totals>,
    /// Probes that killed processes left, and when they were written.
    pub(super) probes: Vec<(String, ServerTime)>,
}

impl Root {
    /// Lists all objects. Ignores foreign names.
    ///
    /// Cost: a request for about 1,000 objects. Memory: the names of the generations.
    ///
    /// Errors: `TooLarge` for more than 100,000 generations; `Io`.
    pub(super) async fn list(&self) -> Result<Listing> {
        let mut listing = Listing::default();
        let mut objects = self.store().list(Some(self.prefix()));
        while let Some(meta) = objects.next().await {
            let meta = meta.map_err(|error| self.failed("list", "", error))?;
            self.count(&mut listing, &meta)?;
            if listing.generations.len() + listing.probes.len() > MOST_GENERATIONS {
                let message = format!("expected at most {MOST_GENERATIONS} generations in a store, found more");
                return Err(Error::new(ErrorKind::TooLarge, message).at_path(&self.place("")));
            }
        }
        Ok(listing)
    }

    fn count(&self, listing: &mut Listing, meta: &ObjectMeta) -> Result<()> {
        let Some(name) = self.name_of(&meta.location) else { return Ok(()) };
        if is_probe(name) {
            listing.probes.push((name.to_string(), self.modified(meta)?));
            return Ok(());
        }
        let Some((directory, object)) = name.split_once('/') else { return Ok(()) };
        let Some(generation) = GenerationName::parse(directory) else { return Ok(()) };
        let newest = self.modified(meta)?;
        let new = Totals { objects: 0, bytes: 0, newest, is_complete: false };
        let totals = listing.generations.entry(generation).or_insert(new);
        totals.objects += 1;
        totals.bytes = totals.bytes.saturating_add(meta.size);
        totals.newest = totals.newest.max(newest);
        totals.is_complete |= object == manifest::FILE_NAME;
        Ok(())
    }

    /// Returns the lengths of those objects of a generation that are in `wanted`, and the name of one that is not.
    pub(super) async fn lengths_of(
        &self,
        generation: &GenerationName,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(HashMap<String, u64>, Option<String>)> {
        let (found, other) = self.objects_of(generation, wanted).await?;
        Ok((found.into_iter().map(|(name, object)| (name, object.bytes)).collect(), other))
    }

    /// Like [`lengths_of`](Self::lengths_of), with the ETags.
    pub(super) async fn objects_of(
        &self,
        generation: &GenerationName,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(HashMap<String, ListedObject>, Option<String>)> {
        let (mut found, mut other) = (HashMap::new(), None);
        let mut objects = self.store().list(Some(&self.path(generation.as_str())?));
        while let Some(meta) = objects.next().await {
            let meta = meta.map_err(|error| self.failed("list", generation.as_str(), error))?;
            let name = self.name_of(&meta.location).and_then(|name| name.strip_prefix(generation.as_str()));
            let Some(name) = name.and_then(|name| name.strip_prefix('/')) else { continue };
            if wanted(name) {
                _ = found.insert(name.to_string(), ListedObject { bytes: meta.size, etag: meta.e_tag })
            } else {
                other = Some(name.to_string())
            }
        }
        Ok((found, other))
    }
}
