//! What is measured together: some engines on one set of pairs, open or not, and the sums that must agree.

use std::path::{Path, PathBuf};

use crate::data::{DataSet, Sampler};
use crate::engine::{Engine, Peer};
use crate::engines::model::Model;
use crate::reader::Result;
use crate::slices::{AnyReader, Slice};

/// The amount of measuring.
#[derive(Clone, Debug)]
pub struct Effort {
    /// Rounds, in which the engines take turns.
    pub rounds: usize,
    /// Gets per slice.
    pub slice: usize,
    /// Gets from a cold cache per round.
    pub cold: usize,
    /// Loads per engine.
    pub loads: usize,
}

/// Some engines on one set of pairs.
pub struct Bench<'a> {
    pub sampler: Sampler,
    pub effort: &'a Effort,
    pub peers: Vec<&'a Peer>,
    /// Each peer has a directory of its name in it.
    pub directory: PathBuf,
}

/// An opened peer.
pub struct Opened<'a> {
    pub peer: &'a Peer,
    pub engine: Box<dyn Engine>,
}

impl<'a> Bench<'a> {
    pub fn data(&self) -> DataSet {
        self.sampler.data
    }

    /// The directory of a peer's files.
    pub fn files_of(&self, peer: &Peer) -> PathBuf {
        self.directory.join(peer.name)
    }

    /// The peers that can be opened.
    pub fn readable(&self) -> Vec<&'a Peer> {
        self.peers.iter().filter(|peer| peer.open.is_some()).copied().collect()
    }

    pub fn open(&self, peer: &'a Peer) -> Result<Opened<'a>> {
        let open = peer.open.ok_or("expected a peer that can be read")?;
        Ok(Opened { peer, engine: open(&self.files_of(peer))? })
    }

    /// The expected sum of a slice.
    pub fn expected(&self, slice: &Slice) -> Result<u64> {
        Model::new(self.data()).run(slice)
    }
}

impl Opened<'_> {
    /// Runs a slice and returns its time by `clock`.
    ///
    /// Errors: the sum is not the expected one; those of the engine.
    pub fn run(&self, slice: &Slice, expected: u64, clock: Clock) -> Result<f64> {
        let mut measured = (0, 0.0);
        self.engine.read(&mut |reader| {
            measured = clock(&mut || reader.run(slice))?;
            Ok(())
        })?;
        check(self.peer, measured.0, expected)?;
        Ok(measured.1)
    }
}

/// Runs a closure that returns a sum; returns the sum and the time.
pub type Clock = fn(&mut dyn FnMut() -> Result<u64>) -> Result<(u64, f64)>;

/// Checks that the sum of what an engine read equals that of what was loaded.
pub fn check(peer: &Peer, sum: u64, expected: u64) -> Result<()> {
    if sum == expected {
        Ok(())
    } else {
        Err(format!("{}: expected the sum {expected:#x} of what was read, found {sum:#x}", peer.name).into())
    }
}

/// The peers in the order of a round. The first peer rotates.
pub fn rotated<T>(peers: &[T], round: usize) -> impl Iterator<Item = &T> {
    peers.iter().cycle().skip(round % peers.len().max(1)).take(peers.len())
}

/// All files below a directory.
pub fn files_under(directory: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut directories) = (Vec::new(), vec![directory.to_path_buf()]);
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            match entry.file_type()? {
                kind if kind.is_dir() => directories.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {} // the target of a link is found by itself
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_begins_once_in_a_while() {
        let order = |round| rotated(&["a", "b", "c"], round).copied().collect::<String>();
        assert_eq!([order(0), order(1), order(2), order(3)], ["abc", "bca", "cab", "abc"]);
    }

    #[test]
    fn a_wrong_sum_is_an_error_that_names_the_engine() {
        let peer = &crate::engines::PEERS[0];
        assert!(check(peer, 7, 7).is_ok());
        let words = check(peer, 8, 7).unwrap_err().to_string();
        assert!(words.contains(peer.name) && words.contains("0x7") && words.contains("0x8"), "{words}");
    }
}
