-- The embedded history, version 3. Times are Unix ms; states and causes are the numbers of the wire, 0 for none.
-- `fence` is the fencing token.

-- The names of queues. Other rows have the number.
CREATE TABLE queues (
    number INTEGER PRIMARY KEY,
    name   TEXT NOT NULL UNIQUE
) STRICT;

-- The watermark of each source.
CREATE TABLE sources (
    number   INTEGER PRIMARY KEY,
    of       INTEGER NOT NULL,
    up_to_ms INTEGER NOT NULL
) STRICT;

-- Shards that have lost transitions since the last repair, and up to when.
CREATE TABLE losses (
    queue      INTEGER NOT NULL,
    shard      INTEGER NOT NULL,
    lost_to_ms INTEGER NOT NULL,
    PRIMARY KEY (queue, shard)
) WITHOUT ROWID, STRICT;

-- One row per transition, grouped by message. A row never changes.
CREATE TABLE historic (
    queue      INTEGER NOT NULL,
    sequence   INTEGER NOT NULL,
    shard      INTEGER NOT NULL,
    version    INTEGER NOT NULL,
    from_state INTEGER NOT NULL,
    to_state   INTEGER NOT NULL,
    by         INTEGER NOT NULL,
    at_ms      INTEGER NOT NULL,
    spent_ms   INTEGER NOT NULL,
    worker     TEXT    NOT NULL,
    fence      INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    due_ms     INTEGER NOT NULL,
    priority   INTEGER NOT NULL,
    PRIMARY KEY (queue, sequence, shard, version)
) WITHOUT ROWID, STRICT;

-- For statistics, which read only this index, and for the retention.
CREATE INDEX historic_by_time ON historic (queue, at_ms, from_state, to_state, spent_ms, reason);

-- One row per message after its newest transition, in the order of a search. The key, the id and the metadata never
-- change.
CREATE TABLE current (
    queue          INTEGER NOT NULL,
    enqueued_at_ms INTEGER NOT NULL,
    sequence       INTEGER NOT NULL,
    shard          INTEGER NOT NULL,
    id             TEXT    NOT NULL,
    version        INTEGER NOT NULL,
    gone           INTEGER NOT NULL,
    state          INTEGER NOT NULL,
    changed_at_ms  INTEGER NOT NULL,
    since_ms       INTEGER NOT NULL,
    due_ms         INTEGER NOT NULL,
    priority       INTEGER NOT NULL,
    attempts       INTEGER NOT NULL,
    fence          INTEGER NOT NULL,
    coalesced      INTEGER NOT NULL,
    worker         TEXT    NOT NULL,
    reason         TEXT    NOT NULL,
    -- A JSON object, sorted by key.
    metadata       TEXT    NOT NULL,
    -- 1: written by a repair, not by an event.
    repaired       INTEGER NOT NULL DEFAULT 0,
    -- The result that the worker gave to Complete; NULL: none.
    result         BLOB,
    PRIMARY KEY (queue, enqueued_at_ms, sequence, shard DESC)
) WITHOUT ROWID, STRICT;

-- For traces.
CREATE INDEX current_by_id ON current (queue, id, sequence);
-- For depths, and for searches by state: it has the order of a search within a state.
CREATE INDEX current_by_state ON current (queue, gone, state, enqueued_at_ms, sequence, shard DESC);
-- For searches by time, and for the retention.
CREATE INDEX current_by_change ON current (queue, gone, changed_at_ms);

-- The metadata of `current`: one row per pair, in the order of a search within a pair.
CREATE TABLE pairs (
    queue          INTEGER NOT NULL,
    key            TEXT    NOT NULL,
    value          TEXT    NOT NULL,
    enqueued_at_ms INTEGER NOT NULL,
    sequence       INTEGER NOT NULL,
    shard          INTEGER NOT NULL,
    PRIMARY KEY (queue, key, value, enqueued_at_ms, sequence, shard DESC)
) WITHOUT ROWID, STRICT;

-- The beginning of the payload, from the first event of a message that carries it. Not in `current`, whose rows are rewritten often.
CREATE TABLE payloads (
    queue    INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    shard    INTEGER NOT NULL,
    payload  BLOB    NOT NULL,
    UNIQUE (queue, sequence, shard)
) STRICT;
