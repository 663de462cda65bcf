//! The URL of a data set.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::{OsStringValueParser, TypedValueParser};

use crate::failure::{Failure, Result};
use crate::url_text::{decoded, shown};

/// What a URL of Neuroglancer ends with to name the format.
const FORMAT: &str = "|neuroglancer-precomputed:";

/// The URL of a data set in an object store or on a web server.
///
/// Shown without a user and a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteUrl {
    scheme: Scheme,
    credentials: Option<String>,
    authority: String,
    path: String,
}

/// How the objects of a data set are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    S3,
    Gs,
    Az,
    Http,
    Https,
}

const SCHEMES: [(&str, Scheme); 5] =
    [("s3", Scheme::S3), ("gs", Scheme::Gs), ("az", Scheme::Az), ("http", Scheme::Http), ("https", Scheme::Https)];

#[cfg_attr(not(feature = "remote"), allow(dead_code, reason = "the clients use it"))]
impl RemoteUrl {
    pub(crate) fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The bucket or container, or the host of a web server with its port.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The names below the bucket or the host, without slashes at the ends.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// `user:password`, without percent encoding; for web servers alone.
    pub(crate) fn credentials(&self) -> Option<&str> {
        self.credentials.as_deref()
    }
}

impl FromStr for RemoteUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<RemoteUrl, String> {
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong(text, "none"))?;
        let scheme = scheme.to_ascii_lowercase();
        let scheme = SCHEMES.iter().find(|(name, _)| *name == scheme).map(|(_, scheme)| *scheme);
        let scheme = scheme.ok_or_else(|| wrong(text, "another scheme"))?;
        if let Some(character) = rest.chars().find(|c| matches!(c, '?' | '#' | '|') || c.is_control()) {
            return Err(wrong(text, &format!("the character {character:?}")));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, authority) = match (scheme, authority.rsplit_once('@')) {
            (Scheme::Az, _) | (_, None) => (None, authority), // az://container@account
            (_, Some((credentials, host))) => {
                (Some(decoded(credentials).unwrap_or_else(|| credentials.to_string())), host)
            }
        };
        if authority.is_empty() {
            return Err(wrong(text, "no bucket or host"));
        }
        let (authority, path) = (authority.to_string(), path.trim_matches('/').to_string());
        Ok(RemoteUrl { scheme, credentials, authority, path })
    }
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SCHEMES.iter().find(|(_, scheme)| *scheme == self.scheme).map_or("", |(name, _)| name);
        let separator = if self.path.is_empty() { "" } else { "/" };
        write!(f, "{name}://{}{separator}{}", self.authority, self.path)
    }
}

fn wrong(text: &str, found: &str) -> String {
    let shown = shown(text);
    format!(
        "expected a URL such as s3://bucket/path, gs://bucket/path, az://container/path or https://host/path, found \
         {found} in {shown}"
    )
}

/// The parser of an argument that is a path or a URL. A URL stays as it is, without the suffix of Neuroglancer; `file://`
/// becomes a path.
pub(crate) fn path_or_url() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(parse)
}

fn parse(argument: OsString) -> Result<PathBuf, String> {
    let Some(text) = argument.to_str() else { return Ok(argument.into()) };
    let text = text.strip_suffix(FORMAT).unwrap_or(text);
    match text.split_once("://") {
        Some(("file", path)) => path_of_file_url(text, path),
        Some((scheme, _)) if is_scheme(scheme) => text.parse::<RemoteUrl>().map(|_| text.into()),
        _ => Ok(text.into()),
    }
}

/// The path of a `file://` URL, with %20 and the like decoded.
fn path_of_file_url(text: &str, path: &str) -> Result<PathBuf, String> {
    let path = path.strip_prefix("localhost").filter(|path| path.starts_with('/')).unwrap_or(path);
    match path.starts_with('/').then(|| decoded(path)).flatten() {
        Some(path) => Ok(path.into()),
        None => {
            Err(format!("expected an absolute path after file://, as in file:///data/store, found {}", shown(text)))
        }
    }
}

fn is_scheme(text: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(is_letter)
}

/// The URL that an argument is; `None` for a path.
///
/// Errors: `Usage` for a URL of another kind.
pub(crate) fn url_of(argument: &Path) -> Result<Option<RemoteUrl>> {
    match argument.to_str().and_then(|text| text.split_once("://").map(|(scheme, _)| (scheme, text))) {
        Some((scheme, text)) if is_scheme(scheme) => text.parse().map(Some).map_err(Failure::usage),
        _ => Ok(None),
    }
}

