//! What the fuzz targets share: a naive reader, inputs that get past the first check, and what is asked of them.

pub mod ask;
pub mod case;
pub mod container;
pub mod generation;
pub mod naive;
pub mod naive_zarr;
pub mod scratch;
