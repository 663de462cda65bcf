//! HTTP for the clients: redirects, credentials that stay with their host and out of messages, and bounded bodies.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::header::{
    ACCEPT, AUTHORIZATION, CONTENT_RANGE, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_NONE_MATCH, LOCATION, RANGE,
    USER_AGENT,
};
use http::{Method, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use object_store::ClientConfigKey;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use sharddb_remote::UnknownLength;
use url::Url;

use crate::remote::patience::Patience;
use crate::remote::traffic::Traffic;
use crate::secrets;

/// The patience with a server unless the options state another one.
const USUAL_PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of redirects of one request.
const MOST_REDIRECTS: usize = 5;
/// Maximum number of bytes that are read of the body of an error.
const LONGEST_ERROR: usize = 16 << 10;
/// Maximum number of bytes of an answer that is not an object. The client collects it in memory: a page of a listing, for
/// example, with up to 5,000 names of a few KiB.
const LONGEST_DOCUMENT: usize = 64 << 20;
/// The headers that another host gets after a redirect: none that could be a credential.
const FORWARDED: [HeaderName; 5] = [ACCEPT, IF_MATCH, IF_NONE_MATCH, RANGE, USER_AGENT];

/// Makes clients that follow redirects by the rules of this module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Connector {
    /// `Authorization` of requests to the host of a URL with a user and a password.
    pub(crate) authorization: Option<HeaderValue>,
    /// Where credentials come from, for the error of a request for some. `None` if requests for data have none in headers.
    pub(crate) credentials: Option<&'static str>,
    /// Counts the requests.
    pub(crate) traffic: Arc<Traffic>,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let fail = |source| object_store::Error::Generic { store: "HTTP", source };
        let patience = duration(options, ClientConfigKey::ReadTimeout).map_err(fail)?.unwrap_or(USUAL_PATIENCE);
        let client = HttpClient::new(client(options, patience).map_err(fail)?);
        Ok(HttpClient::new(Service { client, patience: Patience(patience), connector: self.clone() }))
    }
}

type BoxedError = Box<dyn std::error::Error + Send + Sync>;

fn duration(options: &ClientOptions, key: ClientConfigKey) -> Result<Option<Duration>, BoxedError> {
    Ok(options.get_config_value(&key).map(|text| humantime::parse_duration(&text)).transpose()?)
}

/// The client below: it follows no redirects and decodes nothing.
fn client(options: &ClientOptions, patience: Duration) -> Result<reqwest::Client, BoxedError> {
    let client = builder(options, patience)?.build();
    #[cfg(all(unix, not(target_vendor = "apple")))]
    if client.is_err()
        && let Some(roots) = own_roots()?
    {
        return Ok(builder(options, patience)?.tls_certs_only(roots).build()?);
    }
    Ok(client?)
}

