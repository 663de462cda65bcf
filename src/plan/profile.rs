//! What a data set is for: the one thing that a planner has to be told.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// What the reads will be like.
///
/// ```
/// use sharddb::Profile;
///
/// let profile: Profile = "remote".parse()?;
/// assert_eq!((profile, profile.as_str()), (Profile::Remote, "remote"));
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Profile {
    /// Read from this machine's memory or disk: 4 to 8 keys a minishard, raw index, shards of about 256 MiB.
    #[default]
    Local,
    /// Read over HTTP by web clients: 500 to 1000 keys a minishard, gzip index, shards of about 50 MB.
    Remote,
    /// The bits that cloud-volume computes for hashed keys: up to about 1400 keys a minishard and 512 minishards
    /// a shard, gzip index.
    CloudVolume,
}

impl Profile {
    /// All of them.
    pub const ALL: [Profile; 3] = [Profile::Local, Profile::Remote, Profile::CloudVolume];

    /// The name: `local`, `remote` or `cloudvolume`.
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

    /// Errors: `InvalidInput` unless it is one of the names.
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
    fn names_lead_back() {
        for profile in Profile::ALL {
            assert_eq!(profile.as_str().parse::<Profile>().unwrap(), profile);
        }
    }

    #[test]
    fn another_name_is_refused_with_the_choices() {
        let error = "Local".parse::<Profile>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("local, remote or cloudvolume") && error.message().contains("\"Local\""));
    }
}
