//! Listings that end: the clients follow the pages of a listing for as long as a server names another one.

use std::fmt;
use std::sync::Arc;

use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::list::{PaginatedListOptions, PaginatedListResult, PaginatedListStore};
use object_store::path::{DELIMITER, Path};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// Maximum number of pages of a listing. Google and S3 have 1,000 objects in a page, Azure 5,000.
const MOST_PAGES: u64 = 100_000;

/// Maximum number of pages in a row without a new object. A server may return some after many deletions.
const MOST_BARREN: u64 = 1000;

/// Maximum number of names and directories that are held in memory.
const MOST_HELD: usize = 1_000_000;

/// A client whose listings end.
#[derive(Debug)]
pub(super) struct Paged<S>(Arc<S>);

impl<S> Paged<S> {
    pub(super) fn new(store: S) -> Paged<S> {
        Paged(Arc::new(store))
    }
}

impl<S: fmt::Display> fmt::Display for Paged<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait::async_trait]
impl<S: ObjectStore + PaginatedListStore> ObjectStore for Paged<S> {
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let pages = pages(self.0.clone(), prefix, false);
        pages.map_ok(|page| stream::iter(page.objects.into_iter().map(Ok))).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        collected(pages(self.0.clone(), prefix, true)).await
    }

    async fn put_opts(&self, path: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.0.put_opts(path, payload, options).await
    }

    async fn put_multipart_opts(&self, path: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.0.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.get_opts(path, options).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.0.delete_stream(paths)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.copy_opts(from, to, options).await
    }
}

/// The pages of a listing. With a delimiter, a directory is one entry.
///
/// Errors: those of the client; a listing that does not end.
fn pages<S: PaginatedListStore>(
    store: Arc<S>,
    prefix: Option<&Path>,
    has_delimiter: bool,
) -> BoxStream<'static, Result<ListResult>> {
    let prefix = prefix.filter(|prefix| !prefix.is_root()).map(|prefix| format!("{prefix}{DELIMITER}"));
    let delimiter = has_delimiter.then(|| DELIMITER.into());
    let first = (Course::default(), PaginatedListOptions { delimiter, ..PaginatedListOptions::default() });
    let next = move |(mut course, options): (Course, PaginatedListOptions)| {
        let (store, prefix) = (store.clone(), prefix.clone());
        async move {
            if course.has_ended {
                return Ok(None);
            }
            let page = store.list_paginated(prefix.as_deref(), options.clone()).await?;
            course.advance(&page).map_err(unending)?;
            let options = PaginatedListOptions { page_token: page.page_token, ..options };
            Ok(Some((page.result, (course, options))))
        }
    };
    stream::try_unfold(first, next).boxed()
}

/// Joins pages.
///
/// Errors: those of the pages; more entries than memory is used for.
async fn collected(mut pages: BoxStream<'static, Result<ListResult>>) -> Result<ListResult> {
    let mut all = ListResult { common_prefixes: vec![], objects: vec![], extensions: Default::default() };
    while let Some(page) = pages.next().await.transpose()? {
        all.common_prefixes.extend(page.common_prefixes);
        all.objects.extend(page.objects);
        if all.common_prefixes.len() + all.objects.len() > MOST_HELD {
            return Err(unending(format!("expected at most {MOST_HELD} names directly below the prefix, found more")));
        }
    }
    Ok(all)
}

/// What is known of a listing after some of its pages.
#[derive(Default)]
struct Course {
    pages: u64,
    has_ended: bool,
    /// The token that followed the last page whose number is a power of two. A cycle of any length returns to one.
    token: Option<String>,
    /// The first entry of the last page that had one.
    entry: Option<Path>,
    /// The number of last pages without a new entry.
    barren: u64,
}

impl Course {
    /// Accepts the next page.
    ///
    /// Errors: the reason why the listing does not end.
    fn advance(&mut self, page: &PaginatedListResult) -> Result<(), String> {
        let Some(token) = page.page_token.as_ref().filter(|token| !token.is_empty()) else {
            self.has_ended = true;
            return Ok(());
        };
        self.pages += 1;
        if self.token.as_ref() == Some(token) {
            return Err(format!("expected another continuation token on page {}, found an earlier one", self.pages));
        }
        if self.pages.is_power_of_two() {
            self.token = Some(token.clone());
        }
        let ListResult { objects, common_prefixes, .. } = &page.result;
        let entry = objects.first().map(|object| &object.location).or(common_prefixes.first());
        if entry.is_some() && self.entry.as_ref() != entry {
            (self.entry, self.barren) = (entry.cloned(), 0)
        } else {
            self.barren += 1
        }
        if self.barren >= MOST_BARREN {
            return Err(format!("expected objects, found {MOST_BARREN} pages in a row without a new one"));
        }
        match self.pages {
            MOST_PAGES.. => Err(format!("expected at most {MOST_PAGES} pages, found more")),
            _ => Ok(()),
        }
    }
}

