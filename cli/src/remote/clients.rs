//! The client for a URL: credentials come from the environment and the usual files, never from the command line.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use http::uri::{Authority, Uri};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::{ClientOptions, ObjectStore, RetryConfig};

use crate::failure::{Failure, Result};
use crate::remote::aws_files::{self, Dispensable, Profile};
use crate::remote::connector::Connector;
use crate::remote::paged::Paged;
use crate::remote::patience::VARIABLE as TIMEOUT;
use crate::remote::traffic::Traffic;
use crate::remote::url::{RemoteUrl, Scheme};
use crate::secrets;
use crate::url_text::decoded;

/// The longest time that can be set: a day.
const MOST_SECONDS: u64 = 86_400;
/// The number of retries of one request.
const RETRIES: &str = "SHARDDB_REMOTE_RETRIES";

/// Where credentials for S3 come from.
const S3_CREDENTIALS: &str = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile in ~/.aws/credentials or \
     ~/.aws/config (AWS_PROFILE names it, AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE the files), or for a public bucket \
     AWS_SKIP_SIGNATURE=true";
const GS_CREDENTIALS: &str = "set GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT to a file, or run gcloud auth \
     application-default login, or for a public bucket set GOOGLE_SKIP_SIGNATURE=true";
const AZ_CREDENTIALS: &str = "set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_KEY, or AZURE_STORAGE_CLIENT_ID, \
     AZURE_STORAGE_CLIENT_SECRET and AZURE_STORAGE_TENANT_ID, or for a public container AZURE_SKIP_SIGNATURE=true";

/// What the client sends in headers.
const SENT_IN_HEADERS: [AmazonS3ConfigKey; 5] = [
    AmazonS3ConfigKey::AccessKeyId,
    AmazonS3ConfigKey::SecretAccessKey,
    AmazonS3ConfigKey::Token,
    AmazonS3ConfigKey::Region,
    AmazonS3ConfigKey::DefaultRegion,
];

/// An object store, and the names below its root at which a data set is.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) prefix: String,
    /// What its requests cost.
    pub(crate) traffic: Arc<Traffic>,
}

/// Makes the client for a URL. It sends nothing.
///
/// Errors: `Usage` if credentials or settings are not usable; `Io` for a file with credentials.
pub(crate) fn client(url: &RemoteUrl) -> Result<Client> {
    let proxies = env::vars_os().filter(|(name, _)| name.to_string_lossy().to_ascii_uppercase().ends_with("_PROXY"));
    proxies.for_each(|(_, value)| secrets::learn_url(&value));
    let retry = retry()?;
    let mut connector = Connector::default();
    let traffic = connector.traffic.clone();
    let store: Arc<dyn ObjectStore> = match url.scheme() {
        Scheme::S3 => {
            let builder = s3(url)?;
            let is_public = is_true(builder.get_config_value(&AmazonS3ConfigKey::SkipSignature));
            connector.credentials = (!is_public).then_some(S3_CREDENTIALS);
            let builder = builder.with_http_connector(connector).with_retry(retry);
            Arc::new(Paged::new(builder.build().map_err(|error| unusable(url, &error))?))
        }
        Scheme::Gs => {
            let builder = google(url)?;
            let is_public = is_true(builder.get_config_value(&GoogleConfigKey::SkipSignature));
            connector.credentials = (!is_public).then_some(GS_CREDENTIALS);
            let builder = builder.with_http_connector(connector).with_retry(retry);
            Arc::new(Paged::new(builder.build().map_err(|error| unusable(url, &error))?))
        }
        Scheme::Az => {
            let builder = azure(url)?;
            let is_public = is_true(builder.get_config_value(&AzureConfigKey::SkipSignature));
            let has_signed_urls = builder.get_config_value(&AzureConfigKey::SasKey).is_some();
            connector.credentials = (!is_public && !has_signed_urls).then_some(AZ_CREDENTIALS);
            let builder = builder.with_http_connector(connector).with_retry(retry);
            Arc::new(Paged::new(builder.build().map_err(|error| unusable(url, &error))?))
        }
        Scheme::Http | Scheme::Https => {
            let builder = HttpBuilder::new().with_url(url.to_string()).with_retry(retry);
            let builder = builder.with_client_options(options(url.scheme() == Scheme::Http)?);
            let connector = Connector { authorization: url.credentials().map(basic).transpose()?, ..connector };
            let store = builder.with_http_connector(connector).build().map_err(|error| unusable(url, &error))?;
            return Ok(Client { store: Arc::new(store), prefix: String::new(), traffic }); // the URL has the path
        }
    };
    Ok(Client { store, prefix: url.path().to_string(), traffic })
}

