-- A sliding window: a hash of amounts by bucket. c<n>: charged in bucket n, counts in the windows that end in n to
-- n + B. l<e>: leased or charged at an uncertain moment up to bucket e, counts until e + B. h<j>: "count amount" of
-- places held from bucket j on, for `hold` buckets; counts in j to j + hold + B until claimed, and not at all after
-- that time. x: when a request was last turned away. o<name>: what of c and l ends with a gateway (open.lua). o@data:
-- "name ", which data this was counted in, and no charges or leases: under a new name everybody reports all again.
local SHORT_US = 1000000
local SPARE_SECONDS = 6 * 3600  -- a key is kept for longer than it counts: the server's clock may be set forward

local DATA_FIELD = 'o@data'  -- no gateway's name begins with @; to older scripts it is a gateway that is dead

local function is_of_other_data(flat, data_name)
    for i = 1, #flat, 2 do
        if flat[i] == DATA_FIELD then return string.match(flat[i + 1], '^(%S+) ') ~= data_name end
    end
    return false
end

local function load_window(key, places_key, data_name)
    local window = { key = key, c = {}, l = {}, h = {}, o = {}, leased = {}, short = 0, changed = {} }
    local flat = redis.call('HGETALL', key)
    if is_of_other_data(flat, data_name) then
        redis.call('DEL', key, places_key)
        flat = {}
    end
    for i = 1, #flat, 2 do
        local kind, name = string.sub(flat[i], 1, 1), string.sub(flat[i], 2)
        local bucket = tonumber(name)
        if kind == 'x' then
            window.short = tonumber(flat[i + 1])
        elseif flat[i] == DATA_FIELD then
            window.is_named = true
        elseif kind == 'o' then
            window.o[name] = flat[i + 1]
        elseif kind == 'h' then
            local count, amount = string.match(flat[i + 1], '^(%d+) (%d+)$')
            local high, low = parse(amount)
            window.h[bucket] = { high, low, tonumber(count) }
        else
            local high, low = parse(flat[i + 1])
            window[kind][bucket] = { high, low }
        end
    end
    return window
end

local function change(window, kind, bucket, high, low, count)
    local old = window[kind][bucket] or { 0, 0, 0 }
    local h, l = add(old[1], old[2], high, low)
    h, l = not_negative(h, l)
    window[kind][bucket] = { h, l, (old[3] or 0) + (count or 0) }
    window.changed[kind .. string.format('%.0f', bucket)] = window[kind][bucket]
end

-- Drop what counts in no window from bucket k on.
local function age(window, line, k)
    for bucket in pairs(window.c) do
        if bucket < k - line.buckets then
            window.c[bucket] = nil
            window.changed['c' .. string.format('%.0f', bucket)] = false
        end
    end
    for bucket in pairs(window.l) do
        if bucket < k - line.buckets then
            window.l[bucket] = nil
            window.changed['l' .. string.format('%.0f', bucket)] = false
        end
    end
    for bucket in pairs(window.h) do
        if bucket + line.hold < k then
            window.h[bucket] = nil
            window.changed['h' .. string.format('%.0f', bucket)] = false
        end
    end
end

local function save_window(window, line, data_name)
    local set, gone = {}, {}
    for field, value in pairs(window.changed) do
        if not value or (value[1] == 0 and value[2] == 0) then
            gone[#gone + 1] = field
        elseif type(value) == 'string' then
            set[#set + 1] = field
            set[#set + 1] = value
        else
            local text = digits(value[1], value[2])
            if string.sub(field, 1, 1) == 'h' then text = string.format('%.0f ', math.max(value[3], 1)) .. text end
            set[#set + 1] = field
            set[#set + 1] = text
        end
    end
    for i = 1, #gone, 1000 do redis.call('HDEL', window.key, unpack(gone, i, math.min(i + 999, #gone))) end
    for i = 1, #set, 1000 do redis.call('HSET', window.key, unpack(set, i, math.min(i + 999, #set))) end
    if window.is_short then redis.call('HSET', window.key, 'x', string.format('%.0f', window.short)) end
    if #set > 0 or window.is_short then
        if not window.is_named then
            redis.call('HSET', window.key, DATA_FIELD, data_name .. ' ' .. cmsgpack.pack({ {}, {} }))
            window.is_named = true
        end
        local seconds = math.ceil(line.bucket_us * (line.buckets + line.hold + 2) / 1000000) + SPARE_SECONDS
        redis.call('EXPIRE', window.key, seconds)
    end
end

local function used_at(window, line, w)
    local h, l = 0, 0
    for _, value in pairs(window.c) do h, l = add(h, l, value[1], value[2]) end
    for _, value in pairs(window.l) do h, l = add(h, l, value[1], value[2]) end
    for bucket, value in pairs(window.h) do
        if bucket <= w then h, l = add(h, l, value[1], value[2]) end
    end
    return h, l
end

-- The course of what counts from bucket k on: segments { first bucket, high, low }, the last without an end.
local function course(window, line, k)
    local events = {}
    local function leaves(bucket, value) events[#events + 1] = { bucket, -1, value } end
    for n, value in pairs(window.c) do leaves(n + line.buckets + 1, value) end
    for e, value in pairs(window.l) do leaves(e + line.buckets + 1, value) end
    for j, value in pairs(window.h) do
        if j > k then events[#events + 1] = { j, 1, value } end
        leaves(j + line.hold + line.buckets + 1, value)
    end
    table.sort(events, function(a, b) return a[1] < b[1] end)
    local h, l = used_at(window, line, k)
    local segments = { { k, h, l } }
    for _, event in ipairs(events) do
        if event[2] > 0 then h, l = add(h, l, event[3][1], event[3][2])
        else h, l = sub(h, l, event[3][1], event[3][2]) end
        local last = segments[#segments]
        if last[1] == event[1] then last[2], last[3] = h, l
        else segments[#segments + 1] = { event[1], h, l } end
    end
    return segments
end

-- What may still be leased from bucket k on, in view of the places held for later. Negative where it is above.
local function room_of(window, line, k)
    local h, l = used_at(window, line, k)
    for _ in pairs(window.h) do
        for _, segment in ipairs(course(window, line, k)) do
            if segment[1] <= k + line.lease + line.buckets and less(h, l, segment[2], segment[3]) then
                h, l = segment[2], segment[3]
            end
        end
        break
    end
    return sub(line.amount[1], line.amount[2], h, l)
end

-- The first bucket, not before `from`, from which an amount could be held.
local function earliest(segments, line, from)
    local function aligned(bucket) return math.ceil(bucket / line.align) * line.align end
    local free_h, free_l = sub(line.amount[1], line.amount[2], line.need[1], line.need[2])
    local start = from
    if line.align > 1 then start = aligned(from) end
    for i, segment in ipairs(segments) do
        local next_one = segments[i + 1]
        if not next_one or next_one[1] > start then
            if less(free_h, free_l, segment[2], segment[3]) then
                if not next_one then return nil end
                start = aligned(next_one[1])
            elseif not next_one or start + line.hold + line.buckets < next_one[1] then
                return start
            end
        end
    end
    return nil
end
