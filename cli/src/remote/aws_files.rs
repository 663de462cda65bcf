//! The files of the AWS command line: `~/.aws/credentials` and `~/.aws/config`, which the client does not read.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::failure::{Failure, Result};

/// What a profile states.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Profile {
    /// Access key and secret.
    pub(crate) keys: Option<(String, String)>,
    /// The token of temporary keys.
    pub(crate) session_token: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) endpoint: Option<String>,
}

/// Which files may be unreadable, because variables state what is needed of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dispensable {
    pub(crate) credentials: bool,
    pub(crate) config: bool,
}

/// Returns the profile that `AWS_PROFILE` names, by default `default`. Without files it is empty.
///
/// Errors: `Usage` if the named profile does not exist, or gets its keys in a way that is not supported; `Io`.
pub(crate) fn profile(dispensable: Dispensable) -> Result<Profile> {
    let named = env::var("AWS_PROFILE").or_else(|_| env::var("AWS_DEFAULT_PROFILE")).ok().filter(|it| !it.is_empty());
    let credentials = text_of("AWS_SHARED_CREDENTIALS_FILE", "credentials", dispensable.credentials)?;
    let config = text_of("AWS_CONFIG_FILE", "config", dispensable.config)?;
    profile_in(named.as_deref(), &credentials, &config)
}

/// The text of a file; empty if there is none, or if it is dispensable and cannot be read.
fn text_of(variable: &str, name: &str, is_dispensable: bool) -> Result<String> {
    let usual = || env::home_dir().map(|home| home.join(".aws").join(name));
    let Some(path) = env::var_os(variable).map(PathBuf::from).or_else(usual) else { return Ok(String::new()) };
    match fs::read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if is_dispensable || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(String::new())
        }
        Err(error) => Err(Failure::io("read", &path, error)),
    }
}

fn profile_in(named: Option<&str>, credentials: &str, config: &str) -> Result<Profile> {
    let name = named.unwrap_or("default");
    let own = section(credentials, &[name]);
    let general = match name {
        "default" => section(config, &["profile default", "default"]),
        other => section(config, &[&format!("profile {other}")]),
    };
    if own.is_none() && general.is_none() && named.is_some() {
        return Err(Failure::usage(format!(
            "expected the profile that AWS_PROFILE names, found no section for {name} in the files credentials and config \
             of ~/.aws"
        )));
    }
    let (own, general) = (own.unwrap_or_default(), general.unwrap_or_default());
    let member = |key: &str| own.get(key).or_else(|| general.get(key)).filter(|it| !it.is_empty()).cloned();
    let keys = member("aws_access_key_id").zip(member("aws_secret_access_key"));
    if keys.is_none() && named.is_some() {
        let other = ["role_arn", "sso_session", "sso_start_url", "credential_process", "login_session"];
        if let Some(found) = other.into_iter().find(|key| member(key).is_some()) {
            return Err(Failure::usage(format!(
                "expected access keys in the AWS profile {name}, found {found}, which is not supported: run eval \
                 \"$(aws configure export-credentials --profile {name} --format env)\" first"
            )));
        }
    }
    let (session_token, region) = (member("aws_session_token"), member("region"));
    Ok(Profile { keys, session_token, region, endpoint: member("endpoint_url") })
}

/// The members of the first section with one of the names, whatever its position; `None` if there is none.
fn section(text: &str, names: &[&str]) -> Option<HashMap<String, String>> {
    names.iter().find_map(|name| members(text, name))
}

fn members(text: &str, name: &str) -> Option<HashMap<String, String>> {
    let mut found: Option<HashMap<String, String>> = None;
    let mut is_inside = false;
    for line in text.lines() {
        let is_nested = line.starts_with([' ', '\t']); // a member of a member: `s3 =` and lines below it
        let line = line.trim();
        if line.starts_with(['#', ';']) || line.is_empty() {
            continue;
        }
        if let Some(header) = line.strip_prefix('[') {
            let header = header.split(']').next().unwrap_or_default();
            is_inside = header.split_whitespace().eq(name.split_whitespace());
            if is_inside {
                found.get_or_insert_default();
            }
        } else if let (true, false, Some((key, value))) = (is_inside, is_nested, line.split_once('=')) {
            let value = value.split(" #").next().unwrap_or_default();
            found.get_or_insert_default().insert(key.trim().to_ascii_lowercase(), value.trim().to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "\
# a comment
[default]
aws_access_key_id = AKDEFAULT
aws_secret_access_key=s3cr=t   # after a value

[work]
AWS_ACCESS_KEY_ID = AKWORK
aws_secret_access_key = other
aws_session_token = token
";

    const CONFIG: &str = "\
[default]
region = eu-west-1
s3 =
  endpoint_url = http://nested.invalid
[profile  work]
endpoint_url = http://127.0.0.1:9000
region = us-east-2
[profile sso]
sso_session = corp
";

    fn keys(id: &str, secret: &str) -> Option<(String, String)> {
        Some((id.to_string(), secret.to_string()))
    }

    #[test]
    fn a_profile_has_members_of_both_files() {
        let default = profile_in(None, CREDENTIALS, CONFIG).unwrap();
        assert_eq!(default.keys, keys("AKDEFAULT", "s3cr=t"));
        assert_eq!(
            (default.region.as_deref(), default.endpoint, default.session_token),
            (Some("eu-west-1"), None, None)
        );
        let work = profile_in(Some("work"), CREDENTIALS, CONFIG).unwrap();
        assert_eq!((work.keys, work.session_token.as_deref()), (keys("AKWORK", "other"), Some("token")));
        assert_eq!(
            (work.region.as_deref(), work.endpoint.as_deref()),
            (Some("us-east-2"), Some("http://127.0.0.1:9000"))
        );
    }

    #[test]
    fn without_files_the_default_profile_is_empty() {
        assert_eq!(profile_in(None, "", "").unwrap(), Profile::default());
        assert_eq!(profile_in(None, "[broken\n= x\nno equals\n]", "").unwrap(), Profile::default());
    }

    #[test]
    fn a_named_profile_must_exist_and_have_keys() {
        let error = profile_in(Some("absent"), CREDENTIALS, CONFIG).unwrap_err().to_string();
        assert!(error.contains("no section for absent"), "{error}");
        let error = profile_in(Some("sso"), CREDENTIALS, CONFIG).unwrap_err().to_string();
        assert!(error.contains("found sso_session") && error.contains("export-credentials --profile sso"), "{error}");
    }
}
