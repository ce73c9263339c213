//! The whole way of an event, Redis → relay → Kafka → indexer → Elasticsearch, as processes that are really killed
//! (Q19). Afterwards every message's trace has each version exactly once, and the index says what the queue says.
//!
//! What lives here: the processes (`house`), what is done to them (`faults`), and the judge. What may not: what one
//! store or one end of Kafka does by itself; that has tests of its own.

mod faults;
mod house;
mod judge;
