//! What callers who mean harm can do to a running program (S1 to S7), and what must stay private.
//!
//! What lives here: attacks against the built program, which is also run with secrets and with hostile text. What may
//! not: refusals of single calls, which each service tests.

mod acl;
mod audit;
mod bounds;
mod browser;
pub(crate) mod certificates;
mod commands;
mod disk;
mod enqueue_streams;
mod files;
mod filters;
mod fixed;
mod half_open;
mod history;
mod identities;
mod jwt;
mod kafka_acls;
mod local;
mod local_topic;
mod nesting;
mod output;
mod probes;
mod queues;
mod redis;
mod reload;
mod rights;
mod routes;
mod secrets;
mod secured;
mod secured_elasticsearch;
mod secured_kafka;
mod slow;
mod streams;
mod tenants;
mod tls;
mod unread;
mod unread_requests;
mod verbs;
mod victim;
mod views;
mod waiters;
