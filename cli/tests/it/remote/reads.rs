//! Lookups at a URL return what lookups in the same files return, and report what they cost.

use serde_json::json;

use super::server::{Reply, Server};
use super::{KEYS, command, sharddb, store, value_of};
use crate::common::{self, Place, Run, SHARDING, Start, foreign};

/// The requests and bytes of the line that `-v` writes about a call.
fn cost(run: &Run, call: &str) -> (usize, usize) {
    let begin = format!("sharddb: {call}: ");
    let line =
        run.stderr.lines().find_map(|line| line.strip_prefix(&begin)).unwrap_or_else(|| panic!("{}", run.stderr));
    let numbers: Vec<usize> = line.split(", ").filter_map(|part| part.split(' ').next()?.parse().ok()).collect();
    (numbers[0], numbers[1])
}

#[test]
fn get_returns_the_values_of_a_generation() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = server.url(&format!("store/{generation}"));
    for key in [0, 3, 147, 3 * (KEYS - 1)] {
        assert_eq!(sharddb(&["get", &url, &key.to_string()]).expect(0).text(), value_of(key));
    }
    sharddb(&["get", &url, "1"]).expect_error(1, &["key 1 is absent"]);
    let values = place.text("values");
    sharddb(&["get", &url, "0", "3", "1", "--output", &values]).expect_error(1, &["key 1 is absent"]);
    assert_eq!(place.files("values"), [("0".into(), value_of(0).into()), ("3".into(), value_of(3).into())]);
    sharddb(&["contains", &url, "3"]).expect_error(0, &[]);
    sharddb(&["contains", &url, "4"]).expect_error(1, &[]);
}

#[test]
fn verbose_reports_the_requests_that_the_server_got() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = server.url(&format!("store/{generation}"));
    let run = sharddb(&["get", &url, "147", "-v"]).expect(0);
    let (opened, got) = (cost(&run, "open").0, cost(&run, "get"));
    let requests = server.take_requests();
    assert_eq!(requests.len(), opened + got.0);
    assert_eq!(got.0, 1, "one request for a cold get");
    assert!(got.1 >= value_of(147).len());
    assert!(requests.last().unwrap().path.ends_with(".shard"));
    let ends_with_seconds = |line: &str| {
        let seconds = line.split_once(" 0 cache hits, ").and_then(|(_, rest)| rest.strip_suffix(" s"));
        seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok())
    };
    assert!(run.stderr.lines().all(ends_with_seconds), "{}", run.stderr);
    assert_eq!(sharddb(&["get", &url, "147"]).expect(0).stderr, "");
}

#[test]
fn the_cost_of_a_request_decides_how_many_a_batch_makes() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = server.url(&format!("store/{generation}"));
    let last = (3 * (KEYS - 1)).to_string();
    let run = |request_cost: &str| {
        let run =
            sharddb(&["get-many", &url, "0", "300", "999", &last, "-v", "--request-cost", request_cost]).expect(0);
        (run.text().to_string(), cost(&run, "get-many").0)
    };
    let (values, least) = run("2MiB");
    assert_eq!(least, 1);
    let (same, more) = run("16KiB");
    assert_eq!(same, values);
    assert!(more > 1);
    assert_eq!(run("measured").0, values);
    sharddb(&["get", &url, "0", "--request-cost", "little"])
        .expect_error(2, &["expected bytes below 2^64", "found \"little\"; or \"measured\""]);
}

#[test]
fn get_many_and_locate_answer_like_a_local_path() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let (url, local) = (server.url(&format!("store/{generation}/")), place.text("store"));
    let keys: String = (0..KEYS * 3).step_by(7).map(|key| format!("{key}\n")).collect();
    let keys = place.write("keys.txt", keys);
    let args = |db| ["get-many", db, "--keys", &keys, "--values"].map(str::to_string);
    let here = common::sharddb(args(&local)).expect(0);
    let there = command(&args(&url).each_ref().map(String::as_str), 1).run().expect(0);
    assert_eq!(there.text(), here.text());
    assert!(here.text().lines().count() > 100);

    for (key, code) in [("3", 0), ("4", 1)] {
        let here = common::sharddb(["locate", &local, key]).expect(code).json_lines();
        let mut there = sharddb(&["locate", &url, key]).expect(code).json_lines();
        let file = there[0]["file"].take();
        assert!(file.as_str().unwrap().starts_with(&url) && file.as_str().unwrap().ends_with(".shard"), "{file}");
        there[0]["file"] = here[0]["file"].clone();
        assert_eq!(there, here);
    }
}

