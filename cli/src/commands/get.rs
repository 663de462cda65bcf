//! `get`: writes the bytes of one value, or of several to files.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use sharddb::Value;
use sharddb_container::Container;

use crate::chunks::Chunks;
use crate::context::Context;
use crate::database::{AnyDatabase, Opened};
use crate::exit::Exit;
use crate::failure::{Failure, Result};
use crate::output::{Form, Output, Target};
use crate::position::KeysOrPosition;
use crate::remote::{RemoteDatabase, RemoteOpening};

/// Write the value of a key to standard output, and nothing else
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sharddb get numbers 2
  sharddb get numbers 0x2 --output value.bin
  sharddb get numbers 1 2 3 --output values      values/1, values/2, values/3
  sharddb get mesh 720575940 --preamble 18324      the fragments before a mesh manifest
  sharddb get volume --at 3,0,7                  a chunk by its position in the grid
  sharddb get volume.zarr 42 --decoded           the elements of a chunk of an array
  sharddb get trades 0 --column price --decoded  the first rows of a column of a bcolz table
  sharddb get s3://bucket/numbers 2 -v           and what it cost, on standard error
  sharddb get s3://bucket/numbers 2 --cache-dir ~/.cache/numbers
  sharddb get s3://bucket/numbers 2 --generation 3

A file at --output is replaced when the value is complete, and keeps its mode. It must not be in DB.

Exit codes: 0 found (an empty value too), 1 absent; with several keys, 1 if one of them is absent.")]
pub(crate) struct Args {
    #[command(flatten)]
    database: AnyDatabase,
    #[command(flatten)]
    at_url: RemoteOpening,
    #[command(flatten)]
    wanted: KeysOrPosition,
    /// Write the N bytes directly before the value instead of the value
    #[arg(long, value_name = "N")]
    preamble: Option<u64>,
    /// Write to this file, which is replaced when the value is complete; for several keys, a new directory with one
    /// file per key, named by the key. - is standard output
    #[arg(long, short, value_name = "PATH|-", default_value = "-")]
    output: PathBuf,
    #[command(flatten)]
    chunks: Chunks,
    /// With --decoded: for an absent chunk of an array, write its fill value
    #[arg(long, requires = "decoded")]
    fill: bool,
}

impl Args {
    pub(crate) fn run(&self, context: &Context) -> Result<Exit> {
        if let Some(remote) = self.database.open_remote(&self.at_url, context)? {
            self.refuse_for_remote(&remote)?;
            let keys = self.wanted.resolve(|| remote.key_space())?;
            return self.write(&keys, context, |key| remote.run("get", remote.reader().get(key)));
        }
        let opened = self.database.open()?;
        opened.sources(self.database.path()).refuse(&self.output)?;
        self.write(&self.keys(&opened)?, context, |key| self.value(&opened, key))
    }

    /// Refuses options that have no effect on a data set in an object store.
    fn refuse_for_remote(&self, remote: &RemoteDatabase) -> Result<()> {
        self.chunks.refuse_decoded()?;
        match self.preamble {
            None => Ok(()),
            Some(_) => Err(Failure::usage(format!("--preamble is for local databases, found {}", remote.url()))),
        }
    }

    /// Writes the values of the keys.
    fn write<V: Deref<Target = [u8]>>(
        &self,
        keys: &[u64],
        context: &Context,
        value: impl Fn(u64) -> Result<Option<V>>,
    ) -> Result<Exit> {
        let _cleanup = context.interrupt.cleanup(); // until a partial output is removed or renamed
        match *keys {
            [key] => self.write_value(key, value(key)?, context),
            ref keys => self.write_directory(keys, value, context),
        }
    }

    /// Writes the value of one key to the output; nothing if it is absent.
    fn write_value<V: Deref<Target = [u8]>>(&self, key: u64, value: Option<V>, context: &Context) -> Result<Exit> {
        let Some(value) = value else { return Ok(absent(key, context)) };
        let mut target = Target::open(&self.output)?;
        target.write_all(&value)?;
        target.finish()?;
        Ok(Exit::Done)
    }

    /// Writes the values of several keys to a new directory.
    fn write_directory<V: Deref<Target = [u8]>>(
        &self,
        keys: &[u64],
        value: impl Fn(u64) -> Result<Option<V>>,
        context: &Context,
    ) -> Result<Exit> {
        if self.output == Path::new("-") {
            return Err(Failure::usage(
                "expected --output DIR for several keys, found standard output, where nothing would separate the \
                 values: sharddb get-many DB --values --key KEY --key KEY writes lines of JSON",
            ));
        }
        let mut output = Output::open(&self.output, Form::Dir)?;
        let mut exit = Exit::Done;
        for &key in keys {
            context.check_cancel()?;
            match value(key)? {
                Some(value) => output.write(key, &[], &value)?,
                None => exit = absent(key, context),
            }
        }
        output.finish()?;
        Ok(exit)
    }

    fn value<'a>(&self, opened: &'a Opened, key: u64) -> Result<Option<Value<'a>>> {
        if let Opened::Sharded(_) = opened {
            self.chunks.refuse_decoded()?;
        }
        Ok(match (opened, self.preamble) {
            (Opened::Sharded(snapshot), Some(n)) => snapshot.get_preamble(key, n)?,
            (Opened::Sharded(snapshot), None) => snapshot.get(key)?,
            (Opened::Container(_), Some(_)) => {
                return Err(Failure::usage("--preamble is for databases, found a container of another format"));
            }
            (Opened::Container(container), None) => match container.get(key, self.chunks.form())? {
                None if self.fill => container.fill_chunk(key)?,
                value => value,
            },
        })
    }

    fn keys(&self, opened: &Opened) -> Result<Vec<u64>> {
        self.wanted.resolve(|| match opened {
            Opened::Sharded(snapshot) => Container::key_space(snapshot),
            Opened::Container(container) => container.key_space(),
        })
    }
}

fn absent(key: u64, context: &Context) -> Exit {
    context.say(format_args!("sharddb: key {key} is absent"));
    Exit::Absent
}
