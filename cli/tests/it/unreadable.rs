//! A path that cannot be looked up is an error of the operating system: nothing is absent, damaged or of another kind
//! because of it.

use std::fs;
use std::os::unix::fs::symlink;

use crate::common::{Place, Start, command, foreign};

/// The path that becomes a link to itself, and the command, whose message names the path.
const CASES: [(&str, &str); 13] = [
    ("gen/manifest.json", "publish other --from gen"),
    ("store/gen-0000000001", "generations store"),
    ("store/gen-0000000001", "diff store --from 1 --to 2"),
    ("store/gen-0000000002/0.shard", "verify store"),
    ("foreign/0.shard", "verify foreign"),
    ("foreign/info", "get foreign 1"),
    ("foreign/zarr.json", "get foreign 1"),
    ("foreign/meta/storage", "verify foreign"),
    ("foreign", "import foreign other"),
    ("foreign/info", "copy foreign other --range 0..9"),
    ("loop", "export store --format ndjson --output loop/x"),
    ("loop", "copy store loop/x --range 0..9"),
    ("loop", "salvage foreign loop/x"),
];

#[test]
fn a_path_that_cannot_be_looked_up_is_an_error_of_the_operating_system() {
    for (path, line) in CASES {
        let place = Place::new();
        let run = |line: &str| command(line.split(' ')).current_dir(place.path(".")).run();
        foreign(&place);
        place.write("foreign/meta/x", "");
        place.write("pairs.ndjson", "{\"key\":1,\"text\":\"a\"}\n");
        for _ in 0..2 {
            run("build store --input pairs.ndjson").expect(0);
        }
        run("build elsewhere --input pairs.ndjson").expect(0);
        fs::rename(place.path("elsewhere/gen-0000000001"), place.path("gen")).unwrap();
        let link = place.path(path);
        if link.is_dir() { fs::remove_dir_all(&link) } else { fs::remove_file(&link) }.unwrap_or_default(); // may be new
        symlink(&link, &link).unwrap();
        let run = run(line).expect(4); // verify prints findings
        let said = run.text().to_string() + &run.stderr;
        let named = ["cannot ", path.split('/').next_back().unwrap(), "os error"];
        assert!(named.iter().all(|part| said.contains(part)), "{line}: {said}");
    }
}
