//! Redirects: at most 5, and no credentials for another host.

use super::server::{Reply, Server};
use super::{sharddb, store, value_of};
use crate::common::{Place, Start};

fn redirect(status: u16, to: String) -> Reply {
    Reply::Status(status, vec![("Location", to)], String::new())
}

/// A plan that redirects each file that number of times, to `/hop/N/file`, before it serves it.
fn hops(server: &Server, hops: usize) {
    server.plan(move |got| match got.path.strip_prefix("hop/").and_then(|rest| rest.split_once('/')) {
        Some((at, rest)) => match at.parse::<usize>().unwrap() {
            1 => redirect(307, format!("/{rest}")),
            at => redirect(302, format!("/hop/{}/{rest}", at - 1)),
        },
        None if got.path.starts_with("begin/") => redirect(301, format!("/hop/{}/store/{}", hops - 1, &got.path[6..])),
        None => Reply::File,
    });
}

#[test]
fn five_redirects_are_followed_and_six_are_not() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = server.url(&format!("begin/{generation}"));
    hops(&server, 5);
    assert_eq!(sharddb(&["get", &url, "147"]).expect(0).text(), value_of(147));
    assert!(server.take_requests().iter().all(|got| got.header("if-none-match").is_none()));
    hops(&server, 6);
    sharddb(&["get", &url, "147"]).expect_error(4, &["more than 5 redirects, the last one to ", "/store/", &url]);
    let requests = server.take_requests();
    let of_current = requests.iter().filter(|got| got.path.ends_with("/current")).count();
    assert_eq!(of_current, 6, "a redirect too many is not tried again");
}

#[test]
fn another_host_gets_the_range_and_no_credentials() {
    let place = Place::new();
    let generation = store(&place);
    let (first, second) = (Server::start(&place.path("")), Server::start(&place.path("")));
    // another port, and another name of the same address
    for host in [second.address(), second.address().replace("127.0.0.1", "localhost")] {
        first.plan(move |got| redirect(302, format!("http://user:invented@{host}/{}?signature=1", got.path)));
        second.plan(|_| Reply::File);
        let url = format!("http://reader:secret@{}/store/{generation}", first.address());
        assert_eq!(sharddb(&["get", &url, "147"]).expect(0).text(), value_of(147));
        let (at_first, at_second) = (first.take_requests(), second.take_requests());
        assert_eq!(at_first.len(), at_second.len());
        let expected = Some("Basic cmVhZGVyOnNlY3JldA=="); // base64 of reader:secret
        assert!(at_first.iter().all(|got| got.header("authorization") == expected));
        assert!(at_second.iter().all(|got| got.header("authorization").is_none()));
        assert!(at_second.iter().any(|got| got.header("range").is_some()));
        assert!(at_second.iter().all(|got| got.header("user-agent").unwrap().starts_with("sharddb/")));
    }
}

#[test]
fn a_redirect_on_the_same_host_keeps_the_credentials_and_errors_hide_them() {
    let place = Place::new();
    let generation = store(&place);
    let server = Server::start(&place.path(""));
    let url = format!("http://reader:secret@{}/begin/{generation}", server.address());
    hops(&server, 2);
    sharddb(&["get", &url, "147"]).expect(0);
    assert!(server.take_requests().iter().all(|got| got.header("authorization").is_some()));
    server.plan(|_| Reply::Status(401, vec![], "who".to_string()));
    let run = sharddb(&["get", &url, "147"]).expect_error(4, &["401 Unauthorized", &server.address()]);
    assert!(!run.stderr.contains("secret"), "{}", run.stderr);
}

#[test]
fn s3_credentials_stay_with_their_endpoint() {
    let place = Place::new();
    let generation = store(&place);
    std::fs::create_dir(place.path("bucket")).unwrap();
    std::fs::rename(place.path("store"), place.path("bucket/store")).unwrap();
    let (first, second) = (Server::start(&place.path("")), Server::start(&place.path("")));
    let files = place.write(
        "aws/credentials",
        "[work]\naws_access_key_id = AKID\naws_secret_access_key = secret\naws_session_token = token\n",
    );
    let config = place.write("aws/config", format!("[profile work]\nendpoint_url = http://{}\n", first.address()));
    let url = format!("s3://bucket/store/{generation}");
    let run = || {
        let mut command = super::command(&["get", &url, "147"], 1);
        command.env("AWS_SHARED_CREDENTIALS_FILE", &files).env("AWS_CONFIG_FILE", &config).env("AWS_PROFILE", "work");
        command.run()
    };
    assert_eq!(run().expect(0).text(), value_of(147));
    for got in first.take_requests() {
        assert!(got.header("authorization").unwrap().starts_with("AWS4-HMAC-SHA256 Credential=AKID/"));
        assert_eq!(got.header("x-amz-security-token"), Some("token"));
    }
    let host = second.address();
    first.plan(move |got| redirect(307, format!("http://{host}/{}", got.path)));
    assert_eq!(run().expect(0).text(), value_of(147));
    assert!(!first.take_requests().is_empty());
    for got in second.take_requests() {
        assert!(got.header("authorization").is_none() && got.header("x-amz-security-token").is_none());
    }
}
