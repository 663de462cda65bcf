//! Escapes text from files, names and arguments for a terminal.
//!
//! A control character can move the cursor, rename the window or type into some terminals. A bidirectional control
//! character can change the order in which text is shown. Both are escaped as in a Rust literal: `\u{1b}`. Only this
//! module decides which characters these are. Data (values, exported pairs, JSON) is not escaped.

use std::fmt::{self, Display, Write};
use std::path::Path;

/// Escapes `text` for one line: line breaks are escaped too, so that it cannot forge another line.
pub(crate) fn line<T: Display>(text: T) -> Printable<T> {
    Printable { text, layout: &[] }
}

/// Escapes `text` of several lines: line breaks and tabs stay.
pub(crate) fn lines<T: Display>(text: T) -> Printable<T> {
    Printable { text, layout: &['\n', '\t'] }
}

/// A text whose control characters are escaped when it is formatted.
pub(crate) struct Printable<T> {
    text: T,
    /// Control characters that are not escaped.
    layout: &'static [char],
}

impl<T: Display> Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escape { to: f, layout: self.layout }, "{}", self.text)
    }
}

/// A path as one word of a shell, for command lines in messages.
pub(crate) fn word(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:@%,".contains(&byte) || !byte.is_ascii();
    if !text.is_empty() && text.bytes().all(is_plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

/// Whether a terminal may interpret the character instead of showing it.
fn is_control(c: char) -> bool {
    // C0, DEL and C1; the marks, embeddings, overrides and isolates of the bidirectional algorithm
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A writer that escapes what is written through it.
struct Escape<'a, W> {
    to: &'a mut W,
    layout: &'static [char],
}

impl<W: Write> Write for Escape<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for part in text.split_inclusive(|c| is_control(c) && !self.layout.contains(&c)) {
            match part.chars().next_back().filter(|c| is_control(*c) && !self.layout.contains(c)) {
                Some(control) => {
                    self.to.write_str(part.strip_suffix(control).unwrap_or(part))?;
                    write!(self.to, "{}", control.escape_default())?;
                }
                None => self.to.write_str(part)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_and_bidirectional_characters_are_escaped() {
        // ISO 6429: C0 is 00 to 1f, C1 is 80 to 9f, DEL is 7f; UAX #9, section 2: the twelve formatting characters
        let c0_c1_del = (0..=0x1f).chain(0x7f..=0x9f);
        let bidi = [0x61c, 0x200e, 0x200f].into_iter().chain(0x202a..=0x202e).chain(0x2066..=0x2069);
        let mut escaped = 0;
        for c in c0_c1_del.chain(bidi).filter_map(char::from_u32) {
            let text = line(format!("a{c}b{c}")).to_string();
            assert!(text.is_ascii() && !text.chars().any(is_control), "{:#x}: {text}", u32::from(c));
            assert!(text.starts_with("a\\") && text.contains("b\\"), "{text}");
            escaped += 1;
        }
        assert_eq!(escaped, 32 + 33 + 12);
    }

    #[test]
    fn everything_else_stays() {
        let text = "Größe \\u{1b} 値 \u{1f600} \u{a0}\u{200d}\u{2028} \"'<";
        assert_eq!(line(text).to_string(), text);
        assert_eq!(line("").to_string(), "");
    }

    #[test]
    fn only_texts_of_several_lines_have_line_breaks() {
        let text = "a\tb\nc\r\n\x1b[2J\u{202e}";
        assert_eq!(line(text).to_string(), r"a\tb\nc\r\n\u{1b}[2J\u{202e}");
        assert_eq!(lines(text).to_string(), "a\tb\nc\\r\n\\u{1b}[2J\\u{202e}");
    }

    #[test]
    fn a_character_is_escaped_wherever_the_writes_are_cut() {
        assert_eq!(line(format_args!("{}{}{}", "a\x1b", "\x1b", "]0;")).to_string(), r"a\u{1b}\u{1b}]0;");
    }
}
