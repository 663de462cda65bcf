//! Single objects: the same bytes as lookups in the shards.

use std::fs;
use std::path::Path;

use serde_json::json;
use sharddb::ShardDb;
use sharddb_container::bcolz::BcolzArray;
use sharddb_container::zarr::ZarrArray;
use sharddb_container::{Container, Form, KeySpace};

use super::{Client, Place, Server, build, neuroglancer, value};
use crate::common::{data, sharddb};

/// All pairs of a data set below the one that Neuroglancer draws.
fn pairs(path: &str, pointer: &str) -> Vec<(u64, Vec<u8>)> {
    let db = sharddb::OpenOptions::new().sharding_at(pointer).open(format!("{}/{path}", neuroglancer())).unwrap();
    db.snapshot().iter().map(|entry| entry.map(|it| (it.key(), it.value().unwrap().to_vec())).unwrap()).collect()
}

#[track_caller]
fn same(client: &mut Client, path: &str, expected: &[u8]) {
    assert!(client.get(path).expect(200).body == expected, "{path}");
}

#[test]
fn an_info_has_no_sharding() {
    let server = Server::start(&[&neuroglancer(), "-q"]);
    let mut client = server.connect();
    for path in ["image", "seg", "seg/skeletons", "seg/mesh", "ann", "seg/properties"] {
        let text = fs::read_to_string(format!("{}/{path}/info", neuroglancer())).unwrap();
        let served = client.get(&format!("/objects/{path}/info")).expect(200);
        assert!(!String::from_utf8_lossy(&served.body).contains("sharding"), "{path}");
        let mut original: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(served.json()["@type"], original["@type"]);
        if path == "seg/properties" {
            assert_eq!(served.json(), original);
        }
        if path == "image" {
            original["scales"][0].as_object_mut().unwrap().remove("sharding");
            assert_eq!(served.json(), original);
        }
    }
    client.get("/objects/ng_expect.json").expect(200);
    for path in ["/objects/image/s0/0.shard", "/objects/seg/skeletons/0.shard", "/objects/other/info", "/objects/"] {
        client.get(path).expect_error(404, "not-found");
    }
    server.stop();
}

#[test]
fn skeletons_and_annotations_are_found_by_id() {
    let server = Server::start(&[&neuroglancer(), "-q"]);
    let mut client = server.connect();
    for (path, data_set, pointer) in
        [("seg/skeletons", "seg/skeletons", ""), ("ann/by_id", "ann", "/by_id"), ("ann/rel", "ann", "/relationships/0")]
    {
        let pairs = pairs(data_set, pointer);
        assert!(!pairs.is_empty());
        for (key, expected) in pairs.iter().take(200) {
            same(&mut client, &format!("/objects/{path}/{key}"), expected);
        }
        for name in ["1", "00", "x", "-1", "1.index", "18446744073709551616"] {
            client.get(&format!("/objects/{path}/{name}")).expect_error(404, "not-found");
        }
    }
    server.stop();
}

#[test]
fn chunks_are_found_by_their_voxels_and_cells() {
    let server = Server::start(&[&neuroglancer(), "-q"]);
    let mut client = server.connect();
    let position = |grid: &[u64], key| sharddb::volume::morton::decode(grid, key).unwrap();
    for volume in ["image", "seg"] {
        let pairs = pairs(volume, "/scales/0");
        assert_eq!(pairs.len(), 64);
        for (key, expected) in pairs {
            let axes: Vec<String> =
                position(&[4, 4, 4], key).iter().map(|at| format!("{}-{}", at * 32, at * 32 + 32)).collect();
            same(&mut client, &format!("/objects/{volume}/s0/{}", axes.join("_")), &expected);
        }
        for name in ["0-32_0-32_128-160", "0-31_0-32_0-32", "1-33_0-32_0-32", "0", "0-32_0-32"] {
            client.get(&format!("/objects/{volume}/s0/{name}")).expect_error(404, "not-found");
        }
    }
    for (key, expected) in pairs("ann", "/spatial/1") {
        let axes: Vec<String> = position(&[2, 2, 2], key).iter().map(u64::to_string).collect();
        same(&mut client, &format!("/objects/ann/sp1/{}", axes.join("_")), &expected);
    }
    client.get("/objects/ann/sp1/2_0_0").expect_error(404, "not-found");
    server.stop();
}

