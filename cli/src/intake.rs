//! What `build` does with pairs besides loading them: counts them, checks values, and samples them for gzip.

use std::io::{self, Read};

use sharddb::cluster::SpillWriter;
use sharddb::{BulkLoader, Updater};

use crate::failure::{Failure, Result};
use crate::input::Sink;
use crate::plan::ValueTrial;
use crate::viewer::{self, Described, HEAD, Kind, Values};

/// The pairs so far.
pub(crate) struct Intake {
    pub(crate) pairs: u64,
    /// The form of all values, if it is known.
    pub(crate) values: Option<Values>,
    /// The sample for gzip, if there is one.
    pub(crate) trial: Option<ValueTrial>,
}

impl Intake {
    /// Counts a pair. `head` is the beginning of its value.
    ///
    /// Errors: `Refused` if the value has another form.
    fn take(&mut self, preamble_len: u64, value_len: u64, head: &[u8]) -> Result<()> {
        self.pairs += 1;
        if let Some(trial) = self.trial.as_mut().filter(|_| value_len == head.len() as u64) {
            trial.offer(head);
        }
        let checked = self.values.map_or(Ok(()), |values| values.check(preamble_len, value_len, head));
        checked.map_err(Failure::Refused)
    }
}

/// A loader behind an intake.
pub(crate) struct Loading<'a> {
    pub(crate) loader: &'a mut BulkLoader,
    pub(crate) intake: &'a mut Intake,
}

impl Sink for Loading<'_> {
    fn insert(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()> {
        self.intake.take(preamble.len() as u64, value.len() as u64, value)?;
        Sink::insert(self.loader, key, preamble, value)
    }

    fn insert_reader(&mut self, key: u64, preamble_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        let mut noted = Noted { reader, before: preamble_len, head: Vec::new() };
        Sink::insert_reader(self.loader, key, preamble_len, value_len, &mut noted)?;
        self.intake.take(preamble_len, value_len, &noted.head)
    }
}

/// A reader of a preamble and a value that keeps the beginning of the value.
struct Noted<'a> {
    reader: &'a mut dyn Read,
    /// The bytes before the value.
    before: u64,
    head: Vec<u8>,
}

impl Read for Noted<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buf)?;
        let before = usize::try_from(self.before).map_or(read, |before| before.min(read));
        self.before -= before as u64;
        let value = buf.get(before..read).unwrap_or_default();
        let more = HEAD.saturating_sub(self.head.len()).min(value.len());
        self.head.extend_from_slice(value.get(..more).unwrap_or_default());
        Ok(read)
    }
}

/// A sink that describes a data set of skeletons by the first one that has a vertex, and refuses that pair.
pub(crate) struct FirstSkeleton(pub(crate) Option<Described>);

impl FirstSkeleton {
    fn see(&mut self, value_len: u64, head: &[u8]) -> Result<()> {
        if head.get(..4) == Some(&[0; 4]) {
            return Ok(());
        }
        self.0 = Some(viewer::write(Kind::Skeletons, Some((value_len, head))).map_err(Failure::Refused)?);
        Err(Failure::Refused("expected no more than one skeleton".to_string()))
    }
}

impl Sink for FirstSkeleton {
    fn insert(&mut self, _key: u64, _preamble: &[u8], value: &[u8]) -> Result<()> {
        self.see(value.len() as u64, value)
    }

    fn insert_reader(&mut self, _key: u64, preamble_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        let mut noted = Noted { reader, before: preamble_len, head: Vec::new() };
        // the input that made the reader reports its errors
        io::copy(&mut noted, &mut io::sink()).map_err(|source| Failure::Io { what: "read".to_string(), source })?;
        self.see(value_len, &noted.head)
    }
}

impl Sink for BulkLoader {
    fn insert(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()> {
        self.insert_with_preamble(key, preamble, value).map_err(Failure::of_pair)
    }

    fn insert_reader(&mut self, key: u64, preamble_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        Ok(BulkLoader::insert_reader(self, key, preamble_len, value_len, reader)?)
    }
}

impl Sink for Updater {
    fn insert(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()> {
        self.put_with_preamble(key, preamble, value).map_err(Failure::of_pair)
    }

    fn insert_reader(&mut self, key: u64, preamble_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        Ok(self.put_reader(key, preamble_len, value_len, reader)?)
    }
}

impl Sink for SpillWriter {
    fn insert(&mut self, key: u64, preamble: &[u8], value: &[u8]) -> Result<()> {
        self.insert_with_preamble(key, preamble, value).map_err(Failure::of_pair)
    }

    fn insert_reader(&mut self, key: u64, preamble_len: u64, value_len: u64, reader: &mut dyn Read) -> Result<()> {
        Ok(SpillWriter::insert_reader(self, key, preamble_len, value_len, reader)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_head_of_a_value_begins_after_the_preamble() {
        for step in [1, 3, 100] {
            let mut bytes = io::Cursor::new(b"preamblevalue".to_vec());
            let mut noted = Noted { reader: &mut bytes, before: 8, head: Vec::new() };
            let mut buf = vec![0; step];
            while noted.read(&mut buf).unwrap() > 0 {}
            assert_eq!(noted.head, b"value", "{step}");
        }
        let mut long = io::repeat(7).take(2 << 20);
        let mut noted = Noted { reader: &mut long, before: 1, head: Vec::new() };
        io::copy(&mut noted, &mut io::sink()).unwrap();
        assert_eq!(noted.head.len(), HEAD);
    }
}
