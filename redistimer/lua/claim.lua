-- claim moves a slot's due tasks from the store queue to the prepare queue (phase one), earliest first, and tells what
-- there is to wait for.
--
-- KEYS     1 store queue, 2 prepare queue, 3 marker
-- ARGV     1 at most so many, 0 to only look; 2 how much ahead of its time a task may be, 3 how long the claims last,
--          both in microseconds; 4 the highest millisecond that fits a score
-- Returns  {"job_id score …", score of the next in the store queue, how many are in the prepare queue, marker,
--          seconds, microseconds}; "" where there is none. The scores of the claimed are those they had in the store
--          queue, the time is Redis's own.
--
-- Atomic, because two claimers must never get the same id, and an id must never be in neither queue. What is no job_id
-- (somebody's hand) is thrown out: nobody could ever settle it.

local store, prepare, marker = KEYS[1], KEYS[2], KEYS[3]
local limit = tonumber(ARGV[1])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])

local claimed = {}
if limit > 0 then
  local latest = string.format('%.0f', math.floor((now + tonumber(ARGV[2])) / 1000) * 1000 + 999)
  local due = redis.call('ZRANGEBYSCORE', store, '-inf', latest, 'WITHSCORES', 'LIMIT', 0, limit)
  local expiry = math.min(math.ceil((now + tonumber(ARGV[3])) / 1000), tonumber(ARGV[4])) * 1000
  local scores = {} -- in the prepare queue, by attempts: most have the same
  local members = {}
  local n = 0
  for i = 1, #due, 2 do
    local id = due[i]
    if string.find(id, '^%d+$') then
      local attempts = math.fmod(due[i + 1] + 0, 1000) -- not tonumber: miniredis's cannot read 2e+15
      if not (attempts >= 0) then
        attempts = 0 -- a hand's score: negative, or not a number
      end
      local score = scores[attempts]
      if not score then
        score = string.format('%.0f', expiry + attempts)
        scores[attempts] = score
      end
      members[n + 1], members[n + 2] = score, id
      claimed[n + 1], claimed[n + 2] = id, due[i + 1]
      n = n + 2
    end
  end
  if n > 0 then
    redis.call('ZADD', prepare, unpack(members))
  end
  if #due > 0 then
    redis.call('ZREMRANGEBYRANK', store, 0, #due / 2 - 1) -- with no lower bound, the due are the first by rank
  end
end
local next = redis.call('ZRANGE', store, 0, 0, 'WITHSCORES')[2] or ''
return {table.concat(claimed, ' '), next, redis.call('ZCARD', prepare), redis.call('GET', marker) or '', time[1], time[2]}
