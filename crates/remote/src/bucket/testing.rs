//! A server for the tests of buckets: `InMemory` with a clock of its own and faults at any request.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::TryStreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use sharddb::{BuildOptions, Store};
use sharddb_format::internal::manifest::Manifest;
use sharddb_format::{HashFunction, ShardingSpec};

use crate::bucket::Bucket;
use crate::common::with_own_crc32;
use crate::{Body, Failure, Operation, Response, UnknownLength, Wanted};

type Hook = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What goes wrong, by the number of the request since the fault was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// This request and all later ones fail without an effect: the publisher was killed.
    From(u64),
    /// This request has its effect, and then an error is returned.
    LostReply(u64),
    /// This request has its effect, its reply is lost, and the client repeats it.
    Repeated(u64),
}

/// How the server treats conditional writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Conditions {
    Honoured,
    Ignored,
    /// Only creation is conditional.
    UpdateRefused,
}

#[derive(Clone)]
pub(super) struct Server(Arc<State>);

struct State {
    objects: InMemory,
    conditions: Conditions,
    /// The time in seconds since 1970, which has nothing to do with that of the machine.
    now: AtomicU64,
    modified: Mutex<HashMap<ObjectPath, u64>>,
    requests: AtomicU64,
    fault: Mutex<Fault>,
    hooks: Mutex<Vec<(u64, Hook)>>,
    copies: Mutex<Copies>,
    /// The length at which the body of every response breaks off.
    body_break: Mutex<Option<usize>>,
    /// Whether the answer to a range lacks the length of the object.
    hides_lengths: AtomicBool,
    log: Mutex<Vec<Logged>>,
}

/// Which copies the server makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copies {
    All,
    /// Only unconditional ones, as S3.
    Unconditional,
    None,
}

/// A request that reads, writes or copies an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    pub(super) method: &'static str,
    /// Relative to the store.
    pub(super) object: String,
    pub(super) bytes: u64,
}

impl Server {
    pub(super) fn new() -> Server {
        Server::with(Conditions::Honoured)
    }

    pub(super) fn with(conditions: Conditions) -> Server {
        Server(Arc::new(State {
            objects: InMemory::new(),
            conditions,
            now: AtomicU64::new(1_000_000),
            modified: Mutex::default(),
            requests: AtomicU64::new(0),
            fault: Mutex::new(Fault::None),
            hooks: Mutex::default(),
            copies: Mutex::new(Copies::All),
            body_break: Mutex::default(),
            hides_lengths: AtomicBool::new(false),
            log: Mutex::default(),
        }))
    }

    pub(super) fn bucket(&self) -> Bucket {
        Bucket::new(Arc::new(self.clone()), "data/store").unwrap().named("test://data/store")
    }

    /// Sets the fault, and counts requests from here on.
    pub(super) fn set_fault(&self, fault: Fault) {
        self.0.requests.store(0, Ordering::SeqCst);
        *self.0.fault.lock().unwrap() = fault;
    }

    /// Runs `hook` before a request, by its number from here on.
    pub(super) fn before(&self, request: u64, hook: impl Future<Output = ()> + Send + 'static) {
        self.0.requests.store(0, Ordering::SeqCst);
        self.0.hooks.lock().unwrap().push((request, Box::pin(hook)));
    }

    /// Removes the hooks; returns whether all of them ran.
    pub(super) fn has_run(&self) -> bool {
        std::mem::take(&mut *self.0.hooks.lock().unwrap()).is_empty()
    }

    pub(super) fn requests(&self) -> u64 {
        self.0.requests.load(Ordering::SeqCst)
    }

    pub(super) fn set_time(&self, seconds: u64) {
        self.0.now.store(seconds, Ordering::SeqCst);
    }

    pub(super) fn set_copies(&self, copies: Copies) {
        *self.0.copies.lock().unwrap() = copies;
    }

    /// Breaks bodies off after this number of bytes, from now on.
    pub(super) fn break_bodies_after(&self, bytes: Option<usize>) {
        *self.0.body_break.lock().unwrap() = bytes;
    }

    /// Answers ranges without the length of the object from now on.
    pub(super) fn hide_lengths(&self) {
        self.0.hides_lengths.store(true, Ordering::SeqCst);
    }

    /// Returns the requests since the last call.
    pub(super) fn take_log(&self) -> Vec<Logged> {
        std::mem::take(&mut self.0.log.lock().unwrap())
    }

    fn log(&self, method: &'static str, path: &ObjectPath, bytes: u64) {
        let object = path.as_ref().strip_prefix("data/store/").unwrap_or_default().to_string();
        self.0.log.lock().unwrap().push(Logged { method, object, bytes });
    }

    /// Returns all objects below the prefix of the store, by name, without a request.
    pub(super) fn objects(&self) -> HashMap<String, Vec<u8>> {
        run(async {
            let prefix = ObjectPath::from("data/store");
            let mut found = HashMap::new();
            let mut listed = self.0.objects.list(Some(&prefix));
            while let Some(meta) = listed.next().await {
                let location = meta.unwrap().location;
                let bytes = self.0.objects.get(&location).await.unwrap().bytes().await.unwrap();
                found.insert(location.as_ref().strip_prefix("data/store/").unwrap().to_string(), bytes.to_vec());
            }
            found
        })
    }

