-- pulse shows whether a server is the one that this process has asked before, and whose it is.
--
-- KEYS     1 the center's key, 2 the process's key
-- ARGV     1 id of our store, "-": unknown; 2 name of the process, 3 TTL of both keys in milliseconds
-- Returns  {id in the center's key, or ours if it had none; "1" if the process's key was there, else "0"; seconds,
--          microseconds}. The time is Redis's own.
--
-- A server with another store's id is another center's: it is not changed. Each process appends a comment of its own to
-- this text, so a server that was restarted, or a replica that took over, does not know it. The script is atomic,
-- because of two centers only one may take a server.

local call = redis.call
local time = call('TIME')
local center = call('GET', KEYS[1]) or ARGV[1]
if center ~= ARGV[1] and center ~= '-' and ARGV[1] ~= '-' then
  return {center, '0', time[1], time[2]}
end
if ARGV[1] ~= '-' then
  center = ARGV[1]
end
local known = call('EXISTS', KEYS[2])
call('SET', KEYS[1], center, 'PX', ARGV[3])
call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return {center, tostring(known), time[1], time[2]}
