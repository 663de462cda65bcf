//! `--sharding FILE|JSON`: a specification from the command line or from a file.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;
use sharddb::ShardingSpec;

use crate::failure::{Failure, Place, Result};

/// Reads a specification from the argument, or from the file that it names: the object itself, or a JSON object with a
/// member "sharding".
///
/// Errors: `Io` if the file cannot be read; `Usage` for an invalid object, `Malformed` for an invalid file.
pub(crate) fn read(argument: &str) -> Result<ShardingSpec> {
    if argument.trim_start().starts_with('{') {
        return parse(argument).map_err(|error| Failure::usage(format!("--sharding: {error}")));
    }
    let path = Path::new(argument);
    let text = fs::read_to_string(path).map_err(|error| Failure::io("read", path, error))?;
    parse(&text).map_err(|error| Failure::malformed(argument, Place::Whole, error.to_string()))
}

fn parse(text: &str) -> sharddb::Result<ShardingSpec> {
    ShardingSpec::from_json(member(text).unwrap_or(text))
}

/// The text of the member "sharding" of a JSON object; `None` if it has none.
pub(crate) fn member(text: &str) -> Option<&str> {
    #[derive(Deserialize)]
    struct Info<'a> {
        #[serde(borrow)]
        sharding: &'a RawValue,
    }
    serde_json::from_str(text).ok().map(|info: Info<'_>| info.sharding.get())
}

#[cfg(test)]
mod tests {
    use sharddb::spec::HashFunction;

    use super::*;

    fn spec() -> ShardingSpec {
        ShardingSpec::new(HashFunction::MurmurHash3X86_128, 1, 2, 3).unwrap()
    }

    #[test]
    fn takes_the_object_itself_or_a_member() {
        let object = spec().to_json();
        let info = format!("{{\"@type\": \"mesh\", \"sharding\": {object}}}");
        assert_eq!(read(&object).unwrap(), spec());
        assert_eq!(read(&format!("  {info}")).unwrap(), spec());
        let dir = tempfile::tempdir().unwrap();
        for text in [&object, &info] {
            let path = dir.path().join("spec.json");
            fs::write(&path, text).unwrap();
            assert_eq!(read(path.to_str().unwrap()).unwrap(), spec());
        }
    }

    #[test]
    fn tells_a_missing_file_from_a_bad_specification() {
        assert!(matches!(read("there/is/no/such"), Err(Failure::Io { .. })));
        for text in ["{}", "{\"sharding\": 7}", "{\"sharding\": {}}", "{"] {
            assert!(matches!(read(text), Err(Failure::Usage(_))), "{text}");
        }
    }
}
