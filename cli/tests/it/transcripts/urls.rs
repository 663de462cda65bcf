//! Stores at a URL in a build without the feature `remote`, and servers that do not start: each names what it needs.

use super::transcript;
use crate::common::Place;

#[cfg(not(feature = "remote"))]
#[test]
fn a_url_needs_the_feature() {
    let place = Place::new();
    let url = "s3://bucket/numbers";
    transcript(&place, "url-get", &["get", "--verbose", url, "1"]);
    transcript(&place, "url-push", &["push", "numbers", url, "--allow-empty", "--json"]);
    let pull = ["pull", url, "numbers", "--generation", "gen-0000000001", "--allow-empty", "--json"];
    transcript(&place, "url-pull", &pull);
    transcript(&place, "url-gc", &["gc", url, "--older-than", "7d"]);
    transcript(&place, "url-clean-parts", &["clean-parts", url, "--older-than", "7d"]);
}

#[test]
fn options_of_urls_are_refused_for_paths() {
    let place = Place::new();
    for command in ["get", "contains", "locate", "get-many", "keys", "export", "info"] {
        let more: &[&str] = match command {
            "get" | "contains" | "locate" | "get-many" => &["1"],
            "export" => &["--format", "bin"],
            _ => &[],
        };
        let args = |options: &[&'static str]| [&[command, "numbers"], more, options].concat();
        let cache = args(&["--cache-dir", "cache", "--cache-size", "64MiB"]);
        transcript(&place, &format!("url-cache-at-a-path-{command}"), &cache);
        transcript(&place, &format!("url-generation-at-a-path-{command}"), &args(&["--generation", "3"]));
        transcript(&place, &format!("url-cost-at-a-path-{command}"), &args(&["--request-cost", "1MiB"]));
    }
    let arrays = ["export", "numbers", "--format", "zarr", "--generation", "3"];
    transcript(&place, "url-generation-at-a-path-export-zarr", &arrays);
}

#[cfg(feature = "serve")]
#[test]
fn a_server_needs_its_paths() {
    let place = Place::new();
    transcript(&place, "serve-url", &["serve", "s3://bucket/x"]);
    transcript(&place, "serve-nothing", &["serve", "nothing", "--port", "0", "--bind", "127.0.0.1", "--open"]);
    let limits = ["--max-connections", "8", "--timeout", "5", "--grace", "1", "--max-value", "1MiB"];
    transcript(&place, "serve-limits", &[&["serve", "nothing"][..], &limits].concat());
    let public = ["--base-url", "https://example.org/data", "--no-token"];
    transcript(&place, "serve-public", &[&["serve", "nothing"][..], &public].concat());
}
