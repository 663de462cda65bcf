//! Adapters of the reader for the crate `object_store`: asynchronous and blocking.
//!
//! ```text
//! module      what it has
//!
//! remote_db   asynchronous lookups: runs an operation, with several requests in flight
//! blocking_db lookups that block the thread
//! transport   performs a request on an `ObjectStore` under a prefix
//! ```

mod blocking_db;
#[cfg(test)]
mod latency_tests;
mod remote_db;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod transport;

pub use blocking_db::BlockingDb;
pub use remote_db::RemoteDb;
