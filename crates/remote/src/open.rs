//! Finds the generation to serve, and opens it.

use std::io;
use std::sync::Arc;

use sharddb_format::internal::info;
use sharddb_format::internal::manifest::{self, Manifest};
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket_current;
use crate::generation::{FirstBytes, RemoteGeneration, Shared};
use crate::objects::{Objects, Unread};
use crate::operation::{Exchange, Outgoing};
use crate::request::{Body, Response};

/// A generation may be removed between the reads of `current` and of its files. Then `current` is read again, this often.
const ATTEMPTS: usize = 2;

/// The generation that a reader serves, and the object that another generation would change.
pub(crate) struct Served {
    pub(crate) generation: Arc<RemoteGeneration>,
    watched: Watched,
}

/// The object that states which generation is served, as it was read last.
struct Watched {
    object: &'static str,
    etag: Option<String>,
    text: Body,
}

/// What a refresh found.
pub(crate) enum Refreshed {
    Unchanged,
    /// The object that is watched was written again, for the same generation.
    Same(Served),
    Other(Served),
}

impl Served {
    /// Opens the generation that `current` names or, without `current`, the directory at the root.
    pub(crate) async fn open(shared: &Arc<Shared>, exchange: &Exchange) -> Result<Served> {
        for _ in 1..ATTEMPTS {
            match Served::try_open(shared, exchange).await {
                Err(error) if error.kind() == ErrorKind::GenerationGone => {}
                opened => return opened,
            }
        }
        Served::try_open(shared, exchange).await
    }

    async fn try_open(shared: &Arc<Shared>, exchange: &Exchange) -> Result<Served> {
        let root = shared.objects();
        let chosen = shared.chosen.clone().filter(|name| bucket_current::is_generation_directory(name));
        let Files { current, content } = Files::read(shared, exchange, true, chosen).await;
        match current.unwrap_or(Err(Unread::Missing)) {
            Ok(current) => Served::of_current(shared, exchange, current, Some(content)).await,
            Err(Unread::Failed(error)) if shared.chosen.is_some() => Err(error),
            Err(Unread::Missing) if shared.chosen.is_some() => Err(no_history(&root)),
            Err(Unread::Missing) => match Served::of_root(shared, exchange, content).await? {
                Some(served) => Ok(served),
                None => Err(nothing_at_root(&root)),
            },
            // stores answer "no permission" for a missing object, if listing is not permitted
            Err(Unread::Failed(error)) if error.io_kind() == Some(io::ErrorKind::PermissionDenied) => {
                match Served::of_root(shared, exchange, content).await {
                    Ok(Some(served)) => Ok(served),
                    Ok(None) | Err(_) => Err(error),
                }
            }
            Err(unread) => Err(failed(unread, &root, bucket_current::FILE_NAME)),
        }
    }

    /// Opens the chosen generation, or the one that the text of `current` names: from its content, if that was read with `current`.
    async fn of_current(
        shared: &Arc<Shared>,
        exchange: &Exchange,
        current: Response,
        read: Option<Content>,
    ) -> Result<Served> {
        let path = shared.objects().path(bucket_current::FILE_NAME);
        let name = directory_of(shared, current.body.as_slice()).map_err(|error| error.at_path(&path))?;
        let watched = Watched { object: bucket_current::FILE_NAME, etag: current.etag, text: current.body };
        let content = match read.filter(|read| read.generation.as_ref() == Some(&name)) {
            Some(content) => content,
            None => Files::read(shared, exchange, false, Some(name.clone())).await.content,
        };
        for (file, object) in [(&content.info, info::FILE_NAME), (&content.manifest, manifest::FILE_NAME)] {
            if let Err(Unread::Missing) = file {
                return Err(content.objects.gone(&format!("{name}/{object}")));
            }
        }
        let info =
            content.info.map_err(|unread| failed(unread, &content.objects, &format!("{name}/{}", info::FILE_NAME)))?;
        let manifest = parsed(content.manifest, &content.objects, &format!("{name}/{}", manifest::FILE_NAME));
        let generation =
            opened(shared, exchange, Some(name), (info.body, manifest), content.first, content.objects).await?;
        Ok(Served { generation, watched })
    }

