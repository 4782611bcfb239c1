-- One batch of a gateway: ARGV[1], in msgpack, is { name, incarnation, sequence, life, data, lifetime in us, quiet in
-- us, told time in us, items, expected time in us, time since it first asked in us, lease on budgets in us, last batch that
-- was answered, whether no replica confirms }. It is done once however often it comes: what comes again gets the same
-- answer, what comes late gets none. An item is { seeks, claimant, lines }; where it seeks, all its lines have room or none does.
local WINDOW, ESCROW = 1, 2

local function line_of(parts, item)
    if parts[1] == WINDOW then
        return {
            kind = WINDOW, key = KEYS[parts[2]], places_key = KEYS[parts[3]], amount = parts[4], buckets = parts[5],
            bucket_us = parts[6], lease = parts[7], hold = parts[8], align = parts[9], charges = parts[10],
            leases = parts[11], need = parts[12], want = parts[13], open_charges = parts[14], open_leases = parts[15],
        }
    end
    return {
        kind = ESCROW, key = KEYS[parts[2]], amount = parts[4], keep_seconds = parts[5], is_fresh = parts[6] == 1,
        rested_us = parts[7], base = parts[8], own = parts[9], reserved = parts[10], need = parts[11], want = parts[12],
        is_leased = parts[13] == 1,
    }
end

