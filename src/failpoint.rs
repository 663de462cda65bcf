//! Places where a test kills the process, to see what the next one finds.
//!
//! With the cargo feature `failpoints`, the environment variable `SHARDDB_FAILPOINT=<name>[:n]` makes the process
//! abort the `n`th time (default: the first) that it reaches the failpoint of that name. An abort runs no
//! destructor and flushes nothing, so the files are left as a SIGKILL leaves them. Without the feature nothing of
//! this is compiled.

/// Every failpoint, in the order in which a build, then an adoption, then a gc reach them.
#[cfg(feature = "failpoints")]
pub const NAMES: [&str; 26] = [
    "begin: after clearing",
    "begin: after temporary directory",
    "begin: after spill directory",
    "bulk: after run",
    "bulk: after large pairs",
    "bulk: after shard",
    "bulk: after shard syncs",
    "bulk: after minishard table",
    "publish: after removing spills",
    "publish: after info",
    "publish: after lease",
    "publish: after read-only",
    "publish: after manifest",
    "publish: after directory sync",
    "publish: after number",
    "publish: after rename to generation",
    "publish: after store sync",
    "current: after temporary link",
    "current: after rename",
    "current: after store sync",
    "adopt: after verification",
    "adopt: after shard",
    "gc: after lease lock",
    "gc: after rename away",
    "gc: after store sync",
    "gc: after removal",
];

/// Marks the failpoint `name`.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub(crate) fn reach(_name: &'static str) {}

/// Marks the failpoint `name`; does not return if the environment says so.
#[cfg(feature = "failpoints")]
pub(crate) fn reach(name: &'static str) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static REACHED: AtomicU64 = AtomicU64::new(0); // how often the chosen one was

    assert!(NAMES.contains(&name), "failpoint {name:?} is missing in NAMES");
    let Some((chosen, nth)) = chosen() else { return };
    if chosen == name && REACHED.fetch_add(1, Ordering::Relaxed) + 1 == nth {
        std::process::abort();
    }
}

/// The failpoint that the environment chooses, and at which time of reaching it.
#[cfg(feature = "failpoints")]
fn chosen() -> Option<(String, u64)> {
    let text = std::env::var("SHARDDB_FAILPOINT").ok()?;
    if let Some((name, nth)) = text.rsplit_once(':')
        && let Ok(nth) = nth.parse()
    {
        return Some((name.to_string(), nth));
    }
    Some((text, 1))
}
