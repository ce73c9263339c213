//! What windows mean, in a few lines that know nothing of a log, and random views near the borders of windows.

use super::stage::Http;
use rand::Rng;
use rand::rngs::StdRng;
use std::collections::{BTreeMap, BTreeSet};

const HOUR_MS: u64 = 3_600_000;
/// 2100-01-01T00:00:00Z. An owner advances the time of an idle partition to that of its clock, which must not end these windows.
const FUTURE_MS: u64 = 4_102_444_800_000;
/// Rounds of a test, each with another owner, the steps of a round, and views of a step.
pub(crate) const ROUNDS: u64 = 4;
pub(crate) const STEPS: u64 = 10;
const VIEWS: usize = 40;

/// From when on the views of a step are: a border of the tumbling window. Six of them later a sliding one ends.
pub(crate) fn from_ms(round: u64, step: u64) -> u64 {
    FUTURE_MS + (STEPS * round + step) * HOUR_MS / 6
}

/// The namespaces into which a test writes each view, in each twice: a sliding window of an hour, and a tumbling one of ten minutes.
pub(crate) const NAMESPACES: [&str; 4] = ["default", "ten", "default", "ten"];

/// A view.
pub(crate) struct Viewed {
    pub(crate) partition: u16,
    /// It may be before that of an earlier view.
    pub(crate) at_ms: u64,
    /// The time of the partition, which does not go back.
    pub(crate) log_ms: u64,
    pub(crate) video: String,
    pub(crate) user: String,
}

/// When the window of each pair began, and the time of each partition.
#[derive(Default)]
pub(crate) struct Oracle {
    log_ms: BTreeMap<u16, u64>,
    began: BTreeMap<(String, String), u64>,
    tumbling: BTreeSet<(String, String, u64)>,
    /// Views in the sliding window, in the tumbling one, and page views, by video.
    counts: BTreeMap<String, [u64; 3]>,
}

impl Oracle {
    /// Takes views whose times are near the borders of windows of earlier ones, and returns them. There are two partitions.
    pub(crate) fn views(&mut self, random: &mut StdRng, from_ms: u64) -> Vec<Viewed> {
        let border_ms = [0, HOUR_MS / 6];
        let mut views = Vec::new();
        for _ in 0..VIEWS {
            let partition = random.random_range(0..2);
            let (video, user) =
                (format!("p{partition}-{}", random.random_range(0..3)), format!("u{}", random.random_range(0..9)));
            let at_ms = from_ms + border_ms[random.random_range(0..2)] + random.random_range(0..=2) - 1;
            self.take(partition, at_ms, &video, &user);
            let log_ms = self.take(partition, at_ms, &video, &user);
            views.push(Viewed { partition, at_ms, log_ms, video, user });
        }
        views
    }

    fn take(&mut self, partition: u16, at_ms: u64, video: &str, user: &str) -> u64 {
        let log_ms = self.log_ms.entry(partition).or_default();
        *log_ms = at_ms.max(*log_ms);
        let (at_ms, pair) = (*log_ms, (video.to_owned(), user.to_owned()));
        let counts = self.counts.entry(video.to_owned()).or_default();
        if self.began.get(&pair).is_none_or(|began| at_ms >= began + HOUR_MS) {
            self.began.insert(pair.clone(), at_ms);
            counts[0] += 1;
        }
        counts[1] += u64::from(self.tumbling.insert((pair.0, pair.1, at_ms / (HOUR_MS / 6))));
        counts[2] += 1;
        at_ms
    }

    /// Waits until every count is that of the oracle.
    pub(crate) async fn until_counted(&self, http: &Http) {
        for (video, [sliding, tumbling, page_views]) in &self.counts {
            for (namespace, expected) in [("default", sliding), ("ten", tumbling)] {
                let is_expected =
                    |counts: &serde_json::Value| counts["viewCount"] == *expected && counts["pageViews"] == *page_views;
                http.until(&format!("/{namespace}/v1/videos/{video}/views"), is_expected).await;
            }
        }
    }
}
