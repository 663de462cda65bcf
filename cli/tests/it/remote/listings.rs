//! Whatever a server lists, a command ends, in bounded memory, and names the reason.

use super::bucket_server::{BucketServer, Listings, Logged};
use super::buckets::{URL, s3};
use super::store;
use crate::common::{self, Place, Run, Start};

/// The commands that list objects, after a push that was interrupted before its end.
fn runs(server: &BucketServer, place: &Place) -> Vec<Run> {
    let local = place.text("store");
    let calls: [&[&str]; 8] = [
        &["generations", URL],
        &["verify", URL],
        &["gc", URL, "--older-than", "0s"],
        &["gc", URL, "--older-than", "0s", "--dry-run"],
        &["push", &local, URL],
        &["rollback", URL],
        &["clean-parts", URL, "--older-than", "0s"],
        &["clean-parts", URL, "night"],
    ];
    calls.iter().map(|call| s3(server, place, call).run()).collect()
}

/// A server with two generations and an unfinished one, which the next push continues.
fn scene() -> (Place, BucketServer) {
    let (place, server) = (Place::new(), BucketServer::start());
    store(&place);
    let push = ["push", &place.text("store"), URL];
    s3(&server, &place, &push).run().expect(0);
    common::sharddb(["delete", &place.text("store"), "147"]).expect(0);
    s3(&server, &place, &push).run().expect(0);
    common::sharddb(["delete", &place.text("store"), "3"]).expect(0);
    server.refuse(Some("cells/current"));
    s3(&server, &place, &push).run().expect(4);
    server.refuse(None);
    (place, server)
}

#[test]
fn an_endless_page_is_not_held_in_memory() {
    let (place, server) = scene();
    server.list(Listings::Endless);
    let runs = runs(&server, &place);
    let number = u64::try_from(runs.len()).unwrap();
    for run in runs {
        run.expect_error(4, &["expected an answer of at most 64 MiB", "check the endpoint", URL]);
    }
    let sent = server.sent();
    assert!(sent < number * (96 << 20), "{sent} bytes for {number} commands");
}

#[test]
fn a_page_that_comes_again_ends_the_listing() {
    let (place, server) = scene();
    server.list(Listings::Repeated);
    server.take_log();
    let runs = runs(&server, &place);
    let number = runs.len();
    for run in runs {
        run.expect_error(4, &["expected another continuation token on page 2", "check the endpoint", URL]);
    }
    let is_listing = |logged: &&Logged| logged.method == "GET" && logged.path == "data";
    let listings = server.take_log().iter().filter(is_listing).count();
    assert_eq!(listings, 2 * number);
}
