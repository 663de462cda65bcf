//! Errors as answers: a status and a JSON body.

use axum::http::StatusCode;
use serde_json::json;
use sharddb::ErrorKind;

/// Why a request has no better answer. The body is `{"error": {"kind": .., "message": ..}}`.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    kind: &'static str,
    message: String,
}

/// The result of answering a request.
pub(crate) type Result<T, E = Problem> = std::result::Result<T, E>;

impl Problem {
    fn new(status: StatusCode, kind: &'static str, message: impl Into<String>) -> Problem {
        Problem { status, kind, message: message.into() }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, ErrorKind::NotFound.as_str(), message)
    }

    /// What a missing page, file and token have in common, so that they cannot be distinguished.
    pub(crate) fn nothing_here() -> Problem {
        Problem::not_found("nothing is served at this path")
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, ErrorKind::InvalidInput.as_str(), message)
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_IMPLEMENTED, ErrorKind::Unsupported.as_str(), message)
    }

    pub(crate) fn method() -> Problem {
        Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            ErrorKind::InvalidInput.as_str(),
            "expected GET or HEAD, or POST for get-many",
        )
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, ErrorKind::TooLarge.as_str(), message)
    }

    pub(crate) fn large_body() -> Problem {
        Problem::too_large("expected a body of at most 8 MiB, found a larger one: divide the keys among requests")
    }

    pub(crate) fn timeout() -> Problem {
        Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            ErrorKind::Io.as_str(),
            "the body of the request did not arrive in time",
        )
    }

    pub(crate) fn gone(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::GONE, ErrorKind::GenerationGone.as_str(), message)
    }

    pub(crate) fn busy() -> Problem {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "the memory for large values is in use by other requests: repeat the request later",
        )
    }

    /// Nobody waits for the answer.
    pub(crate) fn cancelled() -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "the request was cancelled: repeat it")
    }

    pub(crate) fn replaced() -> Problem {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "busy",
            "the files were replaced while they were read: repeat the request",
        )
    }

    pub(crate) fn internal(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorKind::Internal.as_str(), message)
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorKind::Corrupt.as_str(), message)
    }

    /// An I/O error. The log has the path; the answer does not.
    pub(crate) fn io(what: &str, path: &std::path::Path, error: &std::io::Error) -> Problem {
        tracing::warn!("cannot {what} {}: {error}", path.display());
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, ErrorKind::Io.as_str(), format!("cannot {what}: {error}"))
    }

    pub(crate) fn body(&self) -> String {
        self.json().to_string()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        json!({"error": {"kind": self.kind, "message": self.message}})
    }
}

impl From<sharddb::Error> for Problem {
    /// The log has the whole error. The answer has the name of its file without the directory.
    fn from(error: sharddb::Error) -> Problem {
        let status = match error.kind() {
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::InvalidInput => StatusCode::BAD_REQUEST,
            ErrorKind::GenerationGone => StatusCode::GONE,
            ErrorKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::warn!("{error}");
        }
        let mut message = error.message().to_string();
        let location = error.location();
        let file = error.path().and_then(|path| path.file_name()).map(|name| name.display().to_string());
        let parts = [
            file.map(|name| format!("file {name}")),
            location.minishard.map(|minishard| format!("minishard {}", minishard.get())),
            error.key().map(|key| format!("key {key}")),
            location.offset.map(|offset| format!("byte {offset}")),
        ];
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if !parts.is_empty() {
            message.push_str(&format!(" ({})", parts.join(", ")));
        }
        Problem::new(status, error.kind().as_str(), message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_the_file_and_not_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("info"), "{").unwrap();
        let error = sharddb::ShardDb::open(directory.path()).unwrap_err();
        let problem = Problem::from(error);
        assert!(problem.body().contains("(file info"), "{}", problem.body());
        assert!(!problem.body().contains(directory.path().to_str().unwrap()), "{}", problem.body());
        assert_eq!(problem.json()["error"]["kind"], "invalid-spec");
    }
}
