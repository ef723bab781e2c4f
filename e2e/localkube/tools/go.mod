module pdd.dev/localkube/tools

go 1.24.0

require golang.org/x/sys v0.39.0
