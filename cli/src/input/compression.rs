//! Compressed streams: gzip and zstd, decompressed while they are read.

use std::cell::Cell;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// The largest window of a zstd stream, which is held in memory: that of the command zstd without `--ultra --long`.
const MAX_WINDOW: u64 = 128 << 20;

/// How a stream is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Compression {
    #[default]
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// The compression that the last extension of a name implies, and the name without this extension.
    pub(crate) fn of_name(path: &Path) -> (Compression, &Path) {
        let compression = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Compression::Gzip,
            Some("zst") => Compression::Zstd,
            _ => return (Compression::None, path),
        };
        (compression, path.file_stem().map_or(path, Path::new))
    }

    /// The extension of a file, with its point.
    #[cfg(test)]
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Compression::None => "",
            Compression::Gzip => ".gz",
            Compression::Zstd => ".zst",
        }
    }

    /// Decompresses what `reader` yields. Memory is bounded by the window of the format: 32 KiB or [`MAX_WINDOW`].
    pub(crate) fn decompress(self, reader: Box<dyn Read>) -> Box<dyn Read> {
        let failed = Rc::new(Cell::new(None));
        let source = BufReader::with_capacity(64 << 10, Recorded { reader, failed: Rc::clone(&failed) });
        match self {
            Compression::None => Box::new(source),
            Compression::Gzip => Box::new(Decoder { decoder: MultiGzDecoder::new(source), name: "gzip", failed }),
            Compression::Zstd => Box::new(Decoder { decoder: Zstd::new(source), name: "zstd", failed }),
        }
    }
}

/// A compressed stream that cannot be decompressed.
#[derive(Debug)]
pub(crate) struct Damaged(String);

impl Damaged {
    /// The cause of a read error, if it is damage of a compressed stream.
    pub(crate) fn of(error: &io::Error) -> Option<&Damaged> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Damaged {}

/// Keeps the error of a source, which a decoder may wrap in its own.
struct Recorded<R> {
    reader: R,
    failed: Rc<Cell<Option<io::Error>>>,
}

impl<R: Read> Read for Recorded<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buf).map_err(|error| {
            let kind = error.kind();
            if kind != io::ErrorKind::Interrupted {
                self.failed.set(Some(error));
            }
            kind.into()
        })
    }
}

/// A decoder whose errors are those of its source, or [`Damaged`].
struct Decoder<D> {
    decoder: D,
    name: &'static str,
    failed: Rc<Cell<Option<io::Error>>>,
}

impl<D: Read> Read for Decoder<D> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.decoder.read(buf).map_err(|error| {
            if error.kind() == io::ErrorKind::Interrupted {
                return error;
            }
            self.failed.take().unwrap_or_else(|| {
                let message =
                    format!("expected a complete {} stream, found one that is damaged or cut off: {error}", self.name);
                io::Error::new(io::ErrorKind::InvalidData, Damaged(message))
            })
        })
    }
}

/// The frames of a zstd stream, one after the other.
struct Zstd<R> {
    source: R,
    decoder: FrameDecoder,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first frame, which must exist.
    Beginning,
    InFrame,
    BetweenFrames,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Zstd<R> {
        let mut decoder = FrameDecoder::new();
        decoder.set_max_window_size(MAX_WINDOW);
        Zstd { source, decoder, state: State::Beginning }
    }

    /// Reads the header of the next frame, and skips frames without data; returns false at the end of the stream.
    fn next_frame(&mut self) -> io::Result<bool> {
        while self.state == State::Beginning || !self.source.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.source) {
                Ok(()) => {
                    self.state = State::InFrame;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    self.skip(u64::from(length))?;
                    self.state = State::BetweenFrames;
                }
                Err(FrameDecoderError::ReadFrameHeaderError(_)) => {
                    return Err(io::Error::other("expected the header of a frame"));
                }
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        Ok(false)
    }

    fn skip(&mut self, length: u64) -> io::Result<()> {
        match io::copy(&mut (&mut self.source).take(length), &mut io::sink())? {
            skipped if skipped == length => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn end_frame(&mut self) -> io::Result<()> {
        self.state = State::BetweenFrames;
        match (self.decoder.get_checksum_from_data(), self.decoder.get_calculated_checksum()) {
            (Some(stated), Some(found)) if stated != found => Err(io::Error::other("its checksum does not match")),
            _ => Ok(()),
        }
    }
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while !buf.is_empty() {
            if self.state != State::InFrame {
                if !self.next_frame()? {
                    break;
                }
            } else if self.decoder.can_collect() > 0 {
                return self.decoder.read(buf);
            } else if self.decoder.is_finished() {
                self.end_frame()?;
            } else {
                let one_block = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.source, one_block).map_err(io::Error::other)?;
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        compress_to_vec(bytes, CompressionLevel::Fastest)
    }

    fn decompress(compression: Compression, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut found = Vec::new();
        compression.decompress(Box::new(io::Cursor::new(bytes.to_vec()))).read_to_end(&mut found).map(|_| found)
    }

    type Encode = fn(&[u8]) -> Vec<u8>;

    fn both() -> [(Compression, Encode); 2] {
        [(Compression::Gzip, gzip), (Compression::Zstd, zstd)]
    }

    #[test]
    fn members_and_frames_follow_each_other() {
        for (compression, encode) in both() {
            let stream = [encode(b"one "), encode(b""), encode(&vec![7; 300_000])].concat();
            let expected = [b"one ".to_vec(), vec![7; 300_000]].concat();
            assert!(decompress(compression, &stream).unwrap() == expected, "{compression:?}");
        }
        let skippable = [0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2];
        let stream = [&skippable[..], &zstd(b"x"), &skippable].concat();
        assert_eq!(decompress(Compression::Zstd, &stream).unwrap(), b"x");
    }

    #[test]
    fn every_cut_and_other_bytes_are_damage() {
        for (compression, encode) in both() {
            let stream = encode(b"some text, some text, some text");
            for len in 0..stream.len() {
                let error = decompress(compression, &stream[..len]).unwrap_err();
                assert!(Damaged::of(&error).is_some(), "{compression:?} {len}: {error}");
            }
            for other in [&b"plain text that is not compressed"[..], &[&stream[..], b"x"].concat()] {
                let error = decompress(compression, other).unwrap_err();
                assert!(Damaged::of(&error).is_some(), "{compression:?}: {error}");
            }
        }
    }

    #[test]
    fn an_error_of_the_source_stays_what_it_is() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::from_raw_os_error(5))
            }
        }
        for (compression, _) in both() {
            let error = compression.decompress(Box::new(Broken)).read(&mut [0]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(5), "{compression:?}");
        }
    }

    /// A frame header that asks for a window of 3.75 TiB.
    #[test]
    fn a_window_beyond_the_limit_is_refused() {
        let header = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xff, 0x01, 0x00, 0x00];
        let error = decompress(Compression::Zstd, &header).unwrap_err();
        assert!(Damaged::of(&error).is_some(), "{error}");
    }
}
