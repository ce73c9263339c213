//! Whether a consumer group has assigned each partition to a member, and what happens otherwise.
//!
//! The leader of a group requests the partitions of its topics, and assigns those that Kafka names in that moment. Of a topic that is being
//! created again it assigns none. librdkafka joins the group again only if its own refresh of the metadata finds another number of
//! partitions than the refresh before. If both refreshes find the topic, its partitions have no member until another rebalance.

use crate::error::KafkaConfigError;
use crate::logging::{LogContext, log_client_error, log_line};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, Rebalance};
use rdkafka::error::KafkaError;
use rdkafka::groups::GroupInfo;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long one request waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the additional member waits for its assignment: longer than the members may need for a rebalance.
const JOIN_TIMEOUT: Duration = Duration::from_secs(70);
const POLL: Duration = Duration::from_millis(100);
/// The pause after a check that has learned nothing. It doubles each time.
const UNKNOWN_MIN: Duration = Duration::from_secs(2);
const UNKNOWN_MAX: Duration = Duration::from_secs(30);
/// The pause after a rebalance that this member has triggered. It doubles each time: if the leader may not describe a topic, no rebalance
/// helps, and each one stops the group for a moment.
const TRIGGERED_MIN: Duration = Duration::from_secs(10);
const TRIGGERED_MAX: Duration = Duration::from_secs(600);
/// Members wait for up to so long, each for another time, and check once more: one rebalance is enough for all.
const SPREAD_MS: u32 = 4_000;

/// What is known of the group.
struct Known {
    rebalances: u64,
    /// The next three are of the time since the latest rebalance.
    is_covered: bool,
    /// Since when each check has found a partition without a member.
    uncovered_since: Option<Instant>,
    unknown_pause: Duration,
    next_at: Instant,
    triggered_pause: Duration,
    may_trigger_at: Instant,
    is_checking: bool,
}

/// The check of one member. It is due after each rebalance, until each partition has a member.
pub(crate) struct Coverage {
    group: String,
    topics: Vec<String>,
    /// The configuration of an additional member. It has no instance name.
    additional: ClientConfig,
    /// For how long a partition is without a member before this member triggers a rebalance.
    patience: Duration,
    known: Mutex<Known>,
}

/// Ends a check, also one that has panicked.
struct Checking(Arc<Coverage>);

impl Drop for Checking {
    fn drop(&mut self) {
        self.0.known().is_checking = false;
    }
}

impl Coverage {
    /// `member` is the configuration of the members. `patience`: a cooperative group is stable between the two steps of a rebalance, while a
    /// member is slow to revoke its partitions.
    pub(crate) fn new(group: &str, topics: &[String], member: &ClientConfig, patience: Duration) -> Arc<Coverage> {
        let mut additional = member.clone();
        additional.remove("group.instance.id");
        additional.remove("statistics.interval.ms");
        additional.set("enable.auto.commit", "false");
        let now = Instant::now();
        let known = Known {
            rebalances: 0,
            is_covered: false,
            uncovered_since: None,
            unknown_pause: UNKNOWN_MIN,
            next_at: now,
            triggered_pause: TRIGGERED_MIN,
            may_trigger_at: now,
            is_checking: false,
        };
        let (group, topics) = (group.to_owned(), topics.to_vec());
        Arc::new(Coverage { group, topics, additional, patience, known: Mutex::new(known) })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a rebalance: the group has assigned partitions to this member, or revoked them.
    pub(crate) fn rebalanced(&self) {
        let mut known = self.known();
        known.rebalances += 1;
        (known.is_covered, known.uncovered_since) = (false, None);
        (known.unknown_pause, known.next_at) = (UNKNOWN_MIN, Instant::now());
    }

    /// Checks the group if that is due. Call it every few seconds. Never blocks: another thread sends the requests.
    pub(crate) fn check(self: &Arc<Self>, client: Arc<BaseConsumer<LogContext>>) {
        let mut known = self.known();
        if known.is_covered || known.is_checking || known.next_at > Instant::now() {
            return;
        }
        known.is_checking = true;
        drop(known);
        let checking = Checking(Arc::clone(self));
        let thread = std::thread::Builder::new().name("kafka-coverage".to_owned());
        let spawned = thread.spawn(move || {
            if checking.0.uncovered_for_long(&client).is_some() {
                spread();
                // Another member may have triggered a rebalance meanwhile.
                if let Some(without_member) = checking.0.uncovered_for_long(&client) {
                    checking.0.trigger(&without_member);
                }
            }
        });
        if let Err(error) = spawned {
            tracing::debug!(%error, "the group is not checked now");
        }
    }

    /// Checks the group once. Returns the partitions without a member if this member is to trigger a rebalance.
    fn uncovered_for_long(&self, client: &BaseConsumer<LogContext>) -> Option<BTreeSet<(String, i32)>> {
        let rebalances = self.known().rebalances;
        let found = self.without_member(client);
        let (mut known, now) = (self.known(), Instant::now());
        if known.rebalances != rebalances {
            return None;
        }
        let without_member = match found {
            Ok(Some(without_member)) => without_member,
            unknown => {
                tracing::debug!(error = ?unknown.err(), "it is not known yet whether each partition has a member");
                known.uncovered_since = None;
                known.next_at = now + known.unknown_pause;
                known.unknown_pause = (2 * known.unknown_pause).min(UNKNOWN_MAX);
                return None;
            }
        };
        if without_member.is_empty() {
            (known.is_covered, known.triggered_pause) = (true, TRIGGERED_MIN);
            return None;
        }
        let since = *known.uncovered_since.get_or_insert(now);
        (now - since >= self.patience && now >= known.may_trigger_at).then_some(without_member)
    }

    fn trigger(self: &Arc<Self>, without_member: &BTreeSet<(String, i32)>) {
        let Some((topic, partition)) = without_member.first() else { return };
        let mut known = self.known();
        known.may_trigger_at = Instant::now() + known.triggered_pause;
        known.triggered_pause = (2 * known.triggered_pause).min(TRIGGERED_MAX);
        drop(known);
        let count = without_member.len();
        tracing::warn!(topic, partition, count, "partitions of the group have no member: triggering a rebalance");
        if let Err(error) = self.rebalance() {
            tracing::warn!(%error, "no rebalance was triggered");
        }
    }

    /// The partitions that the group has assigned to no member. `None`: a rebalance is under way, or a topic is not there.
    fn without_member(&self, client: &BaseConsumer<LogContext>) -> Result<Option<BTreeSet<(String, i32)>>, KafkaError> {
        let mut partitions = BTreeSet::new();
        for name in &self.topics {
            let metadata = client.fetch_metadata(Some(name), REQUEST_TIMEOUT)?;
            let topic = metadata.topics().iter().find(|topic| topic.name() == name && topic.error().is_none());
            let Some(topic) = topic.filter(|topic| !topic.partitions().is_empty()) else { return Ok(None) };
            partitions.extend(topic.partitions().iter().map(|partition| (name.clone(), partition.id())));
        }
        let groups = client.fetch_group_list(Some(&self.group), REQUEST_TIMEOUT)?;
        let group = groups.groups().iter().find(|group| group.name() == self.group);
        let Some(group) = group.filter(|group| group.state() == "Stable") else { return Ok(None) };
        let Some(assigned) = assigned(group) else { return Ok(None) };
        Ok(Some(&partitions - &assigned))
    }

    /// Joins the group with an additional member, which leaves it when it has its assignment. Kafka rebalances the group both times.
    fn rebalance(self: &Arc<Self>) -> Result<(), KafkaConfigError> {
        let member: BaseConsumer<Additional> = self.additional.create_with_context(Additional::default())?;
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        member.subscribe(&topics)?;
        let give_up_at = Instant::now() + JOIN_TIMEOUT;
        // The reader holds one of these, and so does this thread. If the reader is closed, it is not to be followed by this member.
        let is_open = || Arc::strong_count(self) > 1;
        while is_open() && !member.context().is_assigned.load(Ordering::SeqCst) && Instant::now() < give_up_at {
            // The member that gets the partition reads again what this one reads.
            let _ = member.poll(POLL);
        }
        Ok(())
    }
}

/// Waits for up to [`SPREAD_MS`], in each member for another time.
fn spread() {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    sleep(Duration::from_millis(u64::from(nanos / 1_000 % SPREAD_MS)));
}

/// The context of the additional member.
#[derive(Default)]
struct Additional {
    is_assigned: AtomicBool,
}

impl ClientContext for Additional {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log_client_error(&error, reason);
    }
}

