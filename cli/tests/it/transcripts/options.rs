//! Every option of every subcommand is shown by a transcript.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::common::sharddb;

/// The options of clap, and those that every subcommand has.
const SHARED: [&str; 4] = ["--help", "--quiet", "--verbose", "--version"];

/// The words of all command lines of transcripts. A value with spaces is several words.
fn transcripts() -> Vec<Vec<String>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let files = fs::read_dir(directory).unwrap().map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap());
    files.flat_map(|file| command_lines(&file)).collect()
}

fn command_lines(transcripts: &str) -> Vec<Vec<String>> {
    let lines = transcripts.lines().filter_map(|line| line.strip_prefix("$ sharddb "));
    lines.map(|line| line.split(' ').map(|word| word.trim_matches('\'').to_string()).collect()).collect()
}

/// The subcommands of a help text, or those of one of its subcommands.
fn subcommands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let named = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    named.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_string).collect()
}

/// The long options of a help text, which begin their line, after the short one if any.
fn options(help: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let line = line.trim_start();
        let line = line.strip_prefix('-').and_then(|rest| rest.get(1..)?.strip_prefix(", ")).unwrap_or(line);
        let name = line.strip_prefix("--")?.split([' ', '=', '[']).next()?;
        Some(format!("--{name}"))
    };
    help.lines().filter(|line| line.starts_with("  ")).filter_map(name).collect()
}

/// All subcommands with their options.
fn verbs() -> BTreeMap<Vec<String>, BTreeSet<String>> {
    let mut verbs = BTreeMap::new();
    let mut open = vec![Vec::new()];
    while let Some(verb) = open.pop() {
        let help = sharddb(verb.iter().map(String::as_str).chain(["--help"])).expect(0).text().to_string();
        open.extend(subcommands(&help).into_iter().map(|name| [verb.clone(), vec![name]].concat()));
        verbs.insert(verb, options(&help));
    }
    verbs
}

#[test]
fn every_option_is_in_a_transcript() {
    let transcripts = transcripts();
    let mut missing = Vec::new();
    for (verb, options) in verbs() {
        let of_verb = transcripts.iter().filter(|args| args.starts_with(&verb));
        let shown: BTreeSet<&str> = of_verb.flatten().filter_map(|arg| arg.split('=').next()).collect();
        let unseen =
            options.iter().filter(|option| !shown.contains(option.as_str()) && !SHARED.contains(&option.as_str()));
        missing.extend(unseen.map(|option| format!("sharddb {} {option}", verb.join(" "))));
    }
    assert!(missing.is_empty(), "expected a transcript of each option, found none of:\n{}", missing.join("\n"));
}

#[test]
fn the_readers_of_help_texts_and_transcripts_see_what_is_there() {
    let verbs = verbs();
    let build = &verbs[&vec!["build".to_string()]];
    assert!(build.contains("--input") && build.contains("--threads") && build.contains("--keep"), "{build:?}");
    let pack = &verbs[&vec!["zarr".to_string(), "pack".to_string()]];
    assert!(pack.contains("--shard-shape"), "{pack:?}");
    let lines = command_lines("## a\n$ sharddb build --input 'a b'\n| $ sharddb get\nexit 0\n\n## b\n$ sharddb keys\n");
    assert_eq!(lines, [vec!["build", "--input", "a", "b"], vec!["keys"]]);
}
