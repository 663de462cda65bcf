//! The sharding specification: maps a key to its shard and minishard.
//!
//! A [`ShardingSpec`] is valid by construction, so later code computes with it without checks.
//! The JSON form is that of the format ("Sharding specification" in the Neuroglancer text).

use std::fmt;
use std::str::FromStr;

use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::hash::HashFunction;
use crate::ids::{Location, MinishardNumber, ShardNumber};
use crate::json;

/// The value of "@type" in the format's JSON.
const TYPE: &str = "neuroglancer_uint64_sharded_v1";

/// Upper bound on `minishard_bits`. A shard index of more minishards is too large for any reader.
const MAX_MINISHARD_BITS: u8 = 32;

/// The encoding of values or of minishard indexes. The format has these two: the list is closed.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// use sharddb::spec::Encoding;
///
/// assert_eq!(Encoding::default(), Encoding::Raw);
/// assert_eq!(Encoding::Gzip.as_str(), "gzip");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// Not encoded: readable in place.
    #[default]
    Raw,
    /// One gzip member (RFC 1952) each.
    Gzip,
}

impl Encoding {
    /// Returns the name in the format's JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Gzip => "gzip",
        }
    }
}

/// The sharding specification of a data set: hash function, bit counts and encodings.
///
/// Every value is valid: `preshift_bits <= 64`, `minishard_bits <= 32`, `minishard_bits + shard_bits <= 64`.
///
/// ```
/// # mod sharddb { pub use sharddb_format::*; pub use sharddb_format as spec; pub use sharddb_format as volume; }
/// use sharddb::spec::{HashFunction, ShardingSpec};
///
/// let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 6, 8, 10)?;
/// let location = spec.route(10001);
/// assert_eq!((location.shard.get(), location.minishard.get()), (0x27c, 196));
/// assert_eq!(spec.shard_file_name(location.shard), "27c.shard");
/// # Ok::<(), sharddb::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardingSpec {
    hash: HashFunction,
    preshift_bits: u8,
    minishard_bits: u8,
    shard_bits: u8,
    minishard_index_encoding: Encoding,
    data_encoding: Encoding,
    // INVARIANT: the lowest `minishard_bits` and `shard_bits` bits are set; precomputed for the hot path
    minishard_mask: u64,
    shard_mask: u64,
}

impl ShardingSpec {
    /// Creates a specification with raw minishard indexes and raw values.
    ///
    /// # Errors
    ///
    /// `InvalidSpec` if a bit count is out of range.
    pub fn new(hash: HashFunction, preshift_bits: u8, minishard_bits: u8, shard_bits: u8) -> Result<ShardingSpec> {
        let at_most = |name: &str, bits: u8, most: u8| {
            if bits <= most {
                Ok(())
            } else {
                Err(Error::invalid_spec(format!("expected \"{name}\" from 0 to {most}, found {bits}")))
            }
        };
        at_most("preshift_bits", preshift_bits, 64)?;
        at_most("minishard_bits", minishard_bits, MAX_MINISHARD_BITS)?;
        at_most("shard_bits", shard_bits, 64 - minishard_bits)?; // together they select from 64 bits
        Ok(ShardingSpec {
            hash,
            preshift_bits,
            minishard_bits,
            shard_bits,
            minishard_index_encoding: Encoding::Raw,
            data_encoding: Encoding::Raw,
            minishard_mask: low_bits(minishard_bits),
            shard_mask: low_bits(shard_bits),
        })
    }

    /// Returns this specification with another encoding of the minishard indexes.
    pub fn with_minishard_index_encoding(mut self, encoding: Encoding) -> ShardingSpec {
        self.minishard_index_encoding = encoding;
        self
    }

    /// Returns this specification with another encoding of the values.
    pub fn with_data_encoding(mut self, encoding: Encoding) -> ShardingSpec {
        self.data_encoding = encoding;
        self
    }

    /// Returns the number of low key bits that are dropped before hashing.
    pub fn preshift_bits(&self) -> u8 {
        self.preshift_bits
    }

    /// Returns the hash function.
    pub fn hash_function(&self) -> HashFunction {
        self.hash
    }

    /// Returns the number of hash bits that select the minishard: a shard has `2^minishard_bits` minishards.
    pub fn minishard_bits(&self) -> u8 {
        self.minishard_bits
    }

    /// Returns the number of hash bits that select the shard: a data set has up to `2^shard_bits` shards.
    pub fn shard_bits(&self) -> u8 {
        self.shard_bits
    }

    /// Returns the encoding of the minishard indexes.
    pub fn minishard_index_encoding(&self) -> Encoding {
        self.minishard_index_encoding
    }

