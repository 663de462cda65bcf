//! Shared by the fuzz targets: the code of each target, a naive reader, inputs that pass the first checks, and the
//! calls that are made.

pub mod ask;
pub mod case;
pub mod container;
pub mod generation;
pub mod naive;
pub mod naive_zarr;
pub mod scratch;
pub mod targets;

// modules of the command that the target `inputs` needs, under their original names
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
#[path = "../../cli/src/histogram.rs"]
mod histogram;
#[allow(dead_code, unused_imports, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/input/mod.rs"]
mod input;
#[allow(dead_code, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/interrupt.rs"]
mod interrupt;
#[allow(dead_code, unused_imports, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/number.rs"]
mod number;
#[allow(dead_code, unused_imports, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/printable.rs"]
mod printable;
#[allow(dead_code, unused_imports, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/progress/mod.rs"]
mod progress;
#[allow(dead_code, unused_imports, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/secrets.rs"]
mod secrets;
#[allow(dead_code, unused_imports, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/size.rs"]
mod size;
#[allow(dead_code, reason = "the command's modules are compiled as they are")]
#[path = "../../cli/src/url_text.rs"]
mod url_text;
// pure modules of `sharddb-serve`, for the target `requests`
#[path = "../../crates/serve/src/byte_range.rs"]
mod byte_range;
#[allow(dead_code, reason = "the command's modules are compiled as they are")]
#[path = "../../crates/serve/src/request_path.rs"]
mod request_path;
