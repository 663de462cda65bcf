//! The reads that every engine supports.

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

/// The reads of one thread, within one read transaction if the engine has transactions.
pub trait Reader {
    /// Calls `f` with the value of a key; returns `None` if the key is absent.
    fn get<T>(&mut self, key: u64, f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>>;

    /// Calls `f` with the values of many keys, in their order. By default, looks them up one by one.
    fn get_many(&mut self, keys: &[u64], mut f: impl FnMut(Option<&[u8]>)) -> Result<()> {
        for key in keys {
            if self.get(*key, |value| f(Some(value)))?.is_none() {
                f(None);
            }
        }
        Ok(())
    }

    /// Like `get_many`, for values that are not in memory. By default, the same as `get_many`.
    fn get_many_cold(&mut self, keys: &[u64], f: impl FnMut(Option<&[u8]>)) -> Result<()> {
        self.get_many(keys, f)
    }

    /// Calls `f` with all pairs, in the order that suits the engine.
    fn scan(&mut self, f: impl FnMut(u64, &[u8])) -> Result<()>;
}

/// The head of a value: its first 8 bytes as a number, which a lookup reads unless the workload says otherwise.
#[inline]
pub fn head(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The tail of a value: its last 8 bytes as a number.
#[inline]
pub fn tail(value: &[u8]) -> u64 {
    value.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

pub fn absent(key: u64) -> Error {
    format!("expected the value of key {key:#x}, which was loaded, found no such key").into()
}
