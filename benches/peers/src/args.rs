//! The command line.

use std::path::PathBuf;

use crate::bench::Effort;
use crate::data::DataSet;
use crate::engine::Peer;
use crate::engines::{PEERS, REFERENCE, sharddb};
use crate::reader::Result;
use crate::workloads::cold::Evict;

pub const USAGE: &str = "\
Measures ShardDb beside LMDB, redb, cdb64, SQLite, hashbrown and one file a key.

Usage: cargo run --release -- [OPTIONS]

  --quick             One set (1Mx100), one load, without files, sharddb-ahead and sorted-load: about a minute
  --sets LIST         Sets of pairs, KEYSxVALUE_BYTES [default: 1Mx8,1Mx100,1Mx4096,1Mxlognormal,10Mx8,10Mx100]
  --engines LIST      Of sharddb, sharddb-never, sharddb-always, sharddb-open, sharddb-load, sharddb-ahead,
                      sharddb-unchecked, lmdb, redb, cdb64, sqlite, hashbrown, files, limit-mapped, limit-pread;
                      lmdb is always included [default: all; files up to 1M keys]
  --workloads LIST    Of sorted-load, open, hit, dependent, miss, zipf, batch, whole, scan, threads, service,
                      cold; loading pairs in random order is always included [default: all]
  --rounds N          Rounds in which the engines take turns, at least 1 [default: 7]
  --loads N           Loads of each engine, at least 1 [default: 3; files once]
  --dir DIR           Where the databases go, in one directory per set, which is emptied [default: target/peers]
  --json FILE         Also writes the figures as JSON
  --keep              Keeps the databases
  --restart           Measures warm reads as after a restart: empties the page cache of the files, then opens and warms
                      each engine as its documentation advises
  --drop-caches       Empties the page cache of the entire machine (needs root), not only that of the files
  --help              This text";

const WORKLOADS: [&str; 12] =
    ["sorted-load", "open", "hit", "dependent", "miss", "zipf", "batch", "whole", "scan", "threads", "service", "cold"];

#[derive(Debug)]
pub struct Arguments {
    pub sets: Vec<DataSet>,
    pub engines: Vec<String>,
    pub workloads: Vec<String>,
    pub effort: Effort,
    pub directory: PathBuf,
    pub json: Option<PathBuf>,
    pub keep: bool,
    pub restart: bool,
    pub evict: Evict,
}

/// The request of a command line.
#[derive(Debug)]
pub enum Request {
    Measure(Arguments),
    Help,
}

impl Default for Arguments {
    fn default() -> Arguments {
        Arguments {
            sets: Vec::new(),
            engines: PEERS.iter().map(|peer| peer.name.to_string()).collect(),
            workloads: WORKLOADS.map(str::to_string).into(),
            effort: Effort { rounds: 7, slice: 200_000, cold: 1000, loads: 3 },
            directory: PathBuf::from("target/peers"),
            json: None,
            keep: false,
            restart: false,
            evict: Evict::Files,
        }
    }
}

impl Arguments {
    pub fn parse(arguments: &[String]) -> Result<Request> {
        let mut parsed = Arguments::default();
        if arguments.iter().any(|argument| argument == "--quick") {
            parsed.make_quick()?; // before the other options, so that they can change it
        }
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("expected a value after {argument}, found none"));
            match argument.as_str() {
                "--quick" => {}
                "--sets" => parsed.sets = value()?.split(',').map(str::parse).collect::<Result<_>>()?,
                "--engines" => {
                    parsed.engines = names(value()?, &PEERS.iter().map(|peer| peer.name).collect::<Vec<_>>())?
                }
                "--workloads" => parsed.workloads = names(value()?, &WORKLOADS)?,
                "--rounds" => parsed.effort.rounds = count(value()?)?,
                "--loads" => parsed.effort.loads = count(value()?)?,
                "--dir" => parsed.directory = PathBuf::from(value()?),
                "--json" => parsed.json = Some(PathBuf::from(value()?)),
                "--keep" => parsed.keep = true,
                "--restart" => parsed.restart = true,
                "--drop-caches" => parsed.evict = Evict::Machine,
                "--help" | "-h" => return Ok(Request::Help),
                _ => return Err(format!("expected an option, found {argument:?}; --help lists them").into()),
            }
        }
        if parsed.sets.is_empty() {
            let sets = ["1Mx8", "1Mx100", "1Mx4096", "1Mxlognormal", "10Mx8", "10Mx100"];
            parsed.sets = sets.into_iter().map(str::parse).collect::<Result<_>>()?;
        }
        Ok(Request::Measure(parsed))
    }

    fn make_quick(&mut self) -> Result<()> {
        self.sets = vec!["1Mx100".parse()?];
        self.engines.retain(|engine| !["files", sharddb::READING_AHEAD.name].contains(&engine.as_str()));
        self.workloads.retain(|workload| workload != "sorted-load");
        self.effort = Effort { rounds: 7, slice: 100_000, cold: 100, loads: 1 };
        Ok(())
    }

    /// The selected engines that can hold this set, always including the reference.
    pub fn peers(&self, data: &DataSet) -> Vec<&'static Peer> {
        let asked = |name: &str| name == REFERENCE || self.engines.iter().any(|engine| engine == name);
        PEERS.iter().filter(|peer| asked(peer.name) && (peer.can_hold)(data)).collect()
    }

    pub fn wants(&self, workload: &str) -> bool {
        self.workloads.iter().any(|wanted| wanted == workload)
    }
}

fn names(list: &str, known: &[&str]) -> Result<Vec<String>> {
    match list.split(',').find(|name| !known.contains(name)) {
        Some(unknown) => Err(format!("expected one of {}, found {unknown:?}", known.join(", ")).into()),
        None => Ok(list.split(',').map(str::to_string).collect()),
    }
}

fn count(text: &str) -> Result<usize> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(format!("expected a number of at least 1, found {text:?}").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments> {
        let arguments: Vec<_> = line.split_whitespace().map(str::to_string).collect();
        match Arguments::parse(&arguments)? {
            Request::Measure(parsed) => Ok(parsed),
            Request::Help => panic!("expected a request to measure"),
        }
    }

    #[test]
    fn options_change_what_quick_chose_wherever_they_stand() {
        for line in ["--quick --sets 10kx8 --rounds 2", "--sets 10kx8 --rounds 2 --quick"] {
            let parsed = parse(line).unwrap();
            assert_eq!((parsed.sets.len(), parsed.sets[0].keys, parsed.effort.rounds), (1, 10_000, 2));
        }
    }

    #[test]
    fn the_reference_is_always_there() {
        let names = |line| -> Vec<_> {
            let parsed = parse(line).unwrap();
            parsed.peers(&parsed.sets[0]).iter().map(|peer| peer.name).collect()
        };
        assert_eq!(names("--engines files --sets 1Mx8"), ["lmdb", "files"]);
        assert_eq!(names("--engines files --sets 10Mx8"), ["lmdb"]);
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for line in ["--sets", "--sets x", "--engines rocksdb", "--workloads hot", "--rounds 0", "--loads -1", "quick"]
        {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
