//! Builds in parts at a URL: spills, parts and their publication as objects.

use std::path::Path;
use std::time::Duration;

use sharddb::BuildOptions;
use sharddb::cluster::{PartPlan, PartReceipt, SpillReceipt};

use crate::context::{Context, warn, write_json};
use crate::exit::Exit;
use crate::failure::Result;
use crate::number::{counted, plural};
use crate::publication::json_of;
use crate::receipts;
use crate::remote::Call;
use crate::remote::bucket::RemoteStore;
use crate::size::Size;

/// What a web server is refused for.
const VERB: &str = "builds in";

impl RemoteStore {
    /// Uploads a spill from a local directory.
    pub(crate) fn put_spill(
        &self,
        job: &str,
        directory: &Path,
        receipt: &SpillReceipt,
        options: &BuildOptions,
        context: &Context,
    ) -> Result<()> {
        self.check_scheme(VERB)?;
        self.run("spill", context, self.bucket.put_spill(job, directory, receipt, options))
    }

    /// Builds and uploads a part.
    pub(crate) fn build_part(
        &self,
        job: &str,
        plan: &PartPlan,
        spills: Vec<SpillReceipt>,
        part: u64,
        options: &BuildOptions,
        context: &Context,
    ) -> Result<PartReceipt> {
        self.check_scheme(VERB)?;
        self.run("build-part", context, self.bucket.build_part(job, plan, spills, part, options))
    }

    /// Publishes a generation of all parts.
    pub(crate) fn publish_parts(
        &self,
        job: &str,
        plan: &PartPlan,
        (spills, parts): (Vec<SpillReceipt>, Vec<PartReceipt>),
        options: &BuildOptions,
        call: Call,
    ) -> Result<Exit> {
        self.check_scheme("publishes to")?;
        let publish = async {
            let published = self.bucket.publish_parts(job, plan, spills, parts, options).await?;
            Ok((published, self.bucket.current().await?))
        };
        let (published, current) = self.run("publish-parts", call.context, publish)?;
        if call.json {
            let mut json = json_of(&published.generation, published.keys_before, &published.content);
            json["current"] = current.clone().into();
            write_json(&json)?;
        }
        if current.as_ref() != Some(&published.generation) {
            receipts::say_not_current(&published.generation, current.as_deref());
            return Ok(Exit::Done);
        }
        let (keys, shards) =
            (counted(published.content.keys, "key", published.keys_before), plural(published.content.shards, "shard"));
        let (generation, bytes) = (published.generation, Size(published.content.file_bytes));
        call.context.say(format_args!("published {generation} at {}: {keys}, {shards} of {bytes}", self.url));
        self.warn_if_few(published.content.keys, published.keys_before);
        Ok(Exit::Done)
    }

    /// Removes what is left of jobs.
    pub(crate) fn clean_parts(&self, job: Option<&str>, older_than: Duration, context: &Context) -> Result<Exit> {
        self.check_scheme("removes objects from")?;
        let cleaned = self.run("clean-parts", context, self.bucket.clean_parts(job, older_than))?;
        cleaned.foreign.iter().for_each(|object| warn(format_args!("left in place: {object}")));
        if cleaned.jobs.is_empty() {
            context.say("nothing to remove")
        } else {
            let (objects, bytes) = (plural(cleaned.objects, "object"), Size(cleaned.bytes));
            context.say(format_args!("removed {}: {objects}, {bytes}", cleaned.jobs.join(", ")));
        }
        Ok(Exit::Done)
    }
}
