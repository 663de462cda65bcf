//! Reading `current`, and replacing it if it did not change.

use object_store::{PutMode, UpdateVersion};
use sharddb_format::internal::random::random_name;
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::root::Root;
use crate::bucket_current::{
    BucketCurrent, FILE_NAME, GenerationName, MAX_BYTES, MAX_HISTORY, Replaced, ServerTime, local_generation,
};

/// `current` as it was read.
#[derive(Clone, Debug)]
pub(super) struct Current {
    pub(super) text: BucketCurrent,
    /// When it was written, by the clock of the server.
    pub(super) modified: ServerTime,
    version: UpdateVersion,
}

/// The effect of replacing `current`.
#[derive(Debug)]
pub(super) enum Replacement {
    /// It has the new text, or had it and was replaced since.
    Written,
    /// It was changed by another publisher, and is this now.
    Conflict(Option<Box<Current>>),
}

impl Current {
    /// Returns the generation.
    pub(super) fn generation(&self) -> &GenerationName {
        &self.text.generation
    }

    /// Returns whether the history shows that `next` was written after `base`, and has been replaced since.
    fn has_replaced(&self, base: Option<&Current>, next: &BucketCurrent) -> bool {
        let place = |name: &GenerationName| self.text.before.iter().position(|entry| entry.generation == *name);
        match base {
            // `gc` changes only what is removed
            Some(base) if *base.generation() == next.generation => {
                next.removed.iter().all(|name| self.text.removed.contains(name))
            }
            // a rollback: the generation was in the history before
            Some(base) if base.text.before.iter().any(|entry| entry.generation == next.generation) => {
                place(base.generation()).is_some_and(|base| place(&next.generation) > Some(base))
            }
            _ => place(&next.generation).is_some(),
        }
    }

    /// Returns the generations before the current one, all with their times.
    pub(super) fn before(&self) -> Vec<Replaced> {
        let mut before = self.text.before.clone();
        if let Some(last) = before.last_mut() {
            last.at.get_or_insert(self.modified);
        }
        before
    }

    /// Returns the text that makes another generation current.
    pub(super) fn followed_by(&self, generation: GenerationName, rolled_back: bool) -> BucketCurrent {
        let mut before = self.before();
        before.retain(|entry| entry.generation != generation);
        before.push(Replaced { generation: self.generation().clone(), at: None, rolled_back });
        let excess = (before.len() + 1).saturating_sub(MAX_HISTORY);
        before.drain(..excess);
        BucketCurrent { generation, id: random_name(), before, removed: self.text.removed.clone() }
    }

    /// Returns the text after which the generations `removed` cannot become current.
    pub(super) fn without(&self, removed: Vec<GenerationName>) -> BucketCurrent {
        let mut before = self.before();
        before.retain(|entry| !removed.contains(&entry.generation));
        BucketCurrent { generation: self.generation().clone(), id: random_name(), before, removed }
    }
}

/// Returns the first text of a store.
pub(super) fn first(generation: GenerationName) -> BucketCurrent {
    BucketCurrent { generation, id: random_name(), before: Vec::new(), removed: Vec::new() }
}

impl Root {
    /// Reads `current`; `None` if nothing was published.
    ///
    /// Errors: those of [`BucketCurrent::parse`]; `Unsupported` for a copy of a local store; `Io`.
    pub(super) async fn current(&self) -> Result<Option<Current>> {
        let Some((bytes, meta)) = self.get(FILE_NAME, MAX_BYTES).await? else { return Ok(None) };
        let place = |error: Error| error.at_path(&self.place(FILE_NAME));
        if let Some(local) = local_generation(&bytes) {
            return Err(place(is_local(local)));
        }
        let text = BucketCurrent::parse(&bytes).map_err(place)?;
        let modified = self.modified(&meta)?;
        Ok(Some(Current { text, modified, version: UpdateVersion { e_tag: meta.e_tag, version: meta.version } }))
    }

    /// Like [`current`](Self::current), for operations that need a published generation.
    ///
    /// Errors: `NotFound` if nothing was published.
    pub(super) async fn published(&self) -> Result<Current> {
        self.current().await?.ok_or_else(|| {
            let message = "expected a store in a bucket, with an object named current, found none: push a generation";
            Error::new(ErrorKind::NotFound, message).at_path(&self.place(FILE_NAME))
        })
    }

