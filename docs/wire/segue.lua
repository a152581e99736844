-- Dissector for Segue's tunnel packets and probes (tunnel-and-probe.md) and for UPMT's (upmt.md), for
-- Wireshark and tshark:
--   tshark -X lua_script:segue.lua -r FILE
-- Written from the descriptions, not from the program, and compared with it by
-- crates/wire/tests/dissector.rs. The MAC is shown, not checked: captures have no keys.

local segue = Proto("segue", "Segue tunnel")

local types = { [0] = "Data", [1] = "Ride", [2] = "Request", [3] = "Response", [4] = "Size" }

local f = {
	version = ProtoField.uint8("segue.version", "Version", base.DEC, nil, 0xf0),
	type = ProtoField.uint8("segue.type", "Type", base.DEC, types, 0x0f),
	flags = ProtoField.uint8("segue.flags", "Flags", base.HEX),
	one_way = ProtoField.bool("segue.flags.one_way", "One-way", 8, nil, 0x01),
	report = ProtoField.bool("segue.flags.report", "Report", 8, nil, 0x01),
	ride_response = ProtoField.bool("segue.flags.response", "Response", 8, nil, 0x02),
	ride_report = ProtoField.bool("segue.flags.report", "Report", 8, nil, 0x04),
	unsolicited = ProtoField.bool("segue.flags.unsolicited", "Unsolicited", 8, nil, 0x01),
	question = ProtoField.bool("segue.flags.question", "Question", 8, nil, 0x02),
	k = ProtoField.uint8("segue.k", "K"),
	age = ProtoField.uint8("segue.age", "Age (4.194 ms)"),
	index = ProtoField.uint32("segue.index", "Tunnel index"),
	cookie = ProtoField.uint64("segue.cookie", "Cookie", base.HEX),
	seq = ProtoField.uint32("segue.probe.seq", "Sequence number"),
	t_sc = ProtoField.uint32("segue.probe.t_sc", "t_Sc (µs)"),
	t_ss = ProtoField.uint32("segue.probe.t_ss", "t_Ss (µs)"),
	dt = ProtoField.uint32("segue.probe.dt", "Δt (µs)"),
	sc = ProtoField.uint32("segue.probe.sc", "Sc"),
	ss = ProtoField.uint32("segue.probe.ss", "Ss"),
	r = ProtoField.uint32("segue.probe.r", "R"),
	heard = ProtoField.uint16("segue.probe.heard", "Heard", base.HEX),
	t_ka = ProtoField.uint16("segue.probe.t_ka", "T_KA (ms)"),
	token = ProtoField.uint32("segue.size.token", "Token"),
	size = ProtoField.uint16("segue.size.size", "Size"),
	answer = ProtoField.uint16("segue.size.answer", "Size of the answer"),
	mac = ProtoField.bytes("segue.probe.mac", "MAC"),
	path = ProtoField.uint8("segue.upmt.path", "Path number"),
	upmt_response = ProtoField.bool("segue.upmt.response", "Response"),
	upmt_report = ProtoField.bool("segue.upmt.report", "Report"),
	upmt_unsolicited = ProtoField.bool("segue.upmt.unsolicited", "Unsolicited"),
	inner_version = ProtoField.uint8("segue.upmt.version", "Version of the inner packet", base.DEC, nil, 0xf0),
	complement = ProtoField.uint16("segue.upmt.complement", "Complement", base.HEX),
}
segue.fields = f

local malformed = ProtoExpert.new("segue.malformed", "Not a valid Segue packet",
	expert.group.MALFORMED, expert.severity.ERROR)
segue.experts = { malformed }

local HEADER, PROBE = 16, 56
local DATA, RIDE, REQUEST, RESPONSE, SIZE = 0, 1, 2, 3, 4

-- The largest value of the flags, by type: a response has one flag at most.
local known_flags = { [DATA] = 1, [RIDE] = 7, [REQUEST] = 3, [RESPONSE] = 2, [SIZE] = 0 }

local function dissect_probe(buffer, pinfo, tree, type)
	if buffer:len() < PROBE or (type ~= RIDE and buffer:len() > PROBE) then
		tree:add_proto_expert_info(malformed, "a probe has 56 bytes")
		return
	end
	local words = { f.seq, f.t_sc, f.t_ss, f.dt, f.sc, f.ss, f.r }
	for i, field in ipairs(words) do
		tree:add(field, buffer(HEADER + 4 * (i - 1), 4))
	end
	tree:add(f.heard, buffer(44, 2))
	tree:add(f.t_ka, buffer(46, 2))
	tree:add(f.mac, buffer(48, 8))
	pinfo.cols.info = string.format("%s seq=%u", types[type], buffer(HEADER, 4):uint())
