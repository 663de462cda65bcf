//! Names of the files in a store, and of the lease in a generation.

/// The link that names the current generation.
pub(crate) const CURRENT: &str = "current";

/// The file that the writer locks.
pub(crate) const LOCK: &str = "lock";

/// The file in a generation that its readers lock.
pub(crate) const LEASE: &str = "lease";

/// The file that lists the generations that were current.
pub(crate) const HISTORY: &str = "history";

/// Prefix of the directories of partitioned builds.
pub(crate) const PARTS_PREFIX: &str = "parts-";
