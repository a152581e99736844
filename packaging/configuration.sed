# Turns an example into a first configuration: examples become comments, except the keys that each installation needs.
/^\[\[access\]\]/,/^$/b
/^\[\[link\]\]/,/^$/b
/^\[\(keepalive\|steering\)\]$/b
/^\(anchor\|pool\|gateways\) = /b
/^address = "2001:db8:a::1"$/b
s/^enabled = false/#enabled = true/
/^[^#]/s/^/# /
s/^#nat = false/nat = true/
s/^# join_file/join_file/
