//! A store of generations at a URL: publishing to it, and what the subcommands about generations do there.

use std::future::Future;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use sharddb::Progress;
use sharddb::internal::time_as_iso_8601;
use sharddb_remote::{
    Bucket, BucketGcOptions, BucketGeneration, BucketState, BucketVerifyLevel, BucketVerifyOptions, PullOptions,
    PushOptions, Pushed, layer_source,
};
use tokio::runtime::{Builder, Runtime};

use crate::allow_empty::AllowEmpty;
use crate::context::{Context, warn, write_json, write_line};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::number::{counted, plural};
use crate::printable;
use crate::progress::{Display, Status};
use crate::remote::Call;
use crate::remote::clients::client;
use crate::remote::traffic::Traffic;
use crate::remote::url::{RemoteUrl, Scheme, url_of};
use crate::secrets::hide;
use crate::size::Size;

/// A store at a URL, and the runtime of its client.
pub(crate) struct RemoteStore {
    pub(super) bucket: Bucket,
    pub(super) url: RemoteUrl,
    runtime: Runtime,
    traffic: Arc<Traffic>,
}

impl RemoteStore {
    /// Returns the store at a URL, without a request; `None` if the argument is a path.
    ///
    /// Errors: `Usage` for a URL that has no store, or no usable credentials; `Io`.
    pub(crate) fn open(argument: &Path) -> Result<Option<RemoteStore>> {
        let Some(url) = url_of(argument)? else { return Ok(None) };
        let client = client(&url)?;
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(Failure::thread)?;
        let bucket = Bucket::new(client.store, &client.prefix)?.named(url.to_string());
        Ok(Some(RemoteStore { bucket, url, runtime, traffic: client.traffic }))
    }

    /// Errors: `Usage` if nothing can be published at the URL; those of reading `current`.
    pub(crate) fn check_publishable(&self) -> Result<()> {
        self.check_scheme("publishes to")?;
        self.wait_for(self.bucket.current()).map(|_| ())
    }

    /// Pushes a local store or generation; prints the layer source of the new generation for Neuroglancer.
    pub(crate) fn push(&self, local: &Path, allow_empty: AllowEmpty, call: Call) -> Result<Exit> {
        self.check_scheme("publishes to")?;
        let cleanup = call.context.interrupt.publishing();
        let (progress, mut options) = (call.context.interrupt.progress(), PushOptions::new());
        options.progress(&progress).allow_empty(allow_empty.allow_empty);
        let pushed = call.with_bar("push", &progress, || self.wait_for(self.bucket.push_with(local, &options)));
        let copied = pushed.as_ref().ok().map(|pushed| (pushed.skipped, pushed.generation.as_str()));
        self.report("push", call.context, copied);
        let pushed = pushed?;
        cleanup.done();
        let layer = layer_source(&self.url.to_string(), &pushed.generation);
        let Pushed { generation, is_new, keys, keys_before, .. } = &pushed;
        if call.json {
            write_json(&json!({
                "generation": generation,
                "published": is_new.then_some(generation),
                "keys": keys,
                "keys_before": keys_before,
                "objects": pushed.objects,
                "bytes": pushed.bytes,
                "skipped": pushed.skipped,
                "layer": layer,
            }))?;
        } else {
            write_line(&layer)?;
        }
        let (objects, bytes) = (plural(pushed.objects, "object"), Size(pushed.bytes));
        if !is_new {
            call.context.say(format_args!("nothing changed, {} stays at {generation}", self.url));
            return Ok(Exit::Done);
        }
        let (url, counted) = (&self.url, counted(*keys, "key", *keys_before));
        call.context.say(format_args!("published {generation} at {url}: {counted}, {objects}, {bytes}"));
        self.warn_if_few(*keys, *keys_before);
        if pushed.skipped > 0 {
            call.context.say(format_args!("{} of them were there from an earlier attempt", pushed.skipped));
        }
        Ok(Exit::Done)
    }

    /// Warns if fewer than half of the keys remain.
    pub(super) fn warn_if_few(&self, keys: u64, before: Option<u64>) {
        let Some(before) = before.filter(|before| keys < before.div_ceil(2)) else { return };
        let (before, url) = (plural(before, "key"), &self.url);
        warn(format_args!(
            "sharddb: fewer than half of the {before} remain: sharddb rollback {url} goes back to the generation before"
        ));
    }

