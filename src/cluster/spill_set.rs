//! The spills of a build, one per task.

use std::path::{Path, PathBuf};

use super::plan::PartPlan;
use super::spill_receipt::SpillReceipt;
use crate::error::{Error, Result};
use crate::format::digest::{Digest, Digester};

/// The spills of a partitioned build, one per task: the input of every part.
///
/// [`build_part`](SpillSet::build_part) writes the shards of one part, and [`publish`](SpillSet::publish) makes a
/// generation of all parts. Both check that they got the same spills.
///
/// ```
/// # let store = std::env::temp_dir().join(format!("sharddb-parts-doc-{}", std::process::id()));
/// use sharddb::cluster::{self, PartPlan, SpillSet, SpillWriter};
/// use sharddb::{BuildOptions, Profile, ShardDb};
///
/// let plan = PartPlan::for_counts(1000, 100_000, Profile::Local, 3)?;
/// let job = cluster::job_directory(&store, "1")?;
/// let options = BuildOptions::new();
///
/// let mut receipts = Vec::new();
/// for task in 0..4 {
///     let mut spill = SpillWriter::create(&job, &plan, task, &options)?; // in any process, on any host
///     spill.extend((0..250).map(|number| (number * 4 + task, format!("of task {task}"))))?;
///     receipts.push(spill.finish()?);
/// }
/// let spills = SpillSet::new(&plan, &job, receipts)?;
/// let parts = (0..3).map(|part| spills.build_part(part, &job, &options)).collect::<sharddb::Result<Vec<_>>>()?;
/// let published = spills.publish(&store, "1", parts, &options)?;
/// assert_eq!(published.content.keys, 1000);
/// assert_eq!(ShardDb::open(&store)?.get(7)?.unwrap(), b"of task 3");
/// # std::fs::remove_dir_all(&store).unwrap();
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct SpillSet {
    pub(super) plan: PartPlan,
    pub(super) directory: PathBuf,
    /// In ascending order of tasks, each once.
    pub(super) receipts: Vec<SpillReceipt>,
    /// The digest of all receipts.
    pub(super) digest: Digest,
}

impl SpillSet {
    /// Combines the receipts of all tasks, in any order, whose spills are in `directory`. Does not read the spills.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if a receipt belongs to another plan, or if two belong to the same task. Equal receipts count as
    /// one.
    pub fn new(
        plan: &PartPlan,
        directory: impl AsRef<Path>,
        receipts: impl IntoIterator<Item = SpillReceipt>,
    ) -> Result<SpillSet> {
        let mut receipts: Vec<SpillReceipt> = receipts.into_iter().collect();
        receipts.sort_unstable_by_key(|receipt| receipt.task);
        receipts.dedup();
        let expected = plan.digest();
        if let Some(foreign) = receipts.iter().find(|receipt| receipt.plan != expected) {
            let message = format!(
                "expected receipts of spills for the plan {expected}, found that task {} spilled for the plan {}",
                foreign.task, foreign.plan
            );
            return Err(Error::invalid_input(message));
        }
        let is_repeated = |pair: &&[SpillReceipt]| matches!(pair, [one, other] if one.task == other.task);
        if let Some([one, other]) = receipts.windows(2).find(is_repeated) {
            let message = format!(
                "expected one receipt per task, found {} and {} of task {}: take either if they are of the same input, else \
                 give each input a task of its own",
                one.file_name(),
                other.file_name(),
                one.task
            );
            return Err(Error::invalid_input(message));
        }
        let mut digester = Digester::default();
        receipts.iter().for_each(|receipt| digester.update(receipt.to_string().as_bytes()));
        let directory = directory.as_ref().to_path_buf();
        Ok(SpillSet { plan: plan.clone(), directory, receipts, digest: digester.finish() })
    }

    /// Returns the directory of the spills.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the plan.
    pub fn plan(&self) -> &PartPlan {
        &self.plan
    }

    /// Returns the receipts in ascending order of tasks.
    pub fn receipts(&self) -> &[SpillReceipt] {
        &self.receipts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::plan::Profile;

    fn receipt(plan: &PartPlan, task: u64, content: &[u8]) -> SpillReceipt {
        let digest = Digest::of(content);
        SpillReceipt { plan: plan.digest(), task, digest, pairs: 1, preambles: 0, bytes: 100, run: None }
    }

    #[test]
    fn takes_one_receipt_per_task_in_any_order() {
        let plan = PartPlan::for_counts(100, 100, Profile::Local, 3).unwrap();
        let (one, two) = (receipt(&plan, 1, b"x"), receipt(&plan, 2, b"x"));
        let set = |receipts: &[&SpillReceipt]| SpillSet::new(&plan, "d", receipts.iter().copied().cloned());
        let both = set(&[&one, &two]).unwrap();
        for same in [&[&two, &one][..], &[&two, &one, &two]] {
            assert_eq!((set(same).unwrap().receipts(), set(same).unwrap().digest), (both.receipts(), both.digest));
        }
        assert_ne!(set(&[&one]).unwrap().digest, both.digest);

        let again = receipt(&plan, 2, b"another output");
        let error = set(&[&one, &two, &again]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("of task 2"), "{error}");

        let other = PartPlan::for_counts(100, 100, Profile::Local, 4).unwrap();
        let error = set(&[&one, &receipt(&other, 3, b"x")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.message().contains("task 3"), "{error}");
    }
}