#[test]
fn keys_and_export_list_what_the_same_files_list() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let (url, local) = (server.url(&format!("store/{generation}")), place.text("store"));
    let calls: [&[&str]; 8] = [
        &["keys"],
        &["keys", "--count"],
        &["keys", "--sorted"],
        &["keys", "--range", "100..=400", "--count"],
        &["export", "--format", "bin"],
        &["export", "--format", "ndjson", "--sorted"],
        &["export", "--format", "ndjson", "--range", "90..=99"],
        &["export", "--format", "bin", "--key", "3", "--key", "600", "--key", "600"],
    ];
    for call in calls {
        let at =
            |db: &str| [&call[..1], &[db], &call[1..]].concat().into_iter().map(str::to_string).collect::<Vec<_>>();
        let here = common::sharddb(at(&local)).expect(0);
        let there = command(&at(&url).iter().map(String::as_str).collect::<Vec<_>>(), 1).run();
        assert_eq!(there.expect(0).stdout, here.stdout, "{call:?}");
        assert!(!here.stdout.is_empty());
    }
    sharddb(&["export", &url, "--format", "bin", "--key", "1"]).expect(1);
    sharddb(&["keys", &url, "--reverse"]).expect_error(2, &["--reverse"]);
    server.plan(|got| if got.path.ends_with(".shard") { Reply::WrongBytes(16) } else { Reply::File });
    sharddb(&["export", &url, "--format", "bin"]).expect(3);
}

#[test]
fn foreign_data_is_read_with_an_info_or_a_given_specification() {
    let place = Place::new();
    foreign(&place);
    let server = Server::start(&place.path(""));
    let url = server.url("foreign|neuroglancer-precomputed:");
    for (key, value) in [("0", "abc"), ("5", "xyz"), ("8", "de"), ("4", "")] {
        assert_eq!(sharddb(&["get", &url, key]).expect(0).text(), value, "{key}");
    }
    sharddb(&["get", &url, "12"]).expect_error(1, &["key 12"]);
    std::fs::remove_file(place.path("foreign/info")).unwrap();
    sharddb(&["get", &url, "5"]).expect_error(4, &["/foreign"]);
    assert_eq!(sharddb(&["get", &url, "5", "--sharding", SHARDING]).expect(0).text(), "xyz");
}

#[test]
fn info_describes_what_can_be_known_without_a_walk() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = server.url(&format!("store/{generation}"));
    let described = sharddb(&["info", &url, "--json"]).expect(0).json_lines().remove(0);
    assert_eq!((&described["url"], &described["keys"]), (&json!(url), &json!(KEYS)));
    assert_eq!(described["sharding"]["@type"], "neuroglancer_uint64_sharded_v1");
    assert_eq!(described["cost"]["requests"], json!(server.take_requests().len()));
    let text = sharddb(&["info", &url]).expect(0);
    assert!(text.text().contains("keys       300\n") && text.text().contains(&url), "{}", text.text());
    sharddb(&["info", &url, "--plot", "x.svg"]).expect_error(2, &["--plot"]);
}

#[test]
fn what_has_no_effect_or_no_meaning_at_a_url_is_refused() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = server.url(&format!("store/{generation}"));
    for (args, part) in [
        (vec!["get", &url, "3", "--preamble", "1"], "--preamble"),
        (vec!["get", &url, "3", "--decoded"], "--decoded"),
        (vec!["get", &url, "3", "--column", "x"], "--column"),
        (vec!["get", &url, "3", "--verify-reads", "never"], "always verify"),
        (vec!["get", &url, "--at", "0,0,0"], "--at is for volumes"),
        (vec!["get", "ftp://host/x", "3"], "another scheme"),
        (vec!["diff", &url, &url], "sharddb pull"),
    ] {
        sharddb(&args).expect_error(2, &[part]);
    }
}

#[test]
fn a_url_without_a_data_set_is_not_found() {
    let place = Place::new();
    let server = Server::start(&place.path(""));
    let url = server.url("nothing");
    sharddb(&["get", &url, "3"]).expect_error(4, &[&url]);
    server.plan(|_| Reply::Status(403, vec![], "no\n  permission".to_string()));
    sharddb(&["get", &url, "3"]).expect_error(4, &[&url, "403 Forbidden", "no permission"]);
}

#[test]
fn file_urls_are_local_paths() {
    let place = Place::new();
    store(&place);
    let url = format!("file://{}|neuroglancer-precomputed:", place.text("store"));
    assert_eq!(common::sharddb(["get", &url, "3"]).expect(0).text(), value_of(3));
}
