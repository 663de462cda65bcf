//! Lookups of the places of many values in an object store, several at a time.

use std::collections::HashMap;
use std::task::Poll;

use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use sharddb_remote::{Failure, Operation, RemoteLocation, RemoteSnapshot, Request, RequestId, Response};

use crate::buffer;
use crate::remote_operation::{Outcome, Steps};

/// Upper bound on the lookups that are under way.
const MOST_ACTIVE: usize = 64;

/// The lookups of the places of keys.
pub(crate) struct Places {
    snapshot: RemoteSnapshot,
    /// The keys whose lookup has not begun, with their positions.
    waiting: std::iter::Enumerate<std::vec::IntoIter<u64>>,
    active: Vec<(usize, Operation<'static, Option<RemoteLocation>>)>,
    found: Vec<Option<RemoteLocation>>,
}

impl Places {
    pub(crate) fn new(snapshot: RemoteSnapshot, keys: Vec<u64>) -> Places {
        let found = vec![None; keys.len()];
        Places { snapshot, waiting: keys.into_iter().enumerate(), active: Vec::new(), found }
    }

    /// Polls all lookups that are under way once. Returns whether one has ended.
    fn poll_active(&mut self) -> sharddb::Result<bool> {
        let mut has_ended = false;
        let mut pending = Vec::with_capacity(self.active.len());
        for (position, mut operation) in self.active.drain(..) {
            match operation.poll()? {
                Poll::Pending => pending.push((position, operation)),
                Poll::Ready(location) => {
                    has_ended = true;
                    if let Some(found) = self.found.get_mut(position) {
                        *found = location;
                    }
                }
            }
        }
        self.active = pending;
        Ok(has_ended)
    }
}

impl Steps for Places {
    fn poll(&mut self) -> Poll<sharddb::Result<Outcome>> {
        loop {
            let begin = MOST_ACTIVE.saturating_sub(self.active.len());
            let snapshot = &self.snapshot;
            self.active.extend(self.waiting.by_ref().take(begin).map(|(at, key)| (at, snapshot.locate(key))));
            if self.active.is_empty() {
                return Poll::Ready(Ok(Outcome::Places(std::mem::take(&mut self.found))));
            }
            match self.poll_active() {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn next_request(&mut self) -> Option<((usize, RequestId), Request)> {
        self.active.iter_mut().find_map(|(position, operation)| {
            let (id, request) = operation.next_request()?;
            Some(((*position, id), request))
        })
    }

    fn answer(&mut self, (position, id): (usize, RequestId), answer: Result<Response, Failure>) {
        if let Some((_, operation)) = self.active.iter_mut().find(|(at, _)| *at == position) {
            operation.answer(id, answer);
        }
    }
}

/// Returns places as `(files, file_no, offsets, lengths)`, like `Reader.locate_many`.
pub(crate) fn columns(py: Python<'_>, places: Vec<Option<RemoteLocation>>) -> PyResult<Bound<'_, PyAny>> {
    let (mut files, mut numbers) = (Vec::new(), HashMap::<String, i32>::new());
    let (mut file_no, mut offsets, mut lengths) = (Vec::new(), Vec::<i64>::new(), Vec::<i64>::new());
    let too_large = |_| PyOverflowError::new_err("an offset of 2**63 or more");
    for place in places {
        let Some(RemoteLocation { object, range, .. }) = place else {
            file_no.push(-1);
            offsets.push(0);
            lengths.push(0);
            continue;
        };
        let next = i32::try_from(files.len())?;
        let number = *numbers.entry(object).or_insert_with_key(|object| {
            files.push(object.clone());
            next
        });
        file_no.push(number);
        offsets.push(i64::try_from(range.start).map_err(too_large)?);
        lengths.push(i64::try_from(range.end.saturating_sub(range.start)).map_err(too_large)?);
    }
    let columns = (files, buffer::array(py, file_no)?, buffer::array(py, offsets)?, buffer::array(py, lengths)?);
    Ok(columns.into_pyobject(py)?.into_any())
}
