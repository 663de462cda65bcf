//! Rechunking: decodes an array, cuts it into chunks of a different shape and encodes them.

use std::collections::BTreeSet;
use std::path::Path;

use sharddb::Progress;
use sharddb::progress::Phase;
use sharddb_format::{Error, Result};

use crate::zarr::array::ZarrArray;
use crate::zarr::metadata::ZarrMetadata;
use crate::zarr::nd::{self, ElementBox};
use crate::zarr::region::Region;
use crate::zarr::writer::{ZarrShardWriter, ZarrWriter};
use crate::{Container, Form, KeySpace, linear};

/// Limit in bytes on the decoded elements in memory, unless one chunk is larger.
const TILE_BYTES: u64 = 64 << 20;

/// Writes an array into a new one with chunks of a different shape.
///
/// `metadata` is usually that of the source, [rechunked](ZarrMetadata::rechunked). Any metadata of the same shape, data
/// type and fill value is valid. A new chunk exists if an old chunk exists that shares elements with it; its other
/// elements have the fill value. `progress` counts the chunks of the new array, existing or not. The new array
/// appears only when it is complete. Returns the number of its chunks.
///
/// Memory: a tile of 64 MiB of elements, or of the larger of an old and a new chunk along each axis if that is more;
/// plus one old and one new chunk, and 16 bytes per chunk of a shard.
///
/// Cost: decodes every old chunk once for each tile that it intersects. A tile never exceeds a shard.
///
/// # Errors
///
/// `Unsupported` for nested sharding, whose chunks cannot be encoded; `InvalidInput` if `metadata` does not describe
/// the same array, or `target` exists; `Cancelled`; the error of the first chunk that cannot be read.
///
/// ```no_run
/// use sharddb::Progress;
/// use sharddb_container::zarr::{ZarrArray, rechunk};
///
/// let source = ZarrArray::open("slices.zarr")?;
/// let cubes = source.metadata().rechunked(&[64, 64, 64], &[512, 512, 512], None)?;
/// rechunk(&source, "cubes.zarr", &cubes, &Progress::new())?;
/// # Ok::<(), sharddb::Error>(())
/// ```
pub fn rechunk(
    source: &ZarrArray,
    target: impl AsRef<Path>,
    metadata: &ZarrMetadata,
    progress: &Progress,
) -> Result<u64> {
    check_same_array(source.metadata(), metadata)?;
    metadata.check_encodable()?;
    let writer = ZarrWriter::create(target, metadata)?;
    let mut rechunk = Rechunk::new(source, metadata);
    let shards = rechunk.shards_with_data()?;
    let mut chunks = 0;
    progress.begin(Phase::Convert, shards.iter().map(|shard| rechunk.chunks_of(&rechunk.shard(*shard))).sum());
    for number in shards {
        let mut shard = writer.shard(number)?;
        for tile in rechunk.shard(number).tiles(&rechunk.tile_shape) {
            chunks += rechunk.write(&tile, &mut shard)?;
            progress.add(rechunk.chunks_of(&tile));
            progress.check()?;
        }
        shard.finish()?;
    }
    writer.finish()?;
    Ok(chunks)
}

fn check_same_array(source: &ZarrMetadata, target: &ZarrMetadata) -> Result<()> {
    if source.elements == target.elements && source.shape() == target.shape() {
        Ok(())
    } else {
        Err(Error::invalid_input("expected the metadata of the same array in other chunks, found another array"))
    }
}

struct Rechunk<'a> {
    source: &'a ZarrArray,
    target: &'a ZarrMetadata,
    /// Shape of the part that is decoded at once: whole chunks of the target.
    tile_shape: Vec<u64>,
    /// The elements of the current tile.
    tile: Vec<u8>,
}

