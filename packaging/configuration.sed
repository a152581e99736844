# Turns an example into a first configuration: examples become comments, except those that a comment calls required.
/^# .*Required/,/^$/b
/^\[\(keepalive\|steering\)\]$/b
s/^enabled = false/#enabled = true/
/^[^#]/s/^/# /
s/^#nat = false/nat = true/
