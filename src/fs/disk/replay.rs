//! A model of a disk after a power cut: synced changes are kept, and any of the others may be kept or lost.
//!
//! ```text
//! file        synced bytes    + writes since the last sync of the file, each kept, dropped, cut or left as zeros
//! directory   synced names    + changes since the last sync of the directory, each kept or dropped
//! ```
//!
//! A hard link is a second name of one file. A rename is one change, also between two directories. It is synced with the destination directory. A symbolic link
//! is created atomically. POSIX and the common file systems guarantee this much; the model assumes no more.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::recorder::Step;

/// What happens to unsynced changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// All are lost.
    All,
    /// None is lost: the process crashed, not the machine.
    None,
    /// Names are kept, writes are lost: new files are empty.
    Bytes,
    /// Names and lengths are kept, bytes are zeros.
    Zeros,
    /// Names and the first half of each write are kept.
    Torn,
    /// Bytes are kept, names are lost.
    Names,
    /// Each change is kept, lost or torn at random. The value is the seed.
    Random(u64),
}

impl Loss {
    /// Returns every kind, `Random` with several seeds.
    pub fn all() -> impl Iterator<Item = Loss> {
        use Loss::{All, Bytes, Names, None, Torn, Zeros};
        [All, None, Bytes, Zeros, Torn, Names].into_iter().chain((1..=6).map(Loss::Random))
    }

    fn keeps_name(self, change: u64) -> bool {
        match self {
            Loss::All | Loss::Names => false,
            Loss::None | Loss::Bytes | Loss::Zeros | Loss::Torn => true,
            Loss::Random(seed) => dice(seed, change).is_multiple_of(2),
        }
    }

    /// Returns the bytes that are left of a write, if any.
    fn of_write(self, write: &Write) -> Option<Vec<u8>> {
        let bytes = &write.bytes;
        match self {
            Loss::All | Loss::Bytes => None,
            Loss::None | Loss::Names => Some(bytes.clone()),
            Loss::Zeros => Some(vec![0; bytes.len()]),
            Loss::Torn => Some(bytes[..bytes.len() / 2].to_vec()),
            Loss::Random(seed) => match dice(seed, write.change) % 4 {
                0 => None,
                1 => Some(vec![0; bytes.len()]),
                2 => Some(bytes[..cut(dice(seed + 100, write.change), bytes.len())].to_vec()),
                _ => Some(bytes.clone()),
            },
        }
    }
}

/// Maps a random number to a length from 0 to `len`.
fn cut(dice: u64, len: usize) -> usize {
    usize::try_from(dice % (len as u64 + 1)).unwrap()
}

fn dice(seed: u64, change: u64) -> u64 {
    let mut mixed = (seed << 32 ^ change).wrapping_add(0x9e37_79b9_7f4a_7c15);
    for shift in [30, 27, 31] {
        mixed = (mixed ^ mixed >> shift).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    }
    mixed >> 8
}

/// The contents of a directory, as found after a crash. Paths are relative to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tree(BTreeMap<PathBuf, Leaf>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Leaf {
    Dir,
    File(Vec<u8>),
    Link(PathBuf),
}

impl Tree {
    pub fn read(root: &Path) -> Tree {
        let mut tree = Tree(BTreeMap::new());
        tree.read_below(root, Path::new(""));
        tree
    }

    fn read_below(&mut self, root: &Path, directory: &Path) {
        for entry in fs::read_dir(root.join(directory)).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (directory.join(entry.file_name()), entry.file_type().unwrap());
            let leaf = match kind {
                _ if kind.is_dir() => Leaf::Dir,
                _ if kind.is_symlink() => Leaf::Link(fs::read_link(entry.path()).unwrap()),
                _ => Leaf::File(fs::read(entry.path()).unwrap()),
            };
            if leaf == Leaf::Dir {
                self.read_below(root, &path);
            }
            self.0.insert(path, leaf);
        }
    }

    pub fn write_to(&self, root: &Path) {
        for (path, leaf) in &self.0 {
            let path = root.join(path);
            match leaf {
                Leaf::Dir => fs::create_dir(path).unwrap(),
                Leaf::File(bytes) => fs::write(path, bytes).unwrap(),
                #[cfg(unix)]
                Leaf::Link(target) => std::os::unix::fs::symlink(target, path).unwrap(),
                #[cfg(not(unix))]
                Leaf::Link(target) => panic!("expected no symbolic link, found one to {}", target.display()),
            }
        }
    }
}

/// A disk that tracks which changes are synced.
pub struct Disk {
    nodes: Vec<Node>,
    changes: u64,
}

enum Node {
    Dir(Dir),
    File(File),
    Link(PathBuf),
}

const ROOT: usize = 0;

#[derive(Default)]
struct Dir {
    synced: BTreeMap<PathBuf, usize>,
    unsynced: Vec<Naming>,
}

/// A name that is added, or removed if `node` is `None`.
#[derive(Clone)]
struct Naming {
    change: u64,
    name: PathBuf,
    node: Option<usize>,
}

