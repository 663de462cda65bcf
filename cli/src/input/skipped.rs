//! The files of directories that were skipped: their number for each reason.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::context::Context;
use crate::histogram::grouped;
use crate::number::plural;
use crate::printable::word;

/// Why a file is skipped, in the order of messages.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Why {
    /// By a pattern of `--ignore`.
    Ignored(String),
    /// A subdirectory by a pattern of `--ignore`, with all files in it.
    IgnoredTree(String),
    /// Its name begins with a dot.
    Hidden,
    Info,
    /// Which keys are in a box: for viewers.
    SpatialIndex,
    /// A piece of a mesh. Other files name it.
    Fragment,
    /// A link to a directory, which `--recursive` does not follow.
    Link,
}

/// Skipped files, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped(BTreeMap<Why, u64>);

impl Skipped {
    pub(crate) fn add(&mut self, why: Why) {
        *self.0.entry(why).or_default() += 1;
    }

    /// Adds the files of another input.
    pub(crate) fn absorb(&mut self, other: Skipped) {
        for (why, files) in other.0 {
            *self.0.entry(why).or_default() += files;
        }
    }

    /// Reports that files were skipped, if there are any.
    pub(crate) fn say(&self, context: &Context) {
        if self.files() > 0 {
            context.say(format_args!("skipped {self}"));
        }
    }

    pub(crate) fn files(&self) -> u64 {
        self.0.values().sum()
    }
}

/// For example `12 files: 10 by --ignore '*.json', 2 hidden`.
impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = |(why, files): (&Why, &u64)| {
            let number = grouped(*files);
            match why {
                Why::Ignored(pattern) => format!("{number} by --ignore {}", word(Path::new(pattern))),
                Why::IgnoredTree(pattern) => {
                    format!("{} by --ignore {}", plural(*files, "subtree"), word(Path::new(pattern)))
                }
                Why::Hidden => format!("{number} hidden"),
                Why::Info => format!("{number} info"),
                Why::SpatialIndex => format!("{number} *.spatial or *.labels*"),
                Why::Fragment => {
                    format!("{} (values are the manifests KEY:0 that name them)", plural(*files, "mesh fragment"))
                }
                Why::Link => plural(*files, "directory link"),
            }
        };
        let reasons: Vec<_> = self.0.iter().map(reason).collect();
        write!(f, "{}: {}", plural(self.files(), "file"), reasons.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted() {
        let mut skipped = Skipped::default();
        skipped.add(Why::Info);
        assert_eq!(skipped.to_string(), "1 file: 1 info");
        let mut other = Skipped::default();
        for why in [Why::Hidden, Why::Info, Why::Link, Why::Fragment, Why::Fragment, Why::SpatialIndex] {
            other.add(why);
        }
        for _ in 0..1000 {
            other.add(Why::Ignored("*.json".to_string()));
        }
        other.add(Why::Ignored("old".to_string()));
        skipped.absorb(other);
        assert_eq!(skipped.files(), 1008);
        assert_eq!(
            skipped.to_string(),
            "1,008 files: 1,000 by --ignore '*.json', 1 by --ignore old, 1 hidden, 2 info, 1 *.spatial or *.labels*, \
             2 mesh fragments (values are the manifests KEY:0 that name them), 1 directory link"
        );
    }
}
