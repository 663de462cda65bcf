//! A model of a bucket: the files of a directory as objects in memory. Performs the requests of operations, counts them,
//! and changes answers if a test says so.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::Mutex;
use std::task::Poll;

use sharddb::Result;
use sharddb_remote::{
    Body, Failure, Operation, OperationStats, RemoteOptions, RemoteReader, Request, RequestId, Response, Wanted,
};

/// Changes the answer to a request.
type Fault = Box<dyn FnMut(&Request, Result<Response, Failure>) -> Result<Response, Failure> + Send>;

#[derive(Default)]
pub(crate) struct Bucket {
    objects: Mutex<BTreeMap<String, Object>>,
    fault: Mutex<Option<Fault>>,
    log: Mutex<Vec<Request>>,
    bytes: Mutex<u64>,
    without_etags: bool,
}

/// An object, with the ETag of its content.
struct Object {
    bytes: Vec<u8>,
    etag: String,
}

/// What an operation cost: requests, bytes of the answers, and round trips if the requests of a round overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    pub(crate) requests: usize,
    pub(crate) bytes: u64,
    pub(crate) rounds: usize,
}

impl Bucket {
    /// The files below a directory. A link becomes an object with its target.
    pub(crate) fn of(directory: &Path) -> Bucket {
        let bucket = Bucket::default();
        bucket.add(directory, "");
        bucket
    }

    /// A bucket whose answers have no ETags and no lengths of objects.
    pub(crate) fn without_etags(mut self) -> Bucket {
        self.without_etags = true;
        self
    }

    /// Adds the files below a directory, or replaces them.
    pub(crate) fn add(&self, directory: &Path, prefix: &str) {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                self.add(&entry.path(), &format!("{name}/"));
            } else if kind.is_symlink() {
                self.put(&name, fs::read_link(entry.path()).unwrap().to_str().unwrap());
            } else {
                self.put(&name, fs::read(entry.path()).unwrap());
            }
        }
    }

    pub(crate) fn put(&self, name: &str, bytes: impl Into<Vec<u8>>) {
        let bytes = bytes.into();
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        let object = Object { etag: format!("\"{:016x}\"", hasher.finish()), bytes };
        self.objects.lock().unwrap().insert(name.to_string(), object);
    }

    pub(crate) fn object(&self, name: &str) -> Vec<u8> {
        self.objects.lock().unwrap()[name].bytes.clone()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.objects.lock().unwrap().keys().cloned().collect()
    }

    /// Removes all objects whose name begins with a prefix.
    pub(crate) fn remove(&self, prefix: &str) {
        self.objects.lock().unwrap().retain(|name, _| !name.starts_with(prefix));
    }

    /// Changes all answers from now on.
    pub(crate) fn set_fault(
        &self,
        fault: impl FnMut(&Request, Result<Response, Failure>) -> Result<Response, Failure> + Send + 'static,
    ) {
        *self.fault.lock().unwrap() = Some(Box::new(fault));
    }

    pub(crate) fn clear_fault(&self) {
        *self.fault.lock().unwrap() = None;
    }

    /// The requests since the last call.
    pub(crate) fn take_log(&self) -> Vec<Request> {
        std::mem::take(&mut self.log.lock().unwrap())
    }

    /// Performs a request.
    pub(crate) fn perform(&self, request: &Request) -> Result<Response, Failure> {
        self.log.lock().unwrap().push(request.clone());
        let answer = self.answer(request);
        let answer = match &mut *self.fault.lock().unwrap() {
            Some(fault) => fault(request, answer),
            None => answer,
        };
        if let Ok(response) = &answer {
            *self.bytes.lock().unwrap() += response.body.as_slice().len() as u64;
        }
        answer
    }

    fn answer(&self, request: &Request) -> Result<Response, Failure> {
        let objects = self.objects.lock().unwrap();
        let Some(object) = objects.get(&request.object) else { return Err(Failure::NotFound) };
        let etag = (!self.without_etags).then(|| object.etag.clone());
        let object = &object.bytes;
        if request.if_match.is_some() && request.if_match != etag {
            return Err(Failure::Replaced);
        }
        if request.if_none_match.is_some() && request.if_none_match == etag {
            return Err(Failure::Unchanged);
        }
        let len = object.len();
        let body = match &request.wanted {
            Wanted::Whole { .. } => object.clone(),
            Wanted::Bytes(range) => {
                assert!(range.start < range.end, "an empty range");
                let offset = |at: u64| usize::try_from(at).unwrap().min(len);
                object[offset(range.start)..offset(range.end)].to_vec()
            }
            _ => panic!("an unknown kind of request"),
        };
        let object_len = (!self.without_etags).then_some(len as u64);
        Ok(Response::new(Body::new(body), etag, object_len))
    }

    /// Runs an operation to its end.
    pub(crate) fn run<T>(&self, operation: Operation<'_, T>) -> Result<T> {
        self.run_counted(operation).0
    }

    /// Runs an operation to its end. All requests of a round are performed before it is polled again.
    pub(crate) fn run_counted<T>(&self, operation: Operation<'_, T>) -> (Result<T>, Cost) {
        let is_new = operation.stats() == OperationStats::default();
        let (result, cost, stats) = self.run_to_end(operation);
        if is_new {
            assert_eq!((stats.requests, stats.bytes), (cost.requests as u64, cost.bytes));
        }
        (result, cost)
    }

    /// Runs an operation to its end. A request that it shares with others is performed once.
    pub(crate) fn run_sharing<T>(&self, mut operation: Operation<'_, T>) -> (Result<T>, OperationStats) {
        loop {
            if let Poll::Ready(result) = operation.poll() {
                return (result, operation.stats());
            }
            while let Some((id, request)) = operation.next_request() {
                let response = id.shared(|| self.perform(&request).ok());
                operation.answer(id, response.ok_or(Failure::NotFound));
            }
        }
    }

    fn run_to_end<T>(&self, mut operation: Operation<'_, T>) -> (Result<T>, Cost, OperationStats) {
        let (before, mut cost) = (*self.bytes.lock().unwrap(), Cost::default());
        loop {
            let done = operation.poll();
            if let Poll::Ready(result) = done {
                cost.bytes = *self.bytes.lock().unwrap() - before;
                return (result, cost, operation.stats());
            }
            let requests: Vec<(RequestId, Request)> = std::iter::from_fn(|| operation.next_request()).collect();
            assert!(!requests.is_empty(), "the operation waits for nothing");
            cost.requests += requests.len();
            cost.rounds += 1;
            for (id, request) in requests {
                operation.answer(id, self.perform(&request));
            }
        }
    }

    /// Runs an operation that succeeds. Returns the number of requests with the result.
    pub(crate) fn count<T>(&self, operation: Operation<'_, T>) -> (T, usize) {
        let (result, cost) = self.run_counted(operation);
        (result.unwrap(), cost.requests)
    }

    pub(crate) fn open(&self) -> RemoteReader {
        self.run(RemoteOptions::new().root_name("s3://bucket/store").open()).unwrap()
    }
}
