//! A mark of responses that do not state the length of their object.

/// An extension of a response of the crate `object_store`: the length of its object is not known.
///
/// A server may answer `Content-Range: bytes 0-63/*`. `object_store` refuses that, so an HTTP client that accepts it replaces `*` by
/// the end of the range, and adds this to the extensions of the response. Then nothing is concluded from the length.
///
/// ```
/// use sharddb_remote::UnknownLength;
///
/// let mut extensions = object_store::Extensions::new();
/// extensions.insert(UnknownLength);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownLength;
