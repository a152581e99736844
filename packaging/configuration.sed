# Turns an example into a first configuration: every key shows its default, except those that each installation needs.
/^[^#]/s/^/#/
s/^#nat = false/nat = true/
s/^#join_file/join_file/
