//! The path of a request as names: pure text, without the file system.
//!
//! Each name that [`parse`] returns is one entry of a directory. No name leads to a parent, to another root or, on
//! Windows, to a device or a stream. Symbolic links are the subject of `tree`.

/// The longest path in bytes, encoded.
pub(crate) const MAX_BYTES: usize = 8 << 10;

/// The maximum number of names in a path.
pub(crate) const MAX_NAMES: usize = 64;

/// The longest name in bytes, decoded, as on common file systems.
const MAX_NAME_BYTES: usize = 255;

/// What a name may not be depends on the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Platform {
    Unix,
    Windows,
}

impl Platform {
    /// The platform of this program.
    pub(crate) const HERE: Platform = if cfg!(windows) { Platform::Windows } else { Platform::Unix };
}

/// Returns the decoded names of a path such as `/a/b%20c`; `None` if the path is refused.
///
/// One slash at the end is ignored. Refused are: a path that does not begin with a slash; an empty name; `.` and `..`;
/// a slash, a backslash, NUL or another control character in a decoded name; a `%` without two hex digits; bytes that are
/// not UTF-8; and on Windows the names of devices, names that end with a dot or a space, and the characters `<>:"|?*`.
pub(crate) fn parse(path: &str, platform: Platform) -> Option<Vec<String>> {
    if path.len() > MAX_BYTES {
        return None;
    }
    let path = path.strip_prefix('/')?;
    let path = path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path);
    if path.is_empty() {
        return Some(Vec::new());
    }
    if path.split('/').count() > MAX_NAMES {
        return None;
    }
    path.split('/').map(|name| decode(name).filter(|name| is_name(name, platform))).collect()
}

/// Undoes percent-encoding, once. A `+` is a plus sign.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

/// Percent-encodes a name, so that it is one name of a URL again.
pub(crate) fn encode(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn is_name(name: &str, platform: Platform) -> bool {
    let is_allowed = |c: char| !c.is_control() && c != '/' && c != '\\';
    !matches!(name, "" | "." | "..")
        && name.len() <= MAX_NAME_BYTES
        && name.chars().all(is_allowed)
        && (platform == Platform::Unix || is_windows_name(name))
}

/// Whether Windows takes a name for that of a file in the directory, and not for a device, a stream or another name.
fn is_windows_name(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or(name).trim_end_matches(' ').to_ascii_uppercase();
    let is_numbered = |prefix| {
        let number = stem.strip_prefix(prefix).map(|rest| rest.chars().collect::<Vec<_>>());
        matches!(number.as_deref(), Some(['0'..='9' | '\u{b9}' | '\u{b2}' | '\u{b3}']))
    };
    let is_device = matches!(stem.as_str(), "CON" | "PRN" | "AUX" | "NUL" | "CONIN$" | "CONOUT$")
        || is_numbered("COM")
        || is_numbered("LPT");
    !is_device && !name.ends_with(['.', ' ']) && !name.contains(['<', '>', ':', '"', '|', '?', '*'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn names(path: &str, expected: &[&str]) {
        assert_eq!(parse(path, Platform::Unix).as_deref(), Some(&expected.map_names()[..]), "{path}");
    }

    trait MapNames {
        fn map_names(&self) -> Vec<String>;
    }

    impl MapNames for &[&str] {
        fn map_names(&self) -> Vec<String> {
            self.iter().map(ToString::to_string).collect()
        }
    }

    #[test]
    fn names_are_decoded_once() {
        names("/", &[]);
        names("/a", &["a"]);
        names("/a/b.c/", &["a", "b.c"]);
        names("/a%20b/%c3%A9/+", &["a b", "é", "+"]);
        names("/%252e%252e", &["%2e%2e"]);
        names("/.../..a/a..", &["...", "..a", "a.."]);
        names("/0-32_0-32_0-32", &["0-32_0-32_0-32"]);
        names("/123:0", &["123:0"]);
    }

    #[test]
    fn a_path_that_could_leave_its_root_is_refused() {
        for path in [
            "",
            "a",
            "//",
            "//a",
            "/a//b",
            "/.",
            "/..",
            "/a/../b",
            "/%2e%2e/a",
            "/%2E.",
            "/a%2fb",
            "/a%2Fb",
            "/a\\b",
            "/a%5cb",
            "/a%00",
            "/%00",
            "/a%0a",
            "/a%7f",
            "/a\u{85}b",
            "/%",
            "/%4",
            "/%zz",
            "/%+1",
            "/%c3",
            "/%ff%fe",
        ] {
            assert_eq!(parse(path, Platform::Unix), None, "{path:?}");
            assert_eq!(parse(path, Platform::Windows), None, "{path:?}");
        }
    }

    #[test]
    fn lengths_are_bounded() {
        assert!(parse(&format!("/{}", "a".repeat(255)), Platform::Unix).is_some());
        assert!(parse(&format!("/{}", "a".repeat(256)), Platform::Unix).is_none());
        assert!(parse(&"/a".repeat(MAX_NAMES), Platform::Unix).is_some());
        assert!(parse(&"/a".repeat(MAX_NAMES + 1), Platform::Unix).is_none());
        assert!(parse(&format!("/{}", "/%61%61".repeat(MAX_BYTES)), Platform::Unix).is_none());
    }

    #[test]
    fn names_with_a_meaning_on_windows_are_refused_there() {
        for name in ["con", "CON.txt", "nul ", "a.", "a ", "C:", "a:b", "com1", "LPT\u{b9}.x", "aux .y", "a*", "conin$"]
        {
            assert!(parse(&format!("/{name}"), Platform::Unix).is_some(), "{name}");
            assert_eq!(parse(&format!("/{name}"), Platform::Windows), None, "{name}");
        }
        for name in ["console", "com", "com10", "nul_", "0-1_0-1_0-1", "info", "gen-0000000001"] {
            assert!(parse(&format!("/{name}"), Platform::Windows).is_some(), "{name}");
        }
    }

    #[test]
    fn encoding_is_undone_by_parsing() {
        for name in ["a", "a b", "é%", "%2e", "?#&;", "123:0", "\u{1F600}"] {
            names(&format!("/{}", encode(name)), &[name]);
        }
    }
}
