//! The log of pushes that is a Kafka topic, which `tallystone ingest` reads.
//!
//! A push is one transaction: a record for each counter, and the mark of its namespace. The mark is the metadata of an offset in a group
//! that belongs to the folder and the namespace. The transactional id belongs to the folder, so when a process opens the folder,
//! Kafka refuses the transactions of the process before. After any failure a new producer replaces the old one. Kafka ends the
//! transaction of the old producer before the new one is ready, so the mark is then final.

use super::error::LocalError;
use super::folder::Folder;
use super::push_file::Push;
use super::push_log::{PushLog, Put};
use super::slot::unix_ms;
use super::steps::Steps;
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::{Offset, TopicPartitionList};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::time::{Duration, Instant, SystemTime};

/// How long each call waits for Kafka.
const STEP_TIMEOUT: Duration = Duration::from_secs(5);
/// Kafka aborts a transaction that is pending for longer. A transaction takes some milliseconds.
const TRANSACTION_MS_MAX: &str = "10000";
/// Less than the longest transaction, so a record is sent or has failed before Kafka aborts.
const DELIVERY_MS_MAX: &str = "8000";
/// A mark is replaced when it is older: Kafka forgets an offset that no process has written for `offsets.retention.minutes`.
const MARK_AGE_MAX: Duration = Duration::from_secs(86_400);
/// The partition whose offset has the mark. Each topic has it.
const MARK_PARTITION: i32 = 0;
/// The header with the token of the push, for an operator who has to find it.
const TOKEN_HEADER: &str = "tallystone-push";
/// Properties that exactly once relies on. They cannot be changed.
const FIXED: [&str; 12] = [
    "acks",
    "request.required.acks",
    "bootstrap.servers",
    "delivery.timeout.ms",
    "enable.auto.commit",
    "enable.idempotence",
    "group.id",
    "isolation.level",
    "message.timeout.ms",
    "metadata.broker.list",
    "transaction.timeout.ms",
    "transactional.id",
];

/// The Kafka topic of [`open_with_topic`](super::LocalCounters::open_with_topic).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicOptions {
    /// Bootstrap brokers: `HOST:PORT`, separated by commas.
    pub brokers: String,
    /// The topic. It must exist, and `tallystone ingest` must read it.
    pub topic: String,
    /// More properties of librdkafka, such as those of TLS and of the user.
    pub properties: BTreeMap<String, String>,
    /// The longest time from the end of a push until ingest has counted all of it, in ms; default 5,000. Values and their error bounds rely
    /// on it.
    pub topic_delay_ms: u64,
}

/// Values of properties may be passwords, so only their names are shown.
impl fmt::Debug for TopicOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TopicOptions")
            .field("brokers", &self.brokers)
            .field("topic", &self.topic)
            .field("properties", &self.properties.keys())
            .field("topic_delay_ms", &self.topic_delay_ms)
            .finish()
    }
}

impl TopicOptions {
    /// A topic of a cluster.
    pub fn new(brokers: impl Into<String>, topic: impl Into<String>) -> TopicOptions {
        TopicOptions {
            brokers: brokers.into(),
            topic: topic.into(),
            properties: BTreeMap::new(),
            topic_delay_ms: 5_000,
        }
    }

    fn config(&self, fixed: &[(&str, &str)]) -> Result<ClientConfig, LocalError> {
        if let Some(name) = self.properties.keys().find(|name| FIXED.contains(&name.as_str())) {
            return Err(LocalError::invalid(format!(
                "the property {name} cannot be changed: exactly once relies on it"
            )));
        }
        let mut config = ClientConfig::new();
        config.set("client.id", "tallystone-local").set("reconnect.backoff.max.ms", "1000");
        config.extend(self.properties.clone());
        config.set("bootstrap.servers", &self.brokers);
        config.extend(fixed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Ok(config)
    }
}

/// The topic of one folder.
pub(super) struct KafkaLog {
    options: TopicOptions,
    /// The transactional id, and what the names of the groups begin with.
    id: String,
    steps: Steps,
    /// `None`: a call has failed.
    producer: Option<Session>,
    /// By namespace. They are the same for all producers.
    groups: HashMap<String, ConsumerGroupMetadata>,
}

/// A producer with the marks that it has written.
struct Session {
    producer: BaseProducer<Context>,
    /// Kafka has ended the transactions of earlier producers.
    is_ready: bool,
    /// By namespace: the mark that this producer has written, and when. No other producer can have written one since.
    marks: HashMap<String, (String, Instant)>,
}

impl KafkaLog {
    /// Does not wait for Kafka.
    ///
    /// # Errors
    /// An option cannot be used.
    pub(super) fn open(options: TopicOptions, folder: &Folder) -> Result<KafkaLog, LocalError> {
        let is_name = options.topic.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        if !(1..=249).contains(&options.topic.len()) || !is_name {
            return Err(LocalError::invalid(format!(
                "{:?} is not a valid topic name: 1 to 249 of A-Z a-z 0-9 . _ -",
                options.topic
            )));
        }
        let id = format!("tallystone-local.{:016x}", folder.cells.folder_id());
        let steps = folder.options.steps.clone();
        let mut log = KafkaLog { options, id, steps, producer: None, groups: HashMap::new() };
        log.producer = Some(log.session().map_err(LocalError::invalid)?);
        log.consumer("check").map_err(LocalError::invalid)?;
        Ok(log)
    }

