//! The secrets that this process knows: messages do not show them, whoever repeats them.
//!
//! ```text
//! learned from    URLs in arguments and variables, the settings of clients, the requests that are sent
//! hidden in       standard error, the findings of `verify` at a URL, the bodies of errors before they are cut
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsStr;
use std::sync::{Mutex, MutexGuard};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sharddb::internal::lock;

use crate::url_text::{decoded, is_container};

/// What a message shows in place of a secret.
const HIDDEN: &str = "[hidden]";

/// Shorter values are not hidden by themselves, since most texts contain them.
const SHORTEST: usize = 4;

/// Number of forms of secrets of requests that are remembered: each request to S3 has a signature of its own.
#[cfg(any(feature = "remote", test))]
const MOST_SENT: usize = 1024;

static KNOWN: Mutex<Known> = Mutex::new(Known { settings: Vec::new(), sent: VecDeque::new() });

struct Known {
    settings: Vec<String>,
    /// The last one that was sent is the last.
    sent: VecDeque<String>,
}

fn known() -> MutexGuard<'static, Known> {
    lock(&KNOWN)
}

/// Remembers a secret of the user.
pub(crate) fn learn(secret: &str) {
    let settings = &mut known().settings;
    for form in forms(secret) {
        if !settings.contains(&form) {
            settings.push(form);
        }
    }
}

/// Remembers a secret that a request has, such as its signature.
#[cfg(any(feature = "remote", test))]
pub(crate) fn learn_sent(secret: &str) {
    let sent = &mut known().sent;
    for form in forms(secret) {
        if !sent.contains(&form) {
            sent.push_back(form);
        }
    }
    sent.drain(..sent.len().saturating_sub(MOST_SENT));
}

/// A secret as it is, and as servers repeat it in URLs, XML and JSON. None if it is too short.
fn forms(secret: &str) -> BTreeSet<String> {
    if secret.len() < SHORTEST {
        return BTreeSet::new();
    }
    let percent = |lower: bool| -> String {
        let byte = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            _ if lower => format!("%{byte:02x}"),
            _ => format!("%{byte:02X}"),
        };
        secret.bytes().map(byte).collect()
    };
    let xml = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&apos;")];
    let xml = xml.iter().fold(secret.to_string(), |text, (character, name)| text.replace(*character, name));
    let json = secret.replace('\\', "\\\\").replace('"', "\\\"");
    [secret.to_string(), percent(false), percent(true), xml, json.replace('/', "\\/"), json].into()
}

/// Remembers the user, the password and the query of a URL. Does nothing for another text.
pub(crate) fn learn_url(text: &OsStr) {
    let text = text.to_string_lossy();
    let Some((scheme, rest)) = text.split_once("://") else { return };
    let (user, after) = rest.rsplit_once('@').unwrap_or(("", rest));
    if !is_container(scheme, user) {
        learn(user);
        learn(&STANDARD.encode(user));
        let password = user.split_once(':').map_or(user, |(_, password)| password);
        learn(password);
        learn(&decoded(password).unwrap_or_default());
    }
    // a ? may be part of the password, and an @ of the query
    for query in [rest, after].into_iter().filter_map(|text| Some(text.split_once(['?', '#'])?.1)) {
        learn(query);
        query.split('&').filter_map(|pair| pair.split_once('=')).for_each(|(_, value)| {
            learn(value);
            learn(&decoded(value).unwrap_or_default());
        });
    }
}

/// Returns a text without the secrets.
pub(crate) fn hide(text: &str) -> String {
    let known = known();
    let all = known.settings.iter().chain(&known.sent);
    let mut found: Vec<&String> = all.filter(|secret| text.contains(secret.as_str())).collect();
    found.sort_by_key(|secret| Reverse(secret.len())); // a password may be part of another secret
    found.into_iter().fold(text.to_string(), |text, secret| text.replace(secret.as_str(), HIDDEN))
}

/// Like [`hide`], for a text that may end inside of a secret.
#[cfg(any(feature = "remote", test))]
pub(crate) fn hide_in_beginning(text: &str) -> String {
    let mut text = hide(text);
    let known = known();
    for secret in known.settings.iter().chain(&known.sent) {
        let mut beginnings = (SHORTEST..secret.len()).rev().filter_map(|len| secret.get(..len));
        if let Some(beginning) = beginnings.find(|beginning| text.ends_with(beginning)) {
            text.truncate(text.len() - beginning.len());
            text.push_str(HIDDEN);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_hidden_wherever_they_are() {
        learn_url("ftp://mary:swordfish@h/x?sig=Zm9v%2BYmFy&a=1".as_ref());
        learn_url("az://container@account/x".as_ref());
        learn_url("no URL: hunter2@h".as_ref());
        let text = "mary:swordfish bWFyeTpzd29yZGZpc2g= sword swordfish Zm9v%2BYmFy&a=1 Zm9v+YmFy container hunter2";
        let hidden = "[hidden] [hidden] sword [hidden] [hidden]&a=1 [hidden] container hunter2";
        assert_eq!(hide(text), hidden);
        learn("abc");
        learn_sent("abc");
        assert_eq!(hide("abc mary"), "abc mary", "short ones and names are no secrets");
    }

    #[test]
    fn secrets_are_hidden_as_urls_xml_and_json_write_them() {
        learn("wJa+lr/X&UtnFE\"MI=");
        for text in [
            "wJa+lr/X&UtnFE\"MI=",
            "wJa%2Blr%2FX%26UtnFE%22MI%3D",
            "wJa%2blr%2fX%26UtnFE%22MI%3d",
            "wJa+lr/X&amp;UtnFE&quot;MI=",
            "wJa+lr/X&UtnFE\\\"MI=",
            "wJa+lr\\/X&UtnFE\\\"MI=",
        ] {
            assert_eq!(hide(&format!("<Key>{text}</Key>")), "<Key>[hidden]</Key>", "{text}");
        }
    }

    #[test]
    fn the_beginning_of_a_secret_at_the_end_is_hidden() {
        learn("correct-horse");
        for (text, expected) in [
            ("a correct-hors", "a [hidden]"),
            ("a corr", "a [hidden]"),
            ("correct-horse cor", "[hidden] cor"),
            ("correct-hors a", "correct-hors a"),
        ] {
            assert_eq!(hide_in_beginning(text), expected);
        }
    }

    #[test]
    fn secrets_of_settings_are_kept_and_those_of_requests_for_some_time() {
        learn("setting-of-a-client");
        (0..MOST_SENT).for_each(|number| learn_sent(&format!("signature-{number:04}")));
        assert_eq!(hide("signature-0000 setting-of-a-client"), "[hidden] [hidden]");
        (0..MOST_SENT).for_each(|number| learn_sent(&format!("later-one-{number:04}")));
        assert_eq!(hide("signature-0000 later-one-0000 setting-of-a-client"), "signature-0000 [hidden] [hidden]");
    }
}