impl ConsumerContext for Additional {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        if matches!(rebalance, Rebalance::Assign(_)) {
            self.is_assigned.store(true, Ordering::SeqCst);
        }
    }
}

/// The partitions that the members of a group have. `None`: one of them has an assignment that cannot be decoded.
fn assigned(group: &GroupInfo) -> Option<BTreeSet<(String, i32)>> {
    let assignments = group.members().iter().filter_map(|member| member.assignment());
    let assigned = assignments.map(read_assignment).collect::<Option<Vec<_>>>()?;
    Some(assigned.into_iter().flatten().collect())
}

/// Reads an assignment as Kafka's consumers write it (ConsumerProtocolAssignment): a version, topics with their partitions, and what
/// the assignor adds.
fn read_assignment(bytes: &[u8]) -> Option<Vec<(String, i32)>> {
    let mut left = bytes;
    let mut take = |length: usize| {
        let (taken, rest) = left.split_at_checked(length)?;
        left = rest;
        Some(taken)
    };
    let _version = take(2)?;
    let mut assigned = Vec::new();
    let topics = i32::from_be_bytes(take(4)?.try_into().ok()?);
    for _ in 0..topics {
        let length = i16::from_be_bytes(take(2)?.try_into().ok()?);
        let topic = String::from_utf8(take(usize::try_from(length).ok()?)?.to_vec()).ok()?;
        let partitions = i32::from_be_bytes(take(4)?.try_into().ok()?);
        for _ in 0..partitions {
            assigned.push((topic.clone(), i32::from_be_bytes(take(4)?.try_into().ok()?)));
        }
    }
    Some(assigned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n17_an_assignment_is_read_as_consumers_write_it() {
        let bytes =
            [&[0, 1, 0, 0, 0, 2, 0, 1, b'a', 0, 0, 0, 2][..], &[0, 0, 0, 0, 0, 0, 0, 7, 0, 1, b'b', 0, 0, 0, 0]];
        let bytes = [bytes.concat(), vec![255; 4]].concat();
        assert_eq!(read_assignment(&bytes), Some(vec![("a".to_owned(), 0), ("a".to_owned(), 7)]));
        assert_eq!(read_assignment(&[0, 0, 0, 0, 0, 0, 255, 255, 255, 255]), Some(Vec::new()));
        // What the assignor adds is not read.
        let read = bytes.len() - 4;
        assert!((0..read).all(|length| read_assignment(&bytes[..length]).is_none()));
        assert_eq!(read_assignment(&[0, 0, 127, 255, 255, 255]), None);
    }
}
