//! Reading topics so that whatever follows from a record happens once: records that follow from others, and the positions up
//! to which all is decided, are written in one Kafka transaction (N17).
//!
//! What lives here: what is durable of a partition (`ledger`), a member of a consumer group that begins at durable positions
//! (`reader`; its callbacks are in `context`, the positions in `start`), the transactions (`transactions`), and how memberships
//! follow each other (`repeat`). What may not: the content of a record, and what follows from it.
//!
//! Two groups have the positions. Those of the *group* prove to Kafka that a member still has its partitions: a transaction of
//! one that has lost them fails as a whole. An operator may reset the group; those of the *decided group* `GROUP.decided`, which
//! has no members, stay. Both carry the ledgers: after a topic was deleted, Kafka forgets its positions in one group after the
//! other, and by the one that is left alone a member could not recognize a topic that was created again.
//!
//! The order of steps must not change. A transaction writes to the group first, then to the decided group. A member reads the
//! position of the group first, and waits there for pending transactions; then that of the decided group. With another order it
//! could read a ledger that an earlier member is about to replace.

mod context;
mod ledger;
mod reader;
mod repeat;
mod start;
mod transactions;

pub use context::ExactObserver;
pub use ledger::{Claim, Ledger, TopicPartition};
pub use reader::{ExactReader, NotVerified};
pub use repeat::{Membership, repeat_membership};
pub use transactions::{Output, Transactions};

use crate::error::KafkaConfigError;
use crate::options::KafkaOptions;
use rdkafka::ClientConfig;

/// What a member reads, and in which group.
#[derive(Clone, Debug)]
pub struct ExactOptions {
    /// The cluster; its topic is not used.
    pub kafka: KafkaOptions,
    /// The topics. A [`TopicPartition`] has the number of its topic in this list.
    pub topics: Vec<String>,
    /// The consumer group.
    pub group: String,
    /// The name by which the group knows this member across restarts, unique in the group; `None`: each start is a new member.
    pub instance: Option<String>,
}

impl ExactOptions {
    /// The group that has the ledgers.
    pub fn decided_group(&self) -> String {
        format!("{}.decided", self.group)
    }

    fn client_config(
        &self,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
    ) -> Result<ClientConfig, KafkaConfigError> {
        self.kafka.client_config(defaults, fixed)
    }
}
