//! `keys`: prints all keys.

use std::io::Write;

use sharddb::Snapshot;
use sharddb::spec::ShardNumber;

use crate::context::{self, Errors};
use crate::database::{AnyDatabase, Opened, by_reading};
use crate::exit::Exit;
use crate::failure::{Failure, Result};

/// Print all keys, decimal, one per line, in storage order
#[derive(Debug, clap::Args)]
#[command(mut_arg("storage", by_reading))]
#[command(after_help = "\
Examples:
  sharddb keys numbers
  sharddb keys numbers --shard 1f | wc -l
  sharddb keys volume.zarr                       the numbers of the chunks that are present
  sharddb keys trades --column price             the chunks of a column of a bcolz table

A bad minishard is named on standard error, and the listing continues; the exit code is then 3.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: AnyDatabase,
    /// Only the keys of this shard, given by the number in its file name
    #[arg(long, value_name = "HEX", value_parser = parse_shard)]
    shard: Option<ShardNumber>,
}

type Keys<'a> = Box<dyn Iterator<Item = sharddb::Result<u64>> + 'a>;

impl Args {
    pub(crate) fn run(&self) -> Result<Exit> {
        let opened = self.database.open()?;
        let keys: Keys<'_> = match (&opened, self.shard) {
            (Opened::Sharded(snapshot), Some(number)) => keys_of_shard(snapshot, number)?,
            (Opened::Sharded(snapshot), None) => Box::new(snapshot.keys()),
            (Opened::Container(container), None) => container.keys(),
            (Opened::Container(_), Some(_)) => {
                return Err(Failure::usage("--shard is for databases, found a container of another format"));
            }
        };
        let mut errors = Errors::new();
        let mut out = context::stdout();
        for key in keys {
            match key {
                Ok(key) => writeln!(out, "{key}").map_err(Failure::stdout)?,
                Err(error) => errors.tell(&error),
            }
        }
        context::flush(out)?;
        Ok(errors.exit())
    }
}

fn keys_of_shard(snapshot: &Snapshot, number: ShardNumber) -> Result<Keys<'static>> {
    let most = snapshot.spec().max_shard();
    if number > most {
        return Err(Failure::usage(format!("expected a shard from 0 to {:x}, found {:x}", most.0, number.0)));
    }
    Ok(match snapshot.shard(number)? {
        Some(shard) => Box::new(shard.keys()),
        None => Box::new(std::iter::empty()),
    })
}

fn parse_shard(text: &str) -> Result<ShardNumber, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let plain = digits.chars().all(|c| c.is_ascii_hexdigit());
    let number = plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten();
    number.map(ShardNumber).ok_or_else(|| format!("expected the number of a shard in hex, found \"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_named_in_hex() {
        for (text, number) in [("0", 0), ("1f", 31), ("01F", 31), ("0x10", 16), ("ffffffffffffffff", u64::MAX)] {
            assert_eq!(parse_shard(text), Ok(ShardNumber(number)), "{text}");
        }
        for text in ["", "0x", "g", "-1", "+1", "1f.shard", "10000000000000000"] {
            assert!(parse_shard(text).is_err(), "{text}");
        }
    }
}
