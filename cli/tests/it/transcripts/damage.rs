//! Damage: every verb names the same place, and one cause is one message.

use std::fs;

use super::transcript;
use crate::common::{Place, foreign_shard, sharddb};

/// A store of the keys 0 to 99 with a changed byte in the value of key 50.
fn damaged(place: &Place) {
    let lines: String = (0..100).map(|key| format!("{{\"key\": {key}, \"text\": \"value {key}\"}}\n")).collect();
    place.write("in.ndjson", lines);
    sharddb(["build", &place.text("numbers"), "--input", &place.text("in.ndjson")]).expect(0);
    let shard = "numbers/gen-0000000001/0.shard";
    let mut bytes = fs::read(place.path(shard)).unwrap();
    let at = bytes.windows(8).position(|window| window == b"value 50").unwrap();
    bytes[at] = b'V';
    fs::remove_file(place.path(shard)).unwrap();
    place.write(shard, bytes);
}

/// Expected: one offset of the value, and one of its check, in all of them.
#[test]
fn a_damaged_value_has_one_place() {
    let place = Place::new();
    damaged(&place);
    transcript(&place, "damage-get", &["get", "numbers", "50"]);
    transcript(&place, "damage-export", &["export", "numbers", "--format", "bin", "--output", "out.bin"]);
    transcript(&place, "damage-verify", &["verify", "numbers"]);
    transcript(&place, "damage-verify-json", &["verify", "numbers", "--level", "data", "--json"]);
    transcript(&place, "damage-locate", &["locate", "numbers", "50"]);
    transcript(&place, "damage-salvage", &["salvage", "numbers", "saved", "--lost", "-"]);
    place.write("50.txt", "50\n");
    transcript(&place, "damage-get-many", &["get-many", "numbers", "--keys", "50.txt"]);
}

/// The directory of the current generation in place of the link, as in a copy that followed links.
#[test]
fn a_copy_that_followed_links_is_mended_as_the_messages_say() {
    let place = Place::new();
    damaged(&place);
    fs::remove_file(place.path("numbers/current")).unwrap();
    for (name, bytes) in place.files("numbers/gen-0000000001") {
        place.write(&format!("numbers/current/{name}"), bytes);
    }
    transcript(&place, "followed-links-generations", &["generations", "numbers"]);
    transcript(&place, "followed-links-put", &["put", "numbers", "1", "--value", "x"]);
    transcript(&place, "followed-links-rollback", &["rollback", "numbers"]);
    transcript(&place, "followed-links-rollback-number", &["rollback", "numbers", "1"]);
    transcript(&place, "followed-links-get", &["get", "numbers", "1"]);
}

/// Two shards of the identity hash with their names exchanged: the even keys in 1.shard, the odd ones in 0.shard.
#[test]
fn exchanged_files_are_one_message_each() {
    let place = Place::new();
    let lines: String = (0..40).map(|key| format!("{{\"key\": {key}, \"text\": \"{key}\"}}\n")).collect();
    place.write("in.ndjson", lines);
    let sharding = crate::common::SHARDING.replace("\"minishard_bits\": 1", "\"minishard_bits\": 0");
    let args = ["build", &place.text("numbers"), "--input", &place.text("in.ndjson"), "--sharding", &sharding];
    sharddb([&args[..], &["--no-checks"]].concat()).expect(0);
    for (from, to) in [("0.shard", "1.shard"), ("1.shard", "0.shard")] {
        let bytes = fs::read(place.path(&format!("numbers/current/{from}"))).unwrap();
        place.write(&format!("set/{to}"), bytes);
    }
    place.write("set/info", format!("{{\"sharding\": {sharding}}}"));
    transcript(&place, "damage-exchanged-verify", &["verify", "set"]);
    transcript(&place, "damage-exchanged-salvage", &["salvage", "set", "saved"]);
    transcript(&place, "damage-exchanged-repaired", &["verify", "saved"]);

    place.write("hash/info", format!("{{\"sharding\": {}}}", sharding.replace("identity", "murmurhash3_x86_128")));
    fs::copy(place.path("set/1.shard"), place.path("hash/0.shard")).unwrap();
    transcript(&place, "damage-wrong-hash", &["verify", "hash"]);
}

