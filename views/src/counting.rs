//! What a process has in memory of a partition that it deduplicates, and what the next commit adds.

use crate::config::ViewNamespace;
use crate::dedupe::{Pair, PairHasher, Pairs};
use crate::kind::{CounterNames, Kind, kinds_of};
use crate::log::{Deltas, PairsRecord};
use crate::metrics;
use crate::view::View;
use std::collections::HashMap;

/// The state of a partition: a function of its log up to the position.
pub(crate) struct Counting {
    kinds_by_namespace: HashMap<String, Vec<Counted>>,
    /// Views since the last commit.
    views: u64,
}

/// One kind of one namespace.
struct Counted {
    kind: Kind,
    pairs: Pairs,
    names: CounterNames,
    /// What the next commit adds, by counter, and the new pairs.
    sums: HashMap<String, u32>,
    new_pairs: PairsRecord,
}

/// What a commit writes.
pub(crate) struct Taken {
    /// What to add.
    pub(crate) deltas: Deltas,
    /// Of each kind with a window: the name of its pairs, from which time on they are needed (Unix ms), and new ones.
    pub(crate) pairs: Vec<(String, u64, PairsRecord)>,
}

impl Counting {
    /// The state of a log without views.
    pub(crate) fn new(namespaces: &[ViewNamespace]) -> Counting {
        let counted = |kind: Kind| {
            let (pairs, names) = (Pairs::new(&kind.window), CounterNames::new(&kind.window));
            Counted { kind, pairs, names, sums: HashMap::new(), new_pairs: PairsRecord::default() }
        };
        let kinds = |namespace: &ViewNamespace| {
            (namespace.name.clone(), kinds_of(namespace).into_iter().map(counted).collect::<Vec<_>>())
        };
        Counting { kinds_by_namespace: namespaces.iter().map(kinds).collect(), views: 0 }
    }

    /// The names of all pairs that are kept.
    pub(crate) fn pair_names(&self) -> Vec<String> {
        let kept = self.kinds_by_namespace.values().flatten().filter(|counted| counted.pairs.are_kept());
        kept.map(|counted| counted.kind.pairs.clone()).collect()
    }

    /// Where the pairs of this name are restored, in the order of their times; `None`: the configuration has no such pairs.
    pub(crate) fn restored(&mut self, name: &str) -> Option<impl FnMut(&Pair, u64)> {
        let counted = self.kinds_by_namespace.values_mut().flatten().find(|counted| counted.kind.pairs == name)?;
        Some(|pair: &Pair, at_ms| {
            counted.pairs.is_first(pair, at_ms);
        })
    }

    /// Takes views that all have this time (Unix ms), which is not before that of earlier ones.
    pub(crate) fn take(&mut self, hasher: &PairHasher, at_ms: u64, views: &[u8]) {
        self.kinds_by_namespace.values_mut().flatten().for_each(|counted| counted.pairs.advance(at_ms));
        let mut unread = views;
        while let Some((namespace, view)) = View::read(&mut unread) {
            self.views += 1;
            // A namespace that was removed from the configuration counts no more.
            let Some(kinds) = self.kinds_by_namespace.get_mut(namespace) else { continue };
            let pair = hasher.pair(&view.video, &view.user);
            kinds.iter_mut().for_each(|counted| counted.take(&view.video, &pair, at_ms));
        }
    }

    /// What views have added since the last commit; `at_ms` is the time of the last one.
    pub(crate) fn commit(&mut self, at_ms: u64) -> Taken {
        let (mut deltas, mut pairs) = (Deltas::new(), Vec::new());
        for counted in self.kinds_by_namespace.values_mut().flatten() {
            let Counted { kind, pairs: kept, sums, new_pairs, .. } = counted;
            deltas.extend(sums.drain().map(|(counter, sum)| ((kind.counters.clone(), counter), sum)));
            if kept.are_kept() {
                pairs.push((kind.pairs.clone(), kept.needed_from_ms(at_ms), std::mem::take(new_pairs)));
            }
        }
        metrics::deduplicated(std::mem::take(&mut self.views), &deltas);
        Taken { deltas, pairs }
    }

    /// Pairs that counted before this time (Unix ms) are of no more use to views from `at_ms` on.
    pub(crate) fn needed_from_ms(&self, at_ms: u64) -> u64 {
        let all = self.kinds_by_namespace.values().flatten().map(|counted| counted.pairs.needed_from_ms(at_ms));
        all.min().unwrap_or(at_ms)
    }

    /// The number of pairs, and their memory in bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        let all = self.kinds_by_namespace.values().flatten().map(|counted| counted.pairs.size());
        all.fold((0, 0), |(pairs, bytes), (more_pairs, more_bytes)| (pairs + more_pairs, bytes + more_bytes))
    }

    /// The bytes of the largest record of new pairs that the next commit writes.
    pub(crate) fn new_bytes(&self) -> usize {
        self.kinds_by_namespace
            .values()
            .flatten()
            .map(|counted| counted.new_pairs.bytes().len())
            .max()
            .unwrap_or_default()
    }
}

impl Counted {
    /// Takes a view.
    fn take(&mut self, video: &str, pair: &Pair, at_ms: u64) {
        if !self.pairs.is_first(pair, at_ms) {
            return;
        }
        let counter = self.names.name(video, at_ms);
        // Most views are of a video that the commit has already: only the others get a new name.
        match self.sums.get_mut(counter) {
            Some(sum) => *sum += 1,
            None => drop(self.sums.insert(counter.to_owned(), 1)),
        }
        if self.pairs.are_kept() {
            self.new_pairs.push(pair, at_ms);
        }
    }
}