fn builder(options: &ClientOptions, patience: Duration) -> Result<reqwest::ClientBuilder, BoxedError> {
    _ = rustls::crypto::ring::default_provider().install_default(); // an error if an earlier client has done it
    let mut builder = reqwest::ClientBuilder::new()
        .user_agent(concat!("sharddb/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .http1_only() // faster than version 2 for many small reads
        .https_only(options.get_config_value(&ClientConfigKey::AllowHttp).is_none_or(|it| it != "true"));
    #[cfg(target_os = "linux")]
    {
        builder = builder.tcp_user_timeout(patience); // a server that takes no bytes of an upload
    }
    #[cfg(not(target_os = "linux"))]
    let _ = patience; // such a server is waited for as long as the system does
    if let Some(timeout) = duration(options, ClientConfigKey::ConnectTimeout)? {
        builder = builder.connect_timeout(timeout);
    }
    if let Some(proxy) = options.get_config_value(&ClientConfigKey::ProxyUrl) {
        builder = builder.proxy(reqwest::Proxy::all(proxy)?);
    }
    Ok(builder)
}

/// Returns the root certificates of this program if the system has none, as in a minimal container; `None` if it has some.
///
/// Errors: `SSL_CERT_FILE` or `SSL_CERT_DIR` is set, and names none: the user has chosen which roots to trust.
#[cfg(all(unix, not(target_vendor = "apple")))]
fn own_roots() -> Result<Option<Vec<reqwest::Certificate>>, BoxedError> {
    if !rustls_native_certs::load_native_certs().certs.is_empty() {
        return Ok(None);
    }
    if ["SSL_CERT_FILE", "SSL_CERT_DIR"].iter().any(|name| std::env::var_os(name).is_some()) {
        return Err("SSL_CERT_FILE and SSL_CERT_DIR name no certificate that can be read".into());
    }
    let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().map(|root| reqwest::Certificate::from_der(root));
    Ok(Some(roots.collect::<Result<_, _>>()?))
}

#[derive(Debug)]
struct Service {
    client: HttpClient,
    patience: Patience,
    connector: Connector,
}

impl Service {
    /// Makes one request.
    async fn execute(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let traffic = &self.connector.traffic;
        traffic.count_request(&request);
        let response = self.patience.wait(request, async |request| self.client.execute(request).await).await?;
        Ok(traffic.count_response(response))
    }
}

#[async_trait::async_trait]
impl HttpService for Service {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if let Some(authorization) = &self.connector.authorization {
            request.headers_mut().insert(AUTHORIZATION, authorization.clone());
        }
        learn_secrets(&request);
        let is_object = request.method() == Method::GET && !is_listing(request.uri());
        // a request for data is signed, one for credentials is not
        match self.connector.credentials.filter(|_| !request.headers().contains_key(AUTHORIZATION)) {
            Some(advice) => with_advice(advice, self.answer(request).await).await.map(bounded),
            None if is_object => self.answer(request).await,
            None => self.answer(request).await.map(bounded),
        }
    }
}

/// Remembers what a server may repeat in an error.
fn learn_secrets(request: &HttpRequest) {
    let is_secret = |name: &HeaderName, value: &HeaderValue| {
        *name == AUTHORIZATION || name.as_str() == "x-amz-security-token" || value.is_sensitive()
    };
    let headers = request.headers().iter().filter(|(name, value)| is_secret(name, value));
    for text in headers.filter_map(|(_, value)| value.to_str().ok()) {
        let last = text.rsplit(' ').next().unwrap_or_default(); // after `Basic`, for example
        secrets::learn_sent(last.strip_prefix("Signature=").unwrap_or(last));
    }
}

/// Whether a request is for a page of a listing, of S3 and Google or of Azure.
fn is_listing(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|pair| matches!(pair, "list-type=2" | "comp=list")))
}

/// The response with a body that fails if it is longer than any answer that is not an object.
fn bounded(response: HttpResponse) -> HttpResponse {
    let too_long = || {
        let most = LONGEST_DOCUMENT >> 20;
        refused(format!(
            "expected an answer of at most {most} MiB, as a page of a listing is, found more: check the endpoint"
        ))
    };
    response.map(|body| {
        let limited = Limited::new(body, LONGEST_DOCUMENT);
        HttpResponseBody::new(
            limited.map_err(move |error| error.downcast().map_or_else(|_| too_long(), |error| *error)),
        )
    })
}

impl Service {
    /// Makes a request, and follows redirects of reads.
    async fn answer(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(checked(self.execute(request).await?).await);
        }
        let (mut from, mut headers) = (parsed(request.uri())?, request.headers().clone());
        for _ in 0..=MOST_REDIRECTS {
            let mut next = HttpRequest::new(HttpRequestBody::empty());
            *next.method_mut() = request.method().clone();
            *next.headers_mut() = headers.clone();
            *next.uri_mut() = from.as_str().parse().map_err(|error| unusable(&from, error))?;
            let response = self.execute(next).await?;
            let Some(to) = redirect(&from, &response)? else { return Ok(checked(response).await) };
            if to.origin() != from.origin() {
                headers = forwarded(&headers);
            }
            from = to;
        }
        Err(refused(format!("more than {MOST_REDIRECTS} redirects, the last one to {}", without_secrets(&from))))
    }
}

