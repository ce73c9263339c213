//! What goes wrong in an episode, and how often.

use rand::Rng;
use rand::rngs::StdRng;
use tallystone_model::limits::CLOCK_SKEW_MAX_MS;

/// How many servers an episode has.
pub(super) const SERVERS: usize = 3;
/// The most writes that a failover loses.
pub(super) const WRITES_LOST_MAX: usize = 20;

/// The way of one command to Redis and back.
pub(super) struct Trip {
    pub(super) request_ms: u64,
    pub(super) reply_ms: u64,
    pub(super) loses_request: bool,
    pub(super) loses_reply: bool,
    /// After this time the caller notices that no reply comes.
    pub(super) noticed_ms: u64,
}

impl Trip {
    /// One without faults.
    pub(super) const QUIET: Trip =
        Trip { request_ms: 0, reply_ms: 0, loses_request: false, loses_reply: false, noticed_ms: 0 };

    /// `calm`: faults are rarer by this factor.
    pub(super) fn draw(chance: &mut StdRng, calm: u32) -> Trip {
        let delay_ms = |chance: &mut StdRng| match chance.random_range(0..1_000 * calm) {
            0..6 => chance.random_range(100..2_000),
            6 => chance.random_range(5_000..25_000),
            7..400 => chance.random_range(1..4),
            _ => 0,
        };
        let noticed_ms = match chance.random_range(0..20) {
            0 => 15_000,
            1..4 => 3_000,
            _ => chance.random_range(0..30),
        };
        Trip {
            request_ms: delay_ms(chance),
            reply_ms: delay_ms(chance),
            loses_request: chance.random_bool(0.015 / f64::from(calm)),
            loses_reply: chance.random_bool(0.03 / f64::from(calm)),
            noticed_ms,
        }
    }
}

/// What happens between two commands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// A replica without the last writes becomes the primary; its clock differs from the last one's.
    Failover { writes: usize, clock_step_ms: i64, down_ms: u64 },
    /// Redis starts again with all of its data.
    Restart { down_ms: u64 },
    /// A server dies with all that it has in memory, and another one takes its place.
    Crash { server: usize },
    /// The clock of Redis changes.
    RedisClock { step_ms: i64 },
    /// The clock of a server changes.
    ServerClock { server: usize, step_ms: i64 },
    /// The clock of Redis is wrong by more than the bound for a while.
    Skew { step_ms: i64, lasts_ms: u64 },
    /// The slot of the store moves to another node, whose clock differs. Meanwhile some keys are on one node, and some on the
    /// other.
    SlotMoves { lasts_ms: u64, clock_step_ms: i64 },
}

/// What a node of a Redis Cluster answers about keys of a slot that moves.
pub(super) const OF_MOVING_SLOTS: [&str; 2] =
    ["TRYAGAIN Multiple keys request during rehashing of slot", "ASK 3999 127.0.0.1:6381"];
/// About keys of a slot that has moved.
pub(super) const OF_MOVED_SLOTS: &str = "MOVED 3999 127.0.0.1:6381";

impl Fault {
    /// Draws what happens after one command; mostly nothing. `calm`: as for a trip.
    pub(super) fn draw(chance: &mut StdRng, calm: u32) -> Option<Fault> {
        let down_ms = |chance: &mut StdRng| if chance.random_bool(0.5) { 0 } else { chance.random_range(1..800) };
        Some(match chance.random_range(0..10_000 * calm) {
            0..120 => {
                let writes = match chance.random_range(0..10) {
                    0 => 0,
                    1..7 => chance.random_range(1..4),
                    _ => chance.random_range(4..=WRITES_LOST_MAX),
                };
                Fault::Failover { writes, clock_step_ms: chance.random_range(-8_000..8_000), down_ms: down_ms(chance) }
            }
            120..140 => Fault::Restart { down_ms: down_ms(chance) },
            140..200 => Fault::Crash { server: chance.random_range(0..SERVERS) },
            200..230 => Fault::RedisClock { step_ms: chance.random_range(-1_500..1_500) },
            230..260 => {
                let server = chance.random_range(0..SERVERS);
                Fault::ServerClock { server, step_ms: chance.random_range(-1_500..1_500) }
            }
            260..270 => {
                let beyond_ms = chance.random_range(2..6) * i64::from(CLOCK_SKEW_MAX_MS);
                let step_ms = if chance.random_bool(0.5) { beyond_ms } else { -beyond_ms };
                Fault::Skew { step_ms, lasts_ms: chance.random_range(1..1_500) }
            }
            270..300 => {
                let lasts_ms = chance.random_range(0..1_000);
                Fault::SlotMoves { lasts_ms, clock_step_ms: chance.random_range(-8_000..8_000) }
            }
            _ => return None,
        })
    }
}
