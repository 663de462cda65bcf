//! The names of the files in a store, and of the lease in a generation.

/// The link that names the current generation.
pub(crate) const CURRENT: &str = "current";

/// The lock of the writer.
pub(crate) const LOCK: &str = "lock";

/// The file of a generation that its readers lock.
pub(crate) const LEASE: &str = "lease";

/// Names of a store in later versions.
pub(crate) const HISTORY: &str = "history";
pub(crate) const PARTS_PREFIX: &str = "parts-";
