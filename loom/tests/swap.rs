//! One process goes from a generation to the next: a reader sees the old one or the new, and is never the one that
//! closes a generation and waits for that.
//!
//! This mirrors `ShardDb::refresh` and `Retired::release_unread` of the library, in their order of steps, with a lock in
//! the place of arc-swap, whose own tests answer for that a load is one step and that a reader inside of it owns what it
//! loaded once a swap returns.

use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

struct Generation {
    number: usize,
    closed_by_refresh: Arc<AtomicUsize>,
    /// Set while a refresh releases what nobody reads: whatever is closed then is closed by it.
    releasing: Arc<AtomicBool>,
}

impl Drop for Generation {
    fn drop(&mut self) {
        assert!(self.releasing.load(Ordering::SeqCst), "generation {} is closed by a reader", self.number);
        self.closed_by_refresh.fetch_add(1, Ordering::SeqCst);
    }
}

struct Db {
    current: Mutex<Arc<Generation>>,
    retired: Mutex<Vec<Arc<Generation>>>,
    closed: Arc<AtomicUsize>,
    releasing: Arc<AtomicBool>,
}

impl Db {
    fn new() -> Db {
        let (closed, releasing) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
        let first = Db::generation(1, &closed, &releasing);
        Db { current: Mutex::new(first), retired: Mutex::new(Vec::new()), closed, releasing }
    }

    fn generation(number: usize, closed: &Arc<AtomicUsize>, releasing: &Arc<AtomicBool>) -> Arc<Generation> {
        Arc::new(Generation { number, closed_by_refresh: closed.clone(), releasing: releasing.clone() })
    }

    fn snapshot(&self) -> Arc<Generation> {
        self.current.lock().unwrap().clone()
    }

    fn refresh_to(&self, number: usize) {
        let mut retired = self.retired.lock().unwrap();
        self.release_unread(&mut retired);
        if self.snapshot_number() == number {
            return; // somebody was faster
        }
        let new = Db::generation(number, &self.closed, &self.releasing);
        let old = std::mem::replace(&mut *self.current.lock().unwrap(), new);
        retired.push(old);
        self.release_unread(&mut retired);
    }

    fn snapshot_number(&self) -> usize {
        self.current.lock().unwrap().number
    }

    fn release_unread(&self, retired: &mut Vec<Arc<Generation>>) {
        for generation in std::mem::take(retired) {
            match Arc::try_unwrap(generation) {
                Ok(unread) => {
                    self.releasing.store(true, Ordering::SeqCst);
                    drop(unread);
                    self.releasing.store(false, Ordering::SeqCst);
                }
                Err(read) => retired.push(read),
            }
        }
    }

    /// The last handle of the database is gone: closing is its own business.
    fn close(&self) {
        self.releasing.store(true, Ordering::SeqCst);
    }
}

#[test]
fn a_reader_never_closes_a_generation() {
    loom::model(|| {
        let db = Arc::new(Db::new());
        let reader = thread::spawn({
            let db = db.clone();
            move || {
                let snapshots = [db.snapshot(), db.snapshot()];
                assert!(snapshots[0].number <= snapshots[1].number, "it does not go back");
            }
        });
        db.refresh_to(2);
        reader.join().unwrap();
        db.refresh_to(2);
        assert_eq!((db.closed.load(Ordering::SeqCst), db.retired.lock().unwrap().len()), (1, 0));
        db.close();
    });
}

#[test]
fn two_refreshes_at_once_swap_once() {
    loom::model(|| {
        let db = Arc::new(Db::new());
        let other = thread::spawn({
            let db = db.clone();
            move || db.refresh_to(2)
        });
        db.refresh_to(2);
        other.join().unwrap();
        assert_eq!((db.snapshot_number(), db.closed.load(Ordering::SeqCst)), (2, 1));
        db.close();
    });
}
