//! The text of an error of the crate `object_store`: one line of bounded length, without the XML of a server.

use std::error::Error as StdError;
use std::fmt::Write as _;

use ::object_store::Error as StoreError;
use sharddb_format::{Error, ErrorKind};

/// Maximum length in characters of the text of another crate's error; it may contain the body of a response.
const LONGEST_CAUSE: usize = 600;

/// The codes of servers for a bucket or container that does not exist: of S3 and Google, and of Azure.
const MISSING_BUCKET: [&str; 2] = ["NoSuchBucket", "ContainerNotFound"];

/// Returns the error of a request to a bucket that does not exist, without a place; `None` for any other error.
///
/// `object_store` returns `NotFound` for it, as for a missing object.
pub(crate) fn missing_bucket(error: &StoreError) -> Option<Error> {
    let (code, message) = chain(error).find_map(|error| {
        let text = error.to_string();
        let code = MISSING_BUCKET.into_iter().find(|code| element(&text, "Code") == Some(code))?;
        Some((code, element(&text, "Message").unwrap_or_default().to_string()))
    })?;
    let found = line(&format!("{code}: {message}"));
    let message = format!(
        "expected the bucket or container that the URL names, found none ({found}): check its name and the endpoint, or \
         create it"
    );
    Some(Error::new(ErrorKind::NotFound, message))
}

/// Returns whether an object is missing from a bucket that exists.
#[cfg(any(test, feature = "bucket"))]
pub(crate) fn is_missing_object(error: &StoreError) -> bool {
    matches!(error, StoreError::NotFound { .. }) && missing_bucket(error).is_none()
}

/// Returns whether the text of an error, or of one that caused it, contains `words`.
pub(crate) fn contains(error: &(dyn StdError + 'static), words: &str) -> bool {
    chain(error).any(|error| error.to_string().contains(words))
}

/// Returns the text of an error and of its causes, in one line and without repetitions.
pub(crate) fn cause(error: &(dyn StdError + 'static)) -> String {
    let mut text = String::new();
    for error in chain(error) {
        let own = without_xml(&error.to_string());
        if !text.contains(&own) {
            let separator = if text.is_empty() { "" } else { ": " };
            let _ = write!(text, "{separator}{own}"); // a String takes any text
        }
    }
    line(&text)
}

/// Joins the lines of a text, and cuts a long one.
fn line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST_CAUSE) {
        Some((at, _)) => format!("{} [cut]", line.get(..at).unwrap_or_default()),
        None => line,
    }
}

/// Replaces the XML of a server's error by its code and message: `NoSuchKey: The specified key does not exist.`
fn without_xml(text: &str) -> String {
    const END: &str = "</Error>";
    let begin = text.find("<?xml").or_else(|| text.find("<Error>"));
    let (Some(begin), Some(code)) = (begin, element(text, "Code")) else { return text.to_string() };
    let end = text.rfind(END).map_or(text.len(), |at| at + END.len()); // a long body has no end
    let (before, after) = (text.get(..begin).unwrap_or_default(), text.get(end..).unwrap_or_default());
    match element(text, "Message") {
        Some(message) => format!("{before}{code}: {message}{after}"),
        None => format!("{before}{code}{after}"),
    }
}

/// Returns the text of the first element of this name.
fn element<'a>(xml: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{name}>"))?;
    rest.split_once(&format!("</{name}>")).map(|(text, _)| text)
}

/// Returns an error and the errors that caused it.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of S3 to a read in a bucket that does not exist.
    const NO_BUCKET: &str = "404 Not Found: <?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>NoSuchBucket</Code>\
         <Message>The specified bucket does not exist</Message><BucketName>x</BucketName><RequestId>7G3A</RequestId></Error>";
    /// The answer of Azure.
    const NO_CONTAINER: &str = "404: \u{feff}<?xml version=\"1.0\"?><Error><Code>ContainerNotFound</Code><Message>The \
         specified container does not exist.\nRequestId:1\nTime:2</Message></Error>";
    /// The answer of S3 to a read of an object that does not exist.
    const NO_KEY: &str = "404: <Error><Code>NoSuchKey</Code><Message>The specified key does not exist.</Message>\
         <Key>NoSuchBucket</Key></Error>";

    fn not_found(source: &str) -> StoreError {
        StoreError::NotFound { path: "x/current".to_string(), source: source.to_string().into() }
    }

    #[test]
    fn a_missing_bucket_is_no_missing_object() {
        for (answer, part) in [
            (NO_BUCKET, "(NoSuchBucket: The specified bucket does not exist)"),
            (NO_CONTAINER, "(ContainerNotFound: The specified container does not exist. RequestId:1 Time:2)"),
        ] {
            let error = missing_bucket(&not_found(answer)).unwrap();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert!(error.to_string().contains(part) && error.to_string().contains("create it"), "{error}");
            assert!(!is_missing_object(&not_found(answer)));
        }
        for answer in [NO_KEY, "404", ""] {
            assert!(missing_bucket(&not_found(answer)).is_none() && is_missing_object(&not_found(answer)));
        }
    }

    #[test]
    fn the_xml_of_a_server_becomes_its_code_and_message() {
        let of = |source: &str| cause(&not_found(source));
        assert_eq!(
            of(NO_BUCKET),
            "Object at location x/current not found: 404 Not Found: NoSuchBucket: The specified bucket does not exist"
        );
        assert_eq!(
            of("403: <Error><Code>AccessDenied</Code></Error> after"),
            "Object at location x/current not found: 403: AccessDenied after"
        );
        let endless = format!("500: <?xml?><Error><Code>InternalError</Code><Detail>{}", "x".repeat(10_000));
        assert_eq!(of(&endless), "Object at location x/current not found: 500: InternalError");
    }

    #[test]
    fn other_texts_stay_and_are_cut() {
        assert_eq!(without_xml("<html><Code>1</Code></html>"), "<html><Code>1</Code></html>");
        let long = cause(&not_found(&"word\n".repeat(1000)));
        assert!(long.ends_with(" [cut]") && long.chars().count() == LONGEST_CAUSE + 6, "{long}");
    }
}