/// A damaged generation is named with the way out, and never takes the place of an intact one.
#[test]
fn a_damaged_generation_is_not_trusted() {
    let place = Place::new();
    for number in ["one", "two", "three"] {
        place.write("in.ndjson", format!("{{\"key\": 1, \"text\": \"{number}\"}}\n"));
        sharddb(["build", &place.text("numbers"), "--input", &place.text("in.ndjson")]).expect(0);
    }
    fs::remove_file(place.path("numbers/gen-0000000003/info")).unwrap();
    transcript(&place, "damage-info-is-gone", &["get", "numbers", "1"]);
    transcript(&place, "damage-gc", &["gc", "numbers"]);
    fs::remove_file(place.path("numbers/gen-0000000002/manifest.json")).unwrap();
    place.write("numbers/gen-0000000002/manifest.json", "{}");
    transcript(&place, "damage-rollback-to", &["rollback", "numbers", "2"]);
    transcript(&place, "damage-rollback", &["rollback", "numbers"]);
    place.write("numbers/gen-0000000009", "a file");
    transcript(&place, "damage-generations", &["generations", "numbers"]);
}

/// Zeros in place of a shard are a loss, although they name no key.
#[test]
fn a_shard_of_zeros_is_a_loss() {
    let place = Place::new();
    place.write("in.ndjson", "{\"key\": 1, \"text\": \"one\"}\n");
    sharddb(["build", &place.text("numbers"), "--input", &place.text("in.ndjson")]).expect(0);
    let shard = "numbers/gen-0000000001/0.shard";
    fs::remove_file(place.path(shard)).unwrap();
    place.write(shard, [0; 51]);
    transcript(&place, "damage-zeros-salvage", &["salvage", "numbers", "saved"]);
}

#[test]
fn what_cannot_be_read_is_not_counted_as_absent() {
    let place = Place::new();
    place.write("set/info", format!("{{\"sharding\": {}}}", crate::common::SHARDING));
    place.write("set/0.shard", foreign_shard());
    place.write("set/1.shard", "short");
    transcript(&place, "damage-info", &["info", "set"]);
    transcript(&place, "damage-info-json", &["info", "set", "--json"]);
    fs::remove_file(place.path("set/1.shard")).unwrap();
    transcript(&place, "damage-absent-shard", &["verify", "set"]);
}

/// A damaged generation is exit code 3, whichever file of it is missing.
#[test]
fn a_missing_file_is_damage() {
    let place = Place::new();
    place.write("in.ndjson", "{\"key\": 1, \"text\": \"one\"}\n");
    sharddb(["build", &place.text("numbers"), "--input", &place.text("in.ndjson")]).expect(0);
    let generation = place.path("numbers/gen-0000000001");
    for name in ["0.shard", "manifest.json"] {
        fs::rename(generation.join(name), place.path("away")).unwrap();
        transcript(&place, &format!("damage-without-{name}"), &["get", "numbers", "1"]);
        sharddb(["export", &place.text("numbers"), "--format", "bin", "--output", &place.text("out")])
            .expect_error(3, &[name]);
        sharddb(["contains", &place.text("numbers"), "1"]).expect_error(3, &[name]);
        sharddb(["verify", &place.text("numbers")]).expect(3);
        fs::rename(place.path("away"), generation.join(name)).unwrap();
    }
}

/// A mesh whose fragments are lost is found by `verify`, and by each verb that would copy the loss.
#[test]
fn lost_fragments_are_found_and_not_copied() {
    let place = Place::new();
    let manifest = [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 5_u32].map(u32::to_le_bytes).concat();
    let index = [0, 24, 7, 24, 64_u64].map(u64::to_le_bytes).concat();
    let sharding = crate::common::SHARDING.replace(r#"_bits": 1"#, r#"_bits": 0"#);
    place.write("meshes/info", format!(r#"{{"@type": "neuroglancer_multilod_draco", "sharding": {sharding}}}"#));
    place.write("meshes/0.shard", [index, manifest].concat());
    transcript(&place, "damage-fragments-verify", &["verify", "meshes"]);
    transcript(&place, "damage-fragments-import", &["import", "meshes", "store"]);
    transcript(&place, "damage-fragments-copy", &["copy", "meshes", "store", "--key", "7"]);
    transcript(&place, "damage-fragments-salvage", &["salvage", "meshes", "saved"]);
}
