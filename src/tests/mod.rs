//! Tests of the whole library that need its seams: a recorded disk, and a process that is killed.

mod crash;
#[cfg(unix)]
mod kill;
