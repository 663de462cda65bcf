//! Texts that may be URLs: what messages show of them.

/// Returns an argument as messages show it: a URL without a user, a password, a query and a fragment.
pub(crate) fn shown(argument: &str) -> String {
    let Some((scheme, rest)) = argument.split_once("://") else { return argument.to_string() };
    let rest = match rest.rsplit_once('@') {
        Some((before, rest)) if !is_container(scheme, before) => rest,
        _ => rest,
    };
    match rest.find(['?', '#']).and_then(|at| rest.get(..=at)) {
        Some(begin) => format!("{scheme}://{begin}.."),
        None => format!("{scheme}://{rest}"),
    }
}

/// Whether the text before the last @ of a URL names a container: `az://container@account/path`.
pub(crate) fn is_container(scheme: &str, before: &str) -> bool {
    scheme.eq_ignore_ascii_case("az") && !before.contains(':')
}

/// Undoes percent encoding; `None` if there is another text after a %.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut pieces = text.split('%');
    bytes.extend_from_slice(pieces.next()?.as_bytes());
    for piece in pieces {
        let digits = piece.get(..2).filter(|digits| !digits.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(piece.get(2..)?.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_user_and_query() {
        for (argument, expected) in [
            ("numbers", "numbers"),
            ("a@b?c", "a@b?c"),
            ("http://user:pa?s/s@h/x?token=1", "http://h/x?.."),
            ("--input=https://token@h/x", "--input=https://h/x"),
            ("az://container@account/x?sig=a@b", "az://container@account/x?.."),
            ("az://user:password@account/x", "az://account/x"),
            ("http://user:password@", "http://"),
            ("gs://bucket/x#fragment?", "gs://bucket/x#.."),
        ] {
            assert_eq!(shown(argument), expected);
        }
    }
}
