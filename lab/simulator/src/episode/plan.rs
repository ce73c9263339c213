//! What an episode is about, drawn from its seed: its queues, and whether the numbers of their shards change meanwhile.

use crate::judge::EXCLUSIVITY_KEY;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::ops::Range;
use tallystone_model::{Backoff, QueueConfig, QueueName, QueueType, Shard};

/// Of this many successive seeds, one makes an episode in which numbers of shards change.
const CHANGES_EVERY: u64 = 8;
/// Calls of scripts in an episode.
const SCRIPT_CALLS: u64 = 200;
/// The same where calls go to several shards.
const SCRIPT_CALLS_OF_SHARDS: u64 = 800;
/// Ended messages and their ids keep an earlier shard for a short time only: so some changes end within the episode.
const RETAINED_MS_MAX: u64 = 300;
/// The most shards of a queue, before and after a change.
const SHARDS_MAX: u16 = 4;

/// Whether numbers of shards change in the episode of a seed.
pub fn changes_shards(seed: u64) -> bool {
    seed.is_multiple_of(CHANGES_EVERY)
}

/// See the module.
pub(super) struct Plan {
    /// An exclusive queue and a simple one, with their first shards.
    pub(super) queues: [(Shard, QueueConfig); 2],
    /// The positions of the queues whose numbers of shards change.
    pub(super) changing: &'static [usize],
    pub(super) script_calls: u64,
    /// Faults are rarer by this factor. A change of a number of shards takes dozens of commands: if each were likely to fail, no
    /// change would end.
    pub(super) calm: u32,
}

impl Plan {
    pub(super) fn of(seed: u64) -> Plan {
        let changes = changes_shards(seed);
        let mut chance = StdRng::seed_from_u64(!seed);
        let types =
            [("exclusive", QueueType::Exclusive { key: EXCLUSIVITY_KEY.to_owned() }), ("simple", QueueType::Simple)];
        let queues = types.map(|(name, queue_type)| {
            let first = Shard::first(&QueueName::parse("queue", name).expect("a valid name"));
            let config = QueueConfig {
                queue_type,
                lease_ms: 2_000,
                terminal_retention_ms: 1_500,
                retry_backoff: Backoff::default(),
                ..QueueConfig::default()
            };
            (first, if changes { with_shards(config, &mut chance) } else { config })
        });
        let (changing, script_calls): (&[usize], u64) =
            if changes { (&[0, 1], SCRIPT_CALLS_OF_SHARDS) } else { (&[], SCRIPT_CALLS) };
        let calm = if changes { [1, 3, 8][chance.random_range(0..3)] } else { 1 };
        Plan { queues, changing, script_calls, calm }
    }

    /// The lengths of leases (in s), and the retentions of ended messages (in ms), from which a change of a configuration chooses.
    pub(super) fn ranges(&self) -> (Range<u64>, Range<u64>) {
        if self.changing.is_empty() { (1..30, 0..5_000) } else { (1..4, 0..RETAINED_MS_MAX) }
    }

    /// The first shard of a queue.
    pub(super) fn first(&self, at: usize) -> &Shard {
        &self.queues[at].0
    }
}

fn with_shards(config: QueueConfig, chance: &mut StdRng) -> QueueConfig {
    let retention_ms = chance.random_range(0..RETAINED_MS_MAX);
    QueueConfig {
        shards: chance.random_range(1..=SHARDS_MAX),
        terminal_retention_ms: retention_ms,
        errored_retention_ms: retention_ms,
        id_window_ms: if chance.random_bool(0.3) { retention_ms + 500 } else { 0 },
        ..config
    }
}

/// Another number of shards.
pub(super) fn another_number(chance: &mut StdRng) -> u16 {
    chance.random_range(1..=SHARDS_MAX)
}
