-- registry: the entries of the registry of namespaces: the revision I6, then '#' and the incarnation I6 unless that is 0,
-- then JSON.
local function read_entry(raw)
  local revision = struct.unpack('>I6', raw)
  return revision, string.sub(raw, 7, 7) == '#' and struct.unpack('>I6', raw, 8) or 0
end
