//! The directories that are served, and the file or directory that the names of a request lead to.
//!
//! A store is transparent: its path is its current generation, resolved once per request, and `STORE/gen-0000000003` is
//! that generation. Other files of a store, such as its lock, have no path. A file is opened below its root in one step
//! (`openat2` on Linux), so a symbolic link does not lead out of it, even if somebody replaces a directory meanwhile.

use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use sharddb::{Error, GenerationId, Result};

/// The name of the link in a store that names its current generation.
pub(crate) const CURRENT: &str = "current";

/// All directories that are served.
#[derive(Debug)]
pub(crate) struct Tree {
    mounts: Vec<Mount>,
}

/// One directory or file that is served.
#[derive(Debug)]
struct Mount {
    /// Its name in URLs; empty if it is the only one, and its content is at the top.
    name: String,
    /// The canonical path.
    root: PathBuf,
}

/// Where names lead: a path below a root, in a known generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    root: PathBuf,
    /// Relative to the root.
    relative: PathBuf,
    /// The generation that the path is in, if it is in a store.
    pub(crate) generation: Option<InStore>,
}

/// A generation of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InStore {
    /// The store, relative to the root.
    store: PathBuf,
    pub(crate) id: GenerationId,
    /// Whether the names end at the store or its generation.
    pub(crate) is_whole: bool,
    /// Whether a number named the generation. The path then stays at it; any other path follows the store.
    pub(crate) is_named: bool,
}

impl Tree {
    /// Serves `paths`. A single directory that `is_database` refuses is at the top; others have their name.
    ///
    /// Errors: `Io` if a path does not exist; `InvalidInput` if one is neither a directory nor a regular file, two have one name,
    /// or one has none.
    pub(crate) fn new(paths: &[PathBuf], is_database: impl Fn(&Path) -> Result<bool>) -> Result<Tree> {
        let mut mounts: Vec<Mount> = Vec::new();
        for path in paths {
            let failed = |error| Error::io("open", path, error);
            let root = path.canonicalize().map_err(failed)?;
            let metadata = root.metadata().map_err(failed)?;
            if !metadata.is_dir() && !metadata.is_file() {
                let path = path.display();
                return Err(Error::invalid_input(format!(
                    "expected a directory or a regular file at {path}, found neither"
                )));
            }
            let is_top = paths.len() == 1 && metadata.is_dir() && !is_database(&root)?;
            // `current` and symbolic links have the name that the user gave
            let given = path.file_name().or_else(|| root.file_name()).and_then(|name| name.to_str());
            let name = match (is_top, given) {
                (true, _) => String::new(),
                (false, Some(name)) => name.to_string(),
                (false, None) => {
                    let path = path.display();
                    return Err(Error::invalid_input(format!("expected a path with a name in UTF-8, found {path}")));
                }
            };
            if mounts.iter().any(|mount| mount.name == name) {
                return Err(Error::invalid_input(format!(
                    "expected paths with different names, found {name} twice: serve the directory that has both"
                )));
            }
            mounts.push(Mount { name, root });
        }
        Ok(Tree { mounts })
    }

    /// The names of the mounts: one empty list for a directory that is at the top.
    pub(crate) fn tops(&self) -> Vec<Vec<String>> {
        let names = |mount: &Mount| if mount.name.is_empty() { Vec::new() } else { vec![mount.name.clone()] };
        self.mounts.iter().map(names).collect()
    }

    /// Returns the place of a path that is below a root; `None` for any other path.
    pub(crate) fn place_of(&self, path: &Path) -> Option<Place> {
        self.mounts.iter().find_map(|mount| Place::below(&mount.root, path))
    }

