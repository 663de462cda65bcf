//! A file that leads a browser to the page. The URL has the token, and all users see the arguments of a process.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use sharddb::{Error, Result};

use crate::token::Token;

/// A file that leads a browser to the page, and that only this user can read. Removed when this is dropped.
///
/// ```
/// let file = sharddb_serve::Redirect::to("http://127.0.0.1:8080/secret/")?;
/// assert!(std::fs::read_to_string(file.path()).unwrap().contains("url=http://127.0.0.1:8080/secret/"));
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Debug)]
pub struct Redirect(PathBuf);

impl Redirect {
    /// Writes a file in the directory for temporary files.
    ///
    /// # Errors
    ///
    /// `Io`.
    pub fn to(url: &str) -> Result<Redirect> {
        let path = std::env::temp_dir().join(format!("sharddb-{}.html", Token::random()?.as_str()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let failed = |error| Error::io("write", &path, error);
        let mut file = options.open(&path).map_err(failed)?;
        let redirect = Redirect(path.clone());
        file.write_all(html(url).as_bytes()).map_err(failed)?;
        Ok(redirect)
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Redirect {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // without it the token, which is no longer valid, stays in a private file
    }
}

/// A URL has no quotes and no angle brackets.
fn html(url: &str) -> String {
    let url = url.replace('&', "&amp;");
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"refresh\" content=\"0; url={url}\">\n\
         <title>ShardDb</title>\n<a href=\"{url}\">ShardDb</a>\n"
    )
}
