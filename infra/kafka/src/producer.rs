//! An idempotent producer that reports when every replica has acknowledged all records of a delivery.

use crate::error::KafkaConfigError;
use crate::logging::{log_client_error, log_line};
use crate::options::KafkaOptions;
use crate::renewed::Renewed;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// Unacknowledged records that a producer buffers, in KiB. It bounds the producer's memory: `send` waits above it.
const QUEUE_KIB_MAX: &str = "65536";
/// The same bound in records.
const QUEUE_RECORDS_MAX: &str = "200000";
/// A record that is not acknowledged after this many milliseconds has failed.
const DELIVERY_MS_MAX: &str = "30000";

/// One record to send.
pub struct Record<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition; `None`: chosen by the key.
    pub partition: Option<i32>,
    /// The key.
    pub key: Option<&'a [u8]>,
    /// The value.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: OwnedHeaders,
    /// The timestamp, Unix ms; `None`: the time of sending.
    pub at_ms: Option<u64>,
}

/// The producer. librdkafka's idempotent producer stops for good when it cannot know what was written, and may never
/// connect again after an outage of Kafka; this one then replaces it.
pub struct Producer {
    current: Renewed<Client>,
}

type Client = ThreadedProducer<DeliveryContext>;

impl Producer {
    /// Checks the options; connects to Kafka in the background.
    pub fn new(options: &KafkaOptions) -> Result<Producer, KafkaConfigError> {
        Ok(Producer { current: Renewed::new(config(options)?, DeliveryContext::default)? })
    }

    /// Begins a delivery: any number of records whose acknowledgements are awaited together.
    pub fn begin(&self) -> Result<Delivery, KafkaError> {
        let client = self.current.current();
        let fatal_error = client.client().fatal_error();
        if let Some((code, why)) = &fatal_error {
            tracing::warn!(%code, why, "the Kafka producer failed for good; replacing it");
        }
        if fatal_error.is_some() || client.context().has_timed_out.load(Ordering::Relaxed) {
            self.current.renew(&client);
        }
        Ok(Delivery { client: self.current.current(), acks: Arc::new(PendingAcks::new()) })
    }
}

fn config(options: &KafkaOptions) -> Result<ClientConfig, KafkaConfigError> {
    let defaults = [
        ("linger.ms", "5"),
        ("compression.type", "lz4"),
        ("queue.buffering.max.kbytes", QUEUE_KIB_MAX),
        ("queue.buffering.max.messages", QUEUE_RECORDS_MAX),
        ("message.timeout.ms", DELIVERY_MS_MAX),
        ("message.max.bytes", "2000000"),
        // The partitioner of the Java clients: a key has the same partition whichever client writes it.
        ("partitioner", "murmur2_random"),
    ];
    options.client_config(&defaults, &[("enable.idempotence", "true"), ("acks", "all")])
}

/// Records that are sent together and acknowledged together.
pub struct Delivery {
    client: Arc<Client>,
    acks: Arc<PendingAcks>,
}

impl Delivery {
    /// Hands one record to librdkafka; waits while its buffer is full.
    pub async fn send(&self, record: Record<'_>) -> Result<(), KafkaError> {
        let mut sending = BaseRecord::<[u8], [u8], Arc<PendingAcks>>::with_opaque_to(record.topic, self.acks.clone());
        sending.partition = record.partition;
        sending.key = record.key;
        sending.payload = record.value;
        sending.timestamp = record.at_ms.map(|at_ms| at_ms as i64);
        sending = sending.headers(record.headers);
        self.acks.left.fetch_add(1, Ordering::SeqCst);
        loop {
            let room = self.client.context().room.notified();
            tokio::pin!(room);
            // Registers before the attempt, so that an acknowledgement in between wakes this task.
            room.as_mut().enable();
            match self.client.send(sending) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), unsent)) => {
                    sending = unsent;
                    room.await;
                }
                Err((error, _)) => {
                    self.acks.done(None);
                    return Err(error);
                }
            }
        }
    }

    /// Waits until every record is acknowledged or has failed. Returns the first error.
    pub async fn acknowledged(self) -> Result<(), KafkaError> {
        self.acks.done(None);
        self.acks.all.notified().await;
        let error = self.acks.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.map_or(Ok(()), Err)
    }
}

/// Counts the records of one delivery that are neither acknowledged nor failed.
#[derive(Debug)]
struct PendingAcks {
    /// Includes one for the delivery itself until its last record is sent.
    left: AtomicUsize,
    error: Mutex<Option<KafkaError>>,
    all: Notify,
}

impl PendingAcks {
    fn new() -> PendingAcks {
        PendingAcks { left: AtomicUsize::new(1), error: Mutex::new(None), all: Notify::new() }
    }

    fn done(&self, error: Option<KafkaError>) {
        if let Some(error) = error {
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.all.notify_one();
        }
    }
}

/// Receives the result of each record on librdkafka's thread.
#[derive(Default)]
struct DeliveryContext {
    /// Notified for each result: librdkafka's buffer has room again.
    room: Notify,
    /// Set once a record was not acknowledged in time.
    has_timed_out: AtomicBool,
}

impl ClientContext for DeliveryContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log_client_error(&error, reason);
    }
}

impl ProducerContext for DeliveryContext {
    type DeliveryOpaque = Arc<PendingAcks>;

    fn delivery(&self, result: &DeliveryResult<'_>, acks: Arc<PendingAcks>) {
        let error = result.as_ref().err().map(|(error, _)| error.clone());
        if let Some(KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut)) = &error {
            self.has_timed_out.store(true, Ordering::Relaxed);
        }
        acks.done(error);
        self.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// librdkafka #5301: a client that has lost all brokers never connects again.
    #[tokio::test]
    async fn q19_a_producer_whose_records_time_out_is_replaced() {
        let properties = [("message.timeout.ms".to_owned(), "300".to_owned())].into();
        let options = KafkaOptions { brokers: "127.0.0.1:1".to_owned(), properties, ..KafkaOptions::default() };
        let producer = Producer::new(&options).unwrap();
        let first = producer.begin().unwrap();
        let client = first.client.clone();
        let headers = OwnedHeaders::new();
        let record = Record { topic: "t", partition: Some(0), key: None, value: Some(b"v"), headers, at_ms: None };
        assert!(Arc::ptr_eq(&client, &producer.begin().unwrap().client), "it is kept while it works");
        first.send(record).await.unwrap();
        let error = first.acknowledged().await.unwrap_err();
        assert_eq!(error, KafkaError::MessageProduction(RDKafkaErrorCode::MessageTimedOut));
        assert!(!Arc::ptr_eq(&client, &producer.begin().unwrap().client));
    }
}
