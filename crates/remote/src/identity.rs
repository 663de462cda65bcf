//! The identity of each object that was read: its ETag and its length, as its first response states them.
//!
//! Another ETag or length later means that the object was replaced. So the bytes of one object are never a mix of two.
//! Without ETags and lengths nothing is noticed: native data has checks, and foreign data is unprotected then.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use crate::request::Response;
use sharddb_format::internal::locks::lock;

/// Maximum number of objects. Blocks of further ones are not cached, so that they cannot be combined with others.
const MOST_OBJECTS: usize = 1 << 20;

/// The identities of the objects of a generation.
#[derive(Default)]
pub(crate) struct Identities(Mutex<HashMap<String, Identity>>);

/// What the responses about an object state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) etag: Option<String>,
    pub(crate) len: Option<u64>,
}

/// A response is of another object than the first response.
#[derive(Debug)]
pub(crate) struct Replaced {
    /// What the first response stated, and this one.
    pub(crate) expected: String,
    pub(crate) found: String,
}

impl Identity {
    /// Returns the ETag if equal ETags mean equal bytes.
    pub(crate) fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| !etag.starts_with("W/"))
    }

    /// Adds what a response states.
    fn learn(&mut self, response: &Response) -> Result<(), Replaced> {
        if let (Some(expected), Some(found)) = (&self.etag, &response.etag)
            && expected != found
        {
            return Err(Replaced { expected: format!("the ETag {expected}"), found: found.clone() });
        }
        if let (Some(expected), Some(found)) = (self.len, response.object_len)
            && expected != found
        {
            return Err(Replaced { expected: format!("an object of {expected} bytes"), found: found.to_string() });
        }
        if self.etag.is_none() {
            self.etag.clone_from(&response.etag);
        }
        self.len = self.len.or(response.object_len);
        Ok(())
    }
}

impl Identities {
    /// Returns what is known about an object; `None` if there was no response about it.
    pub(crate) fn get(&self, object: &str) -> Option<Identity> {
        self.objects().get(object).cloned()
    }

    /// Compares a response with the earlier ones about the object, and remembers what it adds.
    pub(crate) fn learn(&self, object: &str, response: &Response) -> Result<(), Replaced> {
        let mut objects = self.objects();
        if let Some(identity) = objects.get_mut(object) {
            return identity.learn(response);
        }
        if objects.len() < MOST_OBJECTS {
            let identity = Identity { etag: response.etag.clone(), len: response.object_len };
            objects.insert(object.to_string(), identity);
        }
        Ok(())
    }

    fn objects(&self) -> MutexGuard<'_, HashMap<String, Identity>> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Body;

    fn response(etag: Option<&str>, object_len: Option<u64>) -> Response {
        Response::new(Body::new(Vec::new()), etag.map(str::to_string), object_len)
    }

    #[test]
    fn another_etag_or_length_is_another_object() {
        let identities = Identities::default();
        identities.learn("a", &response(Some("\"1\""), None)).unwrap();
        identities.learn("a", &response(None, Some(5))).unwrap();
        identities.learn("a", &response(Some("\"1\""), Some(5))).unwrap();
        identities.learn("b", &response(Some("\"2\""), Some(6))).unwrap();
        let replaced = identities.learn("a", &response(Some("\"2\""), Some(5))).unwrap_err();
        assert_eq!((replaced.expected.as_str(), replaced.found.as_str()), ("the ETag \"1\"", "\"2\""));
        assert_eq!(identities.learn("a", &response(None, Some(6))).unwrap_err().found, "6");
        assert_eq!(identities.get("a").unwrap().strong_etag(), Some("\"1\""));
        assert!(identities.get("c").is_none());
    }

    #[test]
    fn a_weak_etag_is_compared_and_not_strong() {
        let identities = Identities::default();
        identities.learn("a", &response(Some("W/\"1\""), None)).unwrap();
        assert_eq!(identities.get("a").unwrap().strong_etag(), None);
        assert!(identities.learn("a", &response(Some("W/\"2\""), None)).is_err());
    }
}
