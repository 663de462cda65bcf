//! Stores in a bucket: what a push and a pull cost, older generations, and what is said about a server's errors.

use std::process::Command;
use std::time::Duration;

use super::bucket_server::{BucketServer, Logged};
use super::{KEYS, command, large_store, store, value_of};
use crate::common::{self, Place, Run, Start};
use crate::process::unless_stalled;

/// The URL of the store of these tests.
pub(crate) const URL: &str = "s3://data/cells";

/// Runs the command with the server as S3.
fn sharddb(server: &BucketServer, place: &Place, args: &[&str]) -> Run {
    s3(server, place, args).run()
}

/// The command with the server as S3.
pub(crate) fn s3(server: &BucketServer, place: &Place, args: &[&str]) -> Command {
    let mut command = command(args, 0);
    let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "eu-west-1")];
    command.env("AWS_ENDPOINT_URL", server.endpoint()).envs(keys).env("XDG_CACHE_HOME", place.path("cache"));
    command
}

/// A local store, pushed; returns the name of the generation in the bucket.
fn pushed(server: &BucketServer, place: &Place) -> String {
    store(place);
    let run = sharddb(server, place, &["push", &place.text("store"), URL, "--json"]).expect(0);
    run.json_lines()[0]["generation"].as_str().unwrap().to_string()
}

/// The line of `-v` about a call that made these requests.
fn line(call: &str, log: &[Logged], after: &str) -> String {
    let total = |of: fn(&Logged) -> usize| log.iter().map(of).sum::<usize>();
    let (sent, received) = (total(|logged| logged.sent), total(|logged| logged.received));
    let requests = if log.len() == 1 { "1 request".to_string() } else { format!("{} requests", log.len()) };
    format!("sharddb: {call}: {requests}, {sent} bytes sent, {received} bytes received{after}\n")
}

#[test]
fn verbose_reports_what_the_server_got_and_sent() {
    let (place, server) = (Place::new(), BucketServer::start());
    store(&place);
    let push = ["push", &place.text("store"), URL, "-v"];
    let run = sharddb(&server, &place, &push).expect(0);
    let log = server.take_log();
    let generation =
        server.names().iter().find_map(|name| name.strip_prefix("cells/")?.strip_suffix("/info").map(str::to_string));
    let generation = generation.unwrap();
    let expected = line("push", &log, &format!(", 0 objects skipped, {generation}"));
    assert!(run.stderr.contains(&expected), "expected {expected}, found {}", run.stderr);
    let written = log.iter().filter(|logged| logged.method == "PUT").map(|logged| logged.sent).sum::<usize>();
    let files = place.files("store/gen-0000000001").iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    assert!(written > files, "{written} of {files} bytes, and those of current and the probe");

    let pull = ["pull", URL, &place.text("copy"), "-v"];
    let run = sharddb(&server, &place, &pull).expect(0);
    let expected = line("pull", &server.take_log(), &format!(", 0 objects skipped, {generation}"));
    assert!(run.stderr.contains(&expected), "expected {expected}, found {}", run.stderr);
    let quiet = sharddb(&server, &place, &["generations", URL]).expect(0);
    assert!(quiet.text().starts_with(&generation) && quiet.stderr.is_empty(), "{}", quiet.stderr);
    server.take_log();
    let run = sharddb(&server, &place, &["verify", URL, "-v"]).expect(0);
    let expected = line("verify", &server.take_log(), "");
    assert!(run.stderr.contains(&expected), "expected {expected}, found {}", run.stderr);
}

#[test]
fn a_continued_push_reports_the_objects_that_it_skips() {
    let (place, server) = (Place::new(), BucketServer::start());
    store(&place);
    let push = ["push", &place.text("store"), URL, "-v"];
    server.refuse(Some("cells/current"));
    let run = sharddb(&server, &place, &push);
    let expected = line("push", &server.take_log(), "");
    assert!(run.stderr.contains(&expected), "expected {expected}, found {}", run.stderr);
    let run = run
        .expect_error(4, &["AccessDenied: User is not authorized to perform: s3:PutObject", "s3://data/cells/current"]);
    assert!(!run.stderr.contains('<') && !run.stderr.contains("xxxx"), "{}", run.stderr);

    let begun = server.names();
    server.refuse(None);
    let run = sharddb(&server, &place, &push).expect(0);
    assert!(run.stderr.contains(&format!(", {} objects skipped, ", begun.len())), "{}", run.stderr);
    let uploads = server.take_log().into_iter().filter(|logged| logged.method == "PUT");
    let uploads: Vec<_> = uploads.filter(|logged| !logged.path.contains("/probe-")).map(|logged| logged.path).collect();
    assert_eq!(uploads, ["data/cells/current"]);
}

