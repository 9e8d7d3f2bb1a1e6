-- recover rolls back claims that were never settled: each task goes from the prepare queue to the store queue, due at
-- once and otherwise unchanged.
--
-- KEYS     1 store queue, 2 prepare queue
-- ARGV     1 wake-up channel, 2 partition, 3 topic, 4 seconds after which an unused queue expires
--          5… job_id of each claim
-- Returns  {"job_id score …" as they are in the store queue now, "end"}
--
-- The row of a task has the number of its failures. A claim is not a run, so none is counted here. The script is atomic,
-- because a claim that is settled between the check and the move would be restored, and because an id must never be in
-- neither queue. A member that is not a job_id (added by hand) is removed.

local call = redis.call
local store, prepare = KEYS[1], KEYS[2]
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function head()
  local first = call('ZRANGE', store, 0, 0, 'WITHSCORES')
  return first[2] and math.floor(first[2] / 1000) -- not tonumber: miniredis's cannot read 2e+15
end

local scores = call('ZMSCORE', prepare, unpack(ARGV, 5))
local recovered, members = {}, {}
local n = 0
for i, claimed in ipairs(scores) do
  local id = ARGV[i + 4]
  if claimed and string.find(id, '^%d+$') then
    local attempts = math.fmod(claimed + 0, 1000)
    if not (attempts >= 0) then
      attempts = 0 -- set by hand: negative, or not a number
    end
    local score = string.format('%.0f', now * 1000 + attempts)
    members[n + 1], members[n + 2] = score, id
    recovered[n + 1], recovered[n + 2] = id, score
    n = n + 2
  end
end
call('ZREM', prepare, unpack(ARGV, 5))
if n > 0 then
  local before = head()
  call('ZADD', store, unpack(members))
  if not before then
    call('EXPIRE', store, ARGV[4])
  end
  local after = head()
  if not before or after < before then
    call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', after) .. ' ' .. ARGV[3])
  end
end
return {table.concat(recovered, ' '), 'end'}
