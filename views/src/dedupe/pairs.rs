//! Which pairs have counted, in one window of one partition. Times come from the log, and never go back: so this state is
//! a function of the log's prefix alone.

use super::hash::Pair;
use super::sliding::Sliding;
use super::slot::REST_BYTES;
use super::table::PairTable;
use super::window::{Window, day_at};

/// The pairs of one window.
pub(crate) struct Pairs {
    kept: Kept,
}

enum Kept {
    /// There is no window.
    None,
    /// All pairs have windows with the same end.
    Together { window: Window, begin_ms: u64, end_ms: u64, table: PairTable<REST_BYTES> },
    /// Each pair has its own window.
    Sliding(Sliding),
}

impl Pairs {
    /// No pair has counted.
    pub(crate) fn new(window: &Window) -> Pairs {
        let kept = match window {
            Window::None => Kept::None,
            Window::Sliding(window_ms) => Kept::Sliding(Sliding::new(*window_ms)),
            Window::Tumbling(_) | Window::Day(_) => {
                Kept::Together { window: window.clone(), begin_ms: 0, end_ms: 0, table: PairTable::new() }
            }
        };
        Pairs { kept }
    }

    /// Drops pairs that are of no use to views from this time (Unix ms) on.
    pub(crate) fn advance(&mut self, at_ms: u64) {
        match &mut self.kept {
            Kept::None => {}
            Kept::Together { window, begin_ms, end_ms, table } => {
                if at_ms >= *end_ms {
                    (*begin_ms, *end_ms) = bounds(window, at_ms);
                    *table = PairTable::new();
                }
            }
            Kept::Sliding(sliding) => sliding.advance(at_ms),
        }
    }

    /// Takes a view of this time (Unix ms), and returns whether it is the first in its window.
    pub(crate) fn is_first(&mut self, pair: &Pair, at_ms: u64) -> bool {
        self.advance(at_ms);
        match &mut self.kept {
            Kept::None => true,
            Kept::Together { table, .. } => table.insert(pair, 0),
            Kept::Sliding(sliding) => sliding.is_first(pair, at_ms),
        }
    }

    /// Pairs that counted before this time are of no more use to views from `at_ms` on.
    pub(crate) fn needed_from_ms(&self, at_ms: u64) -> u64 {
        match &self.kept {
            Kept::None => at_ms,
            Kept::Together { begin_ms, end_ms, .. } => {
                if at_ms < *end_ms {
                    *begin_ms
                } else {
                    at_ms
                }
            }
            Kept::Sliding(sliding) => sliding.needed_from_ms(at_ms),
        }
    }

    /// Whether views have to remember their pairs.
    pub(crate) fn are_kept(&self) -> bool {
        !matches!(self.kept, Kept::None)
    }

    /// The number of pairs, and the memory that they take in bytes.
    pub(crate) fn size(&self) -> (usize, usize) {
        match &self.kept {
            Kept::None => (0, 0),
            Kept::Together { table, .. } => (table.len(), table.bytes()),
            Kept::Sliding(sliding) => sliding.size(),
        }
    }
}

