//! Transactions: records that follow from others, and the ledgers of the partitions that those are in.

use super::ExactOptions;
use super::context::ExactObserver;
use super::ledger::{Ledger, TopicPartition};
use super::reader::ExactReader;
use crate::error::KafkaConfigError;
use crate::logging::{log_client_error, log_line};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, Message};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Kafka aborts a transaction that is pending for longer. A transaction takes some milliseconds.
const TRANSACTION_MS_MAX: &str = "10000";
/// Below that.
const DELIVERY_MS_MAX: &str = "8000";
/// How long each step of a transaction waits.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an abort waits. Kafka aborts the transaction itself in time.
const ABORT_TIMEOUT: Duration = Duration::from_secs(2);

/// A record to write.
pub struct Output {
    /// The topic.
    pub topic: String,
    /// The partition; `None`: chosen by the key.
    pub partition: Option<i32>,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Option<Vec<u8>>,
    /// Its time, Unix ms; `None`: that of its writing.
    pub at_ms: Option<i64>,
    /// The headers.
    pub headers: OwnedHeaders,
}

/// A transactional producer. After an error it is of no more use: its user creates another one, joins the group again, and
/// continues from what is durable.
pub struct Transactions {
    producer: ThreadedProducer<WrittenContext>,
}

impl Transactions {
    /// Checks the options. `id` names the producer: the next one of the same name aborts a transaction that this one leaves.
    ///
    /// # Errors
    /// An option cannot be used.
    pub fn new(options: &ExactOptions, id: &str) -> Result<Transactions, KafkaConfigError> {
        let defaults = [
            ("linger.ms", "0"),
            ("compression.type", "lz4"),
            ("message.max.bytes", "2000000"),
            ("partitioner", "murmur2_random"),
        ];
        let fixed = [
            ("transactional.id", id),
            ("transaction.timeout.ms", TRANSACTION_MS_MAX),
            ("message.timeout.ms", DELIVERY_MS_MAX),
            ("enable.idempotence", "true"),
            ("acks", "all"),
        ];
        let config: ClientConfig = options.client_config(&defaults, &fixed)?;
        Ok(Transactions { producer: config.create_with_context(WrittenContext::default())? })
    }

    /// Waits for the transactions of earlier producers of this name.
    ///
    /// # Errors
    /// Kafka has not answered.
    pub fn begin(&self) -> Result<(), KafkaError> {
        self.producer.init_transactions(STEP_TIMEOUT)
    }

    /// Writes all or nothing. Returns the offset of the last record in each partition of a topic. Blocks until Kafka has
    /// acknowledged it.
    ///
    /// # Errors
    /// The reader has lost its partitions, or Kafka does not answer. Nothing is written, or, where the last step has failed,
    /// perhaps all.
    pub fn commit<O: ExactObserver>(
        &self,
        reader: &ExactReader<O>,
        outputs: Vec<Output>,
        ledgers: &BTreeMap<TopicPartition, Ledger>,
    ) -> Result<BTreeMap<(String, i32), i64>, KafkaError> {
        let committed = self.attempt(reader, outputs, ledgers);
        if let Err(KafkaError::Transaction(error)) = &committed
            && error.txn_requires_abort()
            && let Err(error) = self.producer.abort_transaction(ABORT_TIMEOUT)
        {
            tracing::debug!(%error, "the transaction is not aborted; Kafka aborts it in time");
        }
        committed
    }

    fn attempt<O: ExactObserver>(
        &self,
        reader: &ExactReader<O>,
        outputs: Vec<Output>,
        ledgers: &BTreeMap<TopicPartition, Ledger>,
    ) -> Result<BTreeMap<(String, i32), i64>, KafkaError> {
        let offsets = reader.offsets(ledgers)?;
        let members = reader.members().ok_or(KafkaError::Canceled)?;
        self.producer.context().written().clear();
        self.producer.begin_transaction()?;
        reader.reached("a transaction has begun");
        for output in &outputs {
            self.send(output)?;
        }
        if !outputs.is_empty() {
            reader.reached("records are in the transaction");
        }
        // The order matters: see `exact/mod.rs`.
        self.producer.send_offsets_to_transaction(&offsets, &members.0, STEP_TIMEOUT)?;
        reader.reached("the group's positions are in the transaction");
        self.producer.send_offsets_to_transaction(&offsets, &members.1, STEP_TIMEOUT)?;
        reader.reached("the ledgers are in the transaction");
        self.producer.commit_transaction(STEP_TIMEOUT)?;
        reader.reached("a transaction is committed");
        reader.note(&offsets);
        Ok(std::mem::take(&mut self.producer.context().written()))
    }

    fn send(&self, output: &Output) -> Result<(), KafkaError> {
        let mut record = BaseRecord::<[u8], [u8], ()>::to(&output.topic).headers(output.headers.clone());
        record.partition = output.partition;
        record.key = output.key.as_deref();
        record.payload = output.value.as_deref();
        record.timestamp = output.at_ms;
        loop {
            match self.producer.send(record) {
                Ok(()) => return Ok(()),
                Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), unsent)) => {
                    record = unsent;
                    self.producer.poll(Duration::from_millis(10));
                }
                Err((error, _)) => return Err(error),
            }
        }
    }
}

/// Receives the offset of each record on librdkafka's thread.
#[derive(Default)]
struct WrittenContext {
    written: Mutex<BTreeMap<(String, i32), i64>>,
}

impl WrittenContext {
    fn written(&self) -> std::sync::MutexGuard<'_, BTreeMap<(String, i32), i64>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for WrittenContext {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log_client_error(&error, reason);
    }
}

impl ProducerContext for WrittenContext {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Ok(record) = result {
            let mut written = self.written();
            let last = written.entry((record.topic().to_owned(), record.partition())).or_insert(-1);
            *last = record.offset().max(*last);
        }
    }
}
