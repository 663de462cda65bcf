//! The page and the files that it loads: all embedded, none from another host.

use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;

use crate::answer::{Answer, Representation, Source};
use crate::budget::Share;
use crate::entity_tag::EntityTag;
use crate::problem::{Problem, Result};

/// The name, the content type and the bytes of each file.
const FILES: &[(&str, &str, &[u8])] = &[
    ("index.html", "text/html; charset=utf-8", include_bytes!("page/index.html")),
    ("style.css", "text/css; charset=utf-8", include_bytes!("page/style.css")),
    ("app.js", SCRIPT, include_bytes!("page/app.js")),
    ("arrays.js", SCRIPT, include_bytes!("page/arrays.js")),
    ("charts.js", SCRIPT, include_bytes!("page/charts.js")),
    ("dom.js", SCRIPT, include_bytes!("page/dom.js")),
    ("path.js", SCRIPT, include_bytes!("page/path.js")),
    ("slices.js", SCRIPT, include_bytes!("page/slices.js")),
    ("solid.js", SCRIPT, include_bytes!("page/solid.js")),
    ("values.js", SCRIPT, include_bytes!("page/values.js")),
];

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The page loads nothing from elsewhere and cannot be framed.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Answers with the page, or with a file that it loads.
///
/// Errors: `not-found`.
pub(crate) fn answer(name: &str, headers: &HeaderMap) -> Result<Answer> {
    let file = FILES.iter().find(|(known, ..)| *known == name);
    let (_, content_type, bytes) = file.ok_or_else(Problem::nothing_here)?;
    let tag = EntityTag::new(format!("{}-{:08x}", env!("CARGO_PKG_VERSION"), fingerprint(bytes)));
    let source = Source::Memory(Bytes::from_static(bytes), Share::default());
    let mut answer = Answer::of(Representation { tag, content_type, source }, headers);
    if answer.status != StatusCode::NOT_MODIFIED {
        answer.set(CONTENT_SECURITY_POLICY, POLICY);
    }
    Ok(answer)
}

/// FNV-1a: distinguishes the files of two builds of one version.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_together_are_small() {
        let bytes: usize = FILES.iter().map(|(_, _, bytes)| bytes.len()).sum();
        assert!(bytes < 100_000, "{bytes}");
    }
}
