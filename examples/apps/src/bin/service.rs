//! A web service that follows a store: `GET /42` returns the value of key 42.
//!
//! ```sh
//! cargo run --bin service -- STORE 127.0.0.1:8080
//! ```
//!
//! Each request reads one generation. A task refreshes the database once per second on a blocking thread; a refresh that fails
//! is logged, and the served generation stays.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use bytes::Bytes;
use sharddb::ShardDb;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(store), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: service STORE ADDRESS".into());
    };
    let db = ShardDb::open(store)?;
    tokio::spawn(follow(db.clone()));
    let listener = tokio::net::TcpListener::bind(address).await?;
    eprintln!("serving {:?} on {}", db.snapshot().generation(), listener.local_addr()?);
    axum::serve(listener, Router::new().route("/{key}", get(value)).with_state(db)).await?;
    Ok(())
}

/// Refreshes the database for as long as the program runs.
async fn follow(db: ShardDb) {
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let db = db.clone();
        match tokio::task::spawn_blocking(move || db.refresh()).await {
            Ok(Ok(None)) => {}
            Ok(Ok(Some(generation))) => eprintln!("serving {generation}"),
            Ok(Err(error)) => eprintln!("cannot follow the store: {error}"),
            Err(panic) => eprintln!("refresh panicked: {panic}"),
        }
    }
}

/// The value of a key, without a copy where it is in memory.
async fn value(Path(key): Path<u64>, State(db): State<ShardDb>) -> Result<Bytes, (StatusCode, String)> {
    // positioned reads wait for the disk
    let looked_up = tokio::task::spawn_blocking(move || db.get(key)).await;
    match looked_up {
        Ok(Ok(Some(value))) => Ok(Bytes::from(value)),
        Ok(Ok(None)) => Err((StatusCode::NOT_FOUND, format!("no key {key}\n"))),
        Ok(Err(error)) => Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))),
        Err(panic) => Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{panic}\n"))),
    }
}
