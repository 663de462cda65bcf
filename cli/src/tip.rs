//! Tips for subcommands and arguments that users of other tools expect.

use std::ffi::OsString;

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

/// Adds a tip for an unknown subcommand or a wrong argument, in place of those that only look alike.
pub(crate) fn add(error: &mut Error, arguments: &[OsString]) {
    let tip = match error.kind() {
        ErrorKind::InvalidSubcommand => of_subcommand(error),
        ErrorKind::UnknownArgument => of_argument(error),
        ErrorKind::MissingRequiredArgument => of_missing(error, arguments),
        _ => None,
    };
    if error.kind() == ErrorKind::UnknownArgument {
        error.remove(ContextKind::Suggested); // to pass an unknown option as a value, which is never meant
    }
    if let Some(tip) = tip {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(tip)]));
    }
}

fn of_subcommand(error: &Error) -> Option<String> {
    let ContextValue::String(found) = error.get(ContextKind::InvalidSubcommand)? else { return None };
    EXPECTED.iter().find(|(name, _)| name == found).map(|(_, tip)| (*tip).to_string())
}

/// The tip for a path or a value that is given without its option.
fn of_argument(error: &Error) -> Option<String> {
    let ContextValue::String(found) = error.get(ContextKind::InvalidArg)? else { return None };
    let option = match verb(error)?.as_str() {
        _ if found.starts_with('-') => return None,
        "build" | "update" | "spill" | "bench" | "plan" => "--input",
        "put" => "--value",
        "publish" => "--from",
        "export" | "get" => "--output",
        _ => return None,
    };
    Some(format!("did you mean '{option} {found}'?"))
}

/// The tip for `build --input FILE.. STORE`, where the option takes the store, too.
fn of_missing(error: &Error, arguments: &[OsString]) -> Option<String> {
    let ContextValue::Strings(missing) = error.get(ContextKind::InvalidArg)? else { return None };
    let has_inputs = matches!(verb(error)?.as_str(), "build" | "update" | "spill" | "bench" | "plan");
    let takes_the_store =
        has_inputs && missing.iter().any(|name| name == "<STORE>") && arguments.iter().any(|it| it == "--input");
    takes_the_store.then(|| "--input takes all paths that follow it: give the store first".to_string())
}

/// The subcommand of a wrong command line.
fn verb(error: &Error) -> Option<String> {
    let ContextValue::StyledStr(usage) = error.get(ContextKind::Usage)? else { return None };
    let usage = usage.to_string();
    usage.split_whitespace().skip_while(|word| *word != "sharddb").nth(1).map(str::to_string)
}
