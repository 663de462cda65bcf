//! Conversion of an array to a Neuroglancer precomputed volume.

use std::path::Path;

use sharddb::Progress;
use sharddb::progress::Phase;
use sharddb::write::ShardWriter;
use sharddb_format::internal::hash::HashFunction;
use sharddb_format::internal::ids::{Location, ShardNumber};
use sharddb_format::internal::info::FILE_NAME as INFO;
use sharddb_format::internal::layout::Layout;
use sharddb_format::internal::spec::ShardingSpec;
use sharddb_format::morton;
use sharddb_format::{Error, ErrorKind, Result};

use crate::new_file::{NewDirectory, NewFile, create_dir};
use crate::zarr::array::ZarrArray;
use crate::zarr::metadata::ZarrMetadata;
use crate::zarr::nd::{self, ElementBox, Permutation, to_usize};
use crate::{Container, Form, linear};

/// Directory of the only scale.
const SCALE: &str = "s0";

/// The axes of a volume, in C order of a chunk of encoding "raw": x varies fastest.
const CHUNK_AXES: [char; 4] = ['c', 'z', 'y', 'x'];

/// Bits of the default specification: keys per minishard (preshift bits), and minishards per shard.
const PRESHIFT_BITS: u32 = 3;
const MINISHARD_BITS: u32 = 9;

const DATA_TYPES: [&str; 8] = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "uint64", "float32"];

/// Options for converting an array to a volume with [`convert`](PrecomputedOptions::convert).
///
/// ```no_run
/// use sharddb_container::zarr::{PrecomputedOptions, ZarrArray};
///
/// let array = ZarrArray::open("volume.zarr")?;
/// PrecomputedOptions::new().resolution([8.0, 8.0, 40.0]).convert(&array, "zyx", "volume")?;
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct PrecomputedOptions {
    resolution: [f64; 3],
    segmentation: bool,
    spec: Option<ShardingSpec>,
    progress: Progress,
}

impl Default for PrecomputedOptions {
    fn default() -> PrecomputedOptions {
        PrecomputedOptions { resolution: [1.0; 3], segmentation: false, spec: None, progress: Progress::new() }
    }
}

impl PrecomputedOptions {
    /// Creates the defaults.
    pub fn new() -> PrecomputedOptions {
        PrecomputedOptions::default()
    }

    /// Sets the size of a voxel along x, y and z in nanometres. Default: 1, 1, 1.
    pub fn resolution(&mut self, resolution: [f64; 3]) -> &mut PrecomputedOptions {
        self.resolution = resolution;
        self
    }

    /// Sets whether the elements are segment ids instead of intensities, which excludes floats. Default: false.
    pub fn segmentation(&mut self, segmentation: bool) -> &mut PrecomputedOptions {
        self.segmentation = segmentation;
        self
    }

    /// Sets the sharding specification. Default: 8 neighbouring chunks per minishard, 512 minishards per shard, raw
    /// encoding.
    pub fn spec(&mut self, spec: ShardingSpec) -> &mut PrecomputedOptions {
        self.spec = Some(spec);
        self
    }

    /// Sets the progress that the conversion reports in chunks, and that cancels it. Default: none.
    pub fn progress(&mut self, progress: &Progress) -> &mut PrecomputedOptions {
        self.progress = progress.clone();
        self
    }

