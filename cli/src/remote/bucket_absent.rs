//! What is in place of stores at a URL in a build without the feature `remote`: an error.

use std::path::Path;
use std::time::Duration;

use sharddb::BuildOptions;
use sharddb::cluster::{PartPlan, PartReceipt, SpillReceipt};

use crate::allow_empty::AllowEmpty;
use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Result;
use crate::remote::Call;
use crate::remote::url::lacks_feature;

/// There is none in this build.
pub(crate) enum RemoteStore {}

impl RemoteStore {
    /// Returns `None` for a path.
    ///
    /// Errors: `Usage` for a URL.
    pub(crate) fn open(argument: &Path) -> Result<Option<RemoteStore>> {
        lacks_feature(argument).map(|()| None)
    }

    pub(crate) fn check_publishable(&self) -> Result<()> {
        match *self {}
    }

    pub(crate) fn push(&self, _local: &Path, _allow_empty: AllowEmpty, _call: Call) -> Result<Exit> {
        match *self {}
    }

    pub(crate) fn pull(
        &self,
        _store: &Path,
        _generation: Option<&str>,
        _allow_empty: AllowEmpty,
        _call: Call,
    ) -> Result<Exit> {
        match *self {}
    }

    pub(crate) fn generations(&self, _call: Call) -> Result<Exit> {
        match *self {}
    }

    pub(crate) fn rollback(&self, _generation: Option<&str>, _call: Call) -> Result<Exit> {
        match *self {}
    }

    pub(crate) fn verify(&self, _reads_data: bool, _call: Call) -> Result<Exit> {
        match *self {}
    }

    pub(crate) fn put_spill(
        &self,
        _job: &str,
        _directory: &Path,
        _receipt: &SpillReceipt,
        _options: &BuildOptions,
        _context: &Context,
    ) -> Result<()> {
        match *self {}
    }

    pub(crate) fn build_part(
        &self,
        _job: &str,
        _plan: &PartPlan,
        _spills: Vec<SpillReceipt>,
        _part: u64,
        _options: &BuildOptions,
        _context: &Context,
    ) -> Result<PartReceipt> {
        match *self {}
    }

    pub(crate) fn publish_parts(
        &self,
        _job: &str,
        _plan: &PartPlan,
        _receipts: (Vec<SpillReceipt>, Vec<PartReceipt>),
        _options: &BuildOptions,
        _call: Call,
    ) -> Result<Exit> {
        match *self {}
    }

    pub(crate) fn clean_parts(&self, _job: Option<&str>, _older_than: Duration, _context: &Context) -> Result<Exit> {
        match *self {}
    }

    pub(crate) fn gc(&self, _older_than: Duration, _dry_run: bool, _call: Call) -> Result<Exit> {
        match *self {}
    }
}
