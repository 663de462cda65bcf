//! Finds the generation to serve, and opens it.

use std::io;
use std::sync::Arc;

use sharddb_format::internal::info;
use sharddb_format::internal::manifest::{self, Manifest};
use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket_current;
use crate::generation::{RemoteGeneration, Shared};
use crate::objects::{Objects, Unread};
use crate::operation::Exchange;
use crate::request::{Body, Request, Response};

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
        let current = root.read_whole(exchange, bucket_current::FILE_NAME, bucket_current::MAX_BYTES, None).await;
        match current {
            Ok(current) => Served::of_current(shared, exchange, current).await,
            Err(Unread::Failed(error)) if shared.chosen.is_some() => Err(error),
            Err(Unread::Missing) if shared.chosen.is_some() => Err(no_history(&root)),
            Err(Unread::Missing) => match Served::of_root(shared, exchange).await? {
                Some(served) => Ok(served),
                None => Err(nothing_at_root(&root)),
            },
            // stores answer "no permission" for a missing object, if listing is not permitted
            Err(Unread::Failed(error)) if error.io_kind() == Some(io::ErrorKind::PermissionDenied) => {
                match Served::of_root(shared, exchange).await {
                    Ok(Some(served)) => Ok(served),
                    Ok(None) | Err(_) => Err(error),
                }
            }
            Err(unread) => Err(failed(unread, &root, bucket_current::FILE_NAME)),
        }
    }

    /// Opens the chosen generation, or the one that the text of `current` names.
    async fn of_current(shared: &Arc<Shared>, exchange: &Exchange, current: Response) -> Result<Served> {
        let path = shared.objects().path(bucket_current::FILE_NAME);
        let name = directory_of(shared, current.body.as_slice()).map_err(|error| error.at_path(&path))?;
        let watched = Watched { object: bucket_current::FILE_NAME, etag: current.etag, text: current.body };
        let files = Files::read(shared, exchange, Some(name.clone())).await?;
        let info = match files.info {
            Ok(info) => info.body,
            Err(Unread::Missing) => return Err(files.objects.gone(&format!("{name}/{}", info::FILE_NAME))),
            Err(unread) => return Err(failed(unread, &files.objects, &format!("{name}/{}", info::FILE_NAME))),
        };
        let manifest = match files.manifest {
            Err(Unread::Missing) => return Err(files.objects.gone(&format!("{name}/{}", manifest::FILE_NAME))),
            manifest => parsed(manifest, &files.objects, &format!("{name}/{}", manifest::FILE_NAME)),
        };
        let generation = opened(shared, exchange, Some(name), (info, manifest), files.objects).await?;
        Ok(Served { generation, watched })
    }

    /// Opens the directory at the root; `None` if it has no `info`.
    async fn of_root(shared: &Arc<Shared>, exchange: &Exchange) -> Result<Option<Served>> {
        let files = Files::read(shared, exchange, None).await?;
        let info = match files.info {
            Ok(info) => info,
            Err(Unread::Missing) if shared.spec.is_some() => {
                Response { body: Body::new(Vec::new()), etag: None, object_len: None }
            }
            Err(Unread::Missing) => return Ok(None),
            Err(unread) => return Err(failed(unread, &files.objects, info::FILE_NAME)),
        };
        let watched = Watched { object: info::FILE_NAME, etag: info.etag, text: info.body.clone() };
        let manifest = parsed(files.manifest, &files.objects, manifest::FILE_NAME);
        let generation = opened(shared, exchange, None, (info.body, manifest), files.objects).await?;
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
        let other = match Served::of_current(shared, exchange, found).await {
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

/// The two files that describe a directory.
struct Files {
    info: Result<Response, Unread>,
    manifest: Result<Response, Unread>,
    objects: Objects,
}

impl Files {
    /// Reads both at the same time. The manifest of a foreign directory costs a request, but no time, and no damage of
    /// `info` can make a native directory foreign.
    async fn read(shared: &Shared, exchange: &Exchange, generation: Option<String>) -> Result<Files> {
        let objects = shared.objects();
        let directory = generation.map(|name| format!("{name}/")).unwrap_or_default();
        let names = [info::FILE_NAME, manifest::FILE_NAME].map(|name| format!("{directory}{name}"));
        let caps = [info::MAX_BYTES, manifest::MAX_BYTES];
        let requests: Vec<Request> =
            names.iter().zip(caps).map(|(name, most)| objects.request_whole(name, most, None)).collect();
        let mut answers = [None, None];
        exchange
            .fetch_all(requests, |at, answer| {
                if let (Some(slot), Some(name), Some(most)) = (answers.get_mut(at), names.get(at), caps.get(at)) {
                    *slot = Some(objects.accept_whole(name, *most, answer));
                }
            })
            .await;
        let [Some(info), Some(manifest)] = answers else {
            return Err(Error::internal("expected an answer to each request"));
        };
        Ok(Files { info, manifest, objects })
    }
}

async fn opened(
    shared: &Arc<Shared>,
    exchange: &Exchange,
    name: Option<String>,
    (info, manifest): (Body, Result<Option<Manifest>>),
    objects: Objects,
) -> Result<Arc<RemoteGeneration>> {
    let mut generation = RemoteGeneration::describe(shared.clone(), name, info, manifest, objects)?;
    generation.read_places(exchange).await?;
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
