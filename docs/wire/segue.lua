-- Dissector for Segue's tunnel packets and probes (tunnel-and-probe.md), for Wireshark and tshark:
--   tshark -X lua_script:segue.lua -r FILE
-- Written from the description, not from the program, and compared with it by
-- crates/wire/tests/dissector.rs. The MAC is shown, not checked: captures have no keys.

local segue = Proto("segue", "Segue tunnel")

local types = { [0] = "Data", [2] = "Request", [3] = "Response" }

local f = {
	version = ProtoField.uint8("segue.version", "Version", base.DEC, nil, 0xf0),
	type = ProtoField.uint8("segue.type", "Type", base.DEC, types, 0x0f),
	flags = ProtoField.uint8("segue.flags", "Flags", base.HEX),
	one_way = ProtoField.bool("segue.flags.one_way", "One-way", 8, nil, 0x01),
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

local function dissect_probe(buffer, pinfo, tree, type)
	if buffer:len() ~= PROBE then
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
	local is_data = type == 0
	local sub = tree:add(segue, buffer(0, is_data and HEADER or buffer:len()))
	sub:add(f.version, buffer(0, 1))
	sub:add(f.type, buffer(0, 1))
	local flags = sub:add(f.flags, buffer(1, 1))
	if is_data then
		flags:add(f.one_way, buffer(1, 1))
	elseif type == 3 then
		flags:add(f.unsolicited, buffer(1, 1))
	end
	sub:add(f.k, buffer(2, 1))
	sub:add(f.reserved, buffer(3, 1))
	sub:add(f.index, buffer(4, 4))
	sub:add(f.cookie, buffer(8, 8))
	local known = type == 2 and 0 or 1
	if buffer(1, 1):uint() > known or buffer(3, 1):uint() ~= 0 or
		(is_data and buffer(2, 1):uint() ~= 0) then
		sub:add_proto_expert_info(malformed, "a field that must be zero is not")
	end
	if not is_data then
		dissect_probe(buffer, pinfo, sub, type)
		return buffer:len()
	end
	local inner = buffer(HEADER)
	local version = inner:len() > 0 and inner(0, 1):bitfield(0, 4) or 0
	local name = ({ [4] = "ip", [6] = "ipv6" })[version]
	if name then
		Dissector.get(name):call(inner:tvb(), pinfo, tree)
	else
		sub:add_proto_expert_info(malformed, "the inner packet is neither IPv4 nor IPv6")
	end
	return buffer:len()
end

DissectorTable.get("udp.port"):add(5005, segue)
