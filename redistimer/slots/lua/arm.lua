-- arm puts tasks into a slot's store queue, so that they run in time.
--
-- KEYS     1 store queue, 2 prepare queue, 3 dead queue, 4 marker
-- ARGV     1 wake-up channel, 2 partition, 3 topic; 4 a member too long for a listpack
--          5 "all": members that are stored already get the new score; "keep": only if it is lower
--          6 id of our store, 7 seconds after which an unused queue expires
--          8… score, job_id of each member
-- Returns  {known}: the number of members that were in the store or the prepare queue before; {-1}: the slot belongs
--          to another store, and was not changed
--
-- A claimed task does not change: the process that claimed it will settle it. The script is atomic for two reasons. A
-- claim between reading the prepare queue and the ZADD would leave the id in both queues, and the task would run twice.
-- And the head must be compared with the one that this call replaced, or a wake-up would be lost.
--
-- Redis begins a sorted set as a listpack, in which each ZADD searches from the front. A new store queue will grow: the
-- long member makes it a skiplist from the start.

local call = redis.call
local store, prepare, dead = KEYS[1], KEYS[2], KEYS[3]

local owner = string.match(call('GET', KEYS[4]) or '', '^toc/2 (%S+) ')
if owner and owner ~= ARGV[6] and owner ~= '-' and ARGV[6] ~= '-' then
  return {-1}
end

local ids = {}
local n = 0
for i = 9, #ARGV, 2 do
  n = n + 1
  ids[n] = ARGV[i]
end
local claimed = call('ZMSCORE', prepare, unpack(ids))
local stored = ARGV[5] == 'keep' and call('ZMSCORE', store, unpack(ids)) or {}

local members = {}
local first = math.huge -- the lowest score
local m = 0
for i = 1, n do
  local score = ARGV[2 * i + 6]
  if not claimed[i] and not (stored[i] and stored[i] + 0 <= score + 0) then
    members[m + 1], members[m + 2] = score, ids[i]
    m = m + 2
    if score + 0 < first then
      first = score + 0
    end
  end
end
if m == 0 then
  call('ZREM', dead, unpack(ids))
  return {n}
end

local before = call('ZRANGE', store, 0, 0, 'WITHSCORES')[2]
local added
if before then
  added = call('ZADD', store, unpack(members))
else
  added = call('ZADD', store, members[1], ARGV[4], unpack(members)) - 1
  call('ZREM', store, ARGV[4])
  call('EXPIRE', store, ARGV[7])
end
call('ZREM', dead, unpack(ids)) -- after ZADD: a full Redis refuses only the first write of a script
first = math.floor(first / 1000)
if not before or first < math.floor(before / 1000) then
  call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', first) .. ' ' .. ARGV[3])
end
return {n - added}
