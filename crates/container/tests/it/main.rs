//! The integration tests, as one program, which compiles and links once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a failed expectation fails the test, and cut numbers are pseudo-random"
)]

#[cfg(feature = "bcolz")]
mod bcolz;
#[cfg(feature = "bcolz")]
mod bcolz_interop;
#[cfg(all(feature = "bcolz", feature = "zarr"))]
mod bcolz_to_zarr;
#[cfg(feature = "bcolz")]
mod bcolz_write;
#[cfg(feature = "blosc")]
mod blosc;
#[cfg(feature = "bcolz")]
mod bloscpack;
#[allow(dead_code, reason = "some of it is for other crates")]
#[path = "../../../../tests/common/mod.rs"]
mod common;
#[cfg(all(unix, feature = "bcolz", feature = "zarr"))]
mod crash;
#[cfg(feature = "zarr")]
mod zarr;
#[cfg(feature = "zarr")]
mod zarr_convert;
#[cfg(feature = "zarr")]
mod zarr_interop;
#[cfg(feature = "zarr")]
mod zarr_rechunk;
#[cfg(feature = "zarr")]
mod zarr_write;

/// A progress that is cancelled.
#[cfg(feature = "zarr")]
fn cancelled() -> sharddb::Progress {
    let progress = sharddb::Progress::new();
    progress.cancel();
    progress
}