    /// Returns where `names` lead; `None` if that is a file of a store that is in no generation, or no mount.
    ///
    /// Whether something is there is not checked. Cost: reads one link per directory.
    pub(crate) fn resolve(&self, names: &[String]) -> Option<Place> {
        let (mount, mut names) = match self.mounts.as_slice() {
            [mount] if mount.name.is_empty() => (mount, names),
            mounts => {
                let (first, rest) = names.split_first()?;
                (mounts.iter().find(|mount| mount.name == *first)?, rest)
            }
        };
        let mut place = Place { root: mount.root.clone(), relative: PathBuf::new(), generation: None };
        loop {
            if place.generation.is_none()
                && let Some(current) = current_generation(&place.path())
            {
                names = place.enter(current, names);
            }
            let Some((name, rest)) = names.split_first() else { return Some(place) };
            place.relative.push(name);
            names = rest;
        }
    }
}

/// The generation that `current` names in a directory, as a link or, where links are not possible, a text.
fn current_generation(directory: &Path) -> Option<GenerationId> {
    let path = directory.join(CURRENT);
    match fs::read_link(&path) {
        Ok(target) => target.to_str()?.parse().ok(),
        Err(_) if path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= 64) => {
            fs::read_to_string(&path).ok()?.trim_end().parse().ok()
        }
        Err(_) => None,
    }
}

impl Place {
    /// Enters a generation of the store at this place: the one that the first name names, or the current one. Returns
    /// the names in it.
    fn enter<'a>(&mut self, current: GenerationId, names: &'a [String]) -> &'a [String] {
        let named = names.first().and_then(|name| name.parse::<GenerationId>().ok());
        let inside = match names.split_first() {
            Some((first, rest)) if named.is_some() || first == CURRENT => rest,
            _ => names,
        };
        let (store, id) = (self.relative.clone(), named.unwrap_or(current));
        self.generation = Some(InStore { store, id, is_whole: inside.is_empty(), is_named: named.is_some() });
        self.relative.push(id.to_string());
        inside
    }

    /// The path in the file system. Symbolic links in it are not checked.
    pub(crate) fn path(&self) -> PathBuf {
        if self.relative.as_os_str().is_empty() { self.root.clone() } else { self.root.join(&self.relative) }
    }

    /// The path of the store, if this is in one.
    pub(crate) fn store(&self) -> Option<PathBuf> {
        self.generation.as_ref().map(|generation| self.root.join(&generation.store))
    }

    /// The path of the generation, if this is in a store.
    pub(crate) fn generation_path(&self) -> Option<PathBuf> {
        self.generation.as_ref().map(|generation| self.root.join(&generation.store).join(generation.id.to_string()))
    }

    /// The place of an entry of this directory, by names that are valid.
    pub(crate) fn join(&self, name: &str) -> Place {
        Place { relative: self.relative.join(name), ..self.clone() }
    }

    /// The place of a path that is below the same root; `None` for any other path.
    pub(crate) fn place_of(&self, path: &Path) -> Option<Place> {
        Place::below(&self.root, path)
    }

    fn below(root: &Path, path: &Path) -> Option<Place> {
        let relative = path.strip_prefix(root).ok()?.to_path_buf();
        Some(Place { root: root.to_path_buf(), relative, generation: None })
    }

    /// Opens the regular file at this place; `None` if there is none, or a symbolic link leads out of the root.
    ///
    /// Errors: any other failure of the operating system.
    pub(crate) fn open(&self) -> io::Result<Option<File>> {
        let opened = if self.relative.as_os_str().is_empty() {
            File::open(&self.root)
        } else {
            open_beneath(&self.root, &self.relative)
        };
        let Some(file) = unless_absent(opened)? else { return Ok(None) };
        Ok(file.metadata()?.is_file().then_some(file))
    }

    /// Returns what is here; `None` if there is nothing for a client.
    ///
    /// Errors: any other failure of the operating system.
    pub(crate) fn metadata(&self) -> io::Result<Option<Metadata>> {
        unless_absent(self.path().metadata())
    }

    /// Returns the canonical path of a file or directory; `None` if there is none, or a link leads out of the root.
    ///
    /// Errors: any other failure of the operating system.
    pub(crate) fn canonical(&self) -> io::Result<Option<PathBuf>> {
        self.canonical_at(&self.path())
    }

    /// Returns the path of the store, if this is in one, there is one, and no link leads out of the root.
    ///
    /// Errors: any other failure of the operating system.
    pub(crate) fn own_store(&self) -> io::Result<Option<PathBuf>> {
        let Some(store) = self.store() else { return Ok(None) };
        Ok(self.canonical_at(&store)?.map(|_| store))
    }

    fn canonical_at(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        Ok(unless_absent(path.canonicalize())?.filter(|path| path.starts_with(&self.root)))
    }

    /// Whether a directory is below the root, and no symbolic link in it, or in a directory below it, leads out.
    ///
    /// For a directory that the library opens by its path. Cost: lists all of it.
    pub(crate) fn has_only_own_links(&self, directory: &Path) -> io::Result<bool> {
        if !directory.canonicalize()?.starts_with(&self.root) {
            return Ok(false);
        }
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            let path = entry.path();
            let is_own = if kind.is_symlink() {
                path.canonicalize().is_ok_and(|target| target.starts_with(&self.root))
            } else if kind.is_dir() {
                self.has_only_own_links(&path)?
            } else {
                true
            };
            if !is_own {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns `None` instead of an error that means that there is no such file for a client.
pub(crate) fn unless_absent<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error means that there is no such file for a client.
fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, InvalidFilename, InvalidInput, IsADirectory};
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    matches!(
        error.kind(),
        NotFound | NotADirectory | IsADirectory | PermissionDenied | InvalidInput | InvalidFilename | CrossesDevices
    ) || is_loop_or_socket(error)
}

