# An example becomes a configuration to begin with: every key shows its default, but for what each installation needs.
/^[^#]/s/^/#/
s/^#nat = false/nat = true/
s/^#join_file/join_file/
