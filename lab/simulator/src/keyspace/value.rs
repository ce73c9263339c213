//! The values of keys, as Redis has them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

/// A string that keys, members and snapshots share.
pub(crate) type Bytes = Arc<[u8]>;

/// The score of a member. Never NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Score(f64);

impl Score {
    pub(crate) fn new(score: f64) -> Score {
        // -0 is 0.
        Score(score + 0.0)
    }

    pub(crate) fn number(self) -> f64 {
        self.0
    }
}

impl PartialEq for Score {
    fn eq(&self, other: &Score) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Score) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Score) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// A sorted set.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sorted {
    scores: BTreeMap<Bytes, Score>,
    order: BTreeSet<(Score, Bytes)>,
}

impl Sorted {
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).map(|score| score.number())
    }

    /// Gives the member a score, or removes it. Returns the score that it had.
    pub(crate) fn put(&mut self, member: &Bytes, score: Option<f64>) -> Option<f64> {
        let before = match score {
            Some(score) => self.scores.insert(member.clone(), Score::new(score)),
            None => self.scores.remove(member),
        };
        if let Some(before) = before {
            self.order.remove(&(before, member.clone()));
        }
        if let Some(score) = score {
            self.order.insert((Score::new(score), member.clone()));
        }
        before.map(Score::number)
    }

    /// The members by score, then by their bytes.
    pub(crate) fn ordered(&self) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        self.order.iter().map(|(score, member)| (member, score.number()))
    }

    /// The members from this score and these bytes on.
    pub(crate) fn ordered_from<'a>(
        &'a self,
        score: f64,
        member: &[u8],
    ) -> impl DoubleEndedIterator<Item = (&'a Bytes, f64)> + use<'a> {
        let from = (Score::new(score), Bytes::from(member));
        self.order.range((Bound::Included(from), Bound::Unbounded)).map(|(score, member)| (member, score.number()))
    }

    /// The position of a member.
    pub(crate) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = *self.scores.get(member)?;
        let to = (score, Bytes::from(member));
        Some(self.order.range(..to).count())
    }
}

/// The id of a stream's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId {
    pub(crate) ms: u64,
    pub(crate) number: u64,
}

impl StreamId {
    /// The latest id there is.
    pub(crate) const MAX: StreamId = StreamId { ms: u64::MAX, number: u64::MAX };

    pub(crate) fn text(self) -> String {
        format!("{}-{}", self.ms, self.number)
    }
}

/// A stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Stream {
    /// Ids with their names and values.
    pub(crate) entries: VecDeque<(StreamId, Arc<Vec<Bytes>>)>,
    pub(crate) last: StreamId,
    pub(crate) added: u64,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Data {
    Text(Bytes),
    Hash(BTreeMap<Bytes, Bytes>),
    Sorted(Sorted),
    Set(BTreeSet<Bytes>),
    List(VecDeque<Bytes>),
    Stream(Stream),
}

impl Data {
    /// As TYPE answers.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Data::Text(_) => "string",
            Data::Hash(_) => "hash",
            Data::Sorted(_) => "zset",
            Data::Set(_) => "set",
            Data::List(_) => "list",
            Data::Stream(_) => "stream",
        }
    }

    /// Redis removes a key whose value has become empty, except a string or a stream.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Data::Text(_) | Data::Stream(_) => false,
            Data::Hash(hash) => hash.is_empty(),
            Data::Sorted(sorted) => sorted.len() == 0,
            Data::Set(set) => set.is_empty(),
            Data::List(list) => list.is_empty(),
        }
    }
}

/// A key's value, and when it expires: Unix ms.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) data: Data,
    pub(crate) expires_ms: Option<u64>,
}

impl Entry {
    pub(crate) fn new(data: Data) -> Entry {
        Entry { data, expires_ms: None }
    }
}
