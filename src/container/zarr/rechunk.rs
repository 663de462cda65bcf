//! The same array in other chunks: decoded, cut anew and encoded again.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;

use crate::container::zarr::array::ZarrArray;
use crate::container::zarr::metadata::ZarrMetadata;
use crate::container::zarr::nd::{self, ElementBox};
use crate::container::zarr::region::Region;
use crate::container::zarr::writer::{ZarrShardWriter, ZarrWriter};
use crate::container::{Container, Form, KeySpace, linear};
use crate::error::{Error, ErrorKind, Result};

/// As many decoded bytes are held at once, where a chunk is not larger by itself.
const TILE_BYTES: u64 = 64 << 20;

/// Writes an array into a new one whose chunks have another shape.
///
/// `metadata` is that of the source, [rechunked](ZarrMetadata::rechunked); what else it may be is any of an array of the same
/// shape, type and fill value. A new chunk is there if one of the old ones is that it has elements of; what is absent
/// beside that becomes the fill value. `progress` is told how many chunks of the new array are done, there or not, and of
/// how many; it may end the whole. The new array appears when it is whole. Gives the number of its chunks.
///
/// Memory: 64 MiB of elements, or as many as the larger of an old and a new chunk has along each axis; one chunk of either
/// besides, and 16 bytes for each chunk of a shard. Cost: every old chunk is decoded once, and again for each of these
/// parts or shards that it reaches into.
///
/// Errors: `Unsupported` if the new chunks cannot be encoded, which is so for nested sharding; `InvalidInput` if the two
/// are not the same array, or something is at `target`; `Cancelled`; the first chunk that cannot be read.
///
/// ```no_run
/// use std::ops::ControlFlow;
/// use sharddb::container::zarr::{ZarrArray, rechunk};
///
/// let source = ZarrArray::open("slices.zarr")?;
/// let cubes = source.metadata().rechunked(&[64, 64, 64], &[512, 512, 512], None)?;
/// rechunk(&source, "cubes.zarr", &cubes, |_, _| ControlFlow::Continue(()))?;
/// # Ok::<(), sharddb::Error>(())
/// ```
pub fn rechunk(
    source: &ZarrArray,
    target: impl AsRef<Path>,
    metadata: &ZarrMetadata,
    mut progress: impl FnMut(u64, u64) -> ControlFlow<()>,
) -> Result<u64> {
    check_same_array(source.metadata(), metadata)?;
    metadata.check_encodable()?;
    let writer = ZarrWriter::create(target, metadata)?;
    let mut rechunk = Rechunk::new(source, metadata);
    let shards = rechunk.shards_with_data()?;
    let total = shards.iter().map(|shard| rechunk.chunks_of(&rechunk.shard(*shard))).sum();
    let (mut done, mut chunks) = (0, 0);
    for number in shards {
        let mut shard = writer.shard(number)?;
        for tile in rechunk.shard(number).tiles(&rechunk.tile_shape) {
            chunks += rechunk.write(&tile, &mut shard)?;
            done += rechunk.chunks_of(&tile);
            if progress(done, total).is_break() {
                return Err(Error::new(ErrorKind::Cancelled, "expected to write all chunks, was cancelled"));
            }
        }
        shard.finish()?;
    }
    writer.finish()?;
    Ok(chunks)
}

fn check_same_array(source: &ZarrMetadata, target: &ZarrMetadata) -> Result<()> {
    match source.elements == target.elements && source.shape() == target.shape() {
        true => Ok(()),
        false => {
            Err(Error::invalid_input("expected the metadata of the same array in other chunks, found another array"))
        }
    }
}

struct Rechunk<'a> {
    source: &'a ZarrArray,
    target: &'a ZarrMetadata,
    /// What is decoded at once: whole chunks of the target.
    tile_shape: Vec<u64>,
    /// The elements of the tile at hand; kept for the next one.
    tile: Vec<u8>,
}

impl<'a> Rechunk<'a> {
    fn new(source: &'a ZarrArray, target: &'a ZarrMetadata) -> Rechunk<'a> {
        let tile_shape = tile_shape(source.metadata().chunk_shape(), target);
        Rechunk { source, target, tile_shape, tile: Vec::new() }
    }

    /// The numbers of the new shards that get elements of a chunk, ascending.
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

    /// What a shard has of the array.
    fn shard(&self, number: u64) -> Region {
        let shard = Region::of_cell(&self.target.grid.shard_position(number), self.target.shard_shape());
        shard.intersection(&Region::whole(self.target.shape()))
    }

    /// How many new chunks a region touches.
    fn chunks_of(&self, region: &Region) -> u64 {
        let ends = region.origin.iter().zip(&region.shape).zip(self.target.chunk_shape());
        ends.map(|((at, len), chunk)| at.saturating_add(*len).div_ceil(*chunk) - at / chunk).product()
    }

    /// Writes the new chunks in a tile; how many there are.
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

    /// Decodes the elements of a tile; the cells of the new chunks that some of them are in.
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

/// Whole new chunks, as far as an old one reaches at least; from there on grown to what may be held, along the last axes
/// first, and no larger than a shard.
fn tile_shape(source_chunk: &[u64], target: &ZarrMetadata) -> Vec<u64> {
    let axes = source_chunk.iter().zip(target.chunk_shape()).zip(target.shard_shape());
    let mut tile: Vec<u64> =
        axes.map(|((old, new), shard)| old.div_ceil(*new).saturating_mul(*new).min(*shard)).collect();
    let mut bytes = tile.iter().fold(target.element_len() as u64, |bytes, len| bytes.saturating_mul(*len));
    for ((len, new), shard) in tile.iter_mut().zip(target.chunk_shape()).zip(target.shard_shape()).rev() {
        let across = (bytes / *len).max(1); // of one element along this axis
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
        // all of a small shard
        assert_eq!(tile_shape(&[3, 5], &target([10, 10], [100, 200])), [100, 200]);
        // rows of a large one: 64 MiB are 33,554,432 elements
        assert_eq!(tile_shape(&[3, 5], &target([10, 10], [100_000, 10_000])), [3350, 10_000]);
        // an old chunk reaches further than a new one
        assert_eq!(tile_shape(&[25, 1], &target([10, 10], [100_000, 10_000_000])), [30, 1_118_480]);
        // more than may be held, and no more than that
        assert_eq!(tile_shape(&[10_000, 10_000], &target([10, 10], [100_000, 100_000])), [10_000, 10_000]);
    }
}
