-- mark sets the marker of a slot, for a while: who serves the slot, and up to which time it is complete.
--
-- KEYS     1 marker
-- ARGV     1 the marker that must be there now; "": any but another store's, or none
--          2 id of our store, 3 new marker, 4 how long it lasts, in milliseconds
-- Returns  {"1"}, or {"0"}: another marker is there, and stays
--
-- Atomic, because a slot that is lost or taken over between the look and the change must not look complete.

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
