-- Who is there. KEYS[1]: this gateway's last batch; KEYS[2]: every gateway's "until life incarnation" by name;
-- KEYS[3]: which Redis data this is, which server's history (`run`), until when nothing is granted because they were
-- lost, what time it is, and by gateway "lease:<name>": "until id incarnation" of its lease on budgets.
-- A gateway whose `until` has passed lives no longer: what it was granted under that life is void. What it was granted
-- of budgets is void when its lease has ended, which takes longer and counts only time in which Redis answered.
local GATEWAY_SECONDS = 86400
local DATA_SECONDS = 400 * 86400
local SILENCE_US = 2500000  -- living gateways send something every 2 s
local DIFFERENCE_US = 500000
local PATIENCE_US = 3000000

-- Whatever is set at the server: this clock never goes back, and does not jump forward. What it is ahead of or behind
-- the server's is kept as `offset`. `expected_us` is what a gateway's monotonic clock makes of the last answer, 0 where
-- it had none: where the server disagrees, it was set, or the batch has lain in a socket. A gateway that knows better
-- brings the time forward again. `served_us` counts the time in which anybody was answered.
local function time_of(data, told_us, expected_us)
    local server_us = told_us
    if server_us == 0 then
        local time = redis.call('TIME')
        server_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
    end
    local seen_us, served_us = tonumber(data.seen or '0'), tonumber(data.served or '0')
    local now_us = server_us + tonumber(data.offset or '0')
    if expected_us > 0 and math.abs(now_us - expected_us) > DIFFERENCE_US then now_us = expected_us end
    now_us = math.max(now_us, seen_us)
    local passed_us = seen_us > 0 and now_us - seen_us or 0
    return {
        now_us = now_us, seen_us = seen_us, passed_us = passed_us, offset_us = now_us - server_us,
        served_us = served_us + math.min(passed_us, SILENCE_US),
    }
end

-- A gateway that is new cannot tell a clock that was set from a time without answers. Those that lived before can.
local function is_in_doubt(clock, name, expected_us, waited_us)
    if expected_us > 0 or clock.passed_us <= SILENCE_US or waited_us >= PATIENCE_US then return false end
    local flat = redis.call('HGETALL', KEYS[2])
    for i = 1, #flat, 2 do
        if flat[i] ~= name and tonumber(string.match(flat[i + 1], '^(%d+) ')) > clock.seen_us then return true end
    end
    return false
end

local function load_data()
    local data, flat = {}, redis.call('HGETALL', KEYS[3])
    for i = 1, #flat, 2 do data[flat[i]] = flat[i + 1] end
    return data
end

local function lease_in(data, name)
    local till, id, incarnation = string.match(data['lease:' .. name] or '', '^(%d+) (%S+) (%S+)$')
    return till and { till_us = tonumber(till), id = id, incarnation = incarnation }
end

local function known_gateways(data, clock)
    local gateways, alive = {}, 0
    local flat = redis.call('HGETALL', KEYS[2])
    for i = 1, #flat, 2 do
        local till, life, incarnation = string.match(flat[i + 1], '^(%d+) (%S+) (%S+)$')
        till = tonumber(till)
        if till + GATEWAY_SECONDS * 1000000 < clock.now_us then
            redis.call('HDEL', KEYS[2], flat[i])
            redis.call('HDEL', KEYS[3], 'lease:' .. flat[i])
        else
            local is_alive, lease = till > clock.now_us, lease_in(data, flat[i])
            local holds = lease and lease.till_us > clock.served_us
            gateways[flat[i]] = {
                life = life, incarnation = incarnation, is_alive = is_alive, lease = holds and lease.id or nil,
            }
            if is_alive then alive = alive + 1 end
        end
    end
    return gateways, alive
end

-- Whether what a gateway was granted may still be used: its life goes on, or its lease where this is a lease's.
local function is_valid(grant, gateway)
    if not grant or not gateway then return false end
    return (gateway.is_alive and gateway.life == grant[3]) or (grant[4] ~= nil and grant[4] == gateway.lease)
end

local function new_name(old, now_us)
    return string.format('%.0f-%s', now_us, redis.sha1hex(KEYS[1] .. string.format('%.0f', now_us) .. (old or '')))
end

-- Which server's history this is: it changes when a replica is promoted and when a server starts.
local function history()
    local info = redis.pcall('INFO', 'replication')
    return type(info) == 'string' and string.match(info, 'master_replid:(%w+)') or ''
end

-- Return which data this is and for how long it is quiet. The data get a new name, and everybody who lives reports all
-- that it has before anybody is granted anything, if a gateway knew other data or had answers to batches that these
-- data do not have (a replica was promoted that lagged, or a server came back with an old copy). If no replica
-- confirms batches, a promoted server is quiet until such a gateway had time to come.
local function data_of(data, batch, quiet_us, now_us)
    local name, quiet, known = data.name, tonumber(data.quiet or '0'), batch.data
    local quiet_before = quiet
    local has_lost = name and known == name and batch.has_lost
    if not name or has_lost then
        name = new_name(name, now_us)
        redis.call('HSET', KEYS[3], 'name', name)
        if has_lost then quiet = now_us + quiet_us end
    end
    if known ~= '' and known ~= name and quiet == 0 then quiet = now_us + quiet_us end
    if batch.fears_promotion then
        local run = history()
        if data.run and data.run ~= run then quiet = math.max(quiet, now_us + 1.5 * quiet_us) end
        if data.run ~= run then redis.call('HSET', KEYS[3], 'run', run) end
    end
    if quiet ~= quiet_before then redis.call('HSET', KEYS[3], 'quiet', string.format('%.0f', quiet)) end
    redis.call('EXPIRE', KEYS[3], DATA_SECONDS)
    return name, math.max(quiet - now_us, 0)
end

-- Go on with the lease on budgets, or begin another where it has ended or was another process'. Give its id.
local function renew_lease(data, batch, clock, lease_us)
    local old, id = lease_in(data, batch.name), nil
    if old and old.incarnation == batch.incarnation and old.till_us > clock.served_us then
        id = old.id
    else
        id = string.format('%.0f-', clock.now_us) .. batch.incarnation
    end
    local till = string.format('%.0f %s %s', clock.served_us + lease_us, id, batch.incarnation)
    redis.call('HSET', KEYS[3], 'seen', string.format('%.0f', clock.now_us), 'offset',
        string.format('%.0f', clock.offset_us), 'served', string.format('%.0f', clock.served_us),
        'lease:' .. batch.name, till)
    return id
end

local function renew(name, life, incarnation, till_us)
    redis.call('HSET', KEYS[2], name, string.format('%.0f %s %s', till_us, life, incarnation))
    redis.call('EXPIRE', KEYS[2], DATA_SECONDS)
end