    fn session(&self) -> Result<Session, String> {
        let fixed = [
            ("transactional.id", self.id.as_str()),
            ("transaction.timeout.ms", TRANSACTION_MS_MAX),
            ("message.timeout.ms", DELIVERY_MS_MAX),
            ("enable.idempotence", "true"),
            ("acks", "all"),
        ];
        let mut config = self.options.config(&fixed).map_err(|error| error.to_string())?;
        for (name, value) in [("compression.type", "lz4"), ("linger.ms", "0"), ("partitioner", "murmur2_random")] {
            if !self.options.properties.contains_key(name) {
                config.set(name, value);
            }
        }
        let producer = config.create_with_context(Context).map_err(said)?;
        Ok(Session { producer, is_ready: false, marks: HashMap::new() })
    }

    fn consumer(&self, group: &str) -> Result<BaseConsumer<Context>, String> {
        let fixed = [("group.id", group), ("enable.auto.commit", "false"), ("isolation.level", "read_committed")];
        let config = self.options.config(&fixed).map_err(|error| error.to_string())?;
        config.create_with_context(Context).map_err(said)
    }

    fn group_name(&self, namespace: &str) -> String {
        format!("{}.{namespace}", self.id)
    }

    /// The producer, after Kafka has ended the transactions of earlier ones.
    fn ready(&mut self) -> Result<&mut Session, String> {
        let mut session = match self.producer.take() {
            Some(session) => session,
            None => self.session()?,
        };
        if !session.is_ready {
            session.producer.init_transactions(STEP_TIMEOUT).map_err(said)?;
            session.is_ready = true;
            self.steps.reach("earlier transactions have ended");
        }
        Ok(self.producer.insert(session))
    }

    /// The group of a namespace as a transaction needs it.
    fn know_group(&mut self, namespace: &str) -> Result<(), String> {
        if !self.groups.contains_key(namespace) {
            let consumer = self.consumer(&self.group_name(namespace))?;
            let group = consumer.group_metadata().ok_or("Kafka's client has no group")?;
            self.groups.insert(namespace.to_owned(), group);
        }
        Ok(())
    }

    /// The mark that Kafka has.
    fn read_mark(&self, namespace: &str) -> Result<Option<String>, String> {
        let mut wanted = TopicPartitionList::new();
        wanted.add_partition(&self.options.topic, MARK_PARTITION);
        let consumer = self.consumer(&self.group_name(namespace))?;
        let found = consumer.committed_offsets(wanted, STEP_TIMEOUT).map_err(said)?;
        let found = found.find_partition(&self.options.topic, MARK_PARTITION).ok_or("no answer for the mark")?;
        found.error().map_err(said)?;
        Ok(matches!(found.offset(), Offset::Offset(_)).then(|| found.metadata().to_owned()))
    }

    /// Writes records and a mark, all or nothing.
    fn write(&mut self, namespace: &str, push: Option<&Push>, mark: &str) -> Result<(), String> {
        self.know_group(namespace)?;
        let written = self.transaction(namespace, push, mark);
        match (written, &mut self.producer) {
            (Ok(()), Some(session)) => {
                session.marks.insert(namespace.to_owned(), (mark.to_owned(), Instant::now()));
                Ok(())
            }
            (written, producer) => {
                // The next producer ends the transaction of this one.
                *producer = None;
                written.map_err(|error| format!("the topic {}: {}", self.options.topic, said(error)))
            }
        }
    }

