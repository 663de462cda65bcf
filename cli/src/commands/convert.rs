//! `convert`: from one format to another, chunk by chunk.

use std::path::PathBuf;

use clap::Subcommand;
use sharddb::container::bcolz::{BcolzArray, ToZarrOptions};
use sharddb::container::zarr::{PrecomputedOptions, ZarrArray};

use crate::commands::zarr::go_on;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::grouped;
use crate::sharding;

/// Make a data set of another format out of one
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb convert zarr-precomputed volume.zarr volume --axes zyx --resolution 8,8,40
  sharddb convert bcolz-zarr trades/price price.zarr

The result is a data set of the other format, for the tools of that format. To keep the chunks of
an array in a store, and to give them back as they were, see sharddb import; for other shards of
the same array, sharddb zarr. The source stays, and the result appears when it is whole.

Exit codes: 0 done, 2 usage, or something is at OUT already, 3 a corrupt chunk, or a type or codec
that is not supported, 4 not found, no space and other I/O.")]
pub(crate) struct Args {
    #[command(subcommand)]
    conversion: Conversion,
}

#[derive(Debug, Subcommand)]
enum Conversion {
    ZarrPrecomputed(ZarrPrecomputed),
    BcolzZarr(BcolzZarr),
}

/// A Neuroglancer precomputed volume from a Zarr v3 array
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  sharddb convert zarr-precomputed volume.zarr volume --axes zyx --resolution 8,8,40
  sharddb get volume --at 3,0,7 | wc -c

The volume has one scale, with chunks of the array's own shape, encoding raw, and opens in
Neuroglancer and as DB. Chunks at the edge end with the array. A key is the compressed Morton code
of a chunk's position; get --at takes the position itself. What is absent stays absent where the
fill value is zero; else it is written.")]
struct ZarrPrecomputed {
    /// The directory of the array
    source: PathBuf,
    /// The directory of the volume; nothing may be there yet
    out: PathBuf,
    /// The axes of the array, a letter each, in its order: x, y, z, and c for channels, such as zyx
    #[arg(long)]
    axes: String,
    /// The size of a voxel along x, y and z, in nanometres
    #[arg(long, value_name = "X,Y,Z", value_delimiter = ',', default_value = "1,1,1")]
    resolution: Vec<f64>,
    /// The elements are the numbers of segments, not intensities
    #[arg(long)]
    segmentation: bool,
    /// The sharding specification: the JSON object, or a file that is or has it. Default: 8 neighbouring
    /// chunks to a minishard, 512 minishards to a shard, raw
    #[arg(long, value_name = "FILE|JSON")]
    sharding: Option<String>,
}

/// A Zarr v3 array with shards from a bcolz array, or a column of a table
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  sharddb convert bcolz-zarr trades/price price.zarr

sharddb info trades lists the columns of a table. Chunks keep their bytes. Compressed anew, with
LZ4, are a last chunk that is shorter than the others, chunks in Snappy, and those of several
dimensions in Fortran order.")]
struct BcolzZarr {
    /// The directory of the array; of a column, the table's with the name of the column
    source: PathBuf,
    /// The directory of the new array; nothing may be there yet
    out: PathBuf,
    /// How many chunks a shard has. Default: as many as make 64 MiB when decoded
    #[arg(long, value_name = "N")]
    shard_chunks: Option<u64>,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        match &self.conversion {
            Conversion::ZarrPrecomputed(conversion) => conversion.run(context),
            Conversion::BcolzZarr(conversion) => conversion.run(context),
        }
    }
}

impl ZarrPrecomputed {
    fn run(&self, context: &Context) -> Result<Exit> {
        let [x, y, z] = *self.resolution.as_slice() else {
            return Err(Failure::usage("expected --resolution with three numbers, such as 8,8,40"));
        };
        if ![x, y, z].iter().all(|size| size.is_finite() && *size > 0.0) {
            return Err(Failure::usage("expected sizes above 0 in --resolution"));
        }
        let mut options = PrecomputedOptions::new(&self.axes);
        options.resolution([x, y, z]).segmentation(self.segmentation);
        if let Some(argument) = &self.sharding {
            options.spec(sharding::read(argument)?);
        }
        let source = ZarrArray::open(&self.source)?;
        let _cleanup = context.interrupt.cleanup();
        let chunks = options.convert(&source, &self.out, |_, _| go_on(context))?;
        context.say(format_args!("{} chunks in {}", grouped(chunks), self.out.display()));
        Ok(Exit::Done)
    }
}

impl BcolzZarr {
    fn run(&self, context: &Context) -> Result<Exit> {
        let mut options = ToZarrOptions::new();
        if let Some(chunks) = self.shard_chunks {
            options.shard_chunks(chunks);
        }
        let source = BcolzArray::open(&self.source)?;
        let _cleanup = context.interrupt.cleanup();
        let converted = options.convert(&source, &self.out, |_, _| go_on(context))?;
        let (chunks, verbatim) = (grouped(converted.chunks), grouped(converted.verbatim));
        context.say(format_args!("{chunks} chunks in {}, {verbatim} of them as they were", self.out.display()));
        Ok(Exit::Done)
    }
}