#[derive(Default)]
struct File {
    synced: Vec<u8>,
    unsynced: Vec<Write>,
}

struct Write {
    change: u64,
    offset: usize,
    bytes: Vec<u8>,
}

impl Disk {
    /// Creates a disk that holds a tree, all of it synced.
    pub fn of(tree: &Tree) -> Disk {
        let mut disk = Disk::unsynced(tree);
        disk.sync_all();
        disk
    }

    /// Creates a disk that holds a tree of which only the names in the root are synced, as after `cp -r`.
    pub fn unsynced(tree: &Tree) -> Disk {
        let mut disk = Disk { nodes: vec![Node::Dir(Dir::default())], changes: 0 };
        for (path, leaf) in &tree.0 {
            disk.changes += 1;
            let node = match leaf {
                Leaf::Dir => Node::Dir(Dir::default()),
                Leaf::File(bytes) => Node::File(File::unsynced(disk.changes, bytes)),
                Leaf::Link(target) => Node::Link(target.clone()),
            };
            disk.create(path, node);
        }
        disk.sync_dir(ROOT);
        disk
    }

    fn sync_all(&mut self) {
        for node in 0..self.nodes.len() {
            match &mut self.nodes[node] {
                Node::File(file) => file.sync(),
                _ => self.sync_dir(node),
            }
        }
    }

    pub fn apply(&mut self, step: &Step) {
        self.changes += 1;
        match step {
            Step::CreateDir(path) => self.create(path, Node::Dir(Dir::default())),
            Step::CreateFile(path) => self.create(path, Node::File(File::default())),
            Step::Symlink { target, link } => self.create(link, Node::Link(target.clone())),
            Step::HardLink { file, link } => {
                let node = self.find(file);
                self.name(link, Some(node));
            }
            Step::Write { path, offset, bytes } => {
                let change = self.changes;
                let offset = usize::try_from(*offset).unwrap();
                self.file(path).unsynced.push(Write { change, offset, bytes: bytes.clone() });
            }
            Step::SyncFile(path) => self.file(path).sync(),
            Step::SyncDir(path) => {
                let node = self.find(path);
                self.sync_dir(node);
            }
            Step::SyncFileSystem => self.sync_all(),
            Step::Rename { from, to } => {
                let node = self.find(from);
                self.name(from, None);
                self.name(to, Some(node));
            }
            Step::Remove(path) => self.name(path, None),
        }
    }

    /// Returns the tree that a crash at this point leaves.
    pub fn after(&self, loss: Loss) -> Tree {
        let mut tree = Tree(BTreeMap::new());
        self.list(ROOT, Path::new(""), loss, &mut tree);
        tree
    }

    fn list(&self, dir: usize, path: &Path, loss: Loss, into: &mut Tree) {
        let Node::Dir(dir) = &self.nodes[dir] else { panic!("no directory: {path:?}") };
        for (name, node) in dir.names(|change| loss.keeps_name(change)) {
            let path = path.join(name);
            let leaf = match &self.nodes[node] {
                Node::Dir(_) => {
                    self.list(node, &path, loss, into);
                    Leaf::Dir
                }
                Node::File(file) => Leaf::File(file.after(loss)),
                Node::Link(target) => Leaf::Link(target.clone()),
            };
            into.0.insert(path, leaf);
        }
    }

    fn create(&mut self, path: &Path, node: Node) {
        self.nodes.push(node);
        self.name(path, Some(self.nodes.len() - 1));
    }

    fn name(&mut self, path: &Path, node: Option<usize>) {
        let parent = self.find(path.parent().unwrap());
        let naming = Naming { change: self.changes, name: path.file_name().unwrap().into(), node };
        self.dir(parent).unsynced.push(naming);
    }

    /// Returns the node at a path as processes see it, with unsynced changes.
    fn find(&self, path: &Path) -> usize {
        path.iter().fold(ROOT, |dir, name| match &self.nodes[dir] {
            Node::Dir(dir) => dir.names(|_| true)[Path::new(name)],
            _ => panic!("no directory on the way to {path:?}"),
        })
    }

    fn file(&mut self, path: &Path) -> &mut File {
        let node = self.find(path);
        match &mut self.nodes[node] {
            Node::File(file) => file,
            _ => panic!("no file: {path:?}"),
        }
    }

    fn dir(&mut self, node: usize) -> &mut Dir {
        match &mut self.nodes[node] {
            Node::Dir(dir) => dir,
            _ => panic!("no directory: {node}"),
        }
    }

    /// Syncs a directory, and the source directories of renames into it.
    fn sync_dir(&mut self, node: usize) {
        if !matches!(self.nodes[node], Node::Dir(_)) {
            return;
        }
        let dir = self.dir(node);
        dir.synced = dir.names(|_| true);
        let synced: Vec<u64> = std::mem::take(&mut dir.unsynced).iter().map(|naming| naming.change).collect();
        for node in &mut self.nodes {
            if let Node::Dir(dir) = node {
                let (now, later) = std::mem::take(&mut dir.unsynced)
                    .into_iter()
                    .partition::<Vec<_>, _>(|naming| synced.contains(&naming.change));
                now.iter().for_each(|naming| naming.apply(&mut dir.synced));
                dir.unsynced = later;
            }
        }
    }
}