/// The answer to a request for credentials. A failure says where else they could come from: without any, a client asks the
/// metadata service of a cloud, which other machines do not have.
async fn with_advice(advice: &str, answer: Result<HttpResponse, HttpError>) -> Result<HttpResponse, HttpError> {
    let advised = |found: &str| format!("cannot get credentials: {advice}; the credentials service answered: {found}");
    match answer {
        Ok(response) if response.status().is_success() => Ok(response),
        Ok(response) => {
            let (parts, body) = response.into_parts();
            let text = advised(&beginning_of(body).await);
            Ok(HttpResponse::from_parts(parts, HttpResponseBody::from(text)))
        }
        Err(error) => Err(HttpError::new_boxed(error.kind(), advised(&error.to_string()).into())),
    }
}

/// The place that a response redirects to; `None` if it does not.
///
/// Errors: no URL of a web server, or one without TLS after one with it.
fn redirect(from: &Url, response: &HttpResponse) -> Result<Option<Url>, HttpError> {
    let status = response.status();
    let is_redirect = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = response.headers().get(LOCATION).filter(|_| is_redirect) else { return Ok(None) };
    let to = location.to_str().ok().and_then(|location| from.join(location).ok());
    let Some(mut to) = to.filter(|to| matches!(to.scheme(), "http" | "https") && to.has_host()) else {
        return Err(refused(format!("a redirect ({status}) to something else than a URL of a web server")));
    };
    if from.scheme() == "https" && to.scheme() == "http" {
        let to = without_secrets(&to);
        return Err(refused(format!("a redirect ({status}) from https to {to}, which anybody on the way can change")));
    }
    // a user and a password that the server invents are not sent
    let _ = to.set_username("");
    let _ = to.set_password(None);
    Ok(Some(to))
}

/// The headers that another host gets.
fn forwarded(headers: &HeaderMap) -> HeaderMap {
    let names = FORWARDED.into_iter();
    names.filter_map(|name| headers.get(&name).cloned().map(|value| (name, value))).collect()
}

/// The response with a short body if it is an error, and without a range that no object has. A range of an object of unknown
/// length gets one that the client accepts, and is marked.
async fn checked(response: HttpResponse) -> HttpResponse {
    let (mut parts, body) = response.into_parts();
    if parts.headers.get(CONTENT_RANGE).is_some_and(|range| !is_possible(range)) {
        parts.headers.remove(CONTENT_RANGE);
    }
    if let Some(range) = parts.headers.get(CONTENT_RANGE).and_then(with_length) {
        parts.headers.insert(CONTENT_RANGE, range);
        parts.extensions.insert(UnknownLength);
    }
    if parts.status.is_success() || parts.status == StatusCode::NOT_MODIFIED {
        return HttpResponse::from_parts(parts, body);
    }
    let beginning = beginning_of(body).await;
    HttpResponse::from_parts(parts, HttpResponseBody::from(beginning))
}

/// A Content-Range that ends with the object, if it states no length: `bytes 0-63/64` for `bytes 0-63/*`.
fn with_length(range: &HeaderValue) -> Option<HeaderValue> {
    let range = range.to_str().ok()?.strip_suffix("/*")?;
    let last: u64 = range.rsplit_once('-')?.1.parse().ok()?;
    HeaderValue::from_str(&format!("{range}/{}", last.checked_add(1)?)).ok()
}

/// The first bytes of a body, as far as they arrive, without secrets.
async fn beginning_of(mut body: HttpResponseBody) -> String {
    let mut bytes = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(piece) = frame.into_data() {
            bytes.extend_from_slice(&piece);
        }
        if bytes.len() > LONGEST_ERROR {
            bytes.truncate(LONGEST_ERROR);
            break;
        }
    }
    secrets::hide_in_beginning(&String::from_utf8_lossy(&bytes))
}

