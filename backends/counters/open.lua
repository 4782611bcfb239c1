-- What each gateway has not settled of a window: o<name> is "life ", then in msgpack its open charges and its leases,
-- each as { bucket, high, low }. Both are absolute and counted in c and l as well. They are void with the gateway's
-- life: whoever opens the window next takes them back. A gateway without any has no such field.

-- Whoever comes back under another life knows that this was taken back, and reports it anew.
local function take_back(window, gateways)
    for name, text in pairs(window.o) do
        local life_end = string.find(text, ' ', 1, true)
        local gateway = gateways[name]
        if not (gateway and gateway.is_alive and gateway.life == string.sub(text, 1, life_end - 1)) then
            local open = cmsgpack.unpack(string.sub(text, life_end + 1))
            for i, kind in ipairs({ 'c', 'l' }) do
                for _, amount in ipairs(open[i]) do
                    if window[kind][amount[1]] then
                        change(window, kind, amount[1], sub(0, 0, amount[2], amount[3]))
                    end
                end
            end
            window.o[name] = nil
            window.changed['o' .. name] = false
        end
    end
end

-- Keep what this gateway has reported as open, with what it was leased since in the same batch.
local function keep_open(window, line, batch)
    local leases = {}
    for _, each in ipairs(line.open_leases) do leases[#leases + 1] = each end
    for _, each in ipairs(window.leased) do leases[#leases + 1] = each end
    local text = nil
    if #line.open_charges > 0 or #leases > 0 then
        text = batch.life .. ' ' .. cmsgpack.pack({ line.open_charges, leases })
    end
    if text ~= window.o[batch.name] then
        window.o[batch.name] = text
        window.changed['o' .. batch.name] = text or false
    end
end
