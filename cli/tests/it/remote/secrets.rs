//! No message shows a password, a token, a key or a signature, whoever repeats it.

use std::process::Command;

use super::buckets::URL;
use super::command;
use super::server::{Reply, Server};
use crate::common::{self, Place, Run, Start};

/// Checks that a run shows none of these parts of secrets.
fn check(run: &Run, secrets: &[&str]) {
    let text = format!("{}{}", run.stderr, String::from_utf8_lossy(&run.stdout));
    assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
    assert!(text.split("Signature=").skip(1).all(|rest| rest.starts_with("[hidden]")), "{text}");
}

/// A client with secrets.
struct Case {
    url: fn(&Server) -> String,
    set: fn(&mut Command, &Server),
    /// What a request has.
    sent: &'static str,
    /// What messages do not have.
    secrets: &'static [&'static str],
}

const CASES: [Case; 3] = [
    Case {
        url: |server| format!("http://abc:swordfish@{}/cells", server.address()),
        set: |_, _| {},
        sent: "Basic YWJjOnN3b3JkZmlzaA==",
        secrets: &["swordfish", "YWJjOnN3b3JkZmlzaA"],
    },
    Case {
        url: |_| URL.to_string(),
        set: |command, server| {
            let keys = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret/key")];
            command.envs(keys).env("AWS_SESSION_TOKEN", "session/token+=").env("AWS_REGION", "eu-west-1");
            command.env("AWS_ENDPOINT_URL", format!("http://{}", server.address()));
        },
        sent: "session/token+=",
        secrets: &["session/token", "secret/key"],
    },
    Case {
        url: |_| "az://data@account/cells".to_string(),
        set: |command, server| {
            command.env("AZURE_STORAGE_ENDPOINT", format!("http://{}", server.address()));
            command.env("AZURE_STORAGE_SAS_KEY", "sv=2022-11-02&sr=c&sp=rl&sig=swordfish%2Bbar%3D");
        },
        sent: "sig=swordfish%2Bbar%3D",
        secrets: &["swordfish"],
    },
];

/// The body of each answer, also of a success, is the head of its request.
#[test]
fn a_server_that_repeats_requests_puts_no_secret_in_a_message() {
    let place = Place::new();
    let server = Server::start(&place.path(""));
    for case in CASES {
        let url = (case.url)(&server);
        for status in [200, 206, 400, 401, 403, 404, 409, 412, 500] {
            server.plan(move |_| Reply::Echo(status));
            for call in
                [["get", &url, "7"], ["pull", &url, "copy"], ["generations", &url, "-v"], ["verify", &url, "-v"]]
            {
                let mut command = command(&call, 0);
                (case.set)(command.current_dir(place.path("")), &server);
                let run = command.run();
                assert_ne!(run.code, Some(0));
                check(&run, case.secrets);
            }
            let requests = server.take_requests();
            assert!(requests.iter().any(|got| got.head.contains(case.sent)), "{requests:?}");
        }
    }
}

/// The error names a header of the answer, which has parts of the request.
#[test]
fn a_header_that_repeats_a_secret_is_not_shown() {
    let place = Place::new();
    common::foreign(&place);
    let server = Server::start(&place.path(""));
    server.plan(|got| match got.header("range") {
        Some(_) => {
            let range = format!("bytes swordfish {}", got.header("authorization").unwrap());
            Reply::Status(206, vec![("Content-Range", range)], "x".to_string())
        }
        None => Reply::File,
    });
    let url = format!("http://abc:swordfish@{}/foreign", server.address());
    let run = command(&["get", &url, "5"], 0).run().expect_error(4, &["bytes [hidden] Basic [hidden]"]);
    check(&run, CASES[0].secrets);
}

/// Each subcommand, with a malformed URL at each of its first places.
#[test]
fn a_malformed_url_is_shown_without_its_secrets() {
    let place = Place::new();
    let help = common::sharddb(["--help"]).expect(0);
    let names = help.text().lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> = names.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).collect();
    assert!(names.contains(&"verify") && names.len() > 30, "{names:?}");
    for url in [
        "http://user:swordfish@h/x?token=hunter22",
        "https://user:sword/fish?swordfish@h/x#hunter22",
        "ftp://user:swordfish@h/x",
        "s3://user:swordfish@/x?hunter22",
        "az://user:swordfish@account/x?sig=hunter22",
        "file://user:swordfish@h/x?hunter22",
        "precomputed://https://user:swordfish@h/x?hunter22",
        "http://user:swordfish@h/\u{1b}x",
    ] {
        for name in names.iter().filter(|name| !name.is_empty()) {
            for call in
                [vec![*name, url], vec![*name, "a", url], vec![*name, "a", "b", url], vec![*name, url, "a", "b"]]
            {
                let run = common::command(&call).current_dir(place.path("")).run();
                check(&run, &["swordfish", "hunter22", "sword/fish"]);
            }
        }
    }
}

/// Files that are given by a URL, which is no path of one.
#[test]
fn a_url_in_place_of_a_file_is_shown_without_its_secrets() {
    let place = Place::new();
    common::foreign(&place);
    let url = "https://user:swordfish@h/x?token=hunter22";
    for call in [
        ["build", "out", "--input", url],
        ["get-many", "foreign", "--keys", url],
        ["export", "foreign", "--output", url],
        ["plan", "--keys", "7", url],
        ["info", url, "--column", url],
    ] {
        let run = common::command(call).current_dir(place.path("")).run();
        assert_ne!(run.code, Some(0), "{call:?}");
        check(&run, &["swordfish", "hunter22"]);
    }
}

#[test]
fn a_wrong_setting_is_shown_without_its_secrets() {
    for endpoint in ["http://user:swordfish@h", "h/?sig=swordfish", "ftp://h?sig=swordfish"] {
        let mut command = command(&["get", URL, "7"], 0);
        let run = command.env("AWS_ENDPOINT_URL", endpoint).env("AWS_SKIP_SIGNATURE", "true").run();
        check(&run.expect_error(2, &["expected an endpoint"]), &["swordfish"]);
    }
}