/// Whether all numbers of a Content-Range are lengths of objects; the client computes with them unchecked.
fn is_possible(range: &HeaderValue) -> bool {
    let is_length = |number: &str| number.parse::<i64>().is_ok();
    let text = range.to_str().unwrap_or_default();
    text.split(|c: char| !c.is_ascii_digit()).filter(|number| !number.is_empty()).all(is_length)
}

fn parsed(uri: &Uri) -> Result<Url, HttpError> {
    uri.to_string().parse().map_err(|_| refused("expected a URL".to_string()))
}

fn unusable(url: &Url, error: impl fmt::Display) -> HttpError {
    refused(format!("a redirect to {}, which cannot be requested: {error}", without_secrets(url)))
}

/// A URL as messages show it: a query may be a signature.
fn without_secrets(url: &Url) -> String {
    let (mut url, has_query) = (url.clone(), url.query().is_some());
    url.set_query(None);
    if has_query { format!("{url}?..") } else { url.to_string() }
}

/// An answer that is not used. It is not requested again.
fn refused(message: String) -> HttpError {
    HttpError::new_boxed(HttpErrorKind::Decode, message.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_host_gets_no_credentials() {
        let names =
            ["authorization", "x-amz-security-token", "x-amz-date", "cookie", "x-ms-version", "range", "if-match"];
        let headers: HeaderMap =
            names.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("x"))).into_iter().collect();
        let mut left: Vec<_> = forwarded(&headers).keys().map(|name| name.as_str().to_string()).collect();
        left.sort();
        assert_eq!(left, ["if-match", "range"]);
    }

    fn response(status: u16, location: &str) -> HttpResponse {
        let response = http::Response::builder().status(status).header(LOCATION, location);
        response.body(HttpResponseBody::from(Vec::new())).unwrap()
    }

    #[test]
    fn redirects_lead_to_web_servers_and_not_away_from_tls() {
        let from: Url = "https://host/a/b?sig=1".parse().unwrap();
        let to = |status, location| redirect(&from, &response(status, location));
        assert_eq!(to(302, "../c").unwrap().unwrap().as_str(), "https://host/c");
        assert_eq!(to(307, "https://u:p@other:1/c?x").unwrap().unwrap().as_str(), "https://other:1/c?x");
        assert!(to(200, "https://other/").unwrap().is_none() && to(304, "https://other/").unwrap().is_none());
        for (location, message) in [
            ("http://host/a?secret", "from https to http://host/a?.., which"),
            ("file:///etc/passwd", "something else than a URL of a web server"),
            ("https://", "something else"),
        ] {
            let error = to(301, location).unwrap_err().to_string();
            assert!(error.contains(message) && !error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_range_without_a_length_gets_the_least_one() {
        for (range, expected) in [
            ("bytes 0-63/*", Some("bytes 0-63/64")),
            (
                "bytes 9223372036854775806-9223372036854775807/*",
                Some("bytes 9223372036854775806-9223372036854775807/9223372036854775808"),
            ),
            ("bytes 0-63/120", None),
            ("bytes 0-x/*", None),
            ("bytes */120", None),
            ("*/*", None),
        ] {
            let found = with_length(&HeaderValue::from_static(range));
            assert_eq!(found.as_ref().map(|it| it.to_str().unwrap()), expected, "{range}");
        }
    }

    #[test]
    fn ranges_that_overflow_are_not_possible() {
        for (range, possible) in [
            ("bytes 0-15/120", true),
            ("bytes 0-9223372036854775807/9223372036854775807", true),
            ("bytes 0-18446744073709551615/*", false),
            ("bytes 0-9223372036854775808/1", false),
        ] {
            assert_eq!(is_possible(&HeaderValue::from_static(range)), possible, "{range}");
        }
    }
}
