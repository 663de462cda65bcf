//! What is asked of every engine.

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

/// The reads of one thread, within one read transaction where the engine has such.
pub trait Reader {
    /// Gives the value of a key to `f`; `None` if the key is absent.
    fn get<T>(&mut self, key: u64, f: impl FnOnce(&[u8]) -> T) -> Result<Option<T>>;

    /// Gives the values of many keys to `f`, in their order. One after another, where the engine knows no better.
    fn get_many(&mut self, keys: &[u64], mut f: impl FnMut(Option<&[u8]>)) -> Result<()> {
        for key in keys {
            if self.get(*key, |value| f(Some(value)))?.is_none() {
                f(None);
            }
        }
        Ok(())
    }

    /// The same where nothing of the values is in memory. As any batch, where the engine knows no better.
    fn get_many_cold(&mut self, keys: &[u64], f: impl FnMut(Option<&[u8]>)) -> Result<()> {
        self.get_many(keys, f)
    }

    /// Gives all pairs to `f`, in the order that suits the engine.
    fn scan(&mut self, f: impl FnMut(u64, &[u8])) -> Result<()>;
}

/// The first 8 bytes of a value, as a number: what a lookup reads unless the workload says otherwise.
#[inline]
pub fn head(value: &[u8]) -> u64 {
    value.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

/// The last 8 bytes of a value, as a number.
#[inline]
pub fn tail(value: &[u8]) -> u64 {
    value.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

pub fn absent(key: u64) -> Error {
    format!("expected the value of key {key:#x}, which was loaded, found no such key").into()
}
