//! Random bits for names, and for files that must differ from all others. Not for secrets.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns 128 random bits as 32 lowercase hexadecimal digits.
pub fn random_name() -> String {
    format!("{:032x}", u128::from_be_bytes(random_bytes()))
}

/// Returns 128 random bits.
///
/// The keys of `RandomState` come from the operating system. The process id and the time distinguish a forked child, which
/// has the same keys; the counter distinguishes the calls of a process.
pub fn random_bytes() -> [u8; 16] {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    let half = |part: u8| RandomState::new().hash_one((part, std::process::id(), nanos, call));
    (u128::from(half(0)) << 64 | u128::from(half(1))).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_differ_and_are_128_bits() {
        let names: HashSet<String> = (0..1000).map(|_| random_name()).collect();
        assert_eq!(names.len(), 1000);
        assert!(names.iter().all(|name| name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())));
        let first_halves: HashSet<&str> = names.iter().map(|name| &name[..16]).collect();
        assert_eq!(first_halves.len(), 1000);
    }
}
