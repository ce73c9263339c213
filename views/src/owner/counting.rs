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
                kinds.push(Counted { names: CounterNames::new(&kind.window), pairs, kind });
            }
            kinds_by_namespace.insert(namespace.name.clone(), kinds);
        }
        Ok(Counting { kinds_by_namespace })
    }

    /// Takes entries of the log, the next after `from`, and returns what they add.
    pub(super) fn take(&mut self, hasher: &PairHasher, from: StreamId, entries: &[Entry]) -> Commit {
        let to = entries.last().map_or(from, |last| last.position);
        let (mut deltas, mut views) = (Deltas::new(), 0);
        let mut written: HashMap<String, PairsRecord> = HashMap::new();
        for entry in entries {
            let at_ms = entry.position.ms;
            let mut unread = &entry.views[..];
            while let Some((namespace, view)) = View::read(&mut unread) {
                views += 1;
                // A namespace that was removed from the configuration counts no more.
                let Some(kinds) = self.kinds_by_namespace.get_mut(namespace) else { continue };
                let pair = hasher.pair(&view.video, &view.user);
                for Counted { kind, pairs, names } in kinds {
                    if !pairs.is_first(&pair, at_ms) {
                        continue;
                    }
                    let counter = names.name(&view.video, at_ms);
                    *deltas.entry((kind.counters.clone(), counter)).or_default() += 1;
                    if pairs.are_kept() {
                        written.entry(kind.pairs.clone()).or_default().push(&pair, at_ms);
                    }
                }
            }
        }
        metrics::deduplicated(views, &deltas);
        let kept = self.kinds_by_namespace.values().flatten().filter(|counted| counted.pairs.are_kept());
        let pairs = kept.map(|Counted { kind, pairs, .. }| {
            let new = written.remove(&kind.pairs).unwrap_or_default();
            (kind.pairs.clone(), pairs.needed_from_ms(to.ms), new)
        });
        Commit { from, to, pairs: pairs.collect(), deltas }
    }

    /// The number of pairs, and their memory in bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        let all = self.kinds_by_namespace.values().flatten().map(|counted| counted.pairs.size());
        all.fold((0, 0), |(pairs, bytes), (more_pairs, more_bytes)| (pairs + more_pairs, bytes + more_bytes))
    }
}
