//! A request, after its token and area are removed from the path.

use sharddb::internal::generation_of_text;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::http::HeaderMap;
use bytes::Bytes;
use sharddb::GenerationId;

use crate::budget::Share;
use crate::problem::{Problem, Result};
use crate::request_path::decode;

/// What a handler needs of a request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) is_post: bool,
    /// The names of the path after the area.
    pub(crate) names: Vec<String>,
    /// Whether the path ends with a slash, or with the area.
    pub(crate) is_directory: bool,
    pub(crate) query: Query,
    pub(crate) headers: HeaderMap,
    /// The body of a POST request.
    pub(crate) body: Bytes,
    /// Set when the client has left.
    pub(crate) is_gone: Arc<AtomicBool>,
    /// The memory of the body.
    pub(crate) _share: Share,
}

/// The parameters after the `?`.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Parses `a=b&c=d`.
    ///
    /// Errors: `invalid-input` for a malformed escape.
    pub(crate) fn parse(text: &str) -> Result<Query> {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        });
        let wrong = || Problem::invalid("expected a query in percent-encoded UTF-8, found other bytes");
        decoded.collect::<Option<_>>().map(Query).ok_or_else(wrong)
    }

    /// The first value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The parameter `generation`: a number or a name.
    pub(crate) fn generation(&self) -> Result<Option<GenerationId>> {
        let id = |text| generation_of_text(text).map_err(|error| Problem::invalid(error.to_string()));
        self.get("generation").map(id).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("range=1..%3D9&limit=5&x&limit=6&generation=3").unwrap();
        assert_eq!((query.get("range"), query.get("limit"), query.get("x")), (Some("1..=9"), Some("5"), Some("")));
        assert_eq!(query.get("cursor"), None);
        assert_eq!(query.generation().unwrap().map(GenerationId::get), Some(3));
        assert!(Query::parse("a=%zz").is_err());
        assert!(Query::parse("generation=x").unwrap().generation().is_err());
    }
}