    /// Replaces an object without a request.
    pub(super) fn put_object(&self, name: &str, bytes: &[u8]) {
        let path = ObjectPath::parse(format!("data/store/{name}")).unwrap();
        run(self.0.objects.put(&path, PutPayload::from(bytes.to_vec()))).unwrap();
        self.0.modified.lock().unwrap().insert(path, self.0.now.load(Ordering::SeqCst));
    }

    pub(super) fn delete_object(&self, name: &str) {
        run(self.0.objects.delete(&ObjectPath::parse(format!("data/store/{name}")).unwrap())).unwrap();
    }

    /// Begins a request. Returns what happens to its reply.
    async fn begin(&self) -> Result<Fault> {
        let number = self.0.requests.fetch_add(1, Ordering::SeqCst);
        let hook = {
            let mut hooks = self.0.hooks.lock().unwrap();
            let at = hooks.iter().position(|(at, _)| *at == number);
            at.map(|at| hooks.remove(at).1)
        };
        if let Some(hook) = hook {
            hook.await;
        }
        match *self.0.fault.lock().unwrap() {
            Fault::From(first) if number >= first => Err(failed(&format!("request {number} failed"))),
            Fault::LostReply(at) if number == at => Ok(Fault::LostReply(at)),
            Fault::Repeated(at) if number == at => Ok(Fault::Repeated(at)),
            _ => Ok(Fault::None),
        }
    }

    fn written(&self, path: &ObjectPath) {
        self.0.modified.lock().unwrap().insert(path.clone(), self.0.now.load(Ordering::SeqCst));
    }

    fn dated(&self, mut meta: ObjectMeta) -> ObjectMeta {
        let seconds = self.0.modified.lock().unwrap().get(&meta.location).copied().unwrap_or_default();
        meta.last_modified = (UNIX_EPOCH + Duration::from_secs(seconds)).into();
        meta
    }

    async fn put_once(&self, path: &ObjectPath, payload: PutPayload, mut options: PutOptions) -> Result<PutResult> {
        match (self.0.conditions, &options.mode) {
            (Conditions::Ignored, _) => options.mode = PutMode::Overwrite,
            (Conditions::UpdateRefused, PutMode::Update(_)) => {
                return Err(Error::NotImplemented { operation: "put".to_string(), implementer: "test".to_string() });
            }
            _ => {}
        }
        let put = self.0.objects.put_opts(path, payload, options).await;
        if put.is_ok() {
            self.written(path);
        }
        put
    }
}

fn failed(message: &str) -> Error {
    Error::Generic { store: "test", source: message.to_string().into() }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Server")
    }
}

#[async_trait]
impl ObjectStore for Server {
    async fn put_opts(&self, path: &ObjectPath, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.log("put", path, payload.content_length() as u64);
        match self.begin().await? {
            Fault::LostReply(_) => {
                self.put_once(path, payload, options).await?;
                Err(failed("the reply was lost"))
            }
            Fault::Repeated(_) => {
                self.put_once(path, payload.clone(), options.clone()).await?;
                self.put_once(path, payload, options).await
            }
            _ => self.put_once(path, payload, options).await,
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &ObjectPath,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.log("put", path, 0);
        self.begin().await?;
        let upload = self.0.objects.put_multipart_opts(path, options).await?;
        Ok(Box::new(Upload { server: self.clone(), path: path.clone(), upload }))
    }

    async fn get_opts(&self, path: &ObjectPath, options: GetOptions) -> Result<GetResult> {
        self.begin().await?;
        let is_range = options.range.is_some();
        let mut result = self.0.objects.get_opts(path, options).await?;
        result.meta = self.dated(result.meta);
        if is_range && self.0.hides_lengths.load(Ordering::SeqCst) {
            result.meta.size = result.range.end;
            result.extensions.insert(UnknownLength);
        }
        let len = result.range.end - result.range.start;
        self.log("get", path, len);
        let broken = *self.0.body_break.lock().unwrap();
        let Some(broken) = broken.filter(|broken| (*broken as u64) < len) else { return Ok(result) };
        let (meta, range, attributes) = (result.meta.clone(), result.range.clone(), result.attributes.clone());
        let bytes = result.bytes().await?.slice(..broken);
        let body = stream::iter([Ok(bytes), Err(failed("the connection broke"))]).boxed();
        Ok(GetResult {
            payload: GetResultPayload::Stream(body),
            meta,
            range,
            attributes,
            extensions: Default::default(),
        })
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<ObjectPath>>) -> BoxStream<'static, Result<ObjectPath>> {
        let server = self.clone();
        let delete = move |path: Result<ObjectPath>| {
            let server = server.clone();
            async move {
                let path = path?;
                let fault = server.begin().await?;
                server.0.objects.delete(&path).await?;
                if fault == Fault::None { Ok(path) } else { Err(failed("the reply was lost")) }
            }
        };
        paths.then(delete).boxed()
    }

