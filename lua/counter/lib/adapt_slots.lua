-- adapt_slots: a section of append: how many slots a window has follows the rate of events, three to six records to a
-- slot. It rises at once and falls after ten minutes. It changes only for windows that no event is in yet, so a record is
-- always found where it was put. The layout is a list of (first window I5, slots I4).
do
  if S[WINDOW] ~= now_window then
    S[LAST] = S[WINDOW] == now_window - 1 and S[ARRIVED] or 0
    S[WINDOW], S[ARRIVED] = now_window, 0
  end
  S[ARRIVED] = S[ARRIVED] + added
  local n = S[SLOTS]
  while S[ARRIVED] > 6 * n and n < SLOTS_MAX do n = n * 2 end
  if n == S[SLOTS] and now_window > S[LAYOUT_FROM] + 600000 / WINDOW_MS then
    while math.max(S[ARRIVED], S[LAST]) < n and n > SLOTS_MIN do n = n / 2 end
  end
  if n ~= S[SLOTS] then
    local from = S[LATEST] + 1
    local layout = call('GET', K_LAYOUT)
    if S[LAYOUT_FROM] == from then layout = sub(layout, 1, #layout - 9) end
    layout = layout .. pack('>I5I4', from, n)
    call('SET', K_LAYOUT, layout)
    -- Not a number that counts up: after Redis has lost its last writes, another layout would get the same number.
    local version = math.max(1, tonumber(sub(redis.sha1hex(layout), 1, 8), 16))
    S[SLOTS], S[VERSION], S[LAYOUT_FROM] = n, version, from
  end
end
