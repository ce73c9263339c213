//! The topics of one test: what a producer writes, and what is left on them.

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const DEADLINE: Duration = Duration::from_secs(60);
const TEN_MINUTES_MS: i64 = 600_000;

pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64
}

/// One record to write.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) partition: i32,
    pub(crate) at_ms: i64,
    pub(crate) key: String,
    pub(crate) value: String,
}

impl Written {
    /// An add of this time.
    pub(crate) fn add(partition: i32, at_ms: i64, counter: &str, delta: i64) -> Written {
        let value = format!(r#"{{"counter":"{counter}","delta":{delta}}}"#);
        Written { partition, at_ms, key: counter.to_owned(), value }
    }

    /// One that is late: its time is ten minutes ago.
    pub(crate) fn late(partition: i32, counter: &str, delta: i64) -> Written {
        Written::add(partition, now_ms() - TEN_MINUTES_MS, counter, delta)
    }
}

/// The topics of one test, and its group.
#[derive(Clone)]
pub(crate) struct Topics {
    pub(crate) brokers: String,
    pub(crate) source: String,
    pub(super) partitions: i32,
}

impl Topics {
    /// A new topic of adds.
    pub(crate) async fn create(brokers: String, test: &str, partitions: i32) -> Topics {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let source = format!("n17-{test}-{}-{number}-{}", std::process::id(), now_ms());
        let topics = Topics { brokers, source, partitions };
        topics.create_again().await;
        topics
    }

    pub(crate) fn late(&self) -> String {
        format!("{}.late", self.source)
    }

    pub(crate) fn dead(&self) -> String {
        format!("{}.dead", self.source)
    }

    /// The consumer group has the name of the topic.
    pub(crate) fn group(&self) -> String {
        self.source.clone()
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        config
    }

    /// Creates the topic of adds; waits while Kafka still deletes it.
    pub(crate) async fn create_again(&self) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().expect("a client");
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        let topic = NewTopic::new(&self.source, self.partitions, TopicReplication::Fixed(1))
            .set("message.timestamp.after.max.ms", "9223372036854775807")
            // Kafka deletes records whose times are older than its retention, 30 s after its start and then every five minutes.
            .set("retention.ms", "-1");
        while admin.create_topics([&topic], &options).await.expect("a response")[0].is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Deletes the topic of adds. Returns once Kafka has done it.
    pub(crate) async fn delete(&self) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().expect("a client");
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        for deleted in admin.delete_topics(&[&self.source], &options).await.expect("a response") {
            deleted.expect("deleted");
        }
    }

    /// Writes records; returns once all are acknowledged.
    pub(crate) async fn write(&self, records: &[Written]) {
        let producer: FutureProducer =
            self.config().set("enable.idempotence", "true").set("linger.ms", "1").create().expect("a producer");
        let send = |record: &Written| {
            let (producer, topic, record) = (producer.clone(), self.source.clone(), record.clone());
            async move {
                let Written { partition, at_ms, key, value } = &record;
                let record = FutureRecord::to(&topic).partition(*partition).timestamp(*at_ms).key(key).payload(value);
                producer.send(record, DEADLINE).await.expect("written");
            }
        };
        futures::future::join_all(records.iter().map(send)).await;
    }

    fn consumer(&self, group: &str) -> BaseConsumer {
        let mut config = self.config();
        config.set("group.id", group).set("enable.partition.eof", "true").set("enable.auto.commit", "false");
        // Only what is committed is there.
        config.set("isolation.level", "read_committed").set("fetch.wait.max.ms", "20");
        config.create().expect("a consumer")
    }

    fn all_partitions(&self, topics: &[&str]) -> TopicPartitionList {
        let mut list = TopicPartitionList::new();
        for topic in topics {
            list.add_partition_range(topic, 0, self.partitions - 1);
        }
        list
    }

    /// The records of a topic with these partitions, in the order of each.
    pub(crate) async fn records(&self, topic: &str, partitions: i32) -> Vec<OwnedMessage> {
        let (topics, topic) = (self.clone(), topic.to_owned());
        let read = move || {
            let mut begin = TopicPartitionList::new();
            for partition in 0..partitions {
                begin.add_partition_offset(&topic, partition, Offset::Beginning).expect("an offset");
            }
            rest(&topics.consumer("tests"), &begin, usize::MAX)
        };
        tokio::task::spawn_blocking(read).await.expect("no panic")
    }

    /// The dead letters, by reason.
    pub(super) async fn dead_letters(&self) -> BTreeMap<String, usize> {
        let mut by_reason = BTreeMap::new();
        for record in self.records(&self.dead(), 1).await {
            let reason = header(&record, "tallystone-reason").expect("a reason");
            let reason = reason.split(':').next().unwrap_or_default().to_owned();
            *by_reason.entry(reason).or_default() += 1;
        }
        by_reason
    }

    /// Whether every record of the topic of adds and of that of late records is decided: the decided group is behind all.
    pub(crate) async fn are_decided(&self) -> bool {
        self.are_decided_in(vec![self.source.clone(), self.late()]).await
    }

