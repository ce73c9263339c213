-- enqueue/class: the deadline of a message of a priority class: the time plus the offset of its class (Q28).

-- RETURNS the content with the deadline in place of the offset. Both are order-preserving numbers: 2^63 added.
local function with_deadline(content)
  local high, low = unpick('>I4I4', content)
  local deadline = (high - 2147483648) * 4294967296 + low + now
  return pack('>I4I4', math.floor(deadline / 4294967296) + 2147483648, deadline % 4294967296) .. sub(content, 9)
end
