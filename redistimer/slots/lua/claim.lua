-- claim moves a slot's due tasks from the store queue to the prepare queue (phase one), earliest first, and returns the
-- state of the slot.
--
-- KEYS     1 store queue, 2 prepare queue
-- ARGV     1 greatest number of tasks to claim, 0: none; 2 how long before its time a task is claimed, 3 how long the
--          claims last, both in microseconds; 4 the highest millisecond that fits a score; 5 a member too long for a
--          listpack; 6 seconds after which the prepare queue expires; 7 how long a claimed task may be overdue in
--          microseconds, 0: however long
-- Returns  {"job_id score …", score of the next task in the store queue, size of the prepare queue, seconds,
--          microseconds}; "" where there is none. The claimed tasks have their scores in the store queue. The time is
--          Redis's own.
--
-- The script is atomic, because two claimers must never get the same id, and an id must never be in neither queue. A
-- member that is not a job_id (added by hand) is removed: it could never be settled.
--
-- This script runs more often than all others together, and Redis does nothing else meanwhile. So rare cases (attempts,
-- scores set by hand) are kept out of the loop. Redis keeps a small sorted set as a listpack, in which each ZADD searches
-- from the front. For many tasks the long member turns it into a skiplist first.

local call, find, format = redis.call, string.find, string.format
local store, prepare = KEYS[1], KEYS[2]
local limit = tonumber(ARGV[1])
local time = call('TIME')

local claimed = {}
local taken = 0
if limit > 0 then
  local now = time[1] * 1000000 + time[2]
  local latest = format('%.0f', math.floor((now + ARGV[2]) / 1000) * 1000 + 999)
  local from, skipped = '-inf', 0
  if ARGV[7] ~= '0' then
    from = format('%.0f', now - ARGV[7])
    skipped = call('ZCOUNT', store, '-inf', '(' .. from)
  end
  local due = call('ZRANGEBYSCORE', store, from, latest, 'WITHSCORES', 'LIMIT', 0, limit)
  local expiry = math.min(math.ceil((now + ARGV[3]) / 1000), ARGV[4] + 0) * 1000
  local fresh = format('%.0f', expiry) -- the score of those without attempts
  local members = {}
  local n = 0
  for i = 1, #due, 2 do
    local id = due[i]
    if find(id, '^%d+$') then
      local score = fresh
      if due[i + 1] % 1000 ~= 0 then
        local attempts = math.fmod(due[i + 1] + 0, 1000) -- not tonumber: miniredis's cannot read 2e+15
        if attempts >= 0 then -- otherwise set by hand: negative, or not a number
          score = format('%.0f', expiry + attempts)
        end
      end
      members[n + 1], members[n + 2] = score, id
      claimed[n + 1], claimed[n + 2] = id, due[i + 1]
      n = n + 2
    end
  end
  if n >= 64 then
    call('ZADD', prepare, fresh, ARGV[5], unpack(members))
    call('ZREM', prepare, ARGV[5])
  elseif n > 0 then
    call('ZADD', prepare, unpack(members))
  end
  taken = n / 2
  if #due > 0 then
    call('ZREMRANGEBYRANK', store, skipped, skipped + #due / 2 - 1) -- the due are the first by rank from the lower bound on
  end
end
local next = call('ZRANGE', store, 0, 0, 'WITHSCORES')[2] or ''
local claims = call('ZCARD', prepare)
if taken > 0 then
  call('EXPIRE', prepare, ARGV[6])
end
return {table.concat(claimed, ' '), next, claims, time[1], time[2]}
