//! Small stores with every kind of bytes that a native generation can have, as templates for damage.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sharddb::spec::{Encoding, HashFunction, ValueAlignment};
use sharddb::{BuildOptions, ShardDb, ShardingSpec};

use crate::scratch;

/// The preamble and the value of each key.
pub type Pairs = BTreeMap<u64, (Vec<u8>, Vec<u8>)>;

/// The files of a generation and their content.
pub struct Template {
    /// By name, in order: shards, `info`, `lease`, `manifest.json`, `minishards` if there are many minishards, and `keys` if it is
    /// ordered.
    pub files: Vec<(String, Vec<u8>)>,
    pub pairs: Pairs,
}

impl Template {
    /// One template per combination of encodings, each with a different layout, one of many minishards, and one with a key
    /// file.
    pub fn all() -> Vec<Template> {
        use Encoding::{Gzip, Raw};
        vec![
            Template::new((1, 10), Raw, Raw, false, ValueAlignment::One),
            Template::new((1, 10), Gzip, Raw, true, ValueAlignment::Eight),
            Template::new((1, 10), Raw, Gzip, true, ValueAlignment::One),
            Template::new((1, 10), Gzip, Gzip, false, ValueAlignment::Sixteen),
            Template::new((9, 60), Raw, Raw, false, ValueAlignment::One),
            Template::with_options((2, 60), Raw, Raw, false, BuildOptions::new().ordered(true)),
        ]
    }

    fn new(
        (minishard_bits, keys): (u8, u8),
        index: Encoding,
        data: Encoding,
        preambles: bool,
        alignment: ValueAlignment,
    ) -> Template {
        let options = &mut BuildOptions::new();
        Template::with_options((minishard_bits, keys), index, data, preambles, options.value_alignment(alignment))
    }

    fn with_options(
        (minishard_bits, keys): (u8, u8),
        index: Encoding,
        data: Encoding,
        preambles: bool,
        options: &mut BuildOptions,
    ) -> Template {
        let spec = ShardingSpec::new(HashFunction::MurmurHash3X86_128, 0, minishard_bits, 1).unwrap();
        let spec = spec.with_minishard_index_encoding(index).with_data_encoding(data);
        let store = scratch::directory("template");
        options.threads(1).memory(16 << 20).spec(spec);
        let mut loader = options.create(&store).unwrap();
        let mut pairs = Pairs::new();
        for tag in 0..keys {
            let preamble = if preambles { vec![!tag; usize::from(tag % 4)] } else { vec![] };
            let value: Vec<u8> = (0..tag.saturating_sub(3) % 16).map(|at| tag ^ at).collect();
            loader.insert_with_preamble(u64::from(tag) * 7, &preamble, &value).unwrap();
            pairs.insert(u64::from(tag) * 7, (preamble, value));
        }
        loader.finish().unwrap();
        let generation = ShardDb::open(&store).unwrap().snapshot().directory().to_path_buf();
        let files = files(&generation);
        fs::remove_dir_all(store).unwrap();
        Template { files, pairs }
    }
}

/// All files of a directory by name.
pub fn files(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_string(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}