    /// Whether every record of these topics is decided.
    pub(crate) async fn are_decided_in(&self, read: Vec<String>) -> bool {
        let topics = self.clone();
        let check = move || {
            let decided = topics.consumer(&format!("{}.decided", topics.group()));
            let read: Vec<&str> = read.iter().map(String::as_str).collect();
            let partitions = topics.all_partitions(&read);
            let Ok(mut offsets) = decided.committed_offsets(partitions, DEADLINE) else { return false };
            for (topic, partition) in offsets.to_topic_map().into_keys().collect::<Vec<_>>() {
                let found = offsets.find_partition(&topic, partition).expect("it is there");
                if !matches!(found.offset(), Offset::Offset(_)) {
                    offsets.set_partition_offset(&topic, partition, Offset::Beginning).expect("an offset");
                }
            }
            rest(&decided, &offsets, 1).is_empty()
        };
        tokio::task::spawn_blocking(check).await.expect("no panic")
    }

    /// Waits until every record is decided.
    pub(crate) async fn until_decided(&self) {
        let give_up_at = tokio::time::Instant::now() + Duration::from_secs(180);
        while !self.are_decided().await {
            assert!(tokio::time::Instant::now() < give_up_at, "records are not decided");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The offsets of the group and of the decided group, with their metadata.
    pub(super) async fn positions(&self) -> [TopicPartitionList; 2] {
        let topics = self.clone();
        let read = move || {
            [topics.group(), format!("{}.decided", topics.group())].map(|group| {
                let partitions = topics.all_partitions(&[&topics.source]);
                topics.consumer(&group).committed_offsets(partitions, DEADLINE).expect("offsets")
            })
        };
        tokio::task::spawn_blocking(read).await.expect("no panic")
    }

    /// Deletes a group, as Kafka does with offsets that no process has written for a week.
    pub(crate) async fn delete_group(&self, group: &str) {
        let admin: AdminClient<DefaultClientContext> = self.config().create().expect("a client");
        let options = AdminOptions::new().operation_timeout(Some(DEADLINE));
        for deleted in admin.delete_groups(&[group], &options).await.expect("a response") {
            deleted.expect("a group");
        }
    }

    /// Writes those of the chosen groups again, as a member does that has not noticed that the topic was deleted. The group
    /// must have no members.
    pub(super) async fn put_positions(&self, positions: &[TopicPartitionList; 2], is_chosen: impl Fn(usize) -> bool) {
        let groups = [self.group(), format!("{}.decided", self.group())];
        let all = groups.into_iter().zip(positions.clone()).enumerate();
        let chosen: Vec<_> = all.filter(|(group, _)| is_chosen(*group)).map(|(_, positions)| positions).collect();
        let topics = self.clone();
        let write = move || {
            for (group, positions) in &chosen {
                topics.commit(group, positions);
            }
        };
        tokio::task::spawn_blocking(write).await.expect("no panic");
    }

    fn commit(&self, group: &str, offsets: &TopicPartitionList) {
        let member = self.consumer(group);
        let give_up_at = std::time::Instant::now() + DEADLINE;
        while let Err(error) = member.commit(offsets, CommitMode::Sync) {
            assert!(std::time::Instant::now() < give_up_at, "{error}");
        }
    }

    /// The offset before which the records of partition 0 are claimed; 0: there is no ledger.
    pub(super) async fn claimed_to(&self) -> i64 {
        let [_, decided] = self.positions().await;
        let ledger = decided.find_partition(&self.source, 0).expect("it is there").metadata().to_owned();
        ledger.split(' ').nth(9).and_then(|word| word.parse().ok()).unwrap_or_default()
    }

    /// Resets the group to the beginning of both topics, as an operator does. The group must have no members.
    pub(super) async fn reset_group(&self) {
        let topics = self.clone();
        let reset = move || {
            let mut begin = TopicPartitionList::new();
            for topic in [&topics.source, &topics.late()] {
                for partition in 0..topics.partitions {
                    begin.add_partition_offset(topic, partition, Offset::Offset(0)).expect("an offset");
                }
            }
            topics.commit(&topics.group(), &begin);
        };
        tokio::task::spawn_blocking(reset).await.expect("no panic");
    }
}

/// The records from these offsets on, at most this number.
fn rest(consumer: &BaseConsumer, from: &TopicPartitionList, records_max: usize) -> Vec<OwnedMessage> {
    consumer.assign(from).expect("an assignment");
    let give_up_at = std::time::Instant::now() + DEADLINE;
    let (mut ends, mut all) = (0, Vec::new());
    while ends < from.count() && all.len() < records_max {
        match consumer.poll(DEADLINE).expect("a record in time") {
            Ok(record) => all.push(record.detach()),
            Err(KafkaError::PartitionEOF(_)) => ends += 1,
            // A broker on a busy machine may be away for a moment.
            Err(error) => assert!(std::time::Instant::now() < give_up_at, "{error}"),
        }
    }
    all
}

/// The value of a record's header.
pub(crate) fn header(record: &OwnedMessage, name: &str) -> Option<String> {
    let header = record.headers()?.iter().find(|header| header.key == name)?;
    Some(String::from_utf8_lossy(header.value?).into_owned())
}
