//! `convert`: converts a data set to another format, chunk by chunk.

use std::path::PathBuf;

use clap::Subcommand;
use sharddb_container::bcolz::{BcolzArray, ToZarrOptions};
use sharddb_container::zarr::{PrecomputedOptions, ZarrArray};

use crate::commands::zarr::with_progress;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::histogram::grouped;
use crate::number::{Count, plural};
use crate::remote::url::local_path;
use crate::sharding;

/// Convert a data set to another format
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb convert zarr-precomputed volume.zarr volume --axes zyx --resolution 8,8,40
  sharddb convert bcolz-zarr trades/price price.zarr

The result is a data set of the other format, for the tools of that format. To keep the chunks of
an array in a store and to export them unchanged later, see sharddb import; to change the shards of
an array, see sharddb zarr. The source is not modified. The result appears when it is complete.

Exit codes: 0 done, 2 usage, or OUT exists already, 3 a corrupt chunk, or a type or codec
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

The volume has one scale with encoding raw and chunks of the array's shape. Neuroglancer and sharddb
open it. Chunks at the edge are cut off at the end of the array. A key is the compressed Morton code
of a chunk's position; get --at takes the position itself. Absent chunks stay absent if the fill
value is zero; otherwise they are written.")]
struct ZarrPrecomputed {
    /// The directory of the array
    #[arg(value_parser = local_path())]
    source: PathBuf,
    /// The directory of the volume; must not exist yet
    #[arg(value_parser = local_path())]
    out: PathBuf,
    /// The axes of the array in its order, one letter each: x, y, z, and c for channels, such as zyx
    #[arg(long)]
    axes: String,
    /// The size of a voxel along x, y and z, in nanometres
    #[arg(long, value_name = "X,Y,Z", value_delimiter = ',', default_value = "1,1,1")]
    resolution: Vec<f64>,
    /// The elements are segment numbers, not intensities
    #[arg(long)]
    segmentation: bool,
    /// The sharding specification: a JSON object, or a file that contains it. Default: 8 neighbouring
    /// chunks per minishard, 512 minishards per shard, raw
    #[arg(long, value_name = "FILE|JSON")]
    sharding: Option<String>,
}

/// A Zarr v3 array with shards from a bcolz array or a column of a bcolz table
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Example:
  sharddb convert bcolz-zarr trades/price price.zarr

sharddb info trades lists the columns of a table. Chunks keep their bytes, with three exceptions
that are compressed again with LZ4: a last chunk that is shorter than the others, chunks in Snappy,
and chunks of several dimensions in Fortran order.")]
struct BcolzZarr {
    /// The directory of the array; for a column, the directory of the table followed by the name of the column
    #[arg(value_parser = local_path())]
    source: PathBuf,
    /// The directory of the new array; must not exist yet
    #[arg(value_parser = local_path())]
    out: PathBuf,
    /// Number of chunks per shard. Default: as many as make 64 MiB when decoded
    #[arg(long, value_name = "N")]
    shard_chunks: Option<Count>,
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
            return Err(Failure::usage("expected numbers above 0 in --resolution, in nanometres"));
        }
        let mut options = PrecomputedOptions::new();
        options.resolution([x, y, z]).segmentation(self.segmentation);
        if let Some(argument) = &self.sharding {
            options.spec(sharding::read(argument)?);
        }
        let source = ZarrArray::open(&self.source)?;
        let _cleanup = context.interrupt.writing();
        let chunks =
            with_progress(context, "convert", |next| options.progress(next).convert(&source, &self.axes, &self.out))?;
        context.say(format_args!("{} in {}", plural(chunks, "chunk"), self.out.display()));
        Ok(Exit::Done)
    }
}

impl BcolzZarr {
    fn run(&self, context: &Context) -> Result<Exit> {
        let mut options = ToZarrOptions::new();
        if let Some(Count(chunks)) = self.shard_chunks {
            options.shard_chunks(chunks);
        }
        let source = BcolzArray::open(&self.source)?;
        let _cleanup = context.interrupt.writing();
        let converted = with_progress(context, "convert", |next| options.progress(next).convert(&source, &self.out))?;
        let (chunks, verbatim) = (plural(converted.chunks, "chunk"), grouped(converted.verbatim));
        context.say(format_args!("{chunks} in {}, {verbatim} of them copied unchanged", self.out.display()));
        Ok(Exit::Done)
    }
}