    /// Writes the volume into a new directory, which appears only when it is complete. Returns the number of chunks.
    ///
    /// `axes` are those of the array, in its order. Each is one of `x`, `y`, `z` and `c` (channels); an example is `zyx`.
    ///
    /// The volume has one scale of encoding "raw". The key of a chunk is its compressed Morton code; chunks at the edge
    /// are clipped to the array. Absent chunks stay absent if the fill value is zero, which is what readers assume;
    /// otherwise they are written.
    ///
    /// Memory: 32 bytes per chunk of the array, a few decoded chunks, and the pairs of one minishard.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for axes that do not fit the array, or if `target` exists; `Unsupported` for a data type that
    /// volumes or segment ids do not have, or channels in several chunks; `Cancelled`; `Io`; the error of the first chunk that cannot
    /// be read.
    pub fn convert(&self, source: &ZarrArray, axes: &str, target: impl AsRef<Path>) -> Result<u64> {
        let progress = &self.progress;
        let volume = Volume::new(self, axes, source.metadata())?;
        let spec = self.spec.map_or_else(|| default_spec(&volume.grid), Ok)?;
        let chunks = volume.chunks(source, &spec)?;
        let total = chunks.len() as u64;

        let directory = NewDirectory::create(target.as_ref())?;
        let shards = directory.temporary().join(SCALE);
        create_dir(&shards)?;
        let mut writer: Option<(ShardNumber, ShardWriter)> = None;
        progress.begin(Phase::Convert, total);
        for chunk in chunks {
            let mut open = match writer.take() {
                Some((number, open)) if number == chunk.location.shard => open,
                before => {
                    before.map(|(_, before)| before.finish()).transpose()?;
                    let number = chunk.location.shard;
                    ShardWriter::create(shards.join(spec.shard_file_name(number)), spec, number, Layout::default())?
                }
            };
            if let Some(voxels) = volume.voxels(source, chunk.zarr_key)? {
                open.insert(chunk.key, &voxels)?;
            }
            writer = Some((chunk.location.shard, open));
            progress.add(1);
            progress.check()?;
        }
        writer.map(|(_, last)| last.finish()).transpose()?;
        let mut info = NewFile::create(&directory.temporary().join(INFO))?;
        info.write(volume.info(self, &spec).as_bytes())?;
        info.finish()?;
        directory.finish()?;
        Ok(total)
    }
}

/// Returns the default specification: the bits of the Morton codes, divided among keys, minishards and shards.
fn default_spec(grid: &[u64]) -> Result<ShardingSpec> {
    let bits = morton::code_bits(grid).unwrap_or(0);
    let preshift = bits.min(PRESHIFT_BITS);
    let minishard = (bits - preshift).min(MINISHARD_BITS);
    let [preshift, minishard, shard] =
        [preshift, minishard, bits - preshift - minishard].map(|bits| u8::try_from(bits).unwrap_or(u8::MAX));
    ShardingSpec::new(HashFunction::Identity, preshift, minishard, shard)
}

/// A chunk to be converted. Ordered by its location in the volume.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Moved {
    location: Location,
    key: u64,
    zarr_key: u64,
}

/// The array as a volume.
struct Volume<'a> {
    metadata: &'a ZarrMetadata,
    /// The axis of the array for each of x, y and z.
    xyz: [Option<usize>; 3],
    /// Maps the axes of the array to those of a chunk.
    order: Permutation,
    channels: u64,
    /// Number of chunks along x, y and z.
    grid: Vec<u64>,
}