/// Links in a circle fail with ELOOP, and opening a socket with ENXIO.
#[cfg(unix)]
fn is_loop_or_socket(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::LOOP | Errno::NXIO))
}

#[cfg(not(unix))]
fn is_loop_or_socket(_error: &io::Error) -> bool {
    false
}

/// Opens a file below `root`. A symbolic link may be on the way if it is relative and stays below `root`.
#[cfg(target_os = "linux")]
fn open_beneath(root: &Path, relative: &Path) -> io::Result<File> {
    use rustix::fs::{Mode, OFlags, ResolveFlags};
    use rustix::io::Errno;

    let directory = File::open(root)?;
    // a FIFO would block without NONBLOCK
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..8 {
        match rustix::fs::openat2(&directory, relative, flags, Mode::empty(), resolve) {
            Ok(file) => return Ok(File::from(file)),
            Err(Errno::AGAIN) => {} // a rename somewhere on the way; see openat2(2)
            Err(Errno::NOSYS | Errno::PERM) => return open_checked(root, relative), // old kernels and sandboxes
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::AGAIN.into())
}

#[cfg(not(target_os = "linux"))]
fn open_beneath(root: &Path, relative: &Path) -> io::Result<File> {
    open_checked(root, relative)
}

/// Like [`open_beneath`], in two steps: somebody who may write below `root` could replace the file between them.
fn open_checked(root: &Path, relative: &Path) -> io::Result<File> {
    let path = root.join(relative).canonicalize()?;
    if !path.starts_with(root) || !path.metadata()?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    File::open(path)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(path: &str) -> Vec<String> {
        path.split('/').filter(|name| !name.is_empty()).map(str::to_string).collect()
    }

    /// A directory `served` beside a file `secret`, with a store of two generations.
    fn directory() -> (tempfile::TempDir, Tree) {
        let directory = tempfile::tempdir().unwrap();
        let served = directory.path().join("served");
        for (path, text) in [
            ("secret", "secret"),
            ("served/plain", "plain"),
            ("served/a/b", "b"),
            ("served/store/gen-0000000001/info", "1"),
            ("served/store/gen-0000000002/info", "2"),
            ("served/store/lock", "lock"),
        ] {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        symlink("gen-0000000002", served.join("store/current")).unwrap();
        let tree = Tree::new(&[served], |_| Ok(false)).unwrap();
        (directory, tree)
    }

    fn text(tree: &Tree, path: &str) -> Option<String> {
        let mut file = tree.resolve(&names(path))?.open().unwrap()?;
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        Some(text)
    }

    #[test]
    fn a_store_is_its_current_generation_and_nothing_else() {
        let (directory, tree) = directory();
        for (path, content) in [
            ("plain", "plain"),
            ("a/b", "b"),
            ("store/info", "2"),
            ("store/current/info", "2"),
            ("store/gen-0000000001/info", "1"),
        ] {
            assert_eq!(text(&tree, path).as_deref(), Some(content), "{path}");
        }
        for path in
            ["", "a", "store", "store/lock", "store/gen-0000000003/info", "store/gen-0000000001/gen-0000000002/info"]
        {
            assert_eq!(text(&tree, path), None, "{path}");
        }
        let is_named = |path: &str| tree.resolve(&names(path)).unwrap().generation.unwrap().is_named;
        assert_eq!(["store", "store/current", "store/gen-0000000002"].map(is_named), [false, false, true]);
        // where links are not possible, `current` is a text
        let current = directory.path().join("served/store/current");
        fs::remove_file(&current).unwrap();
        fs::write(&current, "gen-0000000001\n").unwrap();
        assert_eq!(text(&tree, "store/info").as_deref(), Some("1"));
    }

    #[test]
    fn symbolic_links_do_not_lead_out() {
        let (directory, tree) = directory();
        let served = directory.path().join("served");
        symlink("plain", served.join("inside")).unwrap();
        symlink("../a", served.join("a/self")).unwrap();
        symlink("../secret", served.join("outside")).unwrap();
        symlink(directory.path().join("secret"), served.join("absolute")).unwrap();
        symlink("..", served.join("up")).unwrap();
        symlink("/proc/self/root", served.join("magic")).unwrap();
        symlink("loop", served.join("loop")).unwrap();
        assert_eq!(text(&tree, "inside").as_deref(), Some("plain"));
        assert_eq!(text(&tree, "a/self/b").as_deref(), Some("b"));
        for path in ["outside", "absolute", "up/secret", "magic/etc/passwd", "loop"] {
            assert_eq!(text(&tree, path), None, "{path}");
            assert_eq!(tree.resolve(&names(path)).unwrap().canonical().unwrap(), None, "{path}");
        }
        let place = tree.resolve(&[]).unwrap();
        assert!(!place.has_only_own_links(&served).unwrap());
        assert!(place.has_only_own_links(&served.join("store")).unwrap());
    }

    #[test]
    fn the_second_way_to_open_refuses_the_same_links() {
        let (directory, _) = directory();
        let served = directory.path().canonicalize().unwrap().join("served");
        symlink("../secret", served.join("outside")).unwrap();
        assert!(open_checked(&served, Path::new("a/b")).is_ok());
        for path in ["outside", "a", "missing", "../secret"] {
            assert!(open_checked(&served, Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn several_paths_have_their_names() {
        let (directory, _) = directory();
        let path = |name: &str| directory.path().join(name);
        let tree = Tree::new(&[path("served/a"), path("secret")], |_| Ok(false)).unwrap();
        assert_eq!(text(&tree, "a/b").as_deref(), Some("b"));
        assert_eq!(text(&tree, "secret").as_deref(), Some("secret"), "a file by itself");
        assert_eq!(text(&tree, "b"), None);
        assert_eq!(tree.tops(), [["a"], ["secret"]]);
        let tree = Tree::new(&[path("served/store")], |_| Ok(true)).unwrap();
        assert_eq!(text(&tree, "store/info").as_deref(), Some("2"), "a database has its name");
        assert!(Tree::new(&[path("served/a"), path("served/../served/a")], |_| Ok(false)).is_err());
        assert!(Tree::new(&[path("missing")], |_| Ok(false)).is_err());
    }
}
