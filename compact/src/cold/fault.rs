//! Ranges of ids whose records are not those of the file: lost with a damaged page, or repaired since.

use super::FileId;
use crate::refusal::Damage;
use std::collections::BTreeMap;

/// Why the file is not read for a range of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The page with their records was damaged.
    Damaged {
        /// The file of the page. `None`: the damage came with a dump.
        origin: Option<FileId>,
        /// Its name.
        file: String,
        /// The number of the page.
        page: u32,
    },
    /// The overlay has their records. Ids without an entry are 0.
    Repaired,
}

impl Fault {
    /// The damage that a page of this file causes.
    pub(crate) fn of_page(file: FileId, name: &str, page: u32) -> Fault {
        Fault::Damaged { origin: Some(file), file: name.to_owned(), page }
    }

    /// Whether a page of this file has caused it.
    fn is_of(&self, file: FileId) -> bool {
        matches!(self, Fault::Damaged { origin, .. } if *origin == Some(file))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    last: u64,
    fault: Fault,
}

/// Ranges that do not overlap, by their first id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    ranges: BTreeMap<u64, Range>,
    /// How many of them are damaged.
    damaged: usize,
}

impl Faults {
    /// The range that an id is in: its first and last id, and why.
    pub(crate) fn at(&self, id: u64) -> Option<(u64, u64, &Fault)> {
        let (&first, range) = self.ranges.range(..=id).next_back()?;
        (range.last >= id).then_some((first, range.last, &range.fault))
    }

    /// The damage that an id is in.
    pub(crate) fn damage_at(&self, id: u64) -> Option<Damage> {
        let (first, last, fault) = self.at(id)?;
        to_damage(first, last, fault)
    }

    /// Adds a fault where the range has none.
    pub(crate) fn add(&mut self, first: u64, last: u64, fault: &Fault) {
        let mut from = first;
        loop {
            match self.at(from) {
                Some((_, covered, _)) => match covered.checked_add(1) {
                    Some(next) if next <= last => from = next,
                    _ => return,
                },
                None => {
                    let next = self.ranges.range(from..).next().map(|(&next, _)| next);
                    let to = next.map_or(last, |next| last.min(next - 1));
                    self.insert(from, Range { last: to, fault: fault.clone() });
                    if to == last {
                        return;
                    }
                    from = to + 1;
                }
            }
        }
    }

    /// Marks what is damaged in a range as repaired. Returns these parts.
    pub(crate) fn repair(&mut self, first: u64, last: u64) -> Vec<(u64, u64)> {
        let mut parts = Vec::new();
        let mut from = Some(first);
        while let Some((start, end)) = from.and_then(|from| self.damaged_from(from)).filter(|(start, _)| *start <= last)
        {
            let (part_first, part_last) = (start.max(first), end.min(last));
            let Some(range) = self.ranges.remove(&start) else { break };
            self.damaged -= 1;
            if start < part_first {
                self.insert(start, Range { last: part_first - 1, fault: range.fault.clone() });
            }
            if end > part_last {
                self.insert(part_last + 1, Range { last: end, fault: range.fault });
            }
            self.insert(part_first, Range { last: part_last, fault: Fault::Repaired });
            parts.push((part_first, part_last));
            from = part_last.checked_add(1);
        }
        parts
    }

    /// The damaged parts of a range of ids.
    pub(crate) fn parts(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let begin = self.at(first).map_or(first, |(begin, ..)| begin);
        let damaged = self.ranges.range(begin..=last).filter(|(_, range)| range.fault != Fault::Repaired);
        damaged.map(move |(&begin, range)| (begin.max(first), range.last.min(last)))
    }

    /// Adds a range where there is none.
    fn insert(&mut self, first: u64, range: Range) {
        self.damaged += usize::from(range.fault != Fault::Repaired);
        self.ranges.insert(first, range);
    }

    /// Keeps some of the ranges.
    fn retain(&mut self, keeps: impl Fn(u64, &Range) -> bool) {
        self.ranges.retain(|first, range| {
            let is_kept = keeps(*first, range);
            self.damaged -= usize::from(!is_kept && range.fault != Fault::Repaired);
            is_kept
        });
    }

    /// The first damaged range that ends at or after an id.
    fn damaged_from(&self, id: u64) -> Option<(u64, u64)> {
        let start = self.at(id).map_or(id, |(first, _, _)| first);
        let mut ranges = self.ranges.range(start..);
        ranges.find(|(_, range)| range.fault != Fault::Repaired).map(|(&first, range)| (first, range.last))
    }

    /// The first `most` faults in a range of ids, without those that pages of this file have caused.
    pub(crate) fn part(&self, first: u64, last: u64, file: FileId, most: usize) -> Faults {
        let mut part = Faults::default();
        let begin = self.at(first).map_or(first, |(begin, ..)| begin);
        let ranges = self.ranges.range(begin..=last).filter(|(_, range)| !range.fault.is_of(file));
        for (&begin, range) in ranges.take(most) {
            part.insert(begin, range.clone());
        }
        part
    }

    /// The faults without those that pages of this file have caused.
    pub(crate) fn without(&self, file: FileId) -> Faults {
        let mut faults = self.clone();
        faults.retain(|_, range| !range.fault.is_of(file));
        faults
    }

    /// Whether this page, which has these ids, has caused damage.
    pub(crate) fn has_page(&self, of: FileId, number: u32, first: u64, last: u64) -> bool {
        self.begins_of_page(of, number, first, last).next().is_some()
    }

