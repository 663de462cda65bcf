//! `PythonStore`: an object store of the caller, as one of the crate `object_store`.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyIterator};

use crate::bytes_like;
use crate::python_client::{PythonClient, put_result, versions};
use crate::python_upload::PythonUpload;

/// Number of objects per page of a listing.
const PAGE: usize = 1000;

/// Number of objects that are deleted at a time.
const DELETES_IN_FLIGHT: usize = 8;

/// A store with the methods that a [`Bucket`](sharddb_remote::Bucket) without builds in parts calls. The others are `NotImplemented`.
#[derive(Clone, Debug)]
pub(crate) struct PythonStore(pub(crate) PythonClient);

impl fmt::Display for PythonStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for PythonStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        let (path, bytes) = (location.to_string(), Bytes::from(payload));
        let put = move |store: &Bound<'_, PyAny>| {
            let py = store.py();
            let keywords = PyDict::new(py);
            match options.mode {
                PutMode::Overwrite => keywords.set_item("mode", "overwrite")?,
                PutMode::Create => keywords.set_item("mode", "create")?,
                PutMode::Update(version) => {
                    let members = [("e_tag", version.e_tag), ("version", version.version)];
                    let stated = members.into_iter().filter(|(_, value)| value.is_some()).collect::<Vec<_>>();
                    keywords.set_item("mode", stated.into_py_dict(py)?)?;
                }
            }
            keywords.set_item("use_multipart", false)?;
            put_result(&store.call_method("put", (path, PyBytes::new(py, &bytes)), Some(&keywords))?)
        };
        self.0.call(location, put).await
    }

    async fn put_multipart_opts(&self, location: &Path, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(PythonUpload::new(self.0.clone(), location.clone())))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let path = location.to_string();
        let get = move |store: &Bound<'_, PyAny>| {
            if options.head && store.hasattr("head")? {
                return Ok((object_meta(&store.call_method1("head", (path,))?)?, None));
            }
            let keywords = PyDict::new(store.py());
            keywords.set_item("options", get_options(store.py(), &options)?)?;
            let result = store.call_method("get", (path,), Some(&keywords))?;
            let (meta, range) = (object_meta(&result.getattr("meta")?)?, result.getattr("range")?.extract()?);
            let chunks = if options.head { None } else { Some((result.try_iter()?.unbind(), range)) };
            Ok((meta, chunks))
        };
        let (meta, chunks) = self.0.call(location, get).await?;
        let (range, payload) = match chunks {
            Some((chunks, (start, end))) => (start..end, self.chunks(location.clone(), chunks)),
            None => (0..meta.size, stream::empty().boxed()),
        };
        let attributes = Attributes::new();
        Ok(GetResult {
            payload: GetResultPayload::Stream(payload),
            meta,
            range,
            attributes,
            extensions: Default::default(),
        })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let store = self.clone();
        let delete = move |location: Result<Path>| {
            let store = store.clone();
            async move {
                let location = location?;
                let path = location.to_string();
                store.0.call(&location, |store| store.call_method1("delete", (path,)).map(drop)).await?;
                Ok(location)
            }
        };
        locations.map(delete).buffered(DELETES_IN_FLIGHT).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned().unwrap_or_default());
        let pages = async move {
            let (path, asked) = (prefix.clone(), prefix.to_string());
            let list = move |store: &Bound<'_, PyAny>| {
                let keywords = [("chunk_size", PAGE)].into_py_dict(store.py())?;
                let pages = store.call_method("list", (asked,), Some(&keywords))?;
                Ok(pages.try_iter()?.unbind())
            };
            let pages = store.0.call(&prefix, list).await?;
            let page = |page: &Bound<'_, PyAny>| page.try_iter()?.map(|meta| object_meta(&meta?)).collect();
            let pages: BoxStream<'_, Result<Vec<ObjectMeta>>> = store.items(path, pages, page);
            Ok::<_, Error>(pages.map_ok(|page| stream::iter(page.into_iter().map(Ok))).try_flatten())
        };
        stream::once(pages).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(not_implemented("list_with_delimiter"))
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(not_implemented("copy"))
    }
}

impl PythonStore {
    /// Returns the chunks of an object.
    fn chunks(&self, path: Path, chunks: Py<PyIterator>) -> BoxStream<'static, Result<Bytes>> {
        self.items(path, chunks, |chunk| {
            let mut bytes = Vec::new();
            bytes_like::append(chunk, &mut bytes)?;
            Ok(Bytes::from(bytes))
        })
    }

    /// Returns the items of an iterator, each of which is read on a thread.
    fn items<T: Send + 'static>(
        &self,
        path: Path,
        items: Py<PyIterator>,
        convert: impl Fn(&Bound<'_, PyAny>) -> PyResult<T> + Copy + Send + Sync + 'static,
    ) -> BoxStream<'static, Result<T>> {
        let (store, items) = (self.clone(), Arc::new(items));
        let read = move |()| {
            let (store, items, path) = (store.clone(), items.clone(), path.clone());
            async move {
                let next = move |store: &Bound<'_, PyAny>| {
                    let mut items = items.bind(store.py()).clone();
                    items.next().map(|item| convert(&item?)).transpose()
                };
                Ok(store.0.call(&path, next).await?.map(|item| (item, ())))
            }
        };
        stream::try_unfold((), read).boxed()
    }
}

fn not_implemented(operation: &str) -> Error {
    Error::NotImplemented { operation: operation.to_string(), implementer: "PythonStore".to_string() }
}

fn get_options<'py>(py: Python<'py>, options: &GetOptions) -> PyResult<Bound<'py, PyDict>> {
    let found = PyDict::new(py);
    match &options.range {
        Some(GetRange::Bounded(range)) => found.set_item("range", (range.start, range.end))?,
        Some(GetRange::Offset(offset)) => found.set_item("range", [("offset", *offset)].into_py_dict(py)?)?,
        Some(GetRange::Suffix(bytes)) => found.set_item("range", [("suffix", *bytes)].into_py_dict(py)?)?,
        None => {}
    }
    for (name, condition) in [("if_match", &options.if_match), ("if_none_match", &options.if_none_match)] {
        if let Some(condition) = condition {
            found.set_item(name, condition)?;
        }
    }
    Ok(found)
}

fn object_meta(meta: &Bound<'_, PyAny>) -> PyResult<ObjectMeta> {
    let path: String = meta.get_item("path")?.extract()?;
    let last_modified: DateTime<Utc> = meta.get_item("last_modified")?.extract()?;
    let (e_tag, version) = versions(meta)?;
    Ok(ObjectMeta {
        location: Path::parse(path).map_err(|error| PyValueError::new_err(error.to_string()))?,
        last_modified,
        size: meta.get_item("size")?.extract()?,
        e_tag,
        version,
    })
}
