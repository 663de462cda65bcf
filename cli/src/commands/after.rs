//! What follows a publication: how many keys it replaced, and the removal of old generations.

use std::path::Path;

use sharddb::{Published, Store};

use crate::commands::gc::{self, number_to_keep};
use crate::context::{Context, warn};
use crate::exit::Exit;
use crate::failure::Result;
use crate::histogram::grouped;
use crate::number::plural;
use crate::printable::word;

/// The number of generations from which on a hint says how to remove old ones.
const MANY: usize = 10;

/// `--keep`, an option of commands that publish.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Keep {
    /// Then remove all generations except the N newest and those that are open for reading. The current one counts, those
    /// that were rolled back do not
    #[arg(long, value_name = "N", value_parser = number_to_keep)]
    keep: Option<usize>,
}

impl Keep {
    pub(super) fn is_given(self) -> bool {
        self.keep.is_some()
    }

    /// Warns if few keys remain, and removes old generations if the command line says so; returns the exit code.
    pub(super) fn conclude(self, published: &Published, store: &Path, context: &Context) -> Result<Exit> {
        let collected = self.collect(published.is_new, store, context);
        if published.is_new {
            warn_if_few(published.content.keys, published.keys_before, store);
        }
        collected
    }

    /// Removes old generations if the command line says so; returns the exit code. Otherwise, if the store has become larger,
    /// hints at it.
    pub(super) fn collect(self, is_larger: bool, store: &Path, context: &Context) -> Result<Exit> {
        if let Some(keep) = self.keep {
            return gc::keep(keep, store, context);
        }
        let all = Store::open(store).and_then(|store| store.generations());
        if let Some(number) = all.ok().map(|all| all.len()).filter(|number| is_larger && *number >= MANY) {
            let (named, number) = (store.display(), grouped(number as u64));
            let store = word(store);
            context.say(format_args!(
                "{named} has {number} generations: sharddb gc {store} --keep 2 removes old ones, and so does this command with \
                 --keep 2"
            ));
        }
        Ok(Exit::Done)
    }
}

/// Warns if fewer than half of the keys remain after a publication and the removal of old generations.
pub(super) fn warn_if_few(keys: u64, before: Option<u64>, store: &Path) {
    let Some(before) = before.filter(|before| keys < before.div_ceil(2)) else { return };
    let undo = way_back(store).map_or_else(String::new, |advice| format!(": {advice}"));
    warn(format_args!("sharddb: fewer than half of the {} remain{undo}", plural(before, "key")));
}

/// How to get the keys of the generation before; `None` if it was removed.
fn way_back(path: &Path) -> Option<String> {
    let store = Store::open(path).ok()?;
    let before = store.history().ok()?.into_iter().rev().nth(1)?;
    store.totals(before).ok()?;
    Some(match store.damage_of(before).ok()? {
        None => format!("sharddb rollback {} goes back to the generation before", word(path)),
        Some(_) => format!(
            "the generation before is damaged: sharddb salvage {} OUT saves every provable pair of it",
            word(&path.join(before.to_string()))
        ),
    })
}
