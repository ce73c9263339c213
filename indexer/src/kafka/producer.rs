//! An idempotent producer that says when everything it was given is acknowledged by every copy.

use super::client::{complain, log};
use super::options::{KafkaConfigError, KafkaOptions};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Notify;

/// What may be on its way, all calls together: the bound of a producer's memory. More waits.
const QUEUE_KIB_MAX: &str = "65536";
/// The same in records.
const QUEUE_RECORDS_MAX: &str = "200000";
/// How long a record may take until it counts as not delivered.
const DELIVERY_MS_MAX: &str = "30000";

/// One record, borrowed.
pub(super) struct Record<'a> {
    pub(super) topic: &'a str,
    pub(super) partition: Option<i32>,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: OwnedHeaders,
    pub(super) at_ms: Option<u64>,
}

/// The producer. librdkafka gives one up for ever when it can no longer tell what is written; then it is made anew.
pub(super) struct Producer {
    options: KafkaOptions,
    current: Mutex<Arc<Inner>>,
}

type Inner = ThreadedProducer<Deliveries>;

impl Producer {
    pub(super) fn new(options: &KafkaOptions) -> Result<Producer, KafkaConfigError> {
        Ok(Producer { options: options.clone(), current: Mutex::new(Arc::new(inner(options)?)) })
    }

    /// Starts to send records; [`Flight::landed`] of the answer says when they are there.
    pub(super) fn flight(&self) -> Result<Flight, KafkaError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((code, why)) = current.client().fatal_error() {
            tracing::warn!(%code, why, "Kafka's producer cannot go on; making another");
            let anew = inner(&self.options).map_err(|error| KafkaError::ClientCreation(error.to_string()))?;
            let old = std::mem::replace(&mut *current, Arc::new(anew));
            // It waits for its threads.
            tokio::task::spawn_blocking(move || drop(old));
        }
        Ok(Flight { producer: current.clone(), count: Arc::new(Count::new()) })
    }
}

fn inner(options: &KafkaOptions) -> Result<Inner, KafkaConfigError> {
    let defaults = [
        ("linger.ms", "5"),
        ("compression.type", "lz4"),
        ("queue.buffering.max.kbytes", QUEUE_KIB_MAX),
        ("queue.buffering.max.messages", QUEUE_RECORDS_MAX),
        ("message.timeout.ms", DELIVERY_MS_MAX),
        ("message.max.bytes", "2000000"),
        // That of Java's clients: the same key is in the same partition whoever writes it.
        ("partitioner", "murmur2_random"),
    ];
    let config = options.client(&defaults, &[("enable.idempotence", "true"), ("acks", "all")])?;
    let context = Deliveries { room: Notify::new() };
    config.create_with_context(context).map_err(|error| KafkaConfigError::Refused(error.to_string()))
}

/// Records on their way together.
pub(super) struct Flight {
    producer: Arc<Inner>,
    count: Arc<Count>,
}

impl Flight {
    /// Sends one; waits while too much is on its way.
    pub(super) async fn send(&self, record: Record<'_>) -> Result<(), KafkaError> {
        let mut sending = BaseRecord::<[u8], [u8], Arc<Count>>::with_opaque_to(record.topic, self.count.clone());
        sending.partition = record.partition;
        sending.key = record.key;
        sending.payload = record.value;
        sending.timestamp = record.at_ms.map(|at_ms| at_ms as i64);
        sending = sending.headers(record.headers);
        self.count.left.fetch_add(1, Ordering::SeqCst);
        loop {
            let room = self.producer.context().room.notified();
            tokio::pin!(room);
            // From here on no delivery goes by unnoticed.
            room.as_mut().enable();
            match self.producer.send(sending) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), unsent)) => {
                    sending = unsent;
                    room.await;
                }
                Err((error, _)) => {
                    self.count.delivered(None);
                    return Err(error);
                }
            }
        }
    }

    /// Waits until all of them are acknowledged, or the first error is known of all that are not.
    pub(super) async fn landed(self) -> Result<(), KafkaError> {
        self.count.delivered(None);
        self.count.all.notified().await;
        let error = self.count.error.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.map_or(Ok(()), Err)
    }
}

/// How many records of a flight have no answer yet.
#[derive(Debug)]
pub(super) struct Count {
    /// One more until the last has been sent.
    left: AtomicUsize,
    error: Mutex<Option<KafkaError>>,
    all: Notify,
}

impl Count {
    fn new() -> Count {
        Count { left: AtomicUsize::new(1), error: Mutex::new(None), all: Notify::new() }
    }

    fn delivered(&self, error: Option<KafkaError>) {
        if let Some(error) = error {
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.all.notify_one();
        }
    }
}

/// Where librdkafka's thread tells what became of each record.
struct Deliveries {
    /// Told whenever there is room for more.
    room: Notify,
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        complain(&error, reason);
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Arc<Count>;

    fn delivery(&self, result: &DeliveryResult<'_>, count: Arc<Count>) {
        count.delivered(result.as_ref().err().map(|(error, _)| error.clone()));
        self.room.notify_waiters();
    }
}
