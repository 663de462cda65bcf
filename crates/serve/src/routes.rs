//! From a request to its answer: token, area, method; the access log.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, BodyDataStream, HttpBody};
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG, LOCATION, RANGE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{Any, CorsLayer};
use tower_http::set_header::SetResponseHeaderLayer;
use tracing::field::display;

use crate::answer::{Answer, AnswerBody, Pieces};
use crate::app::App;
use crate::budget::{Budget, Share};
use crate::counters::Counters;
use crate::disk_calls::Cost;
use crate::problem::{Problem, Result};
use crate::request::{Query, Request};
use crate::request_path::{self, Platform};
use crate::token::Token;
use crate::{api, objects, page, raw};

/// The largest body of a request: the keys of get-many.
const MAX_BODY_BYTES: u64 = 8 << 20;

/// Upper bound on the bytes that are read of a body after it is refused. After them the connection is closed.
const MAX_DISCARDED_BYTES: usize = 64 << 20;

/// The time that a body of a request may take.
const BODY_TIME: Duration = Duration::from_secs(30);

/// The address of the client of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) SocketAddr);

/// Returns the service of all requests.
pub(crate) fn router(app: Arc<App>) -> Router {
    let cors = CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::GET, Method::HEAD, Method::POST, Method::OPTIONS])
        .allow_headers(Any)
        .expose_headers([ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, ETAG])
        .allow_private_network(true)
        .max_age(Duration::from_secs(86_400));
    let header = |name, value| SetResponseHeaderLayer::overriding(name, HeaderValue::from_static(value));
    Router::new().fallback(handle).with_state(app).layer((
        // the token is in the URL, which must not reach other hosts
        header(REFERRER_POLICY, "no-referrer"),
        header(X_CONTENT_TYPE_OPTIONS, "nosniff"),
        cors,
        CatchPanicLayer::new(),
    ))
}

/// Answers one request and logs it. The log has no token.
async fn handle(State(app): State<Arc<App>>, request: axum::http::Request<Body>) -> Response<Body> {
    let begun = Instant::now();
    let peer = request.extensions().get::<Peer>().map(|peer| display(peer.0));
    let (method, path) = (request.method().clone(), logged_path(app.token.as_ref(), request.uri().path()).to_string());
    let is_head = method == Method::HEAD;
    let (answer, counters) = match route(&app, request).await {
        Ok((answer, names)) => (answer, names),
        Err(problem) => (problem.into(), None),
    };
    let (status, bytes, latency) = (answer.status, if is_head { Some(0) } else { answer.len() }, begun.elapsed());
    if let Some(counters) = counters {
        let is_absent = status == StatusCode::NOT_FOUND;
        counters.add((status.is_client_error() && !is_absent) || status.is_server_error(), bytes.unwrap_or(0), latency);
    }
    let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
    tracing::info!(target: "access", peer, %method, path, status = status.as_u16(), bytes, micros);
    respond(answer, is_head)
}

/// The path after the token; empty for any other path, because the token may be somewhere else in it.
fn logged_path<'a>(token: Option<&Token>, path: &'a str) -> &'a str {
    let Some(token) = token else { return path };
    let rest = path.strip_prefix('/').and_then(|path| path.strip_prefix(token.as_str()));
    rest.filter(|rest| rest.starts_with('/') && !rest.contains(token.as_str())).unwrap_or_default()
}

