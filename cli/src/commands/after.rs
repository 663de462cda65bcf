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
        if published.is_new {
            let can_go_back = self.keep != Some(1);
            warn_if_few(published.keys, published.keys_before, can_go_back.then_some(store));
        }
        self.collect(published.is_new, store, context)
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

/// Warns if fewer than half of the keys remain. `store` is where a rollback is possible.
pub(super) fn warn_if_few(keys: u64, before: Option<u64>, store: Option<&Path>) {
    let Some(before) = before.filter(|before| keys < before.div_ceil(2)) else { return };
    let undo = store.map_or_else(String::new, |store| {
        format!(": sharddb rollback {} goes back to the generation before", word(store))
    });
    warn(format_args!("sharddb: fewer than half of the {} remain{undo}", plural(before, "key")));
}

/// The number of keys, or what else `noun` says, and the one before: `3 keys (5 before)`.
pub(super) fn counted(number: u64, noun: &str, before: Option<u64>) -> String {
    let before = before.map_or_else(String::new, |before| format!(" ({} before)", grouped(before)));
    format!("{}{before}", plural(number, noun))
}
