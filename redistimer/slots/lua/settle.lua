-- settle ends claims (phase two). Finished tasks leave the slot, also its dead queue, and the dead of them go into the dead
-- queue. Tasks that are to run again go back into the store queue.
--
-- KEYS     1 store queue, 2 prepare queue, 3 dead queue
-- ARGV     1 wake-up channel, 2 partition, 3 topic, 4 number of tasks that are done, 5 number that are dead
--          6 seconds after which the queue expires, 7 for the dead queue; 8 greatest size of the dead queue
--          9 a member too long for a listpack; see arm.lua
--          10… job_id of each that is done; then time of death in ms, job_id of each that is dead;
--          then score, job_id of each to run again
-- Returns  {1}
--
-- It works in the same way for tasks that are in neither queue or in the store queue: the outcome belongs to the task,
-- not to the claim. The script is atomic, because a task between the queues would be lost if its slot's owner stopped
-- there, and because the head must be compared with the one that this call replaced, or a wake-up would be lost.

local store, prepare, dead = KEYS[1], KEYS[2], KEYS[3]

local function head()
  local first = redis.call('ZRANGE', store, 0, 0, 'WITHSCORES')
  return first[2] and math.floor(first[2] / 1000) -- not tonumber: miniredis's cannot read 2e+15
end

-- ids returns the job_ids of pairs in ARGV.
local function ids(first, last)
  local list = {}
  for i = first + 1, last, 2 do
    list[#list + 1] = ARGV[i]
  end
  return unpack(list)
end

local done = 10
local died = done + tonumber(ARGV[4])
local back = died + 2 * tonumber(ARGV[5])
local again = back <= #ARGV
local before = again and head()

if done < died then
  redis.call('ZREM', prepare, unpack(ARGV, done, died - 1))
  redis.call('ZREM', store, unpack(ARGV, done, died - 1))
  redis.call('ZREM', dead, unpack(ARGV, done, died - 1))
end
if died < back then
  redis.call('ZREM', prepare, ids(died, back - 1))
  redis.call('ZREM', store, ids(died, back - 1))
  redis.call('ZADD', dead, unpack(ARGV, died, back - 1))
  redis.call('ZREMRANGEBYRANK', dead, 0, -1 - ARGV[8]) -- the newest stay
  redis.call('EXPIRE', dead, ARGV[7])
end
if again then
  redis.call('ZREM', prepare, ids(back, #ARGV))
  redis.call('ZREM', dead, ids(back, #ARGV))
  if redis.call('EXISTS', store) == 1 then
    redis.call('ZADD', store, unpack(ARGV, back))
  else
    redis.call('ZADD', store, ARGV[back], ARGV[9], unpack(ARGV, back))
    redis.call('ZREM', store, ARGV[9])
  end
  redis.call('EXPIRE', store, ARGV[6])
  local after = head()
  if not before or after < before then
    redis.call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', after) .. ' ' .. ARGV[3])
  end
end
return {1}
