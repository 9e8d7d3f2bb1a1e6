-- settle ends claims (phase two). Finished tasks leave the slot, also its dead queue, and the dead of them go into the dead
-- queue. Tasks that are to run again go back into the store queue, and so do claims that are given back.
--
-- KEYS     1 store queue, 2 prepare queue, 3 dead queue
-- ARGV     1 wake-up channel, 2 partition, 3 topic; 4 number of tasks that are done, 5 that are dead, 6 that are to run again
--          7 seconds after which the queue expires, 8 for the dead queue; 9 greatest size of the dead queue
--          10 a member too long for a listpack; see arm.lua
--          11… job_id of each that is done; then time of death in ms, job_id of each that is dead;
--          then score, job_id of each to run again; then score, job_id of each claim to give back
-- Returns  {given back}: how many were claimed still; the others were settled meanwhile, and do not change
--
-- But for claims that are given back, it works in the same way for tasks that are in neither queue or in the store queue:
-- the outcome belongs to the task, not to the claim. The script is atomic, because a task between the queues would be lost
-- if its slot's owner stopped there, and because the head must be compared with the one that this call replaced, or a
-- wake-up would be lost. A member that is not a job_id (added by hand) is removed instead of given back.

local call = redis.call
local store, prepare, dead = KEYS[1], KEYS[2], KEYS[3]

local function head()
  local first = call('ZRANGE', store, 0, 0, 'WITHSCORES')
  return first[2] and math.floor(first[2] / 1000) -- not tonumber: miniredis's cannot read 2e+15
end

-- ids returns the job_ids of pairs in ARGV.
local function ids(first, last)
  local list = {}
  for i = first + 1, last, 2 do
    list[#list + 1] = ARGV[i]
  end
  return list
end

local done = 11
local died = done + tonumber(ARGV[4])
local back = died + 2 * tonumber(ARGV[5])
local given = back + 2 * tonumber(ARGV[6])
local before = back <= #ARGV and head()

if done < died then
  call('ZREM', prepare, unpack(ARGV, done, died - 1))
  call('ZREM', store, unpack(ARGV, done, died - 1))
  call('ZREM', dead, unpack(ARGV, done, died - 1))
end
if died < back then
  local list = ids(died, back - 1)
  call('ZREM', prepare, unpack(list))
  call('ZREM', store, unpack(list))
  call('ZADD', dead, unpack(ARGV, died, back - 1))
  call('ZREMRANGEBYRANK', dead, 0, -1 - ARGV[9]) -- the newest stay
  call('EXPIRE', dead, ARGV[8])
end
local members, givenBack = {}, 0
for i = back, given - 1 do
  members[#members + 1] = ARGV[i]
end
if back < given then
  local list = ids(back, given - 1)
  call('ZREM', prepare, unpack(list))
  call('ZREM', dead, unpack(list))
end
if given <= #ARGV then
  local list = ids(given, #ARGV)
  for i, claimed in ipairs(call('ZMSCORE', prepare, unpack(list))) do
    if claimed and string.find(list[i], '^%d+$') then
      members[#members + 1], members[#members + 2] = ARGV[given + 2 * i - 2], list[i]
      givenBack = givenBack + 1
    end
  end
  call('ZREM', prepare, unpack(list))
end
if #members > 0 then
  if call('EXISTS', store) == 1 then
    call('ZADD', store, unpack(members))
  else
    call('ZADD', store, members[1], ARGV[10], unpack(members))
    call('ZREM', store, ARGV[10])
  end
  call('EXPIRE', store, ARGV[7])
  local after = head()
  if not before or after < before then
    call('PUBLISH', ARGV[1], ARGV[2] .. ' ' .. string.format('%.0f', after) .. ' ' .. ARGV[3])
  end
end
return {givenBack}