/// Whether a setting is on, as the clients read it.
fn is_true(setting: Option<String>) -> bool {
    setting.is_some_and(|it| matches!(it.to_ascii_lowercase().as_str(), "1" | "true" | "on" | "yes" | "y"))
}

/// The builder for S3 and what speaks its protocol.
///
/// Variables come before the files, as in the AWS command line.
fn s3(url: &RemoteUrl) -> Result<AmazonS3Builder> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(url.authority());
    let is_set = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_some();
    let has_keys = is_set(&builder, AmazonS3ConfigKey::AccessKeyId);
    let has_role = ["AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"];
    let has_role = has_role.iter().any(|variable| env::var_os(variable).is_some());
    let needs_no_keys = has_keys || has_role || is_true(builder.get_config_value(&AmazonS3ConfigKey::SkipSignature));
    let has_region = is_set(&builder, AmazonS3ConfigKey::Region) || is_set(&builder, AmazonS3ConfigKey::DefaultRegion);
    let dispensable = Dispensable { credentials: needs_no_keys, config: needs_no_keys && has_region };
    let Profile { keys, session_token, region, endpoint } = aws_files::profile(dispensable)?;
    if let (Some((id, secret)), false, false) = (keys, has_keys, has_role) {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret);
        builder = session_token.into_iter().fold(builder, AmazonS3Builder::with_token);
    }
    if let (Some(region), false) = (region, has_region) {
        builder = builder.with_region(region);
    }
    for key in [AmazonS3ConfigKey::SecretAccessKey, AmazonS3ConfigKey::Token] {
        learn(builder.get_config_value(&key));
    }
    for key in SENT_IN_HEADERS {
        builder.get_config_value(&key).map_or(Ok(()), |value| check_sent(key.as_ref(), &value))?;
    }
    let stated = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    let mut stated = stated.iter().filter_map(|key| builder.get_config_value(key));
    let endpoint = match (stated.next(), endpoint) {
        (Some(endpoint), _) => Some(endpoint),
        (None, Some(endpoint)) => {
            builder = builder.with_endpoint(&endpoint);
            Some(endpoint)
        }
        (None, None) => None,
    };
    endpoint.as_deref().map_or(Ok(()), check_endpoint)?;
    let allows_http = endpoint.is_some_and(|it| it.starts_with("http://")); // the user stated it
    Ok(builder.with_client_options(options(allows_http)?))
}

fn azure(url: &RemoteUrl) -> Result<MicrosoftAzureBuilder> {
    let mut builder = MicrosoftAzureBuilder::from_env();
    builder = match url.authority().split_once('@') {
        Some((container, account)) => builder.with_container_name(container).with_account(account),
        None => builder.with_container_name(url.authority()),
    };
    for key in [AzureConfigKey::AccessKey, AzureConfigKey::ClientSecret, AzureConfigKey::SasKey, AzureConfigKey::Token]
    {
        learn(builder.get_config_value(&key));
    }
    let endpoint = builder.get_config_value(&AzureConfigKey::Endpoint);
    endpoint.as_deref().map_or(Ok(()), check_endpoint)?;
    let allows_http = endpoint.is_some_and(|it| it.starts_with("http://"))
        || is_true(builder.get_config_value(&AzureConfigKey::UseEmulator));
    Ok(builder.with_client_options(options(allows_http)?))
}

fn google(url: &RemoteUrl) -> Result<GoogleCloudStorageBuilder> {
    let builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(url.authority());
    learn(builder.get_config_value(&GoogleConfigKey::ServiceAccountKey));
    learn(builder.get_config_value(&GoogleConfigKey::BearerToken));
    let endpoint = builder.get_config_value(&GoogleConfigKey::BaseUrl);
    endpoint.as_deref().map_or(Ok(()), check_endpoint)?;
    Ok(builder.with_client_options(options(endpoint.is_some_and(|it| it.starts_with("http://")))?))
}

