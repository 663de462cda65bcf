//! The plan and the receipts of a partitioned build, as files.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sharddb::cluster::PartPlan;

use crate::context::warn;
use crate::failure::{Failure, Place, Result};

/// The maximum length of a file of receipts in bytes.
const MOST: u64 = 1 << 30;

/// Reads a plan.
///
/// Errors: `Io`; `Malformed` if the file is anything else.
pub(crate) fn plan(path: &Path) -> Result<PartPlan> {
    let mut plans = read(std::slice::from_ref(&path.to_path_buf()))?;
    match (plans.pop(), plans.is_empty()) {
        (Some(plan), true) => Ok(plan),
        _ => Err(Failure::malformed(&name(path), Place::Whole, "expected one plan, found several")),
    }
}

/// Reads receipts: one per line, in any number of files; `-` is standard input.
///
/// Errors: `Io`; `Malformed`, with the place, for anything else, also for a file without a receipt.
pub(crate) fn read<T: FromStr<Err = sharddb::Error>>(paths: &[PathBuf]) -> Result<Vec<T>> {
    let mut all = Vec::new();
    for path in paths {
        let text = text(path)?;
        let mut found = false;
        for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim().is_empty()) {
            let parsed = text.parse::<T>();
            all.push(parsed.map_err(|error| Failure::malformed(&name(path), Place::Line(line), error.to_string()))?);
            found = true;
        }
        if !found {
            let message = "expected what a step printed, one JSON object per line, found nothing: did the step fail?";
            return Err(Failure::malformed(&name(path), Place::Whole, message));
        }
    }
    Ok(all)
}

/// Says that an earlier run of a command published a generation, and what is current now.
pub(crate) fn say_not_current(generation: &str, current: Option<&str>) {
    let current = current.unwrap_or("none");
    warn(format_args!("sharddb: {generation} was published by an earlier run of this command; current is {current}"));
}

fn text(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        io::stdin().take(MOST + 1).read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(MOST + 1).read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::io("read", path, error))?;
    if bytes.len() as u64 > MOST {
        let message = format!("expected receipts of at most {MOST} bytes, found more");
        return Err(Failure::malformed(&name(path), Place::Whole, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to() as u64;
        Failure::malformed(&name(path), Place::Byte(at), "expected JSON in UTF-8, found other bytes")
    })
}

fn name(path: &Path) -> String {
    path.display().to_string()
}
