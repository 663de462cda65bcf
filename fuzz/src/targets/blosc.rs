//! Arbitrary bytes as a Blosc chunk: it decodes to the length that its header states and never more than the cap;
//! decoded bytes survive encoding and decoding.

use crate::container::CAP;
use sharddb::ErrorKind;
use sharddb_container::blosc::{Encoder, HEADER_LEN, Header, Shuffle, decode};

/// The bytes of the header that state the length of the chunk.
const CBYTES: std::ops::Range<usize> = 12..HEADER_LEN;

/// The chunk of an input. If the first byte is odd, the header is set to the true length, which most edits change.
fn chunk(input: &[u8]) -> Option<Vec<u8>> {
    let (how, chunk) = input.split_first()?;
    let mut chunk = chunk.to_vec();
    let len = u32::try_from(chunk.len()).ok()?.to_le_bytes();
    if how & 1 != 0 {
        chunk.get_mut(CBYTES)?.copy_from_slice(&len);
    }
    Some(chunk)
}

/// Runs the target on an input.
pub fn run(input: &[u8]) {
    let Some(chunk) = chunk(input) else { return };
    let decoded = decode(&chunk, CAP);
    let Ok(header) = Header::parse(&chunk) else { return assert!(decoded.is_err(), "decoded without a header") };
    let nbytes = u64::from(header.nbytes());
    if nbytes > CAP {
        return assert_eq!(decoded.expect_err("beyond the cap").kind(), ErrorKind::TooLarge);
    }
    let Ok(decoded) = decoded else { return };
    assert_eq!(decoded.len() as u64, nbytes);
    assert_eq!(decode(&chunk, nbytes).expect("as large as the cap"), decoded);
    if nbytes > 0 {
        assert_eq!(decode(&chunk, nbytes - 1).expect_err("larger than the cap").kind(), ErrorKind::TooLarge);
    }
    for shuffle in [Shuffle::None, Shuffle::Bytes, Shuffle::Bits] {
        let encoded = Encoder::new().typesize(header.typesize().into()).shuffle(shuffle).encode(&decoded);
        assert_eq!(decode(&encoded.expect("encoded"), nbytes).expect("decoded"), decoded, "{shuffle:?}");
    }
}
