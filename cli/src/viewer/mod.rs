//! Data sets of skeletons and meshes for Neuroglancer and CloudVolume: the members that their `info` needs, and the form of their values.
//!
//! ```text
//! members    the members of an info: written, or checked if the user gives an info
//! values     the lengths that a skeleton, a mesh or a manifest states, compared with the value's own
//! ```

mod members;
mod values;

use clap::ValueEnum;
use sharddb::internal::multilod;

pub(crate) use members::{Described, check, not_drawn, write};
pub(crate) use values::{HEAD, Values};

/// A kind of data set that has an info of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Skeletons (neuroglancer_skeletons)
    Skeletons,
    /// Meshes of one resolution (neuroglancer_legacy_mesh), which Neuroglancer and CloudVolume do not read in shards
    Mesh,
    /// Manifests of multi-resolution meshes, with their fragments as preambles (neuroglancer_multilod_draco)
    MultiresMesh,
}

impl Kind {
    /// The member "@type" of the info.
    fn type_name(self) -> &'static str {
        match self {
            Kind::Skeletons => "neuroglancer_skeletons",
            Kind::Mesh => "neuroglancer_legacy_mesh",
            Kind::MultiresMesh => multilod::TYPE,
        }
    }
}
