//! `/TOKEN/api/`: all databases of the tree.

use serde_json::{Value, json};

use crate::serve::app::App;
use crate::serve::catalog::{Found, Kind, type_of};
use crate::serve::problem::Problem;
use crate::serve::request_path::encode;

/// The Neuroglancer that the links open.
const NEUROGLANCER: &str = "https://neuroglancer-demo.appspot.com/";

/// Up to this number of databases, each is opened for its error. More would close those in use.
const MAX_OPENED: usize = 100;

pub(super) fn json(app: &App) -> Value {
    let list = app.list();
    let are_opened = list.len() <= MAX_OPENED.min(app.databases.max_open());
    let error = |found: &Found| if are_opened { app.databases.get(&found.names, None).err() } else { None };
    let databases: Vec<Value> = list.iter().map(|found| database(app, found, error(found))).collect();
    json!({"version": env!("CARGO_PKG_VERSION"), "databases": databases})
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
            type_of(&info(found)?)?;
            Some(format!("precomputed://{}", app.url(area, &found.data_set)))
        }
    }
}

/// The `info`. One that cannot be read is an error of opening the database, too.
fn info(found: &Found) -> Option<Value> {
    found.info().unwrap_or_else(|error| {
        tracing::warn!("a layer is not listed: cannot read the info of {}: {error}", found.names.join("/"));
        None
    })
}

/// The URL that opens a layer in Neuroglancer.
fn neuroglancer(layer: &str, found: &Found) -> String {
    let info = info(found).unwrap_or_default();
    let kind = match type_of(&info) {
        Some("annotations") => "annotation",
        Some("volume") if info.get("type") != Some(&"segmentation".into()) => "image",
        Some(_) => "segmentation",
        None => "image",
    };
    let name = found.data_set.last().map_or("data", String::as_str);
    let state = json!({"layers": [{"type": kind, "source": layer, "name": name}]});
    format!("{NEUROGLANCER}#!{}", encode(&state.to_string()))
}