#[test]
fn a_mesh_has_a_manifest_and_fragments_in_parts() {
    let server = Server::start(&[&neuroglancer(), "-q"]);
    let mut client = server.connect();
    let db = ShardDb::open(format!("{}/seg/mesh", neuroglancer())).unwrap();
    for (key, manifest) in pairs("seg/mesh", "") {
        same(&mut client, &format!("/objects/seg/mesh/{key}.index"), &manifest);
        let path = format!("/objects/seg/mesh/{key}");
        let whole = client.get(&path).expect(200).body;
        assert!(!whole.is_empty());
        let snapshot = db.snapshot();
        assert_eq!(*snapshot.get_preamble(key, whole.len() as u64).unwrap().unwrap(), *whole);
        assert_eq!(whole[..5], *b"DRACO", "the fragments begin with the first");
        let part = client.send("GET", &path, &[("range", "bytes=3-40")], b"").expect(206);
        assert_eq!(part.body, whole[3..41]);
    }
    client.get("/objects/seg/mesh/5").expect_error(404, "not-found");
    client.get("/objects/seg/mesh/5.index").expect_error(404, "not-found");
    server.stop();
}

/// Rebuilt by our own loader, so that fragments have checks and the data set is nested in a store.
#[test]
fn stores_serve_the_same_objects() {
    let place = Place::new();
    let input = place.text("mesh.bin2");
    sharddb(["export", &format!("{}/seg/mesh", neuroglancer()), "--format", "bin2", "--output", &input]).expect(0);
    fs::create_dir(place.path("served")).unwrap();
    let info = format!("{}/seg/mesh/info", neuroglancer());
    sharddb(["build", &place.text("served/mesh"), "--input", &input, "--info", &info]).expect(0);
    build(&place, "one");
    let (server, original) = (Server::start(&[&place.text("served"), "-q"]), Server::start(&[&neuroglancer(), "-q"]));
    let mut client = server.connect();
    for (key, manifest) in pairs("seg/mesh", "") {
        same(&mut client, &format!("/objects/mesh/{key}.index"), &manifest);
        let fragments = original.get(&format!("/objects/seg/mesh/{key}")).expect(200).body;
        same(&mut client, &format!("/objects/mesh/{key}"), &fragments);
    }
    same(&mut client, "/objects/numbers/7", &value("one", 7));
    server.stop();
    original.stop();
}

#[test]
fn chunks_of_arrays_are_found_by_position() {
    let arrays = Path::new(&data("zarr/arrays")).canonicalize().unwrap();
    let server = Server::start(&[arrays.to_str().unwrap(), "-q"]);
    let mut client = server.connect();
    let mut chunks = 0;
    for entry in fs::read_dir(&arrays).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let Ok(array) = ZarrArray::open(arrays.join(&name)) else { continue };
        let metadata = client.get(&format!("/objects/{name}/zarr.json"));
        if metadata.status == 501 {
            continue; // shards in another codec
        }
        let served = metadata.expect(200).json();
        assert!(!served["codecs"].to_string().contains("sharding_indexed"), "{name}");
        assert_eq!(
            served["chunk_grid"]["configuration"]["chunk_shape"],
            json!(array.metadata().chunk_shape()),
            "{name}"
        );
        let is_v2 = served["chunk_key_encoding"]["name"] == "v2";
        let separator = served["chunk_key_encoding"]["configuration"]["separator"].as_str();
        let separator = separator.unwrap_or(if is_v2 { "." } else { "/" });
        let KeySpace::Linear { grid } = array.key_space() else { panic!("{name}") };
        for key in array.keys().take(5) {
            let Ok(key) = key else { continue };
            let position = array.key_space().position_of(key).unwrap();
            let mut parts: Vec<String> = position.iter().map(u64::to_string).collect();
            if !is_v2 {
                parts.insert(0, "c".to_string());
            } else if grid.is_empty() {
                parts.push("0".to_string());
            }
            let Ok(Some(expected)) = array.get(key, Form::Encoded) else { continue };
            same(&mut client, &format!("/objects/{name}/{}", parts.join(separator)), &expected);
            chunks += 1;
            if let Ok(decoded) = array.get(key, Form::Decoded) {
                same(&mut client, &format!("/api/{name}/get/{key}"), &decoded.unwrap());
            }
        }
    }
    assert!(chunks > 20, "{chunks}");
    server.stop();
}

#[test]
fn chunks_of_bcolz_arrays_are_found_by_number() {
    let arrays = data("bcolz");
    let server = Server::start(&[&arrays, "-q"]);
    let name = "b121_f8_lz4_shuffle1";
    let array = BcolzArray::open(Path::new(&arrays).join(name)).unwrap();
    assert!(array.nchunks() > 0);
    for key in 0..array.nchunks() {
        let path = format!("/objects/{name}/{key}");
        same(&mut server.connect(), &path, &array.get(key, Form::Encoded).unwrap().unwrap());
    }
    server.get(&format!("/objects/{name}/{}", array.nchunks())).expect_error(404, "not-found");
    let listed = server.get("/api/").json();
    let paths: Vec<&str> =
        listed["databases"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&name), "{paths:?}");
    server.stop();
}