impl<'a> Volume<'a> {
    fn new(options: &PrecomputedOptions, axes: &str, metadata: &'a ZarrMetadata) -> Result<Volume<'a>> {
        let letters: Vec<char> = axes.chars().collect();
        let known = letters.iter().all(|axis| CHUNK_AXES.contains(axis));
        let axis = |name: char| letters.iter().position(|axis| *axis == name);
        let order: Vec<usize> = CHUNK_AXES.into_iter().filter_map(axis).collect();
        let fits = known && letters.len() == metadata.shape().len() && order.len() == letters.len();
        let Some(order) = Permutation::new(order).filter(|_| fits) else {
            let dimensions = metadata.shape().len();
            let message = format!("expected {dimensions} axes, each one of x, y, z and c, found \"{axes}\"");
            return Err(Error::invalid_input(message));
        };
        if !DATA_TYPES.contains(&metadata.data_type().as_str()) {
            let (known, found) = (DATA_TYPES.join(", "), metadata.data_type());
            let message = format!("expected a data type that volumes have ({known}), found {found}");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if options.segmentation && metadata.data_type().as_str().starts_with("float") {
            let message = format!("expected integers, the numbers of segments, found {}", metadata.data_type());
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let xyz = ['x', 'y', 'z'].map(axis);
        let of = |numbers: &[u64], axis: Option<usize>| axis.and_then(|axis| numbers.get(axis).copied()).unwrap_or(1);
        let channels = of(metadata.shape(), axis('c'));
        if of(metadata.chunk_shape(), axis('c')) < channels {
            let message = "expected all channels in one chunk, as volumes have them, found them in several";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let grid = xyz.iter().map(|axis| of(&metadata.chunk_grid(), *axis)).collect();
        Ok(Volume { metadata, xyz, order, channels, grid })
    }

    /// Returns the chunks to be written, in storage order.
    fn chunks(&self, source: &ZarrArray, spec: &ShardingSpec) -> Result<Vec<Moved>> {
        let mut chunks = Vec::new();
        let mut push = |zarr_key: u64| -> Result<()> {
            chunks
                .try_reserve(1)
                .map_err(|_| Error::new(ErrorKind::TooLarge, "no memory for the list of all chunks"))?;
            let key = self.key(zarr_key)?;
            chunks.push(Moved { location: spec.route(key), key, zarr_key });
            Ok(())
        };
        if self.metadata.elements.fill_value.iter().all(|byte| *byte == 0) {
            source.keys().try_for_each(|key| push(key?))?;
        } else {
            (0..nd::product(&self.metadata.chunk_grid()).unwrap_or(0)).try_for_each(&mut push)?;
        }
        chunks.sort_unstable();
        Ok(chunks)
    }

    /// Returns the Morton code of a chunk.
    fn key(&self, zarr_key: u64) -> Result<u64> {
        let cell = linear::position(&self.metadata.chunk_grid(), zarr_key).unwrap_or_default();
        let position = self.xyz.map(|axis| axis.and_then(|axis| cell.get(axis).copied()).unwrap_or(0));
        morton::encode(&self.grid, &position).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("expected a grid of 64 bits or less, found {:?}", self.grid))
        })
    }

    /// Reads a chunk, clipped to the array and transposed; `None` if it was removed in the meantime.
    fn voxels(&self, source: &ZarrArray, key: u64) -> Result<Option<Vec<u8>>> {
        let chunk = match source.get(key, Form::Decoded)? {
            Some(chunk) => Some(chunk),
            None => source.fill_chunk(key)?,
        };
        let Some(chunk) = chunk else { return Ok(None) };
        let chunk_shape = self.metadata.chunk_shape();
        let cell = linear::position(&self.metadata.chunk_grid(), key).unwrap_or_default();
        let axes = cell.iter().zip(chunk_shape).zip(self.metadata.shape());
        let shape: Vec<u64> = axes.map(|((at, chunk), len)| len.saturating_sub(at * chunk).min(*chunk)).collect();
        let size = self.metadata.element_len();
        let zeros = vec![0; shape.len()];
        let mut clipped = nd::zeroed(to_usize(nd::product(&shape).unwrap_or(0)).saturating_mul(size))?;
        let whole = ElementBox { elements: &chunk, shape: chunk_shape };
        nd::copy_part(&whole, &zeros, &mut clipped, &shape, &zeros, &shape, size);
        self.order.transpose(clipped, &shape, size).map(Some)
    }

    fn info(&self, options: &PrecomputedOptions, spec: &ShardingSpec) -> String {
        let of = |numbers: &[u64]| {
            let [x, y, z] = self.xyz.map(|axis| axis.and_then(|axis| numbers.get(axis).copied()).unwrap_or(1));
            format!("[{x}, {y}, {z}]")
        };
        let kind = if options.segmentation { "segmentation" } else { "image" };
        let [x, y, z] = options.resolution;
        format!(
            "{{\n  \"@type\": \"neuroglancer_multiscale_volume\",\n  \"type\": \"{kind}\",\n  \"data_type\": \"{}\",\n  \
             \"num_channels\": {},\n  \"scales\": [{{\"key\": \"{SCALE}\", \"size\": {}, \"resolution\": [{x}, {y}, {z}], \
             \"voxel_offset\": [0, 0, 0], \"chunk_sizes\": [{}], \"encoding\": \"raw\", \"sharding\": {}}}]\n}}\n",
            self.metadata.data_type(),
            self.channels,
            of(self.metadata.shape()),
            of(self.metadata.chunk_shape()),
            spec.to_json()
        )
    }
}
