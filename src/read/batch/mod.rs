//! Batch lookups: on one thread, on several threads, by positioned reads, and from a cold disk.

mod cold;
mod get_many;
mod positioned;
