//! The tables of an archive in Cassandra.

/// The names of the tables, and the CQL that creates each in a keyspace. Programs create what is missing.
pub(crate) fn tables(keyspace: &str) -> [(&'static str, String); 6] {
    let table = |name: &'static str, of: &str| (name, format!("CREATE TABLE IF NOT EXISTS \"{keyspace}\".{name} {of}"));
    [
        // The names of objects, each with the version of its content. Only compare-and-set changes a row.
        table(
            "objects",
            "(folder text, name text, version uuid, bytes bigint, chunk_bytes int, modified timestamp,
              PRIMARY KEY (folder, name))",
        ),
        table("folders", "(parent text, name text, PRIMARY KEY (parent, name))"),
        // Which versions may have chunks, by the folder of their object: also those that never got a name.
        table("versions", "(folder text, version uuid, chunks int, PRIMARY KEY (folder, version))"),
        // A partition for each chunk. What Parquet has compressed gets no smaller.
        table(
            "chunks",
            "(version uuid, number int, data blob, PRIMARY KEY ((version, number)))
             WITH compression = {'enabled': false}",
        ),
        // For queries of others.
        table(
            "events",
            "(namespace text, counter text, slice timestamp, time timestamp, shard int, event_token text,
              counter_id blob, delta bigint, source text, event_item_key text,
              PRIMARY KEY ((namespace, counter, slice), time, shard, event_token, counter_id))",
        ),
        // Which counters have rows of a slice, in parts: a slice may have millions.
        table(
            "event_counters",
            "(namespace text, slice timestamp, part int, counter text,
              PRIMARY KEY ((namespace, slice, part), counter))",
        ),
    ]
}
