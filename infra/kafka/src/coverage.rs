//! Whether a consumer group has given each partition to a member, and what happens otherwise.
//!
//! The leader of a group requests the partitions of its topics, and distributes those that Kafka names in that moment. Of a topic
//! that is created again in that moment it distributes none. librdkafka joins the group again only if its own refresh of the metadata
//! finds another number of partitions than the one before. If both refreshes find the topic, its partitions have no member until
//! the group is distributed again for another reason.

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
use std::time::{Duration, Instant};

/// How long one request waits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the additional member waits until the group is distributed: longer than the members may need for it.
const JOIN_TIMEOUT: Duration = Duration::from_secs(70);
const POLL: Duration = Duration::from_millis(100);
/// After so many checks in a row that found a partition without a member, and no rebalance between them, the group is
/// distributed again. A cooperative group is stable for a moment between the two steps of a rebalance.
const FINDINGS: u32 = 2;

/// What is known of the group.
#[derive(Default)]
struct Known {
    rebalances: u64,
    /// These two are of the time since the latest rebalance.
    is_covered: bool,
    findings: u32,
    is_checking: bool,
}

/// The check of one member. It is due after each rebalance, until each partition has a member.
pub(crate) struct Coverage {
    group: String,
    topics: Vec<String>,
    /// The configuration of an additional member. It has no instance name.
    additional: ClientConfig,
    known: Mutex<Known>,
}

impl Coverage {
    /// `member` is the configuration of the members.
    pub(crate) fn new(group: &str, topics: &[String], member: &ClientConfig) -> Arc<Coverage> {
        let mut additional = member.clone();
        additional.remove("group.instance.id");
        additional.remove("statistics.interval.ms");
        additional.set("enable.auto.commit", "false");
        Arc::new(Coverage { group: group.to_owned(), topics: topics.to_vec(), additional, known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group gives partitions to this member, or takes them.
    pub(crate) fn rebalanced(&self) {
        let mut known = self.known();
        known.rebalances += 1;
        (known.is_covered, known.findings) = (false, 0);
    }

    /// Checks the group if that is due. Call it every few seconds. Never blocks: another thread sends the requests.
    pub(crate) fn check(self: &Arc<Self>, client: Arc<BaseConsumer<LogContext>>) {
        let mut known = self.known();
        if known.is_covered || known.is_checking {
            return;
        }
        known.is_checking = true;
        let (coverage, rebalances) = (Arc::clone(self), known.rebalances);
        std::thread::spawn(move || {
            match coverage.without_member(&client) {
                Ok(Some(found)) => coverage.found(rebalances, &found),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "the group is not known yet"),
            }
            coverage.known().is_checking = false;
        });
    }

    /// Takes what a check has found that began after this many rebalances.
    fn found(&self, rebalances: u64, without_member: &BTreeSet<(String, i32)>) {
        let mut known = self.known();
        if known.rebalances != rebalances {
            return;
        }
        let Some((topic, partition)) = without_member.first() else {
            known.is_covered = true;
            return;
        };
        known.findings += 1;
        if known.findings < FINDINGS {
            return;
        }
        known.findings = 0;
        drop(known);
        let count = without_member.len();
        tracing::warn!(topic, partition, count, "partitions of the group have no member: distributing them again");
        if let Err(error) = self.distribute_again() {
            tracing::warn!(%error, "the group is not distributed again");
        }
    }

    /// The partitions that the group has given to no member. `None`: it is distributing them, or a topic is not there.
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

    /// Joins the group with an additional member, and leaves it when the leader has distributed the partitions. Kafka distributes them
    /// each time.
    fn distribute_again(&self) -> Result<(), KafkaConfigError> {
        let member: BaseConsumer<Additional> = self.additional.create_with_context(Additional::default())?;
        let topics: Vec<&str> = self.topics.iter().map(String::as_str).collect();
        member.subscribe(&topics)?;
        let give_up_at = Instant::now() + JOIN_TIMEOUT;
        while !member.context().is_assigned.load(Ordering::SeqCst) && Instant::now() < give_up_at {
            // Records that it may read are read again by the member that gets the partition.
            let _ = member.poll(POLL);
        }
        Ok(())
    }
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

/// The partitions that the members of a group have. `None`: one of them has a text that is no assignment.
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
