//! How a data set will be read.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// How a data set will be read, which decides the sizes of its minishards and shards.
///
/// ```
/// use sharddb::Profile;
///
/// let profile: Profile = "remote".parse()?;
/// assert_eq!((profile, profile.as_str()), (Profile::Remote, "remote"));
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Profile {
    /// From memory or disk of the same machine: 4 to 8 keys per minishard, raw minishard indexes, shards of about 256 MiB.
    #[default]
    Local,
    /// Over HTTP by web clients: 500 to 1000 keys per minishard, gzip minishard indexes, shards of about 50 MB.
    Remote,
    /// The bits that cloud-volume computes for hashed keys: up to about 1400 keys per minishard and 512 minishards per
    /// shard, gzip minishard indexes.
    CloudVolume,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Profile; 3] = [Profile::Local, Profile::Remote, Profile::CloudVolume];

    /// Returns the name: `local`, `remote` or `cloudvolume`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Remote => "remote",
            Self::CloudVolume => "cloudvolume",
        }
    }
}

impl FromStr for Profile {
    type Err = Error;

    /// Parses the name of a profile, as [`as_str`](Profile::as_str) returns it.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for any other text.
    fn from_str(name: &str) -> Result<Profile> {
        Profile::ALL.into_iter().find(|profile| profile.as_str() == name).ok_or_else(|| {
            Error::invalid_input(format!("expected a profile local, remote or cloudvolume, found \"{name}\""))
        })
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn names_parse_to_their_profiles() {
        for profile in Profile::ALL {
            assert_eq!(profile.as_str().parse::<Profile>().unwrap(), profile);
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_with_the_choices() {
        let error = "Local".parse::<Profile>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("local, remote or cloudvolume") && error.message().contains("\"Local\""));
    }
}