/// Remembers a secret of the settings, as it is stated and as it is sent in a form. Of a shared access signature, `sig` alone is
/// secret.
fn learn(setting: Option<String>) {
    let Some(setting) = setting else { return };
    let signature = setting.split(['?', '&']).find_map(|pair| pair.strip_prefix("sig="));
    let secret = signature.map_or_else(|| setting.clone(), |it| decoded(it).unwrap_or_else(|| it.to_string()));
    let encoded: String = url::form_urlencoded::byte_serialize(secret.as_bytes()).collect();
    [setting, secret, encoded].iter().for_each(|secret| secrets::learn(secret));
}

/// Errors: `Usage` if `object_store` would panic, or name a password in its errors.
fn check_endpoint(endpoint: &str) -> Result<()> {
    let uri = endpoint.parse::<Uri>().ok().filter(|uri| matches!(uri.scheme_str(), Some("http" | "https")));
    let authority = uri.as_ref().and_then(Uri::authority).map_or("", Authority::as_str);
    let found = match () {
        () if endpoint.contains('@') => "one with a user or a password".to_string(),
        () if authority.is_empty() => format!("{:?}", endpoint.split('?').next().unwrap_or_default()),
        () => return Ok(()),
    };
    Err(Failure::usage(format!("expected an endpoint such as https://storage.example.org:9000, found {found}")))
}

/// Errors: `Usage` if a header cannot have the value, for which `object_store` would panic.
fn check_sent(name: &str, value: &str) -> Result<()> {
    match HeaderValue::from_str(value) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::usage(format!("expected printable ASCII in {name}, found other characters"))),
    }
}

fn options(allows_http: bool) -> Result<ClientOptions> {
    let options = ClientOptions::new().with_allow_http(allows_http);
    Ok(match number(TIMEOUT)? {
        Some(seconds) if !(1..=MOST_SECONDS).contains(&seconds) => {
            return Err(Failure::usage(format!(
                "expected {TIMEOUT} from 1 to {MOST_SECONDS} seconds, found {seconds}"
            )));
        }
        Some(seconds) => options.with_read_timeout(Duration::from_secs(seconds)),
        None => options,
    })
}

/// The defaults of the client, 10 retries within 3 minutes, unless the environment states another number.
fn retry() -> Result<RetryConfig> {
    let mut retry = RetryConfig::default();
    if let Some(retries) = number(RETRIES)? {
        retry.max_retries = usize::try_from(retries).unwrap_or(usize::MAX);
    }
    Ok(retry)
}

/// The number in a variable of the environment.
fn number(variable: &str) -> Result<Option<u64>> {
    let Some(text) = env::var_os(variable) else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.parse().ok());
    let number = number.ok_or_else(|| {
        Failure::usage(format!("expected a whole number in {variable}, found {}", text.to_string_lossy()))
    })?;
    Ok(Some(number))
}

/// `Authorization` for a user and a password.
fn basic(credentials: &str) -> Result<HeaderValue> {
    let value = format!("Basic {}", STANDARD.encode(credentials));
    let mut value = HeaderValue::from_str(&value).map_err(|error| Failure::Internal(error.to_string()))?;
    value.set_sensitive(true);
    Ok(value)
}

fn unusable(url: &RemoteUrl, error: &object_store::Error) -> Failure {
    Failure::usage(format!("cannot make a client for {url}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_have_a_scheme_and_a_host_and_no_password() {
        for endpoint in ["http://127.0.0.1:9000", "https://storage.example.org", "http://localhost:9000/prefix/"] {
            check_endpoint(endpoint).unwrap();
        }
        for endpoint in ["", "127.0.0.1:9000", "localhost:9000", "x", "http://", "http://h/ x", "ftp://h", "http://h\n"]
        {
            let message = check_endpoint(endpoint).unwrap_err().to_string();
            assert!(message.contains(&format!("found {endpoint:?}")), "{message}");
        }
        let message = check_endpoint("http://user:secret@127.0.0.1:9000").unwrap_err().to_string();
        assert!(!message.contains("secret"), "{message}");
    }

    #[test]
    fn what_is_sent_in_headers_is_printable() {
        check_sent("aws_region", "us-east-1").unwrap();
        for value in ["us\neast", "key\0", "\u{7f}"] {
            let message = check_sent("aws_region", value).unwrap_err().to_string();
            assert!(message.contains("aws_region") && !message.contains(value), "{message}");
        }
    }
}
