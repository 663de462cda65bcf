//! The workloads, one a file: each takes a bench and gives measurements.

pub mod cold;
pub mod load;
pub mod open;
pub mod service;
pub mod two_threads;
pub mod warm;
