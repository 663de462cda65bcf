//! The state of a publication: an object whose changes are conditional, so that publishers of the same parts do not
//! disagree about the name of the generation.
//!
//! ```text
//! {"sharddb_bucket_publication":1,"state":"copying","generation":"gen-0000000003-6f.."}
//!
//! copying     the publisher writes the objects of this generation
//! replacing   all objects are written, and `current` is about to name the generation
//! published   `current` has named it
//! ```

use object_store::{PutMode, UpdateVersion};
use sharddb::internal::{Kind, Members};
use sharddb_format::internal::digest::Digest;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::root::Root;
use crate::bucket_current::GenerationName;

const PREFIX: &str = "publication-";

const KIND: Kind = Kind {
    noun: "the state of a publication",
    tag: "sharddb_bucket_publication",
    names: &["state", "generation"],
    most: 4 << 10,
};

/// How far a publication is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Copying,
    Replacing,
    Published,
}

const STATES: [State; 3] = [State::Copying, State::Replacing, State::Published];

/// The state of a publication as it was read or written.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) state: State,
    pub(super) generation: GenerationName,
    version: UpdateVersion,
}

/// Returns the name of the object in the directory of its job, by the digest of receipts and options.
pub(super) fn mark_name(digest: &str) -> String {
    format!("{PREFIX}{digest}")
}

pub(super) fn is_mark_name(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|digest| digest.parse::<Digest>().is_ok())
}

impl State {
    fn name(self) -> &'static str {
        match self {
            State::Copying => "copying",
            State::Replacing => "replacing",
            State::Published => "published",
        }
    }
}

impl Root {
    /// Reads the state of a publication; `None` if it has not begun.
    ///
    /// Errors: `Corrupt` if the object is damaged; `Unsupported` for a later version; `Io`.
    pub(super) async fn mark(&self, object: &str) -> Result<Option<Mark>> {
        let Some((bytes, meta)) = self.get(object, KIND.most as u64).await? else { return Ok(None) };
        let (state, generation) = parse(&bytes).map_err(|error| error.at_path(&self.place(object)))?;
        Ok(Some(Mark { state, generation, version: UpdateVersion { e_tag: meta.e_tag, version: meta.version } }))
    }

    /// Writes the state of a publication, if it is still `base`.
    ///
    /// After a failure the object is read back: the reply to a successful write may have been lost, and another publisher
    /// may have written the same.
    ///
    /// Errors: `Locked` if another publisher wrote something else; `Io`.
    pub(super) async fn write_mark(
        &self,
        object: &str,
        base: Option<&Mark>,
        state: State,
        generation: &GenerationName,
    ) -> Result<Mark> {
        let mode = base.map_or(PutMode::Create, |base| PutMode::Update(base.version.clone()));
        let error = match self.put(&self.path(object)?, text(state, generation).into_bytes(), mode).await {
            Ok(written) => return Ok(Mark { state, generation: generation.clone(), version: written.into() }),
            Err(error) => error,
        };
        let is_refused = crate::bucket::current::is_refused(&error);
        let error = self.failed("write", object, error);
        match self.mark(object).await {
            Ok(Some(found)) if found.state == state && found.generation == *generation => Ok(found),
            Ok(_) if is_refused => {
                let message = "expected no other publisher of these parts, found one at work: publish again";
                Err(Error::new(ErrorKind::Locked, message).at_path(&self.place(object)))
            }
            _ => Err(error),
        }
    }
}

fn text(state: State, generation: &GenerationName) -> String {
    format!("{{\"{}\":1,\"state\":\"{}\",\"generation\":\"{generation}\"}}\n", KIND.tag, state.name())
}

/// Errors: `Corrupt` without a place; `Unsupported`.
fn parse(bytes: &[u8]) -> Result<(State, GenerationName)> {
    let read = || {
        let text =
            std::str::from_utf8(bytes).map_err(|_| Error::invalid_input("expected a text, found other bytes"))?;
        let members = Members::parse(text, &KIND)?;
        let (state, generation): (String, String) = (members.required("state")?, members.required("generation")?);
        let state = STATES.into_iter().find(|known| known.name() == state);
        let state = state.ok_or_else(|| members.malformed("state", "expected a known state"))?;
        let generation = GenerationName::parse(&generation);
        let generation = generation.ok_or_else(|| members.malformed("generation", "expected the name of one"))?;
        Ok((state, generation))
    };
    read().map_err(|error: Error| match error.kind() {
        ErrorKind::Unsupported => error,
        _ => Error::corrupt(error.message().to_string()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "{\"sharddb_bucket_publication\":1,\"state\":\"replacing\",\
                        \"generation\":\"gen-0000000003-0123456789abcdef0123456789abcdef\"}\n";

    #[test]
    fn has_this_text_in_both_directions() {
        let (state, generation) = parse(TEXT.as_bytes()).unwrap();
        assert_eq!((state, generation.number()), (State::Replacing, 3));
        assert_eq!(text(state, &generation), TEXT);
        for state in STATES {
            assert_eq!(parse(text(state, &generation).as_bytes()).unwrap(), (state, generation.clone()));
        }
    }

    #[test]
    fn other_texts_are_named_errors() {
        let cases = [
            ("replacing", "replaced", ErrorKind::Corrupt),
            ("gen-0000000003", "../0000000003", ErrorKind::Corrupt),
            ("\"state\":", "\"more\":1,\"state\":", ErrorKind::Corrupt),
            ("publication\":1", "publication\":2", ErrorKind::Unsupported),
            ("}", "", ErrorKind::Corrupt),
        ];
        for (from, to, kind) in cases {
            assert_eq!(parse(TEXT.replace(from, to).as_bytes()).unwrap_err().kind(), kind, "{to}");
        }
        assert_eq!(parse(&[0xff]).unwrap_err().kind(), ErrorKind::Corrupt);
        for len in 0..TEXT.len() - 2 {
            assert_eq!(parse(&TEXT.as_bytes()[..len]).unwrap_err().kind(), ErrorKind::Corrupt, "{len}");
        }
    }

    #[test]
    fn names_have_the_digits_of_a_digest() {
        assert!(is_mark_name(&mark_name("0123456789abcdef0123456789abcdef")));
        for name in [
            "publication-",
            "publication-0123456789abcdef",
            "publication-0123456789abcdef0123456789abcdeF",
            "published-0123456789abcdef0123456789abcdef",
            "x",
        ] {
            assert!(!is_mark_name(name), "{name}");
        }
    }
}
