//! Transcripts: what the command prints for a command line, kept in `cli/tests/transcripts/*.snap`.
//!
//! A transcript is one run: arguments, standard input, exit code, standard output and standard error. Paths are relative
//! to the directory of the test; times and dates are replaced by a word in brackets. `cargo insta review`
//! shows a difference, and `INSTA_UPDATE=always cargo test -p sharddb-cli transcripts` accepts all of them.

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
mod opening;
mod options;
mod parts;
mod plan;
mod progress;
mod reports;
mod store;
mod urls;

use std::process::Output;

use insta::internals::Content;
use insta::{Settings, assert_snapshot};

use crate::common::{Place, Start, command};
use crate::process::output_with_input;

/// Runs a command line in the directory of a test, and compares the run with the transcript of this name.
#[track_caller]
pub(crate) fn transcript(place: &Place, name: &str, args: &[&str]) {
    let output = command(args).current_dir(place.path("")).start().end();
    compare(settings(), name, args, None, &output);
}

/// Like [`transcript`], with a text on standard input.
#[track_caller]
pub(crate) fn transcript_with_input(place: &Place, name: &str, args: &[&str], input: &str) {
    let output = output_with_input(command(args).current_dir(place.path("")), input.as_bytes());
    compare(settings(), name, args, Some(input), &output);
}

/// Compares a run with the transcript of this name.
#[track_caller]
fn compare(mut settings: Settings, name: &str, args: &[&str], input: Option<&str>, output: &Output) {
    let text = |text: &str| Content::String(text.to_string());
    let args = Content::Seq(args.iter().map(|arg| text(arg)).collect());
    let input = input.map(|input| ("stdin", text(input)));
    let info = [("program", text("sharddb")), ("args", args)].into_iter().chain(input).collect();
    settings.set_raw_info(&Content::Struct("Info", info));
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let (success, code) = (output.status.success(), output.status.code().unwrap_or(-1));
    settings.bind(|| {
        assert_snapshot!(
            name,
            format!(
                "success: {success}\nexit_code: {code}\n----- stdout -----\n{stdout}\n----- stderr -----\n{stderr}"
            )
        );
    });
}

/// Where transcripts are kept, and what differs from run to run.
fn settings() -> Settings {
    let mut settings = Settings::clone_current();
    settings.set_snapshot_path("../../transcripts");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    for (pattern, word) in [
        (r"\b[0-9]+\.[0-9] s\b", "[TIME]"),
        (r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}([T ][0-9:.]+Z?)?", "[DATE]"),
        (r#""seconds":[0-9.e-]+"#, "\"seconds\":[TIME]"),
        (r"/[^ \n]*/\.tmp[A-Za-z0-9]{6}\b", "[DIR]"),
    ] {
        settings.add_filter(pattern, word);
    }
    settings
}