/// The first ms of the window, and the first after it.
fn bounds(window: &Window, at_ms: u64) -> (u64, u64) {
    match window {
        Window::Tumbling(window_ms) => {
            let begin_ms = at_ms - at_ms % window_ms;
            (begin_ms, begin_ms + window_ms)
        }
        Window::Day(zone) => {
            let (_, first_ms, last_ms) = day_at(zone, at_ms);
            (first_ms, last_ms + 1)
        }
        Window::None | Window::Sliding(_) => (at_ms, at_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::FEW_MAX;
    use super::*;
    use crate::dedupe::hash::PairHasher;
    use jiff::tz::TimeZone;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use std::collections::HashMap;

    /// What the window means, without any care for memory: when the window of each pair began.
    struct Oracle {
        window: Window,
        began: HashMap<Pair, u64>,
    }

    impl Oracle {
        fn is_first(&mut self, pair: Pair, at_ms: u64) -> bool {
            let is_in = |began: u64| match &self.window {
                Window::None => false,
                Window::Tumbling(window_ms) => began / window_ms == at_ms / window_ms,
                Window::Sliding(window_ms) => at_ms < began + window_ms,
                Window::Day(zone) => day_at(zone, began).0 == day_at(zone, at_ms).0,
            };
            if self.began.get(&pair).is_some_and(|began| is_in(*began)) {
                return false;
            }
            self.began.insert(pair, at_ms);
            true
        }
    }

    fn windows() -> [Window; 6] {
        let zone = TimeZone::get("America/New_York").unwrap();
        [
            Window::None,
            Window::Tumbling(600_000),
            Window::Sliding(3_600_000),
            Window::Sliding(1_000),
            Window::Sliding(SLIDING),
            Window::Day(zone),
        ]
    }
    const SLIDING: u64 = super::super::window::SLIDING_MS_MAX;

    #[test]
    fn v2_v6_every_window_decides_as_the_oracle_does() {
        let seed: u64 = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let hasher = PairHasher::new(&[3; 32]);
        for window in windows() {
            for step_ms_max in [3, 400, 90_000, 9_000_000] {
                let mut oracle = Oracle { window: window.clone(), began: HashMap::new() };
                let (mut pairs, mut at_ms) = (Pairs::new(&window), 1_790_000_000_000_u64);
                // What a process writes, and another one reads when it takes the partition over.
                let mut written = Vec::new();
                for view in 0..4_000 {
                    at_ms += random.random_range(0..=step_ms_max);
                    let pair = hasher.pair("v", &random.random_range(0..200).to_string());
                    let expected = oracle.is_first(pair, at_ms);
                    assert_eq!(pairs.is_first(&pair, at_ms), expected, "seed {seed} {window:?} view {view}");
                    written.extend(expected.then_some((pair, at_ms)));
                    if random.random_ratio(1, 500) {
                        let needed_from_ms = pairs.needed_from_ms(at_ms);
                        written.retain(|(_, at_ms)| *at_ms >= needed_from_ms);
                        pairs = Pairs::new(&window);
                        written.iter().for_each(|(pair, at_ms)| assert!(pairs.is_first(pair, *at_ms)));
                    }
                }
            }
        }
    }

    #[test]
    fn v2_a_sliding_window_with_sealed_generations_and_filters_decides_as_the_oracle_does() {
        let seed: u64 = rand::rng().random();
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let window = Window::Sliding(6_000);
        let pair_of = |number: u32| {
            let mut pair = [0; 12];
            // Spread as a hash is.
            let (high, low) = (u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15), number.wrapping_mul(0x85eb_ca6b));
            pair[..4].copy_from_slice(&low.to_be_bytes());
            pair[4..].copy_from_slice(&high.to_le_bytes());
            pair
        };
        // Without a takeover, and with one every 59,999 views.
        for restart_every in [u32::MAX, 59_999] {
            let mut oracle = Oracle { window: window.clone(), began: HashMap::new() };
            let (mut pairs, mut at_ms) = (Pairs::new(&window), 1_790_000_000_000_u64);
            // The pairs that one process writes and the next one reads.
            let (mut written, mut most_full) = (Vec::new(), 0_usize);
            // Some 12,000 new pairs for each generation; later pauses, after which generations are missing, and bursts.
            for view in 0..400_000_u32 {
                at_ms += u64::from(random.random_ratio(1, 16));
                if view > 150_000 && random.random_ratio(1, 25_000) {
                    at_ms += random.random_range(500..9_000);
                }
                if view > 150_000 && random.random_ratio(1, 60_000) {
                    at_ms -= at_ms % 1_000;
                    at_ms += 1_000;
                }
                let back = if random.random() { random.random_range(0..120_000) } else { 0 };
                let pair = pair_of(view.saturating_sub(back) + 1);
                let (is_first, expected) = (pairs.is_first(&pair, at_ms), oracle.is_first(pair, at_ms));
                assert_eq!(is_first, expected, "seed {seed} view {view}, restarts every {restart_every} views");
                written.extend(expected.then_some((pair, at_ms)));
                if view % restart_every == restart_every - 1 {
                    let needed_from_ms = pairs.needed_from_ms(at_ms);
                    written.retain(|(_, at_ms)| *at_ms >= needed_from_ms);
                    pairs = Pairs::new(&window);
                    written.iter().for_each(|(pair, at_ms)| assert!(pairs.is_first(pair, *at_ms), "seed {seed}"));
                    let parts = written.chunk_by(|(_, first_ms), (_, next_ms)| first_ms / 1_000 == next_ms / 1_000);
                    most_full = most_full.max(parts.filter(|part| part.len() > FEW_MAX).count());
                }
            }
            // Of four full generations, three are sealed, and the fourth one has a filter.
            assert!(restart_every == u32::MAX || most_full > 3, "seed {seed}: at most {most_full} full generations");
        }
    }

    /// Resident memory of this process, in bytes.
    #[cfg(target_os = "linux")]
    fn resident_bytes() -> f64 {
        let pages = std::fs::read_to_string("/proc/self/statm").expect("a file of Linux");
        let pages = pages.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok());
        pages.expect("a number") * 4_096.0
    }

    /// In a process without other tests.
    #[cfg(target_os = "linux")]
    #[test]
    fn v2_a_pair_of_a_full_window_takes_at_most_18_bytes_of_resident_memory() {
        /// Each ms has so many new pairs.
        const RATE: u64 = 300;
        const ALONE: &str = "TALLYSTONE_TEST_ALONE";
        if std::env::var_os(ALONE).is_none() {
            let (_, module) = module_path!().split_once("::").expect("a module");
            let test = format!("{module}::v2_a_pair_of_a_full_window_takes_at_most_18_bytes_of_resident_memory");
            let program = std::env::current_exe().expect("a program");
            let alone =
                std::process::Command::new(program).args(["--exact", &test, "--nocapture"]).env(ALONE, "1").output();
            let alone = alone.expect("a process");
            assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stderr));
            println!("{}", String::from_utf8_lossy(&alone.stdout));
            return;
        }
        let before = resident_bytes();
        let mut pairs = Pairs::new(&Window::Sliding(6_000));
        let mut random = StdRng::seed_from_u64(7);
        for view in 0..RATE * 9_500 {
            assert!(pairs.is_first(&random.random(), 1_790_000_000_000 + view / RATE));
        }
        let (len, bytes) = pairs.size();
        let (tables, resident) = (bytes as f64 / len as f64, (resident_bytes() - before) / len as f64);
        println!("{len} pairs: {tables:.2} bytes of tables and filters, {resident:.2} resident");
        assert!(len > 1_900_000 && tables <= 17.5, "{tables} for each of {len}");
        assert!(resident <= 18.0, "{resident}");
    }

    #[test]
    fn v2_pairs_leave_the_memory_when_the_time_of_the_log_has_passed_their_windows() {
        for window in windows().into_iter().filter(|window| *window != Window::None) {
            let (mut pairs, at_ms) = (Pairs::new(&window), 1_790_000_000_000);
            assert!(pairs.is_first(&PairHasher::new(&[3; 32]).pair("v", "u"), at_ms));
            pairs.advance(at_ms);
            assert_eq!(pairs.size().0, 1, "{window:?}");
            pairs.advance(at_ms + 2 * SLIDING);
            assert_eq!(pairs.size(), (0, 0), "{window:?}");
        }
    }

    #[test]
    fn v2_the_borders_of_windows_are_exact_to_a_millisecond() {
        let pair = PairHasher::new(&[3; 32]).pair("v", "u");
        let at = 1_790_000_000_000 - 1_790_000_000_000 % 600_000;
        let mut tumbling = Pairs::new(&Window::Tumbling(600_000));
        let first = [at + 1, at + 599_999, at + 600_000].map(|at_ms| tumbling.is_first(&pair, at_ms));
        assert_eq!(first, [true, false, true]);
        let mut sliding = Pairs::new(&Window::Sliding(3_600_000));
        let times = [at + 1, at + 3_600_000, at + 3_600_001, at + 7_200_000, at + 7_200_001];
        assert_eq!(times.map(|at_ms| sliding.is_first(&pair, at_ms)), [true, false, true, false, true]);
    }
}
