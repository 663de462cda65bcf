//! BloscLZ, Blosc's own codec: literals, and copies of earlier output.
//!
//! ```text
//! 000lllll                     l + 1 literals follow
//! lllddddd dddddddd            copy l + 2 bytes (l from 1 to 6) from d + 1 bytes back
//! 111ddddd n.. dddddddd        copy 9 + sum(n) bytes; an n of 255 is followed by another n
//! ...11111 .. 11111111 d d     with d all ones: from 8192 + d bytes back, d 16 bits big-endian
//! ```
//!
//! The three upper bits of the first byte of a stream are ignored: a stream starts with literals.

/// A distance field of this value means that a 16-bit distance follows.
const FAR: usize = 0x1fff;

/// Decodes `stream` into `decoded`; returns the number of decoded bytes.
pub(super) fn decode(stream: &[u8], decoded: &mut [u8]) -> Result<usize, &'static str> {
    let mut input = StreamReader(stream);
    let mut output = DecodedBlock { bytes: decoded, len: 0 };
    let mut control = input.byte()? & 0x1f;
    loop {
        match control >> 5 {
            0 => output.push(input.take(usize::from(control) + 1)?)?,
            length => {
                let length = match length {
                    7 => 9 + input.extended_length()?,
                    short => usize::from(short) + 2,
                };
                output.copy(input.distance(control & 0x1f)?, length)?;
            }
        }
        if input.0.is_empty() {
            return Ok(output.len);
        }
        control = input.byte()?;
    }
}

struct StreamReader<'a>(&'a [u8]);

impl<'a> StreamReader<'a> {
    fn byte(&mut self) -> Result<u8, &'static str> {
        let (&byte, rest) = self.0.split_first().ok_or("its end within a command")?;
        self.0 = rest;
        Ok(byte)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], &'static str> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or("its end within literals")?;
        self.0 = rest;
        Ok(bytes)
    }

    /// Reads an extended length: the sum of the bytes up to and including the first that is not 255.
    fn extended_length(&mut self) -> Result<usize, &'static str> {
        let mut sum = 0;
        loop {
            let byte = self.byte()?;
            sum += usize::from(byte);
            if byte < u8::MAX {
                return Ok(sum);
            }
        }
    }

    fn distance(&mut self, high: u8) -> Result<usize, &'static str> {
        let near = usize::from(high) << 8 | usize::from(self.byte()?);
        if near < FAR {
            return Ok(near + 1);
        }
        let far = u16::from_be_bytes([self.byte()?, self.byte()?]);
        Ok(FAR + 1 + usize::from(far))
    }
}

struct DecodedBlock<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl DecodedBlock<'_> {
    fn push(&mut self, literals: &[u8]) -> Result<(), &'static str> {
        let end = self.len + literals.len();
        self.bytes.get_mut(self.len..end).ok_or(TOO_LONG)?.copy_from_slice(literals);
        self.len = end;
        Ok(())
    }

    /// Copies `length` bytes from `distance` bytes back. Source and destination may overlap.
    fn copy(&mut self, distance: usize, length: usize) -> Result<(), &'static str> {
        let end = self.len.checked_add(length).filter(|end| *end <= self.bytes.len()).ok_or(TOO_LONG)?;
        let start = self.len.checked_sub(distance).ok_or("a copy from before the start of the output")?;
        // the bytes after `start` repeat with period `distance`, so each pass doubles how much can be copied
        while self.len < end {
            let step = (self.len - start).min(end - self.len);
            self.bytes.copy_within(start..start + step, self.len);
            self.len += step;
        }
        Ok(())
    }
}

const TOO_LONG: &str = "more bytes than expected";

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(stream: &[u8], len: usize) -> Result<Vec<u8>, &'static str> {
        let mut bytes = vec![0; len];
        let found = decode(stream, &mut bytes)?;
        bytes.truncate(found);
        Ok(bytes)
    }

    #[test]
    fn literals_and_copies() {
        assert_eq!(decoded(&[0x02, b'a', b'b', b'c'], 3).unwrap(), b"abc");
        assert_eq!(decoded(&[0xe2, b'a', b'b', b'c'], 3).unwrap(), b"abc", "upper bits of the first byte");
        assert_eq!(decoded(&[0x02, b'a', b'b', b'c', 0x20, 2], 6).unwrap(), b"abcabc", "from 3 back");
        assert_eq!(decoded(&[0x00, b'a', 0xc0, 0], 9).unwrap(), b"aaaaaaaaa", "8 bytes from 1 back");
        assert_eq!(decoded(&[0x00, b'a', 0xe0, 255, 1, 0], 266).unwrap(), [b'a'; 266], "9 + 255 + 1");
    }

    #[test]
    fn far_copies() {
        let far = 8192 + 3;
        let mut stream = vec![0x01, 1, 2, 0xe0];
        stream.extend([255; 32]); // 32 * 255 = 8160
        stream.extend([26, 0]); // 9 + 8160 + 26 = 8195 copies of the last byte
        stream.extend([0x3f, 0xff, 0, 3]); // 3 bytes from 8195 back
        let bytes = decoded(&stream, 10_000).unwrap();
        assert_eq!(bytes.len(), 2 + far + 3);
        assert_eq!(bytes[2 + far..], [2, 2, 2]);
        stream.truncate(stream.len() - 1);
        stream.push(5); // from 8197 back: both bytes that the stream begins with
        assert_eq!(decoded(&stream, 10_000).unwrap()[2 + far..], [1, 2, 2]);
    }

    #[test]
    fn says_what_is_wrong() {
        for (stream, reason) in [
            (&[][..], "end"),
            (&[0x02, 1, 2], "literals"),
            (&[0x00, 1, 0x20], "within a command"),
            (&[0x00, 1, 0xe0, 255, 255], "within a command"),
            (&[0x00, 1, 0x3f, 255, 0], "within a command"),
            (&[0x00, 1, 0x20, 1], "before the start"),
            (&[0x00, 1, 0xe0, 255, 0, 0], "more bytes"),
            (&[0x1f; 33], "more bytes"),
        ] {
            assert!(decoded(stream, 20).unwrap_err().contains(reason), "{stream:?}");
        }
    }
}
