//! Decodes gzip members in memory that is reserved before: the end of a member states the length of its content.

use std::io::{self, ErrorKind, Read};

use flate2::bufread::GzDecoder;

/// Deflate does not expand bytes by more than this.
const MAX_RATIO: u64 = 1032;

/// The length of the content that a member states, as far as the member can have it.
///
/// The bytes may be hostile: [`decode`] compares it with the content.
pub(crate) fn stated_len(encoded: &[u8]) -> u64 {
    let stated = encoded.last_chunk().map_or(0, |len| u32::from_le_bytes(*len));
    u64::from(stated).min(MAX_RATIO.saturating_mul(encoded.len() as u64))
}

/// Decodes one member that fills `encoded` and has `len` bytes. Allocates these and the window of the decoder.
///
/// Errors: `OutOfMemory`; any other kind if the member is damaged, or has another length.
pub(crate) fn decode(encoded: &[u8], len: u64) -> io::Result<Vec<u8>> {
    let wrong = |message: String| io::Error::new(ErrorKind::InvalidData, message);
    let mut decoder = GzDecoder::new(encoded);
    let mut decoded = Vec::new();
    let room = usize::try_from(len).map_err(|_| ErrorKind::OutOfMemory)?;
    decoded.try_reserve_exact(room)?;
    decoded.resize(room, 0);
    decoder.read_exact(&mut decoded).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => wrong(format!("expected {len} bytes, as its end states, found fewer")),
        _ => error,
    })?;
    if decoder.read(&mut [0])? > 0 {
        return Err(wrong(format!("expected {len} bytes, as its end states, found more")));
    }
    match decoder.get_ref().len() {
        0 => Ok(decoded),
        extra => Err(wrong(format!("expected one member, found {extra} bytes after it"))),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn encoded(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn decoded(encoded: &[u8]) -> Result<Vec<u8>, ErrorKind> {
        decode(encoded, stated_len(encoded)).map_err(|error| error.kind())
    }

    #[test]
    fn a_member_is_decoded_to_the_length_that_it_states() {
        for len in [0, 1, 5_000, 300_000] {
            assert_eq!(decoded(&encoded(&vec![7; len])).unwrap(), vec![7; len]);
        }
    }

    #[test]
    fn a_wrong_length_is_damage_and_bounds_the_memory() {
        let whole = encoded(&[7; 5_000]);
        for len in [0, 4_999, 5_001, u32::MAX] {
            let mut lying = whole.clone();
            lying.truncate(whole.len() - 4);
            lying.extend(len.to_le_bytes());
            assert!(stated_len(&lying) <= MAX_RATIO * whole.len() as u64);
            assert!(decoded(&lying).is_err_and(|error| error != ErrorKind::OutOfMemory), "{len}");
        }
    }

    #[test]
    fn damage_and_other_bytes_are_refused() {
        let whole = encoded(b"some bytes");
        for cut in 0..whole.len() {
            assert!(decoded(&whole[..cut]).is_err(), "{cut}");
        }
        assert!(decoded(&[&whole[..], &whole].concat()).is_err());
        assert!(decoded(&[&whole[..], &[0; 4]].concat()).is_err());
        let mut flipped = whole.clone();
        flipped[whole.len() - 8] ^= 1;
        assert!(decoded(&flipped).is_err(), "the checksum");
    }
}
