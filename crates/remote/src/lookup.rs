//! The lookup of one key.
//!
//! ```text
//! key        -> shard, minishard       hash; no request if the manifest does not list the shard
//! minishard  -> place of its index     place: table or shard index, in memory or one request
//!            -> index                  acquire: one request, with the values if they take less than a request
//!            -> row -> value           verified and decoded; one request if it did not come with the index
//! ```

use std::ops::Range;
use std::sync::Arc;

use sharddb_format::internal::byte_range::ByteRange;
use sharddb_format::internal::checks::StoredCheck;
use sharddb_format::internal::gzip;
use sharddb_format::internal::ids::Location;
use sharddb_format::internal::minishard;
use sharddb_format::internal::minishard_index::Row;
use sharddb_format::internal::spec::Encoding;
use sharddb_format::{Error, ErrorKind, Result};

use crate::block::{Block, BlockKey, BlockName};
use crate::generation::RemoteGeneration;
use crate::minishard::Minishard;
use crate::objects::Span;
use crate::operation::Exchange;
use crate::place::{Place, PlaceStep};
use crate::request::RemoteValue;

/// A key that was found. It does not keep its minishard in memory.
pub(crate) struct Found {
    pub(crate) location: Location,
    pub(crate) row: Row,
    /// The stored value in its shard.
    pub(crate) value: ByteRange,
    /// `None` in a layout without checks.
    check: Option<StoredCheck>,
    /// The stored value, if it is empty or came with the index.
    pub(crate) in_memory: Option<RemoteValue>,
}

/// Where a value is stored.
///
/// ```
/// use sharddb_remote::RemoteLocation;
///
/// fn http_range(location: &RemoteLocation) -> String {
///     format!("bytes={}-{}", location.range.start, location.range.end.saturating_sub(1))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RemoteLocation {
    /// The object, relative to the root of the data set.
    pub object: String,
    /// The bytes of the stored value, which may be encoded. Empty for an empty value.
    pub range: Range<u64>,
}

