//! Groups of engines that are open at the same time: one group of all if they fit into memory.

use crate::data::DataSet;
use crate::engine::Peer;
use crate::engines::REFERENCE;

/// Divides the engines into groups that fit into `memory` bytes, each with the reference. An engine that does not fit
/// even alone with the reference still gets a group.
pub fn groups<'a>(peers: &[&'a Peer], data: &DataSet, memory: u64) -> Vec<Vec<&'a Peer>> {
    let needs = |peer: &Peer| data.keys * (peer.memory)(data.value_bytes() / data.keys);
    let (reference, others): (Vec<&Peer>, Vec<&Peer>) = peers.iter().partition(|peer| peer.name == REFERENCE);
    let of_reference: u64 = reference.iter().map(|peer| needs(peer)).sum();
    let mut groups = vec![reference.clone()];
    let (mut taken, mut alone) = (of_reference, true);
    for peer in others {
        let needed = needs(peer);
        if !alone && taken + needed > memory {
            groups.push(reference.clone());
            taken = of_reference;
        }
        groups.last_mut().into_iter().for_each(|group| group.push(peer));
        taken += needed;
        alone = false;
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::PEERS;

    fn names(set: &str, gib: u64) -> Vec<Vec<&'static str>> {
        let peers: Vec<_> = PEERS.iter().collect();
        let groups = groups(&peers, &set.parse().unwrap(), gib << 30);
        groups.iter().map(|group| group.iter().map(|peer| peer.name).collect()).collect()
    }

    #[test]
    fn all_are_together_where_that_fits() {
        assert_eq!(names("1Mx100", 12).len(), 1);
        assert_eq!(names("1Mx100", 12)[0].len(), PEERS.len());
    }

    #[test]
    fn every_group_has_the_reference_and_everyone_is_in_one() {
        let groups = names("1Mx4096", 16);
        assert!(groups.len() > 1);
        assert!(groups.iter().all(|group| group.contains(&REFERENCE) && group.len() > 1));
        assert_eq!(groups.iter().map(|group| group.len() - 1).sum::<usize>(), PEERS.len() - 1);
    }
}
