-- Keeps one answer of a tenant within its bound: what ends soonest goes first.
-- KEYS: what ends when (sorted set), sizes (hash; the empty name has the sum), the answer.
-- ARGV: what names of answers begin with, this answer's own part, the answer, its milliseconds, the bound in bytes.
local ends, sizes = KEYS[1], KEYS[2]
local ttl, bound = tonumber(ARGV[4]), tonumber(ARGV[5])
local ENTRY_BYTES = 200  -- that an answer takes besides
local MOST = 200  -- answers dropped at once: each takes microseconds, and nobody else is served meanwhile
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local sum = tonumber(redis.call('HGET', sizes, '') or '0')

local function drop(name)
  sum = sum - tonumber(redis.call('HGET', sizes, name) or '0')
  redis.call('ZREM', ends, name)
  redis.call('HDEL', sizes, name)
  redis.call('DEL', ARGV[1] .. name)
end

for _, name in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, MOST)) do
  drop(name)
end
drop(ARGV[2])
local size, left = #ARGV[3] + ENTRY_BYTES, MOST
while size <= bound and sum + size > bound and left > 0 do
  local first = redis.call('ZRANGE', ends, 0, 0)[1]
  if first then
    drop(first)
  else
    sum = 0  -- the server has dropped what says which there are
  end
  left = left - 1
end
local is_kept = sum + size <= bound
if is_kept then
  redis.call('SET', KEYS[3], ARGV[3], 'PX', ttl)
  redis.call('ZADD', ends, now + ttl, ARGV[2])
  redis.call('HSET', sizes, ARGV[2], size)
  sum = sum + size
end
redis.call('HSET', sizes, '', sum)
for _, key in ipairs({ends, sizes}) do
  if redis.call('PTTL', key) < ttl then
    redis.call('PEXPIRE', key, ttl)
  end
end
return is_kept and 1 or 0
