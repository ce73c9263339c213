-- registry: the entries of the registry of namespaces: the revision I6; '#' and the incarnation I6 unless that is 0; '<' and I6, the
-- time before which an earlier, shorter retention may have dropped events (Unix ms), unless that is 0; then JSON.
-- The field INCARNATION_FIELD with the name behind it has the origin of the namespace: its incarnation I6, the incarnation of its
-- records in other regions I6, since when it exists I6 (Unix ms). It is not there, or is of another incarnation, if an earlier version
-- has created the namespace.
local function read_entry(raw)
  local revision, incarnation, at = struct.unpack('>I6', raw), 0, 7
  if string.sub(raw, at, at) == '#' then incarnation, at = struct.unpack('>I6', raw, at + 1), at + 7 end
  local kept_from = string.sub(raw, at, at) == '<' and struct.unpack('>I6', raw, at + 1) or 0
  return revision, incarnation, kept_from
end
