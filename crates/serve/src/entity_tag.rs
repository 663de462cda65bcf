//! Entity tags and the requests that depend on them (RFC 9110, sections 8.8.3 and 13).

use axum::http::header::{IF_MATCH, IF_NONE_MATCH, IF_RANGE};
use axum::http::{HeaderMap, HeaderName};

/// The strong entity tag of an answer, without its quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntityTag(String);

/// Whether a request is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precondition {
    /// It is.
    Met,
    /// The client has these bytes: 304.
    NotModified,
    /// The client wants other bytes: 412.
    Failed,
}

impl EntityTag {
    /// `text` is made of letters, digits, `-` and `.`.
    pub(crate) fn new(text: impl Into<String>) -> EntityTag {
        EntityTag(text.into())
    }

    /// The tag of a part of what this tag names.
    pub(crate) fn part(&self, part: impl std::fmt::Display) -> EntityTag {
        EntityTag(format!("{}-{part}", self.0))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The value of the header `ETag`.
    pub(crate) fn quoted(&self) -> String {
        format!("\"{}\"", self.0)
    }

    /// Compares with `If-Match`, then with `If-None-Match`.
    pub(crate) fn precondition(&self, headers: &HeaderMap) -> Precondition {
        if headers.contains_key(IF_MATCH) && !self.is_listed(headers, IF_MATCH, Comparison::Strong) {
            return Precondition::Failed;
        }
        if self.is_listed(headers, IF_NONE_MATCH, Comparison::Weak) {
            Precondition::NotModified
        } else {
            Precondition::Met
        }
    }

    /// Whether the `Range` of a request applies: there is no `If-Range`, or it is this tag. A date never is.
    pub(crate) fn allows_range(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(IF_RANGE).iter();
        lines.next().is_none_or(|line| line.as_bytes() == self.quoted().as_bytes()) && lines.next().is_none()
    }

    fn is_listed(&self, headers: &HeaderMap, name: HeaderName, comparison: Comparison) -> bool {
        let lines = headers.get_all(name).into_iter().filter_map(|line| line.to_str().ok());
        // tags of this server have no comma
        lines.flat_map(|line| line.split(',')).any(|listed| {
            let listed = listed.trim_matches([' ', '\t']);
            let listed = match comparison {
                Comparison::Strong => listed,
                Comparison::Weak => listed.strip_prefix("W/").unwrap_or(listed),
            };
            listed == "*" || listed == self.quoted()
        })
    }
}

/// Whether a weak tag equals the strong one.
#[derive(Clone, Copy)]
enum Comparison {
    Strong,
    Weak,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn precondition(header: HeaderName, value: &str) -> Precondition {
        let headers = HeaderMap::from_iter([(header, value.parse().unwrap())]);
        EntityTag::new("gen-1-x").precondition(&headers)
    }

    #[test]
    fn a_client_that_has_the_bytes_gets_none() {
        for listed in ["\"gen-1-x\"", "W/\"gen-1-x\"", "\"a\", \"gen-1-x\"", "*"] {
            assert_eq!(precondition(IF_NONE_MATCH, listed), Precondition::NotModified, "{listed}");
        }
        for listed in ["\"gen-2-x\"", "gen-1-x", "\"a\",", ""] {
            assert_eq!(precondition(IF_NONE_MATCH, listed), Precondition::Met, "{listed}");
        }
    }

    #[test]
    fn a_client_that_wants_certain_bytes_gets_no_others() {
        for listed in ["\"gen-1-x\"", "\"a\",\"gen-1-x\"", "*"] {
            assert_eq!(precondition(IF_MATCH, listed), Precondition::Met, "{listed}");
        }
        for listed in ["\"gen-2-x\"", "W/\"gen-1-x\"", ""] {
            assert_eq!(precondition(IF_MATCH, listed), Precondition::Failed, "{listed}");
        }
    }

    #[test]
    fn a_range_is_of_the_bytes_that_the_client_has() {
        let allows = |value: &str| {
            let headers = HeaderMap::from_iter([(IF_RANGE, value.parse().unwrap())]);
            EntityTag::new("gen-1-x").allows_range(&headers)
        };
        assert!(allows("\"gen-1-x\""));
        assert!(!allows("\"gen-2-x\""));
        assert!(!allows("W/\"gen-1-x\""));
        assert!(!allows("*") && !allows("\"gen-1-x\", \"gen-2-x\""), "a list is not a validator");
        assert!(!allows("Mon, 23 Nov 2026 10:00:00 GMT"));
        assert!(EntityTag::new("a").allows_range(&HeaderMap::new()));
    }
}
