//! What a mark records about a publication.

use super::members::{Kind, Members, VERSION};
use crate::error::{Error, Result};
use crate::format::digest::Digest;
use crate::format::spec::ShardingSpec;
use crate::store::GenerationId;
use crate::write::Published;

const KIND: Kind = Kind {
    noun: "the mark of a publication",
    tag: "sharddb_publication",
    names: &["generation", "manifest", "sharding", "keys", "value_bytes", "file_bytes", "shards", "dropped"],
    most: 64 << 10,
};

/// A generation that is about to become current, or has been.
pub(super) struct Publication {
    pub(super) published: Published,
    /// The digest of the manifest, by which the generation is recognised.
    pub(super) manifest: Digest,
}

impl Publication {
    pub(super) fn to_json(&self) -> String {
        let Published { generation, spec, keys, value_bytes, file_bytes, shards, dropped } = &self.published;
        format!(
            "{{\"{}\":{VERSION},\"generation\":\"{generation}\",\"manifest\":\"{}\",\"sharding\":{},\"keys\":{keys},\
             \"value_bytes\":{value_bytes},\"file_bytes\":{file_bytes},\"shards\":{shards},\"dropped\":{dropped}}}\n",
            KIND.tag,
            self.manifest,
            spec.to_json(),
        )
    }

    /// Errors: `Corrupt` if the text is not that of a mark.
    pub(super) fn parse(text: &str) -> Result<Publication> {
        read(text).map_err(|error| Error::corrupt(error.message().to_string()))
    }
}

fn read(text: &str) -> Result<Publication> {
    let members = Members::parse(text, &KIND)?;
    let published = Published {
        generation: members.parsed::<GenerationId>("generation")?,
        spec: ShardingSpec::from_value(members.raw("sharding")?)?,
        keys: members.required("keys")?,
        value_bytes: members.required("value_bytes")?,
        file_bytes: members.required("file_bytes")?,
        shards: members.required("shards")?,
        dropped: members.required("dropped")?,
    };
    Ok(Publication { published, manifest: members.parsed("manifest")? })
}
