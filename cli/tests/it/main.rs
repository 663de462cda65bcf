//! The tests of the command, as one program. Each test runs the built command in processes of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a failed expectation fails the test")]

#[path = "../../../tests/common/archives.rs"]
mod archives;
mod bcolz;
mod bench;
mod build;
mod common;
mod corrupt;
#[cfg(unix)]
mod limits;
mod living;
#[cfg(unix)]
mod outputs;
mod parts;
mod places;
mod plan;
mod process;
mod read;
#[cfg(feature = "remote")]
mod remote;
mod salvage;
#[cfg(all(feature = "serve", unix))]
mod serve;
mod store;
mod terminal;
mod transcripts;
#[cfg(unix)]
mod unreadable;
mod verify;
mod volume;
mod zarr;
