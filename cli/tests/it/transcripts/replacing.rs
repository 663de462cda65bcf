//! What a command says of the generation that it replaces: fewer keys, none, or no change, and of many old ones.

use super::{transcript, transcript_with_input};
use crate::common::{Place, sharddb};

/// Five pairs.
const NUMBERS: &str = "{\"key\": 1, \"text\": \"one\"}\n{\"key\": 2, \"text\": \"two\"}\n{\"key\": 3, \"text\": \"three\"}\n\
                       {\"key\": 4, \"text\": \"four\"}\n{\"key\": 5, \"text\": \"five\"}\n";

/// A place with the store `numbers`, the stores `two` and `none` with fewer of its keys, and their inputs.
fn numbers() -> Place {
    let place = Place::new();
    let two: String = NUMBERS.split_inclusive('\n').take(2).collect();
    for (name, pairs) in [("numbers", NUMBERS), ("two", &two), ("none", "")] {
        let input = place.write(&format!("{name}.ndjson"), pairs);
        sharddb(["build", &place.text(name), "--input", &input]).expect(0);
    }
    place
}

#[test]
fn fewer_keys_are_said() {
    let place = numbers();
    transcript(&place, "build-fewer", &["build", "numbers", "--input", "two.ndjson", "--json"]);
    transcript(&place, "build-more", &["build", "numbers", "--input", "numbers.ndjson"]);
    transcript(&place, "build-fewer-keep", &["build", "numbers", "--input", "two.ndjson", "--keep", "1"]);
    sharddb(["build", &place.text("numbers"), "--input", &place.text("numbers.ndjson")]).expect(0);
    transcript(&place, "import-fewer", &["import", "two", "numbers", "--json"]);
    sharddb(["build", &place.text("numbers"), "--input", &place.text("numbers.ndjson")]).expect(0);
    transcript(&place, "merge-fewer", &["merge", "numbers", "two", "none"]);
    sharddb(["build", &place.text("numbers"), "--input", &place.text("numbers.ndjson")]).expect(0);
    for (name, bytes) in place.files("two/current") {
        place.write(&format!("incoming/{name}"), bytes);
    }
    transcript(&place, "publish-fewer", &["publish", "numbers", "--from", "incoming", "--json"]);
    transcript(&place, "publish-equal", &["publish", "numbers", "--from", "incoming"]);
}

#[test]
fn no_keys_need_a_word() {
    let place = numbers();
    transcript(&place, "delete-all", &["delete", "two", "1", "2"]);
    transcript(&place, "delete-all-allow-empty", &["delete", "two", "1", "2", "--allow-empty", "--json"]);
    place.write("gone.txt", "1\n2\n3\n4\n5\n");
    transcript(&place, "update-all", &["update", "numbers", "--delete", "gone.txt"]);
    let allowed = ["update", "numbers", "--delete", "gone.txt", "--allow-empty"];
    transcript(&place, "update-all-allow-empty", &allowed);
    sharddb(["build", &place.text("numbers"), "--input", &place.text("numbers.ndjson")]).expect(0);
    let patch = sharddb(["diff", &place.text("numbers"), &place.text("none"), "--format", "ndjson"]).expect(1);
    place.write("all.ndjson", patch.text());
    transcript(&place, "apply-all", &["apply", "numbers", "all.ndjson"]);
    transcript(&place, "apply-all-allow-empty", &["apply", "numbers", "all.ndjson", "--allow-empty"]);
}

#[test]
fn no_change_publishes_nothing() {
    let place = numbers();
    transcript(&place, "put-equal", &["put", "numbers", "3", "--value", "three"]);
    transcript(&place, "update-equal", &["update", "numbers", "--input", "two.ndjson", "--json"]);
    transcript_with_input(&place, "apply-nothing-json", &["apply", "numbers", "-", "--json"], "");
    let same = "{\"key\": 3, \"old\": {\"text\": \"three\"}, \"new\": {\"text\": \"three\"}}\n";
    transcript_with_input(&place, "apply-equal", &["apply", "numbers", "-"], same);
    assert_eq!(sharddb(["generations", &place.text("numbers")]).expect(0).text().lines().count(), 1);
}

#[test]
fn many_generations_are_a_hint_to_remove_some() {
    let place = numbers();
    for value in 0..8 {
        sharddb(["put", &place.text("numbers"), "9", "--value", &value.to_string()]).expect(0);
    }
    transcript(&place, "put-tenth", &["put", "numbers", "9", "--value", "ten"]);
    transcript(&place, "put-tenth-equal", &["put", "numbers", "9", "--value", "ten"]);
    transcript(&place, "build-eleventh", &["build", "numbers", "--input", "numbers.ndjson"]);
    for _ in 0..3 {
        sharddb(["rollback", &place.text("numbers")]).expect(0);
    }
    transcript(&place, "gc-rolled-back", &["gc", "numbers", "--keep", "8", "--dry-run"]);
    transcript(&place, "gc-rolled-back-json", &["gc", "numbers", "--keep", "8", "--json"]);
    transcript(&place, "gc-keep-none", &["gc", "numbers", "--keep", "0"]);
    transcript(&place, "put-keep-none", &["put", "numbers", "9", "--value", "x", "--keep", "0"]);
}

/// A copy may leave out the link, or lose a file.
#[test]
fn what_cannot_be_opened_is_replaced_as_what_it_is() {
    let place = numbers();
    std::fs::remove_file(place.path("numbers/current")).unwrap();
    transcript(&place, "build-none-without-current", &["build", "numbers", "--input", "none.ndjson"]);
    transcript(&place, "build-fewer-without-current", &["build", "numbers", "--input", "two.ndjson"]);
    sharddb(["rollback", &place.text("numbers")]).expect(0);
    sharddb(["get", &place.text("numbers"), "5"]).expect(0);
    let (shard, _) = place.files("numbers/current").into_iter().find(|(name, _)| name.ends_with(".shard")).unwrap();
    std::fs::remove_file(place.path(&format!("numbers/current/{shard}"))).unwrap();
    transcript(&place, "build-fewer-than-damaged", &["build", "numbers", "--input", "two.ndjson", "--keep", "2"]);
    assert!(place.path("numbers/gen-0000000001").exists());
}