/// Finds the area of a request and answers it. Also returns the counters of the database that it is about.
async fn route(app: &Arc<App>, request: axum::http::Request<Body>) -> Result<(Answer, Option<Arc<Counters>>)> {
    let (parts, body) = request.into_parts();
    let mut names = names_after_token(app, parts.uri.path())?;
    let area = if names.is_empty() { String::new() } else { names.remove(0) };
    let is_post = parts.method == Method::POST;
    let is_known = matches!(parts.method, Method::GET | Method::HEAD | Method::POST);
    if !is_known || is_post && !(area == "api" && api::takes_body(&names)) {
        return Err(Problem::method());
    }
    match (area.as_str(), names.as_slice()) {
        // the page refers to other files by relative paths
        ("", _) if !parts.uri.path().ends_with('/') => return Ok((redirect(parts.uri.path()), None)),
        ("", _) => return page::answer("index.html", &parts.headers).map(|answer| (answer, None)),
        ("page", [name]) => return page::answer(name, &parts.headers).map(|answer| (answer, None)),
        ("raw" | "objects" | "api", _) => {}
        _ => return Err(Problem::nothing_here()),
    }
    let query = Query::parse(parts.uri.query().unwrap_or_default())?;
    let (body, share) = if is_post { read_body(body, &app.budget).await? } else { (Bytes::new(), Share::default()) };
    let headers = if parts.method == Method::HEAD { without_range(parts.headers) } else { parts.headers };
    let gone = Gone::default();
    let is_directory = names.is_empty() || parts.uri.path().ends_with('/');
    let is_gone = Arc::clone(&gone.0);
    let request = Request { is_post, names, is_directory, query, headers, body, is_gone, _share: share };
    let cost = match area.as_str() {
        "api" => api::cost(&request.names, &request.query),
        "raw" if is_directory => Cost::Long,
        _ => Cost::Lookup,
    };
    let call = {
        let app = Arc::clone(app);
        move || {
            let answer = dispatch(&app, &area, &request).unwrap_or_else(Answer::from);
            let counters = counted(&app, &area, &request);
            Ok((answer, counters))
        }
    };
    app.disk_calls.call(cost, call).await
}

/// Sets its flag when it is dropped: when the request is answered, or its client has closed the connection.
#[derive(Default)]
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The names of a path after the token.
///
/// Errors: `not-found` for a path that no file has, and without the token.
fn names_after_token(app: &App, path: &str) -> Result<Vec<String>> {
    let mut names = request_path::parse(path, Platform::HERE).ok_or_else(Problem::nothing_here)?;
    if let Some(token) = &app.token {
        if !names.first().is_some_and(|name| token.is(name)) {
            return Err(Problem::nothing_here());
        }
        names.remove(0);
    }
    Ok(names)
}

/// A range applies to GET only (RFC 9110, section 14.2).
fn without_range(mut headers: HeaderMap) -> HeaderMap {
    headers.remove(RANGE);
    headers
}

/// A redirection to the path with a slash at its end.
fn redirect(path: &str) -> Answer {
    let mut answer = Answer::of_bytes(StatusCode::PERMANENT_REDIRECT, "text/plain", Bytes::new());
    let last = path.rsplit('/').next().unwrap_or_default();
    answer.set(LOCATION, &format!("{last}/")); // relative, which is right after a proxy too
    answer
}

/// Answers from files: each call may wait for a disk.
fn dispatch(app: &App, area: &str, request: &Request) -> Result<Answer> {
    match area {
        "raw" if request.is_directory => raw::list(app, &request.names, &request.headers),
        "raw" => raw::answer(&app.databases, &request.names, &request.headers),
        "objects" => objects::answer(app, request),
        _ => api::answer(app, request),
    }
}

/// The counters of the database that a request is about.
fn counted(app: &App, area: &str, request: &Request) -> Option<Arc<Counters>> {
    match area {
        "api" => app.databases.counters_of(api::database_of(&request.names)?),
        _ => app.databases.counters_around(request.names.split_last()?.1),
    }
}

/// Reads the body of a POST request.
///
/// Errors: 413, before the body arrives if its stated length is the reason; 503 if other requests have the memory; 400
/// and 408.
async fn read_body(body: Body, budget: &Budget) -> Result<(Bytes, Share)> {
    let (stated, most) = (body.size_hint().lower(), body.size_hint().upper().unwrap_or(MAX_BODY_BYTES));
    let mut pieces = body.into_data_stream();
    let read = if stated > MAX_BODY_BYTES {
        Err(Problem::large_body())
    } else {
        let read = tokio::time::timeout(BODY_TIME, collect(&mut pieces, most, budget)).await;
        read.unwrap_or_else(|_| Err(Problem::timeout()))
    };
    if read.is_err() {
        tokio::spawn(discard(pieces));
    }
    read
}

