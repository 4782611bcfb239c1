-- Who is there. KEYS[1]: this gateway's last batch; KEYS[2]: every gateway's "until life incarnation" by name;
-- KEYS[3]: which Redis data this is, and until when nothing is granted because they were lost.
-- A gateway whose `until` has passed lives no longer: what it was granted under that life is void.
local GATEWAY_SECONDS = 86400
local DATA_SECONDS = 400 * 86400

local function time_us(told_us)
    if told_us ~= 0 then return told_us end
    local time = redis.call('TIME')
    return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function known_gateways(now_us)
    local gateways, alive = {}, 0
    local flat = redis.call('HGETALL', KEYS[2])
    for i = 1, #flat, 2 do
        local till, life, incarnation = string.match(flat[i + 1], '^(%d+) (%S+) (%S+)$')
        till = tonumber(till)
        if till + GATEWAY_SECONDS * 1000000 < now_us then
            redis.call('HDEL', KEYS[2], flat[i])
        else
            local is_alive = till > now_us
            gateways[flat[i]] = { life = life, incarnation = incarnation, is_alive = is_alive }
            if is_alive then alive = alive + 1 end
        end
    end
    return gateways, alive
end

-- Give which data this is and whether it is quiet. Whoever knew other data makes it quiet for a while: all who
-- live are to tell what they had before anybody is granted anything.
local function data_of(known, quiet_us, now_us)
    local found = redis.call('HMGET', KEYS[3], 'name', 'quiet')
    local name, quiet = found[1], tonumber(found[2] or '0')
    if not name then
        name = string.format('%.0f-%s', now_us, redis.sha1hex(KEYS[1] .. string.format('%.0f', now_us)))
        redis.call('HSET', KEYS[3], 'name', name)
    end
    if known ~= '' and known ~= name and quiet == 0 then
        quiet = now_us + quiet_us
        redis.call('HSET', KEYS[3], 'quiet', string.format('%.0f', quiet))
    end
    redis.call('EXPIRE', KEYS[3], DATA_SECONDS)
    return name, math.max(quiet - now_us, 0)
end

local function renew(name, life, incarnation, till_us)
    redis.call('HSET', KEYS[2], name, string.format('%.0f %s %s', till_us, life, incarnation))
    redis.call('EXPIRE', KEYS[2], DATA_SECONDS)
end
