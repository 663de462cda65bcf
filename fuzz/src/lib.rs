//! What the fuzz targets share: what each does, a naive reader, inputs that get past the first check, and what is asked of
//! them.

pub mod ask;
pub mod case;
pub mod container;
pub mod generation;
pub mod naive;
pub mod naive_zarr;
pub mod scratch;
pub mod targets;

// what of the command the target `inputs` takes, under the names that it has there
#[allow(dead_code, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/context.rs"]
mod context;
#[allow(dead_code, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/exit.rs"]
mod exit;
#[allow(dead_code, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/failure.rs"]
mod failure;
#[allow(dead_code, unused_imports, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/input/mod.rs"]
mod input;
#[allow(dead_code, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/interrupt.rs"]
mod interrupt;
#[allow(dead_code, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/key.rs"]
mod key;
#[allow(dead_code, unused_imports, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/printable.rs"]
mod printable;