impl RemoteLocation {
    /// Returns the stored length in bytes, which is that of the encoded value.
    pub fn stored_len(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl RemoteGeneration {
    /// Returns the value of a key.
    pub(crate) async fn get(&self, exchange: &Exchange, key: u64) -> Result<Option<RemoteValue>> {
        match self.find(exchange, key).await? {
            Some(found) => self.value(exchange, &found).await.map(Some),
            None => Ok(None),
        }
    }

    /// Returns where the value of a key is stored.
    pub(crate) async fn locate(&self, exchange: &Exchange, key: u64) -> Result<Option<RemoteLocation>> {
        let found = self.find(exchange, key).await?;
        Ok(found.map(|found| RemoteLocation {
            object: self.shard_object(found.location.shard),
            range: found.value.start..found.value.end,
        }))
    }

    /// Finds the row of a key.
    ///
    /// Errors: `Corrupt`, also if the value is not within the shard, or the key is not found in an index with impossible
    /// ranges; `TooLarge`, `GenerationGone`; those of the client.
    pub(crate) async fn find(&self, exchange: &Exchange, key: u64) -> Result<Option<Found>> {
        let location = self.spec.route(key);
        if self.lacks_shard(location.shard) {
            return Ok(None);
        }
        let at = |error: Error| self.at(location, error).at_key(key);
        match self.minishard(exchange, location).await.map_err(at)? {
            Some(minishard) => self.find_in(location, &minishard, key),
            None => Ok(None),
        }
    }

    /// Finds the row of a key in its minishard.
    pub(crate) fn find_in(&self, location: Location, minishard: &Minishard, key: u64) -> Result<Option<Found>> {
        let at = |error: Error| self.at(location, error).at_key(key);
        match minishard.find(key).map_err(at)? {
            Some(row) => self.found(location, minishard, row).map(Some),
            None => Ok(None),
        }
    }

    /// Takes from a minishard what the value of a row needs.
    ///
    /// Errors: `Corrupt` if the value is not within the shard.
    pub(crate) fn found(&self, location: Location, minishard: &Minishard, row: Row) -> Result<Found> {
        let at = |error: Error| self.at(location, error).at_key(row.id);
        let len = self.shard_len(location.shard).unwrap_or(i64::MAX.unsigned_abs());
        let value = minishard::value_range(row, self.spec.shard_index_len(), len).map_err(at)?;
        let check = minishard.check_of_value(self.layout.unwrap_or_default(), row).map_err(at)?;
        let in_memory = match value.len() {
            0 => Some(RemoteValue::from(Vec::new())),
            _ => minishard.value(value).map(RemoteValue::without_neighbours),
        };
        Ok(Found { location, row, value, check, in_memory })
    }

    /// Reads the value of a found key.
    pub(crate) async fn value(&self, exchange: &Exchange, found: &Found) -> Result<RemoteValue> {
        let encoded = match &found.in_memory {
            Some(encoded) => encoded.clone(),
            None => {
                let span = self.value_span(found).map_err(|error| self.at_found(found, error))?;
                let body = self.objects.read(exchange, &span).await;
                let body = body.map_err(|unread| self.at_found(found, self.explain(&span, &unread)))?;
                RemoteValue::all(body)
            }
        };
        self.verified(found, encoded)
    }

    /// Returns the range to read for a value.
    ///
    /// Errors: `TooLarge` if it exceeds the cap.
    pub(crate) fn value_span(&self, found: &Found) -> Result<Span> {
        minishard::check_value_len(found.value, self.spec.data_encoding(), self.shared.max_value_bytes)?;
        let ByteRange { start, end } = found.value;
        Ok(Span::exact(self.shard_object(found.location.shard), start..end))
    }

    /// Verifies and decodes a stored value.
    pub(crate) fn verified(&self, found: &Found, encoded: RemoteValue) -> Result<RemoteValue> {
        let cap = self.shared.max_value_bytes;
        let verified = minishard::check_value_len(found.value, self.spec.data_encoding(), cap);
        let verified = verified.and_then(|()| match &found.check {
            Some(check) => check.verify_value(found.row.id, found.value.start, &encoded),
            None => Ok(()),
        });
        let decoded = verified.and_then(|()| match self.spec.data_encoding() {
            Encoding::Raw => Ok(encoded),
            Encoding::Gzip => gzip::decode(&encoded, cap).map(RemoteValue::from),
        });
        decoded.map_err(|error| self.at_found(found, error))
    }

    /// Adds the place of a found key to an error.
    pub(crate) fn at_found(&self, found: &Found, error: Error) -> Error {
        self.at(found.location, error).at_key(found.row.id)
    }

    /// Returns a minishard from the cache.
    pub(crate) fn cached_minishard(&self, exchange: &Exchange, location: Location) -> Option<Arc<Minishard>> {
        let key = BlockKey { generation: self.serial, block: BlockName::Minishard(location) };
        let Some(Block::Minishard(minishard)) = self.shared.cache.lock().get(key) else { return None };
        self.count_cache_hit(exchange);
        Some(minishard)
    }

    /// Returns the verified index of a minishard; `None` if the minishard has no keys.
    pub(crate) async fn minishard(&self, exchange: &Exchange, location: Location) -> Result<Option<Arc<Minishard>>> {
        if let Some(minishard) = self.cached_minishard(exchange, location) {
            return Ok(Some(minishard));
        }
        let known = self.known_place(location)?;
        let Some(place) = self.place(exchange, location, known).await? else { return Ok(None) };
        let block = self.read_minishard(exchange, location, &place).await;
        self.minishard_in(exchange, location, &place, block).await.map(Some)
    }

    /// Returns the minishard that was read at a place.
    ///
    /// Errors: `Corrupt` if the bytes are not those of the minishard. If there is a minishard table, compares the place with
    /// the shard index: the table may be wrong although its checksums match.
    pub(crate) async fn minishard_in(
        &self,
        exchange: &Exchange,
        location: Location,
        place: &Place,
        block: Result<Block>,
    ) -> Result<Arc<Minishard>> {
        let error = match block.and_then(Block::minishard) {
            Err(error) if error.kind() == ErrorKind::Corrupt && self.table.is_some() => error,
            minishard => return minishard,
        };
        let known = self.known_place_by_shard_index(location)?;
        match self.place(exchange, location, known).await? {
            Some(stated) if stated.index == place.index => Err(error),
            _ => Err(self.wrong_table()),
        }
    }

    /// Reads the blocks that state a place until it is known; `None` if the minishard has no keys.
    async fn place(&self, exchange: &Exchange, location: Location, mut known: PlaceStep) -> Result<Option<Place>> {
        loop {
            known = match known {
                PlaceStep::Place(place) => return Ok(place),
                PlaceStep::Read(read) => {
                    let block = self.acquire_one(exchange, read.clone()).await;
                    self.place_in(location, &read, &block)?
                }
            };
        }
    }

    async fn read_minishard(&self, exchange: &Exchange, location: Location, place: &Place) -> Result<Block> {
        let read = self.read_of_minishard(location, place, 1)?;
        self.acquire_one(exchange, read).await
    }
}