#[test]
fn a_push_begins_again_if_another_program_replaced_an_object() {
    let (place, server) = (Place::new(), BucketServer::start());
    store(&place);
    server.refuse(Some("cells/current"));
    sharddb(&server, &place, &["push", &place.text("store"), URL]).expect(4);
    let begun = server.names();
    server.damage(begun.iter().find(|name| name.ends_with(".shard")).unwrap());
    server.refuse(None);
    let run = sharddb(&server, &place, &["push", &place.text("store"), URL, "-v"]).expect(0);
    assert!(run.stderr.contains(", 0 objects skipped, "), "{}", run.stderr);
    assert_eq!(server.names().len(), 2 * begun.len() + 1);
    sharddb(&server, &place, &["verify", URL, "--level", "data"]).expect(0);
    assert_eq!(sharddb(&server, &place, &["get", URL, "147"]).expect(0).text(), value_of(147));
}

#[test]
fn an_older_generation_is_read_by_its_name_or_number_until_it_is_removed() {
    let (place, server) = (Place::new(), BucketServer::start());
    let first = pushed(&server, &place);
    common::sharddb(["delete", &place.text("store"), "147"]).expect(0);
    sharddb(&server, &place, &["push", &place.text("store"), URL]).expect(0);
    let get = |generation: &str| sharddb(&server, &place, &["get", URL, "147", "--generation", generation, "-v"]);
    sharddb(&server, &place, &["get", URL, "147"]).expect(1);
    for generation in [first.as_str(), "gen-0000000001", "gen-1", "1"] {
        let run = get(generation).expect(0);
        assert_eq!(run.text(), value_of(147), "{generation}");
        assert!(run.stderr.contains(&first), "{}", run.stderr);
    }
    get("2").expect(1);
    let count = ["keys", URL, "--count", "--generation"];
    for (generation, keys) in [("1", KEYS), ("2", KEYS - 1)] {
        let run = sharddb(&server, &place, &[&count[..], &[generation]].concat()).expect(0);
        assert_eq!(run.text(), format!("{keys}\n"));
    }
    get("7").expect_error(4, &["the generation gen-0000000007 in the history", "s3://data/cells/current"]);

    sharddb(&server, &place, &["gc", URL, "--older-than", "0s"]).expect(0);
    get("1").expect_error(4, &["the generation gen-0000000001", "gc removed it"]);
}

#[test]
fn a_missing_bucket_is_named() {
    let (place, server) = (Place::new(), BucketServer::start());
    store(&place);
    let url = "s3://dta/cells";
    let local = place.text("store");
    for args in [
        vec!["get", url, "3"],
        vec!["get", url, "3", "--generation", "1"],
        vec!["info", url],
        vec!["push", &local, url],
        vec!["pull", url, &local],
        vec!["generations", url],
        vec!["rollback", url],
    ] {
        let run = sharddb(&server, &place, &args);
        let run = run.expect_error(4, &[url, "(NoSuchBucket: The specified bucket does not exist)", "check its name"]);
        assert!(!run.stderr.contains('<'), "{}", run.stderr);
    }
    sharddb(&server, &place, &["get", "s3://data/nothing", "3"]).expect_error(4, &["found neither: check the address"]);
}

#[test]
fn settings_that_no_request_can_have_are_usage_errors() {
    let (place, server) = (Place::new(), BucketServer::start());
    pushed(&server, &place);
    for (name, value) in [
        ("AWS_ENDPOINT_URL", "127.0.0.1:9000"),
        ("AWS_ENDPOINT_URL", ""),
        ("AWS_ENDPOINT_URL", "http://user:swordfish@127.0.0.1:1"),
        ("AWS_REGION", "eu\nwest"),
        ("AWS_ACCESS_KEY_ID", "swordfish\n"),
    ] {
        let mut command = command(&["get", URL, "147"], 0);
        let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "eu-west-1")];
        command.env("AWS_ENDPOINT_URL", server.endpoint()).envs(keys).env(name, value);
        let run = command.run().expect_error(2, &["expected "]);
        assert!(!run.stderr.contains("swordfish"), "{}", run.stderr);
    }
}

#[test]
fn a_place_without_a_store_has_no_generations() {
    let (place, server) = (Place::new(), BucketServer::start());
    sharddb(&server, &place, &["generations", URL]).expect_error(4, &["expected a store", URL]);
    let web = format!("{}/cells", server.endpoint());
    sharddb(&server, &place, &["generations", &web]).expect_error(2, &["not web servers"]);
}

#[test]
fn a_build_looks_at_its_url_before_it_builds() {
    let (place, server) = (Place::new(), BucketServer::start());
    store(&place);
    let build = |url: &str| sharddb(&server, &place, &["build", url, "--input", &place.text("store.ndjson")]);
    let run = build(&format!("{}/cells", server.endpoint())).expect_error(2, &["not web servers"]);
    assert!(!run.stderr.contains("built"), "{}", run.stderr);
    let run = build(URL).expect(0);
    assert!(run.stderr.contains("built gen-0000000001: "), "{}", run.stderr);
    assert_eq!(run.stderr.matches("published").count(), 1, "{}", run.stderr);
}

#[test]
fn a_generation_that_is_current_is_not_pulled_again() {
    let (place, server) = (Place::new(), BucketServer::start());
    pushed(&server, &place);
    let pull = ["pull", URL, &place.text("copy"), "--json"];
    for is_new in [true, false] {
        let run = sharddb(&server, &place, &pull).expect(0);
        assert_eq!(run.json_lines()[0]["is_new"], is_new);
        assert_eq!(run.stderr.contains("published"), is_new, "{}", run.stderr);
    }
}

