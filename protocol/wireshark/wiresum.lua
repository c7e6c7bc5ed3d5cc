-- Wireshark dissector for the wiresum protocol (docs/protocol.md has the layout and the rules).
-- To install it, copy this file into Wireshark's folder for personal Lua plugins, or name it: -X lua_script:wiresum.lua

local PREFIX_BYTES = 10
local VALUE_BYTES = 4
local MSG_VALUES, MSG_EXPONENTS = 1, 2
local VALUES_PER_PACKET = { [0] = 32, 64, 128, 256, 512, 1024, 2048 }
local MAX_SLOTS = 16384

local wiresum = Proto("wiresum", "Wiresum in-network aggregation")

wiresum.prefs.port = Pref.uint("UDP port of the switch", 48864, "What comes to this port contributes, what leaves it is a result")
wiresum.prefs.slots = Pref.uint("Slots of a pool", 0, "To check pool_index with; 0 accepts what fits a pool of any size")
wiresum.prefs.values = Pref.bool("Values in filters and columns", false, "Packet details show values in any case; with this set, large captures load slowly")

local f = {
  direction = ProtoField.string("wiresum.direction", "Direction", base.ASCII, "Towards the switch or from it"),
  msg_type = ProtoField.uint8("wiresum.msg_type", "Message type", base.DEC,
    { [MSG_VALUES] = "exponents and values", [MSG_EXPONENTS] = "exponents only" }, 0xF0),
  reserved = ProtoField.uint8("wiresum.reserved", "Reserved", base.DEC, nil, 0x08),
  size = ProtoField.uint8("wiresum.size", "Size", base.DEC, {
    [0] = "32 values", "64 values", "128 values", "256 values", "512 values", "1024 values", "2048 values" }, 0x07),
  job = ProtoField.uint8("wiresum.job", "Job", base.DEC),
  tsi = ProtoField.uint32("wiresum.tsi", "Chunk (tsi)", base.DEC),
  pool_index = ProtoField.uint16("wiresum.pool_index", "Pool index", base.HEX),
  version = ProtoField.uint16("wiresum.version", "Version", base.DEC, nil, 0x8000),
  zero = ProtoField.uint16("wiresum.zero", "Zero", base.DEC, nil, 0x4000),
  slot = ProtoField.uint16("wiresum.slot", "Slot", base.DEC, nil, 0x3FFF),
  e0 = ProtoField.int8("wiresum.e0", "Block exponent (e0)", base.DEC),
  e1 = ProtoField.int8("wiresum.e1", "Consistency byte (e1)", base.DEC),
  values = ProtoField.bytes("wiresum.values", "Values"),
  value = ProtoField.int32("wiresum.value", "Value", base.DEC),
  result_in = ProtoField.framenum("wiresum.result_in", "Result in frame", base.NONE, frametype.RESPONSE),
  result_to = ProtoField.framenum("wiresum.result_to", "Result of the contribution in frame", base.NONE, frametype.REQUEST),
  time = ProtoField.relative_time("wiresum.time", "Time since the contribution"),
  first_in = ProtoField.framenum("wiresum.first_in", "First sent in frame", base.NONE, frametype.RETRANS_PREV),
}
local fields = {}
for _, field in pairs(f) do fields[#fields + 1] = field end
wiresum.fields = fields

local function warning(name, text, group, severity)
  return ProtoExpert.new("wiresum." .. name, text, group, severity)
end
local e = {
  length = warning("length.wrong", "Length does not fit message type and size", expert.group.MALFORMED, expert.severity.ERROR),
  msg_type = warning("msg_type.unknown", "Unknown message type", expert.group.PROTOCOL, expert.severity.WARN),
  size = warning("size.unknown", "Size stands for nothing", expert.group.PROTOCOL, expert.severity.WARN),
  reserved = warning("reserved.set", "Reserved bits are set", expert.group.PROTOCOL, expert.severity.WARN),
  index = warning("pool_index.wrong", "Pool index does not follow from the chunk number", expert.group.PROTOCOL, expert.severity.WARN),
  cut = warning("cut", "The capture holds only the beginning of this packet", expert.group.UNDECODED, expert.severity.NOTE),
  again = warning("again", "Sent again", expert.group.SEQUENCE, expert.severity.NOTE),
}
local experts = {}
for _, each in pairs(e) do experts[#experts + 1] = each end
wiresum.experts = experts

-- What the first pass over the capture found, to link frames: by worker, switch, job and chunk, and by packet.
local contributions, results, links = {}, {}, {}

function wiresum.init()
  contributions, results, links = {}, {}, {}
end

-- Bytes that the packet at `at` should have by its own header, or nil.
local function expected_bytes(buffer, at)
  if buffer:len() < at + 1 then return nil end
  local first = buffer(at, 1):uint()
  local msg_type, values = math.floor(first / 16), VALUES_PER_PACKET[first % 8]
  if msg_type == MSG_EXPONENTS and values then return PREFIX_BYTES end
  if msg_type == MSG_VALUES and values then return PREFIX_BYTES + VALUE_BYTES * values end
  return nil
end

local function index_follows(tsi, slot, version)
  local slots = wiresum.prefs.slots
  local function fits(pool)
    return tsi % pool == slot and math.floor(tsi / pool) % 2 == version
  end
  if slots > 0 then return fits(slots) end
  local pool = 1
  while pool <= MAX_SLOTS do
    if fits(pool) then return true end
    pool = pool * 2
  end
  return false
end

local function direction(pinfo)
  local to, from = pinfo.dst_port == wiresum.prefs.port, pinfo.src_port == wiresum.prefs.port
  if to and from then return "between switches" end
  if to then return "contribution" end
  if from then return "result" end
  return "unknown"
end

-- Notes who sent what first; the second pass, and a click, only read.
local function remember(pinfo, number, way, job, tsi)
  local up = way == "contribution"
  local worker = up and (tostring(pinfo.src) .. ":" .. pinfo.src_port) or (tostring(pinfo.dst) .. ":" .. pinfo.dst_port)
  local switch = up and tostring(pinfo.dst) or tostring(pinfo.src)
  local key = worker .. " " .. switch .. " " .. job .. " " .. tsi
  local id = pinfo.number .. " " .. number
  if not pinfo.visited and not links[id] then
    local link = { key = key }
    local mine, sent = up and contributions or results, contributions[key]
    if mine[key] then link.first = mine[key].first else mine[key] = { first = pinfo.number } end
    if up then
      contributions[key].last, contributions[key].at = pinfo.number, pinfo.rel_ts
    elseif sent then
      local seconds = pinfo.rel_ts - sent.at
      local whole = math.floor(seconds)
      link.sent, link.time = sent.last, NSTime.new(whole, math.floor((seconds - whole) * 1e9 + 0.5))
    end
    links[id] = link
  end
  return links[id] or { key = key }
end

local function dissect_packet(buffer, pinfo, tree, at, wanted, number)
  local have = math.max(0, math.min(wanted, buffer:len() - at))
  local item = tree:add(wiresum, buffer(at, have))
  if have < PREFIX_BYTES then
    if wanted < PREFIX_BYTES then
      item:add_proto_expert_info(e.length, string.format("A packet has at least %d bytes, not %d", PREFIX_BYTES, wanted))
    else
      item:add_proto_expert_info(e.cut)
    end
    return "Wiresum, no whole header"
  end
  local first, job, tsi = buffer(at, 1):uint(), buffer(at + 1, 1):uint(), buffer(at + 2, 4):uint()
  local index, e0, e1 = buffer(at + 6, 2):uint(), buffer(at + 8, 1):int(), buffer(at + 9, 1):int()
  local msg_type, values = math.floor(first / 16), VALUES_PER_PACKET[first % 8]
  local version, slot = math.floor(index / 32768), index % 16384
  local way = direction(pinfo)

  item:add(f.direction, buffer(at, 0), way):set_generated()
  local type_item = item:add(f.msg_type, buffer(at, 1))
  if msg_type ~= MSG_VALUES and msg_type ~= MSG_EXPONENTS then type_item:add_proto_expert_info(e.msg_type) end
  local reserved_item = item:add(f.reserved, buffer(at, 1))
  if math.floor(first / 8) % 2 == 1 then reserved_item:add_proto_expert_info(e.reserved) end
  local size_item = item:add(f.size, buffer(at, 1))
  if not values then size_item:add_proto_expert_info(e.size) end
  item:add(f.job, buffer(at + 1, 1))
  item:add(f.tsi, buffer(at + 2, 4))
  local index_item = item:add(f.pool_index, buffer(at + 6, 2))
  index_item:append_text(string.format(" (slot %d, version %d)", slot, version))
  index_item:add(f.version, buffer(at + 6, 2))
  local zero_item = index_item:add(f.zero, buffer(at + 6, 2))
  if math.floor(index / 16384) % 2 == 1 then
    zero_item:add_proto_expert_info(e.reserved)
  elseif not index_follows(tsi, slot, version) then
    index_item:add_proto_expert_info(e.index)
  end
  index_item:add(f.slot, buffer(at + 6, 2))
  local e0_item = item:add(f.e0, buffer(at + 8, 1))
  if e0 == -128 then e0_item:append_text(" (all zero, or nothing to announce)") end
  if e0 == 127 then e0_item:append_text(" (NaN)") end
  item:add(f.e1, buffer(at + 9, 1))

  local should = expected_bytes(buffer, at)
  if should and should ~= wanted then
    item:add_proto_expert_info(e.length,
      string.format("A packet of type %d and size %d has %d bytes, not %d", msg_type, first % 8, should, wanted))
  end
  if have < wanted then item:add_proto_expert_info(e.cut) end
  if have > PREFIX_BYTES then
    local count = math.floor((have - PREFIX_BYTES) / VALUE_BYTES)
    local list = item:add(f.values, buffer(at + PREFIX_BYTES, have - PREFIX_BYTES))
    list:set_text(string.format("Values: %d", count))
    -- Thousands of values in a frame take milliseconds, which no list of frames can wait for.
    if list.visible or wiresum.prefs.values then
      for i = 0, count - 1 do
        list:add(f.value, buffer(at + PREFIX_BYTES + VALUE_BYTES * i, VALUE_BYTES))
      end
    end
  end

  local again = ""
  if way == "contribution" or way == "result" then
    local link = remember(pinfo, number, way, job, tsi)
    if link.first then
      again = " [sent again]"
      item:add(f.first_in, buffer(at, 0), link.first):set_generated()
      item:add_proto_expert_info(e.again, way == "result" and "Result sent again" or "Contribution sent again")
    end
    if way == "result" and link.sent then
      item:add(f.result_to, buffer(at, 0), link.sent):set_generated()
      item:add(f.time, buffer(at, 0), link.time):set_generated()
    elseif way == "contribution" and results[link.key] then
      item:add(f.result_in, buffer(at, 0), results[link.key].first):set_generated()
    end
  end
  local what = msg_type == MSG_EXPONENTS and "exponents" or (values and values .. " values" or "unknown size")
  local title = ({ contribution = "Contribution", result = "Result" })[way] or "Packet"
  local text = string.format("%s job=%d chunk=%d slot=%d version=%d %s e0=%d", title, job, tsi, slot, version, what, e0)
  item:append_text(string.format(", chunk %d, slot %d", tsi, slot))
  return text .. again
end

function wiresum.dissector(buffer, pinfo, tree)
  pinfo.cols.protocol = "Wiresum"
  local total = buffer:reported_len()
  local bytes = expected_bytes(buffer, 0)
  -- A capture on the host that sends, or receives, may show what segmentation offload makes of one frame: packets of
  -- one job back to back, all of one length but the last.
  local several = bytes and total > bytes and buffer:len() >= bytes + 2
    and buffer(bytes + 1, 1):uint() == buffer(1, 1):uint() and expected_bytes(buffer, bytes) ~= nil
    and total - bytes >= PREFIX_BYTES
  if not several then
    pinfo.cols.info = dissect_packet(buffer, pinfo, tree, 0, total, 0)
    return buffer:len()
  end
  local at, number, text = 0, 0, ""
  while at < total and at < buffer:len() do
    local info = dissect_packet(buffer, pinfo, tree, at, math.min(bytes, total - at), number)
    if number == 0 then text = info end
    at, number = at + bytes, number + 1
  end
  pinfo.cols.info = string.format("%s (and %d more)", text, math.ceil(total / bytes) - 1)
  return buffer:len()
end

local registered = nil

local function register()
  local ports = DissectorTable.get("udp.port")
  if registered == wiresum.prefs.port then return end
  if registered then ports:remove(registered, wiresum) end
  registered = wiresum.prefs.port
  ports:add(registered, wiresum)
end

wiresum.prefs_changed = register
register()
