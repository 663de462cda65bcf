//! The files of directories that were skipped: their number, and a few names for a message.

use std::fmt;
use std::path::Path;

use crate::context::Context;
use crate::histogram::grouped;

/// The number of names in a message.
const NAMED: usize = 3;

/// Skipped files: those that contain no pair, and those that `--ignore` names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    files: u64,
    /// The first names in ascending order, at most [`NAMED`].
    first: Vec<String>,
}

impl Skipped {
    pub(crate) fn add(&mut self, path: &Path) {
        self.absorb(Skipped { files: 1, first: vec![path.display().to_string()] });
    }

    /// Adds the files of another input.
    pub(crate) fn absorb(&mut self, other: Skipped) {
        self.files += other.files;
        self.first.extend(other.first);
        self.first.sort_unstable();
        self.first.truncate(NAMED);
    }

    /// Tells that files were skipped, if there are any.
    pub(crate) fn say(&self, context: &Context) {
        if self.files > 0 {
            context.say(format_args!("skipped {self}"));
        }
    }

    pub(crate) fn files(&self) -> u64 {
        self.files
    }
}

/// For example `5 files without a pair: d/.x, d/a.labels, d/info and 2 more`.
impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.files == 1 { "file" } else { "files" };
        write!(f, "{} {noun} without a pair: {}", grouped(self.files), self.first.join(", "))?;
        match self.files - self.first.len() as u64 {
            0 => Ok(()),
            more => write!(f, " and {} more", grouped(more)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_first_and_counts_the_others() {
        let mut skipped = Skipped::default();
        skipped.add(Path::new("d/info"));
        assert_eq!(skipped.to_string(), "1 file without a pair: d/info");
        let mut other = Skipped::default();
        for name in ["e/.x", "e/b", "d/a"] {
            other.add(Path::new(name));
        }
        skipped.absorb(other);
        assert_eq!(skipped.to_string(), "4 files without a pair: d/a, d/info, e/.x and 1 more");
    }
}
