-- arm puts tasks into a slot's store queue, so that they run in time.
--
-- KEYS     1 store queue, 2 prepare queue, 3 dead queue
-- ARGV     1 wake-up channel, 2 partition, 3 topic; 4 a member too long for a listpack
--          5 a score, "": members that are stored already get the new score; else only if it is lower, and their own is
--          higher than this score
--          6 seconds after which the queue expires
--          7… score, job_id of each member
-- Returns  {members that were in the store or the prepare queue before; those of them in the prepare queue}
--
-- A claimed task does not change: the process that claimed it will settle it. The script is atomic for two reasons. A
-- claim between reading the prepare queue and the ZADD would leave the id in both queues, and the task would run twice.
-- And the head must be compared with the one that this call replaced, or a wake-up would be lost.
--
-- Redis begins a sorted set as a listpack, in which each ZADD searches from the front. A new store queue will grow: the
-- long member makes it a skiplist from the start.

local call = redis.call
local store, prepare, dead = KEYS[1], KEYS[2], KEYS[3]

local ids = {}
local n = 0
for i = 8, #ARGV, 2 do
  n = n + 1
  ids[n] = ARGV[i]
end
local claimed = call('ZMSCORE', prepare, unpack(ids))
local keep = ARGV[5] ~= '' and ARGV[5] + 0
local stored = keep and call('ZMSCORE', store, unpack(ids)) or {}

local members = {}
local first = math.huge -- the lowest score
local m, held = 0, 0
for i = 1, n do
  local score = ARGV[2 * i + 5]
  if claimed[i] then
    held = held + 1
  elseif not (stored[i] and stored[i] + 0 <= math.max(score + 0, keep)) then
    members[m + 1], members[m + 2] = score, ids[i]
    m = m + 2
    if score + 0 < first then
      first = score + 0
    end
  end
end
if m == 0 then
  call('ZREM', dead, unpack(ids))
  return {n, held}
end

local before = call('ZRANGE', store, 0, 0, 'WITHSCORES')[2]
local added
if before then
  added = call('ZADD', store, unpack(members))
else
  added = call('ZADD', store, members[1], ARGV[4], unpack(members)) - 1
  call('ZREM', store, ARGV[4])
end
call('EXPIRE', store, ARGV[6])
call('ZREM', dead, unpack(ids)) -- after ZADD: a full Redis refuses only the first write of a script
first = math.floor(first / 1000)
if not before or first < math.floor(before / 1000) then
  call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', first) .. ' ' .. ARGV[3])
end
return {n - added, held}
