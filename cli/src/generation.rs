//! Generations on the command line.

use sharddb::GenerationId;

/// Parses the name of a generation: `gen-0000000003`, `gen-3`, or just `3`.
pub(crate) fn parse_generation(text: &str) -> Result<GenerationId, String> {
    let number = text.strip_prefix("gen-").unwrap_or(text);
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let id = match number.parse::<u64>() {
        Ok(number) if digits => GenerationId::new(number),
        _ => text.parse(),
    };
    id.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_named_or_numbered() {
        for text in ["3", "0000000003", "gen-3", "gen-0000000003"] {
            assert_eq!(parse_generation(text).map(GenerationId::get), Ok(3), "{text}");
        }
        for text in ["", "-3", "+3", "gen-", "gen-+3", "gen-gen-3", "gen-0000000003/", "99999999999", "current"] {
            assert!(parse_generation(text).is_err(), "{text}");
        }
    }
}