    /// Opens the directory at the root from its content; `None` if it has no `info`.
    async fn of_root(shared: &Arc<Shared>, exchange: &Exchange, content: Content) -> Result<Option<Served>> {
        let info = match content.info {
            Ok(info) => info,
            Err(Unread::Missing) if shared.spec.is_some() => Response::new(Body::new(Vec::new()), None, None),
            Err(Unread::Missing) => return Ok(None),
            Err(unread) => return Err(failed(unread, &content.objects, info::FILE_NAME)),
        };
        let watched = Watched { object: info::FILE_NAME, etag: info.etag, text: info.body.clone() };
        let manifest = parsed(content.manifest, &content.objects, manifest::FILE_NAME);
        let generation = opened(shared, exchange, None, (info.body, manifest), content.first, content.objects).await?;
        Ok(Some(Served { generation, watched }))
    }

    /// Reads the object that is watched if it has changed, and opens the generation that it names now. A chosen generation
    /// stays.
    ///
    /// Cost: one request if nothing has changed; none for a chosen generation.
    pub(crate) async fn refreshed(&self, shared: &Arc<Shared>, exchange: &Exchange) -> Result<Refreshed> {
        if shared.chosen.is_some() {
            return Ok(Refreshed::Unchanged);
        }
        let Watched { object, etag, text } = &self.watched;
        let most = if *object == info::FILE_NAME { info::MAX_BYTES } else { bucket_current::MAX_BYTES };
        let found = match shared.objects().read_whole(exchange, object, most, etag.clone()).await {
            Ok(found) => found,
            Err(Unread::Unchanged) => return Ok(Refreshed::Unchanged),
            Err(Unread::Missing) if self.watched.text.as_slice().is_empty() => return Ok(Refreshed::Unchanged),
            Err(Unread::Missing) => return Ok(Refreshed::Other(Served::open(shared, exchange).await?)),
            Err(Unread::Failed(error)) => return Err(error),
        };
        if found.body.as_slice() == text.as_slice() {
            return Ok(Refreshed::Unchanged);
        }
        if *object == info::FILE_NAME {
            return Ok(Refreshed::Other(Served::open(shared, exchange).await?));
        }
        let name = bucket_current::generation_directory(found.body.as_slice());
        let path = shared.objects().path(object);
        let name = name.map_err(|error| error.at_path(&path))?;
        if self.generation.name.as_deref() == Some(&name) {
            let watched = Watched { object, etag: found.etag, text: found.body };
            return Ok(Refreshed::Same(Served { generation: self.generation.clone(), watched }));
        }
        let other = match Served::of_current(shared, exchange, found, None).await {
            Err(error) if error.kind() == ErrorKind::GenerationGone => Served::open(shared, exchange).await,
            other => other,
        };
        other.map(Refreshed::Other)
    }
}

/// Returns the directory of the chosen generation, or of the current one.
fn directory_of(shared: &Shared, current: &[u8]) -> Result<String> {
    match &shared.chosen {
        Some(chosen) => bucket_current::chosen_directory(current, chosen),
        None => bucket_current::generation_directory(current),
    }
}

/// What is read of a data set at the same time.
struct Files {
    current: Option<Result<Response, Unread>>,
    content: Content,
}

/// `info` and the manifest of a generation, or of the root, and the first bytes of other files.
struct Content {
    generation: Option<String>,
    info: Result<Response, Unread>,
    manifest: Result<Response, Unread>,
    first: FirstBytes,
    objects: Objects,
}

