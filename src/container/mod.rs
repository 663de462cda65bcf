//! Stores of the same kind, many chunks in one file behind an index, in formats other than our own.

#[cfg(feature = "blosc")]
pub mod blosc;
