//! Which key has an id.

use super::reply::ids_per_reply;
use std::collections::BTreeMap;

/// The partition of an id, from 0 to `partitions` - 1. It never changes for this number of partitions: clients in other languages
/// compute the same by the finalizer of MurmurHash3, whose 64 bits are multiplied by the number of partitions and divided by 2^64.
///
/// # Panics
/// If there are no partitions.
pub fn partition(partitions: u32, id: u64) -> u32 {
    assert!(partitions > 0, "there is at least one partition");
    let mut hash = id;
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^= hash >> 33;
    ((u128::from(hash) * u128::from(partitions)) >> 64) as u32
}

/// The key that has an id: `NAME:{PARTITION}`. The braces make the partition the hash tag, so that keys of several sets with the same
/// number of partitions are on one node of a Redis Cluster.
///
/// # Panics
/// If there are no partitions.
pub fn key(name: &str, partitions: u32, id: u64) -> String {
    key_of(name, partition(partitions, id))
}

/// The key of a partition.
pub fn key_of(name: &str, partition: u32) -> String {
    format!("{name}:{{{partition}}}")
}

/// Ids that one command can carry: they have one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The key.
    pub key: String,
    /// The ids, in the order in which they were given.
    pub ids: Vec<u64>,
    /// The place of each id among those that were given.
    pub places: Vec<usize>,
}

/// Groups ids by their key. `fields`: how many fields the schema has, retired ones excepted; a group has at most so many ids that
/// `CT.PGET` takes all of them ([`ids_per_reply`]), and so do the commands that write one increment or value for each.
///
/// # Panics
/// If there are no partitions.
pub fn group(name: &str, partitions: u32, fields: usize, ids: &[u64]) -> Vec<Group> {
    let mut places: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (place, id) in ids.iter().enumerate() {
        places.entry(partition(partitions, *id)).or_default().push(place);
    }
    let group = |partition: u32, places: &[usize]| Group {
        key: key_of(name, partition),
        ids: places.iter().map(|place| ids[*place]).collect(),
        places: places.to_vec(),
    };
    let most = ids_per_reply(fields);
    places.iter().flat_map(|(partition, places)| places.chunks(most).map(|some| group(*partition, some))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w4_partitions_are_stable_and_even() {
        // What clients in other languages compute, too.
        let known = [(0, 0), (1, 721), (42, 516), (u64::MAX, 402)];
        for (id, expected) in known {
            assert_eq!(partition(1_024, id), expected, "id {id}");
        }
        let mut counts = vec![0_u32; 16];
        (0..160_000).for_each(|id| counts[partition(16, id) as usize] += 1);
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!((partition(1, u64::MAX), key_of("a", 7).as_str()), (0, "a:{7}"));
    }

    #[test]
    fn w4_groups_have_all_ids_once_with_their_places() {
        let ids: Vec<u64> = (0..50_000).map(|n| n * 7 % 30_000).collect();
        for (fields, most) in [(1, 512), (4, 512), (8, 512), (9, 455), (20, 204), (256, 16)] {
            let groups = group("posts", 3, fields, &ids);
            let mut seen = vec![false; ids.len()];
            assert!(groups.iter().any(|group| group.ids.len() == most), "{fields} fields");
            for group in &groups {
                assert!(group.ids.len() <= most && group.ids.len() == group.places.len());
                for (id, place) in group.ids.iter().zip(&group.places) {
                    assert_eq!((ids[*place], key("posts", 3, *id)), (*id, group.key.clone()));
                    assert!(!std::mem::replace(&mut seen[*place], true));
                }
            }
            assert!(seen.into_iter().all(|seen| seen));
        }
    }
}