    /// Returns the encoding of the values.
    pub fn data_encoding(&self) -> Encoding {
        self.data_encoding
    }

    /// Returns the hashed chunk id of a key: the hash of the key shifted right by `preshift_bits`.
    #[inline]
    pub fn hash(&self, key: u64) -> u64 {
        self.hash.hash(key.checked_shr(u32::from(self.preshift_bits)).unwrap_or(0))
    }

    /// Returns the shard and minishard of a key.
    ///
    /// Bits `[0, minishard_bits)` of the hashed chunk id are the minishard, the next `shard_bits` bits are the shard.
    #[inline]
    pub fn route(&self, key: u64) -> Location {
        self.location_of_hash(self.hash(key))
    }

    /// Returns the shard of this number; `None` unless it is below `2^shard_bits`.
    pub fn shard(&self, number: u64) -> Option<ShardNumber> {
        (number <= self.shard_mask).then_some(ShardNumber(number))
    }

    /// Returns the minishard of this number in each shard; `None` unless it is below `2^minishard_bits`.
    pub fn minishard(&self, number: u64) -> Option<MinishardNumber> {
        (number < self.minishards()).then_some(MinishardNumber(number))
    }

    /// Returns the location that a hash selects, or a [packed location](Self::packed_location), which is the part of the
    /// hash that selects it.
    #[inline]
    pub fn location_of_hash(&self, hash: u64) -> Location {
        // minishard_bits <= 32, so this shift is always in range
        let shard = (hash >> self.minishard_bits) & self.shard_mask;
        let minishard = hash & self.minishard_mask;
        Location { shard: ShardNumber(shard), minishard: MinishardNumber(minishard) }
    }

    /// Returns the location of a key, packed into one number: the minishard number in the lowest `minishard_bits` bits,
    /// and the shard number above it. Packed locations sort in storage order.
    #[inline]
    pub fn packed_location(&self, key: u64) -> u64 {
        self.hash(key) & low_bits(self.shard_bits + self.minishard_bits)
    }

    /// Returns the number of minishards per shard.
    pub fn minishards(&self) -> u64 {
        1 << self.minishard_bits
    }

    /// Returns the largest shard number.
    pub fn max_shard(&self) -> ShardNumber {
        ShardNumber(self.shard_mask)
    }

    /// Returns the length of the shard index in bytes: `16 * 2^minishard_bits`.
    #[inline]
    pub fn shard_index_len(&self) -> u64 {
        16 << self.minishard_bits
    }

    /// Returns the file name of a shard: lowercase hex, zero-padded to `ceil(shard_bits / 4)` digits, with the
    /// extension `shard`.
    pub fn shard_file_name(&self, shard: ShardNumber) -> String {
        format!("{}.shard", self.shard_file_stem(shard))
    }

    /// Returns the file name of a shard without the extension.
    pub fn shard_file_stem(&self, shard: ShardNumber) -> String {
        format!("{:0width$x}", shard.0, width = usize::from(self.shard_bits.div_ceil(4)))
    }

    /// Returns the shard whose file has exactly this stem; `None` if the stem is not valid.
    pub fn shard_of_file_stem(&self, stem: &str) -> Option<ShardNumber> {
        let shard = ShardNumber(u64::from_str_radix(stem, 16).ok()?);
        (shard <= self.max_shard() && self.shard_file_stem(shard) == stem).then_some(shard)
    }

    /// Parses the sharding object of the format's JSON.
    ///
    /// "@type", "hash" and the three bit counts are required. Encodings default to raw.
    ///
    /// # Errors
    ///
    /// `InvalidSpec` if the text is not valid JSON, or if a member is missing, malformed, unknown or repeated. The
    /// message names the member.
    pub fn from_json(text: &str) -> Result<ShardingSpec> {
        ShardingSpec::from_value(json::parse(text.as_bytes())?)
    }

