//! The two sides of the comparison, each as one server sees it: whole queues.

use tallystone_model::oracle::Oracle;
use tallystone_server::Sharded;
use tallystone_server::store::RedisStore;

pub(super) type WholeOracle = Sharded<Oracle>;
pub(super) type WholeRedis = Sharded<RedisStore>;
