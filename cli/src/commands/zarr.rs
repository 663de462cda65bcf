//! `zarr`: moves the chunks of an array into other files.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};
use sharddb::Progress;
use sharddb_container::ContainerOptions;
use sharddb_container::zarr::{IndexLocation, ZarrArray, ZarrMetadata, copy, rechunk};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::number::plural;
use crate::progress::Display;
use crate::remote::url::local_path;

/// Move the chunks of a Zarr v3 array into shards, other shards, or files of their own
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb zarr pack one-file-per-chunk.zarr packed.zarr --shard-shape 64,512,512
  sharddb zarr reshard packed.zarr repacked.zarr --shard-shape 256,256,256 --index-location start
  sharddb zarr reshard slices.zarr cubes.zarr --chunk-shape 64,64,64 --shard-shape 512,512,512
  sharddb zarr unpack packed.zarr one-file-per-chunk.zarr

A chunk is the unit of compression; a shard is a file of many chunks with an index. Shapes count
elements, and chunks divide shards evenly: with chunks of 32,64,64 a shard may be 64,512,512. The
bytes of the chunks are copied without decoding. With another --chunk-shape, chunks are decoded and
encoded again with the array's codecs: gzip and zstd at a fixed level, blosc with LZ4. A new chunk
is written wherever an old one was present. The new array appears when it is complete; the old one
is not modified. sharddb info shows the shapes of an array.

Exit codes: 0 done, 2 shapes that do not fit, or OUT exists already, 3 a corrupt chunk, or
codecs that are not supported, 4 not found, no space and other I/O.")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// From one file per chunk to many chunks per shard
    #[command(after_help = "\
Example:
  sharddb zarr pack one-file-per-chunk.zarr packed.zarr --shard-shape 64,512,512

Exit codes: 0 done, 2 usage, or OUT exists already, 3 a corrupt chunk or a codec that is not
supported, 4 not found, no space and other I/O.")]
    Pack(Packing),
    /// From shards to other shards
    #[command(after_help = "\
Examples:
  sharddb zarr reshard packed.zarr repacked.zarr --shard-shape 256,256,256 --index-location start
  sharddb zarr reshard slices.zarr cubes.zarr --chunk-shape 64,64,64 --shard-shape 512,512,512

Exit codes: 0 done, 2 usage, or OUT exists already, 3 a corrupt chunk or a codec that is not
supported, 4 not found, no space and other I/O.")]
    Reshard(Packing),
    /// From shards to one file per chunk
    #[command(after_help = "\
Example:
  sharddb zarr unpack packed.zarr one-file-per-chunk.zarr

Exit codes: 0 done, 2 usage, or OUT exists already, 3 a corrupt chunk or a codec that is not
supported, 4 not found, no space and other I/O.")]
    Unpack(Places),
}

#[derive(Debug, clap::Args)]
struct Places {
    /// The directory of the array
    #[arg(value_parser = local_path())]
    source: PathBuf,
    /// The directory of the new array; must not exist yet
    #[arg(value_parser = local_path())]
    out: PathBuf,
}

#[derive(Debug, clap::Args)]
struct Packing {
    #[command(flatten)]
    places: Places,
    /// Elements of a shard along each axis. Default: unchanged; for pack, 8 chunks along each axis
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    shard_shape: Vec<u64>,
    /// Elements of a chunk along each axis. Default: unchanged, and so are the bytes of the chunks
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    chunk_shape: Vec<u64>,
    /// Where a shard has its index. Default: unchanged; for pack, the end
    #[arg(long, value_enum, value_name = "WHERE")]
    index_location: Option<Location>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Location {
    /// Before the chunks
    Start,
    /// After the chunks
    End,
}

/// The default number of chunks per shard of `pack`, along each axis.
const CHUNKS_PER_SHARD: u64 = 8;

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        match &self.verb {
            Verb::Pack(packing) => packing.run(context, false),
            Verb::Reshard(packing) => packing.run(context, true),
            Verb::Unpack(places) => {
                let source = places.open()?;
                let metadata = source.metadata().unsharded()?;
                places.write(context, "copy", |next| copy(&source, &places.out, &metadata, next))
            }
        }
    }
}

impl Packing {
    fn run(&self, context: &Context, sharded: bool) -> Result<Exit> {
        let source = self.places.open()?;
        let metadata = source.metadata();
        if metadata.is_sharded() != sharded {
            let verb = if sharded { "has no shards: use pack" } else { "has shards already: use reshard" };
            return Err(Failure::usage(format!("{} {verb}", self.places.source.display())));
        }
        let location = self.index_location.map(|location| match location {
            Location::Start => IndexLocation::Start,
            Location::End => IndexLocation::End,
        });
        if self.chunk_shape.is_empty() || self.chunk_shape == metadata.chunk_shape() {
            let target = metadata.sharded(&self.shard_shape(metadata, metadata.chunk_shape()), location)?;
            return self.places.write(context, "copy", |next| copy(&source, &self.places.out, &target, next));
        }
        let shard_shape = self.shard_shape(metadata, &self.chunk_shape);
        let target = metadata.rechunked(&self.chunk_shape, &shard_shape, location)?;
        self.places.write(context, "encode", |next| rechunk(&source, &self.places.out, &target, next))
    }

    fn shard_shape(&self, metadata: &ZarrMetadata, chunk_shape: &[u64]) -> Vec<u64> {
        match (self.shard_shape.is_empty(), metadata.is_sharded()) {
            (false, _) => self.shard_shape.clone(),
            (true, true) => metadata.shard_shape().to_vec(),
            (true, false) => chunk_shape.iter().map(|len| len.saturating_mul(CHUNKS_PER_SHARD)).collect(),
        }
    }
}

impl Places {
    fn open(&self) -> Result<ZarrArray> {
        Ok(ZarrArray::open_with(&self.source, &ContainerOptions::new())?)
    }

    /// Writes the new array by `write`, which returns the number of chunks.
    fn write(
        &self,
        context: &Context,
        phase: &'static str,
        write: impl FnOnce(&Progress) -> sharddb::Result<u64>,
    ) -> Result<Exit> {
        let _cleanup = context.interrupt.writing();
        let chunks = with_progress(context, phase, write)?;
        context.say(format_args!("{} in {}", plural(chunks, "chunk"), self.out.display()));
        Ok(Exit::Done)
    }
}

/// Shows the progress of a conversion, which a signal cancels.
pub(super) fn with_progress<T>(
    context: &Context,
    phase: &'static str,
    convert: impl FnOnce(&Progress) -> sharddb::Result<T>,
) -> sharddb::Result<T> {
    let progress = context.interrupt.progress();
    let _shown = Display::count(context.quiet, phase, &progress);
    convert(&progress)
}