    pub(crate) fn from_value(value: &RawValue) -> Result<ShardingSpec> {
        let Some(members) = json::members(value) else {
            return Err(Error::invalid_spec(format!("expected the sharding object, found {}", excerpt(value))));
        };
        const KNOWN: [&str; 7] = [
            "@type",
            "hash",
            "preshift_bits",
            "minishard_bits",
            "shard_bits",
            "minishard_index_encoding",
            "data_encoding",
        ];
        if let Some((name, _)) = members.iter().find(|(name, _)| !KNOWN.contains(&name.as_str())) {
            let name = json::quote(&json::excerpt(name));
            return Err(Error::invalid_spec(format!("unknown member {name} in \"sharding\"")));
        }
        let required = |name: &str| {
            json::member(&members, name)?
                .ok_or_else(|| Error::invalid_spec(format!("expected a member \"{name}\" in \"sharding\", found none")))
        };
        choice("@type", required("@type")?, &[(TYPE, ())])?;
        let hashes = [HashFunction::Identity, HashFunction::MurmurHash3X86_128].map(|hash| (hash.as_str(), hash));
        let hash = choice("hash", required("hash")?, &hashes)?;
        let encoding = |name: &str| {
            let encodings = [Encoding::Raw, Encoding::Gzip].map(|encoding| (encoding.as_str(), encoding));
            json::member(&members, name)?.map_or(Ok(Encoding::Raw), |value| choice(name, value, &encodings))
        };
        let spec = ShardingSpec::new(
            hash,
            bits("preshift_bits", required("preshift_bits")?)?,
            bits("minishard_bits", required("minishard_bits")?)?,
            bits("shard_bits", required("shard_bits")?)?,
        )?;
        Ok(spec
            .with_minishard_index_encoding(encoding("minishard_index_encoding")?)
            .with_data_encoding(encoding("data_encoding")?))
    }

    /// Returns the format's JSON on one line, with the members in the order of the format's text.
    pub fn to_json(&self) -> String {
        format!(
            "{{\"@type\": \"{TYPE}\", \"preshift_bits\": {}, \"hash\": \"{}\", \"minishard_bits\": {}, \
             \"shard_bits\": {}, \"minishard_index_encoding\": \"{}\", \"data_encoding\": \"{}\"}}",
            self.preshift_bits,
            self.hash.as_str(),
            self.minishard_bits,
            self.shard_bits,
            self.minishard_index_encoding.as_str(),
            self.data_encoding.as_str(),
        )
    }
}

impl FromStr for ShardingSpec {
    type Err = Error;

    /// Like [`from_json`](ShardingSpec::from_json).
    fn from_str(text: &str) -> Result<ShardingSpec> {
        ShardingSpec::from_json(text)
    }
}

impl fmt::Display for ShardingSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_json())
    }
}

/// Returns a mask of the `bits` lowest bits; `bits <= 64`.
#[inline]
fn low_bits(bits: u8) -> u64 {
    u64::MAX.checked_shr(64 - u32::from(bits)).unwrap_or(0)
}

/// Returns the choice that a string member names.
fn choice<T: Copy>(name: &str, value: &RawValue, choices: &[(&str, T)]) -> Result<T> {
    let given = json::string(value);
    let found = choices.iter().find(|(choice, _)| given.as_deref() == Some(choice));
    found.map(|(_, choice)| *choice).ok_or_else(|| {
        let names: Vec<_> = choices.iter().map(|(choice, _)| json::quote(choice)).collect();
        Error::invalid_spec(format!("expected \"{name}\" to be {}, found {}", names.join(" or "), excerpt(value)))
    })
}

/// Parses a bit count: a JSON number with an integral value, such as 6 or 6.0.
fn bits(name: &str, value: &RawValue) -> Result<u8> {
    let number: Option<f64> = serde_json::from_str(value.get()).ok();
    let integral = number.filter(|number| number.fract() == 0.0 && (0.0..=64.0).contains(number));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "integral and from 0 to 64")]
    integral.map(|number| number as u8).ok_or_else(|| {
        Error::invalid_spec(format!("expected \"{name}\" to be an integer from 0 to 64, found {}", excerpt(value)))
    })
}

