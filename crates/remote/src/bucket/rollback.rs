//! Making another generation of the history current.

use sharddb_format::{Error, ErrorKind, Result};

use crate::bucket::Bucket;
use crate::bucket::current::{Current, Replacement, conflict};
use crate::bucket::generations::parse_name;
use crate::bucket::objects::objects;
use crate::bucket_current::GenerationName;

impl Bucket {
    /// Makes another generation current: `to`, or the previous one of the history. Returns its name.
    ///
    /// `to` must be in the [`history`](Self::history). Without it, the newest complete generation before the current one
    /// becomes current, and the one that it replaces does not count for the next rollback, as in
    /// [`StoreWriter::rollback`](sharddb::StoreWriter::rollback). The age of the replaced generation for
    /// [`gc`](Self::gc) begins now.
    ///
    /// Cost: reads the manifest and lists the objects of the generation.
    ///
    /// # Errors
    ///
    /// `NotFound` if nothing was published, or `to` is not in the history or was removed; `InvalidInput` if there is no
    /// complete generation before the current one; `Corrupt` if an object of `to` is missing or has the wrong length;
    /// `Locked` if another publisher replaced `current` meanwhile; `Io`. See [`push`](Self::push) for `Io`.
    pub async fn rollback(&self, to: Option<&str>) -> Result<String> {
        let base = self.root.published().await?;
        self.root.check_conditions().await?;
        let to = match to {
            Some(to) => self.listed(&base, parse_name(to)?).await?,
            None => self.previous(&base).await?,
        };
        if to.generation == *base.generation() {
            return Ok(to.generation.to_string());
        }
        let next = base.followed_by(to.generation.clone(), to.leaves_current);
        match self.root.replace(Some(&base), &next).await? {
            Replacement::Written => Ok(to.generation.to_string()),
            Replacement::Conflict(found) => Err(conflict(&self.root, found.as_deref())),
        }
    }

    async fn listed(&self, base: &Current, generation: GenerationName) -> Result<Target> {
        let is_listed =
            base.generation() == &generation || base.text.before.iter().any(|entry| entry.generation == generation);
        if !is_listed {
            let message = "expected a generation of the history to roll back to, found another name";
            return Err(Error::new(ErrorKind::NotFound, message).at_path(&self.root.place(generation.as_str())));
        }
        self.check_lengths(&generation).await?;
        Ok(Target { generation, leaves_current: false })
    }

    async fn previous(&self, base: &Current) -> Result<Target> {
        for entry in base.text.before.iter().rev().filter(|entry| !entry.rolled_back) {
            match self.check_lengths(&entry.generation).await {
                Ok(()) => return Ok(Target { generation: entry.generation.clone(), leaves_current: true }),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Corrupt) => {} // removed, or damaged
                Err(error) => return Err(error),
            }
        }
        let message =
            format!("expected a complete generation that was current before {}, found none", base.generation());
        Err(Error::invalid_input(message).at_path(&self.root.place("")))
    }

    /// Checks that a generation has the objects that its manifest lists, with their lengths.
    async fn check_lengths(&self, generation: &GenerationName) -> Result<()> {
        let stored = self.root.stored(generation).await?;
        let objects = objects(&stored.manifest);
        let names: std::collections::HashSet<&str> = objects.iter().map(|object| object.name.as_str()).collect();
        let (found, _) = self.root.lengths_of(generation, |name| names.contains(name)).await?;
        for object in &objects {
            let found = found.get(&object.name).copied();
            object
                .check_len(found)
                .map_err(|error| error.at_path(&self.root.place(&format!("{generation}/{}", object.name))))?;
        }
        Ok(())
    }
}

/// The generation to roll back to.
struct Target {
    generation: GenerationName,
    /// Whether the current one does not count for later rollbacks.
    leaves_current: bool,
}