    fn list(&self, prefix: Option<&ObjectPath>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (server, prefix) = (self.clone(), prefix.cloned());
        let list = async move {
            server.begin().await?;
            let found: Vec<_> = server.0.objects.list(prefix.as_ref()).collect().await;
            Ok::<_, Error>(stream::iter(found).map_ok(move |meta| server.dated(meta)))
        };
        stream::once(list).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&ObjectPath>) -> Result<ListResult> {
        self.begin().await?;
        self.0.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &ObjectPath, to: &ObjectPath, options: CopyOptions) -> Result<()> {
        self.log("copy", from, 0);
        let fault = self.begin().await?;
        match (*self.0.copies.lock().unwrap(), options.mode) {
            (Copies::All, _) | (Copies::Unconditional, CopyMode::Overwrite) => {}
            _ => return Err(Error::NotImplemented { operation: "copy".to_string(), implementer: "test".to_string() }),
        }
        self.0.objects.copy_opts(from, to, options).await?;
        self.written(to);
        if fault == Fault::None { Ok(()) } else { Err(failed("the reply was lost")) }
    }
}

#[derive(Debug)]
struct Upload {
    server: Server,
    path: ObjectPath,
    upload: Box<dyn MultipartUpload>,
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (server, part) = (self.server.clone(), self.upload.put_part(data));
        Box::pin(async move {
            server.begin().await?;
            part.await
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let fault = self.server.begin().await?;
        let result = self.upload.complete().await?;
        self.server.written(&self.path);
        if fault == Fault::None { Ok(result) } else { Err(failed("the reply was lost")) }
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

/// An event that one task waits for and another one causes.
#[derive(Clone, Default)]
pub(super) struct Event(Arc<AtomicBool>);

impl Event {
    pub(super) fn cause(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(super) fn has_happened(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    pub(super) async fn wait(&self) {
        while !self.has_happened() {
            tokio::task::yield_now().await;
        }
    }
}

/// Performs the requests of an operation of the reader on the objects of a store.
pub(super) fn drive<T>(
    objects: &HashMap<String, Vec<u8>>,
    mut operation: Operation<'_, T>,
) -> sharddb_format::Result<T> {
    loop {
        if let Poll::Ready(result) = operation.poll() {
            return result;
        }
        while let Some((id, request)) = operation.next_request() {
            operation.answer(
                id,
                objects.get(&request.object).map(|object| answer(object, &request.wanted)).ok_or(Failure::NotFound),
            );
        }
    }
}

fn answer(object: &[u8], wanted: &Wanted) -> Response {
    let len = object.len() as u64;
    let clipped = |at: &u64| usize::try_from(*at).unwrap().min(object.len());
    let bytes = match wanted {
        Wanted::Whole { .. } => object.to_vec(),
        Wanted::Bytes(range) => object[clipped(&range.start)..clipped(&range.end)].to_vec(),
    };
    Response::new(Body::new(bytes), None, Some(len))
}

/// Runs a future to its end.
pub(super) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// Builds a generation with four shards and a key file into a store. Its values state the version, and end with their own
/// CRC-32: the manifests of two versions differ in nothing but digests.
pub(super) fn build(store: &Path, version: u64) {
    let spec = ShardingSpec::new(HashFunction::Identity, 0, 1, 2).unwrap();
    let mut loader = BuildOptions::new().spec(spec).ordered(true).durable(false).create(store).unwrap();
    for key in 0..40u64 {
        // those of one shard are the same in all versions
        let version = if key % 8 < 2 { 0 } else { version };
        loader.insert(key, value(key, version)).unwrap();
    }
    loader.finish().unwrap();
}

/// Returns the value of a key in [`build`].
pub(super) fn value(key: u64, version: u64) -> Vec<u8> {
    with_own_crc32(format!("value {key} of version {version}").as_bytes())
}

/// Removes the digests from the manifest of a generation, as version 0.1.0 wrote it.
pub(super) fn remove_digests(generation: &Path) {
    let path = generation.join("manifest.json");
    let mut manifest = Manifest::parse(&std::fs::read(&path).unwrap()).unwrap();
    manifest.info_digest = None;
    manifest.auxiliary.iter_mut().for_each(|file| file.checksum.digest = None);
    manifest.shards.iter_mut().for_each(|shard| shard.digest = None);
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, manifest.to_json()).unwrap();
}

/// Returns the directory of the current generation of a local store.
pub(super) fn current_directory(store: &Path) -> PathBuf {
    let store = Store::open(store).unwrap();
    store.generation_path(store.current().unwrap().unwrap())
}

/// Returns all files of a local generation except its lease, by name.
pub(super) fn files(directory: &Path) -> HashMap<String, Vec<u8>> {
    fn add(directory: &Path, prefix: &str, files: &mut HashMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name().into_string().unwrap())).unwrap();
            match path.is_dir() {
                true => add(&path, &format!("{prefix}{name}/"), files),
                false if name == "lease" => {}
                false => _ = files.insert(format!("{prefix}{name}"), std::fs::read(&path).unwrap()),
            }
        }
    }
    let mut found = HashMap::new();
    add(directory, "", &mut found);
    found
}
