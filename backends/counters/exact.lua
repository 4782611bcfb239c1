-- Integers up to 10^18 and their sums, exact: Lua's numbers are doubles, which end at 2^53. A number is two values,
-- high * 10^9 + low with 0 <= low < 10^9; the sign is in the high part, as in Python's divmod.
local BASE = 1000000000

local function add(ah, al, bh, bl)
    local h, l = ah + bh, al + bl
    if l >= BASE then return h + 1, l - BASE end
    return h, l
end

local function sub(ah, al, bh, bl)
    local h, l = ah - bh, al - bl
    if l < 0 then return h - 1, l + BASE end
    return h, l
end

local function less(ah, al, bh, bl)
    return ah < bh or (ah == bh and al < bl)
end

local function min(ah, al, bh, bl)
    if less(bh, bl, ah, al) then return bh, bl end
    return ah, al
end

local function not_negative(h, l)
    if h < 0 then return 0, 0 end
    return h, l
end

-- The whole part of a number that is not negative, divided by a small integer.
local function part(h, l, divisor)
    local high = math.floor(h / divisor)
    return high, math.floor(((h - high * divisor) * BASE + l) / divisor)
end

local function parse(text)
    if #text <= 9 then return 0, tonumber(text) end
    return tonumber(string.sub(text, 1, -10)), tonumber(string.sub(text, -9))
end

-- Decimal digits of a number that is not negative.
local function digits(h, l)
    if h == 0 then return string.format('%.0f', l) end
    return string.format('%.0f%09.0f', h, l)
end
