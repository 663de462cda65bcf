//! A sparse array of values that are created at their first use and kept: a tree that grows with the slots in use.
//!
//! An array may have 2^60 shards but only seven files, so memory does not depend on the number of slots. References are
//! valid for the lifetime of the tree. A lookup takes no lock.

use std::sync::OnceLock;

const BITS: u32 = 8;
const FANOUT: usize = 1 << BITS;

pub(super) struct LazySlots<T> {
    /// Number of levels above the leaves.
    height: u32,
    root: SlotNode<T>,
}

enum SlotNode<T> {
    Inner(Box<[OnceLock<SlotNode<T>>]>),
    Leaf(Box<[OnceLock<T>]>),
}

impl<T> LazySlots<T> {
    /// Creates slots for the numbers below `len`.
    pub(super) fn new(len: u64) -> LazySlots<T> {
        let bits = u64::BITS - len.saturating_sub(1).leading_zeros();
        let height = bits.div_ceil(BITS).saturating_sub(1);
        LazySlots { height, root: SlotNode::new(height) }
    }

    /// Returns the value of a slot, creating it if the slot is empty. An error leaves the slot empty. `number` must be
    /// below the length of the tree.
    #[inline]
    pub(super) fn get_or_make<E>(&self, number: u64, make: impl FnOnce() -> Result<T, E>) -> Result<Option<&T>, E> {
        let (mut node, mut height) = (&self.root, self.height);
        loop {
            #[expect(clippy::cast_possible_truncation, reason = "only the low bits are used")]
            let at = (number >> (height * BITS)) as usize % FANOUT;
            match node {
                SlotNode::Inner(nodes) => {
                    let Some(slot) = nodes.get(at) else { return Ok(None) };
                    height -= 1;
                    node = slot.get_or_init(|| SlotNode::new(height));
                }
                SlotNode::Leaf(slots) => {
                    let Some(slot) = slots.get(at) else { return Ok(None) };
                    if let Some(made) = slot.get() {
                        return Ok(Some(made));
                    }
                    let made = make()?;
                    return Ok(Some(slot.get_or_init(|| made)));
                }
            }
        }
    }
}

impl<T> SlotNode<T> {
    fn new(height: u32) -> SlotNode<T> {
        match height {
            0 => SlotNode::Leaf((0..FANOUT).map(|_| OnceLock::new()).collect()),
            _ => SlotNode::Inner((0..FANOUT).map(|_| OnceLock::new()).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_was_made_under_its_number() {
        for len in [0, 1, 256, 257, 70_000, u64::MAX] {
            let slots = LazySlots::new(len);
            for number in [0, 1, 255, 256, 69_999, u64::MAX / 3, u64::MAX - 1].into_iter().filter(|it| *it < len) {
                assert_eq!(slots.get_or_make(number, || Err(())), Err(()), "not there yet");
                assert_eq!(slots.get_or_make(number, || Ok::<_, ()>(number)), Ok(Some(&number)));
                assert_eq!(slots.get_or_make(number, || Ok::<_, ()>(7)), Ok(Some(&number)), "made once");
            }
        }
    }
}