end

local function dissect_size(buffer, pinfo, tree)
	if buffer:len() < PROBE then
		tree:add_proto_expert_info(malformed, "a test has at least 56 bytes")
		return
	end
	tree:add(f.token, buffer(16, 4))
	tree:add(f.size, buffer(20, 2))
	tree:add(f.answer, buffer(22, 2))
	tree:add(f.mac, buffer(48, 8))
	local zeros = true
	for i = 24, 47 do
		zeros = zeros and buffer(i, 1):uint() == 0
	end
	if buffer(20, 2):uint() ~= buffer:len() or not zeros then
		tree:add_proto_expert_info(malformed, "a test is as long as it says, and zero from byte 24 to 47")
	end
	pinfo.cols.info = string.format("Size %u token=%u", buffer:len(), buffer(16, 4):uint())
end

-- UPMT: nothing stands before the inner packet (upmt.md).
local UPMT_DATA, TRAILER, RIDE_VERSION = 28, 34, 15
local PROBE_PORT, FLAGGED_PORT, PATH_PORT, PATHS = 50049, 50048, 50050, 16
local IP_HEADER = { [4] = 20, [6] = 40 }

-- One's-complement sum of some ranges and a number (RFC 1071); 0xffff stands for zero.
local function sum(number, ...)
	for _, range in ipairs({ ... }) do
		for i = 0, range:len() - 1 do
			number = number + range(i, 1):uint() * (i % 2 == 0 and 256 or 1)
		end
	end
	while number > 0xffff do
		number = number % 0x10000 + math.floor(number / 0x10000)
	end
	return number
end

local function add_upmt_data(tree, data, heard)
	for i, field in ipairs({ f.seq, f.t_sc, f.t_ss, f.dt, f.sc, f.ss, f.r }) do
		tree:add(field, data(4 * (i - 1), 4))
	end
	tree:add(f.heard, heard)
end

-- Path number and whether it is flagged, if the ports are those of the anchor's and the host's end.
local function ends(anchor, host)
	local path = host - PATH_PORT
	if path >= 0 and path < PATHS and (anchor == PROBE_PORT or anchor == FLAGGED_PORT) then
		return path, anchor == FLAGGED_PORT
	end
end

-- An inner packet that is a probe: a UDP datagram without options whose ports say so.
local function dissect_upmt_probe(buffer, version, tree)
	local at = IP_HEADER[version]
	if buffer:len() < at + 8 or buffer(version == 4 and 9 or 6, 1):uint() ~= 17 or
		(version == 4 and (buffer(0, 1):uint() ~= 0x45 or buffer(6, 2):bitfield(2, 14) ~= 0)) then
		return
	end
	local source, destination = buffer(at, 2):uint(), buffer(at + 2, 2):uint()
	local path, flagged = ends(destination, source)
	local response = not path
	if response then
		path, flagged = ends(source, destination)
	end
	if not path then
		return
	end
	local sub = tree:add(segue, buffer(), "UPMT probe")
	sub:add(f.path, buffer(at, 4), path)
	sub:add(f.upmt_response, buffer(at, 4), response)
	sub:add(response and f.upmt_unsolicited or f.upmt_report, buffer(at, 4), flagged)
	local length, checksum = buffer(at + 4, 2):uint(), buffer(at + 6, 2):uint()
	if buffer:len() ~= at + 8 + UPMT_DATA or length ~= 8 + UPMT_DATA then
		sub:add_proto_expert_info(malformed, "a probe has 28 bytes")
		return
	end
	local addresses = version == 4 and buffer(12, 8) or buffer(8, 32)
	if checksum == 0 or sum(17 + length, addresses, buffer(at)) ~= 0xffff then
		sub:add_proto_expert_info(malformed, "the checksum is wrong")
	end
	add_upmt_data(sub, buffer(at + 8, UPMT_DATA), buffer(version == 4 and 4 or 2, 2))
	return string.format("%s path=%u seq=%u", response and "Response" or "Request", path,
		buffer(at + 8, 4):uint())
end

