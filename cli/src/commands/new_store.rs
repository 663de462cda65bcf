//! What `merge`, `reshard` and `copy` share: the options of a store that is made of databases, and its publication.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sharddb::Progress;
use sharddb::progress::Phase;
use sharddb::{BuildOptions, Profile, Published, Snapshot, Store};

use crate::allow_empty::AllowEmpty;
use crate::commands::after::Keep;
use crate::commands::build::{Encoded, profiles, set_resources, summary, to_json, with_encodings};
use crate::commands::import::is_damage;
use crate::commands::stages::status_of;
use crate::commands::write_json;
use crate::context::Context;
use crate::database::SourceOpening;
use crate::entry;
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::foreign;
use crate::output::Sources;
use crate::printable::word;
use crate::progress::{Amount, Display, Status, part};
use crate::size::{Size, parse_memory};

/// The options of a store that is made of databases.
#[derive(Debug, clap::Args)]
pub(super) struct NewStore {
    #[command(flatten)]
    pub(super) opening: SourceOpening,
    /// Plan a specification for how the store will be read
    #[arg(long, value_name = "PROFILE", value_parser = profiles(), conflicts_with = "sharding")]
    profile: Option<Profile>,
    /// Plan a specification with shards of at most this mean size, for a store that will be updated
    #[arg(long, value_name = "SIZE", conflicts_with = "sharding")]
    max_shard_bytes: Option<Size>,
    /// How values are stored. Default: as in the source
    #[arg(long, value_enum, value_name = "HOW")]
    pub(super) data_encoding: Option<Encoded>,
    /// How minishard indexes are stored. Default: as the specification or the profile says
    #[arg(long, value_enum, value_name = "HOW")]
    index_encoding: Option<Encoded>,
    /// Write a key file: all keys sorted, for fast ranges under any hash. Default: if all sources have one
    #[arg(long)]
    ordered: bool,
    /// The memory to use, at least 16 MiB. Default: a quarter of what the process may use, at most 4 GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    memory: Option<Size>,
    /// Where to spill pairs that do not fit into memory. Default: the store
    #[arg(long, value_name = "DIR")]
    temp_dir: Option<PathBuf>,
    /// Number of threads. Default: one per processor
    #[arg(short = 'j', long, value_name = "N")]
    threads: Option<NonZero<usize>>,
    #[command(flatten)]
    keep: Keep,
    #[command(flatten)]
    pub(super) allow_empty: AllowEmpty,
    /// Print one JSON object: what was published
    #[arg(long)]
    json: bool,
}

impl NewStore {
    /// Whether the specification is to be planned for a profile or a size of shards.
    pub(super) fn is_planned(&self) -> bool {
        self.profile.is_some() || self.max_shard_bytes.is_some()
    }

    /// Whether something else is to be changed than the specification's hash and bits.
    pub(super) fn has_change(&self) -> bool {
        self.data_encoding.is_some() || self.index_encoding.is_some() || self.ordered
    }

    /// The options of the build that the command line states.
    ///
    /// Errors: those of reading a specification.
    pub(super) fn options(&self, context: &Context) -> Result<BuildOptions> {
        let mut options = BuildOptions::new();
        options.progress(&context.interrupt.progress()).ordered(self.ordered).allow_empty(self.allow_empty.allow_empty);
        set_resources(&mut options, self.memory, self.temp_dir.as_deref(), self.threads);
        if let Some(profile) = self.profile {
            options.profile(profile);
        }
        if let Some(Size(bytes)) = self.max_shard_bytes {
            options.max_shard_bytes(bytes);
        }
        if let Some(encoding) = self.data_encoding {
            options.data_encoding(encoding.into());
        }
        if let Some(encoding) = self.index_encoding {
            options.minishard_index_encoding(encoding.into());
        }
        if let Some(spec) = self.opening.spec()? {
            self.fix_spec(&mut options, spec);
        }
        Ok(options)
    }

    /// Makes a specification that of the new store, with the encodings that the command line states.
    pub(super) fn fix_spec(&self, options: &mut BuildOptions, spec: sharddb::ShardingSpec) {
        options.spec(with_encodings(spec, self.data_encoding, self.index_encoding));
    }

    /// Makes a generation of the pairs of databases and publishes it.
    pub(super) fn merge(
        &self,
        out: &Path,
        mut options: BuildOptions,
        sources: &[Snapshot],
        context: &Context,
    ) -> Result<Published> {
        sources.iter().try_for_each(foreign::warn_if_incomplete)?;
        let build = context.interrupt.progress();
        options.progress(&build);
        let bytes = sources.iter().filter_map(|source| source.stats().file_bytes).sum();
        let progress = Display::start(context.quiet, move || status_of_merge(&build, bytes));
        let candidate = options.merge(out, sources).map_err(|error| foreign::not_a_store(error.into(), out))?;
        let published = candidate.publish()?;
        drop(progress);
        Ok(published)
    }

    /// Reports what was published, and removes old generations if the command line says so.
    pub(super) fn conclude(
        &self,
        published: &Published,
        begun: Instant,
        out: &Path,
        context: &Context,
    ) -> Result<Exit> {
        context.say(summary("published", published, begun));
        if self.json {
            let mut json = to_json(published);
            json["seconds"] = begun.elapsed().as_secs_f64().into();
            write_json(&json)?;
        }
        self.keep.conclude(published, out, context)
    }
}

/// Refuses a store inside of a source. The store itself may be one: its generation is not changed.
///
/// Errors: `Usage`; `Io` if that cannot be determined.
pub(super) fn refuse_inside(out: &Path, path: &Path, source: &Snapshot) -> Result<()> {
    let (target, read) = (entry::canonical_if_there(out)?, entry::canonical_if_there(path)?);
    let is_out = target.is_some() && target == read && Store::is_at(out)?;
    let whole = (!is_out).then_some(path);
    Sources::of(whole.into_iter().chain([source.directory(), source.shards_directory()])).refuse(out)
}

/// Adds to damage of a source the command that saves what can be proved. Any other failure stays as it is,
/// also that of `current`, which a rollback mends.
pub(super) fn suggest_salvage(failure: Failure, source: &Path) -> Failure {
    let is_of_link =
        matches!(&failure, Failure::Library(error) if error.path().is_some_and(|path| path.ends_with("current")));
    if is_damage(&failure) && !is_of_link {
        let source = word(source);
        Failure::Unsound(format!(
            "{failure}; nothing was published, and sharddb salvage {source} OUT saves every provable pair"
        ))
    } else {
        failure
    }
}

/// The status of a merge, whose sources have `bytes`, or an unknown number if it is 0.
fn status_of_merge(build: &Progress, bytes: u64) -> Status {
    let number = build.step(); // before the other values, which are of this step or of a later one
    match (build.phase(), build.done()) {
        (Phase::Insert, 0) => Status::of_phase("read", number),
        (Phase::Insert, done) => Status { phase: "read", number, part: part(done, bytes), amount: Amount::Bytes(done) },
        _ => status_of(build),
    }
}
