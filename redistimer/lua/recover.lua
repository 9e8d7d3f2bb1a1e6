-- recover rolls claims back: the tasks may have run and nobody said how it ended, so each goes from the prepare queue to
-- the store queue with one attempt more.
--
-- KEYS     1 store queue, 2 prepare queue
-- ARGV     1 wake-up channel, 2 partition, 3 topic
--          4 at most so many of those that have expired; 0: the claims named below
--          5 the least, 6 the widest spread in ms; 7 the highest number of attempts, 8 the highest millisecond, that
--          fit a score
--          9… job_id of each claim
-- Returns  {"job_id score …" as they are in the store queue now, "1" if there are more that have expired, else "0"}
--
-- The first time a task is due again at once. From the second on it is due within a spread that doubles with each
-- attempt, at a place in it that depends on the id and the attempt alone: tasks that were claimed together with one that
-- kills the process part from it, and those that stayed near it part the next time. Atomic, because a claim that is
-- settled between the look and the move would come to life again, and because an id must never be in neither queue.
-- What is no job_id (somebody's hand) is thrown out.

local store, prepare = KEYS[1], KEYS[2]
local limit = tonumber(ARGV[4])
local least, widest = tonumber(ARGV[5]), tonumber(ARGV[6])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local latest = now * 1000 + 999 -- the highest score that has expired

local function head(queue)
  local first = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
  return first[2] and first[2] + 0 -- not tonumber: miniredis's cannot read 2e+15
end

local function spread(id, attempts)
  if attempts < 2 then
    return 0
  end
  local window = math.min(widest, least * 2 ^ (math.min(attempts, 50) - 1))
  local hash = tonumber(string.sub(redis.sha1hex(id .. ' ' .. attempts), 1, 8), 16)
  return math.floor(hash / 4294967296 * (window + 1))
end

local ids, scores = {}, {}
if limit > 0 then
  local expired = redis.call('ZRANGEBYSCORE', prepare, '-inf', string.format('%.0f', latest), 'WITHSCORES', 'LIMIT', 0, limit)
  for i = 1, #expired, 2 do
    ids[#ids + 1] = expired[i]
    scores[#scores + 1] = expired[i + 1]
  end
else
  for i = 9, #ARGV do
    ids[#ids + 1] = ARGV[i]
  end
  scores = redis.call('ZMSCORE', prepare, unpack(ids))
end

local recovered, members = {}, {}
local n = 0
for i, id in ipairs(ids) do
  if scores[i] and string.find(id, '^%d+$') then
    local attempts = math.fmod(scores[i] + 0, 1000)
    if not (attempts >= 0) then
      attempts = 0 -- a hand's score: negative, or not a number
    end
    attempts = math.min(attempts + 1, tonumber(ARGV[7]))
    local ms = math.min(now + spread(id, attempts), tonumber(ARGV[8]))
    local score = string.format('%.0f', ms * 1000 + attempts)
    members[n + 1], members[n + 2] = score, id
    recovered[n + 1], recovered[n + 2] = id, score
    n = n + 2
  end
end

if #ids > 0 then
  redis.call('ZREM', prepare, unpack(ids))
end
if n > 0 then
  local before = head(store)
  redis.call('ZADD', store, unpack(members))
  local after = head(store)
  if not before or math.floor(after / 1000) < math.floor(before / 1000) then
    redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', math.floor(after / 1000)) .. ' ' .. ARGV[3])
  end
end
local first = head(prepare)
return {table.concat(recovered, ' '), first and first <= latest and '1' or '0'}