/// The answer takes longer than the patience, which grows with the bytes that are sent.
#[test]
fn a_slow_upload_is_waited_for() {
    unless_stalled(|| {
        let (place, server) = (Place::new(), BucketServer::start());
        large_store(&place, "large", 1 << 20);
        server.pause_at_shards(Duration::from_millis(1500));
        let mut push = s3(&server, &place, &["push", &place.text("large"), URL]);
        let run = push.env("SHARDDB_REMOTE_TIMEOUT", "1").run();
        if run.stderr.contains("timed out") {
            return None; // always, if the patience did not grow
        }
        run.expect(0);
        Some(sharddb(&server, &place, &["verify", URL, "--level", "data"]).expect(0))
    });
}

#[test]
fn verbose_reports_every_step_of_a_build_in_parts() {
    let (place, server) = (Place::new(), BucketServer::start());
    pushed(&server, &place);
    server.take_log();
    let plan = common::sharddb(["plan", "--keys", "300", "--bytes", "20MB", "--parts", "2"]).expect(0);
    let plan = place.write("plan", plan.stdout);
    let run = |args: &[&str]| {
        let run = sharddb(&server, &place, &[args, &["-v"]].concat()).expect(0);
        let expected = line(args[0], &server.take_log(), "");
        assert!(run.stderr.contains(&expected), "expected {expected}, found {}", run.stderr);
        run.stdout
    };
    let spill = ["spill", URL, "night", "--plan", &plan, "--task", "0", "--dir", &place.text("spills"), "--input"];
    let spills = place.write("spills.json", run(&[&spill[..], &[&place.text("store.ndjson")]].concat()));
    let of_job = [URL, "night", "--plan", &plan, "--spills", &spills];
    let build = |part: &str| run(&[&["build-part"], &of_job[..], &["--part", part]].concat());
    let parts = place.write("parts.json", [build("0"), build("1")].concat());
    let publish = [&["publish-parts"], &of_job[..], &["--parts", &parts, "--json"]].concat();
    assert!(String::from_utf8(run(&publish)).unwrap().contains(r#""keys":300,"keys_before":300"#));
    assert_eq!(sharddb(&server, &place, &["get", URL, "147"]).expect(0).text(), value_of(147));
    server.take_log();
    run(&["clean-parts", URL, "night"]);
}

#[test]
fn missing_credentials_name_the_places_that_are_looked_at() {
    let (place, server) = (Place::new(), BucketServer::start());
    pushed(&server, &place);
    for (args, subject) in [(vec!["get", URL, "147"], "get"), (vec!["push", &place.text("store"), URL], "push")] {
        let mut command = command(&args, 0);
        command.env("AWS_ENDPOINT_URL", server.endpoint()).env("AWS_REGION", "eu-west-1");
        command.env("AWS_METADATA_ENDPOINT", "http://127.0.0.1:1"); // nobody answers
        let places = ["AWS_ACCESS_KEY_ID", "~/.aws/credentials", "AWS_PROFILE", "AWS_SKIP_SIGNATURE=true", URL];
        let run = command.run().expect_error(4, &places);
        assert!(!run.stderr.contains("[cut]"), "{subject}: {}", run.stderr);
    }
}

#[test]
fn a_dry_run_of_gc_needs_no_right_to_write() {
    let (place, server) = (Place::new(), BucketServer::start());
    let first = pushed(&server, &place);
    common::sharddb(["delete", &place.text("store"), "147"]).expect(0);
    sharddb(&server, &place, &["push", &place.text("store"), URL]).expect(0);
    let before = server.names();
    server.refuse_writes();
    server.take_log();
    let run = sharddb(&server, &place, &["gc", URL, "--older-than", "0s", "--dry-run", "--json"]).expect(0);
    assert_eq!(run.json_lines()[0]["removed"], serde_json::json!([first]));
    let log = server.take_log();
    assert!(log.iter().all(|logged| matches!(logged.method.as_str(), "GET" | "HEAD")), "{log:?}");
    assert_eq!(server.names(), before);
    sharddb(&server, &place, &["gc", URL, "--older-than", "0s"]).expect_error(4, &["AccessDenied"]);
}

#[test]
fn files_that_cannot_be_read_do_no_harm_if_variables_state_the_keys() {
    let (place, server) = (Place::new(), BucketServer::start());
    pushed(&server, &place);
    let directory = place.text("store"); // reading it as a file fails
    let get = |variables: &[(&str, &str)]| {
        let mut command = command(&["get", URL, "147"], 0);
        command.env("AWS_ENDPOINT_URL", server.endpoint()).envs(variables.iter().copied());
        command.run()
    };
    let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret"), ("AWS_REGION", "eu-west-1")];
    for file in ["AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"] {
        assert_eq!(get(&[&keys[..], &[(file, directory.as_str())]].concat()).expect(0).text(), value_of(147), "{file}");
        get(&[(file, &directory)]).expect_error(4, &[&directory]);
    }
}
