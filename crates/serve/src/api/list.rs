//! `/TOKEN/api/`: all databases of the tree.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::app::App;
use crate::catalog::{Found, Kind};
use crate::problem::{Problem, Result};
use crate::request_path::encode;

/// The Neuroglancer that the links open.
const NEUROGLANCER: &str = "https://neuroglancer-demo.appspot.com/";

/// Up to this number of databases, each is opened for its error. More would close those in use.
const MAX_OPENED: usize = 100;

/// The time after which no more of them are opened, so that slow ones do not hold the list.
const OPENING_TIME: Duration = Duration::from_secs(2);

/// Errors: `busy` if this was cancelled.
pub(super) fn json(app: &App, cancel: &AtomicBool) -> Result<Value> {
    let list = app.list(cancel).ok_or_else(Problem::cancelled)?;
    let begun = Instant::now();
    let are_opened = list.len() <= MAX_OPENED.min(app.databases.max_open());
    let is_opened = || are_opened && begun.elapsed() < OPENING_TIME;
    let error = |found: &Found| if is_opened() { app.databases.get(&found.names, None).err() } else { None };
    let databases: Vec<Value> = list.iter().map(|found| database(app, found, error(found))).collect();
    Ok(json!({"version": env!("CARGO_PKG_VERSION"), "databases": databases}))
}

fn database(app: &App, found: &Found, error: Option<Problem>) -> Value {
    let layer = layer(app, "raw", found);
    json!({
        "path": found.names.join("/"),
        "kind": found.kind.as_str(),
        "error": error.map(|problem| problem.json()["error"]["message"].clone()),
        "objects_layer": self::layer(app, "objects", found),
        "neuroglancer": layer.as_ref().map(|layer| neuroglancer(layer, found)),
        "layer": layer,
    })
}

/// The layer source of the raw files or of the objects; `None` for what Neuroglancer does not draw.
pub(crate) fn layer(app: &App, area: &str, found: &Found) -> Option<String> {
    match found.kind {
        Kind::Zarr => Some(format!("zarr3://{}/", app.url(area, &found.names))),
        Kind::Bcolz | Kind::Bloscpack => None,
        Kind::Store | Kind::Generation | Kind::Foreign => {
            found.data_type?;
            Some(format!("precomputed://{}", app.url(area, &found.data_set)))
        }
    }
}

/// The URL that opens a layer in Neuroglancer.
fn neuroglancer(layer: &str, found: &Found) -> String {
    let kind = match found.data_type {
        Some("annotations") => "annotation",
        Some("volume") if !found.is_segmentation => "image",
        Some(_) => "segmentation",
        None => "image",
    };
    let name = found.data_set.last().map_or("data", String::as_str);
    let state = json!({"layers": [{"type": kind, "source": layer, "name": name}]});
    format!("{NEUROGLANCER}#!{}", encode(&state.to_string()))
}