impl<'a> Rechunk<'a> {
    fn new(source: &'a ZarrArray, target: &'a ZarrMetadata) -> Rechunk<'a> {
        let tile_shape = tile_shape(source.metadata().chunk_shape(), target);
        Rechunk { source, target, tile_shape, tile: Vec::new() }
    }

    /// Returns the numbers of the new shards that intersect an existing chunk, in ascending order.
    fn shards_with_data(&self) -> Result<BTreeSet<u64>> {
        let (whole, space) = (Region::whole(self.target.shape()), self.source.key_space());
        let mut shards = BTreeSet::new();
        for key in self.source.keys() {
            let cell = space.position_of(key?).unwrap_or_default();
            let chunk = Region::of_cell(&cell, self.source.metadata().chunk_shape()).intersection(&whole);
            let cells = chunk.cells(self.target.shard_shape());
            shards.extend(cells.filter_map(|cell| self.target.grid.shard_number(&cell)));
        }
        Ok(shards)
    }

    /// Returns the part of the array that a shard holds.
    fn shard(&self, number: u64) -> Region {
        let shard = Region::of_cell(&self.target.grid.shard_position(number), self.target.shard_shape());
        shard.intersection(&Region::whole(self.target.shape()))
    }

    /// Returns how many new chunks a region intersects.
    fn chunks_of(&self, region: &Region) -> u64 {
        let ends = region.origin.iter().zip(&region.shape).zip(self.target.chunk_shape());
        ends.map(|((at, len), chunk)| at.saturating_add(*len).div_ceil(*chunk) - at / chunk).product()
    }

    /// Writes the new chunks of a tile; returns their number.
    fn write(&mut self, tile: &Region, shard: &mut ZarrShardWriter) -> Result<u64> {
        let cells = self.decode(tile)?;
        let (shape, size) = (self.target.chunk_shape(), self.target.element_len());
        for cell in &cells {
            let chunk = Region::of_cell(cell, shape);
            let part = chunk.intersection(tile);
            let mut elements = self.target.elements.filled(shape, u64::MAX)?;
            let source = ElementBox { elements: &self.tile, shape: &tile.shape };
            let (from, to) = (part.place_in(tile), part.place_in(&chunk));
            nd::copy_part(&source, &from, &mut elements, shape, &to, &part.shape, size);
            let key = linear::number(&self.target.chunk_grid(), cell).unwrap_or(u64::MAX);
            shard.put(key, &self.target.encode_chunk(&elements)?)?;
        }
        Ok(cells.len() as u64)
    }

    /// Decodes the elements of a tile; returns the cells of the new chunks that exist.
    fn decode(&mut self, tile: &Region) -> Result<BTreeSet<Vec<u64>>> {
        let (shape, size) = (self.source.metadata().chunk_shape(), self.target.element_len());
        let KeySpace::Linear { grid } = self.source.key_space() else { return Ok(BTreeSet::new()) };
        let mut touched = BTreeSet::new();
        for cell in tile.cells(shape) {
            let Some(key) = linear::number(&grid, &cell) else { continue };
            let Some(elements) = self.source.get(key, Form::Decoded)? else { continue };
            if touched.is_empty() {
                self.tile = self.target.elements.filled(&tile.shape, u64::MAX)?;
            }
            let chunk = Region::of_cell(&cell, shape);
            let part = chunk.intersection(tile);
            let (from, to) = (part.place_in(&chunk), part.place_in(tile));
            let source = ElementBox { elements: &elements, shape };
            nd::copy_part(&source, &from, &mut self.tile, &tile.shape, &to, &part.shape, size);
            touched.extend(part.cells(self.target.chunk_shape()));
        }
        Ok(touched)
    }
}

/// Returns the shape of a tile: whole new chunks that cover at least the extent of an old chunk, extended up to the
/// memory limit along the last axes first, and no larger than a shard.
fn tile_shape(source_chunk: &[u64], target: &ZarrMetadata) -> Vec<u64> {
    let axes = source_chunk.iter().zip(target.chunk_shape()).zip(target.shard_shape());
    let mut tile: Vec<u64> =
        axes.map(|((old, new), shard)| old.div_ceil(*new).saturating_mul(*new).min(*shard)).collect();
    let mut bytes = tile.iter().fold(target.element_len() as u64, |bytes, len| bytes.saturating_mul(*len));
    for ((len, new), shard) in tile.iter_mut().zip(target.chunk_shape()).zip(target.shard_shape()).rev() {
        let across = (bytes / *len).max(1); // bytes per element along this axis
        let grown = (TILE_BYTES / across / new * new).clamp(*len, *shard);
        bytes = across.saturating_mul(grown);
        *len = grown;
    }
    tile
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(chunk: [u64; 2], shard: [u64; 2]) -> ZarrMetadata {
        let text = format!(
            r#"{{"zarr_format": 3, "node_type": "array", "shape": [1000000, 1000000], "data_type": "uint16",
                "chunk_grid": {{"name": "regular", "configuration": {{"chunk_shape": {chunk:?}}}}}, "fill_value": 7,
                "chunk_key_encoding": {{"name": "default"}},
                "codecs": [{{"name": "bytes", "configuration": {{"endian": "little"}}}}]}}"#
        );
        ZarrMetadata::from_json(&text).unwrap().sharded(&shard, None).unwrap()
    }

    #[test]
    fn a_tile_has_whole_chunks_and_as_many_as_may_be_held() {
        // a small shard as a whole
        assert_eq!(tile_shape(&[3, 5], &target([10, 10], [100, 200])), [100, 200]);
        // rows of a large shard: 64 MiB are 33,554,432 elements
        assert_eq!(tile_shape(&[3, 5], &target([10, 10], [100_000, 10_000])), [3350, 10_000]);
        // an old chunk is longer than a new one
        assert_eq!(tile_shape(&[25, 1], &target([10, 10], [100_000, 10_000_000])), [30, 1_118_480]);
        // an old chunk above the limit: no more than that
        assert_eq!(tile_shape(&[10_000, 10_000], &target([10, 10], [100_000, 100_000])), [10_000, 10_000]);
    }
}
