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

/// The first and the longest time between two rejoins for silence.
const SILENCE_MIN: Duration = Duration::from_secs(60);
const SILENCE_MAX: Duration = Duration::from_secs(600);

/// When the indexer may join its group again because it reads nothing. Perhaps nothing is written, so it waits longer
/// each time.
#[derive(Default)]
pub(super) struct SilenceRejoins(Option<(Instant, Duration)>);

impl SilenceRejoins {
    /// Whether the indexer, which reads nothing, may join again now.
    pub(super) fn may_rejoin(&mut self) -> bool {
        let wait = match self.0 {
            Some((at, wait)) if at.elapsed() < wait => return false,
            // The last one was long ago: this is another silence.
            Some((at, wait)) if at.elapsed() < 2 * wait + SILENCE_MAX => (2 * wait).min(SILENCE_MAX),
            _ => SILENCE_MIN,
        };
        self.0 = Some((Instant::now(), wait));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn q19_a_silent_indexer_joins_again_at_growing_intervals() {
        let mut rejoins = SilenceRejoins::default();
        assert!(rejoins.may_rejoin() && !rejoins.may_rejoin());
        for wait_s in [60, 120, 240, 480, 600, 600] {
            tokio::time::advance(Duration::from_secs(wait_s - 1)).await;
            assert!(!rejoins.may_rejoin(), "{wait_s}");
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(rejoins.may_rejoin(), "{wait_s}");
        }
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!(rejoins.may_rejoin());
        tokio::time::advance(SILENCE_MIN).await;
        assert!(rejoins.may_rejoin(), "another silence begins with short intervals");
    }

    #[tokio::test(start_paused = true)]
    async fn q19_an_indexer_joins_again_twice_a_minute() {
        let mut rejoins = Rejoins::default();
        assert_eq!([rejoins.may_rejoin(), rejoins.may_rejoin(), rejoins.may_rejoin()], [true, true, false]);
        tokio::time::advance(WINDOW).await;
        assert!(rejoins.may_rejoin());
    }
}
