//! Every chunk that C-Blosc wrote decodes to its original buffer, and anything else is an error, never other bytes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use sharddb::ErrorKind;
use sharddb_container::blosc::{Header, Shuffle, decode};

#[derive(Deserialize)]
struct Expected {
    chunks: Vec<Chunk>,
}

#[derive(Deserialize)]
struct Chunk {
    key: usize,
    offset: usize,
    nbytes: usize,
    decoded_nbytes: usize,
    decoded_sha256: String,
    cname: String,
    typesize: u8,
    shuffle: u8,
    blocksize: u32,
    flags: u8,
}

struct Vectors {
    bytes: Vec<u8>,
    chunks: Vec<Chunk>,
}

impl Vectors {
    fn read() -> Vectors {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/blosc1");
        let expected: Expected = serde_json::from_slice(&fs::read(directory.join("expected.json")).unwrap()).unwrap();
        Vectors { bytes: fs::read(directory.join("blosc1.bin")).unwrap(), chunks: expected.chunks }
    }

    fn chunk(&self, of: &Chunk) -> &[u8] {
        &self.bytes[of.offset..of.offset + of.nbytes]
    }

    /// The shortest chunk that is not a copy, for each codec, shuffle and split mode.
    fn of_each_kind(&self) -> Vec<&Chunk> {
        let mut shortest: Vec<&Chunk> = self.chunks.iter().filter(|chunk| chunk.flags & 2 == 0).collect();
        shortest.sort_by_key(|chunk| chunk.nbytes);
        let mut seen = BTreeSet::new();
        shortest.retain(|chunk| seen.insert((&chunk.cname, chunk.flags)));
        shortest
    }
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn every_chunk_decodes_to_its_buffer() {
    let vectors = Vectors::read();
    assert_eq!(vectors.chunks.len(), 854);
    for chunk in &vectors.chunks {
        let decoded = decode(vectors.chunk(chunk), chunk.decoded_nbytes as u64)
            .unwrap_or_else(|error| panic!("chunk {}, {}, flags {:#x}: {error}", chunk.key, chunk.cname, chunk.flags));
        assert_eq!(sha256(&decoded), chunk.decoded_sha256, "chunk {}, {}", chunk.key, chunk.cname);
    }
}

#[test]
fn the_header_says_what_the_writer_was_told() {
    let vectors = Vectors::read();
    for chunk in &vectors.chunks {
        let header = Header::parse(vectors.chunk(chunk)).unwrap();
        assert_eq!(header.nbytes() as usize, chunk.decoded_nbytes);
        assert_eq!(header.cbytes() as usize, chunk.nbytes);
        assert_eq!((header.typesize(), header.blocksize()), (chunk.typesize, chunk.blocksize));
        if !header.is_memcpyed() {
            assert_eq!(header.codec().as_str(), chunk.cname.trim_end_matches("hc"));
            let shuffle = [Shuffle::None, Shuffle::Bytes, Shuffle::Bits][usize::from(chunk.shuffle)];
            // bytes with one byte per element have only one order
            assert!(header.shuffle() == shuffle || chunk.typesize == 1, "chunk {}", chunk.key);
        }
    }
}

#[test]
fn a_chunk_cut_short_or_with_more_behind_it_is_corrupt() {
    let vectors = Vectors::read();
    for kind in vectors.of_each_kind() {
        let chunk = vectors.chunk(kind);
        for cut in (0..chunk.len()).step_by(1 + chunk.len() / 50) {
            assert_eq!(decode(&chunk[..cut], u64::MAX).unwrap_err().kind(), ErrorKind::Corrupt, "cut at {cut}");
        }
        let longer = [chunk, b"!"].concat();
        assert_eq!(decode(&longer, u64::MAX).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn nothing_is_decoded_past_the_cap() {
    let vectors = Vectors::read();
    for kind in vectors.of_each_kind() {
        let chunk = vectors.chunk(kind);
        let error = decode(chunk, kind.decoded_nbytes as u64 - 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        assert!(error.message().contains(&kind.decoded_nbytes.to_string()), "{error}");
    }
}

/// Blosc has no checksum, so a chunk with a changed byte may decode, but only to as many bytes as the header states.
/// Changes of the sizes in the header, of the offsets and of the stream lengths are always noticed.
#[test]
fn a_changed_byte_is_an_error_or_gives_a_buffer_of_the_stated_length() {
    let vectors = Vectors::read();
    for kind in vectors.of_each_kind() {
        let chunk = vectors.chunk(kind);
        for at in (0..chunk.len().min(64)).chain((64..chunk.len()).step_by(1 + chunk.len() / 100)) {
            for change in [0x01, 0x80, 0xff] {
                let mut changed = chunk.to_vec();
                changed[at] ^= change;
                match decode(&changed, 1 << 20) {
                    Ok(decoded) => {
                        assert_eq!(decoded.len(), kind.decoded_nbytes, "byte {at} of chunk {}", kind.key);
                        assert!(!(4..8).contains(&at) && !(12..16).contains(&at), "byte {at} of chunk {}", kind.key);
                    }
                    Err(error) => assert!(
                        matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported | ErrorKind::TooLarge),
                        "{error}"
                    ),
                }
            }
        }
    }
}

/// A hostile chunk: its header states a size that its bytes do not support.
#[test]
fn a_header_alone_allocates_nothing() {
    // zlib, not split, nbytes = blocksize = 2^30, one block at byte 20 with a stream of 4 bytes
    let chunk = [
        &[2, 1, 0x70, 1, 0, 0, 0, 0x40, 0, 0, 0, 0x40, 28, 0, 0, 0][..], // header
        &[20, 0, 0, 0, 4, 0, 0, 0, 1, 2, 3, 4],                          // bstarts, length, stream
    ]
    .concat();
    let error = decode(&chunk, 1 << 30).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("zlib cannot make"), "{error}");
}

#[test]
fn names_the_block_and_the_reason() {
    let header = |flags, cbytes| [2, 1, flags, 1, 8, 0, 0, 0, 4, 0, 0, 0, cbytes, 0, 0, 0];
    for (flags, body, words) in [
        (0x10, &[24, 0, 0, 0, 2, 0, 0, 0][..], "after byte 24, found it at 2 (block 1"),
        (0x10, &[24, 0, 0, 0, 99, 0, 0, 0], "length of a stream, found 0 bytes (block 0"),
        (0x10, &[24, 0, 0, 0, 24, 0, 0, 0, 9, 0, 0, 0, 1, 2], "stream of 9 bytes, found 2 bytes (block 0"),
        (0x10, &[24, 0, 0, 0], "offsets of 2 blocks in a Blosc chunk, found room for 1"),
        (0x10, &[24, 0, 0, 0, 24, 0, 0, 0, 2, 0, 0, 0, 0, 7], "expected 4 bytes of blosclz, found 1 (block 0"),
        (0x30, &[24, 0, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0xff], "4 bytes of lz4, found: "),
        (0x50, &[24, 0, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0xff], "4 bytes of snappy, found: "),
        (0x70, &[24, 0, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0xff], "4 bytes of zlib, found: "),
        (0x90, &[24, 0, 0, 0, 24, 0, 0, 0, 1, 0, 0, 0, 0xff], "4 bytes of zstd, found: "),
    ] {
        // in most of them both offsets name the same block, which the format allows
        let fixed = if words.contains("block 1") {
            [&header(flags, 32)[..], body, &[4, 0, 0, 0, 1, 2, 3, 4]].concat()
        } else {
            [&header(flags, 16 + body.len() as u8)[..], body].concat()
        };
        let error = decode(&fixed, 8).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.message().contains(words), "expected \"{words}\", found \"{error}\"");
    }
}
