//! The secret in every URL. Clients of the format send no headers of their own, so it is a part of the path.

use std::fmt;
use std::io;
use std::path::Path;

use sharddb::{Error, Result};

/// 128 random bits as 32 hex digits.
#[derive(Clone)]
pub(crate) struct Token(String);

impl Token {
    /// Errors: `Io` if the operating system has no random bits.
    pub(crate) fn random() -> Result<Token> {
        let mut bytes = [0; 16];
        let failure = |error: getrandom::Error| {
            Error::io("make a random token", Path::new(""), io::Error::other(error.to_string()))
        };
        getrandom::fill(&mut bytes).map_err(failure)?;
        Ok(Token(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Whether a name is this token. Takes the same time for every name of the same length.
    pub(crate) fn is(&self, name: &str) -> bool {
        let differences = self.0.bytes().zip(name.bytes()).fold(0, |seen, (own, other)| seen | (own ^ other));
        self.0.len() == name.len() && differences == 0
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_itself_and_no_other() {
        let (token, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_eq!(token.as_str().len(), 32);
        assert!(token.is(token.as_str()));
        for name in [other.as_str(), "", &token.as_str()[..31], &format!("{}0", token.as_str())] {
            assert!(!token.is(name), "{name}");
        }
        assert_eq!(format!("{token:?}"), "Token(..)");
    }
}
