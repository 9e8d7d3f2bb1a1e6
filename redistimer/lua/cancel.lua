-- cancel takes a task out of a slot's store queue, unless it is claimed: then it may be running, and stays.
--
-- KEYS     1 store queue, 2 prepare queue
-- ARGV     1 job_id
-- Returns  {0} the slot does not have it, {1} it was in the store queue and is out, {2} it is claimed
--
-- Atomic, because a claim between the two looks would make a claimed task one that the slot does not have.

local removed = redis.call('ZREM', KEYS[1], ARGV[1])
if redis.call('ZSCORE', KEYS[2], ARGV[1]) then
  return {2}
end
return {removed}
