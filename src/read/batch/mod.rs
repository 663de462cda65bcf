//! Batch lookups: on one thread, on several threads, and from a cold disk.

mod cold;
mod get_many;
