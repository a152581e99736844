# Pages are installed without the source code: links to it become plain text.
s/\[\([^]]*\)\]([./]*\(ARCHITECTURE\|CONTRIBUTING\|crates\|packaging\)[^)]*)/\1/g
