-- arm puts tasks into a slot's store queue, so that they run in time.
--
-- KEYS     1 store queue, 2 prepare queue, 3 dead queue
-- ARGV     1 wake-up channel, 2 partition, 3 topic
--          4 "all": members that are stored already get the new score; "missing": those of them that have more attempts
--          in the slot than given here keep theirs: they were rolled back, and their row does not know it
--          5… score, job_id of each member
-- Returns  {known}: how many were in the store or the prepare queue before
--
-- A claimed task is left alone: who claimed it will settle it. Atomic, because a claim between the look at the prepare
-- queue and the ZADD would leave the id in both queues, to run twice; and because the head must be compared with the
-- one that this very call replaced, or the wake-up would be lost.

local store, prepare, dead = KEYS[1], KEYS[2], KEYS[3]

local function head()
  local first = redis.call('ZRANGE', store, 0, 0, 'WITHSCORES')
  return first[2] and math.floor(first[2] / 1000) -- not tonumber: miniredis's cannot read 2e+15
end

local ids = {}
for i = 6, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
redis.call('ZREM', dead, unpack(ids))

local claimed = redis.call('ZMSCORE', prepare, unpack(ids))
local stored = ARGV[4] == 'missing' and redis.call('ZMSCORE', store, unpack(ids)) or {}

local function attempts(score)
  return math.fmod(score + 0, 1000)
end

local members = {}
for i, id in ipairs(ids) do
  if not claimed[i] and not (stored[i] and attempts(stored[i]) > attempts(ARGV[2 * i + 3])) then
    members[#members + 1] = ARGV[2 * i + 3]
    members[#members + 1] = id
  end
end
if #members == 0 then
  return {#ids}
end

local before = head()
local added = redis.call('ZADD', store, unpack(members))
local after = head()
if not before or after < before then
  redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', after) .. ' ' .. ARGV[3])
end
return {#ids - added}