local function lease(window, line, k, high, low, leases)
    if high < 0 or (high == 0 and low == 0) then return end
    change(window, 'l', k + line.lease, high, low)
    leases[#leases + 1] = { k + line.lease, high, low }
end

-- What a gateway may have beyond what it needs: a share of the room, so that the last of it is not spread thin.
local function extra_of(room_h, room_l, alive)
    if room_h < 0 then return 0, 0 end
    return part(room_h, room_l, 2 * math.max(alive, 1))
end

local function open_window(line, batch, item)
    local window = batch.counters[line.key]
    if not window then
        window = load_window(line.key, line.places_key, batch.data_name)
        take_back(window, batch.gateways)
        batch.counters[line.key] = window
    end
    line.counter, line.k = window, math.floor(batch.now_us / line.bucket_us)
    age(window, line, line.k)
    for _, delta in ipairs(line.charges) do
        local bucket = math.min(delta[1], line.k)
        if bucket >= line.k - line.buckets then change(window, 'c', bucket, delta[2], delta[3]) end
    end
    for _, delta in ipairs(line.leases) do
        if delta[1] >= line.k - line.buckets then change(window, 'l', delta[1], delta[2], delta[3]) end
    end
    line.room_h, line.room_l = room_of(window, line, line.k)
    if batch.quiet_us > 0 then line.room_h, line.room_l = min(line.room_h, line.room_l, 0, 0) end
    local held_h, held_l = 0, 0
    if item.claimant ~= '' then
        line.places = load_places(line.places_key, item.claimant, line, line.k)
        if item.claims then held_h, held_l = held_now(line.places, line.k) end
    end
    local h, l = add(line.room_h, line.room_l, held_h, held_l)
    line.has_room = not less(h, l, line.need[1], line.need[2])
end

-- Who comes before its time is not kept out by what is held for it later: give up as little of that as it takes.
-- Leaves all of it where even without it there is no room.
local function make_way(line)
    local window, given, kept = line.counter, {}, {}
    local held_h, held_l = held_now(line.places, line.k)
    local has_room = false
    for _, place in ipairs(line.places) do
        if has_room or place[1] <= line.k then
            kept[#kept + 1] = place
        else
            give_up(window, place)
            given[#given + 1] = place
            line.room_h, line.room_l = room_of(window, line, line.k)
            local h, l = add(line.room_h, line.room_l, held_h, held_l)
            has_room = not less(h, l, line.need[1], line.need[2])
        end
    end
    line.given = given
    if has_room then
        line.places, line.has_room = kept, true
    else
        for _, place in ipairs(given) do change(window, 'h', place[1], place[2], place[3], 1) end
        line.room_h, line.room_l = room_of(window, line, line.k)
        line.given = {}
    end
end

-- Where another line has no room after all, what was given up is held again.
local function hold_again(line)
    for _, place in ipairs(line.given or {}) do
        change(line.counter, 'h', place[1], place[2], place[3], 1)
        line.places[#line.places + 1] = place
        line.has_room = false
    end
    table.sort(line.places, function(a, b) return a[1] < b[1] end)
    line.room_h, line.room_l = room_of(line.counter, line, line.k)
    line.given = {}
end

local function open_escrow(line, batch)
    local escrow = batch.counters[line.key] or load_escrow(line.key, line.keep_seconds, batch.now_us)
    batch.counters[line.key] = escrow
    line.counter = escrow
    local base_h, base_l = line.base[1], line.base[2]
    local stored = escrow.settled[batch.name]
    if line.is_fresh and stored and less(base_h, base_l, stored[1], stored[2]) then
        base_h, base_l = stored[1], stored[2]
    end
    line.base_h, line.base_l = base_h, base_l
    local settled_h, settled_l = add(base_h, base_l, line.own[1], line.own[2])
    line.has_settled = not stored or stored[1] ~= settled_h or stored[2] ~= settled_l
    escrow.settled[batch.name] = { settled_h, settled_l }
    line.sent_h, line.sent_l = add(settled_h, settled_l, line.reserved[1], line.reserved[2])
    -- What requests before this one in the same batch were granted is as good as reserved.
    line.used_h, line.used_l = add(line.sent_h, line.sent_l, escrow.promised[1], escrow.promised[2])
    line.others_h, line.others_l, line.theirs_h, line.theirs_l = of_others(escrow, batch.name, batch.gateways)
    line.room_h, line.room_l = sub(line.amount[1], line.amount[2], line.others_h, line.others_l)
    line.room_h, line.room_l = sub(line.room_h, line.room_l, line.used_h, line.used_l)
    if batch.quiet_us > 0 then line.room_h, line.room_l = min(line.room_h, line.room_l, 0, 0) end
    line.has_room = not less(line.room_h, line.room_l, line.need[1], line.need[2])
end

local function finish_window(line, batch, item, is_granted)
    local window, k, leases = line.counter, line.k, {}
    if is_granted then
        local high, low = line.need[1], line.need[2]
        if item.claims and item.claimant ~= '' and (line.given or #line.places > 0) then
            leases, line.places, high, low = claim(window, line.places, line, k, high, low)
            save_places(line.places_key, item.claimant, line.places, line)
        end
        lease(window, line, k, high, low, leases)
    elseif item.seeks and not line.has_room then
        window.short, window.is_short = batch.now_us, true
    end
    local room_h, room_l = room_of(window, line, k)
    if (is_granted or line.has_room) and batch.quiet_us == 0 then
        local high, low = extra_of(room_h, room_l, batch.alive)
        high, low = min(high, low, line.want[1], line.want[2])
        lease(window, line, k, high, low, leases)
        room_h, room_l = sub(room_h, room_l, high, low)
    end
    local newest = 0
    for n, value in pairs(window.c) do
        if n > newest and (value[1] > 0 or value[2] > 0) then newest = n end
    end
    local used_h, used_l = used_at(window, line, k)
    for _, each in ipairs(leases) do window.leased[#window.leased + 1] = each end
    keep_open(window, line, batch)
    save_window(window, line, batch.data_name)
    window.changed, window.is_short = {}, false
    local is_short = batch.now_us - window.short < SHORT_US
    return { leases, { used_h, used_l }, newest, { room_h, room_l }, is_short and 1 or 0, line.alone_us or 0 }
end

-- Whether a request that finds too little could have it if all that others only hold were given back.
local function is_held_back(line)
    if not line.is_leased then return true end
    local h, l = sub(line.amount[1], line.amount[2], line.theirs_h, line.theirs_l)
    h, l = sub(h, l, line.used_h, line.used_l)
    return not less(h, l, line.need[1], line.need[2])
end

local function finish_escrow(line, batch, item, is_granted)
    local escrow, old = line.counter, line.counter.granted[batch.name]
    local spare_h, spare_l = 0, 0
    if old and (old[3] == batch.life or (line.is_leased and old[4] ~= nil and old[4] == batch.lease)) then
        -- Never less than it had and still wants: it goes on using that while this is under way.
        spare_h, spare_l = not_negative(sub(old[1], old[2], line.used_h, line.used_l))
        spare_h, spare_l = min(line.want[1], line.want[2], spare_h, spare_l)
    end
    if is_granted and less(spare_h, spare_l, line.need[1], line.need[2]) then
        spare_h, spare_l = line.need[1], line.need[2]
    end
    if is_granted then
        escrow.promised = { add(escrow.promised[1], escrow.promised[2], line.need[1], line.need[2]) }
    elseif item.seeks and not line.has_room and is_held_back(line) then
        escrow.short, escrow.is_short = batch.now_us, true
    end
    if line.has_room and less(spare_h, spare_l, line.want[1], line.want[2]) then
        local rest_h, rest_l = sub(line.room_h, line.room_l, spare_h, spare_l)
        local extra_h, extra_l = extra_of(rest_h, rest_l, batch.alive)
        spare_h, spare_l = add(spare_h, spare_l, extra_h, extra_l)
        spare_h, spare_l = min(spare_h, spare_l, line.want[1], line.want[2])
    end
    local granted_h, granted_l = add(line.used_h, line.used_l, spare_h, spare_l)
    escrow.granted[batch.name] = { granted_h, granted_l, batch.life, line.is_leased and batch.lease or nil }
    spare_h, spare_l = sub(granted_h, granted_l, line.sent_h, line.sent_l)
    save_escrow(escrow, batch.name, batch.life, line, batch.now_us - line.rested_us)
    escrow.is_short = false
    local all_h, all_l = add(line.theirs_h, line.theirs_l, line.base_h, line.base_l)
    all_h, all_l = add(all_h, all_l, line.own[1], line.own[2])
    local is_short = batch.now_us - escrow.short < (line.is_leased and SHORT_OF_LEASES_US or SHORT_US)
    return {
        { line.base_h, line.base_l }, { spare_h, spare_l }, { line.others_h, line.others_l }, { all_h, all_l },
        is_short and 1 or 0, line.has_room and 1 or 0,
    }
end

-- When the claimant's next turn is, where a place is held for it at each window that is short; else nothing.
local function own_turn(lines)
    local turn_us = nil
    for _, line in ipairs(lines) do
        if line.kind == WINDOW and not line.has_room then
            local bucket = next_place(line)
            if not bucket then return nil end
            turn_us = math.max(turn_us or 0, bucket * line.bucket_us)
        end
    end
    return turn_us
end

-- Find the first moment when all windows of an item have room, and hold places then.
local function wait_for_all(lines, batch, item)
    local when_us, courses, may_hold = batch.now_us, {}, item.claimant ~= '' and batch.quiet_us == 0
    for i, line in ipairs(lines) do
        if line.kind == ESCROW then
            may_hold = may_hold and line.has_room
        else
            courses[i] = course(line.counter, line, line.k)
            local first = earliest(courses[i], line, line.k)
            if not first then return 0, false end
            line.alone_us = math.max(first * line.bucket_us, batch.now_us)
        end
    end
    local starts = {}
    for round = 1, 50 do
        local before_us = when_us
        for i, line in ipairs(lines) do
            if line.kind == WINDOW then
                local from = math.floor(when_us / line.bucket_us)
                starts[i] = earliest(courses[i], line, from)
                if starts[i] > from then when_us = starts[i] * line.bucket_us end
            end
        end
        if when_us == before_us then break end
        if round == 50 then may_hold = false end
    end
    if when_us - batch.now_us > AHEAD_US or when_us <= batch.now_us then may_hold = false end
    local may_keep = may_hold
    for _, line in ipairs(lines) do
        may_hold = may_hold and (line.kind == ESCROW or has_place_left(line.counter, line.places, item.most))
    end
    local own_us = may_keep and not may_hold and item.claims and own_turn(lines)
    if own_us then return own_us, true end
    if may_hold then
        for i, line in ipairs(lines) do
            if line.kind == WINDOW then
                change(line.counter, 'h', starts[i], line.need[1], line.need[2], 1)
                line.places[#line.places + 1] = { starts[i], line.need[1], line.need[2] }
                save_places(line.places_key, item.claimant, line.places, line)
            end
        end
    end
    return when_us, may_hold
end

-- Whoever has a place that is due is content with the least it can do with: what is held is granted, and no more.
local function fits_places(lines, item)
    local offers = {}
    if not item.least then return false end
    for i, line in ipairs(lines) do
        if not line.has_room then
            if line.kind == ESCROW then return false end
            local held_h, held_l = held_now(line.places, line.k)
            local h, l = add(line.room_h, line.room_l, held_h, held_l)
            local least = item.least[i]
            if (held_h == 0 and held_l == 0) or less(h, l, least[1], least[2]) then return false end
            offers[i] = { h, l }
        end
    end
    for i, offer in pairs(offers) do lines[i].need, lines[i].has_room = offer, true end
    return true
end

local function make_way_for_all(lines)
    for _, line in ipairs(lines) do
        if line.kind == ESCROW and not line.has_room then return false end
    end
    local has_room = true
    for _, line in ipairs(lines) do
        if has_room and not line.has_room then
            make_way(line)
            has_room = line.has_room
        end
    end
    if not has_room then
        for _, line in ipairs(lines) do
            if line.given and #line.given > 0 then hold_again(line) end
        end
    end
    return has_room
end

local function perform(parts, batch)
    -- 0 reports, 1 seeks with what is held for the claimant, 2 seeks as a new request, which leaves that to others.
    local item = { seeks = parts[1] >= 1, claims = parts[1] == 1, claimant = parts[2], most = parts[4], least = parts[5] }
    local lines, is_granted = {}, true
    for i, line_parts in ipairs(parts[3]) do
        local line = line_of(line_parts, item)
        if line.kind == WINDOW then open_window(line, batch, item) else open_escrow(line, batch) end
        is_granted = is_granted and line.has_room
        lines[i] = line
    end
    local is_content = false
    if item.claims and item.claimant ~= '' and not is_granted and batch.quiet_us == 0 then
        is_content = fits_places(lines, item)
        is_granted = is_content or make_way_for_all(lines)
    end
    local when_us, is_held = batch.now_us, false
    if item.seeks and not is_granted then when_us, is_held = wait_for_all(lines, batch, item) end
    local results = {}
    for i, line in ipairs(lines) do
        local finish = line.kind == WINDOW and finish_window or finish_escrow
        results[i] = finish(line, batch, item, item.seeks and is_granted)
    end
    return { is_content and 2 or is_granted and 1 or 0, when_us, is_held and 1 or 0, results }
end

local function run()
    local sent = cmsgpack.unpack(ARGV[1])
    local batch = { name = sent[1], incarnation = sent[2], sequence = sent[3], life = sent[4], counters = {} }
    local last = redis.call('HMGET', KEYS[1], 'incarnation', 'sequence', 'reply')
    local known = last[1] == batch.incarnation and tonumber(last[2]) or 0
    if known >= batch.sequence then
        redis.call('EXPIRE', KEYS[1], GATEWAY_SECONDS)  -- a write: so that replicas can confirm what comes again
        return known == batch.sequence and last[3] or cmsgpack.pack({ 'late' })
    end
    local data = load_data()
    local expected_us = sent[10] or 0
    local clock = time_of(data, sent[8], expected_us)
    if is_in_doubt(clock, batch.name, expected_us, sent[11] or 0) then return cmsgpack.pack({ 'in doubt' }) end
    batch.now_us = clock.now_us
    batch.gateways, batch.alive = known_gateways(data, clock)
    local me = batch.gateways[batch.name]
    if me and me.is_alive and me.incarnation ~= batch.incarnation then return cmsgpack.pack({ 'taken' }) end
    batch.data, batch.has_lost, batch.fears_promotion = sent[5], (sent[13] or 0) > known, sent[14] == true
    local data_name
    data_name, batch.quiet_us = data_of(data, batch, sent[7], batch.now_us)
    batch.data_name = data_name
    batch.lease = renew_lease(data, batch, clock, sent[12] or 0)
    local status, results = 'done', {}
    if sent[5] ~= data_name or not me or not me.is_alive or me.life ~= batch.life then
        status = sent[5] == data_name and 'lapsed' or 'joined'
        batch.life = string.format('%.0f-', batch.now_us) .. batch.incarnation
        if not (me and me.is_alive) then batch.alive = batch.alive + 1 end
    else
        for i, item in ipairs(sent[9]) do results[i] = perform(item, batch) end
    end
    renew(batch.name, batch.life, batch.incarnation, batch.now_us + sent[6])
    local reply = cmsgpack.pack({
        status, batch.now_us, data_name, batch.life, batch.alive, batch.quiet_us, results, batch.lease,
    })
    redis.call('HSET', KEYS[1], 'incarnation', batch.incarnation, 'sequence', string.format('%.0f', batch.sequence),
        'reply', reply)
    redis.call('EXPIRE', KEYS[1], GATEWAY_SECONDS)
    return reply
end

return run()
