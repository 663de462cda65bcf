//! The accept loop: a bounded number of connections, their timeouts, and the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower_service::Service;

use crate::routes::Peer;
use crate::timed_stream::TimedStream;

/// The buffer of a connection: heads of requests up to this length are read, and this is copied before it is written. A
/// head of twice the length is refused.
const BUFFER_BYTES: usize = 64 << 10;

/// The pause after a connection could not be accepted, because the process has no descriptors left, for example.
const PAUSE: Duration = Duration::from_millis(50);

/// How often the flag that ends the server is read.
const POLL: Duration = Duration::from_millis(50);

/// Upper bounds on what clients may take.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Bounds {
    /// Connections at a time. Further ones wait in the queue of the operating system. Default: 256.
    pub connections: usize,
    /// Databases that are open at a time. Default: 128.
    pub databases: usize,
    /// The time without progress after which a connection is closed. Default: 30 s.
    pub idle: Duration,
    /// The time that running answers have once the server ends. Default: 10 s.
    pub grace: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        let (idle, grace) = (Duration::from_secs(30), Duration::from_secs(10));
        Bounds { connections: 256, databases: 128, idle, grace }
    }
}

/// Serves connections until `cancel` is set, then lets running answers end.
pub(crate) async fn serve(listener: TcpListener, router: Router, bounds: Bounds, cancel: &AtomicBool) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(bounds.connections));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = is_set(cancel) => break,
        };
        let Some((stream, peer, place)) = accepted else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        connect(stream, peer, place, &router, &graceful, bounds.idle);
    }
    drop(listener); // further connections are refused
    let _ = tokio::time::timeout(bounds.grace, graceful.shutdown()).await;
}

/// Waits for a place, then for a connection; `None` if it could not be accepted.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, place)),
        Err(error) => {
            tracing::warn!("cannot accept a connection: {error}");
            None
        }
    }
}

/// Serves a connection on a task of its own.
fn connect(
    stream: TcpStream,
    peer: SocketAddr,
    place: OwnedSemaphorePermit,
    router: &Router,
    graceful: &GracefulShutdown,
    idle: Duration,
) {
    let _ = stream.set_nodelay(true); // without it, answers are only later
    let router = router.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Peer(peer));
        router.clone().call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(idle) // of the whole head, and between two requests
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(TimedStream::new(stream, idle)), service);
    let connection = graceful.watch(connection);
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!("the connection of {peer} ended: {error}");
        }
        drop(place);
    });
}

/// Returns once the flag is set.
async fn is_set(cancel: &AtomicBool) {
    while !cancel.load(Ordering::Relaxed) {
        tokio::time::sleep(POLL).await;
    }
}
