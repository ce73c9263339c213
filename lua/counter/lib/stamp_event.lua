-- stamp_event: a section of append, in its loop: gives an event that happens now its time. Its fields belong to the window
-- that the caller took for the current one, and to the next window.
if is_stamped then
  if window + 1 == stamp_window then window, field = stamp_window, next_field end
  if window == stamp_window then
    time = stamp
    id = pack('>I2', stamp % WINDOW_MS) .. sub(id, 3)
  else
    code = RESTAMP
  end
end
