//! `keys`: prints all keys.

use std::io::Write;

use sharddb::Snapshot;
use sharddb::internal::shard_number;
use sharddb::spec::ShardNumber;

use crate::commands::write_line;
use crate::context::{self, Context, Errors};
use crate::database::{AnyDatabase, Opened};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::order::Order;
use crate::remote::{RemoteDatabase, RemoteOpening};

/// Print keys, decimal, one per line: all in storage order, or those of a range in order
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb keys numbers
  sharddb keys numbers --count
  sharddb keys numbers --shard 1f
  sharddb keys numbers --range 100..200          ascending
  sharddb keys numbers --sorted --reverse
  sharddb keys volume.zarr                       the numbers of the chunks that are present
  sharddb keys trades --column price             the chunks of a column of a bcolz table
  sharddb keys s3://bucket/numbers --range 100..200

In order, keys are printed when all are sorted. A store that was built with --ordered has them
sorted; otherwise all indexes are read, or with the identity hash those that can hold the range.

A bad minishard is named on standard error, and the listing continues; the exit code is then 3. With
--range --count it is the only output. At a URL the listing ends with the first bad minishard.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: AnyDatabase,
    #[command(flatten)]
    at_url: RemoteOpening,
    /// Only the keys of this shard, given by the number in its file name
    #[arg(long, value_name = "HEX", value_parser = parse_shard, conflicts_with_all = ["range", "sorted", "reverse"])]
    shard: Option<ShardNumber>,
    /// Print only the number of keys
    #[arg(long)]
    count: bool,
    #[command(flatten)]
    order: Order,
}

type Keys<'a> = Box<dyn Iterator<Item = sharddb::Result<u64>> + 'a>;

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        self.order.check()?;
        if let Some(remote) = self.database.open_remote(&self.at_url, context)? {
            return self.run_remote(&remote);
        }
        let opened = self.database.open()?;
        if let Opened::Container(_) = opened {
            self.order.refuse_container()?;
        }
        let keys: Keys<'_> = match (&opened, self.shard) {
            (Opened::Sharded(snapshot), None) if self.order.is_given() && self.count => {
                write_line(&self.order.count(snapshot)?)?;
                return Ok(Exit::Done);
            }
            (Opened::Sharded(snapshot), None) if self.order.is_given() => {
                self.order.directed(self.order.keys(snapshot, context))
            }
            (Opened::Sharded(snapshot), Some(number)) => keys_of_shard(snapshot, number)?,
            (Opened::Sharded(snapshot), None) => Box::new(snapshot.keys()),
            (Opened::Container(container), None) => container.keys(),
            (Opened::Container(_), Some(_)) => {
                return Err(Failure::usage("--shard is for databases, found a container of another format"));
            }
        };
        let mut errors = Errors::new();
        let mut out = context::stdout();
        let mut count: u64 = 0;
        for key in keys {
            match key {
                Ok(_) if self.count => count += 1,
                Ok(key) => writeln!(out, "{key}").map_err(Failure::stdout)?,
                Err(error) => errors.tell(&error),
            }
        }
        if self.count {
            writeln!(out, "{count}").map_err(Failure::stdout)?;
        }
        context::flush(out)?;
        Ok(errors.exit())
    }

    fn run_remote(&self, remote: &RemoteDatabase) -> Result<Exit> {
        if self.shard.is_some() {
            return Err(Failure::usage(format!("--shard is for local databases, found {}", remote.url())));
        }
        let snapshot = remote.reader().snapshot();
        match self.order.bounds_at_url()? {
            Some(bounds) => {
                let mut keys = snapshot.key_range(bounds);
                self.print_batches(|| remote.run("keys", keys.next_batch()))
            }
            None => {
                let mut keys = snapshot.keys();
                self.print_batches(|| remote.run("keys", keys.next_batch()))
            }
        }
    }

    fn print_batches(&self, mut next: impl FnMut() -> Result<Option<Vec<u64>>>) -> Result<Exit> {
        let (mut out, mut count) = (context::stdout(), 0);
        while let Some(keys) = next()? {
            count += keys.len() as u64;
            if !self.count {
                keys.iter().try_for_each(|key| writeln!(out, "{key}")).map_err(Failure::stdout)?;
            }
        }
        if self.count {
            writeln!(out, "{count}").map_err(Failure::stdout)?;
        }
        context::flush(out)?;
        Ok(Exit::Done)
    }
}

fn keys_of_shard(snapshot: &Snapshot, number: ShardNumber) -> Result<Keys<'static>> {
    let most = snapshot.spec().max_shard();
    if number > most {
        return Err(Failure::usage(format!("expected a shard from 0 to {:x}, found {:x}", most.get(), number.get())));
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
    number.map(shard_number).ok_or_else(|| format!("expected the number of a shard in hex, found \"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_named_in_hex() {
        for (text, number) in [("0", 0), ("1f", 31), ("01F", 31), ("0x10", 16), ("ffffffffffffffff", u64::MAX)] {
            assert_eq!(parse_shard(text), Ok(shard_number(number)), "{text}");
        }
        for text in ["", "0x", "g", "-1", "+1", "1f.shard", "10000000000000000"] {
            assert!(parse_shard(text).is_err(), "{text}");
        }
    }
}
