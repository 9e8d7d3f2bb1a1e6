-- mark sets the marker of a slot with a TTL: the process that serves the slot, and the time up to which it is complete.
--
-- KEYS     1 marker
-- ARGV     1 the marker that must be there now; "": none, or any of our store
--          2 id of our store, 3 new marker, 4 its TTL in milliseconds
-- Returns  {"1"}, or {"0"}: the expected marker is not there, and nothing was changed
--
-- The script is atomic, because a slot that is lost or taken over between the check and the change must not look
-- complete.

local marker = redis.call('GET', KEYS[1]) or ''
if ARGV[1] ~= '' then
  if marker ~= ARGV[1] and marker ~= ARGV[3] then
    return {'0'}
  end
else
  local store = string.match(marker, '^toc/2 (%S+) ')
  if store and store ~= ARGV[2] and store ~= '-' and ARGV[2] ~= '-' then
    return {'0'}
  end
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
return {'1'}
