-- Places held for claimants: a hash by claimant of "bucket:amount" in order of time. They are counted in the window's
-- h fields; here stands only whose they are.
local PLACES_OF_A_CLAIMANT = 256
local PLACES_OF_A_COUNTER = 4096
local AHEAD_US = 120000000

local function load_places(key, claimant, line, k)
    local places = {}
    local text = redis.call('HGET', key, claimant)
    for bucket, amount in string.gmatch(text or '', '(%d+):(%d+)') do
        bucket = tonumber(bucket)
        if bucket + line.hold >= k then
            local high, low = parse(amount)
            places[#places + 1] = { bucket, high, low }
        end
    end
    return places
end

local function save_places(key, claimant, places, line)
    if #places == 0 then
        redis.call('HDEL', key, claimant)
        return
    end
    table.sort(places, function(a, b) return a[1] < b[1] end)
    local texts = {}
    for i, place in ipairs(places) do texts[i] = string.format('%.0f:', place[1]) .. digits(place[2], place[3]) end
    redis.call('HSET', key, claimant, table.concat(texts, ' '))
    redis.call('EXPIRE', key, math.ceil(line.bucket_us * (line.hold + 2) / 1000000) + SPARE_SECONDS)
end

local function held_now(places, k)
    local h, l = 0, 0
    for _, place in ipairs(places) do
        if place[1] <= k then h, l = add(h, l, place[2], place[3]) end
    end
    return h, l
end

-- Turn up to `high, low` of what is held now into leases; give them as { end bucket, high, low } and what is left.
local function claim(window, places, line, k, high, low)
    local leases, kept = {}, {}
    for _, place in ipairs(places) do
        if place[1] > k or (high == 0 and low == 0) then
            kept[#kept + 1] = place
        else
            local h, l = min(high, low, place[2], place[3])
            local rest_h, rest_l = sub(place[2], place[3], h, l)
            local is_whole = rest_h == 0 and rest_l == 0
            change(window, 'h', place[1], -h - (l > 0 and 1 or 0), l > 0 and BASE - l or 0, is_whole and -1 or 0)
            local e = math.min(k + line.lease, place[1] + line.hold)
            change(window, 'l', e, h, l)
            leases[#leases + 1] = { e, h, l }
            high, low = sub(high, low, h, l)
            if not is_whole then kept[#kept + 1] = { place[1], rest_h, rest_l } end
        end
    end
    return leases, kept, high, low
end

local function has_place_left(window, places, most)
    local count = 0
    for _, value in pairs(window.h) do count = count + value[3] end
    return #places < math.min(most or PLACES_OF_A_CLAIMANT, PLACES_OF_A_CLAIMANT) and count < PLACES_OF_A_COUNTER
end

local function give_up(window, place)
    change(window, 'h', place[1], -place[2] - (place[3] > 0 and 1 or 0), place[3] > 0 and BASE - place[3] or 0, -1)
end

-- The first place not yet due that has room for what is needed.
local function next_place(line)
    for _, place in ipairs(line.places) do
        if place[1] > line.k and not less(place[2], place[3], line.need[1], line.need[2]) then return place[1] end
    end
    return nil
end
