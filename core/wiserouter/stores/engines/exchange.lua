-- One exchange of the Redis engine. KEYS[1] holds the schema version, and all other keys begin with its name; KEYS[2]
-- never exists; ARGV[1] is the request in JSON. Everything is read and computed before anything is written, so that
-- data that cannot be read leaves the state unchanged. Numbers are stored and returned with 17 digits, so that doubles
-- are exact.
--
--   :account:SCOPE   generation, terms, windows (the latest of each budget), restored (the token by which it was opened or
--                    restored); the latest view that it was restored from: restored_s, restored_usd, restored_view;
--                    where runs commit an amount: committed_usd, committing (how many)
--   :window:ID       amount_usd, carried_usd, hard, rollover, heir, skipped, the counters, leases (how many),
--                    run, base (the counters before this run of the server), closed_until_s (where it was restored);
--                    for the cap of a run: cap (its key), ttl_s, until_s
--   :call:ID         a decision: its reservation, continues (1 for a call that uses no request of the horizon), its
--                    outcome, the result of each token
--   :lease:ID        held_usd, windows, presumed (1 where its rest counts as spent)
--   :conversation:KEY   version, text, token (of the last change), until_s; where it commits an amount: scopes,
--                    committed_usd
--   :cap:KEY         the window of a cap
--   :due             calls, leases and committing conversations by their deadline
--   :conversations, :caps   keys by their last change and their last use
--   :alias:NAME, :spent:TOKEN, :changed:TOKEN, :learnt:..., :note:NAME   texts
--   :sums:NAME       cells
--   :scopes          the scopes that have an account
--   :worker:NAME     the time of the last exchange of a worker
--
-- Schema 1 returned what was not settled in time: its windows count such calls as `expired`, and its calls have that
-- state. They are read as presumed at a cost of 0. Schema 2 knows neither runs nor the counter continuing.

local SCHEMA, ROUNDING, MAX_DUE_PER_EXCHANGE, MAX_DROPPED_PER_EVENT = 3, 1e-12, 500, 100
local BASE, request = KEYS[1], cjson.decode(ARGV[1])
local RESERVATION_S, DECISION_S = request.reservation_ttl_s, request.decision_ttl_s
local ALIAS_S, OLD_S = RESERVATION_S + 2 * DECISION_S, RESERVATION_S + 4 * DECISION_S
local ANSWER_S = 86400  -- as long as the answer to a change is remembered
local WORKER_S = 7 * 86400  -- as long as the last exchange of a worker is remembered
local TICK_S = 1e-6  -- by which the next one is later at least, whatever the clock shows
local DUE, SCOPES = BASE .. ':due', BASE .. ':scopes'
local CONVERSATIONS, CAPS = BASE .. ':conversations', BASE .. ':caps'
local COUNTERS = {'spent_usd', 'debited_usd', 'reserved_usd', 'expected_usd', 'decided', 'in_flight', 'charged',
  'released', 'presumed', 'leased_usd', 'presumed_usd', 'continuing'}
local WINDOW = {'amount_usd', 'carried_usd', 'skipped', 'leases', unpack(COUNTERS)}

local function told(section, what)
  local info = redis.pcall('INFO', section)  -- its user may lack the permission
  return type(info) == 'string' and string.match(info, what .. ':(%x+)') or ''
end

local RUN = told('server', 'run_id') .. told('replication', 'master_replid')  -- another after a restart or a failover

local time = redis.call('TIME')
local now_s = time[1] + time[2] / 1e6

local function text(value)
  return type(value) == 'number' and string.format('%.17g', value) or value
end

local function damaged(what)
  error('DAMAGED ' .. what .. ';', 0)
end

local function number(value, what)
  local n = tonumber(value or nil)
  if not n or n ~= n then damaged(what .. ' is not a number') end
  return n
end

local function list(value, what)
  local read, strings = pcall(cjson.decode, value)
  if not read or type(strings) ~= 'table' then damaged(what .. ' is not a list') end
  for _, one in pairs(strings) do
    if type(one) ~= 'string' then damaged(what .. ' is not a list of names') end
  end
  return strings
end

local function known(value, what)
  if value == nil then damaged(what .. ' is missing') end
  return value
end

-- Hashes and texts: read once, written at the end --------------------------------------------------------------------

local rows, order, texts, last = {}, {}, {}, {}

