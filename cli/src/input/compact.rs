//! Removes insignificant white space from JSON.

/// Appends `json` to `out` without its white space outside of strings; everything else stays byte for byte.
///
/// `json` must be valid JSON.
pub(crate) fn compact(json: &str, out: &mut Vec<u8>) {
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' if !in_string => continue,
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ => {}
        }
        out.push(byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_white_space_and_nothing_else() {
        let cases = [
            ("null", "null"),
            (" [ 1 ,\t2 , 3.50 ] ", "[1,2,3.50]"),
            ("{ \"a b\" : \"c  d\" }", "{\"a b\":\"c  d\"}"),
            (r#"" \" x \\" "#, r#"" \" x \\""#),
            (r#"{"a": "\\", "b": " "}"#, r#"{"a":"\\","b":" "}"#),
            ("1e400", "1e400"),
            ("123456789012345678901234567890.10", "123456789012345678901234567890.10"),
            ("\"é \u{a0}\"", "\"é \u{a0}\""),
        ];
        for (json, expected) in cases {
            let mut out = Vec::new();
            compact(json, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{json}");
        }
    }
}
