//! URLs where a subcommand takes paths alone: refused before anything is read or written, with what to do instead.

use std::collections::BTreeSet;

use crate::common::{self, Place, Start};

/// Subcommands that take a URL, or no path of a store.
const OTHERS: [&str; 25] = [
    "build",
    "get",
    "get-many",
    "contains",
    "locate",
    "keys",
    "export",
    "info",
    "verify",
    "push",
    "pull",
    "spill",
    "build-part",
    "publish-parts",
    "clean-parts",
    "rollback",
    "generations",
    "gc",
    "plan",
    "completions",
    "man",
    "help",
    // checked below by their own arguments
    "convert",
    "zarr",
    "serve",
];

#[test]
fn a_url_in_place_of_a_path_is_refused() {
    let place = Place::new();
    super::store(&place);
    let store = place.text("store");
    let url = "s3://bucket/cells";
    let out = place.text("out");
    let input = place.write("one.ndjson", "{\"key\": 1, \"text\": \"one\"}\n");
    let calls: &[&[&str]] = &[
        &["salvage", url, &out],
        &["salvage", &store, url],
        &["bench", url, "--input", &input],
        &["bench", url],
        &["diff", url, &store],
        &["diff", &store, url],
        &["copy", url, &out],
        &["copy", &store, url],
        &["reshard", url, &out],
        &["reshard", &store, url],
        &["import", url, &out],
        &["import", &store, url],
        &["merge", &out, url],
        &["merge", url, &store],
        &["put", url, "1", "one"],
        &["delete", url, "1"],
        &["update", url, "--input", &input],
        &["apply", url, &input],
        &["discard", url, "gen-0000000001"],
        &["publish", url, "--from", &store],
        &["publish", &store, "--from", url],
        &["convert", "zarr-precomputed", url, &out, "--axes", "x,y,z"],
        &["convert", "bcolz-zarr", url, &out],
        &["convert", "bcolz-zarr", &store, url],
        &["zarr", "pack", url, &out],
        &["zarr", "unpack", &store, url],
        #[cfg(feature = "serve")]
        &["serve", url],
    ];
    for call in calls {
        let advice = ["the URL s3://bucket/cells", "sharddb pull s3://bucket/cells STORE"];
        common::command(*call).current_dir(place.path("")).run().expect_error(2, &advice);
        assert!(!place.path("out").exists() && !place.path("s3:").exists(), "{call:?}");
    }
    let listed = common::sharddb(["--help"]).expect(0);
    let listed = listed.text().lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("  "));
    let listed = listed.filter_map(|line| line.split(' ').next().filter(|name| !name.is_empty()));
    let known: BTreeSet<&str> = OTHERS.into_iter().chain(calls.iter().map(|call| call[0])).collect();
    assert_eq!(
        listed.filter(|name| !known.contains(name)).collect::<Vec<_>>(),
        [""; 0],
        "neither refuse nor take URLs"
    );
}
