//! What a text begins with that is no text: a byte order mark, or the magic number of a compressed file.

const UTF_8: &str = "a byte order mark of UTF-8: remove it, for example with sed '1s/^\\xEF\\xBB\\xBF//'";
const UTF_16: &str = "a byte order mark of UTF-16: convert the text, for example with iconv -f UTF-16 -t UTF-8";
const GZIP: &str = "gzip: name the file .gz, or add .gz to its --format";
const ZSTD: &str = "zstd: name the file .zst, or add .zst to its --format";

/// Names the mark or magic number at the beginning of a text, and what to do about it.
pub(crate) fn describe(text: &[u8]) -> Option<&'static str> {
    match text {
        [0xef, 0xbb, 0xbf, ..] => Some(UTF_8),
        _ => describe_unless_utf_8(text),
    }
}

/// Like [`describe`], for a format in which a mark of UTF-8 is skipped.
pub(crate) fn describe_unless_utf_8(text: &[u8]) -> Option<&'static str> {
    match text {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => Some(UTF_16),
        [0x1f, 0x8b, ..] => Some(GZIP),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(ZSTD),
        _ => None,
    }
}
