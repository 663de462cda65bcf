//! Transcripts: what the command prints for a command line, kept in `cli/tests/transcripts`, one file per verb.
//!
//! A transcript is one run: `$` the command line, `<` standard input, `|` standard output, `!` standard error, and the
//! exit code. Paths are relative to the directory of the test; times and dates are replaced by a word in brackets.
//! `SHARDDB_ACCEPT=1 cargo test -p sharddb-cli transcripts` writes what the command prints now; `git diff` shows what
//! changed. Remove a file before, and it has no transcript after that no test compares.

mod bench;
mod build;
mod containers;
mod damage;
mod diff;
mod errors;
mod formats;
mod import;
mod living;
mod lookups;
mod mistaken;
mod names;
mod opening;
mod options;
mod parts;
mod plan;
mod progress;
mod replacing;
mod reports;
mod store;
mod urls;

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::process::Output;

use regex::Regex;

use crate::common::{Place, Start, command};
use crate::process::output_with_input;

/// Runs a command line in the directory of a test, and compares the run with the transcript of this name.
#[track_caller]
pub(crate) fn transcript(place: &Place, name: &str, args: &[&str]) {
    let output = command(args).current_dir(place.path("")).start().end();
    compare(&[], name, args, "", &output);
}

/// Like [`transcript`], with a text on standard input.
#[track_caller]
pub(crate) fn transcript_with_input(place: &Place, name: &str, args: &[&str], input: &str) {
    let output = output_with_input(command(args).current_dir(place.path("")), input.as_bytes());
    compare(&[], name, args, input, &output);
}

/// What differs from run to run, and the word for it.
const VARIES: [(&str, &str); 6] = [
    (r"\b[0-9]+\.[0-9] s\b", "[TIME]"),
    (r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+Z?)?", "[DATE]"),
    (r#""seconds":[0-9.e-]+"#, "\"seconds\":[TIME]"),
    (r"/[^ \n]*/\.tmp[A-Za-z0-9]{6}\b", "[DIR]"),
    // of a spill, which has random bytes
    (r#""(digest|run|spills)":"[0-9a-f]{32}""#, "\"$1\":\"[DIGEST]\""),
    (r"\b(task|part)-([0-9]+)-[0-9a-f]{32}\b", "$1-$2-[DIGEST]"),
];

/// Compares a run with the transcript of this name. `varies` is like [`VARIES`], for this run.
#[track_caller]
fn compare(varies: &[(&str, &str)], name: &str, args: &[&str], input: &str, output: &Output) {
    let written = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let each = VARIES.iter().chain(varies);
        each.fold(text, |text, (pattern, word)| Regex::new(pattern).unwrap().replace_all(&text, *word).into_owned())
    };
    let found = [
        format!("$ sharddb {}\n", args.iter().map(|arg| quoted(arg)).collect::<Vec<_>>().join(" ")),
        marked("< ", input),
        marked("| ", &written(&output.stdout)),
        marked("! ", &written(&output.stderr)),
        format!("exit {}\n", output.status.code().map_or("by a signal".to_string(), |code| code.to_string())),
    ]
    .concat();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let path = path.join(args[0].trim_start_matches('-')).with_extension("txt");
    if env::var_os("SHARDDB_ACCEPT").is_some() {
        return accept(&path, name, found);
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let expected = transcripts(&kept).remove(name).unwrap_or_default();
    assert!(found == expected, "transcript {name} of {}: expected\n{expected}\nfound\n{found}", path.display());
}

/// Writes a transcript into its file, which other processes may be doing too.
fn accept(path: &Path, name: &str, text: String) {
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    file.lock().unwrap();
    let mut kept = String::new();
    file.read_to_string(&mut kept).unwrap();
    let mut all = transcripts(&kept);
    all.insert(name, text);
    let all: Vec<_> = all.iter().map(|(name, text)| format!("## {name}\n{text}")).collect();
    file.set_len(0).unwrap();
    file.rewind().unwrap();
    file.write_all(all.join("\n").as_bytes()).unwrap();
}

/// The transcripts of a file by name.
fn transcripts(file: &str) -> BTreeMap<&str, String> {
    let mut all = BTreeMap::new();
    let mut name = "";
    for line in file.split_inclusive('\n') {
        match line.strip_prefix("## ") {
            Some(title) => name = title.trim_end(),
            None if line == "\n" => {} // between transcripts: the lines of a transcript have marks
            None => *all.entry(name).or_insert_with(String::new) += line,
        }
    }
    all
}

/// A text with a mark before each line, and a note if its last line does not end.
fn marked(mark: &str, text: &str) -> String {
    let lines = text.split_inclusive('\n').map(|line| format!("{mark}{line}")).collect();
    if text.is_empty() || text.ends_with('\n') { lines } else { lines + "\n\\ no end of line\n" }
}

/// An argument as a shell reads it.
fn quoted(arg: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_=./:,@%+".contains(c);
    if !arg.is_empty() && arg.chars().all(is_plain) {
        arg.to_string()
    } else {
        format!("'{}'", arg.replace('\'', r"'\''"))
    }
}
