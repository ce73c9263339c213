-- crossings: the feed of passed thresholds (N16), a stream in the counter's home shard.
-- KEYS the fifth: the stream
-- An entry has the counter (c), what a new checkpoint of it has passed (r: count i8, exact_to_ms I6, then each threshold i8),
-- and the id of the entry before it (p), by which a reader notices that entries are gone.
-- WHY ids of the store's clock, not numbers: after lost writes, other entries would have the numbers that a reader has read.
local function append_crossings(counter, record)
  local last = call('XREVRANGE', K_CROSSINGS, '+', '-', 'COUNT', '1')[1]
  local before = last and last[1] or '0-0'
  call('XADD', K_CROSSINGS, 'MAXLEN', '~', CROSSINGS_MAX, '*', 'c', counter, 'r', record, 'p', before)
end
