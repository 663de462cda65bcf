//! Strict zstd decoding (RFC 8878) with an output limit, and encoding.

use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use sharddb_format::{Error, ErrorKind, Result};

/// The decoder does not allocate the window in advance, so its size need not be limited: the output limit bounds the
/// memory.
const MAX_WINDOW: u64 = u64::MAX;

/// Decompresses `encoded`, which must be one or more complete frames.
///
/// Memory: at most twice `cap` bytes.
///
/// # Errors
///
/// `Corrupt` if a frame or its checksum is wrong; `TooLarge` if more than `cap` bytes come out.
pub(super) fn decode(encoded: &[u8], cap: u64) -> Result<Vec<u8>> {
    let (mut rest, mut decoded) = (encoded, Vec::new());
    loop {
        decode_frame(&mut rest, &mut decoded, cap)?;
        if rest.is_empty() {
            return Ok(decoded);
        }
    }
}

fn decode_frame(rest: &mut &[u8], decoded: &mut Vec<u8>, cap: u64) -> Result<()> {
    let broken = |error: &dyn std::fmt::Display| Error::corrupt(format!("expected a zstd frame, found: {error}"));
    let mut frame = FrameDecoder::new(); // a new decoder does not allocate its window
    frame.set_max_window_size(MAX_WINDOW);
    frame.init(&mut *rest).map_err(|error| broken(&error))?;

    let begin = decoded.len();
    let stated = frame.content_size();
    let room = cap.saturating_sub(begin as u64);
    if stated > room {
        return Err(too_large(cap));
    }
    loop {
        let finished =
            frame.decode_blocks(&mut *rest, BlockDecodingStrategy::UptoBlocks(1)).map_err(|error| broken(&error))?;
        frame.collect_to_writer(&mut *decoded).map_err(|error| broken(&error))?;
        // bytes that the decoder still holds in its window count as well
        if (decoded.len() - begin + frame.can_collect()) as u64 > room {
            return Err(too_large(cap));
        }
        if finished {
            break;
        }
    }
    let found = (decoded.len() - begin) as u64;
    if stated != 0 && stated != found {
        return Err(Error::corrupt(format!("expected a zstd frame of {stated} bytes, found {found}")));
    }
    match (frame.get_checksum_from_data(), frame.get_calculated_checksum()) {
        (Some(stated), found) if Some(stated) != found => {
            Err(Error::corrupt(format!("expected zstd data with checksum {stated:08x}, found another")))
        }
        _ => Ok(()),
    }
}

/// Compresses `bytes` into one frame, at the fastest level.
pub(super) fn encode(bytes: &[u8]) -> Vec<u8> {
    compress_to_vec(bytes, CompressionLevel::Fastest)
}

#[cold]
fn too_large(cap: u64) -> Error {
    let message = format!("expected at most {cap} bytes of decoded data, found more: raise the cap");
    Error::new(ErrorKind::TooLarge, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by zstd 1.5.4: printf 'hello hello hello hello hello hello' | zstd -3 --check.
    const ZSTD: [u8; 25] = [
        0x28, 0xb5, 0x2f, 0xfd, 0x04, 0x58, // magic; with checksum, size not stated; window
        0x65, 0x00, 0x00, // last block, compressed, 12 bytes
        0x30, 0x68, 0x65, 0x6c, 0x6c, 0x6f, 0x20, // literals: "hello "
        0x01, 0x00, 0xb9, 0x4b, 0x11, // one sequence
        0x2b, 0xe1, 0x68, 0xe7, // checksum
    ];

    #[test]
    fn reads_a_frame_of_zstd_and_compares_the_checksum() {
        assert_eq!(decode(&ZSTD, 35).unwrap(), b"hello hello hello hello hello hello");
        assert_eq!(decode(&ZSTD, 34).unwrap_err().kind(), ErrorKind::TooLarge);
        for at in 21..25 {
            let mut flipped = ZSTD;
            flipped[at] ^= 1;
            let error = decode(&flipped, 35).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.message().contains("checksum"), "{error}");
        }
    }

    #[test]
    fn round_trip() {
        for len in [0usize, 1, 100, 200_000] {
            let bytes: Vec<u8> = (0..len).map(|at| (at / 7).to_le_bytes()[0]).collect();
            assert_eq!(decode(&encode(&bytes), len as u64).unwrap(), bytes);
        }
    }

    #[test]
    fn stops_at_the_cap() {
        let frame = encode(&vec![7; 300_000]);
        assert_eq!(decode(&frame, 300_000).unwrap().len(), 300_000);
        assert_eq!(decode(&frame, 299_999).unwrap_err().kind(), ErrorKind::TooLarge);
        assert_eq!(decode(&frame, 0).unwrap_err().kind(), ErrorKind::TooLarge);
    }

    #[test]
    fn several_frames_are_read_and_trailing_bytes_are_refused() {
        let two = [encode(b"one"), encode(b"two")].concat();
        assert_eq!(decode(&two, 6).unwrap(), b"onetwo");
        assert_eq!(decode(&two, 5).unwrap_err().kind(), ErrorKind::TooLarge);
        for trailing in [&b"\0"[..], b"garbage"] {
            assert_eq!(decode(&[&encode(b"one"), trailing].concat(), 100).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert_eq!(decode(b"", 100).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn a_cut_frame_is_corrupt() {
        let frame = encode(b"some bytes that are worth a frame, some bytes");
        for cut in 0..frame.len() {
            assert_eq!(decode(&frame[..cut], 100).unwrap_err().kind(), ErrorKind::Corrupt, "cut at {cut}");
        }
    }
}