    fn transaction(&self, namespace: &str, push: Option<&Push>, mark: &str) -> Result<(), KafkaError> {
        let (Some(Session { producer, .. }), Some(group)) = (&self.producer, self.groups.get(namespace)) else {
            return Err(KafkaError::Canceled);
        };
        producer.begin_transaction()?;
        if let Some(push) = push {
            self.steps.reach("a transaction has begun");
            self.send(producer, push)?;
            self.steps.reach("records are in the transaction");
        }
        let mut offsets = TopicPartitionList::new();
        let mut place = offsets.add_partition(&self.options.topic, MARK_PARTITION);
        place.set_offset(Offset::Offset(0))?;
        place.set_metadata(mark);
        producer.send_offsets_to_transaction(&offsets, group, STEP_TIMEOUT)?;
        self.steps.reach("a mark is in the transaction");
        producer.commit_transaction(STEP_TIMEOUT)?;
        self.steps.reach("a transaction is committed");
        Ok(())
    }

    /// Gives the records of a push to the producer.
    fn send(&self, producer: &BaseProducer<Context>, push: &Push) -> Result<(), KafkaError> {
        // The present time, not that of the push: ingest would have to write a late record once more.
        let at_ms = unix_ms(SystemTime::now()).cast_signed();
        for item in &push.items {
            let value = value(&push.namespace, &item.counter, item.delta);
            let token = Header { key: TOKEN_HEADER, value: Some(&push.token) };
            let mut record = BaseRecord::to(&self.options.topic).key(&item.counter).payload(&value);
            record = record.timestamp(at_ms).headers(OwnedHeaders::new_with_capacity(1).insert(token));
            let give_up_at = Instant::now() + STEP_TIMEOUT;
            while let Err((error, unsent)) = producer.send(record) {
                let is_full = error == KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
                if !is_full || Instant::now() >= give_up_at {
                    return Err(error);
                }
                record = unsent;
                producer.poll(Duration::from_millis(10));
            }
        }
        Ok(())
    }
}

impl PushLog for KafkaLog {
    fn name(&self) -> &str {
        &self.options.topic
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(self.options.topic_delay_ms)
    }

    fn mark(&mut self, namespace: &str) -> Result<String, String> {
        let known = self.ready()?.marks.get(namespace);
        if let Some((mark, at)) = known
            && at.elapsed() < MARK_AGE_MAX
        {
            return Ok(mark.clone());
        }
        let mark = uuid::Uuid::new_v4().simple().to_string();
        self.write(namespace, None, &mark)?;
        self.steps.reach("a mark is new");
        Ok(mark)
    }

    fn put(&mut self, push: &Push) -> Result<Put, String> {
        let logged = push.logged.as_ref().ok_or("a push that is no push to a log")?;
        let mark = match self.ready()?.marks.get(&push.namespace) {
            Some((mark, _)) => Some(mark.clone()),
            None => self.read_mark(&push.namespace)?,
        };
        match mark {
            Some(mark) if mark == push.token => Ok(Put::Found),
            Some(mark) if mark == logged.mark_before => {
                self.write(&push.namespace, Some(push), &push.token).map(|()| Put::Written)
            }
            _ => Ok(Put::Forgotten),
        }
    }
}

/// One add, as ingest reads it. Names have no control characters, so two characters need an escape.
fn value(namespace: &str, counter: &str, delta: i64) -> String {
    let counter = counter.replace('\\', r"\\").replace('"', r#"\""#);
    format!(r#"{{"namespace":"{namespace}","counter":"{counter}","delta":{delta}}}"#)
}

fn said(error: impl std::fmt::Display) -> String {
    format!("Kafka: {error}")
}

/// Logs what librdkafka says. A call that fails has its own error.
struct Context;

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        tracing::debug!(facility, ?level, "kafka: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka");
    }
}

impl ConsumerContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = ();

    // A record that is not delivered fails the commit.
    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l2_a_record_has_the_add_as_json() {
        assert_eq!(value("ads", "line 7", -5), r#"{"namespace":"ads","counter":"line 7","delta":-5}"#);
        assert_eq!(value("a", "\\\"é", 1), r#"{"namespace":"a","counter":"\\\"é","delta":1}"#);
    }

    #[test]
    fn s6_options_show_no_password() {
        let mut options = TopicOptions::new("127.0.0.1:9092", "adds");
        options.properties.insert("sasl.password".to_owned(), "S3cretPW".to_owned());
        let shown = format!("{options:?}");
        assert!(shown.contains("sasl.password") && !shown.contains("S3cretPW"), "{shown}");
    }

    #[test]
    fn l2_properties_behind_exactly_once_cannot_be_changed() {
        let mut options = TopicOptions::new("127.0.0.1:9092", "adds");
        options.properties.insert("linger.ms".to_owned(), "5".to_owned());
        assert!(options.config(&[]).is_ok());
        options.properties.insert("acks".to_owned(), "1".to_owned());
        assert!(options.config(&[]).is_err());
    }
}
