//! What an owner has in memory of its partition, and what the next commit adds.

use crate::config::ViewNamespace;
use crate::dedupe::{Pair, PairHasher, Pairs};
use crate::kind::{CounterNames, Kind, kinds_of};
use crate::log::{Commit, Deltas, Entry, PairsRecord, Partition};
use crate::metrics;
use crate::view::View;
use std::collections::HashMap;
use tallystone_link::StreamId;
use tallystone_model::Refusal;

/// The state of a partition: a function of its log up to the position.
pub(super) struct Counting {
    kinds_by_namespace: HashMap<String, Vec<Counted>>,
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

impl Counting {
    /// The state at the committed position: the pairs that are in the log.
    pub(super) async fn read(partition: &Partition, namespaces: &[ViewNamespace]) -> Result<Counting, Refusal> {
        let mut kinds_by_namespace = HashMap::new();
        for namespace in namespaces {
            let mut kinds = Vec::new();
            for kind in kinds_of(namespace) {
                let mut pairs = Pairs::new(&kind.window);
                let restore = |pair: &Pair, at_ms| {
                    pairs.is_first(pair, at_ms);
                };
                partition.pairs(&kind.pairs, restore).await?;
                let names = CounterNames::new(&kind.window);
                kinds.push(Counted { kind, pairs, names, sums: HashMap::new(), new_pairs: PairsRecord::default() });
            }
            kinds_by_namespace.insert(namespace.name.clone(), kinds);
        }
        Ok(Counting { kinds_by_namespace })
    }

    /// Takes entries of the log, the next after `from`, and returns what they add.
    pub(super) fn take(&mut self, hasher: &PairHasher, from: StreamId, entries: &[Entry]) -> Commit {
        let to = entries.last().map_or(from, |last| last.position);
        let mut views = 0;
        for entry in entries {
            let at_ms = entry.position.ms;
            self.kinds_by_namespace.values_mut().flatten().for_each(|counted| counted.pairs.advance(at_ms));
            let mut unread = &entry.views[..];
            while let Some((namespace, view)) = View::read(&mut unread) {
                views += 1;
                // A namespace that was removed from the configuration counts no more.
                let Some(kinds) = self.kinds_by_namespace.get_mut(namespace) else { continue };
                let pair = hasher.pair(&view.video, &view.user);
                kinds.iter_mut().for_each(|counted| counted.take(&view.video, &pair, at_ms));
            }
        }
        let (mut deltas, mut pairs) = (Deltas::new(), Vec::new());
        for counted in self.kinds_by_namespace.values_mut().flatten() {
            let Counted { kind, pairs: kept, sums, new_pairs, .. } = counted;
            deltas.extend(sums.drain().map(|(counter, sum)| ((kind.counters.clone(), counter), sum)));
            if kept.are_kept() {
                pairs.push((kind.pairs.clone(), kept.needed_from_ms(to.ms), std::mem::take(new_pairs)));
            }
        }
        metrics::deduplicated(views, &deltas);
        Commit { from, to, pairs, deltas }
    }

    /// The number of pairs, and their memory in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        let all = self.kinds_by_namespace.values().flatten().map(|counted| counted.pairs.size());
        all.fold((0, 0), |(pairs, bytes), (more_pairs, more_bytes)| (pairs + more_pairs, bytes + more_bytes))
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
