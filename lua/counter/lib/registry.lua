-- registry: the entries of the registry of namespaces: the revision I6; '#' and the incarnation I6 unless that is 0; '<' and I6, the
-- time before which an earlier, shorter retention may have dropped events (Unix ms), unless that is 0; then JSON.
local function read_entry(raw)
  local revision, incarnation, at = struct.unpack('>I6', raw), 0, 7
  if string.sub(raw, at, at) == '#' then incarnation, at = struct.unpack('>I6', raw, at + 1), at + 7 end
  local kept_from = string.sub(raw, at, at) == '<' and struct.unpack('>I6', raw, at + 1) or 0
  return revision, incarnation, kept_from
end