/// The parser of an argument that is a local path: it refuses a URL, of which the path would be a directory `s3:`.
pub(crate) fn local_path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().try_map(|argument| {
        let path = parse(argument)?;
        refuse_url(&path).map(|()| path).map_err(|error| error.to_string())
    })
}

/// Refuses a URL where a subcommand takes a path.
///
/// Errors: `Usage` for a URL.
pub(crate) fn refuse_url(argument: &Path) -> Result<()> {
    match url_of(argument)? {
        None => Ok(()),
        Some(url) => Err(Failure::usage(format!(
            "expected a local path, found the URL {url}, which this subcommand neither reads nor writes: sharddb pull {url} \
             STORE copies the store to a local disk, and sharddb push STORE {url} copies one there"
        ))),
    }
}

/// Refuses a URL in a build without the clients.
///
/// Errors: `Usage` for a URL.
#[cfg(not(feature = "remote"))]
pub(crate) fn lacks_feature(argument: &Path) -> Result<()> {
    match url_of(argument)? {
        None => Ok(()),
        Some(url) => Err(Failure::usage(format!(
            "this build of sharddb does not read {url}: it lacks the feature remote, which cargo install sharddb-cli \
             --features remote adds"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_scheme_a_bucket_and_names() {
        let cases = [
            ("s3://bucket/a/b", Scheme::S3, "bucket", "a/b", "s3://bucket/a/b"),
            ("S3://bucket/a/", Scheme::S3, "bucket", "a", "s3://bucket/a"),
            ("gs://bucket", Scheme::Gs, "bucket", "", "gs://bucket"),
            ("az://container@account/x", Scheme::Az, "container@account", "x", "az://container@account/x"),
            ("http://127.0.0.1:8000//x/", Scheme::Http, "127.0.0.1:8000", "x", "http://127.0.0.1:8000/x"),
            ("https://[::1]:1/a%20b", Scheme::Https, "[::1]:1", "a%20b", "https://[::1]:1/a%20b"),
        ];
        for (text, scheme, authority, path, shown) in cases {
            let url: RemoteUrl = text.parse().unwrap();
            assert_eq!((url.scheme(), url.authority(), url.path()), (scheme, authority, path), "{text}");
            assert_eq!((url.to_string().as_str(), url.credentials()), (shown, None));
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let url: RemoteUrl = "https://user:p@ss@host/x".parse().unwrap();
        assert_eq!((url.credentials(), url.to_string().as_str()), (Some("user:p@ss"), "https://host/x"));
        let url: RemoteUrl = "https://us%40er:p%2Fss%3a@host/x".parse().unwrap();
        assert_eq!(url.credentials(), Some("us@er:p/ss:"));
        let url: RemoteUrl = "https://user:100%@host/x".parse().unwrap();
        assert_eq!(url.credentials(), Some("user:100%"), "as it is, if that is no percent encoding");
        let error = "https://user:pass@host/x?y".parse::<RemoteUrl>().unwrap_err();
        assert!(!error.contains("pass") && error.contains("https://host/x?.."), "{error}");
    }

    #[test]
    fn other_urls_are_refused() {
        for (text, found) in [
            ("ftp://host/x", "another scheme"),
            ("s3:///x", "no bucket"),
            ("https://host/x?token=1", "'?'"),
            ("s3://bucket/x|zarr3:", "'|'"),
        ] {
            let error = parse(text.into()).unwrap_err();
            assert!(error.contains(found), "{error}");
        }
    }

    #[test]
    fn arguments_are_paths_unless_they_have_a_scheme() {
        let cases = [
            ("numbers", "numbers"),
            ("a/b:c//d", "a/b:c//d"),
            ("./s3://bucket", "./s3://bucket"),
            ("numbers|neuroglancer-precomputed:", "numbers"),
            ("file:///data/a%20b", "/data/a b"),
            ("file://localhost/data/|neuroglancer-precomputed:", "/data/"),
            ("s3://bucket/x|neuroglancer-precomputed:", "s3://bucket/x"),
        ];
        for (argument, path) in cases {
            assert_eq!(parse(argument.into()), Ok(path.into()), "{argument}");
        }
        for argument in ["file://host/data", "file://data", "file:///%zz", "file:///%ff"] {
            assert!(parse(argument.into()).unwrap_err().contains("an absolute path"), "{argument}");
        }
        assert!(url_of(Path::new("numbers")).unwrap().is_none());
        assert!(url_of(Path::new("gs://b/x")).unwrap().is_some());
        assert!(refuse_url(Path::new("gs://b/x")).unwrap_err().to_string().contains("sharddb pull gs://b/x STORE"));
    }
}
