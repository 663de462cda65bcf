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

use insta::Settings;
use insta_cmd::assert_cmd_snapshot;

use crate::common::{Place, command};

/// Runs a command line in the directory of a test, and compares the run with the transcript of this name.
#[track_caller]
pub(crate) fn transcript(place: &Place, name: &str, args: &[&str]) {
    settings().bind(|| assert_cmd_snapshot!(name, command(args).current_dir(place.path(""))));
}

/// Like [`transcript`], with a text on standard input.
#[track_caller]
pub(crate) fn transcript_with_input(place: &Place, name: &str, args: &[&str], input: &str) {
    settings().bind(|| {
        assert_cmd_snapshot!(name, command(args).current_dir(place.path("")).pass_stdin(input));
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