    /// Forgets the damage that this page has caused, which has these ids.
    pub(crate) fn forget_page(&mut self, of: FileId, number: u32, first: u64, last: u64) {
        let begins: Vec<u64> = self.begins_of_page(of, number, first, last).collect();
        self.damaged -= begins.len();
        for begin in begins {
            self.ranges.remove(&begin);
        }
    }

    /// Where the ranges begin that this page, which has these ids, has damaged.
    fn begins_of_page(&self, of: FileId, number: u32, first: u64, last: u64) -> impl Iterator<Item = u64> + '_ {
        let is_its =
            move |fault: &Fault| matches!(fault, Fault::Damaged { page, .. } if fault.is_of(of) && *page == number);
        let ranges = self.ranges.range(first..=last).filter(move |(_, range)| is_its(&range.fault));
        ranges.map(|(&begin, _)| begin)
    }

    /// Forgets the repaired ranges that `earlier` has too.
    pub(crate) fn forget_repaired(&mut self, earlier: &Faults) {
        self.retain(|first, range| {
            range.fault != Fault::Repaired || earlier.ranges.get(&first).is_none_or(|before| before != range)
        });
    }

    /// Where the ranges begin that begin in a range of ids; with the damage, if it is some.
    pub(crate) fn begins(&self, first: u64, last: u64) -> impl Iterator<Item = (u64, Option<Damage>)> + '_ {
        self.ranges.range(first..=last).map(|(&first, range)| (first, to_damage(first, range.last, &range.fault)))
    }

    /// All damaged ranges that begin in a range of ids.
    #[cfg(test)]
    pub(crate) fn damaged(&self, first: u64, last: u64) -> impl Iterator<Item = Damage> + '_ {
        self.ranges.range(first..=last).filter_map(|(&first, range)| to_damage(first, range.last, &range.fault))
    }

    /// How many damaged ranges there are.
    pub(crate) fn damaged_len(&self) -> usize {
        self.damaged
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.ranges.len() * (size_of::<(u64, Range)>() + 64)
    }
}

fn to_damage(first: u64, last: u64, fault: &Fault) -> Option<Damage> {
    match fault {
        Fault::Damaged { file, page, .. } => Some(Damage { file: file.clone(), page: *page, first, last }),
        Fault::Repaired => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Add(u64, u64, u32),
        Repair(u64, u64),
        Without(u64),
    }

    fn ids() -> impl Strategy<Value = (u64, u64)> {
        let id = prop_oneof![0..30_u64, (u64::MAX - 30)..=u64::MAX];
        (id.clone(), id).prop_map(|(one, other)| (one.min(other), one.max(other)))
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (ids(), 0..9_u32).prop_map(|((first, last), page)| Step::Add(first, last, page)),
            ids().prop_map(|(first, last)| Step::Repair(first, last)),
            (0..9_u64).prop_map(Step::Without),
        ]
    }

    fn damaged(page: u32) -> Fault {
        Fault::Damaged { origin: Some(FileId(u64::from(page))), file: page.to_string(), page }
    }

    proptest! {
        #[test]
        fn w3_faults_are_a_map_of_ids(steps in prop::collection::vec(step(), 0..20)) {
            let ids: Vec<u64> = (0..30).chain((u64::MAX - 30)..=u64::MAX).collect();
            let (mut faults, mut plain) = (Faults::default(), BTreeMap::<u64, Fault>::new());
            for step in steps {
                match step {
                    Step::Add(first, last, page) => {
                        faults.add(first, last, &damaged(page));
                        for &id in ids.iter().filter(|id| (first..=last).contains(id)) {
                            plain.entry(id).or_insert_with(|| damaged(page));
                        }
                    }
                    Step::Repair(first, last) => {
                        let expected: Vec<_> = faults.parts(first, last).collect();
                        let parts = faults.repair(first, last);
                        prop_assert_eq!(&parts, &expected);
                        for &id in &ids {
                            let old = plain.get(&id).filter(|_| (first..=last).contains(&id));
                            let is_part = old.is_some_and(|old| *old != Fault::Repaired);
                            prop_assert_eq!(parts.iter().any(|part| (part.0..=part.1).contains(&id)), is_part);
                            if is_part {
                                plain.insert(id, Fault::Repaired);
                            }
                        }
                    }
                    Step::Without(file) => {
                        faults = faults.without(FileId(file));
                        plain.retain(|_, fault| *fault != damaged(file as u32));
                    }
                }
                for &id in &ids {
                    prop_assert_eq!(faults.at(id).map(|(_, _, fault)| fault), plain.get(&id), "{}", id);
                }
                let (part, file) = (faults.part(3, 20, FileId(1), usize::MAX), FileId(1));
                for id in 3..=20 {
                    let expected = plain.get(&id).filter(|fault| !fault.is_of(file));
                    prop_assert_eq!(part.at(id).map(|(_, _, fault)| fault), expected, "{}", id);
                }
                let ranges: Vec<_> = faults.ranges.iter().map(|(first, range)| (*first, range.last)).collect();
                prop_assert!(ranges.iter().all(|(first, last)| first <= last));
                prop_assert!(ranges.is_sorted_by(|one, next| one.1 < next.0));
                prop_assert_eq!(faults.damaged_len(), faults.damaged(0, u64::MAX).count());
            }
        }
    }
}