impl Dir {
    fn names(&self, keeps: impl Fn(u64) -> bool) -> BTreeMap<PathBuf, usize> {
        let mut names = self.synced.clone();
        self.unsynced.iter().filter(|naming| keeps(naming.change)).for_each(|naming| naming.apply(&mut names));
        names
    }
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self.node {
            Some(node) => names.insert(self.name.clone(), node),
            None => names.remove(&self.name),
        };
    }
}

impl File {
    fn unsynced(change: u64, bytes: &[u8]) -> File {
        File { synced: Vec::new(), unsynced: vec![Write { change, offset: 0, bytes: bytes.to_vec() }] }
    }

    fn sync(&mut self) {
        self.synced = self.after(Loss::None);
        self.unsynced.clear();
    }

    fn after(&self, loss: Loss) -> Vec<u8> {
        let mut bytes = self.synced.clone();
        for write in &self.unsynced {
            let Some(kept) = loss.of_write(write) else { continue };
            let end = write.offset + kept.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[write.offset..end].copy_from_slice(&kept);
        }
        bytes
    }
}

// The crash tests rely on this model: if it kept unsynced changes, all of them would pass.
#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> Leaf {
        Leaf::File(bytes.to_vec())
    }

    fn tree(leaves: &[(&str, Leaf)]) -> Tree {
        Tree(leaves.iter().map(|(path, leaf)| (PathBuf::from(path), leaf.clone())).collect())
    }

    fn disk(steps: &[Step]) -> Disk {
        let mut disk = Disk::of(&tree(&[("a", Leaf::Dir), ("a/old", file(b"old")), ("b", Leaf::Dir)]));
        steps.iter().for_each(|step| disk.apply(step));
        disk
    }

    fn write(path: &str, offset: u64, bytes: &[u8]) -> Step {
        Step::Write { path: path.into(), offset, bytes: bytes.to_vec() }
    }

    #[test]
    fn keeps_what_is_synced_and_loses_the_rest() {
        let (a, b) = (("a", Leaf::Dir), ("b", Leaf::Dir));
        let old = ("a/old", file(b"old"));
        let created = [Step::CreateFile("b/new".into()), write("b/new", 0, b"12345678")];
        let after = |steps: &[Step], loss| disk(steps).after(loss);
        assert_eq!(after(&created, Loss::All), tree(&[a.clone(), old.clone(), b.clone()]));
        let with = |bytes: &[u8]| tree(&[a.clone(), old.clone(), b.clone(), ("b/new", file(bytes))]);
        assert_eq!(after(&created, Loss::None), with(b"12345678"));
        assert_eq!(after(&created, Loss::Bytes), with(b""));
        assert_eq!(after(&created, Loss::Zeros), with(&[0; 8]));
        assert_eq!(after(&created, Loss::Torn), with(b"1234"));

        let synced_file = [&created[..], &[Step::SyncFile("b/new".into())]].concat();
        assert_eq!(
            after(&synced_file, Loss::All),
            tree(&[a.clone(), old.clone(), b.clone()]),
            "its name is not synced"
        );
        assert_eq!(after(&synced_file, Loss::Bytes), with(b"12345678"));
        let synced = [&synced_file[..], &[Step::SyncDir("b".into())]].concat();
        assert_eq!(after(&synced, Loss::All), with(b"12345678"));
        let overwritten = [&synced[..], &[write("b/new", 2, b"xx")]].concat();
        assert_eq!(after(&overwritten, Loss::Names), with(b"12xx5678"));
        assert_eq!(after(&overwritten, Loss::All), with(b"12345678"));
    }

    #[test]
    fn a_rename_is_in_one_place_or_the_other() {
        let rename = Step::Rename { from: "a/old".into(), to: "b/moved".into() };
        let before = tree(&[("a", Leaf::Dir), ("a/old", file(b"old")), ("b", Leaf::Dir)]);
        let after = tree(&[("a", Leaf::Dir), ("b", Leaf::Dir), ("b/moved", file(b"old"))]);
        for loss in Loss::all() {
            let found = disk(std::slice::from_ref(&rename)).after(loss);
            assert!(found == before || found == after, "{loss:?}");
        }
        for loss in Loss::all() {
            assert_eq!(disk(&[rename.clone(), Step::SyncDir("b".into())]).after(loss), after);
        }
    }

    #[test]
    fn a_removal_that_is_not_synced_comes_back() {
        let steps = [Step::Remove("a/old".into())];
        assert!(disk(&steps).after(Loss::All).0.contains_key(Path::new("a/old")));
        let steps = [Step::Remove("a/old".into()), Step::SyncDir("a".into())];
        assert!(!disk(&steps).after(Loss::All).0.contains_key(Path::new("a/old")));
    }
}
