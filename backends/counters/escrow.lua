-- An amount that gateways draw on in advance: a hash with, by gateway, s<name>: what it settled in all, and g<name>:
-- "life granted", all it may use, settled and reserved included. Both are absolute: to say them again changes
-- nothing. v<name>: the lease that this was granted under, where it outlives the gateway's life. t: when anything was
-- last in use, by the clock that counts.
-- Where the gateway has neither that life nor that lease any more, what it had settled is all that counts.
local SHORT_OF_LEASES_US = 12000000  -- longer than any gateway that holds a lease is silent about it

local function load_escrow(key, keep_seconds, now_us)
    local escrow = { key = key, settled = {}, granted = {}, promised = { 0, 0 }, short = 0 }
    local used_us = tonumber(redis.call('HGET', key, 't') or '0')
    if used_us > 0 and used_us + keep_seconds * 1000000 < now_us then
        redis.call('DEL', key)
        return escrow
    end
    escrow.is_known = used_us > 0
    local leases = {}
    local flat = redis.call('HGETALL', key)
    for i = 1, #flat, 2 do
        local kind, name = string.sub(flat[i], 1, 1), string.sub(flat[i], 2)
        if kind == 'x' then
            escrow.short = tonumber(flat[i + 1])
        elseif kind == 's' then
            escrow.settled[name] = { parse(flat[i + 1]) }
        elseif kind == 'g' then
            local life, amount = string.match(flat[i + 1], '^(%S+) (%d+)$')
            local high, low = parse(amount)
            escrow.granted[name] = { high, low, life }
        elseif kind == 'v' then
            leases[name] = flat[i + 1]
        end
    end
    for name, grant in pairs(escrow.granted) do grant[4] = leases[name] end
    return escrow
end

-- What all others hold, and what they have settled.
local function of_others(escrow, me, gateways)
    local h, l, settled_h, settled_l = 0, 0, 0, 0
    for name, value in pairs(escrow.settled) do
        if name ~= me then
            settled_h, settled_l = add(settled_h, settled_l, value[1], value[2])
            if not is_valid(escrow.granted[name], gateways[name]) then
                h, l = add(h, l, value[1], value[2])
            end
        end
    end
    for name, grant in pairs(escrow.granted) do
        if name ~= me and is_valid(grant, gateways[name]) then
            h, l = add(h, l, grant[1], grant[2])
        end
    end
    return h, l, settled_h, settled_l
end

local function save_escrow(escrow, me, life, line, used_us)
    local settled, granted = escrow.settled[me], escrow.granted[me]
    redis.call('HSET', escrow.key, 's' .. me, digits(settled[1], settled[2]),
        'g' .. me, life .. ' ' .. digits(granted[1], granted[2]))
    if granted[4] then redis.call('HSET', escrow.key, 'v' .. me, granted[4]) end
    if escrow.is_short then redis.call('HSET', escrow.key, 'x', string.format('%.0f', escrow.short)) end
    local is_in_use = granted[1] ~= settled[1] or granted[2] ~= settled[2]
    if is_in_use or line.has_settled or not escrow.is_known then
        escrow.is_known = true
        redis.call('HSET', escrow.key, 't', string.format('%.0f', used_us))
        redis.call('EXPIRE', escrow.key, line.keep_seconds + SPARE_SECONDS)
    end
end
