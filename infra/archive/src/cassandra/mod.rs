//! The archive in Cassandra: its objects in chunks of rows, and each event as a row to query. Objects are what the archive reads
//! and audits; the rows are only for others (docs/decisions/0269).
//!
//! `address` reads what the operator has configured, `schema` has the tables, `connection` connects and prepares, `objects` and
//! `chunks` are the object store, `events` writes the rows.

#[cfg(feature = "cassandra")]
mod address;
#[cfg(feature = "cassandra")]
mod chunks;
#[cfg(feature = "cassandra")]
mod connection;
#[cfg(feature = "cassandra")]
mod events;
#[cfg(feature = "cassandra")]
mod objects;
#[cfg(feature = "cassandra")]
mod schema;
#[cfg(all(test, feature = "cassandra"))]
mod tests;

use crate::error::ArchiveError;
use crate::rows::Tables;
use object_store::ObjectStore;
use std::sync::Arc;

/// What a keyspace has: objects, and the other tables.
type Keyspace = (Arc<dyn ObjectStore>, Arc<dyn Tables>);

/// The keyspace of an address `HOST[:PORT][,HOST…]/KEYSPACE`. The first call connects.
///
/// # Errors
/// [`ArchiveError::Invalid`]: it is no such address.
#[cfg(feature = "cassandra")]
pub(crate) fn open(address: &str, options: impl Iterator<Item = (String, String)>) -> Result<Keyspace, ArchiveError> {
    let connection = Arc::new(connection::Connection::to(address::Address::parse(address, options)?));
    Ok((Arc::new(objects::Objects::over(connection.clone())), Arc::new(events::EventRows::over(connection))))
}

/// This program has none.
#[cfg(not(feature = "cassandra"))]
pub(crate) fn open(_address: &str, _options: impl Iterator<Item = (String, String)>) -> Result<Keyspace, ArchiveError> {
    Err(ArchiveError::invalid("this program was built without Cassandra (the feature `cassandra`)"))
}