fn unending(reason: String) -> Error {
    let advice = "check the endpoint; if it is right, use a prefix with fewer foreign objects";
    Error::Generic { store: "listing", source: format!("{reason}: {advice}").into() }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// The token of a page by its number, from 0, and its entries.
    type Page = fn(u64) -> (Option<String>, Vec<String>);

    /// A server that makes pages.
    struct Pages {
        page: Page,
        requests: AtomicU64,
    }

    #[async_trait::async_trait]
    impl PaginatedListStore for Pages {
        async fn list_paginated(&self, _: Option<&str>, _: PaginatedListOptions) -> Result<PaginatedListResult> {
            let (page_token, names) = (self.page)(self.requests.fetch_add(1, Ordering::SeqCst));
            let object = |name: String| ObjectMeta {
                location: Path::from(name),
                last_modified: std::time::UNIX_EPOCH.into(),
                size: 1,
                e_tag: None,
                version: None,
            };
            let objects = names.into_iter().map(object).collect();
            let result = ListResult { objects, common_prefixes: vec![], extensions: Default::default() };
            Ok(PaginatedListResult { result, page_token })
        }
    }

    /// Lists all pages; returns the number of objects, or the error, and the number of requests.
    async fn list(page: Page) -> (Result<usize, String>, u64) {
        let store = Arc::new(Pages { page, requests: AtomicU64::new(0) });
        let listed = pages(store.clone(), None, false);
        let listed = listed.try_fold(0, |sum, page| async move { Ok(sum + page.objects.len()) }).await;
        (listed.map_err(|error| error.to_string()), store.requests.load(Ordering::SeqCst))
    }

    fn token(number: u64) -> Option<String> {
        Some(number.to_string())
    }

    #[tokio::test]
    async fn pages_are_followed_to_the_last_one() {
        assert_eq!(list(|_| (None, vec![])).await, (Ok(0), 1));
        assert_eq!(list(|_| (Some(String::new()), vec!["a".to_string()])).await, (Ok(1), 1));
        let last_of_many: Page = |number| (token(number).filter(|_| number < 99_999), vec![number.to_string()]);
        assert_eq!(list(last_of_many).await, (Ok(100_000), 100_000));
        let sparse: Page = |number| match number % 1000 {
            999 => (token(number).filter(|_| number < 9999), vec![number.to_string()]),
            _ => (token(number), vec![]),
        };
        assert_eq!(list(sparse).await, (Ok(10), 10_000));
        let store = Arc::new(Pages { page: |_| (None, vec!["a".to_string()]), requests: AtomicU64::new(0) });
        assert_eq!(collected(pages(store, None, true)).await.unwrap().objects.len(), 1);
    }

    #[tokio::test]
    async fn a_listing_that_does_not_end_is_an_error() {
        let cases = [
            ("found an earlier one", 2, (|_| (token(7), vec!["a".to_string()])) as Page),
            ("found an earlier one", 41, |number| (token(number % 9), vec![number.to_string()])),
            ("1000 pages in a row", 1001, |number| (token(number), vec!["a".to_string()])),
            ("1000 pages in a row", 1000, |number| (token(number), vec![])),
            ("expected at most 100000 pages", 100_000, |number| (token(number), vec![number.to_string()])),
        ];
        for (reason, most, page) in cases {
            let (listed, requests) = list(page).await;
            let error = listed.unwrap_err();
            assert!(error.contains(reason) && error.contains("check the endpoint"), "{error}");
            assert!(requests <= most, "{reason}: {requests} requests");
        }
    }

    #[tokio::test]
    async fn a_directory_with_too_many_names_is_not_held_in_memory() {
        let page: Page = |number| (token(number), (0..1000).map(|at| format!("{number}-{at}")).collect());
        let store = Arc::new(Pages { page, requests: AtomicU64::new(0) });
        let error = collected(pages(store.clone(), None, true)).await.unwrap_err().to_string();
        assert!(error.contains("at most 1000000 names"), "{error}");
        assert_eq!(store.requests.load(Ordering::SeqCst), 1001);
    }
}