-- The trailer of a ride; the inner packet with its own version, if that is one.
local function dissect_upmt_ride(buffer, tree)
	if buffer:len() <= TRAILER then
		tree:add(segue, buffer()):add_proto_expert_info(malformed, "shorter than the trailer")
		return
	end
	local inner = buffer:len() - TRAILER
	local trailer = buffer(inner, TRAILER)
	local sub = tree:add(segue, trailer, "UPMT ride")
	local version, flags = trailer(28, 1):bitfield(0, 4), trailer(28, 1):bitfield(4, 4)
	local response, report = flags % 2 == 1, math.floor(flags / 2) % 2 == 1
	sub:add(f.inner_version, trailer(28, 1))
	sub:add(f.upmt_response, trailer(28, 1), response)
	sub:add(f.upmt_report, trailer(28, 1), report)
	sub:add(f.path, trailer(29, 1))
	sub:add(f.complement, trailer(32, 2))
	add_upmt_data(sub, trailer(0, UPMT_DATA), trailer(30, 2))
	if flags > 2 or trailer(29, 1):uint() >= PATHS or not IP_HEADER[version] or
		sum(0, trailer) ~= 0xffff then
		sub:add_proto_expert_info(malformed, "version, flags, path number or complement is wrong")
		return
	end
	local bytes = buffer(0, inner):bytes()
	bytes:set_index(0, version * 16 + buffer(0, 1):bitfield(4, 4))
	local info = string.format("Ride path=%u seq=%u", trailer(29, 1):uint(), trailer(0, 4):uint())
	return bytes:tvb("Inner packet"), version, info
end

local function dissect_upmt(buffer, version, pinfo, tree)
	local inner, info = buffer, nil
	if version == RIDE_VERSION then
		inner, version, info = dissect_upmt_ride(buffer, tree)
	elseif buffer:len() < IP_HEADER[version] then
		return 0
	else
		info = dissect_upmt_probe(buffer, version, tree)
	end
	if inner then
		Dissector.get(version == 4 and "ip" or "ipv6"):call(inner, pinfo, tree)
	end
	if info then
		pinfo.cols.info = info
	end
	pinfo.cols.protocol = "UPMT"
	return buffer:len()
end

function segue.dissector(buffer, pinfo, tree)
	local form = buffer:len() > 0 and buffer(0, 1):bitfield(0, 4) or 0
	if IP_HEADER[form] or form == RIDE_VERSION then
		return dissect_upmt(buffer, form, pinfo, tree)
	end
	if buffer:len() < HEADER or buffer(0, 1):bitfield(0, 4) ~= 1 then
		return 0
	end
	local type = buffer(0, 1):bitfield(4, 4)
	if not types[type] then
		return 0
	end
	pinfo.cols.protocol = "Segue"
	-- Where the inner packet begins, if there is one.
	local inner_at = ({ [DATA] = HEADER, [RIDE] = PROBE })[type]
	local own = math.min(inner_at or buffer:len(), buffer:len())
	local sub = tree:add(segue, buffer(0, own))
	sub:add(f.version, buffer(0, 1))
	sub:add(f.type, buffer(0, 1))
	local flags = sub:add(f.flags, buffer(1, 1))
	if type == DATA or type == RIDE then
		flags:add(f.one_way, buffer(1, 1))
	end
	if type == RIDE then
		flags:add(f.ride_response, buffer(1, 1))
		flags:add(f.ride_report, buffer(1, 1))
	elseif type == REQUEST then
		flags:add(f.report, buffer(1, 1))
	elseif type == RESPONSE then
		flags:add(f.unsolicited, buffer(1, 1))
	end
	if type == REQUEST or type == RESPONSE then
		flags:add(f.question, buffer(1, 1))
	end
	sub:add(f.k, buffer(2, 1))
	sub:add(f.age, buffer(3, 1))
	sub:add(f.index, buffer(4, 4))
	sub:add(f.cookie, buffer(8, 8))
	if buffer(1, 1):uint() > known_flags[type] or ((type == RESPONSE or type == SIZE) and buffer(3, 1):uint() ~= 0) or
		(type == RIDE and buffer(1, 1):bitfield(5, 2) == 3) or
		((type == DATA or type == SIZE) and buffer(2, 1):uint() ~= 0) then
		sub:add_proto_expert_info(malformed, "a field that must be zero is not")
	end
	if type == SIZE then
		dissect_size(buffer, pinfo, sub)
	elseif type ~= DATA then
		dissect_probe(buffer, pinfo, sub, type)
	end
	if not inner_at or buffer:len() < inner_at then
		return buffer:len()
	end
	local version = buffer:len() > inner_at and buffer(inner_at, 1):bitfield(0, 4) or 0
	local name = ({ [4] = "ip", [6] = "ipv6" })[version]
	if name then
		Dissector.get(name):call(buffer(inner_at):tvb(), pinfo, tree)
	else
		sub:add_proto_expert_info(malformed, "the inner packet is neither IPv4 nor IPv6")
	end
	return buffer:len()
end

DissectorTable.get("udp.port"):add(5005, segue)
