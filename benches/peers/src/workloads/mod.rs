//! The workloads, one per file. Each measures a bench and returns measurements.

pub mod cold;
pub mod load;
pub mod open;
pub mod service;
pub mod threads;
pub mod warm;
