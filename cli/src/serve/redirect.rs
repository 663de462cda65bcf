//! A file that leads a browser to the page. The URL has the token, and all users see the arguments of a process.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, Result};
use crate::serve::token::Token;

/// A file that only this user can read. Removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Redirect(PathBuf);

impl Redirect {
    /// Writes a file in the directory for temporary files.
    ///
    /// Errors: `Io`.
    pub(crate) fn to(url: &str) -> Result<Redirect> {
        let path = std::env::temp_dir().join(format!("sharddb-{}.html", Token::random()?.as_str()));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let failed = |error| Failure::io("write", &path, error);
        let mut file = options.open(&path).map_err(failed)?;
        let redirect = Redirect(path.clone());
        file.write_all(html(url).as_bytes()).map_err(failed)?;
        Ok(redirect)
    }

    pub(crate) fn path(&self) -> &Path {
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
