//! A read that fails is the error of the publication of parts: no other generation is published, no file is removed, and
//! the next attempt succeeds.

#![cfg(unix)]

use rustix::io::Errno;

use super::tests::{Scene, files};
use crate::error::ErrorKind;
use crate::fs::disk::Watch;

const ERRORS: [Errno; 5] = [Errno::IO, Errno::ACCESS, Errno::MFILE, Errno::NFILE, Errno::STALE];

/// Each read fails once: the first with each error, the others with one.
#[test]
fn one_failed_read_is_reported_and_changes_nothing() {
    let reads = (0..).take_while(|nth| {
        let errors = if *nth == 0 { &ERRORS[..] } else { &ERRORS[nth % ERRORS.len()..][..1] };
        errors.iter().filter(|error| fails_at(*nth, **error)).count() > 0
    });
    let reads = reads.count();
    assert!(reads > 50, "{reads} reads");
}

/// Lets one read fail; returns false if a publication makes fewer reads.
fn fails_at(nth: usize, error: Errno) -> bool {
    let scene = Scene::new();
    let spills = scene.case.spill_all(&scene.job()).unwrap();
    let parts = scene.case.build_parts(&spills, &scene.job()).unwrap();
    let current = || files(&scene.store().join("current"));
    let (before, old) = (files(&scene.store()), current());
    let watch = Watch::on(scene.directory.path());
    watch.fail_read(error.raw_os_error(), nth);
    println!("{error} at read {nth}"); // shown if it fails
    let published = scene.publish(&spills, parts.clone());
    let faults = watch.heal();
    let published = published.unwrap_or_else(|reported| {
        assert_eq!((faults, reported.kind()), (1, ErrorKind::Io), "{reported}");
        assert_eq!(reported.raw_os_error(), Some(error.raw_os_error()), "{reported}");
        assert!(reported.path().is_some_and(|path| path.starts_with(scene.directory.path())), "{reported}");
        let is_kept = |name: &str| name.starts_with("gen-") || name.starts_with("parts-");
        let (after, kept) = (files(&scene.store()), before.iter().filter(|(name, _)| is_kept(name.to_str().unwrap())));
        kept.for_each(|(name, bytes)| assert!(after.get(name) == Some(bytes), "{name:?} after {reported}"));
        let current = current();
        assert!(current == old || current == scene.expected, "after {reported}"); // it may have been made current
        scene.publish(&spills, parts).unwrap()
    });
    scene.check_published(&published);
    faults > 0
}
