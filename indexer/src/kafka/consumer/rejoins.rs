//! How often an indexer joins its group again after Kafka has fenced its name.

use std::time::Duration;
use tokio::time::Instant;

/// A second indexer of the same name fences this one again within seconds.
const WINDOW: Duration = Duration::from_secs(60);
const REJOINS_MAX: usize = 2;

/// The times of the latest rejoins.
///
/// A broker that was killed may come back with an earlier member of a name than the one that lives: it then fences the
/// living one, though no other indexer has its name. To join again settles that. Two indexers of one name fence each
/// other whenever one of them joins; one of them gives up after a few times.
#[derive(Default)]
pub(super) struct Rejoins(Vec<Instant>);

impl Rejoins {
    /// Whether the indexer, which was fenced just now, may join again.
    pub(super) fn may_rejoin(&mut self) -> bool {
        let now = Instant::now();
        self.0.retain(|at| now - *at < WINDOW);
        self.0.push(now);
        self.0.len() <= REJOINS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn q19_an_indexer_joins_again_twice_a_minute() {
        let mut rejoins = Rejoins::default();
        assert_eq!([rejoins.may_rejoin(), rejoins.may_rejoin(), rejoins.may_rejoin()], [true, true, false]);
        tokio::time::advance(WINDOW).await;
        assert!(rejoins.may_rejoin());
    }
}
