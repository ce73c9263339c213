//! The end of the engine's rehash: while its dictionary of keys grows, each search of a key visits two tables.

use super::engine::Engine;
use anyhow::{Result, bail};
use std::time::Duration;

/// How often the engine is polled, and how many times at most.
const POLL: Duration = Duration::from_millis(200);
const POLLS_MAX: u32 = 600;
/// The engine rehashes for 1 ms at each of its ticks: 10 a second as it starts, 500 at most.
const TICKS: u32 = 10;
const TICKS_MAX: u32 = 500;

/// Waits until the engine says that it moves no keys.
pub(super) async fn ended(engine: &Engine) -> Result<()> {
    let ticks = async |count: u32| engine.command::<()>(&format!("CONFIG SET hz {count}")).await;
    ticks(TICKS_MAX).await?;
    for _ in 0..POLLS_MAX {
        if !is_under_way(&engine.command::<String>("DEBUG HTSTATS 0").await?) {
            return ticks(TICKS).await;
        }
        tokio::time::sleep(POLL).await;
    }
    bail!("the engine does not end its rehash")
}

/// Whether a dictionary is being rehashed, by what Redis or Valkey says of its hash tables.
fn is_under_way(stats: &str) -> bool {
    let moves = |line: &str| match line.trim().strip_prefix("rehashing index: ") {
        Some(index) => index != "-1",
        None => line.contains("(rehashing target)"),
    };
    stats.lines().any(moves)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w1_a_rehash_is_seen_in_what_the_engines_say() {
        let redis = "[Dictionary HT]\nHash table 0 stats (main hash table):\n table size: 1048576\n[Expires HT]\n";
        let valkey =
            |index: i64| format!("[Dictionary HT]\n table size: 1835008\n rehashing index: {index}\n[Expires HT]\n");
        assert!(!is_under_way(redis) && !is_under_way(&valkey(-1)));
        let target = "Hash table 1 stats (rehashing target):\n table size: 2097152\n";
        assert!(is_under_way(&format!("{redis}{target}")) && is_under_way(&valkey(0)) && is_under_way(&valkey(77)));
    }
}
