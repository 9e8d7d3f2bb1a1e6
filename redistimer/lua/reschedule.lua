-- reschedule sets when a task runs, unless it is claimed: then it may be running, and is left alone.
--
-- KEYS     1 store queue, 2 prepare queue
-- ARGV     1 wake-up channel, 2 partition, 3 topic, 4 score, 5 job_id
-- Returns  {0} the slot did not have it and does now, {1} it was in the store queue, {2} it is claimed
--
-- Atomic, because a claim between the look and the ZADD would leave the id in both queues, to run twice; and because
-- the head must be compared with the one that this very call replaced, or the wake-up would be lost.

local store, prepare = KEYS[1], KEYS[2]

local function head()
  local first = redis.call('ZRANGE', store, 0, 0, 'WITHSCORES')
  return first[2] and math.floor(first[2] / 1000) -- not tonumber: miniredis's cannot read 2e+15
end

if redis.call('ZSCORE', prepare, ARGV[5]) then
  return {2}
end
local before = head()
local added = redis.call('ZADD', store, ARGV[4], ARGV[5])
local after = head()
if not before or after < before then
  redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', after) .. ' ' .. ARGV[3])
end
return {1 - added}
