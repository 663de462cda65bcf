//! Tips for subcommands that users of other tools expect.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// What a user may try, and what does that here.
const EXPECTED: [(&str, &str); 13] = [
    ("ls", "'sharddb keys' lists the keys of a database, 'sharddb generations' the generations of a store"),
    ("list", "'sharddb keys' lists the keys of a database, 'sharddb generations' the generations of a store"),
    ("cat", "'sharddb get' writes a value, 'sharddb export' all of them"),
    ("show", "'sharddb info' describes a database, 'sharddb get' writes a value"),
    ("dump", "'sharddb export' writes all pairs"),
    ("load", "'sharddb build' builds a store from pairs"),
    ("create", "'sharddb build' builds a store from pairs"),
    ("set", "'sharddb put' puts one pair, 'sharddb update' many"),
    ("insert", "'sharddb put' puts one pair, 'sharddb update' many"),
    ("rm", "'sharddb delete' deletes keys, 'sharddb discard' a generation"),
    ("cp", "'sharddb copy' copies some pairs, 'sharddb import' a whole database"),
    ("check", "'sharddb verify' checks a database"),
    ("version", "'sharddb --version' prints the version"),
];

/// Adds the tip for an unknown subcommand, in place of those that only look alike.
pub(crate) fn add(error: &mut Error) {
    if error.kind() != ErrorKind::InvalidSubcommand {
        return;
    }
    let Some(ContextValue::String(found)) = error.get(ContextKind::InvalidSubcommand) else { return };
    let Some((_, tip)) = EXPECTED.iter().find(|(name, _)| name == found) else { return };
    error.remove(ContextKind::SuggestedSubcommand);
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(*tip)]));
}