/// Returns the first characters of a value's source text, for a message.
fn excerpt(value: &RawValue) -> String {
    const LONGEST: usize = 40;
    let text = value.get();
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(hash: HashFunction, preshift: u8, minishard: u8, shard: u8) -> ShardingSpec {
        ShardingSpec::new(hash, preshift, minishard, shard).unwrap()
    }

    fn place(spec: ShardingSpec, key: u64) -> (u64, u64) {
        let location = spec.route(key);
        (location.shard.0, location.minishard.0)
    }

    /// Locations from real data sets: male-CNS meshes, a test of cloud-volume, the identity example.
    #[test]
    fn places_keys_as_real_data_sets_do() {
        let murmur = HashFunction::MurmurHash3X86_128;
        assert_eq!(place(spec(murmur, 6, 8, 10), 10001), (0x27c, 196));
        assert_eq!(place(spec(murmur, 6, 8, 10), 1_099_511_640_121), (762, 3));
        assert_eq!(place(spec(murmur, 6, 11, 7), 1_822_975_381), (0x42, 18));
        assert_eq!(place(spec(HashFunction::Identity, 2, 3, 3), 0b10101010), (5, 2));
    }

    #[test]
    fn extreme_bits_do_not_overflow() {
        let identity = HashFunction::Identity;
        assert_eq!(place(spec(identity, 0, 0, 64), u64::MAX), (u64::MAX, 0));
        assert_eq!(place(spec(identity, 0, 32, 32), u64::MAX), (u64::from(u32::MAX), u64::from(u32::MAX)));
        assert_eq!(place(spec(identity, 64, 1, 1), u64::MAX), (0, 0));
        assert_eq!(place(spec(identity, 0, 0, 0), u64::MAX), (0, 0));
        assert_eq!(spec(identity, 0, 0, 64).packed_location(u64::MAX), u64::MAX);
        assert_eq!(spec(identity, 0, 32, 0).shard_index_len(), 1 << 36);
    }

    #[test]
    fn file_names_are_exact() {
        let name =
            |shard_bits, shard| spec(HashFunction::Identity, 0, 0, shard_bits).shard_file_name(ShardNumber(shard));
        assert_eq!(name(0, 0), "0.shard");
        assert_eq!(name(4, 15), "f.shard");
        assert_eq!(name(5, 1), "01.shard");
        assert_eq!(name(64, u64::MAX), "ffffffffffffffff.shard");
        let spec = spec(HashFunction::Identity, 0, 0, 6);
        assert_eq!(spec.shard_of_file_stem("2a"), Some(ShardNumber(42)));
        for bad in ["", "2", "02a", "2A", "40", "zz", "+2", "-1", "2 "] {
            assert_eq!(spec.shard_of_file_stem(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn json_round_trips_and_defaults_to_raw() {
        let spec = spec(HashFunction::MurmurHash3X86_128, 1, 2, 3).with_data_encoding(Encoding::Gzip);
        assert_eq!(ShardingSpec::from_json(&spec.to_json()).unwrap(), spec);
        let text = r#"{"@type":"neuroglancer_uint64_sharded_v1","hash":"identity","preshift_bits":0,
            "minishard_bits":1.0,"shard_bits":64e0}"#;
        let error = ShardingSpec::from_json(text).unwrap_err();
        assert_eq!(error.message(), "expected \"shard_bits\" from 0 to 63, found 64");
        let spec = ShardingSpec::from_json(&text.replace("64e0", "63")).unwrap();
        assert_eq!((spec.minishard_index_encoding(), spec.data_encoding()), (Encoding::Raw, Encoding::Raw));
    }

    /// One case per kind of invalid specification, with a text that the message must contain.
    #[test]
    fn refuses_by_name() {
        const GOOD: &str = r#"{"@type": "neuroglancer_uint64_sharded_v1", "hash": "identity", "preshift_bits": 0, "minishard_bits": 1, "shard_bits": 1}"#;
        assert!(ShardingSpec::from_json(GOOD).is_ok());
        let cases = [
            ("\"preshift_bits\": 0", "\"preshift_bits\": 65", "preshift_bits"),
            ("\"preshift_bits\": 0", "\"preshift_bits\": -1", "-1"),
            ("\"preshift_bits\": 0", "\"preshift_bits\": \"0\"", "\"0\""),
            ("\"preshift_bits\": 0", "\"preshift_bits\": true", "true"),
            ("\"preshift_bits\": 0", "\"preshift_bits\": 1.5", "1.5"),
            ("\"preshift_bits\": 0", "\"preshift_bits\": null", "null"),
            ("\"preshift_bits\": 0", "\"preshift_bits\": 1e400", "1e400"),
            ("\"preshift_bits\": 0,", "", "preshift_bits"),
            ("\"minishard_bits\": 1", "\"minishard_bits\": 33", "from 0 to 32"),
            ("\"shard_bits\": 1", "\"shard_bits\": 64", "from 0 to 63"),
            ("\"hash\": \"identity\"", "\"hash\": \"Identity\"", "Identity"),
            ("\"hash\": \"identity\",", "", "hash"),
            ("sharded_v1", "sharded_v2", "sharded_v2"),
            ("\"shard_bits\": 1", "\"shard_bits\": 1, \"shard_bits\": 1", "more than once"),
            ("\"shard_bits\": 1", "\"shard_bits\": 1, \"comment\": 1", "comment"),
            ("\"shard_bits\": 1", "\"shard_bits\": 1, \"data_encoding\": null", "data_encoding"),
            ("\"shard_bits\": 1", "\"shard_bits\": 1, \"data_encoding\": \"zstd\"", "zstd"),
        ];
        for (from, to, named) in cases {
            let text = GOOD.replace(from, to);
            assert_ne!(text, GOOD);
            let error = ShardingSpec::from_json(&text).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidSpec);
            assert!(error.to_string().contains(named), "{text}: {error}");
        }
        for text in ["[]", "null", "7"] {
            assert!(ShardingSpec::from_json(text).is_err(), "{text}");
        }
    }
}