/// Reserves the memory as the bytes arrive, of which there are at most `most`: a client has at most twice of it what it has
/// sent.
///
/// Errors: 413 after [`MAX_BODY_BYTES`]; 503; 400 if the body is not complete.
async fn collect(pieces: &mut BodyDataStream, most: u64, budget: &Budget) -> Result<(Bytes, Share)> {
    let (mut bytes, mut share) = (Vec::new(), Share::default());
    while let Some(piece) = pieces.next().await {
        let failed = |error| Problem::invalid(format!("the body of the request is not complete: {error}"));
        let piece = piece.map_err(failed)?;
        let len = bytes.len() as u64 + piece.len() as u64;
        if len > MAX_BODY_BYTES {
            return Err(Problem::large_body());
        }
        let capacity = bytes.capacity() as u64;
        if len > capacity {
            let room = capacity.saturating_mul(2).min(most).max(len);
            budget.grow(&mut share, room)?;
            bytes.reserve_exact(usize::try_from(room).unwrap_or(usize::MAX).saturating_sub(bytes.len()));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok((bytes.into(), share))
}

/// Reads a body that is already refused. If the connection were closed with unread bytes, the client could lose the answer.
async fn discard(mut pieces: BodyDataStream) {
    let mut rest = MAX_DISCARDED_BYTES;
    let read = async {
        while rest > 0
            && let Some(Ok(piece)) = pieces.next().await
        {
            rest = rest.saturating_sub(piece.len());
        }
    };
    let _ = tokio::time::timeout(BODY_TIME, read).await;
}

/// Converts an answer into a response, whose pieces are made as the client takes them.
fn respond(answer: Answer, is_head: bool) -> Response<Body> {
    let body = match answer.body {
        _ if is_head => Body::empty(),
        AnswerBody::Bytes(bytes) => Body::from(bytes),
        AnswerBody::Pieces(pieces) => Body::from_stream(stream::try_unfold(pieces, next_piece)),
    };
    let mut response = Response::new(body);
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response
}

type Piece = Option<(Bytes, Box<dyn Pieces>)>;

/// Makes one piece on a thread for blocking calls. Between two pieces a client occupies no thread.
async fn next_piece(mut pieces: Box<dyn Pieces>) -> std::io::Result<Piece> {
    let made = tokio::task::spawn_blocking(move || {
        let piece = pieces.next().inspect_err(|error| tracing::warn!("a body ends early: {error}"));
        piece.map(|piece| piece.map(|piece| (piece, pieces)))
    });
    made.await.map_err(std::io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The buffer grows from 600 to 1,200 KiB for 900, which is beyond the budget.
    #[tokio::test]
    async fn memory_for_a_body_is_reserved_before_its_buffer_grows() {
        let piece = Bytes::from(vec![b'1'; 300 << 10]);
        let collected = |pieces: usize| {
            let body = Body::from_stream(stream::iter(vec![piece.clone(); pieces]).map(Ok::<_, std::io::Error>));
            async move { collect(&mut body.into_data_stream(), MAX_BODY_BYTES, &Budget::with_kib(1000)).await }
        };
        assert_eq!(collected(2).await.unwrap().0.len(), 600 << 10);
        assert_eq!(collected(3).await.unwrap_err().status, StatusCode::SERVICE_UNAVAILABLE);
    }

    #[test]
    fn the_log_never_has_the_token() {
        let token = Token::random().unwrap();
        let text = token.as_str();
        let logged = |path: &str| logged_path(Some(&token), path).to_string();
        assert_eq!(logged(&format!("/{text}/raw/a")), "/raw/a");
        for path in
            ["/TOKEN", "//TOKEN/raw/a", "/data/TOKEN/raw/a", "/TOKEN/TOKEN/raw/a", "/TOKENx/raw/a", "TOKEN/raw/a"]
        {
            assert_eq!(logged(&path.replace("TOKEN", text)), "", "{path}");
        }
        assert_eq!(logged_path(None, "/raw/a"), "/raw/a");
    }
}