    /// Replaces `current` if it is still `base`, and creates it if that is `None`.
    ///
    /// After any failure `current` is read back: the reply to a successful write may have been lost, and a repeated
    /// request looks like a conflict then. The random id shows whose write it was, and the history whether it was followed
    /// by another one.
    ///
    /// Errors: `Io`, after which `current` may or may not be replaced, since a request may be under way.
    pub(super) async fn replace(&self, base: Option<&Current>, next: &BucketCurrent) -> Result<Replacement> {
        let mode = base.map_or(PutMode::Create, |base| PutMode::Update(base.version.clone()));
        let put = self.put(&self.path(FILE_NAME)?, next.to_json().into_bytes(), mode).await;
        let Err(error) = put else { return Ok(Replacement::Written) };
        let is_refused = is_refused(&error);
        let error = self.failed("replace", FILE_NAME, error);
        match self.current().await {
            Ok(Some(found)) if found.text.id == next.id || found.has_replaced(base, next) => Ok(Replacement::Written),
            Ok(found) if is_refused => Ok(Replacement::Conflict(found.map(Box::new))),
            _ => Err(error),
        }
    }
}

/// Returns whether a server refused a conditional write because the condition does not hold.
pub(super) fn is_refused(error: &object_store::Error) -> bool {
    use object_store::Error::{AlreadyExists, NotFound, Precondition};
    matches!(error, AlreadyExists { .. } | NotFound { .. } | Precondition { .. })
}

/// Returns the error of an operation on a copied local store, without a place.
#[cold]
fn is_local(generation: &str) -> Error {
    let message = format!(
        "expected a store that was pushed, found a copy of a local store, whose current names {generation}: lookups read it, \
         but nothing can be published to it or pulled from it; push to another prefix, and copy this one back with the tool \
         that copied it"
    );
    Error::new(ErrorKind::Unsupported, message)
}

/// Returns the error of a publisher that lost.
pub(super) fn conflict(root: &Root, found: Option<&Current>) -> Error {
    let found = found.map_or("none".to_string(), |found| format!("one that names {}", found.generation()));
    let message = format!(
        "expected current as it was when this operation began, found {found}: another publisher replaced it, and nothing \
         was changed; run this again if it is still wanted"
    );
    Error::new(ErrorKind::Locked, message).at_path(&root.place(FILE_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: usize) -> GenerationName {
        GenerationName::parse(&format!("gen-{number:010}-{number:032x}")).unwrap()
    }

    fn at(seconds: i64) -> ServerTime {
        ServerTime::from_unix(seconds).unwrap()
    }

    fn current(text: BucketCurrent, seconds: i64) -> Current {
        Current { text, modified: at(seconds), version: UpdateVersion { e_tag: None, version: None } }
    }

    #[test]
    fn the_time_of_a_write_is_filled_in_by_the_next_one() {
        let one = current(first(name(1)), 10);
        let two = current(one.followed_by(name(2), false), 20);
        assert_eq!(two.text.before[0].at, None);
        assert_eq!(two.before()[0].at, Some(at(20)));
        let three = current(two.followed_by(name(3), true), 30);
        let times: Vec<_> = three.text.before.iter().map(|entry| (entry.at, entry.rolled_back)).collect();
        assert_eq!(times, [(Some(at(20)), false), (None, true)]);
        let collected = current(three.without(vec![name(1)]), 40);
        assert_eq!(collected.before()[0].at, Some(at(30)), "not when gc wrote it");
        let back = current(collected.followed_by(name(2), false), 50);
        let names: Vec<_> = back.text.before.iter().map(|entry| entry.generation.clone()).collect();
        assert_eq!((names, back.generation()), (vec![name(3)], &name(2)), "one entry per generation");
        for text in [&one.text, &two.text, &three.text, &collected.text, &back.text] {
            assert_eq!(&BucketCurrent::parse(text.to_json().as_bytes()).unwrap(), text);
        }
        assert_ne!(one.followed_by(name(2), false).id, two.text.id, "every write has its own id");
    }

    #[test]
    fn the_history_has_a_bounded_length() {
        let mut last = current(first(name(1)), 1);
        for number in 2..=MAX_HISTORY + 3 {
            last = current(last.followed_by(name(number), false), 1);
        }
        let text = last.text.to_json();
        assert!(text.len() as u64 <= MAX_BYTES / 2);
        let parsed = BucketCurrent::parse(text.as_bytes()).unwrap();
        assert_eq!((parsed.before.len(), &parsed.before[0].generation), (MAX_HISTORY - 1, &name(4)));
    }
}
