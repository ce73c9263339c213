//! The whole way of an event, Redis → relay → Kafka → indexer → Elasticsearch, in processes that are killed with kill -9
//! (Q19). Afterwards every message's trace has each version exactly once, and the index equals the queue.
//!
//! What lives here: the processes (`installation`, `indexer`), the faults (`faults`, `members`), the checks after
//! them (`checks`), and the metrics of all processes (`exported`). What may not: tests of one store, of the sink or of the indexer alone.

mod checks;
mod exported;
mod faults;
mod indexer;
mod installation;
mod members;
