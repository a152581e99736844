# Turns an example into a first configuration: every key shows its default, except those that each installation needs.
/^\[\[access\]\]/,/^$/b
/^\[\[link\]\]/,/^$/b
/^\(anchor\|pool\|gateways\) = /b
/^address = "2001:db8:a::1"$/b
/^[^#]/s/^/#/
s/^#nat = false/nat = true/
s/^#join_file/join_file/
