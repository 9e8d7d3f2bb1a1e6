-- release moves claims back unchanged: the tasks did not run, so their attempts stay, and they can be claimed again.
--
-- KEYS     1 store queue, 2 prepare queue
-- ARGV     1 wake-up channel, 2 partition, 3 topic, 4 seconds after which an unused queue expires
--          5… score for the store queue, job_id of each claim
-- Returns  {released}: how many were moved back
--
-- Only members of the prepare queue are moved: the others were settled or recovered meanwhile, and must not be restored.
-- The script is atomic for that reason, and because an id must never be in neither queue.

local store, prepare = KEYS[1], KEYS[2]

local function head()
  local first = redis.call('ZRANGE', store, 0, 0, 'WITHSCORES')
  return first[2] and math.floor(first[2] / 1000) -- not tonumber: miniredis's cannot read 2e+15
end

local ids = {}
for i = 6, #ARGV, 2 do
  ids[#ids + 1] = ARGV[i]
end
local claimed = redis.call('ZMSCORE', prepare, unpack(ids))
local members = {}
for i, id in ipairs(ids) do
  if claimed[i] then
    members[#members + 1] = ARGV[2 * i + 3]
    members[#members + 1] = id
  end
end
if #members == 0 then
  return {0}
end

local before = head()
redis.call('ZREM', prepare, unpack(ids))
redis.call('ZADD', store, unpack(members))
if not before then
  redis.call('EXPIRE', store, ARGV[4])
end
local after = head()
if not before or after < before then
  redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', after) .. ' ' .. ARGV[3])
end
return {#members / 2}
