-- try calls each command that the other scripts call, on keys without meaning that end by themselves.
--
-- KEYS     1 a string, 2 a sorted set
-- ARGV     1 the wake channel
--
-- A server may answer, and lack a command or a right: then some scripts would fail, and others not.

local call = redis.call
call('TIME')
call('SET', KEYS[1], '1', 'PX', 60000)
call('GET', KEYS[1])
call('EXISTS', KEYS[1])
call('ZADD', KEYS[2], 1, '1', 2, '2')
call('EXPIRE', KEYS[2], 60)
call('ZMSCORE', KEYS[2], '1')
call('ZCARD', KEYS[2])
call('ZCOUNT', KEYS[2], 0, 1)
call('ZRANGE', KEYS[2], 0, 0)
call('ZRANGEBYSCORE', KEYS[2], 0, 1)
call('ZREMRANGEBYRANK', KEYS[2], 0, 0)
call('ZREM', KEYS[2], '2')
call('PUBLISH', ARGV[1], '')
return 1
