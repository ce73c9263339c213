//! Kafka clients, set up the same way for every part of Tallystone that writes or reads a topic.
//!
//! What lives here: the configuration section (`config`), the connection options (`options`), what is wrong with them (`error`), encryption and user (`access`), topics (`topic`), an
//! idempotent producer (`producer`), topics that are read in no group (`follower`), a topic that is read back by its writer (`restored`) and a consumer-group reader (`reader`; its callbacks are in `context`, how it
//! notices that librdkafka has stopped reading in `stuck`, partitions that the group gave to no member in `coverage`, how the other clients are replaced when they have failed in
//! `renewed`, and that the topic was created again in `position` and
//! `verifier`). What may not: the content of a record. The history sink and
//! the history consumer are in `tallystone-indexer`; other readers of the topic depend on this crate alone.

mod access;
mod config;
mod context;
mod coverage;
mod error;
mod exact;
#[cfg(test)]
mod fake_broker;
mod follower;
mod logging;
mod options;
mod position;
mod producer;
mod reader;
mod renewed;
mod restored;
mod stuck;
mod topic;
mod verifier;

pub use access::{KafkaAccess, KafkaSecurity, SaslMechanism};
pub use config::KafkaConfig;
pub use context::ReaderObserver;
pub use error::KafkaConfigError;
pub use exact::{
    Claim, ExactObserver, ExactOptions, ExactReader, Ledger, Membership, NotVerified, Output, TopicPartition,
    Transactions, repeat_membership,
};
pub use follower::TopicFollower;
pub use options::KafkaOptions;
pub use position::{Position, RecordMark};
pub use producer::{Delivery, Producer, Record};
pub use reader::GroupReader;
pub use restored::{Restored, RestoredTopic};
pub use stuck::{StuckPartition, Trouble};
pub use topic::{Topic, TopicSpec, is_topic_missing};
