//! The connection to Redis: one multiplexed connection, opened again when it breaks, and errors that say whether the
//! failed write took effect.
//!
//! What lives here: [`Link`] and its [`LinkError`], where it leads (`source`, `address`), which Redis is the primary
//! (`primary`, `sentinels`, `cluster`, `topology`, `nodes`), the number of partitions (`partitions`), one connection and the notice that it is lost (`connection`, `slot`), the wait for
//! replicas (`replicas`), its user and files
//! (`access`), the check of a Redis before use (`preflight`, `acl`, `reply`, `demands`), the wait until it has loaded its data
//! (`loading`), the check of its data's format (`format`), the mark by which a process knows that it still is the same store
//! (`identity`, `mark`, `operator`, `state`, `transaction`), the room on its disk (`room`), the clock of the scripts (`clock`) and what this process's clock
//! says of it (`witness`), the history of the store that a connection leads to (`timeline`), walks by several calls (`scan`), and
//! the decoder of script replies (`script_reply`). What may not: which scripts and keys there are, and what their replies mean.

mod access;
mod acl;
mod address;
mod clock;
mod cluster;
mod compact;
mod condition;
mod config;
mod connection;
mod demands;
mod error;
mod format;
mod identity;
mod link;
mod loading;
mod mark;
mod nodes;
mod offset;
mod operator;
mod own_clock;
mod partitions;
mod preflight;
mod primary;
mod replicas;
mod reply;
mod room;
mod scan;
mod script_reply;
mod sentinels;
mod slot;
mod source;
mod state;
mod stream_id;
mod timeline;
mod topology;
mod transaction;
mod witness;

pub use access::RedisAccess;
pub use clock::Clock;
pub use compact::CompactConfig;
pub use condition::Condition;
pub use config::RedisConfig;
pub use demands::Demands;
pub use error::LinkError;
pub use format::Format;
pub use identity::Identity;
pub use link::{Boxed, Link};
pub use own_clock::{VirtualClocks, set_virtual_clocks, wall_ms};
pub use partitions::agree_on_partitions;
pub use preflight::{ConnectError, preflight};
pub use primary::Primary;
pub use replicas::ReplicaWait;
pub use room::Room;
pub use scan::ScanPosition;
pub use script_reply::ScriptReply;
pub use source::{Node, NodeReply, Source};
pub use state::{DataLoss, StoreState, StoreStatus};
pub use stream_id::StreamId;
pub use witness::{Verdict, Witness};