    /// Pulls a generation into a local store.
    pub(crate) fn pull(
        &self,
        store: &Path,
        generation: Option<&str>,
        allow_empty: AllowEmpty,
        call: Call,
    ) -> Result<Exit> {
        let cleanup = call.context.interrupt.publishing();
        let (progress, mut options) = (call.context.interrupt.progress(), PullOptions::new());
        options.progress(&progress).allow_empty(allow_empty.allow_empty);
        generation.map(|generation| options.generation(generation));
        let pulled = call.with_bar("pull", &progress, || self.wait_for(self.bucket.pull_with(store, &options)));
        let copied = pulled.as_ref().ok().map(|pulled| (pulled.resumed + pulled.shared, pulled.generation.as_str()));
        self.report("pull", call.context, copied);
        let pulled = pulled?;
        cleanup.done();
        if call.json {
            write_json(&json!({
                "generation": pulled.id.to_string(),
                "pulled": pulled.generation,
                "is_new": pulled.is_new,
                "downloaded": pulled.downloaded,
                "bytes": pulled.bytes,
                "resumed": pulled.resumed,
                "shared": pulled.shared,
            }))?;
        }
        if !pulled.is_new {
            call.context.say(format_args!(
                "{} is current already and has the manifest of {}: nothing is pulled; sharddb verify compares its files",
                pulled.id, pulled.generation
            ));
            return Ok(Exit::Done);
        }
        let (objects, bytes) = (plural(pulled.downloaded, "object"), Size(pulled.bytes));
        let shared = plural(pulled.shared, "shard");
        call.context.say(format_args!(
            "published {} from {}: downloaded {objects}, {bytes}; {shared} from other generations",
            pulled.id, pulled.generation
        ));
        Ok(Exit::Done)
    }

    /// Lists the generations.
    pub(crate) fn generations(&self, call: Call) -> Result<Exit> {
        self.check_scheme("lists the objects of")?;
        let generations = self.run("generations", call.context, self.bucket.generations())?;
        if generations.is_empty() {
            let none = std::io::Error::new(ErrorKind::NotFound, "expected a store, found no generation: push one");
            return Err(Failure::Io { what: format!("list {}", self.url), source: none });
        }
        let listed: Vec<Listed> = generations.iter().map(Listed::of).collect();
        if call.json {
            write_json(&listed)?;
            return Ok(Exit::Done);
        }
        listed.iter().try_for_each(|listed| write_line(&printable::line(listed.line())))?;
        Ok(Exit::Done)
    }

    /// Makes another generation current: the previous one, or the one named.
    pub(crate) fn rollback(&self, generation: Option<&str>, call: Call) -> Result<Exit> {
        self.check_scheme("publishes to")?;
        let previous = self.wait_for(self.bucket.current())?;
        let current = self.run("rollback", call.context, self.bucket.rollback(generation))?;
        if call.json {
            write_json(&json!({"current": current, "previous": previous}))?;
        }
        call.context.say(format_args!("{current} is current"));
        Ok(Exit::Done)
    }

    /// Compares a generation with its manifest.
    pub(crate) fn verify(&self, reads_data: bool, call: Call) -> Result<Exit> {
        self.check_scheme("lists the objects of")?;
        let progress = call.context.interrupt.progress();
        let level = if reads_data { BucketVerifyLevel::Data } else { BucketVerifyLevel::Lengths };
        let mut options = BucketVerifyOptions::new();
        options.progress(&progress);
        let report = call.with_bar("verify", &progress, || {
            self.run("verify", call.context, self.bucket.verify_with(level, &options))
        })?;
        let findings: Vec<String> = report.findings.iter().map(|finding| hide(&finding.to_string())).collect();
        if call.json {
            write_json(&json!({
                "generation": report.generation,
                "objects": report.objects,
                "bytes": report.bytes,
                "errors": findings.len(),
                "findings": findings,
            }))?;
        } else {
            findings.iter().try_for_each(|finding| write_line(&printable::line(format_args!("error: {finding}"))))?;
        }
        let (objects, errors) = (plural(report.objects, "object"), plural(findings.len() as u64, "error"));
        call.context.say(format_args!("verified {}: {objects}, {}, {errors}", report.generation, Size(report.bytes)));
        Ok(if findings.is_empty() { Exit::Done } else { Exit::Corrupt })
    }

