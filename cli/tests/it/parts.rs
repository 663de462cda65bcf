//! A build in parts by processes that are killed, repeated and run at the same time has the bytes of `build`. Foreign files
//! in place of plans, receipts and spills are errors that name the file.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Place, Run, Start, command, sharddb};
use crate::process::until_run;

/// Pairs of one task: 500 keys, of which the next task has some too.
fn pairs(task: u64) -> String {
    let line = |key: u64| format!("{{\"key\": {key}, \"text\": \"{task}/{key}\"}}\n");
    (task * 400..task * 400 + 500).map(line).collect()
}

/// Returns the files of the current generation by name.
fn files(store: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(store.join("current")).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_string();
    let mut files: Vec<_> = entries.map(|path| (name(&path), fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

const TASKS: u64 = 4;

#[test]
fn processes_that_are_killed_and_doubled_have_the_result_of_one() {
    let place = Place::new();
    let inputs: Vec<String> = (0..TASKS).map(|task| place.write(&format!("{task}.ndjson"), pairs(task))).collect();
    let plan = sharddb(["plan", "--keys", "1700", "--bytes", "1GB", "--parts", "3"]).expect(0);
    let plan = place.write("plan", plan.stdout);
    let store = place.text("store");

    // killed while they read, after a file of theirs exists
    let spill = |task: u64, input: &str| {
        let task = task.to_string();
        command(["spill", &store, "night", "--plan", &plan, "--task", &task, "--format", "ndjson", "--input", input])
    };
    for _ in 0..3 {
        let mut child = spill(0, "-").stdin(Stdio::piped()).start();
        child.stdin.as_mut().unwrap().write_all(pairs(0).as_bytes()).unwrap();
        until_run(&mut child, || fs::read_dir(place.path("store/parts-night")).is_ok_and(|names| names.count() > 0));
        child.kill();
    }
    let spills: Vec<String> = (0..TASKS)
        .map(|task| {
            let input = &inputs[usize::try_from(task).unwrap()];
            let attempts: Vec<_> = (0..2).map(|_| spill(task, input).start()).collect();
            let receipts: Vec<_> = attempts.into_iter().map(|child| child.finish().stdout).collect();
            assert_ne!(receipts[0], receipts[1], "each attempt has random bytes");
            place.write(&format!("{task}.spill"), &receipts[0])
        })
        .collect();
    let of_spills: Vec<&str> = std::iter::once("--spills").chain(spills.iter().map(String::as_str)).collect();
    let build_part = |part: &str| {
        let own = ["build-part", &store, "night", "--plan", &plan, "--part", part, "--on-duplicate", "concat"];
        command([&own[..], &of_spills].concat())
    };
    let attempts: Vec<_> = (0..6).map(|attempt: u32| build_part(&(attempt % 3).to_string()).start()).collect();
    let receipts: Vec<_> = attempts.into_iter().map(|child| child.finish().stdout).collect();
    let parts = place.write("parts", receipts.concat()); // equal receipts count as one
    let publish = [&["publish-parts", &store, "night", "--plan", &plan, "--parts", &parts, "--json"], &of_spills[..]];
    let published = sharddb(publish.concat()).expect(0).stdout;
    assert_eq!(sharddb(publish.concat()).expect(0).stdout, published);

    let one = place.text("one");
    let build = ["build", &one, "--on-duplicate", "concat", "--sharding", &plan, "--force", "--input"];
    sharddb(build.into_iter().chain(inputs.iter().map(String::as_str))).expect(0);
    assert!(files(Path::new(&store)) == files(Path::new(&one)));
    sharddb(["verify", &store]).expect(0);
    sharddb(["clean-parts", &store, "night"]).expect(0);
    assert!(!place.path("store/parts-night").exists());
}

#[test]
fn foreign_files_are_errors_with_their_names() {
    let place = Place::new();
    let input = place.write("input.ndjson", pairs(0));
    let step = |args: &[&str]| command(args).current_dir(place.path("")).run();
    let keep = |name: &str, args: &[&str]| place.write(name, step(args).stdout);
    keep("plan", &["plan", "--keys", "500", "--bytes", "1MB", "--parts", "2"]);
    keep("spill", &["spill", "store", "night", "--plan", "plan", "--task", "0", "--input", &input]);
    let part = ["build-part", "store", "night", "--plan", "plan", "--spills", "spill", "--part"];
    let parts: Vec<_> = ["0", "1"].iter().flat_map(|number| step(&[&part[..], &[number]].concat()).stdout).collect();
    place.write("parts", parts);

    let mut hostile: Vec<Vec<u8>> = vec![
        b"".to_vec(),
        b"\n\n".to_vec(),
        b"null".to_vec(),
        b"{}".to_vec(),
        b"\xff\xfe".to_vec(),
        vec![0; 5000],
        "[".repeat(100_000).into_bytes(),
        b"{\"sharddb_part_plan\": 1}".to_vec(),
        b"{\"sharddb_spill\": 1, \"task\": 1e400}".to_vec(),
        b"{\"sharddb_part\": 99999999999999999999}".to_vec(),
    ];
    for name in ["plan", "spill", "parts"] {
        let text = fs::read(place.path(name)).unwrap();
        hostile.push(text[..text.len() / 3].to_vec());
    }
    let publish = ["publish-parts", "store", "night", "--plan", "plan", "--spills", "spill", "--parts", "parts"];
    let spill = ["spill", "store", "night", "--plan", "plan", "--task", "1", "--input", &input];
    for (at, content) in hostile.iter().enumerate() {
        place.write("hostile", content);
        let part = [&part[..], &["0"]].concat();
        for (args, replaced) in [
            (&spill[..], "plan"),
            (&part, "plan"),
            (&part, "spill"),
            (&publish, "plan"),
            (&publish, "spill"),
            (&publish, "parts"),
        ] {
            // the last one is the value of the option, and not the name of the subcommand
            let last = args.iter().rposition(|arg| *arg == replaced).unwrap();
            let args: Vec<&str> =
                args.iter().enumerate().map(|(at, arg)| if at == last { "hostile" } else { *arg }).collect();
            let Run { code, stdout, stderr } = step(&args);
            assert_eq!(code, Some(3), "{args:?} with text {at}: {stderr}");
            assert!(stderr.contains("hostile") && stderr.contains("expected"), "{args:?} with text {at}: {stderr}");
            assert!(stdout.is_empty());
        }
    }
    // receipts of another kind, a directory, nothing
    for (other, code) in [("plan", 3), ("parts", 3), (".", 4), ("missing", 4)] {
        let args = publish.map(|arg| if arg == "spill" { other } else { arg });
        assert_eq!(step(&args).code, Some(code), "{other}");
    }
    assert!(!place.path("store/current").exists(), "nothing was published");
    assert_eq!(step(&publish).code, Some(0));
}