local function later(...)
  last[#last + 1] = {...}
end

local function row(kind, name)
  local key = BASE .. ':' .. kind .. ':' .. name
  local one = rows[key]
  if not one then
    one = {key = key, name = name, is = {}, changed = {}}
    local flat = redis.call('HGETALL', key)
    for i = 1, #flat, 2 do one.is[flat[i]] = flat[i + 1] end
    rows[key], order[#order + 1] = one, one
  end
  return one
end

local function exists(one)
  return next(one.is) ~= nil
end

local function put(one, fields)
  for field, value in pairs(fields) do one.is[field], one.changed[field] = value, true end
end

local function drop(one)
  one.is, one.changed, one.gone, one.ttl_s, one.lasts, one.read = {}, {}, true, nil, nil, nil
end

local function expire(one, ttl_s)
  one.ttl_s, one.lasts = ttl_s, ttl_s == nil
end

local function text_at(key)
  if texts[key] == nil then texts[key] = redis.call('GET', key) end
  return texts[key]
end

local function keep(key, value, ttl_s)
  texts[key] = value
  if ttl_s then
    later('SET', key, value, 'PX', string.format('%.0f', math.max(1, ttl_s * 1000)))
  else
    later('SET', key, value)
  end
end

local function write_fields(key, changed, is)
  local arguments = {'HSET', key}
  for field in pairs(changed) do
    arguments[#arguments + 1] = field
    arguments[#arguments + 1] = text(is[field])
    if #arguments > 1000 then
      redis.call(unpack(arguments))
      arguments = {'HSET', key}
    end
  end
  if #arguments > 2 then redis.call(unpack(arguments)) end
end

local function write()
  for _, one in ipairs(order) do
    if one.gone then redis.call('DEL', one.key) end
    write_fields(one.key, one.changed, one.is)
    if one.ttl_s then redis.call('PEXPIRE', one.key, string.format('%.0f', math.max(1, one.ttl_s * 1000))) end
    if one.lasts then redis.call('PERSIST', one.key) end
  end
  for _, command in ipairs(last) do redis.call(unpack(command)) end
end

-- Windows ------------------------------------------------------------------------------------------------------------

local function window(id)
  local one = row('window', id)
  if not exists(one) then return nil end
  if not one.read then
    if one.is.expired then  -- schema 1
      one.is.presumed, one.is.presumed_usd = one.is.presumed or one.is.expired, one.is.presumed_usd or '0'
    end
    one.is.continuing = one.is.continuing or '0'  -- schema 2
    for _, field in ipairs(WINDOW) do
      local n = tonumber(one.is[field] or nil)
      one.is[field] = n == n and n or number(one.is[field], one.key .. ' ' .. field)
    end
    one.read = true
  end
  return one
end

local function each(ids)
  local found = {}
  for _, id in ipairs(ids) do found[#found + 1] = window(id) end
  return found, #found == #ids
end

local function left_usd(one)
  local is = one.is
  return is.amount_usd + is.carried_usd - is.spent_usd - is.reserved_usd - is.leased_usd
end

local function refuses(windows, usd)
  for _, one in ipairs(windows) do
    if one.is.hard == '1' and usd > left_usd(one) + ROUNDING * one.is.amount_usd then return true end
  end
  return false
end

local function closed(windows)
  for _, one in ipairs(windows) do
    if number(one.is.closed_until_s or 0, one.key .. ' closed_until_s') > now_s then return true end
  end
  return false
end

local function any_hard(windows)
  for _, one in ipairs(windows) do
    if one.is.hard == '1' then return true end
  end
  return false
end

local function carry_over(one)
  while one.is.heir do
    local heir = window(one.is.heir)
    if not heir then return end
    local amount_usd = heir.is.amount_usd
    local carried_usd = math.min(left_usd(one) + heir.is.skipped * amount_usd, amount_usd)
    if carried_usd == heir.is.carried_usd then return end
    put(heir, {carried_usd = carried_usd})
    one = heir
  end
end

local tidying = false  -- what runs out of time, or is replaced, was there before this run of the server

local function begin_run(one)
  local base = {}
  for _, field in ipairs(COUNTERS) do base[field] = text(one.is[field]) end
  put(one, {run = RUN, base = cjson.encode(base)})
end

local function change_base(one, deltas, sign)
  local base = cjson.decode(one.is.base)
  for field, delta in pairs(deltas) do
    local before = base[field] and number(base[field], one.key .. ' base ' .. field)
    base[field] = before and text(before + sign * delta)  -- the number of leases is no counter
  end
  put(one, {base = cjson.encode(base)})
end

local function count(one, deltas, sign)
  local begun = one.is.run == RUN and one.is.base
  if begun and tidying then change_base(one, deltas, sign) end
  if not (begun or tidying or one.is.cap or RUN == '') then begin_run(one) end
  for field, delta in pairs(deltas) do
    one.is[field], one.changed[field] = one.is[field] + sign * delta, true
  end
end

local function begin(opened)
  local one = row('window', opened.id)
  if exists(one) then
    one.ttl_s = nil
    later('PERSIST', one.key)
    return one, false
  end
  for _, field in ipairs(WINDOW) do put(one, {[field] = opened.counters[field] or 0}) end
  put(one, {
    amount_usd = opened.amount_usd,
    carried_usd = opened.carried_usd,
    hard = opened.hard and '1' or '0',
    rollover = opened.rollover and '1' or '0',
  })
  one.read = true
  return one, true
end

-- Runs and conversations ---------------------------------------------------------------------------------------------

local runs

local function of_runs()  -- most exchanges need none of these functions, and would pay for making them
  if runs then return runs end
  runs = {}

  local caps_begun, conversations_begun = 0, 0  -- in this exchange, less those forgotten

  function runs.note_use(one)
    local key, ttl_s = BASE .. ':cap:' .. one.is.cap, number(one.is.ttl_s, one.key .. ' ttl_s')
    if one.is.in_flight > 0 then
      put(one, {until_s = ''})
      expire(one, nil)
      keep(key, one.name)
    else
      put(one, {until_s = now_s + ttl_s})
      expire(one, ttl_s + 1)
      keep(key, one.name, ttl_s + 1)
    end
    later('ZADD', CAPS, text(now_s), one.is.cap)
  end

  local function cap_of(key)
    local id = text_at(BASE .. ':cap:' .. key)
    local one = id and window(id)
    if not one or one.is.cap ~= key then return nil end
    local until_s = one.is.until_s
    if until_s ~= '' and number(until_s, one.key .. ' until_s') <= now_s then return nil end
    return one
  end

  local function admits(cap, event)
    local _, amount_usd, hard = unpack(cap)
    local one, gone_usd = cap_of(cap[1]), 0
    if one then
      amount_usd, hard = one.is.amount_usd, one.is.hard == '1'
      gone_usd = one.is.spent_usd + (hard and one.is.reserved_usd or one.is.expected_usd)
    end
    return (hard and event.held_usd or event.expected_usd) <= amount_usd - gone_usd + ROUNDING * amount_usd
  end

  function runs.capped(event)
    if event.admitted then return false end
    for _, cap in ipairs(event.caps) do
      if not admits(cap, event) then return true end
    end
    return false
  end

  local function forget_cap(key, one)
    if one then drop(one) end
    caps_begun = caps_begun - 1
    texts[BASE .. ':cap:' .. key] = false
    later('DEL', BASE .. ':cap:' .. key)
    later('ZREM', CAPS, key)
  end

  function runs.begin_cap(cap, decision)
    local key, amount_usd, hard, ttl_s = unpack(cap)
    local one = cap_of(key)
    if not one then
      local id = 'cap|' .. key .. '|' .. decision  -- another one each time: late bills reach their own
      one = begin({id = id, amount_usd = amount_usd, carried_usd = 0, hard = hard, rollover = false, counters = {}})
      put(one, {cap = key})
      caps_begun = caps_begun + 1
    end
    put(one, {ttl_s = ttl_s})
    return one.name
  end

  function runs.drop_idle_caps(most)
    local excess = redis.call('ZCARD', CAPS) + caps_begun - request.max_conversations
    for _, key in ipairs(redis.call('ZRANGE', CAPS, 0, most - 1)) do
      local one = cap_of(key)
      if not one or (excess > 0 and one.is.in_flight == 0) then
        forget_cap(key, one)
        excess = excess - 1
      elseif excess > 0 then
        later('ZADD', CAPS, text(now_s), key)
      end
    end
  end

  local function commit(scopes, usd, more)
    local found = {}
    for _, scope in ipairs(scopes) do
      local account = row('account', scope)
      if exists(account) then
        local committing = number(account.is.committing or 0, account.key .. ' committing') + more
        local committed_usd = number(account.is.committed_usd or 0, account.key .. ' committed_usd') + usd
        put(account, {committing = committing, committed_usd = committing == 0 and 0 or committed_usd})
        found[#found + 1] = scope
      end
    end
    return found
  end

  function runs.forget(one)
    local committed_usd = number(one.is.committed_usd or 0, one.key .. ' committed_usd')
    if committed_usd > 0 then
      commit(list(one.is.scopes, one.key .. ' scopes'), -committed_usd, -1)
      later('ZREM', DUE, 'conversation:' .. one.name)
    end
    drop(one)
    conversations_begun = conversations_begun - 1
    later('ZREM', CONVERSATIONS, one.name)
  end

  local function is_alive(one)
    return exists(one) and number(one.is.until_s, one.key .. ' until_s') > now_s
  end

  local function drop_old(key)
    local excess = redis.call('ZCARD', CONVERSATIONS) + conversations_begun - request.max_conversations
    local most = excess > 0 and MAX_DROPPED_PER_EVENT or 2
    for _, oldest in ipairs(redis.call('ZRANGE', CONVERSATIONS, 0, most - 1)) do
      local one = row('conversation', oldest)
      if oldest ~= key then
        if is_alive(one) and excess <= 0 then return end
        runs.forget(one)
        excess = excess - 1
      end
    end
  end

  function runs.FindConversation(event)
    local one = row('conversation', event.key)
    return is_alive(one) and known(one.is.text, one.key .. ' text')
  end

  function runs.KeepConversation(event)
    local one = row('conversation', event.key)
    local version = is_alive(one) and number(one.is.version, one.key .. ' version') or 0
    if version > 0 and one.is.token == event.token then return 'ok' end
    if version ~= event.version then return 'other' end
    if exists(one) then runs.forget(one) end
    conversations_begun = conversations_begun + 1
    put(one, {version = event.version + 1, text = event.text, token = event.token, until_s = now_s + event.ttl_s})
    if event.committed_usd > 0 then
      local scopes = commit(event.scopes, event.committed_usd, 1)
      put(one, {scopes = cjson.encode(scopes), committed_usd = event.committed_usd})
      expire(one, nil)  -- what it commits must be taken back
      later('ZADD', DUE, text(now_s + event.ttl_s), 'conversation:' .. event.key)
    else
      expire(one, event.ttl_s + 1)
    end
    later('ZADD', CONVERSATIONS, text(now_s), event.key)
    drop_old(event.key)
    return 'ok'
  end

  function runs.EndConversation(event)
    local one, cap = row('conversation', event.key), cap_of(event.key)
    if exists(one) then runs.forget(one) end
    if cap and cap.is.in_flight == 0 then forget_cap(event.key, cap) end
    return 'ok'
  end

  function runs.read_cap(key)
    local one = cap_of(key)
    if not one then return nil end
    local state = {key, text(one.is.amount_usd), one.is.hard}
    for _, counter in ipairs(COUNTERS) do state[#state + 1] = text(one.is[counter]) end
    return state
  end

  return runs
end

-- Calls --------------------------------------------------------------------------------------------------------------

local function counts(call, state)
  local is = call.is
  local one = is.continues and 0 or 1
  if state == 'in flight' then
    return {reserved_usd = is.held_usd, expected_usd = is.expected_usd, decided = one, in_flight = 1,
      continuing = is.continues and 1}
  elseif state == 'charged' then
    local debit_usd = is.paper == '1' and is.expected_usd or is.cost_usd
    return {spent_usd = is.cost_usd, debited_usd = debit_usd, decided = one, charged = 1}
  elseif state == 'presumed' then
    local debit_usd = is.paper == '1' and is.expected_usd or is.cost_usd
    return {spent_usd = is.cost_usd, debited_usd = debit_usd, decided = one, presumed = 1, presumed_usd = is.cost_usd}
  elseif state == 'released' then
    return {released = 1}
  elseif state == 'expired' then  -- schema 1
    return {decided = 1, presumed = 1}
  end
  return {}
end

local function presumed_usd(call)
  return any_hard(each(call.windows)) and call.is.held_usd or call.is.expected_usd
end

local function move(call, to, cost_usd)
  local before = counts(call, call.is.state)
  if cost_usd then put(call, {cost_usd = cost_usd}) end
  local after = counts(call, to)
  for _, one in ipairs(each(call.windows)) do
    count(one, before, -1)
    if one.is.in_flight == 0 then put(one, {reserved_usd = 0, expected_usd = 0}) end  -- leaves no rounding error
    count(one, after, 1)
    carry_over(one)
    if one.is.cap then of_runs().note_use(one) end
  end
  if call.is.state == 'in flight' then later('ZREM', DUE, 'call:' .. call.name) end
  if to ~= 'in flight' then call.ttl_s = DECISION_S end  -- a call in flight is kept: its reservation must be returned
  put(call, {state = to})
end

local function call_of(id)
  local call = row('call', id)
  if not exists(call) then return nil end
  if not call.windows then
    call.windows = list(call.is.windows, call.key .. ' windows')
    for _, field in ipairs({'held_usd', 'expected_usd'}) do
      call.is[field] = number(call.is[field], call.key .. ' ' .. field)
    end
    for _, field in ipairs({'cost_usd', 'reward'}) do
      call.is[field] = call.is[field] and number(call.is[field], call.key .. ' ' .. field)
    end
    for _, field in ipairs({'state', 'record'}) do known(call.is[field], call.key .. ' ' .. field) end
    if call.is.state == 'presumed' then known(call.is.cost_usd, call.key .. ' cost_usd') end
  end
  return call
end

local function is_stranded(call)  -- a window that it counts in is gone
  if call.is.state ~= 'in flight' then return false end
  local _, all_there = each(call.windows)
  return not all_there
end

local function scores_of(call)  -- by source; earlier versions kept one reward
  if call.is.scores then
    if not pcall(cjson.decode, call.is.scores) then damaged(call.key .. ' scores') end
    return call.is.scores
  end
  return call.is.reward and cjson.encode({human = text(call.is.reward)}) or ''
end

local function state_of(call)
  return call.is.state == 'expired' and 'presumed' or call.is.state
end

-- Leases -------------------------------------------------------------------------------------------------------------

local function lease_of(id)
  local lease = row('lease', id)
  if not exists(lease) then return nil end
  lease.is.held_usd = number(lease.is.held_usd, lease.key .. ' held_usd')
  return lease, list(lease.is.windows, lease.key .. ' windows')
end

local function hold(windows, usd, leases)
  for _, one in ipairs(windows) do
    count(one, {leased_usd = usd, leases = leases}, 1)
    if one.is.leases == 0 then put(one, {leased_usd = 0}) end
    carry_over(one)
  end
end

local function presume(windows, usd)
  for _, one in ipairs(windows) do
    count(one, {spent_usd = usd, debited_usd = usd, presumed_usd = usd}, 1)
    carry_over(one)
  end
end

local function take(lease, windows, usd, leases)
  if lease.is.presumed then presume(windows, -usd) else hold(windows, -usd, leases) end
end

local function return_lease(id)
  local lease, ids = lease_of(id)
  if lease then
    take(lease, each(ids), lease.is.held_usd, -1)
    drop(lease)
    later('ZREM', DUE, 'lease:' .. id)
  end
end

local function end_lease(id)
  local lease, ids = lease_of(id)
  local windows = lease and each(ids) or {}
  if lease and lease.is.held_usd > 0 and any_hard(windows) then
    hold(windows, -lease.is.held_usd, -1)
    presume(windows, lease.is.held_usd)
    put(lease, {presumed = '1'})
    lease.ttl_s = DECISION_S
    later('ZREM', DUE, 'lease:' .. id)
  else
    return_lease(id)
  end
end

local function draw(id, usd)
  local lease, ids = lease_of(id)
  if lease then
    local drawn_usd = math.min(usd, lease.is.held_usd)
    take(lease, each(ids), drawn_usd, 0)
    put(lease, {held_usd = lease.is.held_usd - drawn_usd})
  end
end

local function granted_usd(windows, more_usd)
  if more_usd <= 0 then return more_usd end
  if closed(windows) then return 0 end
  for _, one in ipairs(windows) do more_usd = math.min(more_usd, left_usd(one)) end
  return math.max(0, more_usd)
end

-- Scopes -------------------------------------------------------------------------------------------------------------

local scopes

local function open_scopes()
  if not scopes then
    scopes = {}
    for _, scope in ipairs(redis.call('SMEMBERS', SCOPES)) do scopes[scope] = true end
  end
  return scopes
end

local function all_scopes()
  local names = {}
  for scope in pairs(open_scopes()) do names[#names + 1] = scope end
  return names
end

-- Sums ---------------------------------------------------------------------------------------------------------------

local sums = {}

local function sums_of(name)
  if not sums[name] then sums[name] = {key = BASE .. ':sums:' .. name, is = {}, changed = {}} end
  return sums[name]
end

local function add(one, cell, delta)
  local before = one.is[cell] or number(redis.call('HGET', one.key, cell) or 0, one.key .. ' ' .. cell)
  one.is[cell], one.changed[cell] = before + delta, true
end

-- Events -------------------------------------------------------------------------------------------------------------

local apply = {}

local behind = false

function apply.Acknowledge(event)
  local key = BASE .. ':worker:' .. event.worker
  local believed = now_s - event.received_s >= WORKER_S and event.received_s or 0
  local known_s = number(text_at(key) or believed, key)
  behind = known_s < event.received_s
  local at_s = math.max(now_s, known_s + TICK_S)
  if not behind then keep(key, text(at_s), at_s - now_s + WORKER_S) end  -- also where the clock was set back meanwhile
  return text(known_s)
end

function apply.Open(event)
  local account = row('account', event.scope)
  if exists(account) then
    local generation = number(account.is.generation, account.key .. ' generation')
    if generation ~= event.generation then return text(generation) end
    for _, former in ipairs(each(list(account.is.windows, account.key .. ' windows'))) do former.ttl_s = OLD_S end
  end
  local ids = {}
  for level, opened in ipairs(event.windows) do
    begin(opened)
    ids[level] = opened.id
  end
  local restored = event.token or ''
  put(account, {generation = event.generation + 1, terms = event.terms, windows = cjson.encode(ids), restored = restored})
  open_scopes()[event.scope] = true
  later('SADD', SCOPES, event.scope)
  return text(account.is.generation)
end

local function restore_windows(event, account, earlier)
  local ids = list(account.is.windows, account.key .. ' windows')
  for level, opened in ipairs(event.windows) do
    local seen, before = opened.counters, earlier[opened.id]
    opened.counters = {}
    local one = begin(opened)
    for counter, value in pairs(seen) do
      count(one, {[counter] = value - number(before and before[counter] or 0, one.key .. ' restored ' .. counter)}, 1)
    end
    carry_over(one)
    if not before and opened.hard then put(one, {closed_until_s = now_s + event.closed_s}) end
    if not ids[level] or earlier[ids[level]] then ids[level] = opened.id end
    earlier[opened.id] = {}
    for counter, value in pairs(seen) do earlier[opened.id][counter] = text(value) end
  end
  put(account, {windows = cjson.encode(ids), restored_view = cjson.encode(earlier)})
end

local function set_apart(event, more_usd)
  local ids = {}
  for level, opened in ipairs(event.windows) do ids[level] = opened.id end
  local lease = lease_of(event.lease)
  local held_usd = math.max(0, more_usd + (lease and lease.is.held_usd or 0))
  return_lease(event.lease)
  hold(each(ids), held_usd, 1)
  put(row('lease', event.lease), {held_usd = held_usd, windows = cjson.encode(ids)})
  later('ZADD', DUE, text(now_s + event.ttl_s), 'lease:' .. event.lease)
end

local function counted_since(one)  -- the server has gone back, without what is in flight
  if not one or not one.is.base or one.is.run ~= RUN then return {} end
  local base, more = cjson.decode(one.is.base), {}
  for _, counter in ipairs(COUNTERS) do
    more[counter] = one.is[counter] - number(base[counter], one.key .. ' base ' .. counter)
  end
  more.decided = more.decided - more.in_flight
  for _, counter in ipairs({'reserved_usd', 'expected_usd', 'in_flight', 'leased_usd', 'continuing'}) do
    more[counter] = 0
  end
  return more
end

local function replace(event, account)
  local since = {}
  tidying = true
  return_lease(event.lease)
  tidying = false
  for level, id in ipairs(list(account.is.windows, account.key .. ' windows')) do
    local one = window(id)
    since[level] = counted_since(one)
    if one then drop(one) end
  end
  return since
end

local function has_windows(opened)
  for _, one in ipairs(opened) do
    if not window(one.id) then return false end
  end
  return true
end

function apply.Restore(event)
  local account, earlier, earlier_usd = row('account', event.scope), {}, 0
  local is_former = exists(account) and event.former ~= '' and account.is.restored == event.former
  local replaces = is_former and number(account.is.generation, account.key .. ' generation') < event.generation
  local since = replaces and replace(event, account) or {}
  if not exists(account) or replaces then
    local is_kept = not replaces and has_windows(event.windows)
    local windows = is_kept and event.windows or {}
    if replaces then put(account, {generation = event.generation - 1}) end
    apply.Open({scope = event.scope, generation = event.generation - 1, terms = event.terms, windows = windows})
    put(account, {restored = event.token})
    if is_kept then return text(event.generation) end  -- its windows have counted everything
    put(account, {windows = '[]'})
  elseif is_former then
    put(account, {restored = event.token})
  else
    local generation = number(account.is.generation, account.key .. ' generation')
    local as_of_s = number(account.is.restored_s or math.huge, account.key .. ' restored_s')
    if generation ~= event.generation or as_of_s >= event.as_of_s then return text(generation) end
    earlier_usd = number(account.is.restored_usd, account.key .. ' restored_usd')
    earlier = cjson.decode(account.is.restored_view)
  end
  restore_windows(event, account, earlier)
  for level, counted in pairs(since) do
    if event.windows[level] then count(window(event.windows[level].id), counted, 1) end
  end
  set_apart(event, event.held_usd - earlier_usd)
  put(account, {restored_s = event.as_of_s, restored_usd = event.held_usd})
  return text(event.generation)
end

function apply.Amend(event)
  local account, one = row('account', event.scope), window(event.window)
  if not exists(account) then return 'unknown' end
  put(account, {terms = event.terms})
  if one then
    put(one, {amount_usd = event.amount_usd})
    carry_over(one)
  end
  return 'ok'
end

local function refused_change(event, one)
  if not event.hard then return nil end
  local was_hard, is = one.is.hard == '1', one.is
  if not was_hard and is.in_flight >= 0.5 then return 'busy' end
  local left_usd = event.amount_usd + is.carried_usd - is.spent_usd - is.reserved_usd - is.leased_usd
  local lowered = event.amount_usd < is.amount_usd or not was_hard
  return lowered and left_usd < -ROUNDING * event.amount_usd and 'short' or nil
end

function apply.Change(event)
  local key = BASE .. ':changed:' .. event.token
  local first = event.token ~= '' and text_at(key)
  if first then return first end
  local account, one = row('account', event.scope), window(event.window)
  if not exists(account) then return 'unknown' end
  local latest = false
  for _, id in ipairs(list(account.is.windows, account.key .. ' windows')) do latest = latest or id == event.window end
  if account.is.terms ~= event.former or not latest or not one then return 'other' end
  local refused = refused_change(event, one)
  if refused then return refused end
  put(account, {terms = event.terms})
  put(one, {amount_usd = event.amount_usd, hard = event.hard and '1' or '0'})
  carry_over(one)
  if event.token ~= '' then keep(key, event.answer, ANSWER_S) end
  return 'ok'
end

function apply.Renew(event)
  local account = row('account', event.scope)
  local ids = exists(account) and list(account.is.windows, account.key .. ' windows') or {}
  if ids[event.level + 1] ~= event.former then return 'ok' end
  local former = window(event.former)
  local one, created = begin(event.window)
  if former then
    if event.skipped >= 0 then former.ttl_s = OLD_S end  -- else the time of the former one is still to come
    if former.is.closed_until_s then put(one, {closed_until_s = former.is.closed_until_s}) end
    if created and former.is.rollover == '1' and event.skipped >= 0 then  -- so that no cycle can form
      put(one, {skipped = event.skipped})
      put(former, {heir = event.window.id})
      carry_over(former)
    end
  end
  ids[event.level + 1] = event.window.id
  put(account, {windows = cjson.encode(ids)})
  return 'ok'
end

function apply.Reserve(event)
  local call = call_of(event.id)
  if call and not is_stranded(call) then return 'ok' end
  if call then
    for _, one in ipairs(each(call.windows)) do count(one, counts(call, 'in flight'), -1) end
    drop(call)
  end
  call = row('call', event.id)
  local windows, all_there = each(event.windows)
  if not all_there and not (event.admitted and #windows > 0) then return 'unknown' end
  local leased = event.lease ~= cjson.null
  if not leased and event.held_usd > 0 and closed(windows) then return 'closed' end
  if not leased and refuses(windows, event.held_usd) then return 'refused' end
  if #(event.caps or {}) > 0 and of_runs().capped(event) then return 'capped' end
  if leased then draw(event.lease, event.held_usd) end
  call.windows = {}
  for level, one in ipairs(windows) do call.windows[level] = one.name end
  for _, cap in ipairs(event.caps or {}) do
    call.windows[#call.windows + 1] = of_runs().begin_cap(cap, event.id)
  end
  if event.counts == false then put(call, {continues = '1'}) end
  put(call, {
    windows = cjson.encode(call.windows),
    held_usd = event.held_usd,
    expected_usd = event.expected_usd,
    paper = event.paper and '1' or '0',
    record = event.record,
  })
  move(call, 'in flight')
  later('ZADD', DUE, text(now_s + RESERVATION_S), 'call:' .. event.id)
  if #(event.caps or {}) > 0 then of_runs().drop_idle_caps(2 * #event.caps) end
  return 'ok'
end

function apply.Settle(event)
  local call = call_of(event.id)
  if not call or is_stranded(call) then return 'unknown' end
  local token, state, to = 'settle:' .. event.token, state_of(call), event.to
  if call.is[token] then return call.is[token] end
  local again = state == 'charged' or state == to or (state ~= 'in flight' and to == 'presumed')
  put(call, {[token] = again and 'again' or state})
  if again then return 'again' end
  if to == 'charged' and event.model ~= cjson.null then put(call, {model = event.model}) end
  move(call, to, (to == 'charged' and event.cost_usd) or (to == 'presumed' and presumed_usd(call)))
  return state
end

function apply.Score(event)
  local call = call_of(event.id)
  if not call then return 'unknown' end
  local token = 'score:' .. event.token
  if not call.is[token] then
    if call.is.state == 'released' then
      put(call, {[token] = 'released'})
    else
      local before = scores_of(call)
      local after = before == '' and {} or cjson.decode(before)
      after[event.source] = event.text
      put(call, {[token] = before, scores = cjson.encode(after)})
    end
  end
  return call.is[token]
end

function apply.Spend(event)
  local key = BASE .. ':spent:' .. event.token
  if text_at(key) then return 'ok' end
  local cost_usd, windows, all_there = event.cost_usd, each(event.windows)
  if not all_there then return 'unknown' end
  local asks = cost_usd > 0 and not event.billed
  if asks and closed(windows) then return 'closed' end
  if asks and refuses(windows, cost_usd) then return 'refused' end
  for _, one in ipairs(windows) do
    count(one, {spent_usd = cost_usd, debited_usd = cost_usd}, 1)
    carry_over(one)
  end
  keep(key, 'ok', DECISION_S)
  return 'ok'
end

function apply.Lease(event)
  local windows, all_there = each(event.windows)
  local lease, ids = lease_of(event.id), cjson.encode(event.windows)
  local ends = event.ttl_s <= 0 or not all_there
  if ends or (lease and (lease.is.presumed or lease.is.windows ~= ids)) then
    return_lease(event.id)
    lease = nil
  end
  if ends then return '0' end
  local before_usd = lease and lease.is.held_usd or 0
  local change_usd = granted_usd(windows, event.held_usd - before_usd)
  hold(windows, change_usd, lease and 0 or 1)
  lease = row('lease', event.id)
  put(lease, {held_usd = before_usd + change_usd, windows = ids})
  later('ZADD', DUE, text(now_s + event.ttl_s), 'lease:' .. event.id)
  return text(lease.is.held_usd)
end

function apply.Find(event)
  local call = call_of(event.id)
  if not call then
    local id = text_at(BASE .. ':alias:' .. event.id)
    call = id and call_of(id)
  end
  if not call then return false end
  local is, state = call.is, state_of(call)
  local cost_usd = (state == 'charged' and is.cost_usd) or (state == 'presumed' and (is.cost_usd or 0))
  return {call.name, is.record, state, text(is.model or false), text(cost_usd), scores_of(call), call.windows}
end

function apply.Alias(event)
  keep(BASE .. ':alias:' .. event.alias, event.id, ALIAS_S)
  return 'ok'
end

function apply.Learn(event)
  local key = BASE .. ':learnt:' .. #event.sums .. ':' .. event.sums .. ':' .. event.worker
  local before = text_at(key)
  if before and event.sequence <= number(before, key) then return 'ok' end
  local one = sums_of(event.sums)
  for cell, delta in pairs(event.deltas) do add(one, cell, delta) end
  if event.days_kept ~= nil and event.days_kept ~= cjson.null then one.ttl_s = event.days_kept * 86400 end
  keep(key, text(event.sequence), OLD_S)
  return 'ok'
end

function apply.Note(event)
  local former = event.former
  if former ~= nil and former ~= cjson.null and former ~= (text_at(BASE .. ':note:' .. event.name) or '') then
    return 'other'
  end
  keep(BASE .. ':note:' .. event.name, event.text)
  return 'ok'
end

-- The exchange -------------------------------------------------------------------------------------------------------

local function end_overdue()
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', text(now_s), 'LIMIT', 0, MAX_DUE_PER_EXCHANGE)) do
    local kind, id = string.match(member, '^(%a+):(.*)$')
    local call = kind == 'call' and call_of(id)
    if call and call.is.state == 'in flight' then
      move(call, 'presumed', presumed_usd(call))
    elseif kind == 'lease' then
      end_lease(id)
    elseif kind == 'conversation' and exists(row('conversation', id)) then
      of_runs().forget(row('conversation', id))
    else
      later('ZREM', DUE, member)
    end
  end
end

local function read_account(scope)
  local account = row('account', scope)
  if not exists(account) then return nil end
  local windows = {}
  for level, id in ipairs(list(account.is.windows, account.key .. ' windows')) do
    local one = window(id)
    if not one then damaged(account.key .. ' lacks its window ' .. id) end
    local is = one.is
    local state = {id, text(is.amount_usd), text(is.carried_usd)}
    for _, counter in ipairs(COUNTERS) do state[#state + 1] = text(is[counter]) end
    windows[level] = state
  end
  local generation = number(account.is.generation, account.key .. ' generation')
  local terms, committed_usd = known(account.is.terms, account.key .. ' terms'), account.is.committed_usd or 0
  return {scope, text(generation), terms, windows, account.is.restored or '', text(committed_usd)}
end

local function read_sums(name)
  local one = sums_of(name)
  local flat, seen = redis.call('HGETALL', one.key), {}
  for i = 1, #flat, 2 do
    local cell = flat[i]
    seen[cell] = true
    flat[i + 1] = text(one.changed[cell] and one.is[cell] or number(flat[i + 1], one.key .. ' ' .. cell))
  end
  for cell in pairs(one.changed) do
    if not seen[cell] then
      flat[#flat + 1] = cell
      flat[#flat + 1] = text(one.is[cell])
    end
  end
  return {name, flat}
end

local function read_note(name)
  local note = text_at(BASE .. ':note:' .. name)
  return note and {name, note} or nil
end

local function read_each(names, read)
  local found = {}
  for _, name in ipairs(names) do found[#found + 1] = read(name) end
  return found
end

-- Use each right once, on a key that does not exist: one that is missing would end a later exchange halfway. SET is the
-- first, since a server that is full refuses it.
local function check_rights(key)
  for _, command in ipairs({
    {'SET', key, '', 'XX'}, {'DEL', key}, {'HSET', key, '', ''}, {'DEL', key}, {'SADD', key, ''}, {'DEL', key},
    {'PERSIST', key}, {'PEXPIRE', key, 1}, {'ZADD', key, 'XX', 0, ''}, {'ZREM', key, ''}, {'HGET', key, ''},
    {'HGETALL', key}, {'SMEMBERS', key}, {'ZCARD', key}, {'ZRANGE', key, 0, 0}, {'ZRANGEBYSCORE', key, 0, 0},
  }) do redis.call(unpack(command)) end
end

local schema = redis.call('GET', BASE)
local version = schema and number(schema, BASE) or 0
if version > SCHEMA then error('NEWER ' .. schema .. ';', 0) end
if version < SCHEMA and #request.events > 0 then later('SET', BASE, text(SCHEMA)) end  -- a read alone writes nothing
if request.is_first and #request.events > 0 then check_rights(KEYS[2]) end
tidying = true
end_overdue()
tidying = false
local results = {}
for i, event in ipairs(request.events) do
  results[i] = (apply[event.kind] or of_runs()[event.kind])(event)
  if behind then break end
end
local reply = {
  text(now_s),
  results,
  read_each(request.scopes == cjson.null and all_scopes() or request.scopes, read_account),
  read_each(request.sums, read_sums),
  read_each(request.notes, read_note),
  #request.caps > 0 and read_each(request.caps, of_runs().read_cap) or {},
}
write()
for _, one in pairs(sums) do
  write_fields(one.key, one.changed, one.is)
  if one.ttl_s then redis.call('PEXPIRE', one.key, string.format('%.0f', one.ttl_s * 1000)) end
end
return reply