    /// Removes generations that were replaced long enough ago, and unfinished uploads.
    pub(crate) fn gc(&self, older_than: Duration, dry_run: bool, call: Call) -> Result<Exit> {
        self.check_scheme("removes generations from")?;
        let mut options = BucketGcOptions::new();
        options.dry_run(dry_run);
        let bar = Display::start(call.context.quiet, || Status::of_phase("remove", 0));
        let report = self.run("gc", call.context, self.bucket.gc_with(older_than, &options));
        drop(bar);
        let report = report?;
        if call.json {
            write_json(&json!({
                "dry_run": dry_run,
                "removed": report.removed,
                "objects": report.objects,
                "freed_bytes": report.bytes,
                "remaining": report.remaining,
            }))?;
        }
        let (removed, freed) = if dry_run { ("would remove", "would free") } else { ("removed", "freed") };
        report.removed.iter().for_each(|name| call.context.say(format_args!("{removed} {name}")));
        match report.removed.len() as u64 {
            0 => call.context.say("nothing to remove"),
            number => {
                let generations = plural(number, "generation");
                call.context.say(format_args!("{freed} {} of {generations}", Size(report.bytes)));
            }
        }
        if report.remaining > 0 {
            let remaining = plural(report.remaining, "generation");
            call.context.say(format_args!("{remaining} more to remove: run sharddb gc again"));
        }
        Ok(Exit::Done)
    }

    /// Refuses a web server, to which nothing can be written conditionally.
    pub(super) fn check_scheme(&self, verb: &str) -> Result<()> {
        match self.url.scheme() {
            Scheme::Http | Scheme::Https => Err(Failure::usage(format!(
                "expected a URL such as s3://bucket/path, gs://bucket/path or az://container/path, found {}: this \
                 subcommand {verb} object stores, not web servers",
                self.url
            ))),
            Scheme::S3 | Scheme::Gs | Scheme::Az => Ok(()),
        }
    }

    /// Waits for a call; with `-v`, reports what it cost.
    pub(super) fn run<T>(
        &self,
        name: &str,
        context: &Context,
        future: impl Future<Output = sharddb::Result<T>>,
    ) -> Result<T> {
        let result = self.wait_for(future);
        self.report(name, context, None);
        result
    }

    /// With `-v`, reports the requests of a call, which may have failed, and the number of objects that were not copied of
    /// a generation.
    fn report(&self, name: &str, context: &Context, copied: Option<(u64, &str)>) {
        if context.verbose {
            let copied =
                copied.map(|(skipped, generation)| format!(", {} skipped, {generation}", plural(skipped, "object")));
            warn(format_args!("sharddb: {name}: {}{}", self.traffic, copied.unwrap_or_default()));
        }
    }

    pub(super) fn wait_for<T>(&self, future: impl Future<Output = sharddb::Result<T>>) -> Result<T> {
        Ok(self.runtime.block_on(future)?)
    }
}

impl Call<'_> {
    /// Shows a bar while `work` transfers bytes.
    fn with_bar<T>(&self, phase: &'static str, progress: &Progress, work: impl FnOnce() -> Result<T>) -> Result<T> {
        let _bar = Display::count(self.context.quiet, phase, progress);
        work()
    }
}

/// A generation as it is listed.
#[derive(Serialize)]
struct Listed {
    generation: String,
    state: &'static str,
    replaced: Option<String>,
    objects: u64,
    bytes: u64,
}

impl Listed {
    fn of(generation: &BucketGeneration) -> Listed {
        Listed {
            generation: generation.name.clone(),
            state: match (generation.state, generation.is_complete) {
                (BucketState::Current, _) => "current",
                (BucketState::Listed, true) => "earlier",
                _ => "incomplete",
            },
            replaced: generation.replaced.map(time_as_iso_8601),
            objects: generation.objects,
            bytes: generation.bytes,
        }
    }

    fn line(&self) -> String {
        let replaced = self.replaced.as_ref().map_or_else(String::new, |time| format!(", replaced {time}"));
        let (objects, size) = (plural(self.objects, "object"), Size(self.bytes).to_string());
        format!("{}  {size:>9}  {objects:>12}  {}{replaced}", self.generation, self.state)
    }
}
