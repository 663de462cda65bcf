//! The memory of the server does not depend on what files and requests state. `benches/serve_memory.rs` has the peaks under
//! load.

use std::fs;
use std::os::unix::fs::symlink;

use super::{Place, Server};

/// The memory of a server that has answered a request for a small file, with room for other machines.
const IDLE_KIB: u64 = 200 << 10;

/// A store `served/store` without shards, whose manifest is of 1 GiB and takes no space on the disk.
fn with_long_manifest() -> Place {
    let place = Place::new();
    place.write("served/store/gen-0000000001/info", "{}");
    symlink("gen-0000000001", place.path("served/store/current")).unwrap();
    let manifest = fs::File::create(place.path("served/store/gen-0000000001/manifest.json")).unwrap();
    manifest.set_len(1 << 30).unwrap();
    place
}

#[test]
fn a_long_manifest_is_not_read() {
    let place = with_long_manifest();
    let server = Server::start(&[&place.text("served"), "-q"]);
    for path in ["/raw/store/info", "/objects/store/info"] {
        assert_eq!(server.get(path).expect(200).body, b"{}");
    }
    let peak = server.peak_kib();
    assert!(peak < IDLE_KIB, "{peak} KiB");
    server.stop();
}

/// The tag of a generation would reveal the checksum of the file.
#[test]
fn a_manifest_outside_of_the_served_directory_is_not_read() {
    let place = Place::new();
    place.write("served/store/gen-0000000001/info", "{}");
    symlink("gen-0000000001", place.path("served/store/current")).unwrap();
    place.write("outside", "{\"crc32\": 255}");
    symlink("../../../outside", place.path("served/store/gen-0000000001/manifest.json")).unwrap();
    let server = Server::start(&[&place.text("served"), "-q"]);
    let info = server.get("/raw/store/info").expect(200);
    assert!(!info.header("etag").unwrap().contains("gen-"), "{info:?}");
    server.stop();
}
