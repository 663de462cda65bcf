//! `ndjson`: one line per pair, with values in base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::failure::Result;
use crate::output::{Output, Target};

/// `{"key":"..","prefix_b64":"..","value_b64":".."}`; the prefix only if there is one.
pub(crate) struct Ndjson {
    target: Target,
    line: String,
}

impl Ndjson {
    pub(crate) fn new(target: Target) -> Ndjson {
        Ndjson { target, line: String::new() }
    }
}

impl Output for Ndjson {
    fn write(&mut self, key: u64, prefix: &[u8], value: &[u8]) -> Result<()> {
        self.line.clear();
        self.line.push_str("{\"key\":\"");
        self.line.push_str(&key.to_string());
        if !prefix.is_empty() {
            self.line.push_str("\",\"prefix_b64\":\"");
            STANDARD.encode_string(prefix, &mut self.line);
        }
        self.line.push_str("\",\"value_b64\":\"");
        STANDARD.encode_string(value, &mut self.line);
        self.line.push_str("\"}\n");
        self.target.write_all(self.line.as_bytes())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.target.finish()
    }
}
