-- Dissector for Segue's tunnel packets and probes (tunnel-and-probe.md), for Wireshark and tshark:
--   tshark -X lua_script:segue.lua -r FILE
-- Written from the description, not from the program, and compared with it by
-- crates/wire/tests/dissector.rs. The MAC is shown, not checked: captures have no keys.

local segue = Proto("segue", "Segue tunnel")

local types = { [0] = "Data", [1] = "Ride", [2] = "Request", [3] = "Response" }

local f = {
	version = ProtoField.uint8("segue.version", "Version", base.DEC, nil, 0xf0),
	type = ProtoField.uint8("segue.type", "Type", base.DEC, types, 0x0f),
	flags = ProtoField.uint8("segue.flags", "Flags", base.HEX),
	one_way = ProtoField.bool("segue.flags.one_way", "One-way", 8, nil, 0x01),
	report = ProtoField.bool("segue.flags.report", "Report", 8, nil, 0x01),
	ride_response = ProtoField.bool("segue.flags.response", "Response", 8, nil, 0x02),
	ride_report = ProtoField.bool("segue.flags.report", "Report", 8, nil, 0x04),
	unsolicited = ProtoField.bool("segue.flags.unsolicited", "Unsolicited", 8, nil, 0x01),
	k = ProtoField.uint8("segue.k", "K"),
	reserved = ProtoField.uint8("segue.reserved", "Reserved", base.HEX),
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
	mac = ProtoField.bytes("segue.probe.mac", "MAC"),
}
segue.fields = f

local malformed = ProtoExpert.new("segue.malformed", "Not a valid Segue packet",
	expert.group.MALFORMED, expert.severity.ERROR)
segue.experts = { malformed }

local HEADER, PROBE = 16, 56
local DATA, RIDE, REQUEST, RESPONSE = 0, 1, 2, 3

-- Flag bits that have a meaning, by type.
local known_flags = { [DATA] = 1, [RIDE] = 7, [REQUEST] = 1, [RESPONSE] = 1 }

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

function segue.dissector(buffer, pinfo, tree)
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
	sub:add(f.k, buffer(2, 1))
	sub:add(f.reserved, buffer(3, 1))
	sub:add(f.index, buffer(4, 4))
	sub:add(f.cookie, buffer(8, 8))
	if buffer(1, 1):uint() > known_flags[type] or buffer(3, 1):uint() ~= 0 or
		(type == RIDE and buffer(1, 1):bitfield(5, 2) == 3) or
		(type == DATA and buffer(2, 1):uint() ~= 0) then
		sub:add_proto_expert_info(malformed, "a field that must be zero is not")
	end
	if type ~= DATA then
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