impl Files {
    /// Reads `current`, if wanted, and the content of a generation or of the root. What is not there costs a request, but no
    /// time, and no damage of `info` can make a native directory foreign.
    async fn read(shared: &Shared, exchange: &Exchange, with_current: bool, generation: Option<String>) -> Files {
        let (root, objects) = (shared.objects(), shared.objects());
        let directory = generation.as_ref().map(|name| format!("{name}/")).unwrap_or_default();
        let [info, manifest] = [info::FILE_NAME, manifest::FILE_NAME].map(|name| format!("{directory}{name}"));
        let mut requests = vec![
            objects.request_whole(&info, info::MAX_BYTES, None),
            objects.request_whole(&manifest, manifest::MAX_BYTES, None),
        ];
        let spans = if generation.is_some() { FirstBytes::spans(shared, &directory) } else { Vec::new() };
        requests.extend(spans.iter().map(|span| objects.request(span)));
        if with_current {
            requests.push(root.request_whole(bucket_current::FILE_NAME, bucket_current::MAX_BYTES, None));
        }
        let mut content = Content {
            generation,
            info: Err(Unread::Missing),
            manifest: Err(Unread::Missing),
            first: FirstBytes::default(),
            objects,
        };
        let mut current = None;
        let answered = |at: usize, answer| match (at, at.checked_sub(2).and_then(|at| spans.get(at))) {
            (0, _) => content.info = content.objects.accept_whole(&info, info::MAX_BYTES, answer),
            (1, _) => content.manifest = content.objects.accept_whole(&manifest, manifest::MAX_BYTES, answer),
            (_, Some(span)) => {
                if let Ok(bytes) = content.objects.accept(span, content.objects.counted(answer)) {
                    content.first.keep(span, bytes);
                }
            }
            (_, None) => {
                current = Some(root.accept_whole(bucket_current::FILE_NAME, bucket_current::MAX_BYTES, answer));
            }
        };
        exchange.fetch_all(requests.into_iter().map(Outgoing::from).collect(), answered).await;
        Files { current, content }
    }
}

async fn opened(
    shared: &Arc<Shared>,
    exchange: &Exchange,
    name: Option<String>,
    (info, manifest): (Body, Result<Option<Manifest>>),
    first: FirstBytes,
    objects: Objects,
) -> Result<Arc<RemoteGeneration>> {
    let mut generation = RemoteGeneration::describe(shared.clone(), name, info, manifest, objects)?;
    generation.read_places(exchange, first).await?;
    Ok(Arc::new(generation))
}

/// Parses a manifest; `Ok(None)` if there is none.
fn parsed(manifest: Result<Response, Unread>, objects: &Objects, object: &str) -> Result<Option<Manifest>> {
    match manifest {
        Ok(text) => Manifest::parse(text.body.as_slice()).map(Some),
        Err(Unread::Missing) => Ok(None),
        Err(unread) => Err(failed(unread, objects, object)),
    }
}

/// Returns the error for an object that was requested without a condition, and is not known to be missing.
fn failed(unread: Unread, objects: &Objects, object: &str) -> Error {
    let message = match unread {
        Unread::Failed(error) => return error,
        Unread::Missing => return Error::internal("expected an object, found none").at_path(&objects.path(object)),
        Unread::Unchanged => {
            "expected the object, found the answer \"unchanged\" (status 304) to a request without a condition"
        }
    };
    Error::new(ErrorKind::Io, message).at_path(&objects.path(object))
}

fn no_history(root: &Objects) -> Error {
    let message =
        "expected a store in a bucket, whose object current lists its generations, found none: check the address";
    Error::new(ErrorKind::NotFound, message).at_path(&root.path(bucket_current::FILE_NAME))
}

fn nothing_at_root(root: &Objects) -> Error {
    let message = "expected a store with a published generation, or a directory with an info, found neither: check the \
                   address";
    Error::new(ErrorKind::NotFound, message).at_path(&root.path(""))
}
